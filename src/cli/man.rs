//! `longshore man`: the manual pages.

use clap::CommandFactory;

use super::args::{Cli, ManArgs};
use super::error::CommandError;
use super::{CommandResult, print_stdout};

/// Carries it out.
pub fn man(args: &ManArgs) -> CommandResult {
    let failed = |error: std::io::Error| CommandError::machinery("cannot write the manual pages").with_cause(&error);
    if let Some(folder) = &args.dir {
        std::fs::create_dir_all(folder).map_err(failed)?;
        clap_mangen::generate_to(Cli::command(), folder).map_err(failed)?;
        return Ok(0);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(failed)?;
    print_stdout(&String::from_utf8_lossy(&page))?;
    Ok(0)
}
