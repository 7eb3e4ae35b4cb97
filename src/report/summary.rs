//! The summary of a finished swarm: a table of the stories, the causes of failures, and the paths of all results.
//!
//! Made from `swarm-state.json`, so that `longshore run` and a later `longshore status` agree. Printed by
//! `cli/`; `report_file.rs` writes it as report.md and report.json.

use std::fmt::Write;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use super::text::{display_width, format_duration, pad_to_width, pluralize, sanitize, truncate_to_width};
use crate::ids::{StoryId, StoryKey};
use crate::protocol::acp::message::StoryStatus;
use crate::state::{StoryState, SwarmDir, SwarmState, SwarmStatus, WaitState};
use crate::swarm::SwarmSpec;
use crate::verdict::{Cause, Evidence, Failure, MAX_HANG_SNAPSHOT_LINES};

/// How many of a failed story's last lines are shown.
const MAX_TAIL_LINES: usize = 12;

/// The summary of a swarm, also written as report.json.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Version of report.json.
    pub schema_version: u32,
    /// The swarm's id.
    pub swarm: String,
    /// The swarm's status.
    pub status: SwarmStatus,
    /// From the first event to the last.
    pub elapsed_ms: u64,
    /// The stories, in the plan's order.
    pub stories: Vec<StorySummary>,
    /// How the checks failed before anything was changed, if that ended the swarm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_failure: Option<Failure>,
    /// The integration branches.
    pub branches: Vec<BranchSummary>,
    /// What makes the sandboxes less closed than the defaults: "network bridge (--network)".
    pub relaxations: Vec<String>,
    /// Warnings that are not a story's failure.
    pub notes: Vec<String>,
    /// Path of the swarm's folder.
    pub folder: String,
    /// Path of swarm-state.json.
    pub state_file: String,
    /// Path of report.md, if it was written.
    pub report: Option<String>,
}

/// One row of the table of stories.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorySummary {
    /// Its label: unique in the swarm.
    pub story: String,
    /// Its title.
    pub title: String,
    /// ACP's story status; `completed` means landed.
    pub status: StoryStatus,
    /// Whether it was done before the swarm began.
    pub done_before: bool,
    /// Number of attempts.
    pub attempts: u32,
    /// Time in the sandbox that finished it, or from its first start to the verdict if no sandbox did.
    pub duration_ms: Option<u64>,
    /// Its commit.
    pub commit: Option<String>,
    /// Why it did not land.
    pub cause: Option<Cause>,
    /// The evidence for the cause.
    pub evidence: Option<Evidence>,
    /// The admin decision that it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<WaitState>,
    /// How often its task was rejected in a review.
    pub rejects: u32,
    /// The failed story that it depends on, if that is why it was skipped.
    pub because: Option<String>,
    /// The salvage ref of its last failure.
    pub salvage: Option<String>,
    /// The salvage refs of work that did not land, newest first.
    pub salvaged: Vec<String>,
    /// Its assignment.
    pub assignment: Option<String>,
    /// Path of its log.
    pub log: Option<String>,
}

/// An integration branch.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BranchSummary {
    /// Its name.
    pub name: String,
    /// Its head when the swarm began.
    pub base: String,
    /// Its current head, if the branch exists.
    pub head: Option<String>,
}

/// Time from a story's first start to the verdict, over all attempts; `None` if it did not start.
fn time_to_verdict_ms(story: &StoryState) -> Option<u64> {
    let elapsed = story.ended_at?.duration_since(story.started_at?);
    u64::try_from(elapsed.as_millis()).ok()
}

/// Newest first. Older state files have only the last ref.
fn salvage_refs_newest_first(story: &StoryState) -> Vec<String> {
    let last = story.salvage.iter().filter(|last| !story.salvaged.contains(last));
    last.chain(story.salvaged.iter().rev()).cloned().collect()
}

impl Summary {
    /// Builds the summary from a swarm's state. The caller fills in the heads of the branches, `relaxations` and `notes`.
    pub fn from_state(state: &SwarmState, spec: &SwarmSpec, dir: &SwarmDir) -> Self {
        let label = |path: &str, id: &StoryId| match spec.files.iter().position(|file| file.path == path) {
            Some(file) => spec.story_ref(&StoryKey { file: file as u16, id: id.clone() }).label,
            None => id.to_string(),
        };
        let row = |story: &StoryState| StorySummary {
            story: label(&story.tasks_file, &story.id),
            title: sanitize(&story.title),
            status: story.status,
            done_before: story.done_before,
            attempts: story.attempts,
            duration_ms: story.duration_ms.or_else(|| time_to_verdict_ms(story)),
            commit: story.commit.as_ref().map(ToString::to_string),
            cause: story.cause,
            evidence: story.evidence.clone(),
            waits_for: story.waits_for.clone(),
            rejects: story.rejects,
            because: story.because.as_ref().map(|id| label(&story.tasks_file, id)),
            salvage: story.salvage.clone(),
            salvaged: salvage_refs_newest_first(story),
            assignment: story.assignment.as_ref().map(ToString::to_string),
            log: story.assignment.as_ref().map(|id| dir.log_file(id).display().to_string()),
        };
        let mut branches: Vec<BranchSummary> = Vec::new();
        for file in &spec.files {
            if !branches.iter().any(|branch| branch.name == file.branch.as_str()) {
                branches.push(BranchSummary { name: file.branch.to_string(), base: file.base.to_string(), head: None });
            }
        }
        let notes = state
            .containers
            .iter()
            .filter_map(|container| {
                let folder = container.work_kept.as_ref()?;
                let assignment = &container.assignment;
                let what = match container.salvaged.is_empty() {
                    true => format!("the work of {assignment} could not be salvaged"),
                    false => format!("not all of the work of {assignment} could be salvaged"),
                };
                Some(format!("{what}: folder {folder} of the work volume is kept"))
            })
            .collect();
        let elapsed = state.updated_at.duration_since(state.created_at);
        Self {
            schema_version: 1,
            swarm: state.swarm_id.to_string(),
            status: state.status,
            elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or_default(),
            stories: state.stories.iter().map(row).collect(),
            base_failure: state.base_failure.clone(),
            branches,
            relaxations: Vec::new(),
            notes,
            folder: dir.path().display().to_string(),
            state_file: dir.state_file().display().to_string(),
            report: None,
        }
    }

    /// Counts the stories with this status, including those done before.
    pub fn count_with_status(&self, status: StoryStatus) -> usize {
        self.stories.iter().filter(|row| row.status == status).count()
    }

    /// The counts in one line: `3 landed, 1 failed, 2 skipped`.
    pub fn format_counts(&self) -> String {
        let words = [
            (StoryStatus::Completed, "landed"),
            (StoryStatus::Failed, "failed"),
            (StoryStatus::Skipped, "skipped"),
            (StoryStatus::InProgress, "in progress"),
            (StoryStatus::Pending, "pending"),
        ];
        let before = self.stories.iter().filter(|row| row.done_before).count();
        let mut parts: Vec<String> = Vec::new();
        for (status, word) in words {
            let number = self.stories.iter().filter(|row| row.status == status && !row.done_before).count();
            if number > 0 || status == StoryStatus::Completed {
                parts.push(format!("{number} {word}"));
            }
        }
        if before > 0 {
            parts.push(format!("{before} done before"));
        }
        parts.join(", ")
    }

    /// Renders the table, the causes and the paths for a terminal of `columns` columns.
    pub fn render(&self, columns: usize, colour: bool) -> String {
        let mut out = render_table(&self.stories, columns, colour);
        if let Some(failure) = &self.base_failure {
            // Writing to a string cannot fail.
            let _ =
                writeln!(out, "\nthe checks fail before anything was changed: {}", sanitize(&failure.evidence.summary));
            out.push_str(&render_evidence(&failure.evidence));
            out.push_str("  mend the branch, or go on all the same with `--red-base`\n");
        }
        for row in self.stories.iter().filter(|row| row.status == StoryStatus::Failed) {
            out.push('\n');
            out.push_str(&render_failure(row, colour));
        }
        out.push_str(&self.render_waits(colour));
        out.push('\n');
        let mut evidence_line = |name: &str, value: &str| {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{} {value}", pad_to_width(name, 9));
        };
        let elapsed = format_duration(Duration::from_millis(self.elapsed_ms));
        evidence_line("stories", &format!("{} in {elapsed}", self.format_counts()));
        for branch in &self.branches {
            evidence_line("branch", &describe_branch(branch));
        }
        for row in self.stories.iter().filter(|row| row.status != StoryStatus::Failed) {
            for reference in &row.salvaged {
                evidence_line("kept", &format!("{} in {}", row.story, sanitize(reference)));
            }
        }
        for relaxation in &self.relaxations {
            evidence_line("relaxed", relaxation);
        }
        for note in &self.notes {
            evidence_line("note", note);
        }
        evidence_line("state", &self.state_file);
        if let Some(report) = &self.report {
            evidence_line("report", report);
        }
        out
    }
}

/// A task that waits for the admin.
pub(super) struct AdminWait<'a> {
    /// The labels of its waiting stories, separated by commas.
    pub(super) stories: String,
    pub(super) task: &'a str,
    pub(super) state: &'a WaitState,
}

impl Summary {
    /// The tasks that wait for the admin.
    pub(super) fn admin_waits(&self) -> Vec<AdminWait<'_>> {
        let mut waits: Vec<AdminWait<'_>> = Vec::new();
        for row in &self.stories {
            let (Some(state), Some(task)) = (&row.waits_for, &row.assignment) else { continue };
            match waits.iter_mut().find(|wait| wait.task == task) {
                Some(wait) => wait.stories = format!("{}, {}", wait.stories, row.story),
                None => waits.push(AdminWait { stories: row.story.clone(), task, state }),
            }
        }
        waits
    }

    /// Renders the tasks that wait for the admin and the command to decide each.
    fn render_waits(&self, colour: bool) -> String {
        let (bold, plain) = if colour { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        let mut out = String::new();
        for AdminWait { stories, task, state } in self.admin_waits() {
            let (what, reason) = (state.kind.label(), sanitize(&state.reason));
            // Writing to a string cannot fail.
            let _ = writeln!(out, "\n{bold}{stories}{plain} waits for the admin: {what}: {reason}");
            let _ = writeln!(out, "  {} longshore admin show {task}", pad_to_width("decide", 9));
        }
        out
    }
}

/// `feat/x at 3f2a1b4c5d (was 1111111111)`.
pub fn describe_branch(branch: &BranchSummary) -> String {
    let short = |commit: &str| commit.chars().take(10).collect::<String>();
    match &branch.head {
        Some(head) if *head == branch.base => format!("{} at {} (unchanged)", branch.name, short(head)),
        Some(head) => format!("{} at {} (was {})", branch.name, short(head), short(&branch.base)),
        None => format!("{} was not made, because nothing landed", branch.name),
    }
}

/// `landed`, `failed`, ...
pub fn status_label(row: &StorySummary) -> &'static str {
    match row.status {
        StoryStatus::Completed if row.done_before => "done before",
        StoryStatus::Skipped if row.done_before => "done before",
        StoryStatus::Completed => "landed",
        StoryStatus::Failed => "failed",
        StoryStatus::Skipped => "skipped",
        StoryStatus::InProgress => "running",
        StoryStatus::Pending => "pending",
    }
}

/// Renders the table of stories. Only the title is truncated to fit `columns`.
pub fn render_table(rows: &[StorySummary], columns: usize, colour: bool) -> String {
    let head = ["STORY", "TITLE", "STATUS", "CAUSE", "TRIES", "TIME", "COMMIT", "LOG"].map(str::to_owned);
    let mut cells: Vec<[String; 8]> = vec![head];
    for row in rows {
        cells.push([
            row.story.clone(),
            row.title.clone(),
            status_label(row).to_owned(),
            cause_label(row),
            row.attempts.to_string(),
            row.duration_ms.map(|millis| format_duration(Duration::from_millis(millis))).unwrap_or_default(),
            row.commit.as_deref().map(|commit| commit.chars().take(10).collect()).unwrap_or_default(),
            row.log
                .as_deref()
                .and_then(|log| log.rsplit('/').next())
                .map(|name| format!("logs/{name}"))
                .unwrap_or_default(),
        ]);
    }
    let mut widths = [0usize; 8];
    for line in &cells {
        for (column, cell) in line.iter().enumerate() {
            widths[column] = widths[column].max(display_width(cell));
        }
    }
    let others: usize = widths.iter().sum::<usize>() - widths[1] + 2 * 7;
    widths[1] = widths[1].min(columns.saturating_sub(others).max(12));
    let mut out = String::new();
    for (number, line) in cells.iter().enumerate() {
        let mut text = String::new();
        for (column, cell) in line.iter().enumerate() {
            let fitted = truncate_to_width(cell, widths[column]);
            let padded = if column == 7 { fitted } else { pad_to_width(&fitted, widths[column] + 2) };
            let code = match (number, column) {
                (0, _) => "1",
                (_, 2) => rows.get(number - 1).map_or("0", |row| status_colour(row.status)),
                _ => "",
            };
            if colour && !code.is_empty() {
                let _ = write!(text, "\x1b[{code}m{padded}\x1b[0m");
            } else {
                text.push_str(&padded);
            }
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

fn status_colour(status: StoryStatus) -> &'static str {
    match status {
        StoryStatus::Completed => "32",
        StoryStatus::Failed => "31",
        StoryStatus::Skipped => "33",
        StoryStatus::InProgress => "36",
        StoryStatus::Pending => "2",
    }
}

pub(super) fn cause_label(row: &StorySummary) -> String {
    match (&row.cause, &row.because) {
        _ if row.waits_for.is_some() => {
            let what = row.waits_for.as_ref().map_or("", |wait| wait.kind.label());
            format!("waits for the admin: {what}")
        }
        (_, Some(because)) => format!("{because} did not land"),
        // Earlier failures of a story that landed are not shown.
        (Some(cause), None) if row.status != StoryStatus::Completed => cause.as_str().to_owned(),
        _ => String::new(),
    }
}

/// Renders a story's failure with its evidence.
fn render_failure(row: &StorySummary, colour: bool) -> String {
    let cause = row.cause.map_or("failed", Cause::as_str);
    let evidence = row.evidence.clone().unwrap_or_default();
    let (bold, plain) = if colour { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    let mut out = format!("{bold}{}{plain} {cause}", row.story);
    let summary = sanitize(&evidence.summary);
    if !summary.is_empty() {
        let _ = write!(out, ": {summary}");
    }
    out.push('\n');
    out.push_str(&render_evidence(&evidence));
    let mut evidence_line = |name: &str, value: String| {
        let _ = writeln!(out, "  {} {value}", pad_to_width(name, 9));
    };
    for (number, reference) in row.salvaged.iter().enumerate() {
        evidence_line(if number == 0 { "kept in" } else { "and in" }, sanitize(reference));
    }
    if let Some(log) = &row.log {
        evidence_line("log", log.clone());
    }
    out
}

/// Renders the evidence other than its summary, one indented line per item.
pub fn render_evidence(evidence: &Evidence) -> String {
    let mut out = String::new();
    let mut evidence_line = |name: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  {} {value}", pad_to_width(name, 9));
    };
    if let Some(command) = &evidence.command {
        evidence_line("command", sanitize(command));
    }
    if let Some(code) = evidence.exit_code {
        evidence_line("exit code", code.to_string());
    }
    if let Some(signal) = evidence.signal {
        evidence_line("signal", signal.to_string());
    }
    if let Some(kills) = evidence.oom_kills {
        evidence_line("memory", format!("{} by the kernel", pluralize(kills as usize, "kill", "kills")));
    }
    if !evidence.paths.is_empty() {
        evidence_line("paths", evidence.paths.iter().map(|path| sanitize(path)).collect::<Vec<_>>().join(", "));
    }
    let skipped = evidence.tail.len().saturating_sub(MAX_TAIL_LINES);
    for (number, line) in evidence.tail.iter().skip(skipped).enumerate() {
        evidence_line(if number == 0 { "said" } else { "" }, format!("| {}", sanitize(line)));
    }
    for (name, lines) in [("processes", &evidence.processes), ("pipes", &evidence.pipes)] {
        for (number, line) in lines.iter().take(MAX_HANG_SNAPSHOT_LINES).enumerate() {
            evidence_line(if number == 0 { name } else { "" }, format!("| {}", sanitize(line)));
        }
    }
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::report::story_labels::tests::spec;

    /// A swarm of two stories: one landed, one failed its verification.
    pub(crate) fn summary(folder: &std::path::Path) -> Summary {
        let spec = spec(1);
        let dir = SwarmDir::create(folder, spec.swarm).expect("a folder");
        let story = |id: &str, status: &str, extra: serde_json::Value| {
            let mut story = serde_json::json!({
                "id": id, "status": status, "attempts": 1, "branch": "longshore/x", "commit": null, "cause": null,
                "evidence": null, "salvage": null, "because": null, "assignment": "T-2026-001",
                "title": "Add the\u{1b}[31m parser, which is quite a long title for a table that is narrow",
                "tasksFile": "tasks/f0.json", "doneBefore": false, "startedAt": null, "endedAt": null, "durationMs": null
            });
            for (key, value) in extra.as_object().expect("an object") {
                story[key] = value.clone();
            }
            story
        };
        let evidence = serde_json::json!({
            "summary": "the verify command exited 2", "command": "make test", "exitCode": 2,
            "tail": ["running", "\u{1b}[31mFAIL\u{1b}[0m it | breaks"]
        });
        let salvage = "refs/longshore/salvage/x/US-002/1";
        let salvaged = ["refs/longshore/salvage/x/US-002/0", salvage];
        let failed = serde_json::json!({"cause": "verification_failed", "evidence": evidence, "salvage": salvage,
            "salvaged": salvaged,
            "startedAt": "2026-11-21T12:00:01Z", "endedAt": "2026-11-21T12:00:04.5Z"});
        let state = serde_json::json!({
            "schemaVersion": 1, "swarmId": spec.swarm, "createdAt": "2026-11-21T12:00:00Z",
            "updatedAt": "2026-11-21T12:01:05Z", "status": "some_failed", "containers": [], "checksum": "",
            "stories": [
                story("US-001", "completed", serde_json::json!({"commit": "3f2a1b4c5d".repeat(4), "durationMs": 2140,
                    "salvaged": ["refs/longshore/salvage/x/US-001/1"]})),
                story("US-002", "failed", failed),
            ]
        });
        Summary::from_state(&serde_json::from_value(state).expect("a state"), &spec, &dir)
    }

    #[test]
    fn the_table_fits_the_width_and_lists_every_story() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = summary(folder.path()).render(100, false);
        let mut lines = text.lines();
        assert!(lines.next().expect("a head").starts_with("STORY   TITLE"), "{text}");
        let landed = lines.next().expect("a row");
        assert!(landed.contains("landed") && landed.contains("2.1 s") && landed.contains("3f2a1b4c5d"), "{text}");
        assert!(landed.contains("…") && display_width(landed) <= 100, "{text}");
        let failed = lines.next().expect("a row");
        assert!(failed.contains("verification_failed") && failed.contains("3.5 s"), "{text}");
        for wanted in [
            "US-002 verification_failed: the verify command exited 2",
            "  command   make test",
            "  exit code 2",
            "            | FAIL it | breaks",
            "  kept in   refs/longshore/salvage/x/US-002/1",
            "  and in    refs/longshore/salvage/x/US-002/0",
            "kept      US-001 in refs/longshore/salvage/x/US-001/1",
            "stories   1 landed, 1 failed in 1 m 05 s",
            "branch    feat/f0 was not made, because nothing landed",
        ] {
            assert!(text.lines().any(|line| line == wanted), "{wanted}\n{text}");
        }
        assert!(!text.contains('\u{1b}'));
    }

    #[test]
    fn colour_does_not_change_the_text() {
        let folder = tempfile::tempdir().expect("a folder");
        let summary = summary(folder.path());
        let coloured = summary.render(120, true);
        assert!(coloured.contains("\x1b[31m"));
        let bare: Vec<String> = coloured.lines().map(|line| sanitize(line).trim_end().to_owned()).collect();
        let plain: Vec<String> =
            summary.render(120, false).lines().map(|line| sanitize(line).trim_end().to_owned()).collect();
        assert_eq!(bare, plain);
    }

    #[test]
    fn branch_heads_are_described() {
        let branch = |head: Option<&str>| BranchSummary {
            name: "feat/x".to_owned(),
            base: "1".repeat(40),
            head: head.map(|digit| digit.repeat(40)),
        };
        assert_eq!(describe_branch(&branch(Some("2"))), "feat/x at 2222222222 (was 1111111111)");
        assert_eq!(describe_branch(&branch(Some("1"))), "feat/x at 1111111111 (unchanged)");
    }
}
