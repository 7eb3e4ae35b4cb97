//! `longshore man`: the manual pages.

use clap::CommandFactory;

use super::args::{Cli, ManArgs};
use super::error::Shown;
use super::{Outcome, say};

/// Carries it out.
pub fn man(args: &ManArgs) -> Outcome {
    let failed = |error: std::io::Error| Shown::machinery("cannot write the manual pages").caused_by(&error);
    if let Some(folder) = &args.dir {
        std::fs::create_dir_all(folder).map_err(failed)?;
        clap_mangen::generate_to(Cli::command(), folder).map_err(failed)?;
        return Ok(0);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(failed)?;
    say(&String::from_utf8_lossy(&page))?;
    Ok(0)
}
