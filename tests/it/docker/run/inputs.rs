//! Input at its edges: what is refused before anything starts, and what is large and works. What needs no engine is in
//! `cli.rs`.

use super::*;

#[test]
fn a_five_megabyte_tasks_file_runs() {
    let scratch = SwarmFixture::new();
    let long = "Lorem ipsum \"dolor\" sit amet.\n".repeat(900);
    let stories: Vec<Value> = (1..=190)
        .map(|number| {
            let status = if number <= 2 { "pending" } else { "completed" };
            let one = story(number, "acp-shim task > card; grep -c dolor $LONGSHORE_TASKS_FILE > count");
            with_fields(one, json!({ "description": long, "status": status }))
        })
        .collect();
    let stories = [vec![stories[0].clone(), depending_on(stories[1].clone(), &[1, 3])], stories[2..].to_vec()].concat();
    let tasks = scratch.tasks("feat/large", Value::Array(stories.clone()));
    let size = std::fs::metadata(scratch.folder.path().join("tasks.json")).expect("a file").len();
    assert!(size > 5_000_000, "{size}");
    let ran = scratch.longshore(&["run", &tasks]);
    ran.expect(0, &["2 landed"]);
    assert!(scratch.show("feat/large", "card").contains("Lorem ipsum \"dolor\""));

    let all =
        Value::Array(stories.into_iter().map(|story| with_fields(story, json!({ "status": "pending" }))).collect());
    let tasks = scratch.tasks("feat/larger", all);
    scratch
        .longshore(&["run", &tasks, "--fan-out", "file"])
        .expect(2, &["the text for one sandbox has", "at most 640 KB", "hint: give each story a sandbox of its own"]);
    assert_eq!(scratch.swarms().len(), 1, "nothing was begun");
}

#[test]
fn invalid_tasks_files_are_refused_before_anything_starts() {
    let scratch = SwarmFixture::new();
    let write = |name: &str, bytes: &[u8]| std::fs::write(scratch.folder.path().join(name), bytes).expect("written");
    let good = |stories: Value| {
        let metadata = json!({ "title": "A", "type": "feat", "branchName": "feat/x", "createdAt": "2026-01-01" });
        json!({ "schemaVersion": "3.0", "metadata": metadata, "userStories": stories }).to_string()
    };
    write("empty.json", b"");
    write("text.json", b"# Not JSON\n");
    write("half.json", &good(json!([story(1, "true")])).as_bytes()[..200]);
    write("latin.json", b"{\"a\": \"\xe4\"}");
    write("shape.json", br#"{"tasks": [1, 2]}"#);
    write("list.json", b"[]");
    write("none.json", good(json!([])).as_bytes());
    write("twice.json", good(json!([story(1, "true"), story(1, "true")])).as_bytes());
    write("unknown.json", good(json!([depending_on(story(1, "true"), &[9])])).as_bytes());
    let cycle = json!([
        depending_on(story(1, "true"), &[3]),
        depending_on(story(2, "true"), &[1]),
        depending_on(story(3, "true"), &[2])
    ]);
    write("cycle.json", good(cycle).as_bytes());
    write("huge.json", &vec![b' '; 17 << 20]);
    let protected = good(json!([story(1, "true")])).replace("feat/x", "main");
    write("main.json", protected.as_bytes());
    let table: [(&str, &[&str]); 13] = [
        ("missing", &["there is no such file"]),
        ("empty", &["is empty"]),
        ("text", &["the file is not JSON: line 1, column 1"]),
        ("half", &["the end of the file"]),
        ("latin", &["UTF-8"]),
        ("shape", &["userStories"]),
        ("list", &["userStories"]),
        ("none", &["no stories"]),
        ("twice", &["US-001", "twice"]),
        ("unknown", &["US-009"]),
        ("cycle", &["US-001", "US-002", "US-003"]),
        ("huge", &["more than 16 MB"]),
        ("main", &["`main`", "--branch NAME"]),
    ];
    for (name, wanted) in table {
        let path = format!("../{name}.json");
        let ran = scratch.longshore(&["run", &path]).expect(2, wanted);
        assert!(ran.err.contains(&format!("error: {path}")) && ran.err.contains("hint: "), "{name}: {}", ran.err);
    }
    assert!(scratch.swarms().is_empty() && scratch.refs() == ["refs/heads/main"]);
}

#[test]
fn a_byte_order_mark_is_accepted_and_a_missing_image_is_refused() {
    let scratch = SwarmFixture::new();
    let tasks = scratch.tasks("feat/bom", json!([story(1, "echo x > x")]));
    let file = scratch.folder.path().join("tasks.json");
    let with_mark = [b"\xef\xbb\xbf".as_slice(), &std::fs::read(&file).expect("read")].concat();
    std::fs::write(&file, with_mark).expect("written");
    let args = ["run", &tasks, "--image", "longshore/no-such-image:none"];
    let hint = "hint: pull it with `docker pull longshore/no-such-image:none`";
    scratch.longshore(&args).expect(3, &["the engine has no image `longshore/no-such-image:none`", hint]);
    assert!(scratch.swarms().is_empty());
    scratch.longshore(&["run", &tasks]).expect(0, &["1 landed"]);
    // All are done now, as far as `--write-back` says so.
    scratch.longshore(&["run", &tasks, "--write-back", "--branch", "feat/bom-2"]).expect(0, &["1 landed"]);
    scratch.longshore(&["run", &tasks, "--branch", "feat/bom-3"]).expect(0, &["nothing to run"]);
    scratch.longshore(&["run", &tasks, "--again", "--branch", "feat/bom-4"]).expect(0, &["1 landed"]);
}
