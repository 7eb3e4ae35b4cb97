//! `longshore mesh`: the Agentic Mesh Protocol, for people and programs.
//!
//! `show.rs` prints what stories learned, `args.rs` is what may be typed. What agents wrote is cleaned and escaped.

pub mod args;
mod show;

use super::Outcome;
use super::here::Here;
use args::{MeshArgs, MeshCommand};

/// Carries it out.
pub async fn mesh(args: &MeshArgs, here: &Here) -> Outcome {
    match &args.command {
        MeshCommand::Show(args) => show::show(args, here).await,
    }
}
