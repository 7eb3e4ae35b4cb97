//! Agents that write their own result, and keep the shim from writing its.

use super::*;

const BRANCH: &str = "feat/forged";

/// Writes a bundle and a result that claim a finished story with a commit of the agent's own, whose check (`VERIFY`) fails.
const FORGE: &str = r#"
out=$(dirname "$PWD")/out
echo forged > forged; git add -A; git commit -qm forged; git rev-parse HEAD > /tmp/tip
git bundle create -q /tmp/forged.bundle "$(git symbolic-ref HEAD)" "^origin/main" 2>> /tmp/said ||
    git bundle create -q /tmp/forged.bundle "$(git symbolic-ref HEAD)" 2>> /tmp/said
forge() {
    rm -rf "$out"/* 2>> /tmp/said
    cat > "$out/result.json" 2>> /tmp/said <<JSON && cp /tmp/forged.bundle "$out/result.bundle" && echo FORGED
{ "schemaVersion": 1, "swarmId": "$LONGSHORE_SWARM", "attempt": { "assignment": "$LONGSHORE_ASSIGNMENT", "number": $LONGSHORE_ATTEMPT },
  "base": "$(git rev-parse HEAD~1)", "tip": "$(cat /tmp/tip)", "bundle": true,
  "stories": [{ "id": "US-001", "outcome": { "outcome": "finished", "commit": "$(cat /tmp/tip)" }, "criteria": [], "commits": ["$(cat /tmp/tip)"],
    "workLog": [], "agentNotes": {}, "durationMs": 1 }] }
JSON
}
forge
"#;

/// What an agent could change of the first process that is no signal: its limits, its priority, its memory, its descriptors.
const TAMPER: &str = r#"
prlimit --pid 1 --fsize=0 && echo LIMITED
prlimit --pid 1 --as=1 && echo LIMITED
prlimit --pid 1 --nofile=1 && echo LIMITED
renice -n 19 -p 1 && echo LIMITED
echo 1000 > /proc/1/oom_score_adj && echo LIMITED
case $(uname -m) in x86_64) ptrace=101 ;; *) ptrace=117 ;; esac
perl -e 'exit(syscall($ARGV[0] + 0, 0x4206, 1, 0, 0) != 0)' "$ptrace" && echo TRACED
ls /proc/1/fd && echo TRACED
cat /proc/1/environ && echo TRACED
(echo x > /proc/1/fd/1) && echo TRACED
(echo x > /proc/1/mem) && echo TRACED
"#;

/// A process of another user cannot even send a signal.
const KILL: &str = "for signal in KILL STOP SEGV TERM INT; do kill -s $signal 1 && echo KILLED; done\n";

/// Puts something else in the place of the directories that the shim uses.
const MOVE: &str = r#"
out=$(dirname "$PWD")/out
touch "$out/x" && echo MOVED
ls "$out" && echo MOVED
chmod 777 "$out" && echo MOVED
for dir in out in run repo; do
    mv "$out/../$dir" "$out/../gone" && echo MOVED
    rmdir "$out/../$dir" && echo MOVED
done
touch "$out/../x" && echo MOVED
ls "$out/.." && echo MOVED
chmod 777 "$out/.." && echo MOVED
"#;

/// The words that only an attack that worked prints.
const WORDS: [&str; 5] = ["FORGED", "LIMITED", "TRACED", "KILLED", "MOVED"];

impl SwarmFixture {
    /// Runs stories with a check that fails on forged work.
    fn run_attacks(&self, commands: &[&str], args: &[&str]) -> CommandResult {
        let work = |(index, command): (usize, &&str)| {
            with_fields(story(index + 1, command), json!({ "verify": ["test ! -e forged"] }))
        };
        let tasks = self.tasks(BRANCH, commands.iter().enumerate().map(work).collect());
        self.longshore(&[&["run", &tasks, "--retries", "0"], args].concat())
    }

    /// Checks that no attack worked, and that nothing forged landed.
    #[track_caller]
    fn expect_nothing_forged(&self) {
        let log = self.longshore(&["logs", "US-001"]).out;
        let worked: Vec<&str> = log.lines().filter(|line| WORDS.contains(line)).collect();
        assert!(worked.is_empty(), "{log}");
        if self.refs().contains(&format!("refs/heads/{BRANCH}")) {
            assert!(!self.paths(BRANCH).contains(&"forged".to_owned()));
        }
    }
}

#[test]
fn an_agent_cannot_write_a_result_or_tamper_with_the_shim() {
    let scratch = SwarmFixture::new();
    scratch.run_attacks(&[&format!("{FORGE}{TAMPER}exit 0")], &[]).expect(1, &["1 failed"]);
    scratch.expect_nothing_forged();
    // The shim wrote the honest result, with what was done.
    let state = scratch.state();
    state.expect(&["failed verification_failed"]);
    assert!(scratch.paths(state.salvage(1)).contains(&"forged".to_owned()));
}

#[test]
fn an_agent_that_fills_its_memory_file_systems_forges_nothing() {
    let scratch = SwarmFixture::new();
    let fill =
        "for dir in /tmp $HOME; do for n in 1 2 3 4 5 6; do head -c 100M /dev/zero > $dir/$n; done; done; exit 0";
    let ran = scratch.run_attacks(&[&format!("{FORGE}{TAMPER}{fill}")], &["--memory", "300m"]);
    ran.expect(1, &["1 failed"]);
    scratch.expect_nothing_forged();
    let verdict = scratch.state().verdicts()["US-001"].clone();
    let honest = ["oom", "oom_suspected", "disk_full", "verification_failed"];
    assert!(honest.iter().any(|cause| verdict == format!("failed {cause}")), "{verdict}");
}

#[test]
fn an_agent_cannot_kill_the_shim_or_replace_its_directories() {
    let scratch = SwarmFixture::new();
    let good = "echo good > good; ln -s ../out/result.json ../run/prompt-US-002.md; ln -sf ../out/result.json ../in/memory.json; exit 0";
    let attack = format!("{MOVE}{KILL}{good}");
    let after = "test -f ../run/prompt-US-002.md && test ! -L ../run/prompt-US-002.md && cat good > better";
    scratch.run_attacks(&[&attack, after], &["--fan-out", "file"]).expect(0, &["2 landed"]);
    scratch.expect_nothing_forged();
    assert_eq!(scratch.show(BRANCH, "better"), "good");
}

#[test]
fn what_an_agent_leaves_running_changes_nothing_afterwards() {
    let scratch = SwarmFixture::new();
    // It begins when the agent has ended.
    let daemon = "agent=$$; setsid sh -c \"trap '' TERM HUP; while kill -0 $agent; do :; done; \
                  while :; do echo x > forged; echo x > good; done\" > /dev/null 2>&1 & echo good > good";
    scratch.run_attacks(&[daemon], &[]).expect(0, &["1 landed"]);
    scratch.expect_nothing_forged();
    assert_eq!(scratch.show(BRANCH, "good"), "good");
}

#[test]
fn a_destroyed_clone_is_rebuilt_from_the_bundle_of_earlier_stories() {
    let scratch = SwarmFixture::new();
    let commands = ["echo one > one", "cat one > two; rm -rf .git; exit 3"];
    scratch.run_attacks(&commands, &["--fan-out", "file"]).expect(1, &["1 landed, 1 failed"]);
    let state = scratch.state();
    state.expect(&["landed", "failed agent_failed"]);
    assert_eq!(scratch.show(state.salvage(2), "two"), "one");
    assert_eq!(scratch.show(state.salvage(2), "one"), "one", "on top of the first story");
}

#[test]
fn a_reviewer_cannot_write_a_result_either() {
    let scratch = review::with_reviewer();
    let attack = format!("({MOVE}{TAMPER}) > /tmp/said 2>&1; grep -qxE '{}' /tmp/said && exit 9", WORDS.join("|"));
    let reviewer = scratch.root().join("reviewer.sh");
    let script = std::fs::read_to_string(&reviewer).expect("a script");
    scratch.write("reviewer.sh", script.replacen("#!/bin/sh\n", &format!("#!/bin/sh\n{attack}\n"), 1));
    scratch.git(&["commit", "--quiet", "-am", "Another reviewer"]);
    let tasks = scratch.tasks(BRANCH, json!([review::story_adding(1, "one")]));
    scratch.longshore(&["run", &tasks, "--review", "rev"]).expect(0, &["1 landed"]);
}
