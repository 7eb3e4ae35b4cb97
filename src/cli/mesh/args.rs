//! The arguments of `longshore mesh`, as typed.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cli::amounts::{Size, Span};
use crate::protocol::mesh::http::Address;

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
}

/// `longshore mesh serve`.
#[derive(Debug, Args)]
pub struct MeshServeArgs {
    /// Where to listen; port 0 takes a free one. Anything but this machine itself needs a token
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7117")]
    pub listen: SocketAddr,

    /// The node's own URI [default: the URL that it listens at]
    #[arg(long, value_name = "URI")]
    pub uri: Option<String>,

    /// Be an intermediary: relay to the node at this URL
    #[arg(long, value_name = "URL")]
    pub forward: Option<Address>,

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

    /// Time for the head and for the rest of a request to arrive
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
    #[arg(long, value_name = "URL")]
    pub to: Address,

    /// Send this file along; may be given again
    #[arg(long, value_name = "FILE", conflicts_with = "stream")]
    pub attach: Vec<PathBuf>,

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

    /// Print the answer as it came, on one line
    #[arg(long)]
    pub json: bool,
}
