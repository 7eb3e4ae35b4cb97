//! Arguments of `longshore mailbox`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};

use crate::cli::swarm_prefix::SwarmPrefix;
use crate::protocol::mailbox::message::{AgentId, MailboxMessageType, MessageRecipient, MessageRef, Priority};

/// `longshore mailbox`.
#[derive(Debug, Args)]
pub struct MailboxArgs {
    #[command(subcommand)]
    pub(super) command: MailboxCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum MailboxCommand {
    /// Send a message
    Send(MailboxSendArgs),
    /// Print your new messages and mark them as read
    Read(MailboxReadArgs),
    /// Print all messages as they are sent, until all agents are gone
    Watch(MailboxWatchArgs),
    /// List the participants and the pending replies
    Roster(MailboxLocationArgs),
    /// Print all messages, one per line
    Log(MailboxLogArgs),
}

#[derive(Debug, Default, Args)]
pub(super) struct MailboxLocationArgs {
    /// Swarm id, or the start of one [default: the newest swarm]
    #[arg(long, value_name = "SWARM", conflicts_with = "dir")]
    pub(super) swarm: Option<SwarmPrefix>,

    /// Use the mailbox in this directory instead of a swarm's
    #[arg(long, value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,

    /// Print one JSON object per line to standard output
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ParticipantArgs {
    /// Your id in the mailbox
    #[arg(long = "as", value_name = "ID", default_value = "host", value_parser = AgentId::from_str)]
    pub(super) agent_id: AgentId,

    /// Your role in the roster; used with --dir if you are not in the roster yet
    #[arg(long, value_name = "TEXT", default_value = "person", requires = "dir")]
    pub(super) role: String,
}

#[derive(Debug, Args)]
pub(super) struct MailboxSendArgs {
    /// The text; without it and --subject, or with -, it is read from standard input
    #[arg(value_name = "TEXT")]
    pub(super) text: Vec<String>,

    /// The recipient: an id, or * for everybody [default: the sender of --re; everybody for DONE]
    #[arg(long, value_name = "ID", value_parser = MessageRecipient::from_str)]
    pub(super) to: Option<MessageRecipient>,

    /// The message to reply or refer to
    #[arg(long, value_name = "ID/NNN", value_parser = MessageRef::from_str)]
    pub(super) re: Option<MessageRef>,

    /// REQUEST, RESPONSE, STATUS, HANDOFF, ACK, ERROR or DONE [default: RESPONSE with --re, else REQUEST]
    #[arg(long = "type", value_name = "TYPE", value_parser = MailboxMessageType::from_str)]
    pub(super) message_type: Option<MailboxMessageType>,

    /// The subject [default: the text's first line]
    #[arg(long, value_name = "TEXT")]
    pub(super) subject: Option<String>,

    /// What the recipient needs to know
    #[arg(long, value_name = "TEXT")]
    pub(super) context: Option<String>,

    /// The response that you expect
    #[arg(long, value_name = "TEXT")]
    pub(super) expect: Option<String>,

    /// The priority: low, normal, high or critical
    #[arg(long, value_name = "PRIORITY", default_value = "normal", value_parser = Priority::from_str)]
    pub(super) priority: Priority,

    /// The time after which the message is not delivered
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) ttl: Option<u32>,

    #[command(flatten)]
    pub(super) participant: ParticipantArgs,

    #[command(flatten)]
    pub(super) location: MailboxLocationArgs,
}

#[derive(Debug, Args)]
pub(super) struct MailboxReadArgs {
    /// Print these messages, new or not, from any agent
    #[arg(value_name = "ID/NNN", value_parser = MessageRef::from_str, conflicts_with_all = ["all", "wait"])]
    pub(super) messages: Vec<MessageRef>,

    /// Print all messages that were ever sent to you
    #[arg(long, conflicts_with = "wait")]
    pub(super) all: bool,

    /// Wait if there are no new messages; exit code 1 on timeout, or if all other agents are gone
    #[arg(long)]
    pub(super) wait: bool,

    /// Wait for a message from this agent
    #[arg(long, value_name = "ID", requires = "wait", value_parser = AgentId::from_str)]
    pub(super) from: Option<AgentId>,

    /// Wait for a message that refers to this one
    #[arg(long, value_name = "ID/NNN", requires = "wait", value_parser = MessageRef::from_str)]
    pub(super) re: Option<MessageRef>,

    /// Stop waiting after this time [default: never]
    #[arg(long, value_name = "SECONDS", requires = "wait")]
    pub(super) timeout: Option<u32>,

    #[command(flatten)]
    pub(super) participant: ParticipantArgs,

    #[command(flatten)]
    pub(super) location: MailboxLocationArgs,
}

#[derive(Debug, Args)]
pub(super) struct MailboxWatchArgs {
    /// Begin with all earlier messages
    #[arg(long)]
    pub(super) all: bool,

    /// Print complete messages
    #[arg(long)]
    pub(super) full: bool,

    #[command(flatten)]
    pub(super) location: MailboxLocationArgs,
}

#[derive(Debug, Args)]
pub(super) struct MailboxLogArgs {
    /// Only messages from or to these agents [default: all]
    #[arg(value_name = "ID", value_parser = AgentId::from_str)]
    pub(super) agents: Vec<AgentId>,

    /// Print complete messages
    #[arg(long)]
    pub(super) full: bool,

    #[command(flatten)]
    pub(super) location: MailboxLocationArgs,
}
