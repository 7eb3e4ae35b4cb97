//! Agents, orchestrators, depots and volumes that die.

use longshore::protocol::mailbox::message::MailboxDraft;
use longshore::protocol::mailbox::roster::RosterEntry;

use super::*;

/// The sandbox of a story.
pub(super) fn sandbox(scratch: &SwarmFixture, number: usize) -> SandboxHandle {
    eventually("the story's sandbox runs", || {
        let swarm = scratch.swarms().pop()?;
        let of_swarm = format!("label={}={swarm}", label::SWARM);
        let of_story = format!("label={}=US-{number:03}", label::STORY);
        let listed = docker(&["ps", "-q", "--no-trunc", "--filter", &of_swarm, "--filter", &of_story]).ok()?;
        listed.split_whitespace().next().map(|id| SandboxHandle(id.to_owned()))
    })
}

fn nanoseconds() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_nanos()
}

#[test]
fn a_killed_agent_is_noticed_by_the_others_and_in_the_roster() {
    let scratch = SwarmFixture::new();
    let waits = r#"acp-shim mail wait --from bravo --timeout 100 && acp-shim mail send --to bravo "Go on" && touch /tmp/waiting
        code=0; acp-shim mail wait --from bravo --timeout 100 2> said || code=$?
        date +%s%N > when; echo $code > code; acp-shim mail roster > roster"#;
    let dies = r#"[ "$LONGSHORE_ATTEMPT" = 1 ] || exit 1; acp-shim mail send --to alpha --type STATUS "Here I am"; acp-shim mail wait --from alpha; sleep 1000"#;
    // The third story takes the victim's place, so that the victim's second attempt has to wait.
    let third = story(3, &format!("{WAIT_FOR_GO} echo 3 > 3"));
    let stories = json!([agent(1, "alpha", "survivor", waits), agent(2, "bravo", "victim", dies), third]);
    let tasks = scratch.mail_tasks("feat/crash", stories);
    let running = scratch.start(&["run", &tasks, "--retries", "0", "--max", "2"]);
    let mailbox = scratch.mailbox();
    let (alpha, bravo) = (sandbox(&scratch, 1), sandbox(&scratch, 2));
    eventually("alpha waits for bravo", || docker(&["exec", &alpha.0, "test", "-e", "/tmp/waiting"]).ok());
    assert_eq!(
        statuses(&mailbox),
        [("alpha".to_owned(), AgentStatus::Active), ("bravo".to_owned(), AgentStatus::Active)].into()
    );

    let killed = (Instant::now(), nanoseconds());
    docker(&["kill", &bravo.0]).expect("it runs");
    eventually("the roster has it", || (statuses(&mailbox)["bravo"] == AgentStatus::Crashed).then_some(()));
    let in_roster = killed.0.elapsed();
    eventually("alpha is done", || (statuses(&mailbox)["alpha"] == AgentStatus::Done).then_some(()));
    assert_eq!(statuses(&mailbox)["bravo"], AgentStatus::Crashed);
    sandbox(&scratch, 3).release();
    running.wait().expect(1, &["2 landed, 1 failed"]);
    let when: u128 = scratch.show("feat/crash", "when").parse().expect("a time");
    let noticed = Duration::from_nanos(u64::try_from(when.saturating_sub(killed.1)).expect("soon"));
    eprintln!(
        "a killed agent: in the host's roster after {in_roster:?}, noticed by who waits for it after {noticed:?}"
    );
    let limit = Duration::from_secs(10);
    assert!(in_roster < limit && noticed < limit, "{in_roster:?} {noticed:?}");
    assert_eq!(scratch.show("feat/crash", "code"), "3");
    assert!(scratch.show("feat/crash", "said").contains("bravo is gone (`crashed`)"));
    assert!(scratch.show("feat/crash", "roster").contains("crashed"));
    // The second attempt failed without signing off.
    assert_eq!(statuses(&mailbox)["bravo"], AgentStatus::Left);
    let state = state_file(&mailbox);
    assert!(state.contains("of 3 agents, 2 signed off, 0 crashed and 1 left"), "{state}");
}

/// Thirty turns each. After 10 and after 20, alpha waits for the test.
const PING: &str = r#"
set -e
for n in $(seq 1 30); do
    acp-shim mail send --to bravo --type REQUEST "ping $n" > ref
    acp-shim mail wait --from bravo --re "$(cat ref)" --timeout 100 > answer
    grep -q "^pong $n$" answer
    echo "$n" >> turns
    if [ "$n" = 10 ]; then touch /tmp/begun; until [ -e /tmp/go ]; do sleep 0.05; done; fi
    if [ "$n" = 20 ]; then touch /tmp/late; until [ -e /tmp/on ]; do sleep 0.05; done; fi
done
rm ref answer
acp-shim mail read --all | sed -n 's/^Meanwhile: //p' > meanwhile
test -s meanwhile
"#;
const PONG: &str = r#"
set -e
for n in $(seq 1 30); do
    acp-shim mail wait --from alpha --timeout 100 > request
    grep -q "^ping $n$" request
    acp-shim mail send --re "$(printf 'alpha/%03d' "$n")" "pong $n"
done
mv request last
"#;

#[test]
fn a_killed_orchestrator_loses_and_doubles_nothing_of_a_conversation() {
    let scratch = SwarmFixture::new();
    let stories = json!([agent(1, "alpha", "asks", PING), agent(2, "bravo", "answers", PONG)]);
    let tasks = scratch.mail_tasks("feat/talk", stories);
    let running = scratch.start(&["run", &tasks, "--retries", "0"]);
    let mailbox = scratch.mailbox();
    let alpha = sandbox(&scratch, 1);
    eventually("ten turns", || docker(&["exec", &alpha.0, "test", "-e", "/tmp/begun"]).ok());
    eventually("they are on the host", || (messages(&mailbox, "bravo").len() == 10).then_some(()));
    running.signal("KILL");
    assert_eq!(running.wait().status.code(), None);

    // The agents continue, and a person on the host writes, while nothing is transferred.
    docker(&["exec", &alpha.0, "touch", "/tmp/go"]).expect("it runs");
    eventually("twenty turns", || docker(&["exec", &alpha.0, "test", "-e", "/tmp/late"]).ok());
    assert_eq!(messages(&mailbox, "alpha").len(), 10, "nothing is transferred");
    let host = id("host");
    let now = jiff::Timestamp::now;
    mailbox.register(&RosterEntry::new(host.clone(), "person", None, now())).expect("registered");
    let draft = MailboxDraft::new(
        MessageRecipient::Agent(id("alpha")),
        MailboxMessageType::Status,
        "Meanwhile",
        "Meanwhile: all is well",
    );
    mailbox.send(&host, &draft, None, now()).expect("sent");
    let resumed = scratch.start(&["resume"]);
    eventually("what was said meanwhile is on the host", || (messages(&mailbox, "bravo").len() == 20).then_some(()));
    let sent = "/longshore/mailbox/agents/host/001.md";
    eventually("what the host said is in the sandbox", || docker(&["exec", &alpha.0, "test", "-e", sent]).ok());
    docker(&["exec", &alpha.0, "touch", "/tmp/on"]).expect("it runs");
    resumed.wait().expect(0, &["2 landed"]);

    for (agent, word) in [("alpha", "ping"), ("bravo", "pong")] {
        let bodies: Vec<String> = messages(&mailbox, agent).into_iter().map(|one| one.content.body).collect();
        let mut wanted: Vec<String> = (1..=30).map(|turn| format!("{word} {turn}")).collect();
        wanted.push(bodies.last().cloned().unwrap_or_default());
        assert_eq!(bodies, wanted);
        assert!(bodies[30].contains("Sent by longshore"), "{bodies:?}");
    }
    let turns: Vec<String> = (1..=30).map(|turn| turn.to_string()).collect();
    assert_eq!(scratch.show("feat/talk", "turns"), turns.join("\n"));
    assert_eq!(scratch.show("feat/talk", "meanwhile"), "all is well");
    let rows = mailbox.roster().expect("a roster").entries();
    assert_eq!(rows.len(), 3, "each once: {rows:?}");
    assert_eq!(mailbox.roster().expect("a roster").text().matches("| alpha |").count(), 1);
    assert_eq!(statuses(&mailbox)["alpha"], AgentStatus::Done);
    assert_eq!(scratch.engine_resources(), [""; 0]);
}

#[test]
fn a_depot_that_dies_is_replaced() {
    let scratch = SwarmFixture::new();
    let speaks = format!(
        "acp-shim mail send --to bravo --type STATUS one; {WAIT_FOR_GO} acp-shim mail send --to bravo --type STATUS two; \
                          acp-shim mail wait --from host --timeout 100 > heard"
    );
    let hears = "acp-shim mail wait --from alpha; acp-shim mail wait --from alpha --timeout 100 > heard-too";
    let stories = json!([agent(1, "alpha", "speaks", &speaks), agent(2, "bravo", "hears", hears)]);
    let tasks = scratch.mail_tasks("feat/heal", stories);
    let running = scratch.start(&["run", &tasks, "--retries", "0"]);
    let mailbox = scratch.mailbox();
    let alpha = scratch.sandboxes(1).swap_remove(0);
    eventually("the first is on the host", || (messages(&mailbox, "alpha").len() == 1).then_some(()));
    let swarm = scratch.swarms().pop().expect("a swarm");
    let short = &swarm[..8];
    docker(&["kill", &format!("longshore-{short}-depot")]).expect("it runs");
    alpha.release();
    eventually("the second is on the host", || (messages(&mailbox, "alpha").len() == 2).then_some(()));
    let draft = MailboxDraft::new(MessageRecipient::Agent(id("alpha")), MailboxMessageType::Status, "three", "three");
    mailbox.send(&id("host"), &draft, None, jiff::Timestamp::now()).expect("sent");
    running.wait().expect(0, &["2 landed"]);
    assert!(
        scratch.show("feat/heal", "heard").contains("three") && scratch.show("feat/heal", "heard-too").contains("two")
    );
    let mut rows: Vec<String> =
        mailbox.roster().expect("a roster").entries().into_iter().map(|row| row.id.to_string()).collect();
    rows.sort();
    assert_eq!(rows, ["alpha", "bravo", "host"], "whoever writes on the host has a row");
}

#[test]
fn a_removed_volume_is_filled_again() {
    let scratch = SwarmFixture::new();
    let command = format!(
        r#"if [ $LONGSHORE_ATTEMPT = 1 ]; then
            acp-shim mail send --to '*' --type STATUS before; acp-shim mail state --append "kept"; {WAIT_FOR_GO}
        else
            grep -q before $LONGSHORE_MAILBOX/agents/alpha/001.md && cat $LONGSHORE_MAILBOX/shared/*.md > shared
            acp-shim mail send --to '*' --type STATUS behind
        fi"#
    );
    let tasks = scratch.mail_tasks("feat/refill", json!([agent(1, "alpha", "writes", &command)]));
    let running = scratch.start(&["run", &tasks, "--grace", "2s"]);
    let mailbox = scratch.mailbox();
    scratch.sandboxes(1);
    eventually("both are on the host", || {
        let state = mailbox.read_shared(&SharedName::state()).ok()??;
        (messages(&mailbox, "alpha").len() == 1 && state.contains("kept")).then_some(())
    });
    running.signal("INT");
    running.wait().expect(130, &["longshore resume"]);
    assert_eq!(statuses(&mailbox)["alpha"], AgentStatus::Left);
    let swarm = scratch.swarms().pop().expect("a swarm");
    docker(&["volume", "rm", &format!("longshore-{}-mailbox", &swarm[..8])])
        .expect("the volume outlives the interruption");
    // In the meantime a person edits on the host.
    std::fs::write(mailbox.root().join("shared/PLAN.md"), "from the host\n").expect("written");
    scratch.longshore(&["resume"]).expect(0, &["1 landed"]);
    let shared = scratch.show("feat/refill", "shared");
    assert!(shared.starts_with("from the host\n# Shared State\n") && shared.ends_with("\nkept"), "{shared}");
    let subjects: Vec<(u32, String)> =
        messages(&mailbox, "alpha").into_iter().map(|one| (one.seq.get(), one.content.subject)).collect();
    let wanted = [(1, "before"), (2, "behind"), (3, "Signing off")].map(|(seq, text)| (seq, text.to_owned()));
    assert_eq!(subjects, wanted);
    assert_eq!(statuses(&mailbox)["alpha"], AgentStatus::Done);
    assert_eq!(state_file(&mailbox).matches("\nkept\n").count(), 1, "{}", state_file(&mailbox));
}
