//! The command line of `longshore`: arguments as typed ([`args`]) -> settings ([`settings`]) -> one file a command -> an exit
//! code ([`exit_status`]).
//!
//! [`dispatch`] is called by `main.rs`. [`error`] is what the user sees if something is wrong; [`context`] finds the
//! repository and the engine. A reader of standard output that goes away ends a command quietly.

pub(crate) mod admin;
pub(crate) mod amounts;
pub(crate) mod args;
pub(crate) mod completions;
pub(crate) mod context;
pub mod dispatch;
pub(crate) mod doctor;
pub(crate) mod error;
pub(crate) mod exit_status;
pub(crate) mod gc;
pub(crate) mod images;
pub(crate) mod input;
pub(crate) mod logs;
pub(crate) mod mailbox;
pub(crate) mod man;
pub(crate) mod mesh;
pub(crate) mod output;
pub(crate) mod plan;
pub(crate) mod resume;
pub(crate) mod run;
pub(crate) mod runtime;
pub(crate) mod salvage;
pub(crate) mod schema;
pub(crate) mod settings;
pub(crate) mod shim;
pub(crate) mod ssot;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod swarm_prefix;

pub(crate) use error::CommandResult;
pub(crate) use exit_status::ExitStatus;
pub(crate) use output::{print_stderr, print_stdout, terminal_columns};

#[cfg(test)]
mod tests;
