//! `longshore mesh`: runs a node of the agentic mesh, sends frames, and shows MemoryGrams.
//!
//! `serve.rs`, `send.rs`, `show.rs` and `keys.rs` are the commands; `node.rs` builds a node from the arguments, `token.rs` reads bearer
//! tokens. Frames are untrusted, so their text is sanitized for the terminal.

pub(super) mod args;
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

pub(super) fn mesh(args: &MeshArgs, context: &CommandContext) -> CommandResult {
    match &args.command {
        // Frames are processed in parallel.
        MeshCommand::Serve(args) => build_runtime(true)?.block_on(serve::serve(args)),
        MeshCommand::Keygen(args) => keys::keygen(args),
        MeshCommand::Send(args) => build_runtime(false)?.block_on(send::send(args)),
        MeshCommand::Show(args) => build_runtime(false)?.block_on(show::show(args, context)),
    }
}
