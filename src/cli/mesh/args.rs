//! Arguments of `longshore mesh`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cli::amounts::{Size, Span, SpanOrOff};
use crate::protocol::mesh::http::NodeAddress;

#[derive(Debug, Args)]
pub struct MeshArgs {
    #[command(subcommand)]
    pub command: MeshCommand,
}

#[derive(Debug, Subcommand)]
pub enum MeshCommand {
    /// Run a mesh node over HTTP: the ultimate receiver, or an intermediary with --forward or --route
    Serve(Box<MeshServeArgs>),
    /// Send a frame to a node and print the answer
    #[command(
        after_help = "Exit codes: 0 answered; 1 answered with a fault; 2 bad usage or invalid frame; 3 the node cannot be reached."
    )]
    Send(Box<MeshSendArgs>),
    /// Create a signing and a decryption key, and print the public half for the trust files of others
    Keygen(MeshKeygenArgs),
    /// Show what a story learned, or the MemoryGrams of a file, as a table or graph
    Show(MeshShowArgs),
}

#[derive(Debug, Args)]
pub struct MeshKeygenArgs {
    /// File for the secret half; must not exist
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// URI of the node or agent that owns the key
    #[arg(long, value_name = "URI")]
    pub agent: String,
}

#[derive(Debug, Args)]
pub struct MeshShowArgs {
    /// A file with MemoryGrams or a frame, - for standard input, or a story of the newest swarm: [SWARM/][TASKS/]STORY, such as US-001,
    /// or a/US-001 with several tasks files
    #[arg(value_name = "FILE|STORY|-")]
    pub what: String,

    /// Print a graph for Graphviz
    #[arg(long, group = "form")]
    pub dot: bool,

    /// Print a graph for Mermaid
    #[arg(long, group = "form")]
    pub mermaid: bool,

    /// Print the markdown that agents get
    #[arg(long, group = "form")]
    pub markdown: bool,

    /// Print one JSON object per line to standard output
    #[arg(long, group = "form")]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct MeshServeArgs {
    /// Address to listen on; port 0 picks a free port. Any other than loopback needs a token
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7117")]
    pub listen: SocketAddr,

    /// URI of the node [default: the URI of its key, or the URL that it listens on]
    #[arg(long, value_name = "URI")]
    pub uri: Option<String>,

    /// Act as an intermediary and relay to the node at this URL
    #[arg(long, value_name = "URL")]
    pub forward: Option<NodeAddress>,

    /// Act as an intermediary and relay frames whose routing block names URI to this URL; repeatable
    #[arg(long, value_name = "URI=URL")]
    pub route: Vec<String>,

    /// Act as an active intermediary, which records its changes in the frames
    #[arg(long)]
    pub active: bool,

    /// Set this header block in relayed frames (implies --active); repeatable
    #[arg(long, value_name = "NAME=JSON")]
    pub annotate: Vec<String>,

    /// Remove this child of the Body from relayed frames (implies --active); repeatable
    #[arg(long, value_name = "KEY")]
    pub mask: Vec<String>,

    /// Act in this role, too: an IRI, or a token and its IRI; repeatable
    #[arg(long, value_name = "[TOKEN=]IRI")]
    pub role: Vec<String>,

    /// Understand this header block, and as an intermediary remove it; repeatable
    #[arg(long, value_name = "NAME")]
    pub understand: Vec<String>,

    /// Understand this header block, and as an intermediary reinsert it; repeatable
    #[arg(long, value_name = "NAME")]
    pub reinsert: Vec<String>,

    /// Let this intermediary process `routing` or `audit` blocks without an authorization in the frame; repeatable
    #[arg(long, value_name = "NAME")]
    pub allow: Vec<String>,

    /// Keys of the node, for decryption and for signing its log entries. An intermediary needs --trust or --audit as well: it adds its
    /// credential, and an active one signs again what it changed in a signed frame
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,

    /// Trusted agents with their public keys: the output of keygen, or a list; repeatable
    #[arg(long, value_name = "FILE")]
    pub trust: Vec<PathBuf>,

    /// Accept only frames signed by a trusted agent, and each only once
    #[arg(long, requires = "trust")]
    pub require_signature: bool,

    /// Accept this block, or `Body`, only if signed by a sender with permission by the trust file or a grant in the frame; repeatable
    #[arg(long, value_name = "NAME", requires = "trust")]
    pub need: Vec<String>,

    /// Maximum age of a message, and how long it is remembered; off disables both [default: 5m with --trust, otherwise off]
    #[arg(long, value_name = "TIME")]
    pub replay_window: Option<SpanOrOff>,

    /// Add an entry to the audit log of each frame. Use with --key: nodes with --require-signature refuse unsigned entries
    #[arg(long)]
    pub audit: bool,

    /// Shell command that answers: gets the processed frame on standard input, prints the Body of the answer as JSON
    #[arg(long, value_name = "CMD", conflicts_with_all = ["forward", "route"])]
    pub handler: Option<String>,

    /// Time limit for the handler and for the next node's answer
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub timeout: Span,

    /// Store attachments that reach this node in this directory, under their SHA-256
    #[arg(long, value_name = "DIR", conflicts_with_all = ["forward", "route"])]
    pub attachments: Option<PathBuf>,

    /// File with the token that senders need [default: LONGSHORE_MESH_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// File with the token for the next node
    #[arg(long, value_name = "FILE")]
    pub next_token_file: Option<PathBuf>,

    /// Use HTTP/2 to the next node
    #[arg(long)]
    pub next_http2: bool,

    /// Maximum size of a frame
    #[arg(long, value_name = "SIZE", default_value = "8m")]
    pub max_frame: Size,

    /// Maximum size of all attachments of a frame
    #[arg(long, value_name = "SIZE", default_value = "64m")]
    pub max_attachments: Size,

    /// Time limit for the head of a request; its body has six times as long
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub patience: Span,

    /// Print the address, URL and process id as one line of JSON to standard output once the node listens
    #[arg(long)]
    pub json: bool,
}

impl MeshServeArgs {
    pub(super) fn max_frame_bytes(&self) -> usize {
        usize::try_from(self.max_frame.0).unwrap_or(usize::MAX)
    }
}

#[derive(Debug, Args)]
pub struct MeshSendArgs {
    /// File with the frame, or - for standard input; with --stream, a frame on each line
    #[arg(value_name = "FRAME")]
    pub frame: PathBuf,

    /// URL of the node
    #[arg(long, value_name = "URL", required_unless_present = "print")]
    pub to: Option<NodeAddress>,

    /// Attach this file; repeatable
    #[arg(long, value_name = "FILE", conflicts_with = "stream")]
    pub attach: Vec<PathBuf>,

    /// Sign the frame and add a credential with these keys
    #[arg(long, value_name = "FILE", conflicts_with = "stream")]
    pub key: Option<PathBuf>,

    /// Encrypt the Body and each MemoryGram for the agent of this trust file
    #[arg(long, value_name = "FILE", conflicts_with = "stream")]
    pub encrypt_to: Option<PathBuf>,

    /// Permit a node or agent blocks, or Body, of this message, signed with --key; repeatable
    #[arg(long, value_name = "URI=NAME[,NAME]", requires = "key")]
    pub grant: Vec<String>,

    /// Send lines as they arrive, and print each answer on a line
    #[arg(long)]
    pub stream: bool,

    /// Use HTTP/2 instead of HTTP/1.1
    #[arg(long)]
    pub http2: bool,

    /// File with the token for the node [default: LONGSHORE_MESH_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Time limit for the answer
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub timeout: Span,

    /// Print the signed and encrypted frame instead of sending it
    #[arg(long, conflicts_with = "stream")]
    pub print: bool,

    /// Print the answer on one line of JSON
    #[arg(long)]
    pub json: bool,
}
