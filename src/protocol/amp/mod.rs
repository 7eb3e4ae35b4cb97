//! AMP/1.0, the Agent Message Protocol: messages about tasks between coordinator, executors, reviewers and the admin.
//!
//! ACP says what happens in a container; AMP turns it into messages that other agents and people can act on. An assignment is
//! AMP's *task*, its stories are the *subtasks*.
//!
//! | file | what |
//! |---|---|
//! | [`message`] | the envelope and the ack, both checked; everything that users of AMP need |
//! | `message_type.rs`, `msg_id.rs`, `payload.rs` | roles, types and routes; message ids; the five payloads |
//! | `decode.rs` | JSON text -> message, ack or verdict, or the broken rule and its field |
//! | `check.rs` | the rules of payloads |
//! | [`machine`] | ids, acks and heartbeats over time |
//! | `schema.rs` | the message types as JSON Schemas |
//! | [`rules`] | the rules' names, and the limits |
//! | [`store`] | the SSOT, where messages are kept |
//!
//! A message that breaks one of [`rules::RULES`] is a [`Violation`](super::rule::Violation), which names the rule and the field;
//! `tests/golden/amp` has files for each. The section "longshore" stands for what the spec leaves open.
//!
//! # The spec's sentences
//!
//! Each must, should and must not of the spec, and what enforces it: a rule (tested by its golden files in
//! `invalid_files_are_rejected_with_rule_and_field` and `schemas_reject_invalid_files_except_inexpressible_rules`) or a test.
//!
//! | section | sentence | rule | tests and remarks |
//! |---|---|---|---|
//! | Protocol | All message exchanges between agents must strictly follow the JSON schema | `required`, `field-type`, `unknown-field`, `enum-word` | |
//! | Protocol | the receiver must reject it and write to the error log | `json`, `json-object` | `rejected_messages_are_logged_with_their_rule` |
//! | Base Envelope | msg_id: "{type}-{task_id}-{unix_ms}", globally unique | `msg-id`, `msg-id-type`, `msg-id-task` | `ids_are_unique_within_one_millisecond_and_when_the_clock_stops`, `random_swarms` |
//! | Base Envelope | Refuse to process when the receiver version is incompatible | `protocol-version` | |
//! | Base Envelope | One of five message types | `type-unknown` | |
//! | Base Envelope | to: admin, coordinator, executor, reviewer | `receiver`, `direction` | `each_type_allows_only_its_routes` |
//! | Base Envelope | task_id: associate the corresponding task JSON file in SSOT | `task-id` | `damaged_and_mismatched_messages_are_reported` |
//! | Base Envelope | ISO 8601 format, including time zone offset | `timestamp` | |
//! | Base Envelope | The receiver must write back the ACK message to SSOT within timeout, otherwise the Coordinator will automatically report it | `ack-required` | `a_missing_ack_is_escalated_once_and_waiting_continues` |
//! | Base Envelope | ack_timeout_sec: requires_ack = true valid; the default value is determined by the message type and can be overridden | `ack-timeout` | `ack_timeouts_match_the_spec` |
//! | Base Envelope | List of associated prepended msg_ids | `context-ref` | `random_swarms`, `rejected_work_goes_back_with_the_findings_and_costs_no_retry` |
//! | Base Envelope | Every message must contain this shell | `required` | |
//! | 01 | After the Admin approves the Coordinator plan | | `high_risk_stories_and_their_dependents_wait_for_approval` |
//! | 01 | ACK Required, Timeout: 300s | `ack-required` | `ack_timeouts_match_the_spec` |
//! | 01 | description: it should be specific enough to avoid ambiguity | `text-empty` | |
//! | 01 | repo: the local absolute path; must exist .git | `repo-path` | `run` and `resume` begin in a git repository or not at all (`tests/it/offline/cli.rs`) |
//! | 01 | branch: prohibit main or master; Executor should be verified before execution | `branch-protected` | `branches`, and the shim's own check of each task-request |
//! | 01 | subtasks: an ordered list | `subtasks-empty`, `subtask-id` | |
//! | 01 | acceptance_criteria: the only basis for the Executor's self-judgment; each item should be verifiable | `acceptance-criteria` | `what_is_not_verified_does_not_land` |
//! | 01 | risk_level: determines the approval path, the Executor must not modify this value | `unknown-field` | `high_risk_stories_and_their_dependents_wait_for_approval` |
//! | 01 | forbidden_actions: a list of explicitly prohibited operations | `text-empty` | longshore has no such lists: it sends none |
//! | 01, Branch Validation | Executor must verify branch != "main" and != "master", otherwise execution is refused and escalation is triggered | `branch-protected` | `branches`: a name that is one of the two cannot be read, on either side |
//! | 01, Acceptance Criteria | Array must not be empty; the Executor should refuse to receive it and ask the Coordinator to complete it | `acceptance-criteria` | `composed_messages_break_no_amp_rule` |
//! | 01, ACK on Start | The ACK means "received and execution started", not "completed" | | `a_reviewed_task_sends_the_expected_messages` |
//! | 02 | Executor determines that the current subtask phase is completed | | `a_reviewed_task_sends_the_expected_messages` |
//! | 02 | ACK Required, Timeout: 120s | `ack-required` | `ack_timeouts_match_the_spec` |
//! | 02 | subtask_id: correlate accurately and prevent ambiguity | `subtask-id`, `subtask-twice` | |
//! | 02 | partial indicates that it is partially completed and the reason needs to be explained | `blockers` | |
//! | 02 | diff_summary contains files_changed, lines_added, lines_removed | `diff-summary` | `what_is_not_verified_does_not_land` |
//! | 02 | Executor evaluates itself one by one against acceptance_criteria | `self-assessment` | `composed_messages_break_no_amp_rule` |
//! | 02 | If it has been committed, provide the git commit hash | `commit-hash` | `what_is_not_verified_does_not_land` |
//! | 02 | blockers: completion_status = partial, failed: must be provided | `blockers` | |
//! | 02, Self Assessment | criteria that cannot be validated should be marked as null, rather than guessing true | `self-assessment` | `what_is_not_verified_does_not_land` |
//! | 02, Partial Completion | blockers field is required; the Coordinator decides whether to re-dispatch or escalate | `blockers` | `failures_are_escalated_by_cause`, `a_stopped_story_is_reported_as_partial` |
//! | 02, No Auto-Merge | No additional modifications may be made to the branch until a review_request ACK or a new dispatch is received | | `random_swarms` (one attempt of a task at a time, and what is merged is what was reviewed) |
//! | 03 | task_result received with completion_status = complete | | `several_stories_of_one_assignment_are_reviewed_together`, `random_swarms` |
//! | 03 | ACK Required, Timeout: 600s | `ack-required` | `ack_timeouts_match_the_spec` |
//! | 03 | original_dispatch_ref, task_result_ref: the corresponding message's msg_id | `ref-type`, `ref-task` | |
//! | 03 | incremental: only new diffs since the last verdict are reviewed | `enum-word` | longshore asks for `full` alone: a verdict counts for the whole commit |
//! | 03 | reject_count: the cumulative number of rejects for the current task_id | `field-type` | `rejected_work_goes_back_with_the_findings_and_costs_no_retry` |
//! | 03, Context Completeness | Coordinator must ensure the pointed message is readable in SSOT | `ref-type` | `random_swarms` |
//! | 03, Lock Warning | reject_count >= 2: coordinator_notes should be clearly marked "Lock is approaching" | `lock-warning` | `composed_messages_break_no_amp_rule` |
//! | 03, CI Gating | the Coordinator should not send review_request, but should directly initiate a new task_dispatch | `ci-gating` | `failures_are_escalated_by_cause` |
//! | 04 | Reviewer completes the review of review_request | | `a_reviewed_task_sends_the_expected_messages` |
//! | 04 | ACK Required, Timeout: 60s | `ack-required` | `ack_timeouts_match_the_spec` |
//! | 04 | The results are given one by one against the acceptance_criteria | `criteria-results`, `approved-criteria` | `verdict_entries_are_matched_by_text_then_by_position` |
//! | 04 | issues: decision = rejected must be provided | `issues` | |
//! | 04 | direct_fixes: decision = approved_with_fix provided at time; only typo/lint/whitespace/import allowed, diff_lines must <5 | `direct-fixes`, `direct-fix-scope` | |
//! | 04 | architecture_notes: does not affect the current verdict | | `random_swarms`: no decision reads them |
//! | 04 | confidence: 0.0–1.0; below 0.8 the Coordinator should consider reporting to the Admin | `confidence` | `a_low_confidence_verdict_waits_for_the_admin` |
//! | 04, Direct Fix Scope | change_type must be one of typo / lint / whitespace / import_order, and diff_lines < 5; out of range must be rejected | `direct-fix-scope` | `a_reviewer_fix_out_of_scope_counts_as_a_rejection` |
//! | 04, Confidence Threshold | the Coordinator should report to the Admin before forwarding it to the Executor | | `a_low_confidence_verdict_waits_for_the_admin` |
//! | 04, Issue Severity | critical (must be repaired, blocking), major (should be repaired, blocking), minor (non-blocking) | `approved-issues` | |
//! | 05 | This message must be sent when any Agent or system mechanism encounters a situation that it cannot resolve autonomously | | `failures_are_escalated_by_cause`, `a_review_without_a_verdict_is_retried_once_then_escalated` |
//! | 05 | The Admin is the sole arbiter | `direction`, `triggered-by` | `each_type_allows_only_its_routes` |
//! | 05 | ACK timeout: none (Admin asynchronous processing) | `ack-timeout` | `ack_timeouts_match_the_spec` |
//! | 05 | critical: all related Agents should immediately suspend waiting for Admin instructions | `critical-suspends` | `a_heartbeat_timeout_pauses_the_sandbox_and_frees_its_slot` |
//! | 05 | description: it should be concise, specific and actionable | `text-empty` | |
//! | 05 | affected_msgs: list of related msg_ids that triggered this escalation | `msg-id` | `random_swarms`, `a_missing_ack_is_escalated_once_and_waiting_continues` |
//! | 05 | system_state_snapshot: including task_status, reject_count, last_successful_msg_id | `required`, `ref-task` | |
//! | 05 | auto_suspended: false indicates that the system continues to run (info level only) | `info-goes-on` | |
//! | 05 | hallucination_lock: reject_count > 3 | | `the_fourth_rejection_locks_only_that_task` |
//! | 05 | ack_timeout: Agent does not ACK within timeout | | `a_missing_ack_is_escalated_once_and_waiting_continues` |
//! | 05 | branch_violation: Executor tries to operate the main branch | `branch-protected` | `failures_are_escalated_by_cause` |
//! | 05 | ci_failure, conflict, permission_denied: when they are to be sent | | `failures_are_escalated_by_cause`, `repeated_findings_escalate_a_conflict_and_work_continues`, `high_risk_stories_and_their_dependents_wait_for_approval` |
//! | 05 | heartbeat_timeout: Agent 30min no SSOT write | | `a_heartbeat_timeout_pauses_the_sandbox_and_frees_its_slot` |
//! | 05, Critical = Suspend All | all related agents must immediately suspend and must not perform any new operations until Admin issues a resume | `critical-suspends` | `a_heartbeat_timeout_pauses_the_sandbox_and_frees_its_slot`, `random_swarms` |
//! | 05, No Silent Failure | it is forbidden to continue silently or fail silently; it must send an escalation | | `failures_are_escalated_by_cause` |
//! | 05, Suggested Actions | recommendations, not commands; the sender must not assume Admin will adopt them | | `random_swarms` (the admin decides anything) |
//!
//! # To add a message type
//!
//! A word in `message_type.rs` with its routes; a struct and a variant in `payload.rs`; a line in `decode.rs`; its rules in
//! `check.rs`, `rules.rs`, `schema.rs` and the table above; golden files, valid and invalid.
//!
//! Used by `swarm/` (decides what to send, and when), `coordinator/` (composes and stores messages), `shim/` (a reviewer's
//! verdict) and `cli/`. Must not: know containers, git or the state's files.

pub mod machine;
mod check;
mod decode;
pub mod message;
mod message_type;
mod msg_id;
mod payload;
pub mod rules;
#[cfg(feature = "orchestrator")]
pub mod schema;
#[cfg(feature = "orchestrator")]
pub mod store;
#[cfg(test)]
mod tests;
