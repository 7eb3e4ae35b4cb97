//! `longshore ssot check`: checks the whole SSOT. Exit code 1 if it has problems.

use std::fmt::Write;

use jiff::Timestamp;
use serde_json::json;

use super::args::SsotCheckArgs;
use crate::cli::context::CommandContext;
use crate::cli::{CommandResult, ExitStatus, print_stderr, print_stdout};
use crate::protocol::amp::store::{ProblemSeverity, Ssot};
use crate::report::text::{pluralize, sanitize};

pub(super) async fn check(args: &SsotCheckArgs, here: &CommandContext) -> CommandResult {
    let repo = here.discover_repo().await?;
    let ssot = if args.reindex { Ssot::open(repo.root())? } else { Ssot::open_read_only(repo.root()) };
    if args.reindex {
        let mended = ssot.rebuild_index()?;
        print_stderr(&format!(
            "the index is made anew: {} of it",
            pluralize(mended, "entry was wrong", "entries were wrong")
        ));
    }
    let problems = ssot.check(Timestamp::now())?;
    let mut text = String::new();
    for problem in &problems {
        let weight = match problem.severity {
            ProblemSeverity::Error => "error",
            ProblemSeverity::Warning => "warning",
        };
        let (path, what) = (problem.path.display().to_string(), sanitize(&problem.problem));
        let _ = if args.json {
            writeln!(text, "{}", json!({ "weight": weight, "path": path, "problem": what }))
        } else {
            writeln!(text, "{weight}: {}: {what}", sanitize(&path))
        };
    }
    let errors = problems.iter().filter(|problem| problem.severity == ProblemSeverity::Error).count();
    if !args.json {
        let messages = pluralize(ssot.message_ids(None)?.len(), "message", "messages");
        let warnings = pluralize(problems.len() - errors, "warning", "warnings");
        let _ = writeln!(text, "{messages}: {}, {warnings}", pluralize(errors, "error", "errors"));
    }
    print_stdout(&text)?;
    Ok(if errors > 0 { ExitStatus::Unsuccessful } else { ExitStatus::Success })
}
