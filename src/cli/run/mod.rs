//! `longshore run`: checks everything (`preflight.rs`), begins the swarm's record (`setup.rs`), has the coordinator run it, and
//! tells how it ended (`finish.rs`).
//!
//! All problems that can be found before anything is made are told at once, and then nothing is made.

pub mod setup;
pub mod preflight;
mod unfinished;
pub mod finish;
#[cfg(debug_assertions)]
mod test_overrides;

use super::args::RunArgs;
use super::context::CommandContext;
use super::error::{CommandError, CommandErrorKind};
use super::{CommandResult, print_stderr};
use crate::coordinator::{self, CoordinatorError};
use crate::report::FirstWriteError;

/// Carries it out.
pub async fn run(args: RunArgs, here: &CommandContext) -> CommandResult {
    let checked = preflight::check(&args, here).await?;
    for note in checked.notes.iter().chain(&checked.start_notes) {
        print_stderr(&format!("note: {note}"));
    }
    for relaxation in &checked.relaxations {
        print_stderr(&format!("relaxed: {relaxation}"));
    }
    if checked.plan.assignments.is_empty() {
        print_stderr("nothing to run: every story is done already (`--again` runs them again)");
        return Ok(0);
    }
    let ending = finish::FinishContext::for_run(&args, &checked);
    let trouble = FirstWriteError::default();
    let (setup, _lock) = setup::set_up_swarm(&args, checked, &trouble).await?;
    let dir = setup.dir.clone();
    let ended = coordinator::run(setup).await;
    // The record is told of in any case: what landed before a failure has landed.
    let told = finish::finish(&ending, &dir).await;
    let ended = ended.map_err(CommandError::from)?;
    told?;
    check_events_written(&trouble)?;
    Ok(ended.exit_code())
}

/// A program that reads the events must not take a broken stream for a whole one. What landed has landed all the same.
pub(crate) fn check_events_written(trouble: &FirstWriteError) -> Result<(), CommandError> {
    match trouble.error() {
        None => Ok(()),
        Some(error) => {
            Err(CommandError::machinery("events could not be written to standard output: the stream is not whole")
                .with_cause(error)
                .with_hint("`longshore status` shows how the swarm ended"))
        }
    }
}

impl From<CoordinatorError> for CommandError {
    fn from(error: CoordinatorError) -> Self {
        match error {
            // Their own words and hints say more than the frame around them.
            CoordinatorError::Engine(error) => error.into(),
            CoordinatorError::Delivery(error) => error.into(),
            CoordinatorError::State(error) => error.into(),
            error => CommandError::from_error(CommandErrorKind::Machinery, &error),
        }
    }
}
