//! The arguments of `longshore mesh`, as typed.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cli::amounts::{Size, Span, SpanOrOff};
use crate::protocol::mesh::http::NodeAddress;

/// `longshore mesh`.
#[derive(Debug, Args)]
pub struct MeshArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: MeshCommand,
}

/// What can be done with the mesh.
#[derive(Debug, Subcommand)]
pub enum MeshCommand {
    /// Be a node of the mesh, over HTTP: the ultimate receiver, or with --forward or --route an intermediary
    Serve(Box<MeshServeArgs>),
    /// Send a frame to a node, and print what it answers
    #[command(
        after_help = "Exit codes: 0 it was answered; 1 a fault came back; 2 bad usage, or no frame; 3 the node cannot be reached."
    )]
    Send(Box<MeshSendArgs>),
    /// Make a key for signing and one for opening what is sealed, and print the public half: what others put into a trust file
    Keygen(MeshKeygenArgs),
    /// Print what a story learned, or the MemoryGrams of a file, as a table or a graph
    Show(MeshShowArgs),
}

/// `longshore mesh keygen`.
#[derive(Debug, Args)]
pub struct MeshKeygenArgs {
    /// The file for the secret half; it must not be there yet
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// The URI of the node or agent whose key it is
    #[arg(long, value_name = "URI")]
    pub agent: String,
}

/// `longshore mesh show`.
#[derive(Debug, Args)]
pub struct MeshShowArgs {
    /// A file with a MemoryGram or a frame, - for standard input, or [SWARM/][TASKS/]STORY: what US-001 of the newest swarm learned, or
    /// with several tasks files a/US-001
    #[arg(value_name = "FILE|STORY|-")]
    pub what: String,

    /// As a graph for Graphviz
    #[arg(long, group = "form")]
    pub dot: bool,

    /// As a graph for Mermaid
    #[arg(long, group = "form")]
    pub mermaid: bool,

    /// As an agent reads it
    #[arg(long, group = "form")]
    pub markdown: bool,

    /// As JSON; several MemoryGrams are one object a line
    #[arg(long, group = "form")]
    pub json: bool,
}

/// `longshore mesh serve`.
#[derive(Debug, Args)]
pub struct MeshServeArgs {
    /// Where to listen; port 0 takes a free one. Anything but this machine itself needs a token
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7117")]
    pub listen: SocketAddr,

    /// The node's own URI [default: that of its key, or else the URL that it listens at]
    #[arg(long, value_name = "URI")]
    pub uri: Option<String>,

    /// Be an intermediary: relay to the node at this URL
    #[arg(long, value_name = "URL")]
    pub forward: Option<NodeAddress>,

    /// Be an intermediary: a frame whose routing block names this node goes to this URL; may be given again
    #[arg(long, value_name = "URI=URL")]
    pub route: Vec<String>,

    /// Be an active intermediary: put a mark into what is relayed that says what was changed
    #[arg(long)]
    pub active: bool,

    /// Put this header block into what is relayed (an active intermediary); may be given again
    #[arg(long, value_name = "NAME=JSON")]
    pub annotate: Vec<String>,

    /// Take this child of the Body out of what is relayed (an active intermediary); may be given again
    #[arg(long, value_name = "KEY")]
    pub mask: Vec<String>,

    /// Act in this role too: an IRI, or a token and its IRI; may be given again
    #[arg(long, value_name = "[TOKEN=]IRI")]
    pub role: Vec<String>,

    /// Understand this header block; an intermediary takes it out; may be given again
    #[arg(long, value_name = "NAME")]
    pub understand: Vec<String>,

    /// Understand this header block, and put it in again when relaying; may be given again
    #[arg(long, value_name = "NAME")]
    pub reinsert: Vec<String>,

    /// Let this intermediary handle `routing` or `audit` blocks, without an authorization in the frame; may be given again
    #[arg(long, value_name = "NAME")]
    pub allow: Vec<String>,

    /// The node's own keys: it opens what is sealed for it, and signs its log entries. An intermediary needs --trust (or --audit) beside
    /// it: it presents itself, and an active one signs anew what it changed of a frame that was signed
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,

    /// Agents that are trusted, with their public keys: what keygen prints, or a list of such; may be given again
    #[arg(long, value_name = "FILE")]
    pub trust: Vec<PathBuf>,

    /// Take only what an agent that is trusted has signed, and its copies never
    #[arg(long, requires = "trust")]
    pub require_signature: bool,

    /// Take this block, or `Body`, only as a sender signed it whom the trust file or a grant in the frame allows it; may be given again
    #[arg(long, value_name = "NAME", requires = "trust")]
    pub need: Vec<String>,

    /// How long a message is remembered, and how old one may be; off for not at all [default: 5m with --trust, otherwise off]
    #[arg(long, value_name = "TIME")]
    pub replay_window: Option<SpanOrOff>,

    /// Write down in each frame that this node had it, and what it did. Add --key: nodes with --require-signature refuse an entry that
    /// nobody signed
    #[arg(long)]
    pub audit: bool,

    /// Shell command that answers: the processed frame on standard input, the Body of the answer as JSON on standard output
    #[arg(long, value_name = "CMD", conflicts_with_all = ["forward", "route"])]
    pub handler: Option<String>,

    /// Time for the handler, and for the next node's answer
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub timeout: Span,

    /// Keep attachments that reach this node in this folder, under their SHA-256
    #[arg(long, value_name = "DIR", conflicts_with_all = ["forward", "route"])]
    pub attachments: Option<PathBuf>,

    /// The token that whoever sends to this node has to know [default: LONGSHORE_MESH_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// The token that the next node wants
    #[arg(long, value_name = "FILE")]
    pub next_token_file: Option<PathBuf>,

    /// Speak HTTP/2 to the next node
    #[arg(long)]
    pub next_http2: bool,

    /// The largest frame that is taken
    #[arg(long, value_name = "SIZE", default_value = "8m")]
    pub max_frame: Size,

    /// The most that all attachments of a frame may have
    #[arg(long, value_name = "SIZE", default_value = "64m")]
    pub max_attachments: Size,

    /// Time for the head of a request to arrive; the rest of it has six times as long
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub patience: Span,

    /// Print where it listens as a JSON line on standard output
    #[arg(long)]
    pub json: bool,
}

/// `longshore mesh send`.
#[derive(Debug, Args)]
pub struct MeshSendArgs {
    /// The file with the frame, or - for standard input; with --stream, a frame a line
    #[arg(value_name = "FRAME")]
    pub frame: PathBuf,

    /// The node's URL
    #[arg(long, value_name = "URL", required_unless_present = "print")]
    pub to: Option<NodeAddress>,

    /// Send this file along; may be given again
    #[arg(long, value_name = "FILE", conflicts_with = "stream")]
    pub attach: Vec<PathBuf>,

    /// Sign the frame and present its sender, with these keys
    #[arg(long, value_name = "FILE", conflicts_with = "stream")]
    pub key: Option<PathBuf>,

    /// Seal the Body and each MemoryGram for the agent of this trust file, so that nobody else can read them
    #[arg(long, value_name = "FILE", conflicts_with = "stream")]
    pub encrypt_to: Option<PathBuf>,

    /// Allow a node or agent something with this message, by your key: names of blocks, or Body; may be given again
    #[arg(long, value_name = "URI=NAME[,NAME]", requires = "key")]
    pub grant: Vec<String>,

    /// Send the lines of standard input or a file as they come, and print a line for each answer
    #[arg(long)]
    pub stream: bool,

    /// Speak HTTP/2, and not HTTP/1.1
    #[arg(long)]
    pub http2: bool,

    /// The token that the node wants [default: LONGSHORE_MESH_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Time for the answer
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub timeout: Span,

    /// Print the frame as it would be sent, signed and sealed, and do not send it
    #[arg(long, conflicts_with = "stream")]
    pub print: bool,

    /// Print the answer as it came, on one line
    #[arg(long)]
    pub json: bool,
}
