//! Arguments of `longshore ssot`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};

use crate::ids::AssignmentId;
use crate::protocol::amp::message::MsgId;

/// `longshore ssot`.
#[derive(Debug, Args)]
pub struct SsotArgs {
    #[command(subcommand)]
    pub command: SsotCommand,
}

#[derive(Debug, Subcommand)]
pub enum SsotCommand {
    /// List the messages about tasks in order, with their ack status
    Log(SsotLogArgs),
    /// Print a message and its ack
    Show(SsotShowArgs),
    /// Check all files for damage, broken references and missing acks
    Check(SsotCheckArgs),
    /// Commit the SSOT to the branch longshore/ssot without changing the checkout or the index
    Mirror,
    /// Validate messages and acks against AMP/1.0; needs no repository
    Validate(SsotValidateArgs),
}

/// `longshore ssot log`.
#[derive(Debug, Default, Args)]
pub struct SsotLogArgs {
    /// Tasks (T-YYYY-NNN) [default: the tasks of the newest swarm]
    #[arg(value_name = "TASK", value_parser = AssignmentId::from_str)]
    pub tasks: Vec<AssignmentId>,

    /// Show all tasks of all swarms
    #[arg(long, conflicts_with = "tasks")]
    pub all: bool,

    /// Print one JSON object per line to standard output
    #[arg(long)]
    pub json: bool,
}

/// `longshore ssot show`.
#[derive(Debug, Args)]
pub struct SsotShowArgs {
    /// Message id: {type}-{task}-{milliseconds}
    #[arg(value_name = "MSG_ID", value_parser = MsgId::from_str)]
    pub id: MsgId,

    /// Print JSON to standard output
    #[arg(long)]
    pub json: bool,
}

/// `longshore ssot check`.
#[derive(Debug, Default, Args)]
pub struct SsotCheckArgs {
    /// Rebuild the index first
    #[arg(long)]
    pub reindex: bool,

    /// Print one JSON object per line to standard output
    #[arg(long)]
    pub json: bool,
}

/// `longshore ssot validate`.
#[derive(Debug, Args)]
pub struct SsotValidateArgs {
    /// Files with one message or ack each, folders (every .json file below), or - for standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Print one JSON object per line to standard output
    #[arg(long)]
    pub json: bool,
}
