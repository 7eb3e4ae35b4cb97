//! `longshore mesh`: a node of the agentic mesh, sending to one, and what stories learned.
//!
//! `serve.rs`, `send.rs`, `show.rs` (what stories learned) and `keys.rs` (`keygen`) are the commands, `node.rs` makes the node of what
//! was typed, `token.rs` reads what opens a node to others, `args.rs` is what may be typed. What frames say is somebody else's text,
//! and is cleaned for the terminal.

pub mod args;
mod keys;
mod node;
mod send;
mod serve;
mod show;
mod token;

use super::CommandResult;
use super::context::CommandContext;
use super::runtime::build_runtime;
use args::{MeshArgs, MeshCommand};

/// Carries it out.
pub fn mesh(args: &MeshArgs, here: &CommandContext) -> CommandResult {
    match &args.command {
        // Frames are parsed and checked beside each other.
        MeshCommand::Serve(args) => build_runtime(true)?.block_on(serve::serve(args)),
        MeshCommand::Keygen(args) => keys::keygen(args),
        MeshCommand::Send(args) => build_runtime(false)?.block_on(send::send(args)),
        MeshCommand::Show(args) => build_runtime(false)?.block_on(show::show(args, here)),
    }
}
