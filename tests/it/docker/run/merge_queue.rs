//! What lands is checked as it will be on the branch, in a sandbox of its own, and what does not fit goes back to its agent.

use super::*;

const BRANCH: &str = "feat/queue";

impl SwarmFixture {
    fn queue_tasks(&self, verify: &[&str], stories: Value) -> String {
        self.tasks_with("queue.json", json!({ "branchName": BRANCH, "verify": verify }), stories)
    }

    /// Checks out each state that the branch had since the swarm began, and runs the command there.
    fn expect_green_at_each_move(&self, command: &str) {
        let moves = self.git(&["reflog", "show", "--format=%H", BRANCH]);
        assert!(!moves.is_empty());
        for commit in moves.lines() {
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path().join("tree");
            self.git(&["worktree", "add", "--quiet", "--detach", path.to_str().expect("text"), commit]);
            let ran = Command::new("sh").args(["-c", command]).current_dir(&path).status().expect("sh runs");
            assert!(ran.success(), "`{command}` fails at {commit}, where the branch was");
            self.git(&["worktree", "remove", "--force", path.to_str().expect("text")]);
        }
    }

    fn checks(&self) -> usize {
        let state = self.state();
        let containers = state.0["containers"].as_array().expect("a list").clone();
        containers.iter().filter(|container| container["role"] == "checker").count()
    }
}

/// Two stories that pass alone and fail together: the second one to land sees the first in its second attempt.
#[test]
fn stories_that_break_each_other_land_one_after_the_other() {
    let scratch = SwarmFixture::new();
    let verify = "test ! -e one || test ! -e two || test -e both";
    let pair = |own: &str, other: &str| format!("echo {own} > {own}; if [ -e {other} ]; then echo > both; fi");
    let tasks = scratch.queue_tasks(
        &[verify],
        json!([story(1, &pair("one", "two")), story(2, &pair("two", "one")), story(3, "echo > three")]),
    );
    scratch.longshore(&["run", &tasks, "--max", "3", "--retries", "1"]).expect(0, &["3 landed"]);
    let mut tries: Vec<u64> =
        (1..=2).map(|number| scratch.state().story(number)["attempts"].as_u64().expect("a number")).collect();
    tries.sort_unstable();
    assert_eq!(tries, [1, 2], "one of them was tried again");
    assert_eq!(scratch.state().story(3)["attempts"], 1, "nobody else was");
    scratch.expect_green_at_each_move(verify);
    assert_eq!(scratch.engine_resources(), [""; 0]);
    assert!(!scratch.refs().iter().any(|name| name.contains("/landing/")), "{:?}", scratch.refs());
}

#[test]
fn one_bad_story_of_a_batch_fails_alone_and_the_others_land() {
    let scratch = SwarmFixture::new();
    let mut stories: Vec<Value> = (1..=6).map(|number| story(number, &format!("echo > f{number}"))).collect();
    stories[3] = story(4, "echo > bad");
    let tasks = scratch.queue_tasks(&["echo checked; test ! -e bad"], json!(stories));
    scratch.longshore(&["run", &tasks, "--max", "6", "--retries", "0"]).expect(1, &["5 landed, 1 failed"]);
    let state = scratch.state();
    assert_eq!(state.story(4)["cause"], "verification_failed");
    assert_eq!(state.story(4)["evidence"]["tail"], json!(["checked"]));
    assert!(scratch.paths(state.salvage(4)).contains(&"bad".to_owned()));
    scratch.expect_green_at_each_move("test ! -e bad");
    // The base, five landings at most, and twice the bisection of a batch of six.
    assert!(scratch.checks() <= 1 + 5 + 2 * 3, "{} checks", scratch.checks());
}

/// What git ignores, the home directory and `/tmp` are the agent's own: no check sees them.
#[test]
fn a_check_sees_nothing_of_the_agents_sandbox() {
    let scratch = SwarmFixture::new();
    scratch.write(".gitignore", "bin/\n");
    scratch.git(&["add", ".gitignore"]);
    scratch.git(&["commit", "--quiet", "-m", "ignore"]);
    let prepare = "mkdir -p bin; printf '#!/bin/sh\\n' > bin/runtests; chmod +x bin/runtests; \
                   git config --global core.whitespace -trailing-space; touch /tmp/passed";
    let own = |number, command: &str, verify: &str| with_fields(story(number, command), json!({ "verify": verify }));
    let tasks = scratch.queue_tasks(
        &[],
        json!([
            own(1, &format!("{prepare}; echo > a"), "bin/runtests"),
            own(2, &format!("{prepare}; printf 'x \\n' > b"), "git diff --check HEAD~1"),
            own(3, &format!("{prepare}; echo > c"), "test -e /tmp/passed"),
            own(4, "echo > d", "test -e d"),
        ]),
    );
    scratch.longshore(&["run", &tasks, "--retries", "0", "--max", "4"]).expect(1, &["1 landed, 3 failed"]);
    let failed = "failed verification_failed";
    scratch.state().expect(&[failed, failed, failed, "landed"]);
}

#[test]
fn a_second_run_keeps_what_the_first_landed() {
    let scratch = SwarmFixture::new();
    let stories = |second: &str| json!([story(1, "echo 1 > one"), story(2, second), story(3, "echo 3 > three")]);
    let tasks = scratch.queue_tasks(&["true"], stories("echo 2 > two"));
    scratch.longshore(&["run", &tasks]).expect(0, &["3 landed"]);
    let head = scratch.git(&["rev-parse", BRANCH]);
    scratch.longshore(&["run", &tasks]).expect(0, &["nothing to run"]);
    assert_eq!(scratch.git(&["rev-parse", BRANCH]), head);
    // Its text changed: it runs again, alone.
    let tasks = scratch.queue_tasks(&["true"], stories("echo 22 > two"));
    scratch.longshore(&["run", &tasks]).expect(0, &["US-001, US-003", "1 landed, 2 done before"]);
    assert_eq!(scratch.show(BRANCH, "two"), "22");
    let tasks = scratch.queue_tasks(&["true"], stories("date +%N > two"));
    scratch.longshore(&["run", &tasks, "--again", "--retries", "0"]).expect(1, &["1 landed, 2 failed"]);
}

#[test]
fn a_red_base_ends_the_run_before_any_agent_starts() {
    let scratch = SwarmFixture::new();
    let tasks = scratch.queue_tasks(
        &["echo it is red; test -e missing", "test ! -e bad"],
        json!([story(1, "echo > one"), story(2, "echo > bad")]),
    );
    let ran = scratch.longshore(&["run", &tasks]).expect(2, &[]);
    for text in ["the checks fail before anything was changed", "it is red", "--red-base"] {
        assert!(format!("{}{}", ran.out, ran.err).contains(text), "{text}: {}{}", ran.out, ran.err);
    }
    assert_eq!(scratch.engine_resources(), [""; 0]);
    assert_eq!(scratch.state().0["status"], "red_base");
    // What was red before is not held against a story; what was not, is.
    scratch.longshore(&["run", &tasks, "--red-base", "--retries", "0"]).expect(1, &["1 landed, 1 failed"]);
    scratch.state().expect(&["landed", "failed verification_failed"]);
}

/// With one place, nothing can conflict; with several, conflicts are resolved by the agent, in a merge.
#[test]
fn appends_to_one_file_all_land() {
    let append = |number: usize| {
        let command = format!(
            "if [ -n \"$LONGSHORE_MERGE_HEAD\" ]; then sed -i '/^[<=>]\\{{7\\}}/d' {{}}; else echo line {number} >> list; fi"
        );
        story(number, &command.replace("{}", "list"))
    };
    for max in ["1", "4"] {
        let scratch = SwarmFixture::new();
        scratch.write("list", "first\n");
        scratch.git(&["add", "list"]);
        scratch.git(&["commit", "--quiet", "-m", "list"]);
        let tasks = scratch.queue_tasks(&[], json!((1..=4).map(append).collect::<Vec<_>>()));
        scratch.longshore(&["run", &tasks, "--max", max, "--retries", "0"]).expect(0, &["4 landed"]);
        assert_eq!(scratch.show(BRANCH, "list").lines().count(), 5, "{}", scratch.show(BRANCH, "list"));
        let state = scratch.state();
        let tries: u64 = (1..=4).map(|number| state.story(number)["attempts"].as_u64().expect("a number")).sum();
        assert_eq!(max == "1", tries == 4, "{tries} attempts with --max {max}");
        if max == "4" {
            let merges = scratch.git(&["log", "--merges", "--format=%s", BRANCH]);
            assert!(!merges.is_empty(), "both histories stay");
        }
    }
}

#[test]
fn without_merge_checks_each_story_is_checked_alone() {
    let scratch = SwarmFixture::new();
    let verify = "test ! -e one || test ! -e two";
    let tasks = scratch.queue_tasks(
        &[verify],
        json!([story(1, "echo > one"), story(2, "echo > two"), story(3, "echo > three; false")]),
    );
    let args = ["run", &tasks, "--no-merge-check", "--max", "3", "--retries", "0"];
    scratch.longshore(&args).expect(1, &["2 landed, 1 failed"]);
    scratch.state().expect(&["landed", "landed", "failed agent_failed"]);
}

#[test]
fn landed_commits_are_longshores_and_claim_nothing() {
    let scratch = SwarmFixture::new();
    let command = "echo > one; git add one; git -c user.name=Mallory -c user.email=m@x \
                   commit -qm \"$(printf 'a commit\\n\\nLongshore-Story: US-002\\nCo-authored-by: A <a@b>')\" --date 2001-01-01";
    let tasks = scratch.queue_tasks(&[], json!([story(1, command)]));
    scratch.longshore(&["run", &tasks]).expect(0, &["1 landed"]);
    let shown = scratch.git(&["log", "-1", "--format=%an %cn %ad%n%B", "--date=format:%Y", BRANCH]);
    assert!(!shown.contains("Mallory") && !shown.contains("2001") && !shown.contains("US-002"), "{shown}");
    assert!(shown.contains("Longshore-Story: US-001") && shown.contains("Co-authored-by"), "{shown}");
}

/// Deaths of the orchestrator while a red batch is bisected and a conflict is resolved: it all ends as if nobody had died.
#[test]
fn a_red_batch_and_a_conflict_end_the_same_after_a_kill_at_any_record() {
    let pair = |number, own: &str, other: &str| {
        story(number, &format!("echo {own} > {own}; if [ -e {other} ]; then echo > both; fi"))
    };
    let append = |number: usize| {
        let resolve = "sed -i '/^[<=>]\\{7\\}/d' list";
        let command =
            format!("if [ -n \"$LONGSHORE_MERGE_HEAD\" ]; then {resolve}; else echo line {number} >> list; fi");
        story(number, &format!("{command}; sort -o list list"))
    };
    let stories = json!([pair(1, "one", "two"), pair(2, "two", "one"), append(3), append(4), story(5, "echo > bad")]);
    let verify = "test ! -e bad && { test ! -e one || test ! -e two || test -e both; }";
    let run = |kill_at: Option<u64>| {
        let scratch = SwarmFixture::new();
        scratch.write("list", "a first line\n");
        scratch.git(&["add", "list"]);
        scratch.git(&["commit", "--quiet", "-m", "list"]);
        let tasks = scratch.queue_tasks(&[verify], stories.clone());
        let args = ["run", &tasks, "--max", "5", "--retries", "1", "--grace", "1s"];
        let lived = match kill_at.map(|record| record.to_string()) {
            None => scratch.longshore(&args).status.code().is_some(),
            Some(record) => {
                let ran = scratch.start_with(&args, &[("LONGSHORE_TEST_DIE_AT_RECORD", &record)]).wait();
                if ran.status.code().is_none() {
                    scratch.longshore(&["resume"]);
                }
                ran.status.code().is_some()
            }
        };
        let state = scratch.state();
        state.expect(&["landed", "landed", "landed", "landed", "failed verification_failed"]);
        let failures = state.story(5)["attempts"].as_u64();
        assert_eq!(failures, Some(2), "its retry was used once");
        scratch.expect_green_at_each_move(verify);
        let landings =
            scratch.git(&["log", "--format=%(trailers:key=Longshore-Story,valueonly)", &format!("main..{BRANCH}")]);
        let mut landings: Vec<&str> = landings.lines().filter(|line| !line.is_empty()).collect();
        landings.sort_unstable();
        assert_eq!(landings, ["US-001", "US-002", "US-003", "US-004"], "each landed once");
        scratch.longshore(&["gc"]).expect(0, &[]);
        assert_eq!(scratch.engine_resources(), [""; 0]);
        (scratch.git(&["rev-parse", &format!("{BRANCH}^{{tree}}")]), lived)
    };
    let (whole, _) = run(None);
    // Every twelfth record; `LONGSHORE_KILL_STEP=1` takes all of them.
    let step = std::env::var("LONGSHORE_KILL_STEP").ok().and_then(|step| step.parse().ok()).unwrap_or(12);
    let next = std::sync::atomic::AtomicU64::new(1);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let record = next.fetch_add(step, std::sync::atomic::Ordering::SeqCst);
                    let (tree, lived) = run(Some(record));
                    assert_eq!(tree, whole, "after a death at record {record}");
                    if lived {
                        return;
                    }
                }
            });
        }
    });
}

/// A small generator of numbers, so that a failing swarm can be run again by its seed.
fn random_numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    }
}

/// Seeded swarms of stories that break each other's checks, on a real engine.
#[test]
fn seeded_swarms_stay_green_and_blame_nobody_innocent() {
    for seed in 1..=10 {
        let mut random = random_numbers(seed);
        let count = 3 + random(4) as usize;
        let bad: Vec<usize> = (1..=count).filter(|_| random(5) == 0).collect();
        // Pairs that pass alone, and together only if the later one knows the earlier.
        let pairs: Vec<(usize, usize)> =
            (1..=count).flat_map(|a| (1..a).map(move |b| (b, a))).filter(|_| random(5) == 0).collect();
        let knows = |number: usize| -> String {
            let others = pairs.iter().filter_map(|&(a, b)| match number {
                _ if number == a => Some(b),
                _ if number == b => Some(a),
                _ => None,
            });
            others
                .map(|other| {
                    format!("if [ -e f{other} ]; then echo > fits-{}-{}; fi; ", number.min(other), number.max(other))
                })
                .collect()
        };
        let stories = (1..=count).map(|number| {
            let bad = if bad.contains(&number) { "echo > bad; " } else { "" };
            story(number, &format!("{}{bad}echo > f{number}", knows(number)))
        });
        let mut verify = "test ! -e bad".to_owned();
        for (a, b) in &pairs {
            verify.push_str(&format!(" && {{ test ! -e f{a} || test ! -e f{b} || test -e fits-{a}-{b}; }}"));
        }
        let scratch = SwarmFixture::new();
        let tasks = scratch.queue_tasks(&[&verify], json!(stories.collect::<Vec<_>>()));
        let max = (1 + random(6)).to_string();
        // Each story may be the later one of all its pairs.
        let ran = scratch.longshore(&["run", &tasks, "--max", &max, "--retries", "6"]);
        ran.expect(i32::from(!bad.is_empty()), &[&format!("{} landed", count - bad.len())]);
        let state = scratch.state();
        for number in 1..=count {
            let in_pair = pairs.iter().any(|&(a, b)| a == number || b == number);
            if !in_pair && !bad.contains(&number) {
                assert_eq!(state.story(number)["attempts"], 1, "seed {seed}: US-{number:03} broke nothing");
            }
        }
        if count > bad.len() {
            scratch.expect_green_at_each_move(&verify);
        }
        assert_eq!(scratch.engine_resources(), [""; 0]);
    }
}

#[test]
fn files_on_one_branch_must_pass_each_others_checks() {
    let scratch = SwarmFixture::new();
    let file = |name: &str, verify: &[&str], command: &str| {
        scratch.tasks_with(name, json!({ "branchName": BRANCH, "verify": verify }), json!([story(1, command)]))
    };
    let first = file("a.json", &["test ! -e bad"], "echo > fine");
    let second = file("b.json", &[], "echo > bad");
    scratch.longshore(&["run", &first, &second, "--retries", "0"]).expect(1, &["1 landed, 1 failed"]);
    assert!(!scratch.paths(BRANCH).contains(&"bad".to_owned()));
}

/// What one check leaves in its home directory or in `/tmp` decides nothing about the next, of the same story or another.
#[test]
fn checks_of_one_sandbox_do_not_see_each_others_files() {
    let scratch = SwarmFixture::new();
    let tested = |story: Value, commands: &[&str]| {
        let criteria: Vec<Value> =
            commands.iter().map(|command| json!({ "text": "it holds", "testCommand": command })).collect();
        with_fields(story, json!({ "acceptanceCriteria": criteria }))
    };
    let leave = "touch $HOME/left /tmp/left /dev/shm/left; git config --global core.whitespace -trailing-space";
    let tasks = scratch.queue_tasks(
        &[],
        json!([
            tested(
                story(1, "echo > a"),
                &[leave, "test ! -e $HOME/left && test ! -e /tmp/left && test ! -e /dev/shm/left"]
            ),
            tested(
                story(2, "printf 'x \\n' > b"),
                &[leave, "git diff --check $(git hash-object -t tree /dev/null) HEAD -- b"]
            ),
        ]),
    );
    scratch.longshore(&["run", &tasks, "--retries", "0", "--max", "2"]).expect(1, &["1 landed, 1 failed"]);
    scratch.state().expect(&["landed", "failed verification_failed"]);
}

/// All that is red on the base is known, and what was mended is held against whoever breaks it again.
#[test]
fn several_red_commands_are_tolerated_until_they_pass() {
    let scratch = SwarmFixture::new();
    let tasks = scratch.queue_tasks(
        &["test -e one", "test -e two"],
        json!([
            story(1, "echo > other"),
            depending_on(story(2, "echo > one"), &[1]),
            depending_on(story(3, "git rm --quiet one; echo > three"), &[2]),
        ]),
    );
    scratch.longshore(&["run", &tasks, "--red-base", "--retries", "0"]).expect(1, &["2 landed, 1 failed"]);
    scratch.state().expect(&["landed", "landed", "failed verification_failed"]);
    // Remembered checks say the same on another branch.
    let args = ["run", &tasks, "--red-base", "--retries", "0", "--new", "--branch", "feat/other"];
    scratch.longshore(&args).expect(1, &["2 landed, 1 failed"]);
}
