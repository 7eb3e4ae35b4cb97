//! Every setting, declared once. Flags, variables, config files with their schema, defaults, help, checks and `doctor`'s rows
//! are made from these entries; see `declare.rs` for their form.
//!
//! To add a setting: an entry here, and its use. If `resume` needs it, also a field in `cli/run/persisted_settings.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::value_parser;

use super::agent_config::AgentConfig;
use super::declare::settings;
use super::error::SettingsError;
use super::layers::{SettingRow, SettingVisitor, SettingsLayer, find_value, merge_agents, merge_env};
use super::setting::Setting;
use super::source::{SettingSource, Sourced};
use super::variable::Variable;
use crate::cli::amounts::{Cpus, Size, Span, SpanOrOff};
use crate::coordinator::notify::NotifyUrl;
use crate::coordinator::{DEFAULT_MEMORY_BUDGET, MAX_MEMORY_BUDGET, Reserve};
use crate::plan::FanOut;
use crate::swarm::AckTimeouts;
use crate::swarm::spec::{DEFAULT_HEARTBEAT_TIMEOUT, DEFAULT_IDLE_TIMEOUT, DEFAULT_REVIEW_ROUNDS};

/// The image that `longshore images build` makes.
pub(crate) const DEFAULT_IMAGE: &str = "longshore/sandbox:latest";

/// Help of `--env`, which keeps invalid variables for an error that does not show their values.
pub(crate) const ENV_HELP: &str =
    "Environment variable for the sandboxes: KEY takes your own value, or KEY=VALUE; may be repeated";

const SECOND: Duration = Duration::from_secs(1);

settings! {
    /// A config file. Every key is optional.
    Config => Settings, at []
    {
        /// Agent for stories without a `command`: a name from `[agents.NAME]` in the config
        agent: String, unset("none"), plan_flag("--agent <NAME>");

        /// Image for the sandboxes
        image: String, default(DEFAULT_IMAGE), flag("--image <IMAGE>"),
            check(|image| image.trim().is_empty().then_some("it is empty"));

        /// Most sandboxes to run at once [default: metadata.maxConcurrency, else what memory and CPUs allow]
        #[schemars(range(min = 1, max = 1000))]
        max: u16, unset("automatic"), flag("--max <N>"), parse(parse_max),
            configure(|arg| arg.value_parser(value_parser!(u16).range(1..=1000)));

        /// What gets a sandbox of its own
        fan_out: FanOut, default(FanOut::Story), plan_flag("--fan-out <WHAT>");

        /// Network for the sandboxes, by its name in the engine
        network: String, default("none"), flag("--network <NAME>"), check(|network| check_network(network));

        /// Memory for each sandbox, swap included; 0 for no limit
        memory: Size, default(Size(2 << 30)), flag("--memory <SIZE>"),
            show(|size| if size.0 == 0 { "no limit".to_owned() } else { size.to_string() }),
            // Docker's own lower limit.
            check(|size| (1..6 << 20).contains(&size.0).then_some("a container needs at least 6m; 0 means no limit"));

        /// Start another sandbox only if the engine keeps this much free memory
        reserve_memory: Size, default(Size(Reserve::default().memory)), flag("--reserve-memory <SIZE>");

        /// Start another sandbox only if the engine keeps this much free disk
        reserve_disk: Size, default(Size(Reserve::default().disk)), flag("--reserve-disk <SIZE>");

        /// Most bytes of earlier stories' memories to give to a story, up to 64k; 0 for none
        memory_budget: Size, default(Size(DEFAULT_MEMORY_BUDGET as u64)), flag("--memory-budget <SIZE>"),
            show(|size| if size.0 == 0 { "nothing".to_owned() } else { size.to_string() }),
            check(|size| (size.0 > MAX_MEMORY_BUDGET as u64).then_some("at most 64k; 0 means none"));

        /// CPUs for each sandbox; 0 for no limit
        cpus: Cpus, default(Cpus(1000)), flag("--cpus <N>"),
            show(|cpus| if cpus.0 == 0 { "no limit".to_owned() } else { cpus.to_string() });

        /// Time limit for one story, checks included
        timeout: Span, default(Span(30 * 60 * SECOND)), flag("--timeout <TIME>"),
            check(|time| (time.0 < SECOND).then_some("a story needs at least 1s"));

        /// Treat an agent or a check as hung after this time without output or CPU use; `off` for never
        idle_timeout: SpanOrOff, default(SpanOrOff(DEFAULT_IDLE_TIMEOUT)), flag("--idle-timeout <TIME>"),
            check(|time| (!time.0.is_zero() && time.0 < SECOND).then_some("at least 1s; `off` means never"));

        /// Retries for a story that failed by its own doing
        retries: u32, default(1u32), flag("--retries <N>"),
            configure(|arg| arg.value_parser(value_parser!(u32).range(0..=100)));

        /// Shell command that must exit 0 on the merged tree before a story lands; may be repeated
        verify: Vec<String>, default(Vec::<String>::new()), flag("--verify <CMD>");

        /// Check each story's own commit, and not the merged tree, before it lands
        no_merge_check: bool, default(false), flag("--no-merge-check");

        /// Go on although the verify commands fail before anything was changed
        red_base: bool, default(false), flag("--red-base");

        /// Time between the polite signal and the kill when a sandbox is stopped
        grace: Span, default(Span(10 * SECOND)), flag("--grace <TIME>");

        /// Keep the swarm's containers and volumes when it is over; `longshore gc` removes them
        keep: bool, default(false), flag("--keep");

        /// Give the agents a mailbox for messages to each other [default: as `metadata.mailbox` of the tasks file says]
        mailbox: bool, unset("as the tasks files say"), plan_flag("--mailbox");

        /// Shell command to run for each escalation; gets the message as JSON on standard input, and LONGSHORE_ESCALATION_* variables
        notify: String, unset("none"), flag("--notify <CMD>"),
            check(|command| command.trim().is_empty().then_some("it is empty"));

        /// http or https URL to post each escalation to, as JSON; only its host is ever shown
        notify_url: String, unset("none"), flag("--notify-url <URL>"),
            show(|url| NotifyUrl::parse(url).map_or("...".to_owned(), |url| url.to_string())),
            check(|url| NotifyUrl::parse(url).err());
    }
    tables {
        /// `[review]`: review of finished work before it lands.
        review: ReviewConfig => ReviewSettings;
        /// `[amp]`: time limits for acks and for an agent's silence, in whole seconds. The admin is told when one passes.
        amp: AmpConfig => AmpSettings;
        /// `[git]`: the identity of the commits made in sandboxes and of merges, and their signature.
        git: GitConfig => GitSettings;
    }
    collected {
        /// Environment variables for the sandboxes: `KEY` takes your own value, or `KEY=VALUE`
        env: Option<Vec<Variable>> => Vec<Sourced<Variable>>, merge_env;
        /// `[agents.NAME]`: commands that can be agents
        agents: BTreeMap<String, AgentConfig> => BTreeMap<String, Sourced<AgentConfig>>, merge_agents;
    }
}

settings! {
    /// `[review]`: review of finished work before it lands.
    ReviewConfig => ReviewSettings, at [review]
    {
        /// Agent that reviews finished work before it lands: a name from `[agents.NAME]` in the config
        agent: String, unset("none"), name("review"), flag("--review <NAME>");

        /// Questions for the reviewer beside the stories' acceptance criteria
        criteria: Vec<String>, default(Vec::<String>::new()), name("review_criteria");

        /// Rejections after which a task is locked; AMP's own number is the most
        #[schemars(range(min = 1, max = 4))]
        rounds: u32, default(DEFAULT_REVIEW_ROUNDS), name("review_rounds"),
            check(|rounds| {
                let in_range = (1..=DEFAULT_REVIEW_ROUNDS).contains(rounds);
                (!in_range).then_some("AMP locks a task at its fourth rejection: 1 to 4")
            });
    }
}

settings! {
    /// `[amp]`: time limits for acks and for an agent's silence, in whole seconds. The admin is told when one passes.
    AmpConfig => AmpSettings, at [amp]
    {
        /// Time until a `task_dispatch` is acked, which is when an agent begins
        ack_dispatch: Span, default(Span(AckTimeouts::default().dispatch)), check(check_whole_seconds);
        /// Time until a `task_result` is acked
        ack_result: Span, default(Span(AckTimeouts::default().result)), check(check_whole_seconds);
        /// Time until a `review_request` is acked, which is when a reviewer begins
        ack_request: Span, default(Span(AckTimeouts::default().request)), check(check_whole_seconds);
        /// Time until a `review_verdict` is acked
        ack_verdict: Span, default(Span(AckTimeouts::default().verdict)), check(check_whole_seconds);
        /// Time without a message of an agent in the SSOT after which its sandbox is paused
        heartbeat: Span, default(Span(DEFAULT_HEARTBEAT_TIMEOUT)), check(check_whole_seconds);
    }
}

settings! {
    /// `[git]`: the identity of the commits made in sandboxes and of merges, and their signature.
    GitConfig => GitSettings, at [git]
    {
        /// `user.name` of commits
        name: String, unset("that of the repository");
        /// `user.email` of commits
        email: String, unset("that of the repository");
        /// Sign the commits that land with the key of your git config, on the host
        sign: bool, default(false);
    }
}

fn parse_max(text: &str) -> Result<u16, String> {
    match text.trim().parse() {
        Ok(max @ 1..=1000) => Ok(max),
        _ => Err(format!("`{text}` is not a number from 1 to 1000")),
    }
}

fn check_network(network: &str) -> Option<&'static str> {
    match network {
        "" => Some("it is empty; `none` means no network"),
        "host" => Some("a sandbox may not share the host's network"),
        name if name.starts_with("container:") => Some("a sandbox may not share another container's network"),
        _ => None,
    }
}

/// AMP gives ack times in whole seconds.
fn check_whole_seconds(time: &Span) -> Option<&'static str> {
    (time.0 < SECOND || time.0.subsec_nanos() != 0).then_some("it must be whole seconds, and at least one")
}
