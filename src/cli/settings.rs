//! The settings: flags over `LONGSHORE_*` over `.longshore.toml` in the repo over the user's config file over defaults.
//! Each value remembers where it came from, for `longshore doctor` and for error messages.
//!
//! Made by the commands. A list (`verify`) of a higher layer replaces the lower ones'; `env` and `agents` are merged by
//! name. Must not: touch the engine or git.

mod environment;
mod rows;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use super::amounts::{Cpus, Size, Span, SpanOrOff};
use super::args::{CommonPlanArgs, FanOutArg, RunArgs};
use super::config::{self, AgentConfig, Config, ConfigError};
use super::variable::{Variable, VariableError};
use crate::coordinator::notify::NotifyUrl;
use crate::coordinator::{DEFAULT_MEMORY_BUDGET, MAX_MEMORY_BUDGET, Reserve};
use crate::swarm::AckTimeouts;
use crate::swarm::spec::{DEFAULT_HEARTBEAT_TIMEOUT, DEFAULT_IDLE_TIMEOUT, DEFAULT_REVIEW_ROUNDS};

/// The image that `longshore images build` makes.
pub const DEFAULT_IMAGE: &str = "longshore/sandbox:latest";
/// The config file's name in a repository.
pub const REPO_CONFIG: &str = ".longshore.toml";

/// Why settings cannot be used.
#[derive(Debug, Error)]
pub enum SettingsError {
    /// A config file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A `LONGSHORE_*` variable.
    #[error("the environment variable `{name}` has a value that cannot be used: {problem}")]
    InvalidEnvironment {
        /// Which.
        name: String,
        /// Why not.
        problem: String,
    },
    /// `--env`.
    #[error("`--env`: {0}")]
    InvalidVariable(VariableError),
    /// An agent that no config file has.
    #[error("there is no agent `{name}` (asked for by {source_of_name}); {}", describe_known_agents(.known))]
    UnknownAgent {
        /// As asked for.
        name: String,
        /// By what.
        source_of_name: SettingSource,
        /// Those that there are.
        known: Vec<String>,
    },
    /// `--env KEY` without a value to take.
    #[error("`{key}` is not set in your environment, and {source_of_name} passes it on")]
    VariableNotSet {
        /// The name.
        key: String,
        /// What asked for it.
        source_of_name: SettingSource,
    },
    /// A value that JSON cannot carry.
    #[error("the value of `{key}` in your environment is not UTF-8")]
    VariableNotUtf8 {
        /// The name.
        key: String,
    },
    /// A number that makes no sense.
    #[error("{name} = `{value}` (from {source_of_value}) cannot be: {problem}")]
    InvalidValue {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: String,
        /// Its source.
        source_of_value: SettingSource,
        /// Why not.
        problem: &'static str,
    },
}

fn describe_known_agents(known: &[String]) -> String {
    if known.is_empty() {
        "no config file defines any".to_owned()
    } else {
        format!("known are: {}", known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))
    }
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingSource {
    /// Built in.
    Default,
    /// A config file.
    File(PathBuf),
    /// A `LONGSHORE_*` variable.
    Environment(String),
    /// A flag.
    Flag(String),
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingSource::Default => f.write_str("default"),
            SettingSource::File(path) => write!(f, "{}", path.display()),
            SettingSource::Environment(name) => f.write_str(name),
            SettingSource::Flag(flag) => f.write_str(flag),
        }
    }
}

/// A value and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Its source.
    pub source: SettingSource,
}

/// The settings, complete.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The agent's name.
    pub agent: Sourced<Option<String>>,
    /// Image.
    pub image: Sourced<String>,
    /// Sandboxes at once; none: by the tasks file or the machine.
    pub max: Sourced<Option<u16>>,
    /// Fan-out.
    pub fan_out: Sourced<FanOutArg>,
    /// Network.
    pub network: Sourced<String>,
    /// Memory of a sandbox.
    pub memory: Sourced<Size>,
    /// Memory that another sandbox must leave on the engine.
    pub reserve_memory: Sourced<Size>,
    /// Disk, likewise.
    pub reserve_disk: Sourced<Size>,
    /// Bytes of memory of earlier stories that a story is given.
    pub memory_budget: Sourced<Size>,
    /// CPUs of a sandbox.
    pub cpus: Sourced<Cpus>,
    /// Time for a story.
    pub timeout: Sourced<Span>,
    /// Time in which nothing may go on.
    pub idle_timeout: Sourced<SpanOrOff>,
    /// More tries.
    pub retries: Sourced<u32>,
    /// Verify commands for every story.
    pub verify: Sourced<Vec<String>>,
    /// From the polite signal to the kill.
    pub grace: Sourced<Span>,
    /// Keep the volumes.
    pub keep: Sourced<bool>,
    /// A mailbox for the agents; none: as the tasks files say.
    pub mailbox: Sourced<Option<bool>>,
    /// The reviewer's name.
    pub review: Sourced<Option<String>>,
    /// What it has to answer beside the criteria.
    pub review_criteria: Sourced<Vec<String>>,
    /// So many rejections lock a task.
    pub review_rounds: Sourced<u32>,
    /// A command that hears of each escalation.
    pub notify: Sourced<Option<String>>,
    /// A URL that does. May hold a secret.
    pub notify_url: Sourced<Option<String>>,
    /// AMP's clocks.
    pub amp: AmpSettings,
    /// Variables for the sandboxes, the agent's own not among them.
    pub env: Vec<Sourced<Variable>>,
    /// `git.name`.
    pub git_name: Sourced<Option<String>>,
    /// `git.email`.
    pub git_email: Sourced<Option<String>>,
    /// The agents that the config files define.
    pub agents: BTreeMap<String, Sourced<AgentConfig>>,
}

/// How long acks of the four types, and an agent's silence, may take.
#[derive(Debug, Clone, PartialEq)]
pub struct AmpSettings {
    /// Of a `task_dispatch`.
    pub ack_dispatch: Sourced<Span>,
    /// Of a `task_result`.
    pub ack_result: Sourced<Span>,
    /// Of a `review_request`.
    pub ack_request: Sourced<Span>,
    /// Of a `review_verdict`.
    pub ack_verdict: Sourced<Span>,
    /// Without a word in the SSOT.
    pub heartbeat: Sourced<Span>,
}

/// How the environment is read: in tests, from a table.
pub type EnvLookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The path of the user's config file: below `$XDG_CONFIG_HOME`, or `$HOME/.config`.
pub fn user_config_path(lookup: EnvLookup<'_>) -> Option<PathBuf> {
    let set = |name: &str| lookup(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // The XDG text: a relative path there is to be ignored.
    let folder = set("XDG_CONFIG_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| set("HOME").map(|home| home.join(".config")))?;
    Some(folder.join("longshore").join("config.toml"))
}

/// Layers the settings. `repo` is the root of the repository, where there is one. All problems at once.
pub fn load(flags: Config, repo: Option<&Path>, lookup: EnvLookup<'_>) -> Result<Settings, Vec<SettingsError>> {
    let mut problems = Vec::new();
    let environment = environment::environment_layer(lookup).unwrap_or_else(|faults| {
        problems.extend(faults);
        Config::default()
    });
    let mut layers = vec![SettingsLayer { origin: LayerOrigin::Flags, config: flags }];
    layers.push(SettingsLayer { origin: LayerOrigin::Environment, config: environment });
    for path in [repo.map(|root| root.join(REPO_CONFIG)), user_config_path(lookup)].into_iter().flatten() {
        match config::read_config(&path) {
            Ok(Some(config)) => layers.push(SettingsLayer { origin: LayerOrigin::File(path), config }),
            Ok(None) => {}
            Err(error) => problems.push(error.into()),
        }
    }
    let settings = merge_layers(&layers);
    problems.extend(validate(&settings));
    if problems.is_empty() { Ok(settings) } else { Err(problems) }
}

struct SettingsLayer {
    origin: LayerOrigin,
    config: Config,
}

enum LayerOrigin {
    Flags,
    Environment,
    File(PathBuf),
}

impl SettingsLayer {
    fn source(&self, name: &str) -> SettingSource {
        match &self.origin {
            LayerOrigin::Flags => SettingSource::Flag(format!("--{}", name.replace('_', "-"))),
            LayerOrigin::Environment => SettingSource::Environment(env_var_name(name)),
            LayerOrigin::File(path) => SettingSource::File(path.clone()),
        }
    }
}

fn env_var_name(setting: &str) -> String {
    format!("LONGSHORE_{}", setting.to_ascii_uppercase())
}

/// The highest layer's value. Layers come highest first.
fn highest_layer_value<T>(
    layers: &[SettingsLayer],
    name: &str,
    get: impl Fn(&Config) -> Option<T>,
) -> Option<Sourced<T>> {
    layers.iter().find_map(|layer| get(&layer.config).map(|value| Sourced { value, source: layer.source(name) }))
}

fn merge_layers(layers: &[SettingsLayer]) -> Settings {
    fn or_default<T>(found: Option<Sourced<T>>, default: T) -> Sourced<T> {
        found.unwrap_or(Sourced { value: default, source: SettingSource::Default })
    }
    fn as_optional<T>(found: Option<Sourced<T>>) -> Sourced<Option<T>> {
        match found {
            Some(Sourced { value, source }) => Sourced { value: Some(value), source },
            None => Sourced { value: None, source: SettingSource::Default },
        }
    }
    let mut env: Vec<Sourced<Variable>> = Vec::new();
    let mut agents = BTreeMap::new();
    for layer in layers {
        let mut own: Vec<Sourced<Variable>> = Vec::new();
        for variable in layer.config.env.iter().flatten() {
            // Within one layer the last one given counts; between layers, the higher one.
            own.retain(|known| known.value.key() != variable.key());
            if !env.iter().any(|known| known.value.key() == variable.key()) {
                own.push(Sourced { value: variable.clone(), source: layer.source("env") });
            }
        }
        env.extend(own);
        for (name, agent) in &layer.config.agents {
            let sourced = Sourced { value: agent.clone(), source: layer.source("agents") };
            agents.entry(name.clone()).or_insert(sourced);
        }
    }
    let acks = AckTimeouts::default();
    Settings {
        agent: as_optional(highest_layer_value(layers, "agent", |config| config.agent.clone())),
        image: or_default(
            highest_layer_value(layers, "image", |config| config.image.clone()),
            DEFAULT_IMAGE.to_owned(),
        ),
        max: as_optional(highest_layer_value(layers, "max", |config| config.max)),
        fan_out: or_default(highest_layer_value(layers, "fan_out", |config| config.fan_out), FanOutArg::Story),
        network: or_default(highest_layer_value(layers, "network", |config| config.network.clone()), "none".to_owned()),
        memory: or_default(highest_layer_value(layers, "memory", |config| config.memory), Size(2 << 30)),
        reserve_memory: or_default(
            highest_layer_value(layers, "reserve_memory", |config| config.reserve_memory),
            Size(Reserve::default().memory),
        ),
        reserve_disk: or_default(
            highest_layer_value(layers, "reserve_disk", |config| config.reserve_disk),
            Size(Reserve::default().disk),
        ),
        memory_budget: or_default(
            highest_layer_value(layers, "memory_budget", |config| config.memory_budget),
            Size(DEFAULT_MEMORY_BUDGET as u64),
        ),
        cpus: or_default(highest_layer_value(layers, "cpus", |config| config.cpus), Cpus(1000)),
        timeout: or_default(
            highest_layer_value(layers, "timeout", |config| config.timeout),
            Span(Duration::from_secs(1800)),
        ),
        idle_timeout: or_default(
            highest_layer_value(layers, "idle_timeout", |config| config.idle_timeout),
            SpanOrOff(DEFAULT_IDLE_TIMEOUT),
        ),
        retries: or_default(highest_layer_value(layers, "retries", |config| config.retries), 1),
        verify: or_default(highest_layer_value(layers, "verify", |config| config.verify.clone()), Vec::new()),
        grace: or_default(highest_layer_value(layers, "grace", |config| config.grace), Span(Duration::from_secs(10))),
        keep: or_default(highest_layer_value(layers, "keep", |config| config.keep), false),
        mailbox: as_optional(highest_layer_value(layers, "mailbox", |config| config.mailbox)),
        review: as_optional(highest_layer_value(layers, "review", |config| config.review.agent.clone())),
        review_criteria: or_default(
            highest_layer_value(layers, "review_criteria", |config| config.review.criteria.clone()),
            Vec::new(),
        ),
        review_rounds: or_default(
            highest_layer_value(layers, "review_rounds", |config| config.review.rounds),
            DEFAULT_REVIEW_ROUNDS,
        ),
        notify: as_optional(highest_layer_value(layers, "notify", |config| config.notify.clone())),
        notify_url: as_optional(highest_layer_value(layers, "notify_url", |config| config.notify_url.clone())),
        amp: AmpSettings {
            ack_dispatch: or_default(
                highest_layer_value(layers, "amp_ack_dispatch", |config| config.amp.ack_dispatch),
                Span(acks.dispatch),
            ),
            ack_result: or_default(
                highest_layer_value(layers, "amp_ack_result", |config| config.amp.ack_result),
                Span(acks.result),
            ),
            ack_request: or_default(
                highest_layer_value(layers, "amp_ack_request", |config| config.amp.ack_request),
                Span(acks.request),
            ),
            ack_verdict: or_default(
                highest_layer_value(layers, "amp_ack_verdict", |config| config.amp.ack_verdict),
                Span(acks.verdict),
            ),
            heartbeat: or_default(
                highest_layer_value(layers, "amp_heartbeat", |config| config.amp.heartbeat),
                Span(DEFAULT_HEARTBEAT_TIMEOUT),
            ),
        },
        env,
        git_name: as_optional(highest_layer_value(layers, "git_name", |config| config.git.name.clone())),
        git_email: as_optional(highest_layer_value(layers, "git_email", |config| config.git.email.clone())),
        agents,
    }
}

fn validate(settings: &Settings) -> Vec<SettingsError> {
    let mut problems = Vec::new();
    let mut bad = |name, value: String, source: &SettingSource, problem| {
        problems.push(SettingsError::InvalidValue { name, value, source_of_value: source.clone(), problem });
    };
    let Settings { memory, timeout, idle_timeout, image, network, .. } = settings;
    // Docker's own lower limit, told before anything is begun.
    if (1..6 << 20).contains(&memory.value.0) {
        bad("memory", memory.value.to_string(), &memory.source, "a container needs at least 6m; 0 means no limit");
    }
    if settings.memory_budget.value.0 > MAX_MEMORY_BUDGET as u64 {
        let budget = &settings.memory_budget;
        bad("memory_budget", budget.value.to_string(), &budget.source, "64k is the most; 0 is for nothing");
    }
    if timeout.value.0 < Duration::from_secs(1) {
        bad("timeout", timeout.value.to_string(), &timeout.source, "a story needs at least 1s");
    }
    if !idle_timeout.value.0.is_zero() && idle_timeout.value.0 < Duration::from_secs(1) {
        let problem = "a second is the least; `off` is for never";
        bad("idle_timeout", idle_timeout.value.to_string(), &idle_timeout.source, problem);
    }
    if !(1..=DEFAULT_REVIEW_ROUNDS).contains(&settings.review_rounds.value) {
        let rounds = &settings.review_rounds;
        bad(
            "review_rounds",
            rounds.value.to_string(),
            &rounds.source,
            "AMP locks a task at its fourth rejection: 1 to 4",
        );
    }
    let amp = &settings.amp;
    let clocks = [
        ("amp.ack_dispatch", &amp.ack_dispatch),
        ("amp.ack_result", &amp.ack_result),
        ("amp.ack_request", &amp.ack_request),
        ("amp.ack_verdict", &amp.ack_verdict),
        ("amp.heartbeat", &amp.heartbeat),
    ];
    for (name, clock) in clocks {
        // The protocol says ack times in whole seconds.
        if clock.value.0 < Duration::from_secs(1) || clock.value.0.subsec_nanos() != 0 {
            bad(name, clock.value.to_string(), &clock.source, "whole seconds, and at least one");
        }
    }
    if settings.notify.value.as_ref().is_some_and(|command| command.trim().is_empty()) {
        bad("notify", String::new(), &settings.notify.source, "it is empty");
    }
    if let Some(problem) = settings.notify_url.value.as_deref().and_then(|url| NotifyUrl::parse(url).err()) {
        // It may hold a secret, and is not shown.
        bad("notify_url", "...".to_owned(), &settings.notify_url.source, problem);
    }
    if image.value.trim().is_empty() {
        bad("image", image.value.clone(), &image.source, "it is empty");
    }
    match network.value.as_str() {
        "" => bad("network", String::new(), &network.source, "it is empty; `none` is no network"),
        "host" => bad("network", "host".to_owned(), &network.source, "a sandbox may not share the host's network"),
        name if name.starts_with("container:") => {
            bad("network", name.to_owned(), &network.source, "a sandbox may not share another container's network");
        }
        _ => {}
    }
    problems
}

impl Settings {
    /// The agent, looked up; `None` where none is asked for.
    pub fn agent(&self) -> Result<Option<(&str, &AgentConfig)>, SettingsError> {
        self.resolve_agent(&self.agent)
    }

    /// The reviewer, looked up; `None` where there is to be no review.
    pub fn reviewer(&self) -> Result<Option<(&str, &AgentConfig)>, SettingsError> {
        self.resolve_agent(&self.review)
    }

    fn resolve_agent(&self, wanted: &Sourced<Option<String>>) -> Result<Option<(&str, &AgentConfig)>, SettingsError> {
        let Some(name) = &wanted.value else { return Ok(None) };
        match self.agents.get_key_value(name) {
            Some((name, agent)) => Ok(Some((name, &agent.value))),
            None => Err(SettingsError::UnknownAgent {
                name: name.clone(),
                source_of_name: wanted.source.clone(),
                known: self.agents.keys().cloned().collect(),
            }),
        }
    }

    /// The variables for the sandboxes with their values: those of `env`, and those that the agent names where they are set.
    pub fn resolve_variables(&self, lookup: EnvLookup<'_>) -> Result<BTreeMap<String, String>, Vec<SettingsError>> {
        let mut values = BTreeMap::new();
        let mut problems = Vec::new();
        let mut take = |variable: &Variable, source: Option<&SettingSource>, values: &mut BTreeMap<String, String>| {
            let key = variable.key().to_owned();
            let value = match variable.value() {
                Some(value) => Some(OsString::from(value)),
                None => lookup(&key),
            };
            match (value.map(OsString::into_string), source) {
                (Some(Ok(value)), _) => {
                    values.insert(key, value);
                }
                (Some(Err(_)), _) => problems.push(SettingsError::VariableNotUtf8 { key }),
                (None, Some(source)) => {
                    problems.push(SettingsError::VariableNotSet { key, source_of_name: source.clone() })
                }
                (None, None) => {}
            }
        };
        // The agent's first, so that a flag can replace one of them.
        for (_, agent) in [self.reviewer(), self.agent()].into_iter().filter_map(Result::ok).flatten() {
            for variable in &agent.env {
                take(variable, None, &mut values);
            }
        }
        for Sourced { value, source } in &self.env {
            take(value, Some(source), &mut values);
        }
        if problems.is_empty() { Ok(values) } else { Err(problems) }
    }
}

/// The flags of `plan`, as a layer.
pub fn plan_layer(flags: &CommonPlanArgs) -> Config {
    let mailbox = flags.mailbox.then_some(true);
    Config { agent: flags.agent.clone(), fan_out: flags.fan_out, mailbox, ..Config::default() }
}

/// The flags of `run`, as a layer.
///
/// # Errors
/// The variables that cannot be; what else is typed wrong, clap has refused.
pub fn run_layer(args: &RunArgs) -> Result<Config, Vec<SettingsError>> {
    let mut env = Vec::new();
    let mut problems = Vec::new();
    for typed in &args.env {
        match &typed.0 {
            Ok(variable) => env.push(variable.clone()),
            Err(error) => problems.push(SettingsError::InvalidVariable(error.clone())),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(Config {
        image: args.image.clone(),
        max: args.max,
        network: args.network.clone(),
        memory: args.memory,
        reserve_memory: args.reserve_memory,
        reserve_disk: args.reserve_disk,
        memory_budget: args.memory_budget,
        cpus: args.cpus,
        timeout: args.timeout,
        idle_timeout: args.idle_timeout,
        retries: args.retries,
        verify: (!args.verify.is_empty()).then(|| args.verify.clone()),
        grace: args.grace,
        keep: args.keep.then_some(true),
        notify: args.notify.clone(),
        notify_url: args.notify_url.clone(),
        review: config::ReviewConfig { agent: args.review.clone(), ..Default::default() },
        env: (!env.is_empty()).then_some(env),
        ..plan_layer(&args.plan)
    })
}

#[cfg(test)]
mod tests;
