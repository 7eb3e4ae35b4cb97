//! The arguments of `longshore mailbox`, as typed.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};

use crate::cli::swarm_prefix::SwarmPrefix;
use crate::protocol::mailbox::message::{AgentId, MailboxMessageType, MessageRecipient, MessageRef, Priority};

/// `longshore mailbox`.
#[derive(Debug, Args)]
pub struct MailboxArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: MailboxCommand,
}

/// What to do with a mailbox.
#[derive(Debug, Subcommand)]
pub enum MailboxCommand {
    /// Send a message
    Send(MailboxSendArgs),
    /// Print the messages for you that are new; they count as read
    Read(MailboxReadArgs),
    /// Tell what everybody says, as they say it, until everybody is gone
    Watch(MailboxWatchArgs),
    /// Tell who takes part, and who waits for whose answer
    Roster(MailboxRosterArgs),
    /// Tell what everybody said, a line for each message
    Log(MailboxLogArgs),
}

/// Which mailbox.
#[derive(Debug, Default, Args)]
pub struct MailboxLocationArgs {
    /// A swarm's id, or the beginning of it [default: the newest]
    #[arg(long, value_name = "SWARM", conflicts_with = "dir")]
    pub swarm: Option<SwarmPrefix>,

    /// The mailbox in this folder, whoever uses it
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// Write a JSON object a line on standard output
    #[arg(long)]
    pub json: bool,
}

/// As whom.
#[derive(Debug, Args)]
pub struct ParticipantArgs {
    /// Your id in the mailbox
    #[arg(long = "as", value_name = "ID", default_value = "host", value_parser = AgentId::from_str)]
    pub agent_id: AgentId,

    /// What to say in the roster that you do; with --dir, where you are not in it yet
    #[arg(long, value_name = "TEXT", default_value = "person", requires = "dir")]
    pub role: String,
}

/// `longshore mailbox send`.
#[derive(Debug, Args)]
pub struct MailboxSendArgs {
    /// What to say; without it and without --subject, or with -, standard input is read
    #[arg(value_name = "TEXT")]
    pub text: Vec<String>,

    /// Whom it is for: an id, or * for everybody [default: the sender of --re; everybody for DONE]
    #[arg(long, value_name = "ID", value_parser = MessageRecipient::from_str)]
    pub to: Option<MessageRecipient>,

    /// The message that it answers or is about
    #[arg(long, value_name = "ID/NNN", value_parser = MessageRef::from_str)]
    pub re: Option<MessageRef>,

    /// REQUEST, RESPONSE, STATUS, HANDOFF, ACK, ERROR or DONE [default: RESPONSE with --re, else REQUEST]
    #[arg(long = "type", value_name = "TYPE", value_parser = MailboxMessageType::from_str)]
    pub kind: Option<MailboxMessageType>,

    /// What it is about [default: the text's first line]
    #[arg(long, value_name = "TEXT")]
    pub subject: Option<String>,

    /// What has to be known for it
    #[arg(long, value_name = "TEXT")]
    pub context: Option<String>,

    /// What is wanted back
    #[arg(long, value_name = "TEXT")]
    pub expect: Option<String>,

    /// low, normal, high or critical
    #[arg(long, value_name = "PRIORITY", default_value = "normal", value_parser = Priority::from_str)]
    pub priority: Priority,

    /// After so many minutes it is not delivered any more
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u32).range(1..))]
    pub ttl: Option<u32>,

    /// As whom.
    #[command(flatten)]
    pub participant: ParticipantArgs,

    /// Which mailbox.
    #[command(flatten)]
    pub location: MailboxLocationArgs,
}

/// `longshore mailbox read`.
#[derive(Debug, Args)]
pub struct MailboxReadArgs {
    /// Print these messages, new or not, of whomever
    #[arg(value_name = "ID/NNN", value_parser = MessageRef::from_str, conflicts_with_all = ["all", "wait"])]
    pub messages: Vec<MessageRef>,

    /// Print all that was ever sent to you
    #[arg(long, conflicts_with = "wait")]
    pub all: bool,

    /// Wait where nothing is new; exit code 1 when the time is over, or when nobody is left who could write
    #[arg(long)]
    pub wait: bool,

    /// Wait until something of this agent came
    #[arg(long, value_name = "ID", requires = "wait", value_parser = AgentId::from_str)]
    pub from: Option<AgentId>,

    /// Wait until something about this message came
    #[arg(long, value_name = "ID/NNN", requires = "wait", value_parser = MessageRef::from_str)]
    pub re: Option<MessageRef>,

    /// Wait so long at most [default: for ever]
    #[arg(long, value_name = "SECONDS", requires = "wait")]
    pub timeout: Option<u32>,

    /// As whom.
    #[command(flatten)]
    pub participant: ParticipantArgs,

    /// Which mailbox.
    #[command(flatten)]
    pub location: MailboxLocationArgs,
}

/// `longshore mailbox watch`.
#[derive(Debug, Args)]
pub struct MailboxWatchArgs {
    /// Begin with all that was said so far
    #[arg(long)]
    pub all: bool,

    /// Print messages whole
    #[arg(long)]
    pub full: bool,

    /// Which mailbox.
    #[command(flatten)]
    pub location: MailboxLocationArgs,
}

/// `longshore mailbox roster`.
#[derive(Debug, Args)]
pub struct MailboxRosterArgs {
    /// Which mailbox.
    #[command(flatten)]
    pub location: MailboxLocationArgs,
}

/// `longshore mailbox log`.
#[derive(Debug, Args)]
pub struct MailboxLogArgs {
    /// Only what these agents said or were told [default: all]
    #[arg(value_name = "ID", value_parser = AgentId::from_str)]
    pub agents: Vec<AgentId>,

    /// Print messages whole
    #[arg(long)]
    pub full: bool,

    /// Which mailbox.
    #[command(flatten)]
    pub location: MailboxLocationArgs,
}
