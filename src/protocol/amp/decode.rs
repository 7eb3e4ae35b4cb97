//! JSON text -> a [`AmpMessage`], an [`Ack`] or a reviewer's verdict; the first broken rule is told, with its field.
//!
//! In this order: JSON, `protocol_version`, unknown fields, `type`, the envelope and the payload's fields as in the spec's
//! tables, and then, by [`AmpMessage::new`], what their values must be. Fields that the spec does not name are refused, at the
//! top and in the payload: AMP has a version that tells a newer sender, and the spec calls what is not of the schema
//! invalid. Null is no value but in `criteria_met`, `passed`, `line` and `last_successful_msg_id`, where the spec or its
//! examples have it; an optional list that is empty is as good as none. Used by `store.rs`, `cli/`, `shim/`.

use std::str::FromStr;

use jiff::Timestamp;

use super::check::timestamp_violation;
use super::located_value::{LocatedObject, LocatedValue, parse};
use super::message::{
    Ack, AmpDraft, AmpMessage, AmpMessageType, CriterionVerdict, DiffSummary, DirectFix, Escalation, Issue, MsgId,
    Payload, ReviewRequest, ReviewVerdict, SelfAssessment, Subtask, SystemStateSnapshot, TaskDispatch, TaskResult,
    VERSION, WorkLogEntry,
};
use super::rules::{self, AmpViolation};
use crate::json::text::excerpt;
use crate::protocol::timestamp::parse_timestamp;

const ENVELOPE_FIELDS: [&str; 11] = [
    "msg_id",
    "protocol_version",
    "type",
    "from",
    "to",
    "task_id",
    "timestamp",
    "requires_ack",
    "ack_timeout_sec",
    "context_ref",
    "payload",
];
const ROLE_NAMES: &str = "`admin`, `coordinator`, `executor`, `reviewer` or `system`";

impl AmpMessage {
    /// Reads one message, whole: the text has nothing before or behind it but white space.
    pub fn parse(text: &str) -> Result<Self, AmpViolation> {
        let root = parse(text)?;
        let object = LocatedValue::root(&root)?;
        let version = object.required("protocol_version")?;
        if version.as_str()? != VERSION {
            let problem = format!("must be `{VERSION}`, found `{}`", excerpt(version.as_str()?));
            return Err(AmpViolation::new(rules::PROTOCOL_VERSION, version.path, problem));
        }
        object.deny_unknown_fields(&ENVELOPE_FIELDS)?;
        let words = "`task_dispatch`, `task_result`, `review_request`, `review_verdict` or `escalation`";
        let kind: AmpMessageType = object.required("type")?.into_enum_with_rule(rules::TYPE_UNKNOWN, words)?;
        let id = decode_msg_id(object.required("msg_id")?)?;
        let draft = AmpDraft {
            from: object.required("from")?.into_enum(ROLE_NAMES)?,
            to: object.required("to")?.into_enum(ROLE_NAMES)?,
            task_id: parse_field(object.required("task_id")?, rules::TASK_ID)?,
            timestamp: decode_timestamp(object.required("timestamp")?)?,
            requires_ack: object.required("requires_ack")?.into_bool()?,
            ack_timeout_sec: object.optional("ack_timeout_sec").map(LocatedValue::into_unsigned).transpose()?,
            context_ref: optional_list(&object, "context_ref", decode_msg_id)?,
            payload: decode_payload(kind, object.required("payload")?)?,
        };
        Self::new(id, draft)
    }
}

impl Ack {
    /// Reads one ack, whole.
    pub fn parse(text: &str) -> Result<Self, AmpViolation> {
        let root = parse(text)?;
        let object = LocatedValue::root(&root)?;
        object.deny_unknown_fields(&["ack_of", "by", "timestamp", "note"])?;
        let ack = Ack {
            ack_of: decode_msg_id(object.required("ack_of")?)?,
            by: object.required("by")?.into_enum(ROLE_NAMES)?,
            timestamp: decode_timestamp(object.required("timestamp")?)?,
            note: object.optional("note").map(LocatedValue::into_string).transpose()?,
        };
        ack.check()?;
        Ok(ack)
    }
}

impl ReviewVerdict {
    /// Reads the payload of a verdict that is a file of its own, as a reviewer writes it, and checks it as the answer to
    /// these criteria: see [`check`](Self::check) and [`match_criteria`](Self::match_criteria).
    pub fn parse(text: &str, criteria: &[String]) -> Result<Self, AmpViolation> {
        let root = parse(text)?;
        let object = LocatedValue::root(&root)?;
        object.deny_unknown_fields(&VERDICT_FIELDS)?;
        let verdict = decode_review_verdict(&object)?;
        verdict.check(criteria)?;
        Ok(verdict)
    }
}

/// A text with a type of its own.
fn parse_field<T: FromStr<Err: std::fmt::Display>>(
    at: LocatedValue<'_>,
    rule: &'static str,
) -> Result<T, AmpViolation> {
    let text = at.as_str()?;
    text.parse().map_err(|error: T::Err| AmpViolation::new(rule, at.path, excerpt(&error.to_string())))
}

fn decode_msg_id(at: LocatedValue<'_>) -> Result<MsgId, AmpViolation> {
    let text = at.as_str()?;
    text.parse().map_err(|_| {
        let problem = format!("must be `{{type}}-T-YYYY-NNN-{{unix_ms}}`, found `{}`", excerpt(text));
        AmpViolation::new(rules::MSG_ID, at.path, problem)
    })
}

fn decode_timestamp(at: LocatedValue<'_>) -> Result<Timestamp, AmpViolation> {
    let text = at.as_str()?;
    parse_timestamp(text).ok_or_else(|| timestamp_violation(text, at.path))
}

/// A list that may be there.
fn optional_list<'t, T>(
    object: &LocatedObject<'t>,
    key: &str,
    read: impl Fn(LocatedValue<'t>) -> Result<T, AmpViolation>,
) -> Result<Vec<T>, AmpViolation> {
    object.optional(key).map_or(Ok(Vec::new()), |at| at.into_list(read))
}

fn decode_payload(kind: AmpMessageType, at: LocatedValue<'_>) -> Result<Payload, AmpViolation> {
    Ok(match kind {
        AmpMessageType::TaskDispatch => Payload::TaskDispatch(decode_task_dispatch(at)?),
        AmpMessageType::TaskResult => Payload::TaskResult(decode_task_result(at)?),
        AmpMessageType::ReviewRequest => Payload::ReviewRequest(decode_review_request(at)?),
        AmpMessageType::ReviewVerdict => {
            Payload::ReviewVerdict(decode_review_verdict(&at.into_object(&VERDICT_FIELDS)?)?)
        }
        AmpMessageType::Escalation => Payload::Escalation(decode_escalation(at)?),
    })
}

fn decode_task_dispatch(at: LocatedValue<'_>) -> Result<TaskDispatch, AmpViolation> {
    let object = at.into_object(&[
        "description",
        "repo",
        "branch",
        "subtasks",
        "acceptance_criteria",
        "risk_level",
        "forbidden_actions",
        "tech_constraints",
    ])?;
    Ok(TaskDispatch {
        description: object.required("description")?.into_string()?,
        repo: object.required("repo")?.into_string()?,
        branch: object.required("branch")?.into_string()?,
        subtasks: object.required("subtasks")?.into_list(|at| {
            let subtask = at.into_object(&["subtask_id", "description", "estimated_lines"])?;
            Ok(Subtask {
                subtask_id: subtask.required("subtask_id")?.into_string()?,
                description: subtask.required("description")?.into_string()?,
                estimated_lines: subtask.required("estimated_lines")?.into_unsigned()?,
            })
        })?,
        acceptance_criteria: object.required("acceptance_criteria")?.into_list(LocatedValue::into_string)?,
        risk_level: object.required("risk_level")?.into_enum("`low`, `medium` or `high`")?,
        forbidden_actions: optional_list(&object, "forbidden_actions", LocatedValue::into_string)?,
        tech_constraints: object.optional("tech_constraints").map(LocatedValue::into_json_map).transpose()?,
    })
}

fn decode_task_result(at: LocatedValue<'_>) -> Result<TaskResult, AmpViolation> {
    let object = at.into_object(&[
        "subtask_id",
        "completion_status",
        "diff_summary",
        "self_assessment",
        "work_log",
        "commit_hash",
        "blockers",
    ])?;
    let diff = object.required("diff_summary")?.into_object(&["files_changed", "lines_added", "lines_removed"])?;
    let assessment = object.required("self_assessment")?.into_object(&["criteria_met", "notes"])?;
    Ok(TaskResult {
        subtask_id: object.required("subtask_id")?.into_string()?,
        completion_status: object.required("completion_status")?.into_enum("`complete`, `partial` or `failed`")?,
        diff_summary: DiffSummary {
            files_changed: diff.required("files_changed")?.into_list(LocatedValue::into_string)?,
            lines_added: diff.required("lines_added")?.into_unsigned()?,
            lines_removed: diff.required("lines_removed")?.into_unsigned()?,
        },
        self_assessment: SelfAssessment {
            criteria_met: assessment.required("criteria_met")?.into_list(|at| at.nullable(LocatedValue::into_bool))?,
            notes: assessment.required("notes")?.into_list(LocatedValue::into_string)?,
        },
        work_log: object.required("work_log")?.into_list(|at| {
            let entry = at.into_object(&["timestamp", "action", "file", "detail"])?;
            Ok(WorkLogEntry {
                timestamp: entry.required("timestamp")?.into_string()?,
                action: entry.required("action")?.into_string()?,
                file: entry.required("file")?.into_string()?,
                detail: entry.required("detail")?.into_string()?,
            })
        })?,
        commit_hash: object.optional("commit_hash").map(LocatedValue::into_string).transpose()?,
        blockers: optional_list(&object, "blockers", LocatedValue::into_string)?,
    })
}

fn decode_review_request(at: LocatedValue<'_>) -> Result<ReviewRequest, AmpViolation> {
    let object = at.into_object(&[
        "original_dispatch_ref",
        "task_result_ref",
        "review_scope",
        "diff_url",
        "reject_count",
        "coordinator_notes",
        "ci_status",
    ])?;
    Ok(ReviewRequest {
        original_dispatch_ref: decode_msg_id(object.required("original_dispatch_ref")?)?,
        task_result_ref: decode_msg_id(object.required("task_result_ref")?)?,
        review_scope: object.required("review_scope")?.into_enum("`full` or `incremental`")?,
        diff_url: object.required("diff_url")?.into_string()?,
        reject_count: object.required("reject_count")?.into_unsigned()?,
        coordinator_notes: object.optional("coordinator_notes").map(LocatedValue::into_string).transpose()?,
        ci_status: object.optional("ci_status").map(LocatedValue::into_json_map).transpose()?,
    })
}

const VERDICT_FIELDS: [&str; 6] =
    ["decision", "criteria_results", "issues", "direct_fixes", "architecture_notes", "confidence"];

fn decode_review_verdict(object: &LocatedObject<'_>) -> Result<ReviewVerdict, AmpViolation> {
    Ok(ReviewVerdict {
        decision: object.required("decision")?.into_enum("`approved`, `approved_with_fix` or `rejected`")?,
        criteria_results: object.required("criteria_results")?.into_list(|at| {
            let result = at.into_object(&["criterion", "passed", "evidence"])?;
            Ok(CriterionVerdict {
                criterion: result.required("criterion")?.into_string()?,
                passed: result.required("passed")?.nullable(LocatedValue::into_bool)?,
                evidence: result.required("evidence")?.into_string()?,
            })
        })?,
        issues: optional_list(object, "issues", |at| {
            let issue = at.into_object(&["severity", "file", "line", "description", "suggested_fix"])?;
            Ok(Issue {
                severity: issue.required("severity")?.into_enum("`critical`, `major` or `minor`")?,
                file: issue.required("file")?.into_string()?,
                line: issue.optional("line").map_or(Ok(None), |at| at.nullable(LocatedValue::into_unsigned))?,
                description: issue.required("description")?.into_string()?,
                suggested_fix: issue.required("suggested_fix")?.into_string()?,
            })
        })?,
        direct_fixes: optional_list(object, "direct_fixes", |at| {
            let fix = at.into_object(&["file", "change_type", "diff_lines"])?;
            Ok(DirectFix {
                file: fix.required("file")?.into_string()?,
                change_type: fix
                    .required("change_type")?
                    .into_enum_with_rule(rules::DIRECT_FIX_SCOPE, "`typo`, `lint`, `whitespace` or `import_order`")?,
                diff_lines: fix.required("diff_lines")?.into_unsigned()?,
            })
        })?,
        architecture_notes: object.optional("architecture_notes").map(LocatedValue::into_string).transpose()?,
        confidence: object.required("confidence")?.into_f64()?,
    })
}

fn decode_escalation(at: LocatedValue<'_>) -> Result<Escalation, AmpViolation> {
    let object = at.into_object(&[
        "escalation_type",
        "severity",
        "triggered_by",
        "description",
        "affected_msgs",
        "system_state_snapshot",
        "suggested_actions",
        "auto_suspended",
    ])?;
    let kinds = "`hallucination_lock`, `ack_timeout`, `branch_violation`, `ci_failure`, `conflict`, \
                 `heartbeat_timeout`, `permission_denied` or `unknown`";
    let snapshot = object.required("system_state_snapshot")?;
    let snapshot = snapshot.into_object(&["task_status", "reject_count", "last_successful_msg_id"])?;
    Ok(Escalation {
        escalation_type: object.required("escalation_type")?.into_enum(kinds)?,
        severity: object.required("severity")?.into_enum("`critical`, `warning` or `info`")?,
        triggered_by: object
            .required("triggered_by")?
            .into_enum("`coordinator`, `executor`, `reviewer` or `system`")?,
        description: object.required("description")?.into_string()?,
        affected_msgs: object.required("affected_msgs")?.into_list(decode_msg_id)?,
        system_state_snapshot: SystemStateSnapshot {
            task_status: snapshot.required("task_status")?.into_string()?,
            reject_count: snapshot.required("reject_count")?.into_unsigned()?,
            last_successful_msg_id: snapshot.required("last_successful_msg_id")?.nullable(decode_msg_id)?,
        },
        suggested_actions: optional_list(&object, "suggested_actions", LocatedValue::into_string)?,
        auto_suspended: object.required("auto_suspended")?.into_bool()?,
    })
}
