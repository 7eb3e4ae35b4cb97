//! The schemas accept and reject what the reader does, but for the rules that no schema can express.

use jsonschema::Validator;
use serde_json::Value;

use crate::protocol::amp::schema::{ack_schema, message_schema, verdict_schema};
use crate::protocol::tests::golden::{GoldenFile, load_golden_files};

/// Golden files that break a rule which no schema can say: rule, the end of the name or nothing for all, and why.
const INEXPRESSIBLE_RULES: [(&str, &str, &str); 18] = [
    ("json", "", "no JSON comes to a schema"),
    ("duplicate-key", "", "a JSON value has no key twice"),
    ("number-range", "payload.tech_constraints.a[1].b--too-large", "no JSON reader of ours gives the number"),
    ("number-range", "payload.confidence--too-large", "no JSON reader of ours gives the number"),
    ("msg-id", "msg_id--too-large", "the largest of 64 bits, as a pattern"),
    ("msg-id-task", "", "two fields agree"),
    ("timestamp", "--no-such-day", "the calendar"),
    ("context-ref", "--itself", "two fields differ"),
    ("subtask-id", "--of-another-task", "two fields agree"),
    ("subtask-id", "--longer-task", "two fields agree"),
    ("subtask-id", "--result-of-another-task", "two fields agree"),
    ("subtask-twice", "", "a field of the entries of a list differs"),
    ("self-assessment", "--two-of-three", "two lists are as long as each other"),
    ("self-assessment", "--four-of-three", "two lists are as long as each other"),
    ("ref-task", "", "two fields agree"),
    ("criteria-results", "--one-too-few", "the criteria stand elsewhere"),
    ("criteria-results", "--one-too-many", "the criteria stand elsewhere"),
    ("criteria-results", "--one-twice", "the criteria stand elsewhere"),
];

/// Whether the schema takes it; none where it is no JSON for `serde_json`.
fn accepts(golden: &GoldenFile, [message, ack, verdict]: &[Validator; 3]) -> Option<bool> {
    let value: Value = serde_json::from_str(golden.text()).ok()?;
    Some(match golden.kind.as_str() {
        "message" => message.is_valid(&value),
        "ack" => ack.is_valid(&value),
        _ => verdict.is_valid(&value["verdict"]),
    })
}

fn validators() -> [Validator; 3] {
    [message_schema(), ack_schema(), verdict_schema()].map(Value::from).map(|schema| {
        assert!(jsonschema::meta::is_valid(&schema), "{schema}");
        jsonschema::validator_for(&schema).expect("a good schema")
    })
}

#[test]
fn schemas_accept_the_valid_files() {
    let validators = validators();
    for golden in load_golden_files("amp/valid") {
        assert_eq!(accepts(&golden, &validators), Some(true), "`{}`", golden.name);
    }
}

#[test]
fn schemas_reject_invalid_files_except_inexpressible_rules() {
    let validators = validators();
    let mut wrong = Vec::new();
    let mut needed = [false; INEXPRESSIBLE_RULES.len()];
    for golden in load_golden_files("amp/invalid") {
        let (rule, rest) = golden.name.split_once("--").expect("a rule");
        let unsayable = INEXPRESSIBLE_RULES.iter().position(|(name, end, _)| *name == rule && rest.ends_with(end));
        match (unsayable, accepts(&golden, &validators)) {
            (Some(place), Some(true) | None) => needed[place] = true,
            (Some(_), Some(false)) => {}
            (None, Some(false)) => {}
            (None, taken) => wrong.push(format!("{}: {taken:?}", golden.name)),
        }
    }
    for ((rule, end, _), needed) in INEXPRESSIBLE_RULES.iter().zip(needed) {
        if !needed {
            wrong.push(format!("no file needs the exception of `{rule}`, `{end}`"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
