//! JSON text -> a [`Message`], an [`Ack`] or a reviewer's verdict; the first broken rule is told, with its field.
//!
//! In this order: JSON, `protocol_version`, unknown fields, `type`, the envelope and the payload's fields as in the spec's
//! tables, and then, by [`Message::new`], what their values must be. Fields that the spec does not name are refused, at the
//! top and in the payload: AMP has a version that tells a newer sender, and the spec calls what is not of the schema
//! invalid. Null is no value but in `criteria_met`, `passed`, `line` and `last_successful_msg_id`, where the spec or its
//! examples have it; an optional list that is empty is as good as none. Used by `store.rs`, `cli/`, `shim/`.

use std::str::FromStr;

use jiff::Timestamp;

use super::check::no_timestamp;
use super::message::{
    Ack, CriterionVerdict, DiffSummary, DirectFix, Draft, Escalation, Issue, Kind, Message, MsgId, Payload,
    ReviewRequest, ReviewVerdict, SelfAssessment, Snapshot, Subtask, TaskDispatch, TaskResult, VERSION, WorkLogEntry,
};
use super::rules::{self, Violation};
use super::tree::{At, Object, parse};
use crate::protocol::acp::decode::timestamp;
use crate::protocol::acp::fields::shown;

const FIELDS: [&str; 11] = [
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
const ROLES: &str = "`admin`, `coordinator`, `executor`, `reviewer` or `system`";

impl Message {
    /// Reads one message, whole: the text has nothing before or behind it but white space.
    pub fn read(text: &str) -> Result<Self, Violation> {
        let root = parse(text)?;
        let object = At::root(&root)?;
        let version = object.field("protocol_version")?;
        if version.text()? != VERSION {
            let problem = format!("must be `{VERSION}`, found `{}`", shown(version.text()?));
            return Err(Violation::new(rules::PROTOCOL_VERSION, version.path, problem));
        }
        object.only(&FIELDS)?;
        let words = "`task_dispatch`, `task_result`, `review_request`, `review_verdict` or `escalation`";
        let kind: Kind = object.field("type")?.word_by(rules::TYPE_UNKNOWN, words)?;
        let id = msg_id(object.field("msg_id")?)?;
        let draft = Draft {
            from: object.field("from")?.word(ROLES)?,
            to: object.field("to")?.word(ROLES)?,
            task: parsed(object.field("task_id")?, rules::TASK_ID)?,
            at: moment(object.field("timestamp")?)?,
            requires_ack: object.field("requires_ack")?.bool()?,
            ack_timeout_sec: object.optional("ack_timeout_sec").map(At::count).transpose()?,
            context_ref: list(&object, "context_ref", msg_id)?,
            payload: payload(kind, object.field("payload")?)?,
        };
        Self::new(id, draft)
    }
}

impl Ack {
    /// Reads one ack, whole.
    pub fn read(text: &str) -> Result<Self, Violation> {
        let root = parse(text)?;
        let object = At::root(&root)?;
        object.only(&["ack_of", "by", "timestamp", "note"])?;
        let ack = Ack {
            ack_of: msg_id(object.field("ack_of")?)?,
            by: object.field("by")?.word(ROLES)?,
            timestamp: moment(object.field("timestamp")?)?,
            note: object.optional("note").map(At::owned).transpose()?,
        };
        ack.check()?;
        Ok(ack)
    }
}

impl ReviewVerdict {
    /// Reads the payload of a verdict that is a file of its own, as a reviewer writes it, and checks it as the answer to
    /// these criteria: see [`check`](Self::check) and [`by_criterion`](Self::by_criterion).
    pub fn read(text: &str, criteria: &[String]) -> Result<Self, Violation> {
        let root = parse(text)?;
        let object = At::root(&root)?;
        object.only(&VERDICT_FIELDS)?;
        let verdict = review_verdict(&object)?;
        verdict.check(criteria)?;
        Ok(verdict)
    }
}

/// A text with a type of its own.
fn parsed<T: FromStr<Err: std::fmt::Display>>(at: At<'_>, rule: &'static str) -> Result<T, Violation> {
    let text = at.text()?;
    text.parse().map_err(|error: T::Err| Violation::new(rule, at.path, shown(&error.to_string())))
}

fn msg_id(at: At<'_>) -> Result<MsgId, Violation> {
    let text = at.text()?;
    text.parse().map_err(|_| {
        let problem = format!("must be `{{type}}-T-YYYY-NNN-{{unix_ms}}`, found `{}`", shown(text));
        Violation::new(rules::MSG_ID, at.path, problem)
    })
}

fn moment(at: At<'_>) -> Result<Timestamp, Violation> {
    let text = at.text()?;
    timestamp(text).ok_or_else(|| no_timestamp(text, at.path))
}

/// A list that may be there.
fn list<'t, T>(
    object: &Object<'t>,
    key: &str,
    read: impl Fn(At<'t>) -> Result<T, Violation>,
) -> Result<Vec<T>, Violation> {
    object.optional(key).map_or(Ok(Vec::new()), |at| at.list(read))
}

fn payload(kind: Kind, at: At<'_>) -> Result<Payload, Violation> {
    Ok(match kind {
        Kind::TaskDispatch => Payload::Dispatch(task_dispatch(at)?),
        Kind::TaskResult => Payload::Result(task_result(at)?),
        Kind::ReviewRequest => Payload::Request(review_request(at)?),
        Kind::ReviewVerdict => Payload::Verdict(review_verdict(&at.object(&VERDICT_FIELDS)?)?),
        Kind::Escalation => Payload::Escalation(escalation(at)?),
    })
}

fn task_dispatch(at: At<'_>) -> Result<TaskDispatch, Violation> {
    let object = at.object(&[
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
        description: object.field("description")?.owned()?,
        repo: object.field("repo")?.owned()?,
        branch: object.field("branch")?.owned()?,
        subtasks: object.field("subtasks")?.list(|at| {
            let subtask = at.object(&["subtask_id", "description", "estimated_lines"])?;
            Ok(Subtask {
                subtask_id: subtask.field("subtask_id")?.owned()?,
                description: subtask.field("description")?.owned()?,
                estimated_lines: subtask.field("estimated_lines")?.count()?,
            })
        })?,
        acceptance_criteria: object.field("acceptance_criteria")?.list(At::owned)?,
        risk_level: object.field("risk_level")?.word("`low`, `medium` or `high`")?,
        forbidden_actions: list(&object, "forbidden_actions", At::owned)?,
        tech_constraints: object.optional("tech_constraints").map(At::free).transpose()?,
    })
}

fn task_result(at: At<'_>) -> Result<TaskResult, Violation> {
    let object = at.object(&[
        "subtask_id",
        "completion_status",
        "diff_summary",
        "self_assessment",
        "work_log",
        "commit_hash",
        "blockers",
    ])?;
    let diff = object.field("diff_summary")?.object(&["files_changed", "lines_added", "lines_removed"])?;
    let assessment = object.field("self_assessment")?.object(&["criteria_met", "notes"])?;
    Ok(TaskResult {
        subtask_id: object.field("subtask_id")?.owned()?,
        completion_status: object.field("completion_status")?.word("`complete`, `partial` or `failed`")?,
        diff_summary: DiffSummary {
            files_changed: diff.field("files_changed")?.list(At::owned)?,
            lines_added: diff.field("lines_added")?.count()?,
            lines_removed: diff.field("lines_removed")?.count()?,
        },
        self_assessment: SelfAssessment {
            criteria_met: assessment.field("criteria_met")?.list(|at| at.or_null(At::bool))?,
            notes: assessment.field("notes")?.list(At::owned)?,
        },
        work_log: object.field("work_log")?.list(|at| {
            let entry = at.object(&["timestamp", "action", "file", "detail"])?;
            Ok(WorkLogEntry {
                timestamp: entry.field("timestamp")?.owned()?,
                action: entry.field("action")?.owned()?,
                file: entry.field("file")?.owned()?,
                detail: entry.field("detail")?.owned()?,
            })
        })?,
        commit_hash: object.optional("commit_hash").map(At::owned).transpose()?,
        blockers: list(&object, "blockers", At::owned)?,
    })
}

fn review_request(at: At<'_>) -> Result<ReviewRequest, Violation> {
    let object = at.object(&[
        "original_dispatch_ref",
        "task_result_ref",
        "review_scope",
        "diff_url",
        "reject_count",
        "coordinator_notes",
        "ci_status",
    ])?;
    Ok(ReviewRequest {
        original_dispatch_ref: msg_id(object.field("original_dispatch_ref")?)?,
        task_result_ref: msg_id(object.field("task_result_ref")?)?,
        review_scope: object.field("review_scope")?.word("`full` or `incremental`")?,
        diff_url: object.field("diff_url")?.owned()?,
        reject_count: object.field("reject_count")?.count()?,
        coordinator_notes: object.optional("coordinator_notes").map(At::owned).transpose()?,
        ci_status: object.optional("ci_status").map(At::free).transpose()?,
    })
}

const VERDICT_FIELDS: [&str; 6] =
    ["decision", "criteria_results", "issues", "direct_fixes", "architecture_notes", "confidence"];

fn review_verdict(object: &Object<'_>) -> Result<ReviewVerdict, Violation> {
    Ok(ReviewVerdict {
        decision: object.field("decision")?.word("`approved`, `approved_with_fix` or `rejected`")?,
        criteria_results: object.field("criteria_results")?.list(|at| {
            let result = at.object(&["criterion", "passed", "evidence"])?;
            Ok(CriterionVerdict {
                criterion: result.field("criterion")?.owned()?,
                passed: result.field("passed")?.or_null(At::bool)?,
                evidence: result.field("evidence")?.owned()?,
            })
        })?,
        issues: list(object, "issues", |at| {
            let issue = at.object(&["severity", "file", "line", "description", "suggested_fix"])?;
            Ok(Issue {
                severity: issue.field("severity")?.word("`critical`, `major` or `minor`")?,
                file: issue.field("file")?.owned()?,
                line: issue.optional("line").map_or(Ok(None), |at| at.or_null(At::count))?,
                description: issue.field("description")?.owned()?,
                suggested_fix: issue.field("suggested_fix")?.owned()?,
            })
        })?,
        direct_fixes: list(object, "direct_fixes", |at| {
            let fix = at.object(&["file", "change_type", "diff_lines"])?;
            Ok(DirectFix {
                file: fix.field("file")?.owned()?,
                change_type: fix
                    .field("change_type")?
                    .word_by(rules::DIRECT_FIX_SCOPE, "`typo`, `lint`, `whitespace` or `import_order`")?,
                diff_lines: fix.field("diff_lines")?.count()?,
            })
        })?,
        architecture_notes: object.optional("architecture_notes").map(At::owned).transpose()?,
        confidence: object.field("confidence")?.float()?,
    })
}

fn escalation(at: At<'_>) -> Result<Escalation, Violation> {
    let object = at.object(&[
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
    let snapshot = object.field("system_state_snapshot")?;
    let snapshot = snapshot.object(&["task_status", "reject_count", "last_successful_msg_id"])?;
    Ok(Escalation {
        escalation_type: object.field("escalation_type")?.word(kinds)?,
        severity: object.field("severity")?.word("`critical`, `warning` or `info`")?,
        triggered_by: object.field("triggered_by")?.word("`coordinator`, `executor`, `reviewer` or `system`")?,
        description: object.field("description")?.owned()?,
        affected_msgs: object.field("affected_msgs")?.list(msg_id)?,
        system_state_snapshot: Snapshot {
            task_status: snapshot.field("task_status")?.owned()?,
            reject_count: snapshot.field("reject_count")?.count()?,
            last_successful_msg_id: snapshot.field("last_successful_msg_id")?.or_null(msg_id)?,
        },
        suggested_actions: list(&object, "suggested_actions", At::owned)?,
        auto_suspended: object.field("auto_suspended")?.bool()?,
    })
}
