//! The arguments of `longshore mesh`, as typed.

use clap::{Args, Subcommand};

/// `longshore mesh`.
#[derive(Debug, Args)]
pub struct MeshArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: MeshCommand,
}

/// What to do with the mesh.
#[derive(Debug, Subcommand)]
pub enum MeshCommand {
    /// Print what a story learned, or the MemoryGrams of a file, as a table or a graph
    Show(MeshShowArgs),
}

/// `longshore mesh show`.
#[derive(Debug, Args)]
pub struct MeshShowArgs {
    /// A file with a MemoryGram or a frame, - for standard input, or [SWARM/]STORY: what US-001 of the newest swarm learned
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
