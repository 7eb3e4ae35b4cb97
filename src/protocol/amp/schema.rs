//! AMP as JSON Schemas (draft 2020-12), for `longshore schema amp`, `amp-ack` and `amp-verdict`: for those who write messages
//! and are not longshore.
//!
//! By hand and not derived: most of the rules are about several fields, and the types know nothing of them. What a schema
//! cannot say (two fields that agree, an id that stands twice, what JSON itself lost) is listed in the test below.
//! Reading is `decode.rs` and `check.rs`; the golden files hold both to the same.

use serde_json::{Value, json};

use super::message::{AmpMessageType, AmpRole, VERSION};
use super::rules::{LOCK_WARNING_TEXT, LOCK_WARNING_THRESHOLD, MAX_ENTRIES, MAX_FIX_LINES, MAX_TEXT_CHARS};

const SCHEMA_DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
const TASK_ID_PATTERN: &str = "T-[0-9]{4}-[0-9]{3,9}";
const MESSAGE_TYPES_PATTERN: &str = "(task_dispatch|task_result|review_request|review_verdict|escalation)";
const TIMESTAMP_PATTERN: &str = "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt]([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)\
                    (\\.[0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$";
/// What git takes in no branch name.
const INVALID_BRANCH_PATTERN: &str = "[\\x00-\\x20\\x7f~^:?*\\[\\\\]|\\.\\.|@\\{|//|^[-/]|[./]$|(^|/)\\.|\\.lock(/|$)";

/// A message of any of the five types.
pub fn message_schema() -> Value {
    let mut all: Vec<Value> = AmpMessageType::ALL.into_iter().map(rules_for_type).collect();
    all.push(json!({
        "if": { "required": ["ack_timeout_sec"] },
        "then": { "properties": { "requires_ack": { "const": true } } },
    }));
    json!({
        "$schema": SCHEMA_DIALECT,
        "title": "AMP/1.0 message",
        "description": "What coordinator, executors, reviewers and the admin say to each other about tasks.",
        "type": "object",
        "properties": {
            "msg_id": msg_id(MESSAGE_TYPES_PATTERN),
            "protocol_version": { "const": VERSION },
            "type": { "enum": AmpMessageType::ALL.map(AmpMessageType::as_str) },
            "from": { "enum": role_names(&[AmpRole::Admin, AmpRole::Coordinator, AmpRole::Executor, AmpRole::Reviewer, AmpRole::System]) },
            "to": { "enum": role_names(&[AmpRole::Admin, AmpRole::Coordinator, AmpRole::Executor, AmpRole::Reviewer]) },
            "task_id": { "type": "string", "pattern": format!("^{TASK_ID_PATTERN}$") },
            "timestamp": timestamp(),
            "requires_ack": { "type": "boolean" },
            "ack_timeout_sec": { "type": "integer", "minimum": 1, "maximum": u32::MAX },
            "context_ref": { "type": "array", "items": msg_id(MESSAGE_TYPES_PATTERN), "uniqueItems": true, "maxItems": MAX_ENTRIES },
            "payload": { "type": "object" },
        },
        "required": [
            "msg_id", "protocol_version", "type", "from", "to", "task_id", "timestamp", "requires_ack", "payload",
        ],
        "additionalProperties": false,
        "allOf": all,
        "$defs": {
            "task_dispatch": task_dispatch(),
            "task_result": task_result(),
            "review_request": review_request(),
            "review_verdict": review_verdict(),
            "escalation": escalation(),
        },
    })
}

/// An ack.
pub fn ack_schema() -> Value {
    let by_type = |kind: AmpMessageType| {
        let receivers: Vec<AmpRole> = kind.routes().iter().map(|(_, to)| *to).collect();
        json!({
            "if": { "properties": { "ack_of": { "pattern": format!("^{kind}-") } } },
            "then": { "properties": { "by": { "enum": role_names(&receivers) } } },
        })
    };
    json!({
        "$schema": SCHEMA_DIALECT,
        "title": "AMP/1.0 ack",
        "description": "A receiver's word that a message arrived; for a dispatch, that it has begun.",
        "type": "object",
        "properties": {
            "ack_of": msg_id(MESSAGE_TYPES_PATTERN),
            "by": { "type": "string" },
            "timestamp": timestamp(),
            "note": text(),
        },
        "required": ["ack_of", "by", "timestamp"],
        "additionalProperties": false,
        "allOf": AmpMessageType::ALL.map(by_type),
    })
}

/// A reviewer's verdict as a file of its own: the payload of a `review_verdict`.
pub fn verdict_schema() -> Value {
    let mut schema = json!({ "$schema": SCHEMA_DIALECT, "title": "AMP/1.0 review verdict" });
    if let (Some(schema), Value::Object(payload)) = (schema.as_object_mut(), review_verdict()) {
        schema.extend(payload);
    }
    schema
}

/// What a message of this type has besides.
fn rules_for_type(kind: AmpMessageType) -> Value {
    let ways: Vec<Value> = kind
        .routes()
        .iter()
        .map(|(from, to)| json!({ "properties": { "from": { "const": from.as_str() }, "to": { "const": to.as_str() } } }))
        .collect();
    let mut then = json!({
        "properties": {
            "msg_id": { "pattern": format!("^{kind}-") },
            "payload": { "$ref": format!("#/$defs/{kind}") },
        },
        "anyOf": ways,
    });
    if kind != AmpMessageType::Escalation {
        then["properties"]["requires_ack"] = json!({ "const": true });
    }
    json!({ "if": { "properties": { "type": { "const": kind.as_str() } }, "required": ["type"] }, "then": then })
}

fn role_names(roles: &[AmpRole]) -> Vec<&'static str> {
    roles.iter().map(|role| role.as_str()).collect()
}

fn msg_id(kinds: &str) -> Value {
    json!({ "type": "string", "pattern": format!("^{kinds}-{TASK_ID_PATTERN}-[1-9][0-9]{{0,19}}$") })
}

fn timestamp() -> Value {
    json!({ "type": "string", "format": "date-time", "pattern": TIMESTAMP_PATTERN })
}

fn text() -> Value {
    json!({ "type": "string", "maxLength": MAX_TEXT_CHARS })
}

/// A text that says something.
fn non_empty_text() -> Value {
    json!({ "type": "string", "maxLength": MAX_TEXT_CHARS, "pattern": "\\S" })
}

fn list(items: Value) -> Value {
    json!({ "type": "array", "items": items, "maxItems": MAX_ENTRIES })
}

/// A list that is not empty.
fn non_empty_list(items: Value) -> Value {
    json!({ "type": "array", "items": items, "minItems": 1, "maxItems": MAX_ENTRIES })
}

fn count<T: serde::Serialize>(most: T) -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": most })
}

/// An object with these fields, all but the optional ones required, and no others.
fn object(fields: Value, optional: &[&str]) -> Value {
    let required: Vec<&String> = fields
        .as_object()
        .into_iter()
        .flat_map(|map| map.keys())
        .filter(|key| !optional.contains(&key.as_str()))
        .collect();
    json!({ "type": "object", "required": required, "additionalProperties": false, "properties": fields })
}

/// The object, and rules about several of its fields.
fn with_rules(mut object: Value, rules: Value) -> Value {
    object["allOf"] = rules;
    object
}

fn subtask_id() -> Value {
    json!({ "type": "string", "pattern": format!("^{TASK_ID_PATTERN}-S[1-9][0-9]{{0,8}}$") })
}

fn task_dispatch() -> Value {
    let subtask = object(
        json!({ "subtask_id": subtask_id(), "description": non_empty_text(), "estimated_lines": count(u32::MAX) }),
        &[],
    );
    object(
        json!({
            "description": non_empty_text(),
            "repo": { "type": "string", "maxLength": MAX_TEXT_CHARS, "pattern": "^/[^\\x00]*$" },
            "branch": { "type": "string", "minLength": 1, "maxLength": 244, "not": { "anyOf": [
                { "enum": ["main", "master", "refs/heads/main", "refs/heads/master", "HEAD", "@"] },
                { "pattern": INVALID_BRANCH_PATTERN },
            ] } },
            "subtasks": non_empty_list(subtask),
            "acceptance_criteria": non_empty_list(non_empty_text()),
            "risk_level": { "enum": ["low", "medium", "high"] },
            "forbidden_actions": list(non_empty_text()),
            "tech_constraints": { "type": "object" },
        }),
        &["forbidden_actions", "tech_constraints"],
    )
}

fn task_result() -> Value {
    let diff = object(
        json!({
            "files_changed": { "type": "array", "items": non_empty_text(), "uniqueItems": true, "maxItems": MAX_ENTRIES },
            "lines_added": count(u64::MAX),
            "lines_removed": count(u64::MAX),
        }),
        &[],
    );
    let diff = with_rules(
        diff,
        json!([{
            "if": { "properties": { "files_changed": { "maxItems": 0 } } },
            "then": { "properties": { "lines_added": { "const": 0 }, "lines_removed": { "const": 0 } } },
        }]),
    );
    let assessment = object(
        json!({ "criteria_met": non_empty_list(json!({ "type": ["boolean", "null"] })), "notes": non_empty_list(text()) }),
        &[],
    );
    let entry =
        object(json!({ "timestamp": timestamp(), "action": non_empty_text(), "file": text(), "detail": text() }), &[]);
    let result = object(
        json!({
            "subtask_id": subtask_id(),
            "completion_status": { "enum": ["complete", "partial", "failed"] },
            "diff_summary": diff,
            "self_assessment": assessment,
            "work_log": list(entry),
            "commit_hash": { "type": "string", "pattern": "^[0-9a-f]{7,64}$" },
            "blockers": list(non_empty_text()),
        }),
        &["commit_hash", "blockers"],
    );
    with_rules(
        result,
        json!([{
            "if": { "properties": { "completion_status": { "const": "complete" } } },
            "then": { "properties": { "blockers": { "maxItems": 0 } } },
            "else": { "required": ["blockers"], "properties": { "blockers": { "minItems": 1 } } },
        }]),
    )
}

fn review_request() -> Value {
    let check = json!({ "type": "string", "maxLength": MAX_TEXT_CHARS, "not": { "const": "failed" } });
    let request = object(
        json!({
            "original_dispatch_ref": msg_id("task_dispatch"),
            "task_result_ref": msg_id("task_result"),
            "review_scope": { "enum": ["full", "incremental"] },
            "diff_url": non_empty_text(),
            "reject_count": count(u32::MAX),
            "coordinator_notes": text(),
            "ci_status": {
                "type": "object",
                "properties": { "last_updated": timestamp() },
                "additionalProperties": check,
                "maxProperties": MAX_ENTRIES,
            },
        }),
        &["coordinator_notes", "ci_status"],
    );
    with_rules(
        request,
        json!([{
            "if": { "properties": { "reject_count": { "minimum": LOCK_WARNING_THRESHOLD } } },
            "then": {
                "required": ["coordinator_notes"],
                "properties": { "coordinator_notes": { "pattern": LOCK_WARNING_TEXT } },
            },
        }]),
    )
}

fn review_verdict() -> Value {
    let criterion = object(
        json!({ "criterion": non_empty_text(), "passed": { "type": ["boolean", "null"] }, "evidence": text() }),
        &[],
    );
    let issue = object(
        json!({
            "severity": { "enum": ["critical", "major", "minor"] },
            "file": text(),
            "line": { "type": ["integer", "null"], "minimum": 0, "maximum": u64::MAX },
            "description": non_empty_text(),
            "suggested_fix": text(),
        }),
        &["line"],
    );
    let fix = object(
        json!({
            "file": non_empty_text(),
            "change_type": { "enum": ["typo", "lint", "whitespace", "import_order", "import"] },
            "diff_lines": count(MAX_FIX_LINES),
        }),
        &[],
    );
    let verdict = object(
        json!({
            "decision": { "enum": ["approved", "approved_with_fix", "rejected"] },
            "criteria_results": non_empty_list(criterion),
            "issues": list(issue),
            "direct_fixes": list(fix),
            "architecture_notes": text(),
            "confidence": { "type": "number", "minimum": 0, "maximum": 1 },
        }),
        &["issues", "direct_fixes", "architecture_notes"],
    );
    with_rules(
        verdict,
        json!([
            {
                "if": { "properties": { "decision": { "const": "rejected" } } },
                "then": { "required": ["issues"], "properties": { "issues": { "minItems": 1 } } },
                "else": { "properties": {
                    "criteria_results": { "items": { "properties": { "passed": { "not": { "const": false } } } } },
                    "issues": { "items": { "properties": { "severity": { "const": "minor" } } } },
                } },
            },
            {
                "if": { "properties": { "decision": { "const": "approved_with_fix" } } },
                "then": { "required": ["direct_fixes"], "properties": { "direct_fixes": { "minItems": 1 } } },
                "else": { "properties": { "direct_fixes": { "maxItems": 0 } } },
            },
        ]),
    )
}

fn escalation() -> Value {
    let last = json!({ "type": ["string", "null"], "pattern": msg_id(MESSAGE_TYPES_PATTERN)["pattern"] });
    let snapshot = object(
        json!({ "task_status": non_empty_text(), "reject_count": count(u32::MAX), "last_successful_msg_id": last }),
        &[],
    );
    let escalation = object(
        json!({
            "escalation_type": { "enum": [
                "hallucination_lock", "ack_timeout", "branch_violation", "ci_failure", "conflict", "heartbeat_timeout",
                "permission_denied", "unknown",
            ] },
            "severity": { "enum": ["critical", "warning", "info"] },
            "triggered_by": { "enum": ["coordinator", "executor", "reviewer", "system"] },
            "description": non_empty_text(),
            "affected_msgs": list(msg_id(MESSAGE_TYPES_PATTERN)),
            "system_state_snapshot": snapshot,
            "suggested_actions": list(non_empty_text()),
            "auto_suspended": { "type": "boolean" },
        }),
        &["suggested_actions"],
    );
    // Critical suspends, and only with info does anything go on.
    with_rules(
        escalation,
        json!([{
            "if": { "properties": { "auto_suspended": { "const": false } } },
            "then": { "properties": { "severity": { "const": "info" } } },
        }]),
    )
}

#[cfg(test)]
mod tests {
    use jsonschema::Validator;

    use super::*;
    use crate::protocol::amp::golden::{AmpGoldenFile, load_golden_files};

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
    fn accepts(golden: &AmpGoldenFile, [message, ack, verdict]: &[Validator; 3]) -> Option<bool> {
        let value: Value = serde_json::from_str(&golden.text).ok()?;
        Some(match golden.kind.as_str() {
            "message" => message.is_valid(&value),
            "ack" => ack.is_valid(&value),
            _ => verdict.is_valid(&value["verdict"]),
        })
    }

    fn validators() -> [Validator; 3] {
        [message_schema(), ack_schema(), verdict_schema()].map(|schema| {
            assert!(jsonschema::meta::is_valid(&schema), "{schema}");
            jsonschema::validator_for(&schema).expect("a good schema")
        })
    }

    #[test]
    fn schemas_accept_the_valid_files() {
        let validators = validators();
        for golden in load_golden_files("valid") {
            assert_eq!(accepts(&golden, &validators), Some(true), "`{}`", golden.name);
        }
    }

    #[test]
    fn schemas_reject_invalid_files_except_inexpressible_rules() {
        let validators = validators();
        let mut wrong = Vec::new();
        let mut needed = [false; INEXPRESSIBLE_RULES.len()];
        for golden in load_golden_files("invalid") {
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
}
