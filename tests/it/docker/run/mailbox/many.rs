//! Many messages between many sandboxes, and the latency of one.

use super::*;

const AGENTS: usize = 8;
const EACH: usize = 125;
/// The unused number in each outbox.
const GAP: usize = 50;

/// Sends 125 messages, skips one number, and reads the messages of all others.
const SPEAKS: &str = r#"
for n in $(seq 125); do
    if [ "$n" = 50 ]; then
        say 051 '*' STATUS "message 50"
    else
        acp-shim mail send --to '*' --type STATUS "message $n" > /dev/null
    fi
done
cd - > /dev/null
until [ "$(grep -c '"subject":"message ' /tmp/in 2> /dev/null)" = 875 ]; do
    code=0; acp-shim mail wait --json --timeout 60 >> /tmp/in 2>> /tmp/err || code=$?
    case $code in 0 | 3) ;; *) cat /tmp/err; exit 1 ;; esac
done
sed -n 's/.*"ref":"\([^"]*\)".*"subject":"message \([0-9]*\)".*/\1 \2/p' /tmp/in > "in-$LONGSHORE_AGENT"
cp /tmp/err "err-$LONGSHORE_AGENT"
"#;

#[test]
fn a_thousand_messages_between_eight_sandboxes() {
    let scratch = SwarmFixture::new();
    let command = format!("{FILES}{SPEAKS}");
    let stories: Vec<Value> = (1..=AGENTS).map(|n| agent(n, &format!("a{n}"), "speaker", &command)).collect();
    let tasks = scratch.mail_tasks("feat/many", json!(stories));
    let started_at = Instant::now();
    let running = scratch.start(&["run", &tasks, "--retries", "0", "--max", "8", "--memory", "256m"]);
    running.wait().expect(0, &["8 landed"]);
    eprintln!("a thousand messages between eight sandboxes: the whole swarm took {:?}", started_at.elapsed());

    let mailbox = scratch.mailbox();
    let number = |n: usize| if n < GAP { n } else { n + 1 };
    for me in (1..=AGENTS).map(|n| format!("a{n}")) {
        // The host has all of them, and also the requests for the missing number and the replies.
        let sent = messages(&mailbox, &me);
        let own: Vec<(u32, String)> = (sent.iter())
            .filter(|one| one.message_type == MailboxMessageType::Status)
            .map(|one| (one.seq.get(), one.content.body.clone()))
            .collect();
        let wanted: Vec<(u32, String)> =
            (1..=EACH).map(|n| (u32::try_from(number(n)).expect("small"), format!("message {n}"))).collect();
        assert_eq!(own, wanted, "{me} on the host");
        assert!(sent.iter().all(|one| one.seq.get() as usize != GAP));

        let received = scratch.show("feat/many", &format!("in-{me}"));
        let warnings = scratch.show("feat/many", &format!("err-{me}"));
        for other in (1..=AGENTS).map(|n| format!("a{n}")).filter(|other| *other != me) {
            let from: Vec<&str> = received.lines().filter(|line| line.starts_with(&format!("{other}/"))).collect();
            let wanted: Vec<String> = (1..=EACH).map(|n| format!("{other}/{:03} {n}", number(n))).collect();
            assert_eq!(from, wanted, "{me} reads the messages of {other} once and in order");
            let gap = format!("{other}/{GAP:03} is missing");
            assert_eq!(warnings.matches(&gap).count(), 1, "{me} says that {gap}: {warnings}");
        }
        assert_eq!(warnings.matches(" is missing").count(), AGENTS - 1, "and no other gap: {warnings}");
    }
    assert!(state_file(&mailbox).contains("| a1 | | missing | 050 |"), "{}", state_file(&mailbox));
}

#[test]
fn a_message_is_read_in_another_sandbox_at_once() {
    let scratch = SwarmFixture::new();
    let sends = r#"set -e
        acp-shim mail wait --from bravo > /dev/null
        for n in $(seq 20); do sleep 0.3; acp-shim mail send --to bravo --type STATUS "$(date +%s%N)" > /dev/null; done
        echo sent > sent"#;
    let reads = r#"set -e
        acp-shim mail send --to alpha --type STATUS ready
        for n in $(seq 20); do
            acp-shim mail wait --from alpha --timeout 100 > /tmp/m
            now=$(date +%s%N)
            sent=$(grep -m 1 -E '^[0-9]{19}$' /tmp/m)
            echo $(((now - sent) / 1000)) >> latencies
        done"#;
    let stories = json!([agent(1, "alpha", "sends", sends), agent(2, "bravo", "reads", reads)]);
    let tasks = scratch.mail_tasks("feat/quick", stories);
    scratch.longshore(&["run", &tasks, "--retries", "0"]).expect(0, &["2 landed"]);
    let text = scratch.show("feat/quick", "latencies");
    let mut found: Vec<u64> = text.lines().map(|line| line.parse().expect("microseconds")).collect();
    assert_eq!(found.len(), 20, "{text}");
    found.sort_unstable();
    let (median, most) = (found[10], found[19]);
    eprintln!("from send in one sandbox to read in another: median {median} us, most {most} us");
    assert!(median < 2_000_000, "{found:?}");
}
