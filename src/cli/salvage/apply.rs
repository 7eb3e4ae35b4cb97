//! `longshore salvage apply`: kept work into the working tree, or onto a branch of its own.

use super::find;
use crate::cli::args::SalvageApplyArgs;
use crate::cli::error::Shown;
use crate::cli::here::Here;
use crate::cli::{Outcome, say};
use crate::delivery::{Applied, DeliveryError};
use crate::report::text::{pluralize, sanitize};

/// The most paths that are named.
const NAMED: usize = 20;

/// Carries it out.
pub(super) async fn apply(args: &SalvageApplyArgs, here: &Here) -> Outcome {
    let repo = here.repo().await?;
    let kept = find::one(&repo, &args.work).await?;
    let what = format!("{} attempt {}", kept.story(), kept.at.attempt);
    if let Some(name) = &args.branch {
        repo.make_branch(name, &kept.at.commit).await.map_err(refused)?;
        say(&format!("branch {} is at {}, the work of {what}\n", sanitize(name), kept.at.commit.short()))?;
        return Ok(0);
    }
    let base = kept.base(&repo).await?;
    match repo.apply(&base, &kept.at.commit).await.map_err(refused)? {
        Applied::Changed { paths } if paths.is_empty() => {
            say(&format!("nothing to do: the head has all of the work of {what}\n"))?;
            Ok(0)
        }
        Applied::Changed { paths } => {
            let files = pluralize(paths.len(), "file", "files");
            let mut text = format!("the work of {what} is in the index and the working tree, not committed: {files}\n");
            paths.iter().take(NAMED).for_each(|path| text.push_str(&format!("  {}\n", sanitize(path))));
            if paths.len() > NAMED {
                text.push_str(&format!("  and {} more\n", paths.len() - NAMED));
            }
            say(&text)?;
            Ok(0)
        }
        Applied::Conflict { paths } => {
            let named: Vec<String> = paths.iter().take(NAMED).map(|path| sanitize(path)).collect();
            let more = if paths.len() > NAMED { format!(" and {} more", paths.len() - NAMED) } else { String::new() };
            let message = format!("the work of {what} conflicts with the head in {}{more}", named.join(", "));
            Err(Shown::new(crate::cli::error::Kind::Unsuccessful, message)
                .hint("nothing was changed; `--branch NAME` makes a branch of it, to be merged as any other"))
        }
    }
}

fn refused(error: DeliveryError) -> Shown {
    let hint = match &error {
        DeliveryError::InTheWay { .. } => "nothing was changed; commit or stash them first, or use `--branch NAME`",
        DeliveryError::Unmerged { .. } => "nothing was changed; finish the merge first, or use `--branch NAME`",
        DeliveryError::RefTaken { .. } => "name another branch",
        _ => return error.into(),
    };
    Shown::of(crate::cli::error::Kind::Input, &error).hint(hint)
}
