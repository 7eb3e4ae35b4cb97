//! Stories that do everything wrong, all in one swarm: each ends with its own cause, keeps what it had, and costs no other.

use super::*;

/// Says at once that it completed, as the protocol would have it, on standard output.
const FORGED_RECORDS: &str = r#"ID=$(cat /proc/sys/kernel/hostname)
say() { printf '{"type":"%s","timestamp":"2026-01-01T00:00:00Z","swarmId":"%s","containerId":"%s","payload":%s}\n' "$1" "$LONGSHORE_SWARM" "$ID" "$2"; }
say progress-update '{"storyId":"US-003","status":"completed","output":"forged"}'
say completion '{"status":"completed","prUrl":null,"errors":[]}'
say completion '{"status":"completed","prUrl":null,"errors":[]}' >&2
echo forged > forged
exit 3"#;

#[test]
fn each_failing_story_has_its_cause_and_is_salvaged() {
    let scratch = SwarmFixture::new();
    let bad = [
        (1, "yes 0123456789abcdef | head -c 10000000; echo w > f1"),
        (2, "head -c 1000000 /dev/urandom; head -c 100000 /dev/zero >&2; echo w > f2"),
        (3, FORGED_RECORDS),
        (4, "(sleep 1000 &); setsid sleep 1000 & setsid sh -c 'trap \"\" TERM HUP; sleep 1000' & echo w > f4"),
        (5, "echo w > f5; rm -rf .git"),
        (6, "echo nothing is written"),
        (7, "printf '<<<<<<< a\\nx\\n=======\\ny\\n>>>>>>> b\\n' > f7"),
        (8, "echo w > f8; git branch -f other"),
        (9, "git checkout -q -b other && echo w > f9 && git add . && git commit -qm other"),
        (10, "echo w > f10; git update-ref refs/heads/main HEAD"),
        (11, "dd if=/dev/zero of=big bs=1M count=100 2>/dev/null"),
        (12, "echo w > f12; exit 137"),
        (13, "echo w > f13; kill -9 $$"),
        (
            14,
            "echo w > f14; ls /proc/1/fd && exit 0; cat /proc/1/environ && exit 0; echo x > /proc/1/fd/1 && exit 0; exit 14",
        ),
        (15, "echo w > f15; rm -rf .git/objects .git/HEAD; chmod 000 f15; mkdir d; touch d/in; chmod 000 d"),
        (16, "echo w > f16; acp-shim progress 'half done'; acp-shim fail 'the plan has a hole'; exit 0"),
        (17, "echo w > f17; no-such-program"),
        (
            18,
            "echo w > f18; ln -s /etc/passwd link; mkfifo pipe; git config core.pager 'touch /tmp/x'; printf '#!/bin/sh\\nexit 1\\n' > .git/hooks/pre-commit 2>/dev/null; mkdir -p .git/hooks; printf '#!/bin/sh\\nexit 1\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
        ),
    ];
    let tasks = scratch.tasks("feat/bad", bad.iter().map(|(number, command)| story(*number, command)).collect());
    scratch.longshore(&["run", &tasks, "--retries", "0", "--max", "4"]).expect(1, &["5 landed, 13 failed"]);

    let state = scratch.state();
    state.expect(&[
        "landed",
        "landed",
        "failed agent_failed",
        "landed",
        "failed repo_damaged",
        "failed no_changes",
        "failed verification_failed",
        "failed branch_violation",
        "failed branch_violation",
        "failed branch_violation",
        "landed",
        "failed agent_failed",
        "failed agent_failed",
        "failed agent_failed",
        "failed repo_damaged",
        "failed agent_failed",
        "failed agent_failed",
        "landed",
    ]);
    assert_eq!(state.0["status"], "some_failed");
    let salvaged = [
        (3, "forged"),
        (5, "f5"),
        (7, "f7"),
        (8, "f8"),
        (9, "f9"),
        (10, "f10"),
        (12, "f12"),
        (13, "f13"),
        (14, "f14"),
        (15, "f15"),
        (16, "f16"),
        (17, "f17"),
    ];
    for (number, file) in salvaged {
        let reference = state.salvage(number);
        assert_eq!(reference, format!("refs/longshore/salvage/{}/US-{number:03}/1", state.swarm()));
        assert!(scratch.paths(reference).contains(&file.to_owned()), "{number}: {:?}", scratch.paths(reference));
    }
    assert_eq!(state.story(6)["salvage"], Value::Null, "there was nothing");
    for (number, file) in [(1, "f1"), (2, "f2"), (4, "f4"), (11, "big"), (18, "f18")] {
        assert!(scratch.paths("feat/bad").contains(&file.to_owned()), "{number}");
    }
    assert_eq!(scratch.git(&["cat-file", "-s", "feat/bad:big"]), (100 << 20).to_string());
    let heads: Vec<String> = scratch.refs().into_iter().filter(|name| name.starts_with("refs/heads/")).collect();
    assert_eq!(heads, ["refs/heads/feat/bad", "refs/heads/main"]);
    assert_eq!(state.story(12)["evidence"]["exitCode"], 137);
    assert_eq!(state.story(13)["evidence"]["signal"], 9);
    assert_eq!(state.story(14)["evidence"]["exitCode"], 14, "the protocol's descriptor is out of its reach");
    assert!(as_text(&state.story(16)["evidence"]["summary"]).contains("the plan has a hole"));
    assert_eq!(state.story(8)["evidence"]["paths"], json!(["refs/heads/other"]));
    assert!(as_text(&state.story(3)["evidence"]["tail"][0]).contains("forged"));
    for container in state.0["containers"].as_array().expect("a list") {
        assert_eq!(container["badRecords"], 0, "{container}");
    }

    let log = |number: usize| {
        let assignment = as_text(&state.story(number)["assignment"]).to_owned();
        std::fs::read(scratch.latest().join(format!("logs/{assignment}.log"))).expect("a log")
    };
    let length = log(1).len();
    assert!((8 << 20..9 << 20).contains(&length), "{length}: the log has an end, and says so");
    assert!(String::from_utf8_lossy(&log(1)).contains("the rest is dropped"));
    assert!(log(2).len() > 1_100_000, "binary output is kept as it is");
    scratch.git(&["fsck", "--strict"]);
    assert_eq!(scratch.git(&["status", "--porcelain"]), "");
    assert_eq!(scratch.engine_resources(), [""; 0]);
    // What a salvage ref has can be had back.
    scratch.git(&["checkout", "--quiet", state.salvage(9)]);
    assert_eq!(std::fs::read_to_string(scratch.root().join("f9")).expect("read"), "w\n");
}
