//! The arguments of `longshore ssot`, as typed.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};

use crate::ids::AssignmentId;
use crate::protocol::amp::message::MsgId;

/// `longshore ssot`.
#[derive(Debug, Args)]
pub struct SsotArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: SsotCommand,
}

/// What to do with the SSOT.
#[derive(Debug, Subcommand)]
pub enum SsotCommand {
    /// Tell what was said about tasks, in order: a line for each message, with the state of its ack
    Log(SsotLogArgs),
    /// Print a message and its ack
    Show(SsotShowArgs),
    /// Look whether all files are sound, every reference resolves and every required ack is there
    Check(SsotCheckArgs),
    /// Commit what the SSOT has to the branch longshore/ssot, to be pushed; checkout and index stay as they are
    Mirror,
    /// Look whether messages and acks break a rule of AMP/1.0, and say which; knows nothing of a repository
    Validate(SsotValidateArgs),
}

/// `longshore ssot log`.
#[derive(Debug, Default, Args)]
pub struct SsotLogArgs {
    /// Tasks (T-YYYY-NNN) [default: those of the newest swarm]
    #[arg(value_name = "TASK", value_parser = AssignmentId::from_str)]
    pub tasks: Vec<AssignmentId>,

    /// All tasks of all swarms
    #[arg(long, conflicts_with = "tasks")]
    pub all: bool,

    /// Write a JSON object a line on standard output
    #[arg(long)]
    pub json: bool,
}

/// `longshore ssot show`.
#[derive(Debug, Args)]
pub struct SsotShowArgs {
    /// The message's id: {type}-{task}-{milliseconds}
    #[arg(value_name = "MSG_ID", value_parser = MsgId::from_str)]
    pub id: MsgId,

    /// Write one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `longshore ssot check`.
#[derive(Debug, Default, Args)]
pub struct SsotCheckArgs {
    /// Make the index anew first
    #[arg(long)]
    pub reindex: bool,

    /// Write a JSON object a line on standard output
    #[arg(long)]
    pub json: bool,
}

/// `longshore ssot validate`.
#[derive(Debug, Args)]
pub struct SsotValidateArgs {
    /// Files with one message or ack each, folders (every .json file below), or - for standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Write a JSON object for each broken rule on standard output
    #[arg(long)]
    pub json: bool,
}
