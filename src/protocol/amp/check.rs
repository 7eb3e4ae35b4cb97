//! The rules of the five payloads, of the ack, and of a verdict beside the criteria that it is about.
//!
//! What has a wrong JSON type, or a word that is none, is refused by [`decode`](super::decode) before it comes here; here
//! stands what a value of the right type must be. `at` is where the payload stands: `payload.`, or nothing for a payload
//! that is a file of its own. Must not: look at files, git or the time; what needs these is its reader's to check.

use std::collections::HashSet;

use super::message::{
    Ack, AmpMessageType, AmpRole, DirectFix, Escalation, EscalationSeverity, IssueSeverity, MsgId, Payload,
    ReviewDecision, ReviewRequest, ReviewVerdict, TaskDispatch, TaskResult,
};
use super::rules::{
    self, AmpViolation, LOCK_WARNING_TEXT, LOCK_WARNING_THRESHOLD, MAX_ENTRIES, MAX_FIX_LINES, MAX_TEXT_CHARS,
};
use crate::ids::AssignmentId;
use crate::json::text::excerpt;
use crate::protocol::timestamp::parse_timestamp;

type CheckResult = Result<(), AmpViolation>;

fn fail(rule: &'static str, field: String, problem: impl Into<String>) -> CheckResult {
    Err(AmpViolation::new(rule, field, problem))
}

pub(super) fn check_payload(payload: &Payload, task: &AssignmentId) -> CheckResult {
    let at = "payload.";
    match payload {
        Payload::TaskDispatch(dispatch) => check_task_dispatch(dispatch, task, at),
        Payload::TaskResult(result) => check_task_result(result, task, at),
        Payload::ReviewRequest(request) => check_review_request(request, task, at),
        Payload::ReviewVerdict(verdict) => check_review_verdict(verdict, at),
        Payload::Escalation(escalation) => check_escalation(escalation, task, at),
    }
}

/// A text of at most [`MAX_TEXT_CHARS`].
fn check_text(text: &str, field: &str) -> CheckResult {
    // There are never more characters than bytes.
    if text.len() > MAX_TEXT_CHARS && text.chars().count() > MAX_TEXT_CHARS {
        let problem = format!("must have at most {MAX_TEXT_CHARS} characters, found {}", text.chars().count());
        return fail(rules::TEXT_LENGTH, field.to_owned(), problem);
    }
    Ok(())
}

/// The same, and not of white space alone.
fn check_non_empty_text(said: &str, field: &str) -> CheckResult {
    if said.trim().is_empty() {
        return fail(rules::TEXT_EMPTY, field.to_owned(), "must not be empty");
    }
    check_text(said, field)
}

pub(super) fn check_list_length(found: usize, field: &str) -> CheckResult {
    if found > MAX_ENTRIES {
        let problem = format!("must have at most {MAX_ENTRIES} entries, found {found}");
        return fail(rules::LIST_LENGTH, field.to_owned(), problem);
    }
    Ok(())
}

fn check_texts(list: &[String], field: &str) -> CheckResult {
    check_list_length(list.len(), field)?;
    list.iter().enumerate().try_for_each(|(place, item)| check_non_empty_text(item, &format!("{field}[{place}]")))
}

fn check_task_dispatch(dispatch: &TaskDispatch, task: &AssignmentId, at: &str) -> CheckResult {
    check_non_empty_text(&dispatch.description, &format!("{at}description"))?;
    let repo = format!("{at}repo");
    check_text(&dispatch.repo, &repo)?;
    if !dispatch.repo.starts_with('/') || dispatch.repo.contains('\0') {
        let problem = format!("must be an absolute path, found `{}`", excerpt(&dispatch.repo));
        return fail(rules::REPO_PATH, repo, problem);
    }
    check_branch(&dispatch.branch, format!("{at}branch"))?;
    check_subtasks(dispatch, task, at)?;
    let field = format!("{at}acceptance_criteria");
    if dispatch.acceptance_criteria.is_empty() {
        return fail(rules::ACCEPTANCE_CRITERIA, field, "must not be empty");
    }
    check_list_length(dispatch.acceptance_criteria.len(), &field)?;
    for (place, criterion) in dispatch.acceptance_criteria.iter().enumerate() {
        let field = format!("{field}[{place}]");
        if criterion.trim().is_empty() {
            return fail(rules::ACCEPTANCE_CRITERIA, field, "must not be empty");
        }
        check_text(criterion, &field)?;
    }
    check_texts(&dispatch.forbidden_actions, &format!("{at}forbidden_actions"))
}

fn check_branch(branch: &str, field: String) -> CheckResult {
    let found = excerpt(branch);
    if matches!(branch.strip_prefix("refs/heads/").unwrap_or(branch), "main" | "master") {
        return fail(rules::BRANCH_PROTECTED, field, format!("must not be `main` or `master`, found `{found}`"));
    }
    if !is_valid_branch_name(branch) {
        return fail(rules::BRANCH_NAME, field, format!("must be a name that git takes, found `{found}`"));
    }
    Ok(())
}

/// Whether git takes it as a branch's name (`git check-ref-format --branch`), of at most 244 bytes so that it can be a file.
fn is_valid_branch_name(name: &str) -> bool {
    let refused = |c: char| c.is_ascii_control() || " ~^:?*[\\".contains(c);
    let part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    name.len() <= 244
        && !name.contains(refused)
        && !name.contains("..")
        && !name.contains("@{")
        && !name.starts_with('-')
        && !name.ends_with('.')
        && !matches!(name, "@" | "HEAD")
        && name.split('/').all(part)
}

fn check_subtasks(dispatch: &TaskDispatch, task: &AssignmentId, at: &str) -> CheckResult {
    let field = format!("{at}subtasks");
    if dispatch.subtasks.is_empty() {
        return fail(rules::SUBTASKS_EMPTY, field, "must not be empty");
    }
    check_list_length(dispatch.subtasks.len(), &field)?;
    let mut seen = HashSet::new();
    for (place, subtask) in dispatch.subtasks.iter().enumerate() {
        let id = format!("{field}[{place}].subtask_id");
        check_subtask_id(&subtask.subtask_id, task, &id)?;
        if !seen.insert(&subtask.subtask_id) {
            return fail(rules::SUBTASK_TWICE, id, format!("must not stand twice: `{}`", subtask.subtask_id));
        }
        check_non_empty_text(&subtask.description, &format!("{field}[{place}].description"))?;
    }
    Ok(())
}

fn check_subtask_id(id: &str, task: &AssignmentId, field: &str) -> CheckResult {
    let place = id.strip_prefix(task.as_str()).and_then(|rest| rest.strip_prefix("-S"));
    let is_place = |place: &str| {
        (1..=9).contains(&place.len()) && place.bytes().all(|b| b.is_ascii_digit()) && !place.starts_with('0')
    };
    if place.is_some_and(is_place) {
        return Ok(());
    }
    let problem = format!("must be `{task}-S` and a place from 1, found `{}`", excerpt(id));
    fail(rules::SUBTASK_ID, field.to_owned(), problem)
}

fn check_task_result(result: &TaskResult, task: &AssignmentId, at: &str) -> CheckResult {
    use super::message::SubtaskCompletionStatus::Complete;
    check_subtask_id(&result.subtask_id, task, &format!("{at}subtask_id"))?;
    check_diff_summary(result, at)?;
    let assessment = &result.self_assessment;
    let field = format!("{at}self_assessment.criteria_met");
    check_list_length(assessment.criteria_met.len(), &field)?;
    if assessment.criteria_met.is_empty() {
        return fail(rules::SELF_ASSESSMENT, field, "must have an entry for each criterion, and there is always one");
    }
    let field = format!("{at}self_assessment.notes");
    check_list_length(assessment.notes.len(), &field)?;
    if assessment.notes.len() != assessment.criteria_met.len() {
        let (met, notes) = (assessment.criteria_met.len(), assessment.notes.len());
        let problem = format!("must have an entry for each of the {met} of `criteria_met`, found {notes}");
        return fail(rules::SELF_ASSESSMENT, field, problem);
    }
    assessment.notes.iter().enumerate().try_for_each(|(place, note)| check_text(note, &format!("{field}[{place}]")))?;
    let field = format!("{at}work_log");
    check_list_length(result.work_log.len(), &field)?;
    for (place, entry) in result.work_log.iter().enumerate() {
        check_timestamp(&entry.timestamp, format!("{field}[{place}].timestamp"))?;
        check_non_empty_text(&entry.action, &format!("{field}[{place}].action"))?;
        check_text(&entry.file, &format!("{field}[{place}].file"))?;
        check_text(&entry.detail, &format!("{field}[{place}].detail"))?;
    }
    if let Some(commit) = &result.commit_hash {
        let digits = commit.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if !digits || !(7..=64).contains(&commit.len()) {
            let problem = format!("must be 7 to 64 lowercase hexadecimal digits, found `{}`", excerpt(commit));
            return fail(rules::COMMIT_HASH, format!("{at}commit_hash"), problem);
        }
    }
    let field = format!("{at}blockers");
    match (result.completion_status, result.blockers.len()) {
        (Complete, 0) => Ok(()),
        (Complete, _) => fail(rules::BLOCKERS, field, "must not be there: the result is complete"),
        (_, 0) => fail(rules::BLOCKERS, field, "must say why the result is not complete"),
        (_, found) => {
            check_list_length(found, &field)?;
            let empty = result.blockers.iter().position(|blocker| blocker.trim().is_empty());
            if let Some(place) = empty {
                return fail(rules::BLOCKERS, format!("{field}[{place}]"), "must not be empty");
            }
            check_texts(&result.blockers, &field)
        }
    }
}

fn check_diff_summary(result: &TaskResult, at: &str) -> CheckResult {
    let diff = &result.diff_summary;
    let field = format!("{at}diff_summary.files_changed");
    check_list_length(diff.files_changed.len(), &field)?;
    let mut seen = HashSet::new();
    for (place, file) in diff.files_changed.iter().enumerate() {
        let field = format!("{field}[{place}]");
        check_non_empty_text(file, &field)?;
        if !seen.insert(file) {
            return fail(rules::DIFF_SUMMARY, field, format!("must not stand twice: `{}`", excerpt(file)));
        }
    }
    if diff.files_changed.is_empty() && (diff.lines_added > 0 || diff.lines_removed > 0) {
        return fail(rules::DIFF_SUMMARY, field, "must not be empty: lines were changed");
    }
    Ok(())
}

/// A time that is kept as it is written.
fn check_timestamp(text: &str, field: String) -> CheckResult {
    if parse_timestamp(text).is_some() { Ok(()) } else { Err(timestamp_violation(text, field)) }
}

pub(super) fn timestamp_violation(found: &str, field: impl Into<String>) -> AmpViolation {
    let problem = "must be an RFC 3339 date-time with its offset, such as `2026-02-26T14:32:07+00:00`";
    AmpViolation::new(rules::TIMESTAMP, field, format!("{problem}, found `{}`", excerpt(found)))
}

fn check_reference(id: &MsgId, kind: Option<AmpMessageType>, task: &AssignmentId, field: String) -> CheckResult {
    if let Some(kind) = kind.filter(|kind| *kind != id.message_type()) {
        return fail(rules::REF_TYPE, field, format!("must be the id of a `{kind}`, found `{id}`"));
    }
    if id.task_id() != task {
        return fail(rules::REF_TASK, field, format!("must be about `{task}`, found `{id}`"));
    }
    Ok(())
}

fn check_review_request(request: &ReviewRequest, task: &AssignmentId, at: &str) -> CheckResult {
    let dispatch = format!("{at}original_dispatch_ref");
    check_reference(&request.original_dispatch_ref, Some(AmpMessageType::TaskDispatch), task, dispatch)?;
    check_reference(&request.task_result_ref, Some(AmpMessageType::TaskResult), task, format!("{at}task_result_ref"))?;
    check_non_empty_text(&request.diff_url, &format!("{at}diff_url"))?;
    let notes = request.coordinator_notes.as_deref();
    let field = format!("{at}coordinator_notes");
    notes.map_or(Ok(()), |notes| check_text(notes, &field))?;
    if request.reject_count >= LOCK_WARNING_THRESHOLD && !notes.is_some_and(|notes| notes.contains(LOCK_WARNING_TEXT)) {
        let problem = format!("must say \"{LOCK_WARNING_TEXT}\": `reject_count` is {}", request.reject_count);
        return fail(rules::LOCK_WARNING, field, problem);
    }
    for (check, value) in request.ci_status.iter().flatten() {
        let field = format!("{at}ci_status.{}", excerpt(check));
        let Some(word) = value.as_str() else {
            return fail(rules::FIELD_TYPE, field, "must be a string");
        };
        if word == "failed" {
            return fail(rules::CI_GATING, field, "must not be `failed`: it goes back to the executor unreviewed");
        }
        if check == "last_updated" {
            check_timestamp(word, field)?;
        } else {
            check_text(word, &field)?;
        }
    }
    check_list_length(request.ci_status.as_ref().map_or(0, serde_json::Map::len), &format!("{at}ci_status"))
}

fn check_review_verdict(verdict: &ReviewVerdict, at: &str) -> CheckResult {
    let approves = verdict.decision != ReviewDecision::Rejected;
    let field = format!("{at}criteria_results");
    if verdict.criteria_results.is_empty() {
        return fail(rules::CRITERIA_RESULTS, field, "must have an entry for each criterion, and there is always one");
    }
    check_list_length(verdict.criteria_results.len(), &field)?;
    for (place, result) in verdict.criteria_results.iter().enumerate() {
        check_non_empty_text(&result.criterion, &format!("{field}[{place}].criterion"))?;
        check_text(&result.evidence, &format!("{field}[{place}].evidence"))?;
        if approves && result.passed == Some(false) {
            let problem = "must not be false where the decision is not `rejected`";
            return fail(rules::APPROVED_CRITERIA, format!("{field}[{place}].passed"), problem);
        }
    }
    let field = format!("{at}issues");
    if !approves && verdict.issues.is_empty() {
        return fail(rules::ISSUES, field, "must say what is wrong: the decision is `rejected`");
    }
    check_list_length(verdict.issues.len(), &field)?;
    for (place, issue) in verdict.issues.iter().enumerate() {
        if approves && issue.severity != IssueSeverity::Minor {
            let problem = "must be `minor` where the decision is not `rejected`: the others block";
            return fail(rules::APPROVED_ISSUES, format!("{field}[{place}].severity"), problem);
        }
        check_text(&issue.file, &format!("{field}[{place}].file"))?;
        check_non_empty_text(&issue.description, &format!("{field}[{place}].description"))?;
        check_text(&issue.suggested_fix, &format!("{field}[{place}].suggested_fix"))?;
    }
    check_direct_fixes(
        &verdict.direct_fixes,
        verdict.decision == ReviewDecision::ApprovedWithFix,
        format!("{at}direct_fixes"),
    )?;
    verdict
        .architecture_notes
        .as_deref()
        .map_or(Ok(()), |notes| check_text(notes, &format!("{at}architecture_notes")))?;
    // NaN is in no range.
    if !(0.0..=1.0).contains(&verdict.confidence) {
        let problem = format!("must be from 0 to 1, found {}", verdict.confidence);
        return fail(rules::CONFIDENCE, format!("{at}confidence"), problem);
    }
    Ok(())
}

fn check_direct_fixes(fixes: &[DirectFix], wanted: bool, field: String) -> CheckResult {
    if wanted == fixes.is_empty() {
        let problem = if wanted {
            "must say what was mended: the decision is `approved_with_fix`"
        } else {
            "must not be there: the decision is not `approved_with_fix`"
        };
        return fail(rules::DIRECT_FIXES, field, problem);
    }
    check_list_length(fixes.len(), &field)?;
    for (place, fix) in fixes.iter().enumerate() {
        check_non_empty_text(&fix.file, &format!("{field}[{place}].file"))?;
        if fix.diff_lines > MAX_FIX_LINES {
            let problem = format!("must be under {}, found {}", MAX_FIX_LINES + 1, fix.diff_lines);
            return fail(rules::DIRECT_FIX_SCOPE, format!("{field}[{place}].diff_lines"), problem);
        }
    }
    Ok(())
}

fn check_escalation(escalation: &Escalation, task: &AssignmentId, at: &str) -> CheckResult {
    if escalation.triggered_by == AmpRole::Admin {
        return fail(rules::TRIGGERED_BY, format!("{at}triggered_by"), "must not be `admin`, who decides");
    }
    check_non_empty_text(&escalation.description, &format!("{at}description"))?;
    check_list_length(escalation.affected_msgs.len(), &format!("{at}affected_msgs"))?;
    let snapshot = &escalation.system_state_snapshot;
    check_non_empty_text(&snapshot.task_status, &format!("{at}system_state_snapshot.task_status"))?;
    if let Some(id) = &snapshot.last_successful_msg_id {
        check_reference(id, None, task, format!("{at}system_state_snapshot.last_successful_msg_id"))?;
    }
    check_texts(&escalation.suggested_actions, &format!("{at}suggested_actions"))?;
    let field = format!("{at}auto_suspended");
    match (escalation.severity, escalation.auto_suspended) {
        (EscalationSeverity::Critical, false) => {
            fail(rules::CRITICAL_SUSPENDS, field, "must be true: the severity is `critical`")
        }
        (EscalationSeverity::Warning, false) => {
            fail(rules::INFO_GOES_ON, field, "must be true: only with severity `info` do things go on")
        }
        _ => Ok(()),
    }
}

impl ReviewVerdict {
    /// Whether it breaks no rule as the answer to these criteria; says the first that it breaks. Fields are told as they
    /// stand in a payload that is a file of its own: `issues[0].file`.
    pub fn check(&self, criteria: &[String]) -> Result<(), AmpViolation> {
        check_review_verdict(self, "")?;
        self.match_criteria(criteria).map(|_| ())
    }

    /// The place in `criteria_results` of each criterion's entry. An entry whose text is a criterion's (white space apart)
    /// is about that one, wherever it stands; those in the reviewer's own words are about the criteria that are left, in
    /// their order. Breaks `criteria-results` where there are not as many entries as criteria.
    pub fn match_criteria(&self, criteria: &[String]) -> Result<Vec<usize>, AmpViolation> {
        let (wanted, found) = (criteria.len(), self.criteria_results.len());
        if wanted != found {
            let problem = format!("must have an entry for each of the {wanted} criteria, found {found}");
            return Err(AmpViolation::new(rules::CRITERIA_RESULTS, "criteria_results", problem));
        }
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let texts: Vec<String> = criteria.iter().map(|criterion| words(criterion)).collect();
        let mut left: Vec<(usize, String)> =
            self.criteria_results.iter().map(|result| words(&result.criterion)).enumerate().collect();
        let mut places: Vec<Option<usize>> = Vec::with_capacity(wanted);
        for criterion in &texts {
            let same = left.iter().position(|(_, text)| text == criterion);
            places.push(same.map(|at| left.remove(at).0));
        }
        if let Some((place, text)) = left.iter().find(|(_, text)| texts.contains(text)) {
            let problem = format!("must not be about a criterion that has an entry, found `{}`", excerpt(text));
            return Err(AmpViolation::new(
                rules::CRITERIA_RESULTS,
                format!("criteria_results[{place}].criterion"),
                problem,
            ));
        }
        let mut left = left.into_iter().map(|(place, _)| place);
        let places = places.into_iter().map(|place| place.or_else(|| left.next()));
        Ok(places.map(|place| place.expect("as many entries as criteria")).collect())
    }
}

impl Ack {
    /// Whether it breaks no rule; says the first that it breaks.
    pub fn check(&self) -> Result<(), AmpViolation> {
        let ways = self.ack_of.message_type().routes();
        if !ways.iter().any(|(_, to)| *to == self.by) {
            let problem =
                format!("must be one to whom a `{}` goes, found `{}`", self.ack_of.message_type(), self.by.as_str());
            return fail(rules::ACK_BY, "by".to_owned(), problem);
        }
        self.note.as_deref().map_or(Ok(()), |note| check_text(note, "note"))
    }
}
