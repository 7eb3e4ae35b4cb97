//! The command line as typed. `settings.rs` makes usable values of it; `cli/<command>.rs` acts on it.
//!
//! To add a command: a variant of [`CliCommand`], its arguments below, a file in `cli/`, an arm in `cli/mod.rs`.
//! Must not: read files, the environment or the clock.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::amounts::{Cpus, Size, Span, SpanOrOff};
use super::variable::VariableArg;
use crate::ids::SwarmId;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "longshore",
    version,
    about = "Fans the stories of a tasks file out over hardened Docker sandboxes and merges verified commits",
    after_help = "Exit codes: 0 every story landed; 1 some story did not; 2 bad usage or input; 3 the machinery failed; \
                  4 what is left waits for the admin; 130 interrupted.",
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 110
)]
pub struct Cli {
    /// Work on the git repository that this folder is in, instead of the current one
    #[arg(long, short = 'C', global = true, value_name = "DIR")]
    pub repo: Option<PathBuf>,

    /// What to do.
    #[command(subcommand)]
    pub command: CliCommand,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Show waves, assignments and branches of tasks files, and what is wrong with them; runs nothing
    Plan(PlanArgs),
    /// Run the stories of tasks files in sandboxes and merge what they commit
    Run(Box<RunArgs>),
    /// Go on with a swarm that was stopped or whose orchestrator died
    Resume(ResumeArgs),
    /// Show how a swarm stands
    Status(StatusArgs),
    /// Show what a story's sandbox printed
    Logs(LogsArgs),
    /// Stop a running swarm; its work is kept
    Stop(StopArgs),
    /// List, show and take over work that did not land and is kept under refs
    Salvage(SalvageArgs),
    /// Tell and check what coordinator, sandboxes and admin said to each other (AMP)
    Ssot(super::ssot::args::SsotArgs),
    /// List what waits for a person, and decide it: for a running swarm, and for one that does not run
    Admin(super::admin::args::AdminArgs),
    /// Read along where agents talk to each other, and take part
    Mailbox(super::mailbox::args::MailboxArgs),
    /// Be a node of the agentic mesh over HTTP, send frames to one, and look at what stories learned
    Mesh(super::mesh::args::MeshArgs),
    /// Remove what dead swarms left behind in the engine
    Gc(GcArgs),
    /// Check git, engine, image and shim, and show every setting with its source
    Doctor(DoctorArgs),
    /// List or build the images that sandboxes run
    Images {
        /// What to do with them.
        #[command(subcommand)]
        command: ImagesCommand,
    },
    /// Print the JSON schema of a file or stream that longshore reads or writes
    Schema(SchemaArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print the manual page, or write all of them into a folder
    Man(ManArgs),
}

/// How stories are spread over sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FanOutArg {
    /// A sandbox for each story, started when the stories it depends on have landed
    Story,
    /// A sandbox for each tasks file
    File,
}

/// What `plan` and `run` both take.
#[derive(Debug, Default, Args)]
pub struct CommonPlanArgs {
    /// Tasks files (JSON)
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// One sandbox for each story, or for each tasks file [default: story]
    #[arg(long, value_enum, value_name = "WHAT", hide_possible_values = false)]
    pub fan_out: Option<FanOutArg>,

    /// Run also the stories that the file says are done or skipped
    #[arg(long)]
    pub again: bool,

    /// Land on this branch instead of the file's `metadata.branchName` (one tasks file only)
    #[arg(long, value_name = "NAME")]
    pub branch: Option<String>,

    /// Agent for stories without a `command`: a name from `[agents.NAME]` in the config
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,

    /// Give the agents a mailbox, in which they write to each other [default: where a tasks file says `metadata.mailbox`]
    #[arg(long)]
    pub mailbox: bool,

    /// Write JSON on standard output
    #[arg(long)]
    pub json: bool,
}

/// `longshore plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Shared with `run`.
    #[command(flatten)]
    pub plan: CommonPlanArgs,
}

/// `longshore run`.
#[derive(Debug, Default, Args)]
pub struct RunArgs {
    /// Shared with `plan`.
    #[command(flatten)]
    pub plan: CommonPlanArgs,

    /// Sandboxes at once [default: metadata.maxConcurrency, else what memory and CPUs allow]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000), allow_negative_numbers = true)]
    pub max: Option<u16>,

    /// Image for the sandboxes [default: longshore/sandbox:latest]
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,

    /// Shell command that must exit 0 after every story; may be given again
    #[arg(long, value_name = "CMD")]
    pub verify: Vec<String>,

    /// Network for the sandboxes, by its name in the engine [default: none]
    #[arg(long, value_name = "NAME")]
    pub network: Option<String>,

    /// Memory for each sandbox, swap included; 0 for no limit [default: 2g]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub memory: Option<Size>,

    /// Memory that the engine must have left for another sandbox to start [default: 256m]
    #[arg(long, value_name = "SIZE")]
    pub reserve_memory: Option<Size>,

    /// Disk that the engine must have left for another sandbox to start [default: 1g]
    #[arg(long, value_name = "SIZE")]
    pub reserve_disk: Option<Size>,

    /// What a story is given of what the stories before it learned: the most bytes of it, up to 64k; 0 for nothing [default: 16k]
    #[arg(long, value_name = "SIZE")]
    pub memory_budget: Option<Size>,

    /// CPUs for each sandbox; 0 for no limit [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub cpus: Option<Cpus>,

    /// Time for one story, checks included [default: 30m]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub timeout: Option<Span>,

    /// Time without any output or CPU use after which an agent or a check counts as hung; off for never [default: 10m]
    #[arg(long, value_name = "TIME")]
    pub idle_timeout: Option<SpanOrOff>,

    /// More tries for a story that failed by its own doing [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100), allow_negative_numbers = true)]
    pub retries: Option<u32>,

    /// Have finished work reviewed before it lands, by this agent: a name from `[agents.NAME]` in the config
    #[arg(long, value_name = "NAME")]
    pub review: Option<String>,

    /// Shell command that hears of each escalation: the message as JSON on standard input, LONGSHORE_ESCALATION_* variables
    #[arg(long, value_name = "CMD")]
    pub notify: Option<String>,

    /// URL that each escalation is posted to, as JSON; http or https
    #[arg(long, value_name = "URL")]
    pub notify_url: Option<String>,

    /// Environment variable for the sandboxes: KEY takes your own value, or KEY=VALUE; may be given again
    #[arg(long, value_name = "KEY[=VALUE]")]
    pub env: Vec<VariableArg>,

    /// Time from the polite signal to the kill when a sandbox is stopped [default: 10s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub grace: Option<Span>,

    /// Keep the containers and volumes of the swarm when it is over, to look into them (`longshore gc` removes them)
    #[arg(long)]
    pub keep: bool,

    /// Answer yes to what would be asked: low and medium risk only; stories of high risk wait for `longshore admin approve`
    #[arg(long, short = 'y')]
    pub yes: bool,

    /// Start a fresh swarm although an earlier one of the same tasks file did not finish
    #[arg(long)]
    pub new: bool,

    /// Write each story's outcome into the tasks files
    #[arg(long)]
    pub write_back: bool,

    /// No progress: only problems and the final table
    #[arg(long, short = 'q', conflicts_with = "json")]
    pub quiet: bool,
}

/// `longshore status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The swarm, or the beginning of its id [default: the newest]
    #[arg(value_name = "SWARM")]
    pub swarm: Option<SwarmPrefix>,

    /// Print swarm-state.json as it is
    #[arg(long)]
    pub json: bool,
}

/// `longshore logs`.
#[derive(Debug, Args)]
#[command(override_usage = "longshore logs [OPTIONS] [SWARM] [STORY|ASSIGNMENT]")]
pub struct LogsArgs {
    /// The swarm (the newest where it is left out), and the story (US-001) or assignment (T-2026-001); without one, the logs
    /// that there are
    #[arg(num_args = 0..=2, value_names = ["SWARM", "STORY|ASSIGNMENT"])]
    pub names: Vec<String>,

    /// Go on printing until the swarm ends
    #[arg(long, short = 'f')]
    pub follow: bool,

    /// Only the last N lines
    #[arg(long, short = 'n', value_name = "N", allow_negative_numbers = true)]
    pub tail: Option<usize>,
}

/// `longshore resume`.
#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// The swarm, or the beginning of its id [default: the newest]
    #[arg(value_name = "SWARM")]
    pub swarm: Option<SwarmPrefix>,

    /// Value of a variable that the swarm was started with; without it, it is taken from the environment
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<VariableArg>,

    /// Memory that the engine must have left for another sandbox to start [default: as it was begun]
    #[arg(long, value_name = "SIZE")]
    pub reserve_memory: Option<Size>,

    /// Disk that the engine must have left for another sandbox to start [default: as it was begun]
    #[arg(long, value_name = "SIZE")]
    pub reserve_disk: Option<Size>,

    /// Write a versioned stream of JSON events on standard output
    #[arg(long)]
    pub json: bool,

    /// Show problems only
    #[arg(long, short)]
    pub quiet: bool,
}

/// `longshore stop`.
#[derive(Debug, Args)]
pub struct StopArgs {
    /// The swarm, or the beginning of its id [default: the newest]
    #[arg(value_name = "SWARM")]
    pub swarm: Option<SwarmPrefix>,

    /// Kill the sandboxes at once instead of asking them to finish; their work is still salvaged
    #[arg(long)]
    pub kill: bool,
}

/// `longshore salvage`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct SalvageArgs {
    /// Without one: `list`.
    #[command(subcommand)]
    pub command: Option<SalvageCommand>,
    /// Of `list`.
    #[command(flatten)]
    pub list: SalvageListArgs,
}

/// What to do with kept work.
#[derive(Debug, Subcommand)]
pub enum SalvageCommand {
    /// A line for each ref that keeps work, the newest swarm first
    List(SalvageListArgs),
    /// Why the work did not land, its commits and the files that it changes
    Show(SalvageShowArgs),
    /// Put the work into the index and the working tree, or onto a branch; commits nothing
    Apply(SalvageApplyArgs),
}

/// `longshore salvage list`.
#[derive(Debug, Args)]
pub struct SalvageListArgs {
    /// Only of this swarm, by its id or the beginning of it
    #[arg(long, value_name = "SWARM")]
    pub swarm: Option<SwarmPrefix>,

    /// Write a JSON object a line on standard output
    #[arg(long)]
    pub json: bool,
}

/// `longshore salvage show`.
#[derive(Debug, Args)]
pub struct SalvageShowArgs {
    /// A ref's name, or [SWARM/]STORY[/ATTEMPT]: US-003 is the newest attempt of the newest swarm
    #[arg(value_name = "REF|STORY")]
    pub work: String,

    /// Print the difference from its base as a patch, and nothing else
    #[arg(long, short)]
    pub patch: bool,
}

/// `longshore salvage apply`.
#[derive(Debug, Args)]
pub struct SalvageApplyArgs {
    /// A ref's name, or [SWARM/]STORY[/ATTEMPT]: US-003 is the newest attempt of the newest swarm
    #[arg(value_name = "REF|STORY")]
    pub work: String,

    /// Make this branch at the work instead, and touch nothing else
    #[arg(long, value_name = "NAME")]
    pub branch: Option<String>,
}

/// `longshore gc`.
#[derive(Debug, Default, Args)]
pub struct GcArgs {
    /// Only what these swarms left, resumable or not: what is not on the host is salvaged before it is removed
    #[arg(value_name = "SWARM")]
    pub swarms: Vec<SwarmPrefix>,

    /// Only say what would be removed
    #[arg(long)]
    pub dry_run: bool,

    /// Also what belongs to unfinished swarms, after salvaging what is not on the host, and the objects volumes
    #[arg(long)]
    pub all: bool,

    /// With --all or SWARM: also what could not be salvaged, what swarms with a damaged record left, and other repositories'
    /// swarms of which nothing runs: work may be lost
    #[arg(long)]
    pub force: bool,

    /// Also refs under refs/longshore/ of swarms whose folder is gone: commits that did not land may be lost
    #[arg(long)]
    pub refs: bool,

    /// Write a JSON object a line on standard output
    #[arg(long)]
    pub json: bool,
}

/// `longshore doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Check this image instead of the configured one
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,

    /// Write a JSON object a line on standard output
    #[arg(long)]
    pub json: bool,
}

/// `longshore images`.
#[derive(Debug, Subcommand)]
pub enum ImagesCommand {
    /// List the images that longshore built
    List,
    /// Build the sandbox image
    Build {
        /// Image to build upon
        #[arg(long, value_name = "IMAGE", default_value = "debian:bookworm-slim")]
        base: String,
        /// Name for the image
        #[arg(long, value_name = "NAME", default_value = super::settings::DEFAULT_IMAGE)]
        tag: String,
    },
}

/// `longshore schema`.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// Which schema
    #[arg(value_enum)]
    pub what: SchemaName,
}

/// What there are schemas of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaName {
    /// The tasks file
    Tasks,
    /// swarm-state.json
    State,
    /// A line of `run --json`
    Events,
    /// The output of `plan --json`
    Plan,
    /// The config files
    Config,
    /// report.json
    Report,
    /// A message of AMP/1.0, of any type
    Amp,
    /// The ack of one
    AmpAck,
    /// A reviewer's verdict file
    AmpVerdict,
}

/// `longshore completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Which shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `longshore man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Write longshore.1 and a page for each command into this folder
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// A swarm by its id or the beginning of it: at least four characters of hexadecimal digits and `-`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwarmPrefix(String);

impl SwarmPrefix {
    /// Whether this names that swarm.
    pub fn matches(&self, swarm: &SwarmId) -> bool {
        swarm.to_string().starts_with(&self.0)
    }

    /// As typed, in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for SwarmPrefix {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        if (4..=36).contains(&lower.len()) && lower.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-') {
            Ok(Self(lower))
        } else {
            Err("a swarm is named by its id or at least the first four characters of it".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn clap_definition_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_flag_has_help() {
        fn check(command: &clap::Command) {
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{} {}", command.get_name(), argument.get_id());
            }
            for below in command.get_subcommands() {
                assert!(below.get_about().is_some(), "{}", below.get_name());
                check(below);
            }
        }
        check(&Cli::command());
    }

    #[test]
    fn run_parses_its_flags() {
        let line = "longshore run a.json b.json --max 3 --fan-out file --image i --agent x --verify true --verify ls \
                    --network bridge --memory 512m --cpus 1.5 --timeout 90s --idle-timeout off --retries 0 --keep --yes --json --again \
                    --write-back --env A=1 --env B --grace 2s";
        let cli = Cli::try_parse_from(line.split_whitespace()).expect("a good command line");
        let CliCommand::Run(run) = cli.command else { panic!("run") };
        assert_eq!(run.plan.files.len(), 2);
        assert_eq!(run.max, Some(3));
        assert_eq!(run.verify, ["true", "ls"]);
        assert_eq!(run.memory, Some(Size(512 << 20)));
        assert_eq!(run.cpus, Some(Cpus(1500)));
        assert_eq!(run.idle_timeout, Some(SpanOrOff(std::time::Duration::ZERO)));
        assert_eq!(run.env.len(), 2);
        assert!(run.keep && run.yes && run.write_back && run.plan.json && run.plan.again);
    }

    #[test]
    fn swarm_prefix_matches_swarm_ids() {
        let swarm: SwarmId = "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d".parse().expect("valid");
        assert!("a1b2".parse::<SwarmPrefix>().expect("valid").matches(&swarm));
        assert!("A1B2C3D4-e5f6".parse::<SwarmPrefix>().expect("valid").matches(&swarm));
        assert!(!"b1b2".parse::<SwarmPrefix>().expect("valid").matches(&swarm));
        assert!("a1".parse::<SwarmPrefix>().is_err());
        assert!("US-001".parse::<SwarmPrefix>().is_err());
    }
}
