//! The names of AMP's rules, as [`AmpViolation`] says them, each with the section of the spec that it comes from, and the sizes.
//!
//! Used by all of `protocol/amp`. A test holds that every rule has an invalid golden file.

use std::fmt::Display;

use crate::protocol::rule::{Violation, rules};
// Until the coordinator and the cli use `Violation`.
pub use crate::protocol::rule::Violation as AmpViolation;

/// The most bytes that a message or an ack has as JSON, both as it comes and as [`to_json`] writes it.
///
/// [`to_json`]: super::message::Message::to_json
pub const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024;
/// The most characters of one text.
pub const MAX_TEXT_CHARS: usize = 65_536;
/// The most entries of one list.
pub const MAX_ENTRIES: usize = 10_000;
/// What `coordinator_notes` must say from two rejections on.
pub const LOCK_WARNING_TEXT: &str = "Lock is approaching";
/// From how many rejections on it must.
pub const LOCK_WARNING_THRESHOLD: u32 = 2;
/// The most lines of a fix by the reviewer.
pub const MAX_FIX_LINES: u32 = 4;

pub(super) fn size_violation(length: impl Display) -> Violation {
    Violation::new(SIZE, "message", format!("must have at most {MAX_MESSAGE_BYTES} bytes, found {length}"))
}

rules! {
    SIZE = "size", "longshore", "A message has at most 4,194,304 bytes.";
    TEXT_LENGTH = "text-length", "longshore", "A text has at most 65,536 characters.";
    LIST_LENGTH = "list-length", "longshore", "A list has at most 10,000 entries.";
    JSON = "json", "Base Envelope", "A message is one JSON value (RFC 8259) and nothing behind it.";
    JSON_OBJECT = "json-object", "Base Envelope", "That value is an object.";
    DUPLICATE_KEY = "duplicate-key", "longshore", "No key stands twice in an object, at any depth.";
    PROTOCOL_VERSION = "protocol-version", "Base Envelope",
        "`protocol_version` is `AMP/1.0`; the rest of a message of another version is not looked at.";
    UNKNOWN_FIELD = "unknown-field", "longshore",
        "Fields are those of the spec: a newer sender that has others has another `protocol_version`.";
    REQUIRED = "required", "Base Envelope; payload fields", "Fields marked with `*` are there.";
    FIELD_TYPE = "field-type", "Base Envelope; payload fields",
        "A field has the type of the tables; null only where the spec says it.";
    NUMBER_RANGE = "number-range", "longshore", "A number is one that this build can hold.";
    TYPE_UNKNOWN = "type-unknown", "Base Envelope", "`type` is one of the five.";
    ENUM_WORD = "enum-word", "Base Envelope; payload fields", "A field with a list of words has one of them.";
    MSG_ID = "msg-id", "Base Envelope", "A message id is `{type}-{task_id}-{unix_ms}`.";
    MSG_ID_TYPE = "msg-id-type", "Base Envelope", "The type in `msg_id` is the message's own.";
    MSG_ID_TASK = "msg-id-task", "Base Envelope", "The task in `msg_id` is the message's own.";
    DIRECTION = "direction", "01 to 05", "A message goes from whom to whom its type goes.";
    RECEIVER = "receiver", "Base Envelope", "`system` is told nothing.";
    TASK_ID = "task-id", "Base Envelope", "`task_id` is `T-YYYY-NNN`.";
    TIMESTAMP = "timestamp", "Base Envelope", "A time is an RFC 3339 date-time, with its offset.";
    ACK_REQUIRED = "ack-required", "01 to 04: ACK Required", "`requires_ack` is true, but of an escalation, where it is free.";
    ACK_TIMEOUT = "ack-timeout", "Base Envelope", "`ack_timeout_sec` is there with `requires_ack` only, and above 0.";
    CONTEXT_REF = "context-ref", "Base Envelope", "`context_ref` names earlier messages: not this one, and none twice.";
    TEXT_EMPTY = "text-empty", "longshore", "A text that something depends on says something.";
    REPO_PATH = "repo-path", "01", "`repo` is an absolute path.";
    BRANCH_PROTECTED = "branch-protected", "01: Branch Validation", "`branch` is not `main` or `master`.";
    BRANCH_NAME = "branch-name", "longshore", "`branch` is a name that git takes.";
    SUBTASKS_EMPTY = "subtasks-empty", "01", "A dispatch has a subtask.";
    SUBTASK_ID = "subtask-id", "01; 02", "A `subtask_id` is the message's task id, `-S` and the place, from 1.";
    SUBTASK_TWICE = "subtask-twice", "02", "No `subtask_id` stands twice: a result would be ambiguous.";
    ACCEPTANCE_CRITERIA = "acceptance-criteria", "01: Acceptance Criteria",
        "A dispatch has acceptance criteria, and none is empty.";
    BLOCKERS = "blockers", "02: Partial Completion",
        "`blockers` are there, and none is empty, if a result is partial or failed; a complete one has none.";
    DIFF_SUMMARY = "diff-summary", "02", "Lines are changed in files, and each of these once.";
    SELF_ASSESSMENT = "self-assessment", "02: Self Assessment",
        "`criteria_met` and `notes` have an entry for each criterion.";
    COMMIT_HASH = "commit-hash", "02", "`commit_hash` is 7 to 64 lowercase hexadecimal digits.";
    REF_TYPE = "ref-type", "03", "A reference is to a message of the type that it is called by.";
    REF_TASK = "ref-task", "03; 05", "A reference is to a message about the same task.";
    LOCK_WARNING = "lock-warning", "03: Lock Warning",
        "`coordinator_notes` say \"Lock is approaching\" if `reject_count` is 2 or more.";
    CI_GATING = "ci-gating", "03: CI Gating", "No review is asked for where a check of `ci_status` failed.";
    CRITERIA_RESULTS = "criteria-results", "04", "A verdict has an entry for each acceptance criterion.";
    APPROVED_CRITERIA = "approved-criteria", "longshore", "What is approved has no criterion that did not pass.";
    ISSUES = "issues", "04", "`issues` are there if a verdict is `rejected`.";
    APPROVED_ISSUES = "approved-issues", "04: Issue Severity", "What is approved has no critical or major issue.";
    DIRECT_FIXES = "direct-fixes", "04", "`direct_fixes` are there if a verdict is `approved_with_fix`, and only then.";
    DIRECT_FIX_SCOPE = "direct-fix-scope", "04: Direct Fix Scope",
        "A direct fix is a typo, lint, whitespace or import_order, and has fewer than 5 lines.";
    CONFIDENCE = "confidence", "04", "`confidence` is from 0 to 1.";
    TRIGGERED_BY = "triggered-by", "05", "`triggered_by` is not the admin.";
    CRITICAL_SUSPENDS = "critical-suspends", "05: Critical = Suspend All", "Critical has `auto_suspended` true.";
    INFO_GOES_ON = "info-goes-on", "05", "`auto_suspended` is false with severity info only.";
    ACK_BY = "ack-by", "longshore", "An ack is by one to whom messages of that type go.";
}
