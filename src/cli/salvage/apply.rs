//! `longshore salvage apply`: puts kept work into the working tree, or on a new branch.

use super::find;
use crate::cli::args::SalvageApplyArgs;
use crate::cli::context::CommandContext;
use crate::cli::error::CommandError;
use crate::cli::{CommandResult, ExitStatus, print_stdout};
use crate::delivery::{ApplyOutcome, DeliveryError};
use crate::report::text::{pluralize, sanitize};

/// Maximum number of listed paths.
const MAX_LISTED_PATHS: usize = 20;

pub(super) async fn apply(args: &SalvageApplyArgs, here: &CommandContext) -> CommandResult {
    let repo = here.discover_repo().await?;
    let work = find::find_one(&repo, &args.work).await?;
    let what = format!("{} attempt {}", work.story_labels(), work.kept_ref.attempt);
    if let Some(name) = &args.branch {
        repo.create_user_branch(name, &work.kept_ref.commit).await.map_err(apply_error)?;
        print_stdout(&format!(
            "branch {} is at {}, the work of {what}\n",
            sanitize(name),
            work.kept_ref.commit.short()
        ))?;
        return Ok(ExitStatus::Success);
    }
    let base = work.base(&repo).await?;
    match repo.apply(&base, &work.kept_ref.commit).await.map_err(apply_error)? {
        ApplyOutcome::Changed { paths } if paths.is_empty() => {
            print_stdout(&format!("nothing to do: the head has all of the work of {what}\n"))?;
            Ok(ExitStatus::Success)
        }
        ApplyOutcome::Changed { paths } => {
            let files = pluralize(paths.len(), "file", "files");
            let mut text = format!("the work of {what} is in the index and the working tree, not committed: {files}\n");
            paths.iter().take(MAX_LISTED_PATHS).for_each(|path| text.push_str(&format!("  {}\n", sanitize(path))));
            if paths.len() > MAX_LISTED_PATHS {
                text.push_str(&format!("  and {} more\n", paths.len() - MAX_LISTED_PATHS));
            }
            print_stdout(&text)?;
            Ok(ExitStatus::Success)
        }
        ApplyOutcome::Conflict { paths } => {
            let named: Vec<String> = paths.iter().take(MAX_LISTED_PATHS).map(|path| sanitize(path)).collect();
            let more = if paths.len() > MAX_LISTED_PATHS {
                format!(" and {} more", paths.len() - MAX_LISTED_PATHS)
            } else {
                String::new()
            };
            let message = format!("the work of {what} conflicts with the head in {}{more}", named.join(", "));
            Err(CommandError::new(crate::cli::error::CommandErrorKind::Unsuccessful, message)
                .with_hint("nothing was changed; `--branch NAME` makes a branch of it, to be merged as any other"))
        }
    }
}

fn apply_error(error: DeliveryError) -> CommandError {
    let hint = match &error {
        DeliveryError::UncommittedChanges { .. } => {
            "nothing was changed; commit or stash them first, or use `--branch NAME`"
        }
        DeliveryError::UnresolvedConflicts { .. } => {
            "nothing was changed; finish the merge first, or use `--branch NAME`"
        }
        DeliveryError::RefExists { .. } => "name another branch",
        _ => return error.into(),
    };
    CommandError::from_error(crate::cli::error::CommandErrorKind::Input, &error).with_hint(hint)
}
