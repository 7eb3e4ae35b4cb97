//! `longshore run`: checks everything (`preflight.rs`), creates the swarm's record (`setup.rs`), has the coordinator run it
//! and reports how it ended (`finish.rs`).
//!
//! All problems that can be found before anything is created are reported together, and then nothing is created.

pub(crate) mod finish;
mod limits;
pub(crate) mod persisted_settings;
pub(crate) mod preflight;
pub(crate) mod setup;
#[cfg(debug_assertions)]
mod test_overrides;
#[cfg(test)]
mod tests;
mod unfinished;

use super::args::RunArgs;
use super::context::CommandContext;
use super::{CommandResult, ExitStatus, print_stderr};
use crate::report::FirstWriteError;

pub(crate) async fn run(args: RunArgs, here: &CommandContext) -> CommandResult {
    let checked = preflight::check(&args, here).await?;
    for note in checked.notes.iter().chain(&checked.start_notes) {
        print_stderr(&format!("note: {note}"));
    }
    for relaxation in &checked.relaxations {
        print_stderr(&format!("relaxed: {relaxation}"));
    }
    if checked.plan.assignments.is_empty() {
        print_stderr("nothing to run: every story is done already (`--again` runs them again)");
        return Ok(ExitStatus::Success);
    }
    let context = finish::FinishContext::for_run(&args, &checked);
    let write_error = FirstWriteError::default();
    let (setup, _lock) = setup::set_up_swarm(&args, checked, &write_error).await?;
    finish::run_and_finish(setup, &context, &write_error).await
}
