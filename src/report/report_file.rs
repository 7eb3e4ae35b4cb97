//! report.md and report.json in the swarm's folder: the summary to keep, to attach to a pull request, or to parse.
//!
//! Called by `cli/` when a swarm is over. Text from sandboxes is put where Markdown does not act on it.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::summary::{AdminWait, Summary, cause_label, describe_branch, status_label};
use super::text::{format_duration, sanitize};
use crate::protocol::acp::message::StoryStatus;
use crate::verdict::{Cause, MAX_HANG_SNAPSHOT_LINES};

/// Writes both files into `folder` and gives the path of report.md.
pub fn write_report(summary: &mut Summary, folder: &Path) -> io::Result<PathBuf> {
    let path = folder.join("report.md");
    summary.report = Some(path.display().to_string());
    let mut json = serde_json::to_vec_pretty(summary).map_err(io::Error::other)?;
    json.push(b'\n');
    std::fs::write(folder.join("report.json"), json)?;
    std::fs::write(&path, render_markdown(summary))?;
    Ok(path)
}

/// The report as Markdown.
pub fn render_markdown(summary: &Summary) -> String {
    let mut out = String::new();
    let elapsed = format_duration(Duration::from_millis(summary.elapsed_ms));
    // Writing to a string cannot fail.
    let _ = writeln!(out, "# Swarm {}\n\n{} in {elapsed}.\n", summary.swarm, summary.format_counts());
    let _ = writeln!(out, "| story | title | status | cause | tries | time | commit |");
    let _ = writeln!(out, "|---|---|---|---|---:|---:|---|");
    for row in &summary.stories {
        let time = row.duration_ms.map(|millis| format_duration(Duration::from_millis(millis))).unwrap_or_default();
        let cause = cause_label(row);
        let commit = row.commit.as_deref().map(|commit| format!("`{}`", &commit[..10])).unwrap_or_default();
        let _ = writeln!(
            out,
            "| {} | {} | {} | {cause} | {} | {time} | {commit} |",
            row.story,
            escape_cell(&row.title),
            status_label(row),
            row.attempts
        );
    }
    for wait in summary.admin_waits() {
        let AdminWait { stories, task, state } = wait;
        let (what, reason) = (state.kind.label(), escape_cell(&state.reason));
        let _ = writeln!(out, "\n**{stories}** waits for the admin: {what}: {reason} (`longshore admin show {task}`)");
    }
    let failed: Vec<_> = summary.stories.iter().filter(|row| row.status == StoryStatus::Failed).collect();
    if !failed.is_empty() {
        let _ = writeln!(out, "\n## What failed");
    }
    for row in failed {
        let evidence = row.evidence.clone().unwrap_or_default();
        let _ = writeln!(out, "\n### {}: {}\n", row.story, row.cause.map_or("failed", Cause::as_str));
        let mut block = vec![sanitize(&evidence.summary)];
        block.extend(evidence.command.iter().map(|command| format!("command: {}", sanitize(command))));
        block.extend(evidence.exit_code.iter().map(|code| format!("exit code: {code}")));
        block.extend(evidence.signal.iter().map(|signal| format!("signal: {signal}")));
        block.extend(evidence.oom_kills.iter().map(|kills| format!("killed by the kernel for memory: {kills}")));
        block.extend(evidence.paths.iter().map(|path| format!("path: {}", sanitize(path))));
        block.extend(evidence.tail.iter().map(|line| format!("| {}", sanitize(line))));
        for (name, lines) in [("process", &evidence.processes), ("pipe", &evidence.pipes)] {
            block.extend(lines.iter().take(MAX_HANG_SNAPSHOT_LINES).map(|line| format!("{name}: {}", sanitize(line))));
        }
        for line in block.iter().filter(|line| !line.is_empty()) {
            // Four spaces make it code, whatever is in it.
            let _ = writeln!(out, "    {line}");
        }
        if let Some((newest, earlier)) = row.salvaged.split_first() {
            let _ = writeln!(out, "\nIts work is kept in `{}`.", sanitize(newest));
            for reference in earlier {
                let _ = writeln!(out, "An earlier attempt's is kept in `{}`.", sanitize(reference));
            }
        }
        if let Some(log) = &row.log {
            let _ = writeln!(out, "\nLog: `{log}`");
        }
    }
    let _ = writeln!(out, "\n## Where things are\n");
    for branch in &summary.branches {
        let _ = writeln!(out, "- branch `{}`", describe_branch(branch));
    }
    for row in summary.stories.iter().filter(|row| row.status != StoryStatus::Failed) {
        for reference in &row.salvaged {
            let _ = writeln!(out, "- kept: {} in `{}`", row.story, sanitize(reference));
        }
    }
    for line in &summary.relaxations {
        let _ = writeln!(out, "- relaxed: {}", escape_cell(line));
    }
    for line in &summary.notes {
        let _ = writeln!(out, "- note: {}", escape_cell(line));
    }
    let _ = writeln!(out, "- state: `{}`", summary.state_file);
    out
}

/// Text that cannot break out of a table's cell or act as Markdown.
fn escape_cell(text: &str) -> String {
    let mut out = String::new();
    for c in sanitize(text).chars() {
        if matches!(c, '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' | '!') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_and_json_reports_are_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut summary = super::super::summary::tests::summary(folder.path());
        summary.stories[0].title = "evil | <b>cell</b>".to_owned();
        let path = write_report(&mut summary, folder.path()).expect("written");
        let text = std::fs::read_to_string(path).expect("there");
        assert!(text.contains("| US-001 | evil \\| \\<b\\>cell\\</b\\> | landed |"), "{text}");
        assert!(text.contains("    | FAIL it | breaks"), "{text}");
        assert!(text.contains("Its work is kept in `refs/longshore/salvage/x/US-002/1`."), "{text}");
        assert!(text.contains("An earlier attempt's is kept in `refs/longshore/salvage/x/US-002/0`."), "{text}");
        assert!(text.contains("- kept: US-001 in `refs/longshore/salvage/x/US-001/1`"), "{text}");
        let json = std::fs::read(folder.path().join("report.json")).expect("there");
        let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
        let schema = serde_json::to_value(schemars::schema_for!(Summary)).expect("JSON");
        assert!(jsonschema::validator_for(&schema).expect("a good schema").is_valid(&json), "{json}");
        assert_eq!(json["stories"][1]["cause"], "verification_failed");
    }
}
