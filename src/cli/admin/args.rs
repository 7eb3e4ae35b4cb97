//! Arguments of `longshore admin`.

use clap::{Args, Subcommand};

use crate::cli::swarm_prefix::SwarmPrefix;

/// `longshore admin`.
#[derive(Debug, Args)]
pub struct AdminArgs {
    #[command(subcommand)]
    pub command: AdminCommand,
}

#[derive(Debug, Subcommand)]
pub enum AdminCommand {
    /// List tasks that wait for a decision, and open escalations
    List(AdminListArgs),
    /// Show a task or escalation: its messages, newest verdict, diff path and possible decisions
    Show(AdminTargetArgs),
    /// Approve a waiting task: run it, merge it, or accept its verdict
    Approve(AdminTargetArgs),
    /// Continue a suspended task, or request another review
    Resume(AdminTargetArgs),
    /// Retry a task, with its retry and rejection counts reset
    Retry(AdminTargetArgs),
    /// Abort a task; its work is kept but not merged
    Abort(AdminTargetArgs),
    /// Save the task's commits under a ref and restart the task from the integration branch
    Rollback(AdminTargetArgs),
    /// Send guidance to the task's agent and continue the task
    Answer(AdminAnswerArgs),
}

/// `longshore admin list`.
#[derive(Debug, Default, Args)]
pub struct AdminListArgs {
    /// Swarm id, or the start of one [default: the newest swarm]
    #[arg(long, value_name = "SWARM")]
    pub swarm: Option<SwarmPrefix>,

    /// Also list informational and answered escalations
    #[arg(long)]
    pub all: bool,

    /// Print one JSON object per line to standard output
    #[arg(long)]
    pub json: bool,
}

/// Target of `longshore admin show` and of the decisions.
#[derive(Debug, Args)]
pub struct AdminTargetArgs {
    /// Task (T-2026-001), story (US-003, SLUG/US-003), or msg_id of an escalation
    #[arg(value_name = "TARGET")]
    pub target: String,

    /// Swarm id, or the start of one [default: the swarm of the task or escalation; for a story, the newest swarm]
    #[arg(long, value_name = "SWARM")]
    pub swarm: Option<SwarmPrefix>,
}

/// `longshore admin answer`.
#[derive(Debug, Args)]
pub struct AdminAnswerArgs {
    #[command(flatten)]
    pub target: AdminTargetArgs,

    /// Text of the answer; `-` reads standard input
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    pub text: String,
}
