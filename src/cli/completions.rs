//! `longshore completions`: prints a completion script for a shell.

use clap::CommandFactory;

use super::args::Cli;
use super::{CommandResult, ExitStatus, print_stdout};

pub(crate) fn completions(shell: clap_complete::Shell) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "longshore", &mut script);
    print_stdout(&String::from_utf8_lossy(&script))?;
    Ok(ExitStatus::Success)
}
