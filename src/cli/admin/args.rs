//! The arguments of `longshore admin`, as typed.

use clap::{Args, Subcommand};

use crate::cli::swarm_prefix::SwarmPrefix;

/// `longshore admin`.
#[derive(Debug, Args)]
pub struct AdminArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: AdminCommand,
}

/// What the admin can do.
#[derive(Debug, Subcommand)]
pub enum AdminCommand {
    /// A line for each thing that waits for you, then one for each open escalation
    List(AdminListArgs),
    /// Tell a task or an escalation in full: what was said, the newest verdict, where the diff is, what you can decide
    Show(AdminTargetArgs),
    /// Let it run, land, or have the verdict count
    Approve(AdminTargetArgs),
    /// Let it go on where it stopped, or have it reviewed again
    Resume(AdminTargetArgs),
    /// Have it done again, as if nothing had failed or been rejected
    Retry(AdminTargetArgs),
    /// End it: it does not land, and its work is kept
    Abort(AdminTargetArgs),
    /// Put its commits aside, and have it begin again from the integration branch
    Rollback(AdminTargetArgs),
    /// Give its agent these words, and let it go on
    Answer(AdminAnswerArgs),
}

/// `longshore admin list`.
#[derive(Debug, Default, Args)]
pub struct AdminListArgs {
    /// Of this swarm, by its id or the beginning of it [default: the newest]
    #[arg(long, value_name = "SWARM")]
    pub swarm: Option<SwarmPrefix>,

    /// Also escalations that are for the record only, and those that were answered
    #[arg(long)]
    pub all: bool,

    /// Write a JSON object a line on standard output
    #[arg(long)]
    pub json: bool,
}

/// What a decision is about.
#[derive(Debug, Args)]
pub struct AdminTargetArgs {
    /// A task (T-2026-001), a story (US-003, SLUG/US-003), or an escalation by its msg_id
    #[arg(value_name = "TARGET")]
    pub target: String,

    /// The swarm, by its id or the beginning of it [default: that of the task or escalation; for a story, the newest]
    #[arg(long, value_name = "SWARM")]
    pub swarm: Option<SwarmPrefix>,
}

/// `longshore admin answer`.
#[derive(Debug, Args)]
pub struct AdminAnswerArgs {
    /// What is answered.
    #[command(flatten)]
    pub target: AdminTargetArgs,

    /// The words, or - to read them from standard input
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    pub text: String,
}
