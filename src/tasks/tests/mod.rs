//! Tests of the tasks file: the golden files of each shape, every error, and properties.

#[cfg(feature = "orchestrator")]
mod excerpt;
mod graph;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::write_back::{WriteBackStatus, apply_outcomes};
use super::*;
use crate::ids::StoryId;
use crate::json::tests::parser::any_json;

const CANONICAL: &str = include_str!("../../../tests/golden/tasks/canonical.json");
const PASSES: &str = include_str!("../../../tests/golden/tasks/passes.json");
const RALPH: &str = include_str!("../../../tests/golden/tasks/ralph.json");

fn story_id(text: &str) -> StoryId {
    text.parse().expect("a story id")
}

fn parse_text(text: &str) -> Result<TasksFile, TasksError> {
    parse(text.as_bytes(), Path::new("t.json"))
}

fn find_story(file: &TasksFile, name: &str) -> Story {
    file.stories.iter().find(|story| story.id == story_id(name)).expect("the story is in the file").clone()
}

/// A valid canonical file around these stories.
fn with_stories(stories: Value) -> String {
    json!({ "metadata": { "title": "t", "branchName": "b" }, "userStories": stories }).to_string()
}

#[test]
fn reads_the_canonical_shape() {
    let file = parse_text(CANONICAL).expect("valid");
    assert_eq!(file.shape, Shape::Canonical);
    assert_eq!((file.title.as_str(), file.kind.as_str()), ("feat: Shopping list", "feat"));
    assert_eq!(file.branch.as_deref(), Some("feat/shopping-list"));
    assert_eq!((file.max_concurrency, file.verify.as_slice()), (Some(3), ["make test".to_owned()].as_slice()));
    let saved = find_story(&file, "US-001");
    assert_eq!(saved.done, Some(DoneStatus::Completed));
    assert_eq!((saved.criteria[0].id.as_str(), saved.criteria[0].test_command.as_deref()), ("AC-1", None));
    assert_eq!(saved.criteria[1].id, "AC-saved");
    assert_eq!(saved.criteria[1].test_command.as_deref(), Some("python3 -m json.tool list.json"));
    let add = find_story(&file, "US-002");
    assert_eq!((add.done, add.risk), (None, RiskLevel::Medium));
    assert_eq!(
        (add.depends_on, add.touches),
        (vec![story_id("US-001")], vec!["src/add.py".into(), "tests/add/**".into()])
    );
    let remove = find_story(&file, "US-003");
    assert_eq!((remove.done, remove.priority), (None, 1));
    assert_eq!(remove.verify, ["make lint", "make test-remove"]);
    assert_eq!(remove.command.as_deref(), Some("./scripts/remove.sh"));
    assert_eq!(find_story(&file, "US-004").done, Some(DoneStatus::Skipped));
}

#[test]
fn reads_the_passes_shape() {
    let file = parse_text(PASSES).expect("valid");
    assert_eq!(file.shape, Shape::Passes);
    let done: Vec<_> = file.stories.iter().map(|story| story.done).collect();
    assert_eq!(done, [Some(DoneStatus::Completed), None, Some(DoneStatus::Skipped), None]);
}

#[test]
fn reads_the_ralph_shape_and_maps_ids() {
    let file = parse_text(RALPH).expect("valid");
    assert_eq!(file.shape, Shape::Ralph);
    assert_eq!((file.title.as_str(), file.branch.as_deref()), ("lighthouse", Some("ralph/lamp-control")));
    assert_eq!(file.description, "Control the lamp from the shore.");
    // `US-001` is taken by the story that has it in the file.
    let ids: Vec<_> = file.stories.iter().map(|s| (s.id.as_str(), s.source_id.as_deref())).collect();
    assert_eq!(ids, [("US-002", Some("lamp")), ("US-001", None), ("US-003", Some("12"))]);
    let horn = find_story(&file, "US-003");
    assert_eq!(horn.depends_on, [story_id("US-002"), story_id("US-001")]);
    assert_eq!((horn.title.as_str(), horn.priority, horn.done), ("Sound the horn in fog", 3, None));
    let lamp = find_story(&file, "US-002");
    assert_eq!((lamp.criteria[0].id.as_str(), lamp.criteria[1].id.as_str()), ("AC-1-1", "AC-2"));
    assert_eq!(lamp.done, Some(DoneStatus::Completed));
}

#[test]
fn the_schema_version_does_not_matter() {
    let expected = parse_text(CANONICAL).expect("valid");
    for version in ["\"99.0\"", "\"\"", "99", "-1e400", "null", "true", "[3]", "{\"major\": 3}"] {
        let text = CANONICAL.replacen("\"3.0\"", version, 1);
        assert_ne!(text, CANONICAL);
        assert_eq!(parse_text(&text).expect("valid"), expected, "{version}");
        let outcomes = BTreeMap::from([(story_id("US-002"), WriteBackStatus::Completed)]);
        let written = apply_outcomes(text.as_bytes(), Path::new("t.json"), &outcomes).expect("valid");
        assert!(String::from_utf8(written).expect("UTF-8").contains(version), "written back as it was: {version}");
    }
}

#[test]
fn a_bom_is_ignored() {
    let mut with_bom = parse_text(&format!("\u{feff}{CANONICAL}")).expect("valid");
    with_bom.path = "t.json".into();
    assert_eq!(with_bom, parse_text(CANONICAL).expect("valid"));
}

/// What one problem says: its place, its line, and the rest of its text.
fn problems(text: &str) -> Vec<String> {
    let error = parse_text(text).expect_err("refused");
    error
        .problems()
        .iter()
        .map(|problem| {
            assert!(!problem.kind.remedy().is_empty());
            format!("{}{problem}", problem.line.map(|line| format!("{line}: ")).unwrap_or_default())
        })
        .collect()
}

#[test]
fn invalid_text_is_rejected() {
    for (text, expected) in [
        ("", "the file is empty"),
        ("\u{feff} \r\n", "the file is empty"),
        ("hello", "the file is not JSON: line 1, column 1: expected a value, found `h`"),
        ("{\n  \"a\": ä}", "the file is not JSON: line 2, column 8: expected a value, found `ä`"),
        ("{\"a\": [1,\n2", "the file is not JSON: line 2, column 2: expected `,` or `]`, found the end of the file"),
        ("{} {}", "the file is not JSON: line 1, column 4: expected the end of the file, found `{`"),
    ] {
        assert_eq!(problems(text), [expected], "{text:?}");
    }
    for (found, shown) in [
        ("[{\"id\": 1}]", "an array of 1"),
        ("{}", "an empty object"),
        ("{\"tasks\": [], \"x\": 1}", "an object with `tasks`, `x`"),
        ("{\"userStories\": []}", "an object with `userStories`"),
        ("\"userStories\"", "the string `userStories`"),
    ] {
        let expected = format!("1: this is not a tasks file: found {shown}; expected an object with `userStories`");
        assert!(problems(found)[0].starts_with(&expected), "{:?}", problems(found));
    }
    let error = parse(b"{\"a\": \"\xff\"}", Path::new("t.json")).expect_err("not UTF-8");
    assert_eq!(error.problems()[0].to_string(), "the file is not UTF-8: byte 7 is 0xFF");
    let error = parse(&vec![b' '; MAX_FILE_BYTES as usize + 1], Path::new("t.json")).expect_err("too large");
    assert_eq!(error.problems()[0].to_string(), "the file has more than 16 MB");
}

#[test]
fn syntax_errors_have_matching_remedies() {
    for (text, remedy) in [
        ("{\"a\": 1,}", "remove the comma before it"),
        ("[1, ]", "remove the comma before it"),
        ("{\"a\": 1", "the file is cut off: complete it"),
        ("// x\n{}", "remove the comment: JSON has none"),
        ("{'a': 1}", "use double quotes"),
    ] {
        assert_eq!(parse_text(text).expect_err("refused").problems()[0].kind.remedy(), remedy, "{text:?}");
    }
}

#[test]
fn invalid_story_fields_are_rejected() {
    let story = |fields: Value| {
        let mut story = json!({ "id": "US-001", "title": "x" });
        for (key, value) in fields.as_object().expect("an object") {
            story[key] = value.clone();
        }
        with_stories(json!([story]))
    };
    let number_or = |what: &str| format!("expected {what}, found the number `5`");
    let string_array = "expected an array of strings, found the string `src`";
    let rows: Vec<(Value, &str, String)> = vec![
        (json!({"id": null}), "id", "the story's `id` is missing".into()),
        (json!({"id": " "}), "id", "expected an id (a string, or a whole number), found the string ` `".into()),
        (json!({"id": 1.5}), "id", "expected an id (a string, or a whole number), found the number `1.5`".into()),
        (json!({"title": null}), "title", "the story's `title` is missing".into()),
        (json!({"title": " \n"}), "title", "the story's `title` is missing".into()),
        (json!({"title": 5}), "title", number_or("a string")),
        (json!({"description": 5}), "description", number_or("a string")),
        (json!({"notes": []}), "notes", "expected a string, found an empty array".into()),
        (json!({"notes": "a\u{0}b"}), "notes", "the text has a NUL character (`\\u0000`)".into()),
        (json!({"priority": 1.5}), "priority", "expected a whole number, found the number `1.5`".into()),
        (json!({"priority": "urgent"}), "priority", "found `urgent`; allowed are `high`, `medium`, `low`".into()),
        (
            json!({"status": "done"}),
            "status",
            "found `done`; allowed are `pending`, `in_progress`, `completed`, `failed`, `skipped`".into(),
        ),
        (json!({"passes": "yes"}), "passes", "expected `true` or `false`, found the string `yes`".into()),
        (json!({"skipped": 0}), "skipped", "expected `true` or `false`, found the number `0`".into()),
        (
            json!({"status": "pending", "passes": true}),
            "passes",
            "`status` is `pending`, but `passes` is `true`".into(),
        ),
        (
            json!({"status": "completed", "passes": false}),
            "passes",
            "`status` is `completed`, but `passes` is `false`".into(),
        ),
        (json!({"mailbox": true}), "mailbox", "expected an object with `agent` and `role`, found `true`".into()),
        (json!({"mailbox": {"agent": 5}}), "mailbox.agent", number_or("a string")),
        (json!({"mailbox": {"rol": "x"}}), "mailbox.rol", "there is no key `rol` here, only `agent`, `role`".into()),
        (
            json!({"mailbox": {"agent": "a b"}}),
            "mailbox.agent",
            "`a b` is not an agent's id: 1 to 64 letters, digits, `_` and `-`, beginning with a letter or digit".into(),
        ),
        (
            json!({"mailbox": {"role": "a | b"}}),
            "mailbox.role",
            "the role `a | b` has more than 60 characters, or a `|`".into(),
        ),
        (json!({"verify": 5}), "verify", number_or("a string or an array of strings")),
        (json!({"verify": ["a", 5]}), "verify[1]", number_or("a string")),
        (json!({"command": ["make"]}), "command", "expected a string, found an array of 1".into()),
        (json!({"touches": "src"}), "touches", string_array.into()),
        (json!({"touches": [5]}), "touches[0]", number_or("a string")),
        (json!({"mesh": 5}), "mesh", number_or("an object with `header`")),
        (json!({"mesh": {"headers": {}}}), "mesh.headers", "there is no key `headers` here, only `header`".into()),
        (
            json!({"mesh": {"header": []}}),
            "mesh.header",
            "expected an object of header blocks, found an empty array".into(),
        ),
        (json!({"mesh": {"header": {"alert": 5}}}), "mesh.header.alert", number_or("a header block (an object)")),
        (
            json!({"mesh": {"header": {"Alert-Control": {}}}}),
            "mesh.header.Alert-Control",
            "a header block's name must be in camelCase, like `alertControl`".into(),
        ),
        (json!({"mesh": {"header": {"routing": {}}}}), "mesh.header.routing", "the name `routing` is reserved".into()),
        (
            json!({"mesh": {"header": {"alert": {"mustUnderstand": "yes"}}}}),
            "mesh.header.alert.mustUnderstand",
            "expected `true` or `false`, found the string `yes`".into(),
        ),
        (json!({"mesh": {"header": {"alert": {"role": 5}}}}), "mesh.header.alert.role", number_or("a string")),
        (json!({"riskLevel": "none"}), "riskLevel", "found `none`; allowed are `low`, `medium`, `high`".into()),
        (
            json!({"dependsOn": "US-002"}),
            "dependsOn",
            "expected an array of story ids, like `[\"US-001\"]`, found the string `US-002`".into(),
        ),
        (json!({"deps": [null]}), "deps[0]", "expected an id (a string, or a whole number), found null".into()),
        (json!({"blockedBy": ["US-009"]}), "blockedBy[0]", "depends on `US-009`, which is not in this file".into()),
        (json!({"dependsOn": ["US-001"]}), "dependsOn[0]", "depends on itself".into()),
        (
            json!({"acceptanceCriteria": "works"}),
            "acceptanceCriteria",
            "expected an array of criteria (strings, or objects with `text`), found the string `works`".into(),
        ),
        (
            json!({"acceptanceCriteria": [true]}),
            "acceptanceCriteria[0]",
            "expected a criterion (a string, or an object with `text`), found `true`".into(),
        ),
        (
            json!({"acceptanceCriteria": [{"testCommand": "x"}]}),
            "acceptanceCriteria[0].text",
            "the criterion's `text` is missing".into(),
        ),
        (json!({"acceptanceCriteria": [{"text": 5}]}), "acceptanceCriteria[0].text", number_or("a string")),
        (
            json!({"acceptanceCriteria": ["a", {"text": "b", "testCommand": 5}]}),
            "acceptanceCriteria[1].testCommand",
            number_or("a string"),
        ),
    ];
    for (fields, place, sentence) in rows {
        let named = if place == "id" { "" } else { "story `US-001`, " };
        let expected = format!("1: {named}`userStories[0].{place}`: {sentence}");
        assert_eq!(problems(&story(fields.clone())), [expected], "{fields}");
    }
}

#[test]
fn invalid_file_fields_are_rejected() {
    let stories = json!([{ "id": "US-001", "title": "x" }]);
    for (text, expected) in [
        (
            json!({"metadata": {"branchName": "b"}, "userStories": stories}),
            "`metadata.title`: `metadata.title` is missing",
        ),
        (json!({"metadata": {}, "userStories": stories}), "`metadata.title`: `metadata.title` is missing"),
        (json!({"branchName": "b", "userStories": stories}), "`name`: `project` or `name` is missing"),
        (json!({"name": 5, "userStories": stories}), "`name`: expected a string, found the number `5`"),
        (
            json!({"name": "x", "metadata": "m", "userStories": stories}),
            "`metadata`: expected an object, found the string `m`",
        ),
        (
            json!({"metadata": {"title": "t", "branchName": []}, "userStories": stories}),
            "`metadata.branchName`: expected a string, found an empty array",
        ),
        (
            json!({"metadata": {"title": "t", "maxConcurrency": 0}, "userStories": stories}),
            "`metadata.maxConcurrency`: must be at least 1, found `0`",
        ),
        (
            json!({"metadata": {"title": "t", "maxConcurrency": "4"}, "userStories": stories}),
            "`metadata.maxConcurrency`: expected a whole number, found the string `4`",
        ),
        (
            json!({"metadata": {"title": "t", "verify": {}}, "userStories": stories}),
            "`metadata.verify`: expected a string or an array of strings, found an empty object",
        ),
        (json!({"metadata": {"title": "t"}, "userStories": []}), "`userStories`: the file has no stories"),
        (
            json!({"metadata": {"title": "t"}, "userStories": {}}),
            "`userStories`: expected an array of stories, found an empty object",
        ),
        (
            json!({"metadata": {"title": "t"}, "userStories": vec![json!({}); 1000]}),
            "`userStories`: the file has 1000 stories; at most 999 are allowed, the number of ids like `US-001`",
        ),
        (
            json!({"metadata": {"title": "t"}, "userStories": ["do it"]}),
            "`userStories[0]`: expected a story (an object), found the string `do it`",
        ),
    ] {
        assert_eq!(problems(&text.to_string()), [format!("1: {expected}")], "{text}");
    }
}

#[test]
fn duplicate_keys_are_rejected() {
    let text = r#"{"metadata": {"title": "t", "title": "u"}, "userStories": [
        {"id": "US-001", "title": "x", "passes": true, "other": 1, "other": 2, "passes": false}]}"#;
    assert_eq!(
        problems(text),
        [
            "1: `metadata.title`: the object has the key `title` 2 times",
            "2: story `US-001`, `userStories[0].passes`: the object has the key `passes` 2 times",
        ]
    );
}

#[test]
fn all_problems_are_reported_with_their_lines() {
    let text = r#"{
  "metadata": { "title": "t", "maxConcurrency": -1 },
  "userStories": [
    { "id": "a", "title": "A", "dependsOn": ["b"] },
    { "id": "b", "title": "B", "dependsOn": ["c"] },
    { "id": "c", "title": "C", "dependsOn": ["a", "x"] },
    { "id": "d", "title": "D", "priority": true },
    { "id": "d", "title": "D again" }
  ]
}"#;
    let error = parse_text(text).expect_err("refused");
    assert_eq!(
        error.to_string(),
        "t.json:2: `metadata.maxConcurrency`: must be at least 1, found `-1`
    remedy: use a number from 1, or remove the key
t.json:4: story `a`, `userStories[0].dependsOn`: the dependencies form a cycle: a -> b -> c -> a
    remedy: remove one of these dependencies
t.json:6: story `c`, `userStories[2].dependsOn[1]`: depends on `x`, which is not in this file
    remedy: correct the id, or remove it; the file has `a`, `b`, `c`, `d`, `d`
t.json:7: story `d`, `userStories[3].priority`: expected a whole number, found `true`
    remedy: make it a whole number, or remove the key if it is optional
t.json:8: `userStories[4].id`: 2 stories have the id `d`: `userStories[3]` (line 7), `userStories[4]` (line 8)
    remedy: give each story an id of its own"
    );
}

#[test]
fn unreadable_files_are_rejected() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let of = |name: &str| read(&dir.path().join(name)).expect_err("refused").problems()[0].to_string();
    assert_eq!(of("none.json"), "there is no such file");
    assert_eq!(of(""), "this is a directory, not a file");
    fs::write(dir.path().join("empty.json"), "").expect("written");
    assert_eq!(of("empty.json"), "the file is empty");
    assert_eq!(of("empty.json/x.json"), "there is no such file");
}

#[test]
fn large_files_are_read() {
    let stories: Vec<Value> = (1..=999)
        .map(|n| json!({ "id": format!("US-{n:03}"), "title": "x", "description": "long ".repeat(1100) }))
        .collect();
    let text = with_stories(stories.into());
    assert!(text.len() > 5_000_000);
    assert_eq!(parse_text(&text).expect("valid").stories.len(), 999);
}

#[test]
fn order_is_by_dependencies_then_priority_then_position() {
    let file = parse_text(&with_stories(json!([
        { "id": "US-001", "title": "x", "priority": 2, "dependsOn": ["US-003"] },
        { "id": "US-002", "title": "x", "priority": 9 },
        { "id": "US-003", "title": "x", "priority": 5 },
        { "id": "US-004", "title": "x", "priority": 5 },
    ])))
    .expect("valid");
    assert_eq!(topological_order(&file), [2, 0, 3, 1]);
}

#[test]
fn writes_back_in_the_shape_of_the_file() {
    use WriteBackStatus::{Completed, Failed, Pending, Skipped};
    let rows = [
        (
            CANONICAL,
            include_str!("../../../tests/golden/tasks/canonical.written.json"),
            vec![("US-002", Failed), ("US-003", Completed), ("US-004", Skipped)],
        ),
        (
            PASSES,
            include_str!("../../../tests/golden/tasks/passes.written.json"),
            vec![("US-010", Pending), ("US-020", Skipped), ("US-030", Completed), ("US-040", Completed)],
        ),
        (
            RALPH,
            include_str!("../../../tests/golden/tasks/ralph.written.json"),
            vec![("US-001", Completed), ("US-003", Completed)],
        ),
    ];
    for (before, after, outcomes) in rows {
        let outcomes: BTreeMap<_, _> = outcomes.into_iter().map(|(name, written)| (story_id(name), written)).collect();
        let write = |text: &str| apply_outcomes(text.as_bytes(), Path::new("t.json"), &outcomes).expect("valid");
        assert_eq!(String::from_utf8(write(before)).expect("UTF-8"), after);
        // The same with everything that editors do to a file.
        let dressed = |text: &str| format!("\u{feff}{}\r\n\r\n", text.trim_end().replace('\n', "\r\n"));
        assert_eq!(String::from_utf8(write(&dressed(before))).expect("UTF-8"), dressed(after));
        // What is said already is not said again.
        assert_eq!(String::from_utf8(write(after)).expect("UTF-8"), after);
    }
}

#[test]
fn write_back_adds_a_missing_key_when_needed() {
    let text = r#"{"metadata":{"title":"t"},"userStories":[{"id":"US-001","title":"x"},{"id":"US-002","title":"y"}]}"#;
    let outcomes =
        BTreeMap::from([(story_id("US-001"), WriteBackStatus::Failed), (story_id("US-002"), WriteBackStatus::Pending)]);
    let written = apply_outcomes(text.as_bytes(), Path::new("t.json"), &outcomes).expect("valid");
    let expected = text.replace(r#""title":"x""#, r#""title":"x","status":"failed""#);
    assert_eq!(String::from_utf8(written).expect("UTF-8"), expected);
}

#[test]
fn write_back_rejects_outcomes_of_unknown_stories() {
    let outcomes = BTreeMap::from([(story_id("US-009"), WriteBackStatus::Completed)]);
    let error = apply_outcomes(CANONICAL.as_bytes(), Path::new("t.json"), &outcomes).expect_err("refused");
    assert_eq!(error.problems()[0].to_string(), "there is no story `US-009` to write an outcome to");
}

#[cfg(feature = "orchestrator")]
#[test]
fn the_schema_accepts_the_canonical_shape_and_rejects_mistakes() {
    let schema = serde_json::to_value(schema()).expect("a schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("a valid schema");
    let good: Value = serde_json::from_str(CANONICAL).expect("JSON");
    let errors: Vec<_> = validator.iter_errors(&good).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    for (pointer, wrong) in [
        ("/metadata/title", json!(5)),
        ("/metadata/maxConcurrency", json!(0)),
        ("/userStories", json!([])),
        ("/userStories/0/id", json!(null)),
        ("/userStories/0/status", json!("done")),
        ("/userStories/0/dependsOn", json!("US-001")),
        ("/userStories/0/acceptanceCriteria/1/text", json!(1)),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).expect("in the file") = wrong;
        assert!(!validator.is_valid(&bad), "{pointer}");
        assert!(parse_text(&bad.to_string()).is_err(), "{pointer}");
    }
}

/// Files that are nearly tasks files: the right keys, with anything below them.
fn almost_valid_file() -> impl Strategy<Value = Value> {
    let value = || prop_oneof![3 => any_json(), 1 => "US-00[0-4]".prop_map(Value::from), 1 => Just(json!(["US-001"]))];
    let keys = "id|title|dependsOn|deps|status|passes|skipped|acceptanceCriteria|priority|verify|touches|command";
    let story = prop::collection::vec((keys, value()), 0..8).prop_map(|members| members.into_iter().collect::<Value>());
    let root = "metadata|project|name|branchName|description";
    (prop::collection::vec(story, 0..4), prop::collection::vec((root, value()), 0..3)).prop_map(|(stories, root)| {
        let mut file: Value = root.into_iter().collect();
        file["userStories"] = stories.into();
        file
    })
}

/// A valid file of any shape, as text, with anything in its other fields.
fn valid_file() -> impl Strategy<Value = String> {
    let story = (any::<Option<bool>>(), any::<Option<bool>>(), 0usize..6, any_json(), any::<prop::sample::Index>());
    (0..3, prop::collection::vec(story, 1..8), any::<bool>()).prop_map(|(shape, stories, pretty)| {
        let stories: Vec<Value> = stories
            .into_iter()
            .enumerate()
            .map(|(index, (passes, skipped, status, extra, on))| {
                let mut story = json!({ "id": format!("s{index}"), "x-extra": extra, "title": "x" });
                if index > 0 {
                    story["deps"] = json!([format!("s{}", on.index(index))]);
                }
                let words = ["pending", "in_progress", "completed", "failed", "skipped"];
                if shape == 0 {
                    story["status"] = words.get(status).map_or(Value::Null, |word| json!(word));
                } else {
                    story["passes"] = passes.map_or(Value::Null, Value::from);
                    story["skipped"] = skipped.map_or(Value::Null, Value::from);
                }
                story["after"] = json!(1);
                story
            })
            .collect();
        let file = if shape == 2 {
            json!({ "project": "p", "userStories": stories, "z": 1 })
        } else {
            json!({ "metadata": { "title": "p" }, "userStories": stories })
        };
        let text = if pretty { serde_json::to_string_pretty(&file) } else { serde_json::to_string(&file) };
        text.expect("a value has a text")
    })
}

fn write_back_status() -> impl Strategy<Value = WriteBackStatus> {
    use WriteBackStatus::{Completed, Failed, Pending, Skipped};
    prop::sample::select(vec![Completed, Failed, Skipped, Pending])
}

/// The file as JSON without the keys that a write-back may touch.
fn without_outcomes(text: &str) -> Value {
    let mut file: Value = serde_json::from_str(text).expect("JSON");
    for story in file["userStories"].as_array_mut().expect("stories") {
        for key in ["status", "passes", "skipped"] {
            story.as_object_mut().expect("a story").shift_remove(key);
        }
    }
    file
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes, Path::new("t.json"));
    }

    #[test]
    fn any_json_is_parsed_or_rejected(value in prop_oneof![any_json(), almost_valid_file()]) {
        if let Err(error) = parse(value.to_string().as_bytes(), Path::new("t.json")) {
            prop_assert!(!error.problems().is_empty());
            prop_assert!(error.to_string().contains("remedy: "));
        }
    }

    #[test]
    fn written_outcomes_are_read_back(text in valid_file(), outcomes in prop::collection::vec(write_back_status(), 8), first in 1usize..3) {
        let before = parse_text(&text).expect("valid");
        let outcomes: BTreeMap<StoryId, WriteBackStatus> =
            before.stories.iter().map(|story| story.id.clone()).zip(outcomes).step_by(first).collect();
        let bytes = apply_outcomes(text.as_bytes(), Path::new("t.json"), &outcomes).expect("valid");
        let after_text = String::from_utf8(bytes).expect("UTF-8");
        let after = parse_text(&after_text).expect("still valid");
        prop_assert_eq!(without_outcomes(&after_text), without_outcomes(&text));
        for (old, new) in before.stories.iter().zip(&after.stories) {
            let expected = match outcomes.get(&old.id) {
                None => old.done,
                Some(WriteBackStatus::Completed) => Some(DoneStatus::Completed),
                Some(WriteBackStatus::Skipped) => {
                    // Where the Ralph shape has no `skipped`, it cannot be said; these files have it.
                    Some(DoneStatus::Skipped)
                }
                Some(WriteBackStatus::Failed | WriteBackStatus::Pending) => None,
            };
            prop_assert_eq!(new.done, expected, "{}", after_text);
        }
    }
}
