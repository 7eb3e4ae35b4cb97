//! Work that did not land, found again: listed, shown, taken over.

use super::*;

/// A swarm with a story that fails twice, one that conflicts, and one that lands; the second's title and file are hostile.
fn run_failing_swarm(scratch: &SwarmFixture) -> CommandResult {
    let fails = "echo attempt $LONGSHORE_ATTEMPT > half; printf 'one\\ntwo\\nthree\\nfour\\n' > lines.txt; \
                 touch \"$(printf 'odd\\033[31mname')\"; echo said; exit 7";
    let evil = with_fields(story(1, fails), json!({ "title": "Add \u{1b}[31mred" }));
    let tasks = scratch.tasks("feat/salvage", json!([evil, story(2, "echo 2 > f2")]));
    scratch.longshore(&["run", &tasks, "--max", "1"])
}

#[test]
fn salvaged_work_is_listed_shown_and_applied() {
    let scratch = SwarmFixture::new();
    scratch.longshore(&["salvage"]).expect(0, &["no kept work"]);
    run_failing_swarm(&scratch).expect(1, &["1 landed, 1 failed"]);
    let state = scratch.state();
    let short = &state.swarm()[..8];

    let listed = scratch.longshore(&["salvage"]).expect(0, &["agent_failed"]).out;
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), 3, "a head and a line an attempt; what landed is not kept work:\n{listed}");
    for (line, attempt) in lines[1..].iter().zip(["2", "1"]) {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[..4], [short, "US-001", attempt, "agent_failed"], "{listed}");
        assert_eq!(words[5..8], ["3", "+2", "-0"], "{listed}");
    }
    // All but the age, the ninth word of a row: a second may have gone by.
    let ageless = |table: &str| -> Vec<String> {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        table.lines().map(|line| [&words(line)[..8], &words(line)[9..]].concat().join(" ")).collect()
    };
    assert_eq!(ageless(&scratch.longshore(&["salvage", "list", "--swarm", short]).out), ageless(&listed));
    assert_eq!(scratch.longshore(&["salvage", "--swarm", "0000"]).expect(0, &[]).out.lines().count(), 1);
    let json = scratch.longshore(&["salvage", "--json"]).expect(0, &[]).out;
    let line: Value = serde_json::from_str(json.lines().next().expect("a line")).expect("JSON");
    assert_eq!((as_text(&line["reference"]), &line["cause"]), (state.salvage(1), &json!("agent_failed")));
    assert_eq!((as_text(&line["base"]), &line["branches"]), (scratch.git(&["rev-parse", "main"]).as_str(), &json!([])));

    // The newest attempt, by whatever name; each with its own evidence.
    for name in ["US-001", state.salvage(1), &format!("{short}/US-001/2")] {
        let shown = scratch.longshore(&["salvage", "show", name]);
        shown.expect(
            0,
            &[state.salvage(1), "US-001  Add", "agent_failed", "exit code 7", "| said", "3 files, +2 -0", "half"],
        );
    }
    let first = scratch.longshore(&["salvage", "show", "US-001/1", "--patch"]).expect(0, &[]).out;
    assert!(first.starts_with("diff --git") && first.contains("+attempt 1"), "{first}");
    scratch.longshore(&["salvage", "show", "US-002"]).expect(2, &["no kept work is called `US-002`", "US-001/2"]);

    scratch.longshore(&["salvage", "apply", "US-001/1", "--branch", "taken"]).expect(0, &["branch taken is at"]);
    assert_eq!(
        (scratch.show("taken", "half").as_str(), scratch.git(&["status", "--porcelain"]).as_str()),
        ("attempt 1", "")
    );
    scratch.longshore(&["salvage"]).expect(0, &["taken"]);
    scratch.longshore(&["salvage", "apply", "US-001", "--branch", "main"]).expect(2, &["refs/heads/main"]);

    // A change of the user's own to a file that is concerned is in the way; to another it is not.
    scratch.write("lines.txt", "mine\n");
    scratch.longshore(&["salvage", "apply", "US-001"]).expect(2, &["in the way: `lines.txt`", "nothing was changed"]);
    scratch.git(&["checkout", "--quiet", "lines.txt"]);
    scratch.write("mine", "mine\n");
    scratch.longshore(&["salvage", "apply", "US-001"]).expect(0, &["not committed: 3 files", "  half"]);
    let staged = scratch.git(&["diff", "--cached", "--name-only", "-z"]);
    assert!(staged.contains("half") && staged.contains("lines.txt") && !staged.contains("mine"), "{staged}");
    assert_eq!(std::fs::read_to_string(scratch.root().join("half")).expect("there"), "attempt 2\n");

    scratch.git(&["reset", "--quiet", "--hard"]);
    scratch.write("lines.txt", "one\ntwo\nthree\nfive\n");
    scratch.git(&["commit", "--quiet", "--all", "-m", "Go on"]);
    let head = scratch.git(&["rev-parse", "HEAD"]);
    scratch.longshore(&["salvage", "apply", "US-001"]).expect(1, &["conflicts with the head in lines.txt"]);
    assert_eq!(
        (scratch.git(&["rev-parse", "HEAD"]), scratch.git(&["status", "--porcelain"])),
        (head, "?? mine".to_owned())
    );
}

#[test]
fn salvage_lists_conflicting_commits_without_a_swarm_record() {
    let scratch = SwarmFixture::new();
    let (state, _, lost) = conflict(&scratch);
    let story = format!("US-{lost:03}");
    let shown = scratch.longshore(&["salvage", "show", &story]).expect(0, &["lines.txt"]);
    let newest = state.story(lost)["salvaged"].as_array().expect("a list").last().cloned().expect("a ref");
    assert!(shown.out.starts_with(as_text(&newest)), "{}", shown.out);
    let count = scratch.longshore(&["salvage"]).expect(0, &[]).out.lines().count();
    // Without the swarm's folder, the refs alone say it.
    std::fs::remove_dir_all(scratch.root().join(".longshore")).expect("removed");
    let listed = scratch.longshore(&["salvage"]).expect(0, &[&story]).out;
    assert_eq!(listed.lines().count(), count, "{listed}");
    // The merge in which nothing was resolved has what the other story landed.
    scratch.longshore(&["salvage", "apply", &format!("{story}/1")]).expect(0, &["lines.txt"]);
    // For the cleaning up: the folder's name is how this test's things are known.
    std::fs::create_dir_all(scratch.root().join(".longshore/swarms").join(state.swarm())).expect("made");
}

#[test]
fn a_work_dir_with_unsalvaged_files_is_kept() {
    let scratch = SwarmFixture::new();
    // Git takes no path that could be its own folder's on some file system.
    let fails = "echo half > half; mkdir -p a/.GIT; echo work > a/.GIT/config; exit 7";
    let tasks = scratch.tasks("feat/left", json!([story(1, fails), story(2, "echo 2 > f2")]));
    let ran = scratch.longshore(&["run", &tasks, "--max", "1", "--retries", "0"]);
    let ran =
        ran.expect(1, &["1 landed, 1 failed", "not all of the work could be salvaged: all of it is kept in the work"]);
    let state = scratch.state();
    assert_eq!(scratch.show(state.salvage(1), "half"), "half");
    assert_eq!(state.story(1)["salvaged"].as_array().map(Vec::len), Some(1), "one work, one name: {}", state.story(1));
    assert!(as_text(&state.story(1)["evidence"]["summary"]).contains("a/.GIT/config"), "{}", state.story(1));
    let containers = state.0["containers"].as_array().expect("containers");
    let folders: Vec<&str> = containers.iter().filter_map(|container| container["workKept"].as_str()).collect();
    let [folder] = folders[..] else { panic!("one folder is kept: {folders:?}") };
    assert!(ran.out.contains(folder), "{}", ran.out);
    let volumes = scratch.engine_resources();
    let work = volumes.iter().find(|name| name.ends_with("-work")).expect("the work volume is there");
    let file = format!("/work/{folder}/repo/a/.GIT/config");
    let mount = format!("{work}:/work");
    let read =
        docker(&["run", "--rm", "--network", "none", "-v", &mount, crate::docker::second_daemon::IMAGE, "cat", &file]);
    assert_eq!(read.as_deref(), Ok("work\n"));

    // Logs that were removed are not logs that never were.
    std::fs::remove_dir_all(scratch.latest().join("logs")).expect("removed");
    let asked = scratch.longshore(&["logs", "US-001"]).expect(2, &["there is no log of", "its sandbox has run"]);
    assert!(!asked.err.contains("has not started"), "{}", asked.err);
    scratch.longshore(&["logs"]).expect(0, &["none: what was in"]);
}
