//! The command line as typed. The flags of settings come from `settings/declaration.rs`.
//!
//! To add a command: a variant of [`CliCommand`], its arguments below, a file in `cli/`, an arm in `dispatch.rs`.
//! Must not: read files, the environment or the clock.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::amounts::Size;
use super::settings::flags::{PlanFlags, RunFlags};
use super::settings::variable::VariableArg;
use super::settings::{DEFAULT_IMAGE, ENV_HELP};
use super::swarm_prefix::SwarmPrefix;

#[derive(Debug, Parser)]
#[command(
    name = "longshore",
    version,
    about = "Run the stories of a tasks file in Docker sandboxes with coding agents, and merge verified commits",
    after_help = "Exit codes: 0 every story landed; 1 a story did not land; 2 bad usage or input; 3 the machinery failed; \
                  4 waiting for the admin; 130 interrupted.",
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 110
)]
pub(crate) struct Cli {
    /// Work on the git repository that contains DIR [default: the current directory]
    #[arg(long, short = 'C', global = true, value_name = "DIR")]
    pub repo: Option<PathBuf>,

    #[command(subcommand)]
    pub command: CliCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Show what `run` would do with tasks files, and what is wrong with them
    Plan(Box<PlanArgs>),
    /// Run the stories of tasks files in sandboxes and merge their commits
    Run(Box<RunArgs>),
    /// Resume a swarm that was stopped or whose orchestrator died
    Resume(ResumeArgs),
    /// Show the state of a swarm
    Status(StatusArgs),
    /// Show the output of a story's sandbox
    Logs(LogsArgs),
    /// Stop a running swarm and keep its work
    Stop(StopArgs),
    /// List, show and apply work that did not land
    Salvage(SalvageArgs),
    /// Show and validate the swarm's AMP messages
    Ssot(super::ssot::args::SsotArgs),
    /// List what waits for a decision, and decide it
    Admin(super::admin::args::AdminArgs),
    /// Read and write messages in a mailbox of agents
    Mailbox(super::mailbox::args::MailboxArgs),
    /// Serve and call nodes of the agentic mesh, and show what stories learned
    Mesh(super::mesh::args::MeshArgs),
    /// Remove what dead swarms left in the engine
    Gc(GcArgs),
    /// Check git, engine, image and shim, and show all settings
    Doctor(DoctorArgs),
    /// List or build sandbox images
    Images {
        #[command(subcommand)]
        command: ImagesCommand,
    },
    /// Print the JSON schema of a file or stream that longshore reads or writes
    Schema {
        /// Name of the schema
        #[arg(value_enum)]
        what: SchemaName,
    },
    /// Print a completion script for a shell
    Completions {
        /// Name of the shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write all pages to a directory
    Man {
        /// Write longshore.1 and a page per command to this directory
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

/// Arguments of `plan` and `run`.
#[derive(Debug, Default, Args)]
pub(crate) struct CommonPlanArgs {
    /// Tasks files (JSON)
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Include stories that the file marks as done or skipped
    #[arg(long)]
    pub again: bool,

    /// Land on this branch instead of the file's `metadata.branchName` (one tasks file only)
    #[arg(long, value_name = "NAME")]
    pub branch: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub common: CommonPlanArgs,

    /// Print the plan as a JSON document to standard output (`longshore schema plan` describes it)
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub settings: PlanFlags,
}

#[derive(Debug, Default, Args)]
#[command(
    after_help = "Each setting can also be set by a LONGSHORE_* variable or in a config file; `longshore doctor` shows \
                        the values and where they come from."
)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub common: CommonPlanArgs,

    /// Print a versioned stream of events to standard output, one JSON object per line (`longshore schema events` describes it)
    #[arg(long)]
    pub json: bool,

    /// Answer yes to all questions: low and medium risk only, high-risk stories wait for `longshore admin approve`
    #[arg(long, short = 'y')]
    pub yes: bool,

    /// Start a new swarm even if an earlier one of the same tasks file did not finish
    #[arg(long)]
    pub new: bool,

    /// Write each story's outcome into the tasks files
    #[arg(long)]
    pub write_back: bool,

    /// Show no progress, only problems and the final table
    #[arg(long, short = 'q', conflicts_with = "json")]
    pub quiet: bool,

    #[command(flatten)]
    pub settings: RunFlags,

    #[arg(long, value_name = "KEY[=VALUE]", help = ENV_HELP, help_heading = "Settings")]
    pub env: Vec<VariableArg>,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Swarm id, or the start of one [default: the newest swarm]
    #[arg(value_name = "SWARM")]
    pub swarm: Option<SwarmPrefix>,

    /// Print the state as a JSON document to standard output (`longshore schema state` describes it)
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(override_usage = "longshore logs [OPTIONS] [SWARM] [STORY|ASSIGNMENT]")]
pub(crate) struct LogsArgs {
    /// Swarm id, then a story (US-001) or assignment (T-2026-001); without a swarm, uses the newest; without a story or assignment,
    /// lists the logs
    #[arg(num_args = 0..=2, value_names = ["SWARM", "STORY|ASSIGNMENT"])]
    pub names: Vec<String>,

    /// Follow the log until the swarm ends
    #[arg(long, short = 'f')]
    pub follow: bool,

    /// Show only the last N lines
    #[arg(long, short = 'n', value_name = "N", allow_negative_numbers = true)]
    pub tail: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// Swarm id, or the start of one [default: the newest swarm]
    #[arg(value_name = "SWARM")]
    pub swarm: Option<SwarmPrefix>,

    /// Value of a variable that the swarm was started with [default: your own value]; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<VariableArg>,

    /// Start another sandbox only if the engine keeps this much free memory [default: as before]
    #[arg(long, value_name = "SIZE")]
    pub reserve_memory: Option<Size>,

    /// Start another sandbox only if the engine keeps this much free disk [default: as before]
    #[arg(long, value_name = "SIZE")]
    pub reserve_disk: Option<Size>,

    /// Print a versioned stream of events to standard output, one JSON object per line (`longshore schema events` describes it)
    #[arg(long)]
    pub json: bool,

    /// Show only problems and the final table
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Swarm id, or the start of one [default: the newest swarm]
    #[arg(value_name = "SWARM")]
    pub swarm: Option<SwarmPrefix>,

    /// Kill the sandboxes instead of asking them to finish; their work is still salvaged
    #[arg(long)]
    pub kill: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SalvageArgs {
    #[command(subcommand)]
    pub command: Option<SalvageCommand>,
    #[command(flatten)]
    pub list: SalvageListArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SalvageCommand {
    /// List the refs that keep work, the newest swarm first
    List(SalvageListArgs),
    /// Show why work did not land, its commits and its changes
    Show(SalvageShowArgs),
    /// Put work into the index and the working tree, or on a branch; commits nothing
    Apply(SalvageApplyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SalvageListArgs {
    /// Only list this swarm, by its id or the start of it
    #[arg(long, value_name = "SWARM")]
    pub swarm: Option<SwarmPrefix>,

    /// Print one JSON object per line to standard output
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SalvageShowArgs {
    /// Name of a ref, or [SWARM/]STORY[/ATTEMPT]; US-003 is the newest attempt of the newest swarm
    #[arg(value_name = "REF|STORY")]
    pub work: String,

    /// Print only the difference from its base, as a patch
    #[arg(long, short)]
    pub patch: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SalvageApplyArgs {
    /// Name of a ref, or [SWARM/]STORY[/ATTEMPT]; US-003 is the newest attempt of the newest swarm
    #[arg(value_name = "REF|STORY")]
    pub work: String,

    /// Create this branch at the work, and touch nothing else
    #[arg(long, value_name = "NAME")]
    pub branch: Option<String>,
}

#[derive(Debug, Default, Args)]
pub(crate) struct GcArgs {
    /// Only clean up after these swarms, resumable or not; their work is salvaged first
    #[arg(value_name = "SWARM")]
    pub swarms: Vec<SwarmPrefix>,

    /// Only show what would be removed
    #[arg(long)]
    pub dry_run: bool,

    /// Also remove the objects volumes and what unfinished swarms left; their work is salvaged first
    #[arg(long)]
    pub all: bool,

    /// With --all or SWARM: also remove what cannot be salvaged, what swarms with a damaged record left, and idle swarms of
    /// other repositories; work may be lost
    #[arg(long)]
    pub force: bool,

    /// Also delete refs under refs/longshore/ of swarms whose directory is gone; commits that did not land may be lost
    #[arg(long)]
    pub refs: bool,

    /// Print one JSON object per line to standard output
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Check this image instead of the configured image
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,

    /// Print one JSON object per line to standard output
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImagesCommand {
    /// List the images built by longshore
    List,
    /// Build the sandbox image
    Build {
        /// Base image
        #[arg(long, value_name = "IMAGE", default_value = "debian:bookworm-slim")]
        base: String,
        /// Name of the image
        #[arg(long, value_name = "NAME", default_value = DEFAULT_IMAGE)]
        tag: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaName {
    /// A tasks file
    Tasks,
    /// swarm-state.json
    State,
    /// A line of `run --json`
    Events,
    /// The output of `plan --json`
    Plan,
    /// A config file
    Config,
    /// report.json
    Report,
    /// An AMP/1.0 message of any type
    Amp,
    /// The ack of an AMP/1.0 message
    AmpAck,
    /// The verdict file of a reviewer
    AmpVerdict,
}

#[cfg(test)]
mod tests;
