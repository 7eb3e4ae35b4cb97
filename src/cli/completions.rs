//! `longshore completions`: a completion script for a shell.

use clap::CommandFactory;

use super::args::Cli;
use super::{CommandResult, print_stdout};

/// Carries it out.
pub fn completions(shell: clap_complete::Shell) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "longshore", &mut script);
    print_stdout(&String::from_utf8_lossy(&script))?;
    Ok(0)
}
