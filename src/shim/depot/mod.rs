//! `acp-shim depot`: the helper container through which files travel between the host and a swarm's volumes.
//!
//! Frames arrive on standard input, responses leave on standard output. Called by [`shim::main`](super::main). It runs as root with
//! CHOWN, DAC_OVERRIDE, SETUID and SETGID only. Must not: open anything in a sandbox's work directory as root. That is hostile, and
//! `as_uid.rs` accesses it as the sandbox's own user.

pub mod as_uid;
mod attempt_dirs;
mod error;
mod frames;
mod mailbox;
mod objects;
mod sandbox_dir;
mod server;
mod streams;

pub use as_uid::SandboxUserHelper;
use error::{depot_error, io_error};
pub use server::DepotServer;
use streams::ResponseSender;
