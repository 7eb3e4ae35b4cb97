//! `longshore salvage list`: one line for each ref that keeps work.

use std::io::stdout;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use serde::Serialize;

use super::find::{self, SalvagedRef};
use crate::cli::args::SalvageListArgs;
use crate::cli::context::CommandContext;
use crate::cli::error::{CommandError, CommandErrorKind};
use crate::cli::{CommandResult, ExitStatus, print_stdout, terminal_columns};
use crate::delivery::Repo;
use crate::report::text::{display_width, format_duration, pad_to_width, sanitize, truncate_to_width};
use crate::verdict::Cause;

/// Maximum number of refs that git reads at once.
const MAX_CONCURRENT_GIT: usize = 4;

/// A line of `--json`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct SalvageRow {
    reference: String,
    swarm: String,
    stories: Vec<String>,
    attempt: u32,
    cause: Option<Cause>,
    commit: String,
    base: String,
    files: usize,
    insertions: u64,
    deletions: u64,
    /// RFC 3339, by the sandbox's clock.
    committed_at: Timestamp,
    subject: String,
    /// Branches with the commit.
    branches: Vec<String>,
}

pub(super) async fn list(args: &SalvageListArgs, here: &CommandContext) -> CommandResult {
    let repo = here.discover_repo().await?;
    let found = find::find_all(&repo, args.swarm.as_ref()).await?;
    let lines: Vec<Result<SalvageRow, CommandError>> =
        futures::stream::iter(&found).map(|work| load_row(&repo, work)).buffered(MAX_CONCURRENT_GIT).collect().await;
    let lines: Vec<SalvageRow> = lines.into_iter().collect::<Result<_, _>>()?;
    let mut text = String::new();
    if args.json {
        for line in &lines {
            text.push_str(
                &serde_json::to_string(line)
                    .map_err(|error| CommandError::from_error(CommandErrorKind::Machinery, &error))?,
            );
            text.push('\n');
        }
    } else if lines.is_empty() {
        text.push_str("no kept work\n");
    } else {
        text = render_table(&lines, Timestamp::now(), terminal_columns(&stdout()));
    }
    print_stdout(&text)?;
    Ok(ExitStatus::Success)
}

async fn load_row(repo: &Repo, work: &SalvagedRef) -> Result<SalvageRow, CommandError> {
    let base = work.base(repo).await?;
    let (stats, branches) =
        tokio::join!(repo.diff_stat(&base, &work.kept_ref.commit), repo.branches_containing(&work.kept_ref.commit));
    let stats = stats?;
    Ok(SalvageRow {
        reference: work.kept_ref.name.clone(),
        swarm: work.kept_ref.swarm.to_string(),
        stories: work.labels.clone(),
        attempt: work.kept_ref.attempt,
        cause: work.failure().map(|failure| failure.cause),
        commit: work.kept_ref.commit.to_string(),
        base: base.to_string(),
        files: stats.len(),
        insertions: stats.iter().filter_map(|stat| stat.added).sum(),
        deletions: stats.iter().filter_map(|stat| stat.removed).sum(),
        committed_at: Timestamp::from_second(work.kept_ref.committed_at).unwrap_or_default(),
        subject: sanitize(&work.kept_ref.subject),
        branches: branches?,
    })
}

/// Truncates the subject to fit the columns.
fn render_table(lines: &[SalvageRow], now: Timestamp, columns: usize) -> String {
    let head =
        ["SWARM", "STORY", "TRY", "CAUSE", "COMMIT", "FILES", "LINES", "AGE", "BRANCH", "SUBJECT"].map(str::to_owned);
    let mut rows = vec![head];
    for line in lines {
        rows.push([
            line.swarm.chars().take(8).collect(),
            line.stories.join(","),
            line.attempt.to_string(),
            line.cause.map_or("-", Cause::as_str).to_owned(),
            line.commit.chars().take(10).collect(),
            line.files.to_string(),
            format!("+{} -{}", line.insertions, line.deletions),
            format_age(line.committed_at, now),
            match line.branches.as_slice() {
                [] => "-".to_owned(),
                [only] => only.clone(),
                [first, rest @ ..] => format!("{first} +{}", rest.len()),
            },
            line.subject.clone(),
        ]);
    }
    let mut widths = [0; 9];
    for row in &rows {
        widths.iter_mut().zip(row).for_each(|(most, cell)| *most = display_width(cell).max(*most));
    }
    let room = columns.saturating_sub(widths.iter().sum::<usize>() + 2 * 9).max(12);
    let mut out = String::new();
    for row in &rows {
        for (cell, width) in row.iter().zip(widths) {
            out.push_str(&pad_to_width(cell, width + 2));
        }
        out.push_str(&truncate_to_width(&row[9], room));
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

/// Since when, in one unit. A sandbox's clock may be ahead.
fn format_age(then: Timestamp, now: Timestamp) -> String {
    let seconds = u64::try_from(now.duration_since(then).as_secs()).unwrap_or_default();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} m", seconds / 60),
        3600..172_800 => format_duration(Duration::from_secs(seconds)),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_one_line_per_ref() {
        let now: Timestamp = "2026-11-22T12:00:00Z".parse().expect("a time");
        let line = |story: &str, branches: &[&str]| SalvageRow {
            reference: "refs/longshore/salvage/x".to_owned(),
            swarm: "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d".to_owned(),
            stories: vec![story.to_owned()],
            attempt: 2,
            cause: Some(Cause::NoChanges),
            commit: "0123456789".repeat(4),
            base: "0".repeat(40),
            files: 3,
            insertions: 10,
            deletions: 2,
            committed_at: "2026-11-22T11:57:00Z".parse().expect("a time"),
            subject: "a subject that is longer than there is room for".to_owned(),
            branches: branches.iter().map(|name| (*name).to_owned()).collect(),
        };
        let text = render_table(&[line("US-001", &[]), line("slug/US-002", &["main", "x"])], now, 110);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("SWARM     STORY        TRY  CAUSE"), "{text}");
        assert!(
            lines[1].starts_with("a1b2c3d4  US-001       2    no_changes  0123456789  3      +10 -2  3 m"),
            "{text}"
        );
        assert!(lines[2].contains("main +1") && lines[2].ends_with('…') && display_width(lines[2]) <= 110, "{text}");
    }

    #[test]
    fn ages_are_shown_in_one_unit() {
        let now = Timestamp::from_second(1_000_000).expect("a time");
        let then = |ago: i64| format_age(Timestamp::from_second(1_000_000 - ago).expect("a time"), now);
        assert_eq!([then(-5), then(5), then(65), then(7200), then(200_000)], ["0 s", "5 s", "1 m", "2 h 00 m", "2 d"]);
    }
}
