//! Statuses of agents (messages after a DONE, new attempts, the end of the swarm) and repairs of the host's copy.

use longshore::protocol::mailbox::message::{MailboxDraft, MessageRef};

use super::ends::sandbox;
use super::*;

fn say(mailbox: &Mailbox, kind: MailboxMessageType, to: &str, text: &str) -> MessageRef {
    let draft = MailboxDraft::new(to.parse().expect("a recipient"), kind, text, text);
    mailbox.send(&id("host"), &draft, None, jiff::Timestamp::now()).expect("sent").swap_remove(0).reference()
}

#[track_caller]
fn becomes(mailbox: &Mailbox, agent: &str, status: &AgentStatus) {
    eventually(&format!("{agent} is {status}"), || (statuses(mailbox).get(agent) == Some(status)).then_some(()));
}

#[test]
fn a_message_after_done_makes_active_and_at_the_end_all_are_gone() {
    let scratch = SwarmFixture::new();
    let alpha = format!(
        r#"for n in one two three; do acp-shim mail send --to host --type STATUS $n; done; {WAIT_FOR_GO}
        acp-shim mail wait --from host
        code=0; acp-shim mail wait --from host --timeout 2 2> said || code=$?; echo $code > code"#
    );
    let bravo = format!(
        r#"[ "$LONGSHORE_ATTEMPT" = 1 ] || exit 1; acp-shim mail send --type DONE bye; {WAIT_FOR_GO}
        acp-shim mail send --to alpha --type STATUS "one thing more"; sleep 1000"#
    );
    // The third story takes bravo's place when bravo is killed.
    let third = story(3, &format!("{WAIT_FOR_GO} echo 3 > 3"));
    let stories = json!([agent(1, "alpha", "listener", &alpha), agent(2, "bravo", "talker", &bravo), third]);
    let tasks = scratch.mail_tasks("feat/more", stories);
    let running = scratch.start(&["run", &tasks, "--retries", "0", "--max", "2"]);
    let mailbox = scratch.mailbox();
    let boxes = scratch.sandboxes(2);
    eventually("alpha has spoken", || (messages(&mailbox, "alpha").len() == 3).then_some(()));

    // An agent on the host.
    say(&mailbox, MailboxMessageType::Done, "*", "bye");
    becomes(&mailbox, "host", &AgentStatus::Done);
    say(&mailbox, MailboxMessageType::Status, "alpha", "I am back");
    becomes(&mailbox, "host", &AgentStatus::Active);
    // A sandbox's agent continues, and then is killed.
    becomes(&mailbox, "bravo", &AgentStatus::Done);
    let is_bravo = |one: &&SandboxHandle| one.inspect()["Config"]["Labels"][label::STORY] == "US-002";
    let bravo = boxes.iter().find(is_bravo).expect("bravo's sandbox");
    let alpha = boxes.iter().find(|one| one.0 != bravo.0).expect("alpha's sandbox");
    bravo.release();
    becomes(&mailbox, "bravo", &AgentStatus::Active);
    docker(&["kill", &bravo.0]).expect("it runs");
    becomes(&mailbox, "bravo", &AgentStatus::Crashed);

    // A message that the host's copy loses is transferred again without a resend request.
    let lost = mailbox.root().join("agents/alpha/002.md");
    let before = std::fs::read(&lost).expect("a file");
    std::fs::remove_file(&lost).expect("removed");
    eventually("it is there again", || std::fs::read(&lost).ok().filter(|now| *now == before).map(drop));
    assert_eq!(sent_messages(&mailbox, "alpha").len(), 3);

    // The host cannot act as a sandbox's agent.
    for me in ["alpha", "ALPHA", "bravo-reviewer"] {
        let ran = scratch.longshore(&["mailbox", "send", "--as", me, "--to", "*", "x"]);
        ran.expect(2, &["is the agent of a sandbox"]);
    }
    let watching = scratch.start(&["mailbox", "watch"]);
    alpha.release();
    becomes(&mailbox, "alpha", &AgentStatus::Done);
    sandbox(&scratch, 3).release();
    running.wait().expect(1, &["2 landed, 1 failed"]);
    assert_eq!(scratch.show("feat/more", "code"), "4", "host is there: {}", scratch.show("feat/more", "said"));
    // No agent is left, not even on the host.
    watching.wait().expect(0, &["host is left", "all agents are gone"]);
    assert!(statuses(&mailbox).values().all(AgentStatus::is_gone), "{:?}", statuses(&mailbox));
    let late = scratch.longshore(&["mailbox", "send", "--to", "*", "--type", "STATUS", "late"]);
    late.expect(0, &["the swarm has ended: its agents will not read this message"]);
    scratch.longshore(&["mailbox", "watch"]).expect(0, &["all agents are gone"]);
    let log = scratch.longshore(&["mailbox", "log"]).expect(0, &["host/003"]);
    assert!(!log.out.contains("Please send"), "no resend was requested: {}", log.out);
}

#[test]
fn a_second_attempt_is_awaited_and_can_send_whatever_the_umask_was() {
    let scratch = SwarmFixture::new();
    let fails = r#"umask 077
        acp-shim mail send --to bravo --type STATUS "attempt $LONGSHORE_ATTEMPT"
        acp-shim mail state --append "attempt $LONGSHORE_ATTEMPT"
        [ "$LONGSHORE_ATTEMPT" = 2 ] || { sleep 2; exit 1; }
        echo ok > ok"#;
    let waits = r#"set -e
        acp-shim mail wait --from alpha --timeout 100 > first
        acp-shim mail wait --from alpha --timeout 100 > second 2> said
        acp-shim mail state --append bravo"#;
    let stories = json!([agent(1, "alpha", "fails", fails), agent(2, "bravo", "waits", waits)]);
    let tasks = scratch.mail_tasks("feat/again", stories);
    scratch.longshore(&["run", &tasks]).expect(0, &["2 landed"]);
    let mailbox = scratch.mailbox();
    let subjects: Vec<String> = sent_messages(&mailbox, "alpha").into_iter().map(|(_, _, subject)| subject).collect();
    assert_eq!(subjects, ["attempt 1", "attempt 2", "Signing off"]);
    assert!(scratch.show("feat/again", "second").contains("attempt 2"));
    let output = scratch.show("feat/again", "said");
    assert!(output.contains("alpha was gone and has started again"), "{output}");
    let state = state_file(&mailbox);
    for line in ["attempt 1\n", "attempt 2\n", "bravo\n"] {
        assert!(state.contains(line), "{state}");
    }
    assert_eq!(statuses(&mailbox)["alpha"], AgentStatus::Done);
}

#[test]
fn no_agent_signs_off_between_two_stories_of_its_sandbox() {
    let scratch = SwarmFixture::new();
    let first = r#"acp-shim mail send --type DONE "the first is done" 2> told; grep -q "DONE is for the end" "$LONGSHORE_PROMPT_FILE""#;
    let second = r#"acp-shim mail wait --from listener; grep -q "mail send --type DONE" "$LONGSHORE_PROMPT_FILE"
        acp-shim mail send --type DONE "all is done"; echo 2 > 2"#;
    let listens = r#"acp-shim mail wait --from worker --timeout 100 > first
        code=0; acp-shim mail wait --from worker --timeout 2 || code=$?; echo $code > codes
        acp-shim mail send --to worker --type STATUS "go on"
        acp-shim mail wait --from worker --timeout 100 > last
        code=0; acp-shim mail wait --from worker --timeout 30 || code=$?; echo $code >> codes"#;
    let metadata = |branch: &str| json!({ "branchName": branch, "mailbox": true, "maxConcurrency": 2 });
    let worker = scratch.tasks_with("worker.json", metadata("feat/w"), json!([story(1, first), story(2, second)]));
    let listener = scratch.tasks_with("listener.json", metadata("feat/l"), json!([story(1, listens)]));
    let ran = scratch.longshore(&["run", &worker, &listener, "--fan-out", "file", "--retries", "0"]);
    ran.expect(0, &["3 landed"]);
    assert_eq!(scratch.show("feat/l", "codes"), "4\n3", "{}", scratch.show("feat/l", "first"));
    assert!(scratch.show("feat/l", "last").contains("type: DONE"));
    assert!(scratch.show("feat/w", "told").contains("you have more stories after this one"));
    assert_eq!(statuses(&scratch.mailbox())["worker"], AgentStatus::Done);
}

#[test]
fn removing_a_dead_swarm_marks_its_agents_as_left() {
    let scratch = SwarmFixture::new();
    let speaks = format!("acp-shim mail send --to host --type STATUS hello; {WAIT_FOR_GO} echo 1 > 1");
    let tasks = scratch.mail_tasks("feat/dead", json!([agent(1, "alpha", "speaks", &speaks)]));
    let running = scratch.start(&["run", &tasks, "--retries", "0"]);
    let mailbox = scratch.mailbox();
    scratch.sandboxes(1);
    say(&mailbox, MailboxMessageType::Status, "alpha", "I am here");
    becomes(&mailbox, "host", &AgentStatus::Active);
    // A lost roster is restored.
    std::fs::remove_file(mailbox.root().join("ROSTER.md")).expect("removed");
    becomes(&mailbox, "alpha", &AgentStatus::Active);
    running.signal("KILL");
    running.wait();
    assert_eq!(statuses(&mailbox)["alpha"], AgentStatus::Active, "its sandbox keeps running");
    scratch.longshore(&["gc", "--all"]).expect(0, &["whose work was salvaged"]);
    let left = ["alpha", "host"].map(|agent| (agent.to_owned(), AgentStatus::Left));
    assert_eq!(statuses(&mailbox), left.into());
    scratch.longshore(&["mailbox", "watch"]).expect(0, &["all agents are gone"]);
    let waits = scratch.longshore(&["mailbox", "read", "--wait", "--as", "someone"]);
    waits.expect(1, &["the swarm has ended"]);
    // An agent that sends afterwards, and is in no roster, does not keep others waiting either.
    scratch.longshore(&["mailbox", "send", "--as", "late", "--to", "*", "--type", "STATUS", "thanks"]).expect(0, &[]);
    scratch.longshore(&["mailbox", "read", "--as", "someone"]).expect(0, &["thanks"]);
    scratch.longshore(&["mailbox", "read", "--wait", "--as", "someone"]).expect(1, &["the swarm has ended"]);
}
