//! `longshore run`: checks everything (`check.rs`), begins the swarm's record (`begin.rs`), has the coordinator run it, and
//! tells how it ended (`finish.rs`).
//!
//! All problems that can be found before anything is made are told at once, and then nothing is made.

pub mod begin;
pub mod check;
mod earlier;
pub mod finish;
#[cfg(debug_assertions)]
mod haste;

use super::args::RunArgs;
use super::error::{Kind, Shown};
use super::here::Here;
use super::{Outcome, remark};
use crate::coordinator::{self, CoordinatorError};
use crate::report::FirstWriteError;

/// Carries it out.
pub async fn run(args: RunArgs, here: &Here) -> Outcome {
    let checked = check::check(&args, here).await?;
    for note in checked.notes.iter().chain(&checked.opening) {
        remark(&format!("note: {note}"));
    }
    for relaxation in &checked.relaxations {
        remark(&format!("relaxed: {relaxation}"));
    }
    if checked.plan.assignments.is_empty() {
        remark("nothing to run: every story is done already (`--again` runs them again)");
        return Ok(0);
    }
    let ending = finish::Ending::of(&args, &checked);
    let trouble = FirstWriteError::default();
    let (setup, _lock) = begin::begin(&args, checked, &trouble).await?;
    let dir = setup.dir.clone();
    let ended = coordinator::run(setup).await;
    // The record is told of in any case: what landed before a failure has landed.
    let told = finish::finish(&ending, &dir).await;
    let ended = ended.map_err(Shown::from)?;
    told?;
    events_told(&trouble)?;
    Ok(ended.outcome.exit_code())
}

/// A program that reads the events must not take a broken stream for a whole one. What landed has landed all the same.
pub(crate) fn events_told(trouble: &FirstWriteError) -> Result<(), Shown> {
    match trouble.error() {
        None => Ok(()),
        Some(error) => Err(Shown::machinery("events could not be written to standard output: the stream is not whole")
            .caused_by(error)
            .hint("`longshore status` shows how the swarm ended")),
    }
}

impl From<CoordinatorError> for Shown {
    fn from(error: CoordinatorError) -> Self {
        match error {
            // Their own words and hints say more than the frame around them.
            CoordinatorError::Engine(error) => error.into(),
            CoordinatorError::Delivery(error) => error.into(),
            CoordinatorError::State(error) => error.into(),
            error => Shown::of(Kind::Machinery, &error),
        }
    }
}
