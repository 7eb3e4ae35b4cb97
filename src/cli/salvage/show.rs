//! `longshore salvage show`: why the work did not land, what is in it, and where it is.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write, stdout};

use super::find::{self, SalvagedRef};
use crate::cli::args::SalvageShowArgs;
use crate::cli::context::CommandContext;
use crate::cli::error::CommandError;
use crate::cli::{CommandResult, ExitStatus, print_stdout};
use crate::delivery::{FileStat, Repo};
use crate::ids::CommitId;
use crate::report::summary::render_evidence;
use crate::report::text::{display_width, pad_to_width, pluralize, sanitize};
use crate::state::SwarmDir;

pub(super) async fn show(args: &SalvageShowArgs, here: &CommandContext) -> CommandResult {
    let repo = here.discover_repo().await?;
    let work = find::find_one(&repo, &args.work).await?;
    let base = work.base(&repo).await?;
    if args.patch {
        return print_patch(&repo, &base, &work.kept_ref.commit).await;
    }
    let mut text = render_heading(&repo, &work, &base).await?;
    text.push_str("commits\n");
    for commit in repo.commits_between(&base, &work.kept_ref.commit).await?.iter().rev() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {} {}", commit.id.short(), sanitize(&commit.subject));
    }
    text.push_str(&render_files(&repo.diff_stat(&base, &work.kept_ref.commit).await?));
    print_stdout(&text)?;
    Ok(ExitStatus::Success)
}

async fn render_heading(repo: &Repo, work: &SalvagedRef, base: &CommitId) -> Result<String, CommandError> {
    let mut text = format!("{}\n", work.kept_ref.name);
    let mut fact = |name: &str, value: &str| {
        let _ = writeln!(text, "{} {value}", pad_to_width(name, 9));
    };
    fact("story", sanitize(&format!("{}  {}", work.story_labels(), work.titles.join("; "))).trim_end());
    fact("attempt", &format!("{} in swarm {}", work.kept_ref.attempt, work.kept_ref.swarm));
    fact("commit", work.kept_ref.commit.as_str());
    fact("base", base.as_str());
    let branches = repo.branches_containing(&work.kept_ref.commit).await?;
    fact("branches", &if branches.is_empty() { "none has it".to_owned() } else { branches.join(", ") });
    if let (Some(known), Ok(dir)) = (&work.journal_entry, SwarmDir::open(repo.root(), work.kept_ref.swarm)) {
        let log = dir.log_file(&known.attempt.assignment);
        if log.exists() {
            fact("log", &log.display().to_string());
        }
    }
    let failures = work
        .journal_entry
        .iter()
        .flat_map(|known| &known.stories)
        .filter_map(|(key, failure)| failure.as_ref().map(|failure| (key, failure)));
    let mut has_cause = false;
    for (key, failure) in failures {
        has_cause = true;
        let _ = writeln!(
            text,
            "{} {}: {}",
            pad_to_width("cause", 9),
            failure.cause.as_str(),
            sanitize(&failure.evidence.summary)
        );
        if work.labels.len() > 1 {
            let _ = writeln!(text, "  {} {}", pad_to_width("of", 9), key.id);
        }
        text.push_str(&render_evidence(&failure.evidence));
    }
    if !has_cause {
        let _ = writeln!(text, "{} not in the record of the swarm", pad_to_width("cause", 9));
    }
    Ok(text)
}

fn render_files(stats: &[FileStat]) -> String {
    let sum = |get: fn(&FileStat) -> Option<u64>| stats.iter().filter_map(get).sum::<u64>();
    let mut out = format!(
        "{}, +{} -{}\n",
        pluralize(stats.len(), "file", "files"),
        sum(|stat| stat.added),
        sum(|stat| stat.removed)
    );
    let paths: Vec<String> = stats.iter().map(|stat| sanitize(&stat.path)).collect();
    let most = paths.iter().map(|path| display_width(path)).max().unwrap_or_default();
    for (stat, path) in stats.iter().zip(&paths) {
        let lines = match (stat.added, stat.removed) {
            (Some(added), Some(removed)) => format!("+{added} -{removed}"),
            _ => "binary".to_owned(),
        };
        let _ = writeln!(out, "  {}  {lines}", pad_to_width(path, most));
    }
    out
}

/// The patch alone, as it is for a program, and without what drives a terminal for one.
async fn print_patch(repo: &Repo, base: &CommitId, tip: &CommitId) -> CommandResult {
    let terminal = stdout().is_terminal();
    let (mut rest, mut trouble) = (Vec::new(), None);
    let shown = repo.write_patch(base, tip, |chunk| {
        let mut out = stdout().lock();
        let written = if terminal {
            rest.extend_from_slice(chunk);
            let whole = rest.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
            let lines: Vec<u8> = rest.drain(..whole).collect();
            let lines = String::from_utf8_lossy(&lines);
            lines.lines().try_for_each(|line| writeln!(out, "{}", sanitize(line)))
        } else {
            out.write_all(chunk)
        };
        trouble = written.and_then(|()| out.flush()).err();
        trouble.is_none()
    });
    shown.await?;
    match trouble {
        Some(error) => Err(error.into()),
        None => Ok(ExitStatus::Success),
    }
}
