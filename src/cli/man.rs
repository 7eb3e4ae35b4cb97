//! `longshore man`: prints or writes the manual pages.

use std::path::Path;

use clap::CommandFactory;

use super::args::Cli;
use super::error::CommandError;
use super::{CommandResult, ExitStatus, print_stdout};

pub(crate) fn man(dir: Option<&Path>) -> CommandResult {
    let failed = |error: std::io::Error| CommandError::machinery("cannot write the manual pages").with_cause(&error);
    if let Some(dir) = dir {
        std::fs::create_dir_all(dir).map_err(failed)?;
        clap_mangen::generate_to(Cli::command(), dir).map_err(failed)?;
        return Ok(ExitStatus::Success);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(failed)?;
    print_stdout(&String::from_utf8_lossy(&page))?;
    Ok(ExitStatus::Success)
}
