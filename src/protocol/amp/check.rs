//! The rules of the five payloads, of the ack, and of a verdict beside the criteria that it is about.
//!
//! What has a wrong JSON type, or a word that is none, is refused by [`decode`](super::decode) before it comes here; here
//! stands what a value of the right type must be. `at` is where the payload stands: `payload.`, or nothing for a payload
//! that is a file of its own. Must not: look at files, git or the time; what needs these is its reader's to check.

use std::collections::HashSet;

use super::message::{
    Ack, Decision, DirectFix, Escalation, IssueSeverity, Kind, MsgId, Payload, ReviewRequest, ReviewVerdict, Role,
    Severity, TaskDispatch, TaskResult,
};
use super::rules::{self, LOCK_IS_NEAR, LOCK_IS_NEAR_FROM, MAX_ENTRIES, MAX_FIX_LINES, MAX_TEXT_CHARS, Violation};
use crate::ids::AssignmentId;
use crate::protocol::acp::decode::timestamp;
use crate::protocol::acp::fields::shown;

type Checked = Result<(), Violation>;

fn refuse(rule: &'static str, field: String, problem: impl Into<String>) -> Checked {
    Err(Violation::new(rule, field, problem))
}

pub(super) fn payload(payload: &Payload, task: &AssignmentId) -> Checked {
    let at = "payload.";
    match payload {
        Payload::Dispatch(dispatch) => task_dispatch(dispatch, task, at),
        Payload::Result(result) => task_result(result, task, at),
        Payload::Request(request) => review_request(request, task, at),
        Payload::Verdict(verdict) => review_verdict(verdict, at),
        Payload::Escalation(escalation) => self::escalation(escalation, task, at),
    }
}

/// A text of at most [`MAX_TEXT_CHARS`].
fn text(text: &str, field: &str) -> Checked {
    // There are never more characters than bytes.
    if text.len() > MAX_TEXT_CHARS && text.chars().count() > MAX_TEXT_CHARS {
        let problem = format!("must have at most {MAX_TEXT_CHARS} characters, found {}", text.chars().count());
        return refuse(rules::TEXT_LENGTH, field.to_owned(), problem);
    }
    Ok(())
}

/// The same, and not of white space alone.
fn said(said: &str, field: &str) -> Checked {
    if said.trim().is_empty() {
        return refuse(rules::TEXT_EMPTY, field.to_owned(), "must not be empty");
    }
    text(said, field)
}

pub(super) fn entries(found: usize, field: &str) -> Checked {
    if found > MAX_ENTRIES {
        let problem = format!("must have at most {MAX_ENTRIES} entries, found {found}");
        return refuse(rules::LIST_LENGTH, field.to_owned(), problem);
    }
    Ok(())
}

fn texts(list: &[String], field: &str) -> Checked {
    entries(list.len(), field)?;
    list.iter().enumerate().try_for_each(|(place, item)| said(item, &format!("{field}[{place}]")))
}

fn task_dispatch(dispatch: &TaskDispatch, task: &AssignmentId, at: &str) -> Checked {
    said(&dispatch.description, &format!("{at}description"))?;
    let repo = format!("{at}repo");
    text(&dispatch.repo, &repo)?;
    if !dispatch.repo.starts_with('/') || dispatch.repo.contains('\0') {
        let problem = format!("must be an absolute path, found `{}`", shown(&dispatch.repo));
        return refuse(rules::REPO_PATH, repo, problem);
    }
    branch(&dispatch.branch, format!("{at}branch"))?;
    subtasks(dispatch, task, at)?;
    let field = format!("{at}acceptance_criteria");
    if dispatch.acceptance_criteria.is_empty() {
        return refuse(rules::ACCEPTANCE_CRITERIA, field, "must not be empty");
    }
    entries(dispatch.acceptance_criteria.len(), &field)?;
    for (place, criterion) in dispatch.acceptance_criteria.iter().enumerate() {
        let field = format!("{field}[{place}]");
        if criterion.trim().is_empty() {
            return refuse(rules::ACCEPTANCE_CRITERIA, field, "must not be empty");
        }
        text(criterion, &field)?;
    }
    texts(&dispatch.forbidden_actions, &format!("{at}forbidden_actions"))
}

fn branch(branch: &str, field: String) -> Checked {
    let found = shown(branch);
    if matches!(branch.strip_prefix("refs/heads/").unwrap_or(branch), "main" | "master") {
        return refuse(rules::BRANCH_PROTECTED, field, format!("must not be `main` or `master`, found `{found}`"));
    }
    if !is_branch(branch) {
        return refuse(rules::BRANCH_NAME, field, format!("must be a name that git takes, found `{found}`"));
    }
    Ok(())
}

/// Whether git takes it as a branch's name (`git check-ref-format --branch`), of at most 244 bytes so that it can be a file.
fn is_branch(name: &str) -> bool {
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

fn subtasks(dispatch: &TaskDispatch, task: &AssignmentId, at: &str) -> Checked {
    let field = format!("{at}subtasks");
    if dispatch.subtasks.is_empty() {
        return refuse(rules::SUBTASKS_EMPTY, field, "must not be empty");
    }
    entries(dispatch.subtasks.len(), &field)?;
    let mut seen = HashSet::new();
    for (place, subtask) in dispatch.subtasks.iter().enumerate() {
        let id = format!("{field}[{place}].subtask_id");
        subtask_id(&subtask.subtask_id, task, &id)?;
        if !seen.insert(&subtask.subtask_id) {
            return refuse(rules::SUBTASK_TWICE, id, format!("must not stand twice: `{}`", subtask.subtask_id));
        }
        said(&subtask.description, &format!("{field}[{place}].description"))?;
    }
    Ok(())
}

fn subtask_id(id: &str, task: &AssignmentId, field: &str) -> Checked {
    let place = id.strip_prefix(task.as_str()).and_then(|rest| rest.strip_prefix("-S"));
    let is_place = |place: &str| {
        (1..=9).contains(&place.len()) && place.bytes().all(|b| b.is_ascii_digit()) && !place.starts_with('0')
    };
    if place.is_some_and(is_place) {
        return Ok(());
    }
    let problem = format!("must be `{task}-S` and a place from 1, found `{}`", shown(id));
    refuse(rules::SUBTASK_ID, field.to_owned(), problem)
}

fn task_result(result: &TaskResult, task: &AssignmentId, at: &str) -> Checked {
    use super::message::CompletionStatus::Complete;
    subtask_id(&result.subtask_id, task, &format!("{at}subtask_id"))?;
    diff_summary(result, at)?;
    let assessment = &result.self_assessment;
    let field = format!("{at}self_assessment.criteria_met");
    entries(assessment.criteria_met.len(), &field)?;
    if assessment.criteria_met.is_empty() {
        return refuse(rules::SELF_ASSESSMENT, field, "must have an entry for each criterion, and there is always one");
    }
    let field = format!("{at}self_assessment.notes");
    entries(assessment.notes.len(), &field)?;
    if assessment.notes.len() != assessment.criteria_met.len() {
        let (met, notes) = (assessment.criteria_met.len(), assessment.notes.len());
        let problem = format!("must have an entry for each of the {met} of `criteria_met`, found {notes}");
        return refuse(rules::SELF_ASSESSMENT, field, problem);
    }
    assessment.notes.iter().enumerate().try_for_each(|(place, note)| text(note, &format!("{field}[{place}]")))?;
    let field = format!("{at}work_log");
    entries(result.work_log.len(), &field)?;
    for (place, entry) in result.work_log.iter().enumerate() {
        moment(&entry.timestamp, format!("{field}[{place}].timestamp"))?;
        said(&entry.action, &format!("{field}[{place}].action"))?;
        text(&entry.file, &format!("{field}[{place}].file"))?;
        text(&entry.detail, &format!("{field}[{place}].detail"))?;
    }
    if let Some(commit) = &result.commit_hash {
        let digits = commit.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if !digits || !(7..=64).contains(&commit.len()) {
            let problem = format!("must be 7 to 64 lowercase hexadecimal digits, found `{}`", shown(commit));
            return refuse(rules::COMMIT_HASH, format!("{at}commit_hash"), problem);
        }
    }
    let field = format!("{at}blockers");
    match (result.completion_status, result.blockers.len()) {
        (Complete, 0) => Ok(()),
        (Complete, _) => refuse(rules::BLOCKERS, field, "must not be there: the result is complete"),
        (_, 0) => refuse(rules::BLOCKERS, field, "must say why the result is not complete"),
        (_, found) => {
            entries(found, &field)?;
            let empty = result.blockers.iter().position(|blocker| blocker.trim().is_empty());
            if let Some(place) = empty {
                return refuse(rules::BLOCKERS, format!("{field}[{place}]"), "must not be empty");
            }
            texts(&result.blockers, &field)
        }
    }
}

fn diff_summary(result: &TaskResult, at: &str) -> Checked {
    let diff = &result.diff_summary;
    let field = format!("{at}diff_summary.files_changed");
    entries(diff.files_changed.len(), &field)?;
    let mut seen = HashSet::new();
    for (place, file) in diff.files_changed.iter().enumerate() {
        let field = format!("{field}[{place}]");
        said(file, &field)?;
        if !seen.insert(file) {
            return refuse(rules::DIFF_SUMMARY, field, format!("must not stand twice: `{}`", shown(file)));
        }
    }
    if diff.files_changed.is_empty() && (diff.lines_added > 0 || diff.lines_removed > 0) {
        return refuse(rules::DIFF_SUMMARY, field, "must not be empty: lines were changed");
    }
    Ok(())
}

/// A time that is kept as it is written.
fn moment(text: &str, field: String) -> Checked {
    if timestamp(text).is_some() { Ok(()) } else { Err(no_timestamp(text, field)) }
}

pub(super) fn no_timestamp(found: &str, field: impl Into<String>) -> Violation {
    let problem = "must be an RFC 3339 date-time with its offset, such as `2026-02-26T14:32:07+00:00`";
    Violation::new(rules::TIMESTAMP, field, format!("{problem}, found `{}`", shown(found)))
}

fn reference(id: &MsgId, kind: Option<Kind>, task: &AssignmentId, field: String) -> Checked {
    if let Some(kind) = kind.filter(|kind| *kind != id.kind()) {
        return refuse(rules::REF_TYPE, field, format!("must be the id of a `{kind}`, found `{id}`"));
    }
    if id.task() != task {
        return refuse(rules::REF_TASK, field, format!("must be about `{task}`, found `{id}`"));
    }
    Ok(())
}

fn review_request(request: &ReviewRequest, task: &AssignmentId, at: &str) -> Checked {
    let dispatch = format!("{at}original_dispatch_ref");
    reference(&request.original_dispatch_ref, Some(Kind::TaskDispatch), task, dispatch)?;
    reference(&request.task_result_ref, Some(Kind::TaskResult), task, format!("{at}task_result_ref"))?;
    said(&request.diff_url, &format!("{at}diff_url"))?;
    let notes = request.coordinator_notes.as_deref();
    let field = format!("{at}coordinator_notes");
    notes.map_or(Ok(()), |notes| text(notes, &field))?;
    if request.reject_count >= LOCK_IS_NEAR_FROM && !notes.is_some_and(|notes| notes.contains(LOCK_IS_NEAR)) {
        let problem = format!("must say \"{LOCK_IS_NEAR}\": `reject_count` is {}", request.reject_count);
        return refuse(rules::LOCK_WARNING, field, problem);
    }
    for (check, value) in request.ci_status.iter().flatten() {
        let field = format!("{at}ci_status.{}", shown(check));
        let Some(word) = value.as_str() else {
            return refuse(rules::FIELD_TYPE, field, "must be a string");
        };
        if word == "failed" {
            return refuse(rules::CI_GATING, field, "must not be `failed`: it goes back to the executor unreviewed");
        }
        if check == "last_updated" {
            moment(word, field)?;
        } else {
            text(word, &field)?;
        }
    }
    entries(request.ci_status.as_ref().map_or(0, serde_json::Map::len), &format!("{at}ci_status"))
}

fn review_verdict(verdict: &ReviewVerdict, at: &str) -> Checked {
    let approves = verdict.decision != Decision::Rejected;
    let field = format!("{at}criteria_results");
    if verdict.criteria_results.is_empty() {
        return refuse(
            rules::CRITERIA_RESULTS,
            field,
            "must have an entry for each criterion, and there is always one",
        );
    }
    entries(verdict.criteria_results.len(), &field)?;
    for (place, result) in verdict.criteria_results.iter().enumerate() {
        said(&result.criterion, &format!("{field}[{place}].criterion"))?;
        text(&result.evidence, &format!("{field}[{place}].evidence"))?;
        if approves && result.passed == Some(false) {
            let problem = "must not be false where the decision is not `rejected`";
            return refuse(rules::APPROVED_CRITERIA, format!("{field}[{place}].passed"), problem);
        }
    }
    let field = format!("{at}issues");
    if !approves && verdict.issues.is_empty() {
        return refuse(rules::ISSUES, field, "must say what is wrong: the decision is `rejected`");
    }
    entries(verdict.issues.len(), &field)?;
    for (place, issue) in verdict.issues.iter().enumerate() {
        if approves && issue.severity != IssueSeverity::Minor {
            let problem = "must be `minor` where the decision is not `rejected`: the others block";
            return refuse(rules::APPROVED_ISSUES, format!("{field}[{place}].severity"), problem);
        }
        text(&issue.file, &format!("{field}[{place}].file"))?;
        said(&issue.description, &format!("{field}[{place}].description"))?;
        text(&issue.suggested_fix, &format!("{field}[{place}].suggested_fix"))?;
    }
    direct_fixes(&verdict.direct_fixes, verdict.decision == Decision::ApprovedWithFix, format!("{at}direct_fixes"))?;
    verdict.architecture_notes.as_deref().map_or(Ok(()), |notes| text(notes, &format!("{at}architecture_notes")))?;
    // NaN is in no range.
    if !(0.0..=1.0).contains(&verdict.confidence) {
        let problem = format!("must be from 0 to 1, found {}", verdict.confidence);
        return refuse(rules::CONFIDENCE, format!("{at}confidence"), problem);
    }
    Ok(())
}

fn direct_fixes(fixes: &[DirectFix], wanted: bool, field: String) -> Checked {
    if wanted == fixes.is_empty() {
        let problem = if wanted {
            "must say what was mended: the decision is `approved_with_fix`"
        } else {
            "must not be there: the decision is not `approved_with_fix`"
        };
        return refuse(rules::DIRECT_FIXES, field, problem);
    }
    entries(fixes.len(), &field)?;
    for (place, fix) in fixes.iter().enumerate() {
        said(&fix.file, &format!("{field}[{place}].file"))?;
        if fix.diff_lines > MAX_FIX_LINES {
            let problem = format!("must be under {}, found {}", MAX_FIX_LINES + 1, fix.diff_lines);
            return refuse(rules::DIRECT_FIX_SCOPE, format!("{field}[{place}].diff_lines"), problem);
        }
    }
    Ok(())
}

fn escalation(escalation: &Escalation, task: &AssignmentId, at: &str) -> Checked {
    if escalation.triggered_by == Role::Admin {
        return refuse(rules::TRIGGERED_BY, format!("{at}triggered_by"), "must not be `admin`, who decides");
    }
    said(&escalation.description, &format!("{at}description"))?;
    entries(escalation.affected_msgs.len(), &format!("{at}affected_msgs"))?;
    let snapshot = &escalation.system_state_snapshot;
    said(&snapshot.task_status, &format!("{at}system_state_snapshot.task_status"))?;
    if let Some(id) = &snapshot.last_successful_msg_id {
        reference(id, None, task, format!("{at}system_state_snapshot.last_successful_msg_id"))?;
    }
    texts(&escalation.suggested_actions, &format!("{at}suggested_actions"))?;
    let field = format!("{at}auto_suspended");
    match (escalation.severity, escalation.auto_suspended) {
        (Severity::Critical, false) => {
            refuse(rules::CRITICAL_SUSPENDS, field, "must be true: the severity is `critical`")
        }
        (Severity::Warning, false) => {
            refuse(rules::INFO_GOES_ON, field, "must be true: only with severity `info` do things go on")
        }
        _ => Ok(()),
    }
}

impl ReviewVerdict {
    /// Whether it breaks no rule as the answer to these criteria; says the first that it breaks. Fields are told as they
    /// stand in a payload that is a file of its own: `issues[0].file`.
    pub fn check(&self, criteria: &[String]) -> Result<(), Violation> {
        review_verdict(self, "")?;
        self.by_criterion(criteria).map(|_| ())
    }

    /// The place in `criteria_results` of each criterion's entry. An entry whose text is a criterion's (white space apart)
    /// is about that one, wherever it stands; those in the reviewer's own words are about the criteria that are left, in
    /// their order. Breaks `criteria-results` where there are not as many entries as criteria.
    pub fn by_criterion(&self, criteria: &[String]) -> Result<Vec<usize>, Violation> {
        let (wanted, found) = (criteria.len(), self.criteria_results.len());
        if wanted != found {
            let problem = format!("must have an entry for each of the {wanted} criteria, found {found}");
            return Err(Violation::new(rules::CRITERIA_RESULTS, "criteria_results", problem));
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
            let problem = format!("must not be about a criterion that has an entry, found `{}`", shown(text));
            return Err(Violation::new(
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
    pub fn check(&self) -> Result<(), Violation> {
        let ways = self.ack_of.kind().ways();
        if !ways.iter().any(|(_, to)| *to == self.by) {
            let problem = format!("must be one to whom a `{}` goes, found `{}`", self.ack_of.kind(), self.by.word());
            return refuse(rules::ACK_BY, "by".to_owned(), problem);
        }
        self.note.as_deref().map_or(Ok(()), |note| text(note, "note"))
    }
}
