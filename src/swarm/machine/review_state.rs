//! What the reviews of an assignment came to, and what its executor is told of them.

use super::diagnosis;
use crate::ids::CommitId;
use crate::protocol::amp::message::{Issue, ReviewVerdict};
use crate::swarm::index::AttemptIndex;
use crate::swarm::review_outcome::ReviewOutcome;

/// The same finding this often is a conflict.
const REPEATED_FINDING_LIMIT: usize = 3;

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ReviewState {
    pub(super) reject_count: u32,
    /// Reviews of the newest commit that gave no verdict.
    pub(super) invalid_reviews: u32,
    /// Reviews of the newest commit that failed because of the machinery.
    pub(super) machinery_failures: u32,
    pub(super) review_count: u32,
    /// The rejected commit, which the next attempt starts from.
    pub(super) rejected_tip: Option<CommitId>,
    pub(super) rejected_work: Option<RejectedWork>,
    /// Where the first of the attempts that build upon each other started.
    pub(super) first_base: Option<CommitId>,
    /// The normalized findings of each rejection.
    findings: Vec<Vec<String>>,
    rejected_trees: Vec<String>,
    /// The admin's guidance.
    pub(super) guidance: Vec<String>,
    /// A verdict that counts only if the admin approves it.
    pub(super) low_confidence_outcome: Option<ReviewOutcome>,
}

/// Rejected commits, which a ref keeps.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RejectedWork {
    pub(super) attempt: AttemptIndex,
    pub(super) reference: String,
}

impl ReviewState {
    /// Forgets rejections and failures; with `rollback`, the rejected commits, too.
    pub(super) fn reset_counts(&mut self, rollback: bool) {
        let before = std::mem::take(self);
        *self = Self {
            rejected_tip: before.rejected_tip.filter(|_| !rollback),
            first_base: before.first_base.filter(|_| !rollback),
            guidance: before.guidance,
            low_confidence_outcome: before.low_confidence_outcome,
            review_count: before.review_count,
            ..Self::default()
        };
    }

    /// The next attempt starts from the integration branch.
    pub(super) fn discard_tip(&mut self) {
        (self.rejected_work, self.rejected_tip, self.first_base) = (None, None, None);
    }

    /// Records a rejection's findings. Returns why they contradict earlier ones, if they do.
    pub(super) fn record_findings(&mut self, issues: &[Issue], tree: Option<&String>) -> Option<String> {
        let mut findings: Vec<String> = issues.iter().map(normalize_finding).collect();
        let mut conflict = None;
        for (finding, issue) in findings.iter().zip(issues) {
            let seen: Vec<bool> = self.findings.iter().map(|round| round.contains(finding)).collect();
            let times = seen.iter().filter(|seen| **seen).count() + 1;
            if times == REPEATED_FINDING_LIMIT {
                conflict = Some(format!(
                    "the same finding came {REPEATED_FINDING_LIMIT} times: {}: {}",
                    issue.file, issue.description
                ));
            } else if seen.last() == Some(&false) && seen.contains(&true) {
                conflict = Some(format!("a finding that was mended came back: {}: {}", issue.file, issue.description));
            }
        }
        if let Some(tree) = tree {
            if self.rejected_trees.contains(tree) {
                conflict.get_or_insert_with(|| "the work is again what was rejected before".to_owned());
            }
            self.rejected_trees.push(tree.clone());
        }
        findings.sort();
        findings.dedup();
        self.findings.push(findings);
        conflict
    }
}

/// An issue without what changes from one wording to the next: case, punctuation.
fn normalize_finding(issue: &Issue) -> String {
    let words = issue.description.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<String> = words.map(str::to_lowercase).collect();
    format!("{}: {}", issue.file, words.join(" "))
}

/// Begins the prompt of an executor that continues rejected work.
pub(super) const REWORK_PROMPT: &str =
    "The reviewer did not pass the work. It is where you begin; mend it, do not begin anew.\n";
/// Begins the prompt of an executor whose rejected work was put aside.
pub(super) const RESTART_PROMPT: &str = "The reviewer did not pass earlier work, and it was put aside. Begin anew.\n";

/// What the executor is told of a rejection.
pub(super) fn rejection_prompt(verdict: &ReviewVerdict) -> String {
    let mut text = String::from(REWORK_PROMPT);
    for issue in &verdict.issues {
        let severity = issue.severity.as_str();
        let line = issue.line.map(|line| format!(":{line}")).unwrap_or_default();
        text.push_str(&format!("- [{severity}] {}{line}: {}\n", issue.file, issue.description));
        if !issue.suggested_fix.is_empty() {
            text.push_str(&format!("  Suggested: {}\n", issue.suggested_fix));
        }
    }
    for result in verdict.criteria_results.iter().filter(|result| result.passed == Some(false)) {
        text.push_str(&format!("- not met: {}: {}\n", result.criterion, result.evidence));
    }
    diagnosis::truncate_chars(&text, diagnosis::MAX_PREVIOUS_FAILURE_CHARS)
}
