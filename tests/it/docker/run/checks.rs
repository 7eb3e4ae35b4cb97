//! Verification of every kind, and the outcome written back.

use super::*;

#[test]
fn unverified_work_does_not_land() {
    let scratch = SwarmFixture::new();
    let criteria = |story, commands: &[&str]| {
        let object = |command: &&str| json!({ "text": format!("`{command}` holds"), "testCommand": command });
        let list: Vec<Value> = [json!("somebody likes it")].into_iter().chain(commands.iter().map(object)).collect();
        with_fields(story, json!({ "acceptanceCriteria": list }))
    };
    let tasks = scratch.tasks_with(
        "checked.json",
        json!({ "branchName": "feat/checked", "verify": ["test ! -e bad-file-wide", "test -n \"$LONGSHORE_STORY\""] }),
        json!([
            criteria(story(1, "echo 1 > f1"), &["test -e f1", "test $(cat f1) = 1"]),
            criteria(story(2, "echo 2 > f2"), &["test -e f2", "echo why >&2; test -e nothing", "true"]),
            story(3, "echo 3 > f3; touch bad-file-wide"),
            with_fields(story(4, "echo 4 > f4"), json!({ "verify": "test -e own" })),
            story(5, "echo 5 > f5; touch bad-flag"),
            with_fields(
                story(6, "echo 6 > f6"),
                json!({ "verify": "echo changed > f6; echo more > more; git commit -qam x" })
            ),
        ]),
    );
    let args = ["run", &tasks, "--retries", "0", "--verify", "test ! -e bad-flag", "--write-back"];
    scratch.longshore(&args).expect(1, &["2 landed, 4 failed", "the outcome was written into"]);
    let state = scratch.state();
    let failed = "failed verification_failed";
    state.expect(&["landed", failed, failed, failed, failed, "landed"]);
    let commands: Vec<&Value> = (2..=5).map(|number| &state.story(number)["evidence"]["command"]).collect();
    assert_eq!(
        commands,
        ["echo why >&2; test -e nothing", "test ! -e bad-file-wide", "test -e own", "test ! -e bad-flag"]
    );
    assert_eq!(state.story(2)["evidence"]["tail"], json!(["why"]));
    assert_eq!(scratch.paths("feat/checked"), ["f1", "f6", "lines.txt"]);
    assert_eq!(scratch.show("feat/checked", "f6"), "6", "checks change nothing");
    for number in 2..=5 {
        assert!(scratch.paths(state.salvage(number)).contains(&format!("f{number}")));
    }

    let journal = std::fs::read_to_string(scratch.latest().join("journal.ndjson")).expect("a journal");
    let met = |id: &str, met: &str| format!("\"id\":\"{id}\",\"text\":\"`test -e f2` holds\",\"met\":{met}");
    assert!(journal.contains(&met("AC-2", "true")), "{journal}");
    assert!(journal.contains("\"text\":\"somebody likes it\",\"met\":null"), "{journal}");
    assert!(journal.contains("\"text\":\"`echo why >&2; test -e nothing` holds\",\"met\":false"), "{journal}");

    // What is told of it in AMP is git's count and what checks said, and null where nobody could check.
    let results = |number: usize| -> Value {
        let log = scratch.longshore(&["ssot", "log", &format!("T-2026-{number:03}"), "--json"]).expect(0, &[]).out;
        let mut log = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        log.find(|entry| entry["message"]["type"] == "task_result").expect("a result")["message"]["payload"].clone()
    };
    let (first, second) = (results(1), results(2));
    assert_eq!(first["self_assessment"]["criteria_met"], json!([null, true, true]));
    assert_eq!(second["self_assessment"]["criteria_met"], json!([null, true, false, true]));
    assert_eq!(first["diff_summary"], json!({ "files_changed": ["f1"], "lines_added": 1, "lines_removed": 0 }));
    assert_eq!(first["commit_hash"], state.story(1)["commit"]);
    assert_eq!((&first["completion_status"], &second["completion_status"]), (&json!("complete"), &json!("failed")));
    assert!(as_text(&second["blockers"][0]).starts_with("verification_failed"), "{second}");

    let written = std::fs::read(scratch.folder.path().join("checked.json")).expect("a tasks file");
    let written: Value = serde_json::from_slice(&written).expect("JSON");
    let statuses: Vec<&Value> = (0..6).map(|at| &written["userStories"][at]["status"]).collect();
    assert_eq!(statuses, ["completed", "failed", "failed", "failed", "failed", "completed"]);
}

#[test]
fn an_agent_gets_the_prompt() {
    let scratch = SwarmFixture::new();
    scratch.write(".longshore.toml", "[agents.copy]\nargv = ['sh', '-c', 'cat > from-stdin; cat \"$1\" > from-file; acp-shim task > card', 'agent', '{prompt_file}']\n");
    let mut story_with_prompt = story(1, "");
    story_with_prompt.as_object_mut().expect("an object").remove("command");
    let story_with_prompt = with_fields(
        story_with_prompt,
        json!({ "description": "Make it *shine*", "acceptanceCriteria": ["It shines"] }),
    );
    let tasks = scratch.tasks("feat/agent", json!([story_with_prompt]));
    scratch.longshore(&["run", &tasks]).expect(2, &["`US-001`", "no agent was named"]);
    scratch.longshore(&["run", &tasks, "--agent", "copy"]).expect(0, &["1 landed"]);
    let prompt = scratch.show("feat/agent", "from-stdin");
    assert!(
        prompt.contains("US-001") && prompt.contains("Make it *shine*") && prompt.contains("It shines"),
        "{prompt}"
    );
    assert_eq!(scratch.show("feat/agent", "from-file"), prompt);
    assert!(scratch.show("feat/agent", "card").contains("Make it *shine*"));
}
