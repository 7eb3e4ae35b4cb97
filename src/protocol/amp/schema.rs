//! AMP as JSON Schemas (draft 2020-12), for `longshore schema amp`, `amp-ack` and `amp-verdict`: for those who write messages
//! with other programs.
//!
//! Names, types and required fields are derived from the message types; the rules of `check.rs` that a schema can express are
//! added below. The golden files hold reader and schema to the same.

use std::borrow::Cow;

use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema, json_schema};
use serde_json::{Map, Value, json};

use super::message::{Ack, AmpWireMessage};
use super::message_type::{AmpMessageType, AmpRole};
use super::msg_id::MsgId;
use super::payload::{Escalation, ReviewRequest, ReviewVerdict, TaskDispatch, TaskResult};
use super::rules::{LOCK_WARNING_TEXT, LOCK_WARNING_THRESHOLD, MAX_ENTRIES, MAX_FIX_LINES, MAX_TEXT_CHARS};

const TASK_ID: &str = "T-[0-9]{4}-[0-9]{3,9}";
const NOT_BLANK: &str = "\\S";
const TIMESTAMP: &str = "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt]([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)\
                    (\\.[0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$";
/// What git takes in no branch name.
const NO_BRANCH: &str = "[\\x00-\\x20\\x7f~^:?*\\[\\\\]|\\.\\.|@\\{|//|^[-/]|[./]$|(^|/)\\.|\\.lock(/|$)";

/// A message of any of the five types.
pub fn message_schema() -> Schema {
    let mut generator = generator();
    let payloads = [
        generator.subschema_for::<TaskDispatch>(),
        generator.subschema_for::<TaskResult>(),
        generator.subschema_for::<ReviewRequest>(),
        generator.subschema_for::<ReviewVerdict>(),
        generator.subschema_for::<Escalation>(),
    ];
    let mut schema = into_schema::<AmpWireMessage<Map<String, Value>>>(generator, "AMP/1.0 message", "Message");
    let mut rules: Vec<Value> = AmpMessageType::ALL.into_iter().zip(payloads).map(type_rules).collect();
    rules.push(json!({
        "if": { "required": ["ack_timeout_sec"] },
        "then": { "properties": { "requires_ack": { "const": true } } },
    }));
    schema.insert("allOf".to_owned(), rules.into());
    schema
}

/// An ack.
pub fn ack_schema() -> Schema {
    let by_type = |kind: AmpMessageType| {
        let receivers: Vec<AmpRole> = kind.routes().iter().map(|(_, to)| *to).collect();
        json!({
            "if": { "properties": { "ack_of": { "pattern": format!("^{kind}-") } } },
            "then": { "properties": { "by": { "enum": receivers } } },
        })
    };
    let mut schema = into_schema::<Ack>(generator(), "AMP/1.0 ack", "Ack");
    schema.insert("allOf".to_owned(), AmpMessageType::ALL.map(by_type).to_vec().into());
    schema
}

/// A reviewer's verdict as a file of its own: the payload of a `review_verdict`.
pub fn verdict_schema() -> Schema {
    into_schema::<ReviewVerdict>(generator(), "AMP/1.0 review verdict", "ReviewVerdict")
}

/// What a message of this type needs besides.
fn type_rules((kind, payload): (AmpMessageType, Schema)) -> Value {
    let routes = kind.routes().iter();
    let routes = routes.map(|(from, to)| json!({ "properties": { "from": { "const": from }, "to": { "const": to } } }));
    let mut then = json!({
        "properties": { "msg_id": { "pattern": format!("^{kind}-") }, "payload": payload },
        "anyOf": routes.collect::<Vec<_>>(),
    });
    if kind != AmpMessageType::Escalation {
        then["properties"]["requires_ack"] = json!({ "const": true });
    }
    json!({ "if": { "properties": { "type": { "const": kind } }, "required": ["type"] }, "then": then })
}

fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12().for_serialize().into_generator()
}

fn into_schema<T: JsonSchema>(generator: SchemaGenerator, title: &str, name: &str) -> Schema {
    let mut schema = generator.into_root_schema_for::<T>();
    schema.insert("title".to_owned(), title.into());
    add_rules(name, schema.as_object_mut().expect("an object"));
    if let Some(Value::Object(types)) = schema.get_mut("$defs") {
        for (name, schema) in types {
            add_rules(name, schema.as_object_mut().expect("an object"));
        }
    }
    schema
}

/// Adds what `check.rs` demands of the type's fields.
fn add_rules(type_name: &str, schema: &mut Map<String, Value>) {
    let required: Vec<Value> = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    for (name, field) in schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        if !required.contains(&Value::from(name.as_str())) {
            remove_null(field);
        }
        add_limits(field);
    }
    for (name, field, rules) in field_rules() {
        if name == type_name {
            merge(&mut schema["properties"][field], rules);
        }
    }
    let invariants = type_invariants().into_iter().filter(|(name, _)| *name == type_name);
    let invariants: Vec<Value> = invariants.map(|(_, rules)| rules).collect();
    if !invariants.is_empty() {
        schema.insert("allOf".to_owned(), invariants.into());
    }
    if type_name == "Issue"
        && let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut)
    {
        required.retain(|name| name != "line");
    }
}

/// An optional field is absent, not null.
fn remove_null(field: &mut Value) {
    if let Some(types) = field.get("type").and_then(Value::as_array) {
        field["type"] = types.iter().find(|name| *name != "null").cloned().unwrap_or_default();
    }
}

fn add_limits(field: &mut Value) {
    match field["type"].as_str() {
        Some("string") => merge(field, json!({ "maxLength": MAX_TEXT_CHARS })),
        Some("array") => {
            merge(field, json!({ "maxItems": MAX_ENTRIES }));
            add_limits(&mut field["items"]);
        }
        Some("integer") if field["format"] == "uint32" => merge(field, json!({ "maximum": u32::MAX })),
        Some("integer") => merge(field, json!({ "maximum": u64::MAX })),
        _ => {}
    }
}

fn merge(into: &mut Value, rules: Value) {
    let (Value::Object(into), Value::Object(rules)) = (into, rules) else { return };
    for (key, rule) in rules {
        match into.get_mut(&key) {
            Some(there) if there.is_object() => merge(there, rule),
            _ => drop(into.insert(key, rule)),
        }
    }
}

/// Type, field, and what the field's schema gets besides.
fn field_rules() -> Vec<(&'static str, &'static str, Value)> {
    let text = || json!({ "pattern": NOT_BLANK });
    let texts = || json!({ "items": { "pattern": NOT_BLANK } });
    let some = || json!({ "minItems": 1 });
    let some_texts = || json!({ "minItems": 1, "items": { "pattern": NOT_BLANK } });
    let timestamp = || json!({ "format": "date-time", "pattern": TIMESTAMP });
    let subtask_id = || json!({ "pattern": format!("^{TASK_ID}-S[1-9][0-9]{{0,8}}$") });
    let msg_id = |kind: AmpMessageType| json!({ "pattern": msg_id_pattern(kind.as_str()) });
    vec![
        ("Message", "to", json!({ "not": { "const": AmpRole::System } })),
        ("Message", "task_id", json!({ "pattern": format!("^{TASK_ID}$") })),
        ("Message", "timestamp", timestamp()),
        ("Message", "ack_timeout_sec", json!({ "minimum": 1 })),
        ("Message", "context_ref", json!({ "uniqueItems": true })),
        ("Ack", "timestamp", timestamp()),
        ("TaskDispatch", "description", text()),
        ("TaskDispatch", "repo", json!({ "pattern": "^/[^\\x00]*$" })),
        (
            "TaskDispatch",
            "branch",
            json!({ "minLength": 1, "maxLength": 244, "not": { "anyOf": [
                { "enum": ["main", "master", "refs/heads/main", "refs/heads/master", "HEAD", "@"] },
                { "pattern": NO_BRANCH },
            ] } }),
        ),
        ("TaskDispatch", "subtasks", some()),
        ("TaskDispatch", "acceptance_criteria", some_texts()),
        ("TaskDispatch", "forbidden_actions", texts()),
        ("Subtask", "subtask_id", subtask_id()),
        ("Subtask", "description", text()),
        ("TaskResult", "subtask_id", subtask_id()),
        ("TaskResult", "commit_hash", json!({ "pattern": "^[0-9a-f]{7,64}$" })),
        ("TaskResult", "blockers", texts()),
        ("DiffSummary", "files_changed", json!({ "uniqueItems": true, "items": text() })),
        ("SelfAssessment", "criteria_met", some()),
        ("SelfAssessment", "notes", some()),
        ("WorkLogEntry", "timestamp", timestamp()),
        ("WorkLogEntry", "action", text()),
        ("ReviewRequest", "original_dispatch_ref", msg_id(AmpMessageType::TaskDispatch)),
        ("ReviewRequest", "task_result_ref", msg_id(AmpMessageType::TaskResult)),
        ("ReviewRequest", "diff_url", text()),
        (
            "ReviewRequest",
            "ci_status",
            json!({
                "properties": { "last_updated": timestamp() },
                "maxProperties": MAX_ENTRIES,
                "additionalProperties": { "type": "string", "maxLength": MAX_TEXT_CHARS, "not": { "const": "failed" } },
            }),
        ),
        ("ReviewVerdict", "criteria_results", some()),
        ("ReviewVerdict", "confidence", json!({ "minimum": 0, "maximum": 1 })),
        ("CriterionVerdict", "criterion", text()),
        ("Issue", "description", text()),
        ("DirectFix", "file", text()),
        ("DirectFix", "diff_lines", json!({ "maximum": MAX_FIX_LINES })),
        ("Escalation", "triggered_by", json!({ "not": { "const": AmpRole::Admin } })),
        ("Escalation", "description", text()),
        ("Escalation", "suggested_actions", texts()),
        ("SystemStateSnapshot", "task_status", text()),
    ]
}

/// Rules about several fields of a type.
fn type_invariants() -> Vec<(&'static str, Value)> {
    vec![
        (
            "DiffSummary",
            json!({
                "if": { "properties": { "files_changed": { "maxItems": 0 } } },
                "then": { "properties": { "lines_added": { "const": 0 }, "lines_removed": { "const": 0 } } },
            }),
        ),
        (
            "TaskResult",
            json!({
                "if": { "properties": { "completion_status": { "const": "complete" } } },
                "then": { "properties": { "blockers": { "maxItems": 0 } } },
                "else": { "required": ["blockers"], "properties": { "blockers": { "minItems": 1 } } },
            }),
        ),
        (
            "ReviewRequest",
            json!({
                "if": { "properties": { "reject_count": { "minimum": LOCK_WARNING_THRESHOLD } } },
                "then": {
                    "required": ["coordinator_notes"],
                    "properties": { "coordinator_notes": { "pattern": LOCK_WARNING_TEXT } },
                },
            }),
        ),
        (
            "ReviewVerdict",
            json!({
                "if": { "properties": { "decision": { "const": "rejected" } } },
                "then": { "required": ["issues"], "properties": { "issues": { "minItems": 1 } } },
                "else": { "properties": {
                    "criteria_results": { "items": { "properties": { "passed": { "not": { "const": false } } } } },
                    "issues": { "items": { "properties": { "severity": { "const": "minor" } } } },
                } },
            }),
        ),
        (
            "ReviewVerdict",
            json!({
                "if": { "properties": { "decision": { "const": "approved_with_fix" } } },
                "then": { "required": ["direct_fixes"], "properties": { "direct_fixes": { "minItems": 1 } } },
                "else": { "properties": { "direct_fixes": { "maxItems": 0 } } },
            }),
        ),
        // Critical suspends, and work continues with info only.
        (
            "Escalation",
            json!({
                "if": { "properties": { "auto_suspended": { "const": false } } },
                "then": { "properties": { "severity": { "const": "info" } } },
            }),
        ),
    ]
}

fn msg_id_pattern(types: &str) -> String {
    format!("^({types})-{TASK_ID}-[1-9][0-9]{{0,19}}$")
}

impl JsonSchema for MsgId {
    fn schema_name() -> Cow<'static, str> {
        "MsgId".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let types = AmpMessageType::ALL.map(AmpMessageType::as_str).join("|");
        json_schema!({ "type": "string", "pattern": msg_id_pattern(&types) })
    }
}
