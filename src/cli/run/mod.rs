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
use crate::coordinator::StopSignals;
use crate::report::FirstWriteError;

pub(crate) async fn run(args: RunArgs, here: &CommandContext) -> CommandResult {
    let mut signals = StopSignals::new();
    let checked = match signals.interrupt(preflight::check(&args, here)).await {
        Ok(checked) => checked?,
        Err(by) => return Ok(interrupted_before_start(&by)),
    };
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
    // It is interrupted only before it creates the swarm's record: after that it does not wait for anything.
    let (setup, _lock) = match signals.interrupt(setup::set_up_swarm(&args, checked, &write_error)).await {
        Ok(ready) => ready?,
        Err(by) => return Ok(interrupted_before_start(&by)),
    };
    finish::run_and_finish(setup, signals, &context, &write_error).await
}

fn interrupted_before_start(by: &str) -> ExitStatus {
    print_stderr(&format!("interrupted by {by}: nothing was started"));
    ExitStatus::Interrupted
}
