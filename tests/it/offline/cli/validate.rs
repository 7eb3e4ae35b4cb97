//! `longshore ssot validate`: files, folders and standard input, for people and for programs.

use super::{CliFixture, CliOutput};

#[test]
fn messages_are_validated() {
    let world = CliFixture::without_repo();
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/amp");
    let valid = std::fs::read_dir(format!("{golden}/valid")).expect("a folder").flatten();
    let mut sound: Vec<String> = valid.map(|entry| entry.path().display().to_string()).collect();
    sound.retain(|file| !file.ends_with(".verdict.json"));
    let files: Vec<&str> = ["ssot", "validate"].into_iter().chain(sound.iter().map(String::as_str)).collect();
    world.run(&files).expect(0, &["messages and 3 acks break none; 0 files break a rule"]);

    let example = format!("{golden}/valid/01-task-dispatch-of-the-spec.message.json");
    let text = std::fs::read_to_string(&example).expect("read");
    let bad = text.replace("feature/watch-breath-v2", "main");
    world.file("bad.json", &bad);
    let output = world.run(&["ssot", "validate", "bad.json", &example]).expect(2, &["1 message and 0 acks break none"]);
    assert!(output.out.starts_with("bad.json: payload.branch: must not be `main`"), "{}", output.out);
    assert!(output.out.contains("(rule `branch-protected`)"), "{}", output.out);
    let output = world.run(&["ssot", "validate", "--json", "."]).expect(2, &[]);
    let line: serde_json::Value = serde_json::from_str(&output.out).expect("one line");
    assert_eq!((&line["rule"], &line["field"]), (&"branch-protected".into(), &"payload.branch".into()));

    // Of an SSOT the messages and acks are read, and nothing else.
    for folder in ["messages/T-2026-044", "acks", "tasks"] {
        std::fs::create_dir_all(world.root().join("ssot").join(folder)).expect("made");
    }
    world.file("ssot/tasks/T-2026-044.json", "{}");
    world.run(&["ssot", "validate", "ssot"]).expect(2, &["there is no .json file below `ssot`"]);
    world.file("ssot/messages/T-2026-044/one.json", &text);
    world.run(&["ssot", "validate", "ssot"]).expect(0, &["1 message and 0 acks break none; 0 files"]);

    for (input, code, expected) in [
        (text.as_bytes(), 0, "1 message and 0 acks"),
        (bad.as_bytes(), 2, "standard input: payload.branch"),
        (b"{", 2, "(rule `json`)"),
        (b"\xff", 2, "not UTF-8"),
        (&vec![b' '; 4 * 1024 * 1024 + 1], 2, "(rule `size`)"),
    ] {
        let path = world.root().join("input");
        std::fs::write(&path, input).expect("written");
        let mut command = world.command(env!("CARGO_BIN_EXE_longshore"));
        command.args(["ssot", "validate", "-"]).stdin(std::fs::File::open(&path).expect("opened"));
        CliOutput::of(&command.output().expect("it runs")).expect(code, &[expected]);
    }
    world.run(&["ssot", "validate", "gone.json"]).expect(2, &["cannot read `gone.json`", "No such file"]);
    world.run(&["ssot", "validate"]).expect(2, &["FILE"]);
}
