//! AMP's rules, each with its section of the spec, and the limits. Each rule has an invalid golden file.

use std::fmt::Display;

use crate::protocol::rule::{Violation, rules};
// Until the coordinator and the cli use `Violation`.
pub use crate::protocol::rule::Violation as AmpViolation;

/// The limit of a message or ack in bytes of JSON, both as received and as written.
pub const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024;
/// The limit of a text, in characters.
pub const MAX_TEXT_CHARS: usize = 65_536;
/// The limit of a list, in entries.
pub const MAX_ENTRIES: usize = 10_000;
/// `coordinator_notes` must contain it from [`LOCK_WARNING_THRESHOLD`] rejections on.
pub const LOCK_WARNING_TEXT: &str = "Lock is approaching";
pub const LOCK_WARNING_THRESHOLD: u32 = 2;
/// The limit of a fix by the reviewer, in lines of the diff.
pub const MAX_FIX_LINES: u32 = 4;

pub(super) fn size_violation(length: impl Display) -> Violation {
    Violation::new(SIZE, "message", format!("must have at most {MAX_MESSAGE_BYTES} bytes, found {length}"))
}

rules! {
    SIZE = "size", "longshore", "A message has at most 4,194,304 bytes.";
    TEXT_LENGTH = "text-length", "longshore", "A text has at most 65,536 characters.";
    LIST_LENGTH = "list-length", "longshore", "A list has at most 10,000 entries.";
    JSON = "json", "Base Envelope", "A message is exactly one JSON value (RFC 8259).";
    JSON_OBJECT = "json-object", "Base Envelope", "That value is an object.";
    DUPLICATE_KEY = "duplicate-key", "longshore", "Keys of an object are unique, at any depth.";
    PROTOCOL_VERSION = "protocol-version", "Base Envelope",
        "`protocol_version` is `AMP/1.0`; a message of another version is not read further.";
    UNKNOWN_FIELD = "unknown-field", "longshore",
        "All fields are in the spec: a newer sender has another `protocol_version`.";
    REQUIRED = "required", "Base Envelope; payload fields", "Fields marked with `*` are present.";
    FIELD_TYPE = "field-type", "Base Envelope; payload fields",
        "A field has the type of the tables; null only if the spec allows it.";
    NUMBER_RANGE = "number-range", "longshore", "A number is one that this build can hold.";
    TYPE_UNKNOWN = "type-unknown", "Base Envelope", "`type` is one of the five.";
    ENUM_WORD = "enum-word", "Base Envelope; payload fields", "A field with a list of words has one of them.";
    MSG_ID = "msg-id", "Base Envelope", "A message id is `{type}-{task_id}-{unix_ms}`.";
    MSG_ID_TYPE = "msg-id-type", "Base Envelope", "The type in `msg_id` is the message's own.";
    MSG_ID_TASK = "msg-id-task", "Base Envelope", "The task in `msg_id` is the message's own.";
    DIRECTION = "direction", "01 to 05", "Sender and receiver are a pair that the type allows.";
    RECEIVER = "receiver", "Base Envelope", "`system` receives nothing.";
    TASK_ID = "task-id", "Base Envelope", "`task_id` is `T-YYYY-NNN`.";
    TIMESTAMP = "timestamp", "Base Envelope", "A time is an RFC 3339 date-time, with its offset.";
    ACK_REQUIRED = "ack-required", "01 to 04: ACK Required", "`requires_ack` is true, except for escalations, where it is optional.";
    ACK_TIMEOUT = "ack-timeout", "Base Envelope", "`ack_timeout_sec` is present with `requires_ack` only, and above 0.";
    CONTEXT_REF = "context-ref", "Base Envelope", "`context_ref` names other messages, each once.";
    TEXT_EMPTY = "text-empty", "longshore", "Required texts are not blank.";
    REPO_PATH = "repo-path", "01", "`repo` is an absolute path.";
    BRANCH_PROTECTED = "branch-protected", "01: Branch Validation", "`branch` is not `main` or `master`.";
    BRANCH_NAME = "branch-name", "longshore", "`branch` is a valid git branch name.";
    SUBTASKS_EMPTY = "subtasks-empty", "01", "A dispatch has at least one subtask.";
    SUBTASK_ID = "subtask-id", "01; 02", "A `subtask_id` is the message's task id, `-S` and the position, from 1.";
    SUBTASK_TWICE = "subtask-twice", "02", "Each `subtask_id` is unique: a result would be ambiguous.";
    ACCEPTANCE_CRITERIA = "acceptance-criteria", "01: Acceptance Criteria",
        "A dispatch has acceptance criteria, and none is empty.";
    BLOCKERS = "blockers", "02: Partial Completion",
        "A partial or failed result has `blockers`, none of them empty; a complete one has none.";
    DIFF_SUMMARY = "diff-summary", "02", "Changed lines belong to files, each of which is listed once.";
    SELF_ASSESSMENT = "self-assessment", "02: Self Assessment",
        "`criteria_met` and `notes` have an entry for each criterion.";
    COMMIT_HASH = "commit-hash", "02", "`commit_hash` is 7 to 64 lowercase hexadecimal digits.";
    REF_TYPE = "ref-type", "03", "A reference is to a message of the type in its name.";
    REF_TASK = "ref-task", "03; 05", "A reference is to a message about the same task.";
    LOCK_WARNING = "lock-warning", "03: Lock Warning",
        "`coordinator_notes` say \"Lock is approaching\" if `reject_count` is 2 or more.";
    CI_GATING = "ci-gating", "03: CI Gating", "No review is requested if a check of `ci_status` failed.";
    CRITERIA_RESULTS = "criteria-results", "04", "A verdict has an entry for each acceptance criterion.";
    APPROVED_CRITERIA = "approved-criteria", "longshore", "An approved result has no failed criterion.";
    ISSUES = "issues", "04", "A rejected verdict has `issues`.";
    APPROVED_ISSUES = "approved-issues", "04: Issue Severity", "An approved result has no critical or major issue.";
    DIRECT_FIXES = "direct-fixes", "04", "A verdict has `direct_fixes` if, and only if, it is `approved_with_fix`.";
    DIRECT_FIX_SCOPE = "direct-fix-scope", "04: Direct Fix Scope",
        "A direct fix is a typo, lint, whitespace or import_order, and has fewer than 5 lines.";
    CONFIDENCE = "confidence", "04", "`confidence` is from 0 to 1.";
    TRIGGERED_BY = "triggered-by", "05", "`triggered_by` is not the admin.";
    CRITICAL_SUSPENDS = "critical-suspends", "05: Critical = Suspend All", "`auto_suspended` is true if the severity is critical.";
    INFO_GOES_ON = "info-goes-on", "05", "`auto_suspended` is false with severity info only.";
    ACK_BY = "ack-by", "longshore", "An ack is by a receiver of that message type.";
}
