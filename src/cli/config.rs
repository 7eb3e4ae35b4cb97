//! The config files: `.longshore.toml` in the repo and `longshore/config.toml` in the user's config folder, both of one
//! shape. Unknown keys are errors, so that a slip does not pass for a setting.
//!
//! Read by `settings.rs`, which also puts flags and environment into the same shape to layer them. Must not: decide which
//! layer wins.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;
use thiserror::Error;

use super::amounts::{Cpus, Size, Span, SpanOrOff};
use super::args::FanOutArg;
use super::variable::Variable;

/// Why a config file cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// It is there and cannot be read.
    #[error("cannot read the config file `{}`", .path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is not a config file.
    #[error("{}:{line}:{column}: {problem}", .path.display())]
    Parse {
        /// Which.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// In characters, from 1.
        column: usize,
        /// What is wrong.
        problem: String,
    },
}

/// A config file. Everything is optional.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The agent for stories without a `command`: a name under `agents`.
    pub agent: Option<String>,
    /// Image for the sandboxes.
    pub image: Option<String>,
    /// Sandboxes at once.
    #[schemars(range(min = 1, max = 1000))]
    pub max: Option<u16>,
    /// `story` or `file`.
    pub fan_out: Option<FanOutArg>,
    /// Network for the sandboxes.
    pub network: Option<String>,
    /// Memory for each sandbox.
    pub memory: Option<Size>,
    /// Memory that the engine must have left for another sandbox to start.
    pub reserve_memory: Option<Size>,
    /// Disk, likewise.
    pub reserve_disk: Option<Size>,
    /// What a story is given of what the stories before it learned: the most bytes of it, up to "64k"; "0" for nothing.
    pub memory_budget: Option<Size>,
    /// CPUs for each sandbox.
    pub cpus: Option<Cpus>,
    /// Time for one story.
    pub timeout: Option<Span>,
    /// Time without output or CPU use after which an agent or a check counts as hung; `off` for never.
    pub idle_timeout: Option<SpanOrOff>,
    /// More tries for a story.
    pub retries: Option<u32>,
    /// Shell commands that must exit 0 after every story.
    pub verify: Option<Vec<String>>,
    /// From the polite signal to the kill.
    pub grace: Option<Span>,
    /// Keep the swarm's volumes.
    pub keep: Option<bool>,
    /// The agents have a mailbox, in which they write to each other; without this, where a tasks file says so.
    pub mailbox: Option<bool>,
    /// Environment variables for the sandboxes.
    pub env: Option<Vec<Variable>>,
    /// A shell command that hears of each escalation: the message's JSON on its standard input.
    pub notify: Option<String>,
    /// An http or https URL that each escalation is posted to. Never shown whole: it may hold a secret.
    pub notify_url: Option<String>,
    /// Who reviews finished work, and what for.
    pub review: ReviewConfig,
    /// AMP's clocks.
    pub amp: AmpConfig,
    /// Who commits.
    pub git: GitConfig,
    /// Commands that can be agents.
    pub agents: BTreeMap<String, AgentConfig>,
}

/// `[review]`: finished work is reviewed before it lands.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReviewConfig {
    /// The reviewer: a name under `agents`. Without one there is no review.
    pub agent: Option<String>,
    /// What the reviewer has to answer beside the stories' acceptance criteria.
    pub criteria: Option<Vec<String>>,
    /// So many rejections lock a task; the protocol's own number is the most.
    #[schemars(range(min = 1, max = 4))]
    pub rounds: Option<u32>,
}

/// `[amp]`: how long acks may take, and an agent may say nothing, before the admin hears of it. Whole seconds.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AmpConfig {
    /// The ack of a `task_dispatch`: until an agent has begun.
    pub ack_dispatch: Option<Span>,
    /// The ack of a `task_result`.
    pub ack_result: Option<Span>,
    /// The ack of a `review_request`: until a reviewer has begun.
    pub ack_request: Option<Span>,
    /// The ack of a `review_verdict`.
    pub ack_verdict: Option<Span>,
    /// Time without a word of an agent in the SSOT after which its sandbox is paused.
    pub heartbeat: Option<Span>,
}

/// `[git]`: the identity of the commits made in sandboxes and of merges. Without it, that of the repository.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GitConfig {
    /// `user.name`.
    pub name: Option<String>,
    /// `user.email`.
    pub email: Option<String>,
}

/// `[agents.NAME]`: a command that does a story.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentConfig {
    /// Program and arguments, without a shell. `{prompt_file}` and `{story}` in an argument are replaced.
    #[schemars(length(min = 1))]
    pub argv: Vec<String>,
    /// How the prompt reaches it.
    #[serde(default)]
    pub prompt: PromptConfig,
    /// Names of environment variables of the user's that it gets; those that are not set are left out.
    #[serde(default)]
    pub env: Vec<Variable>,
}

/// How the prompt reaches an agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PromptConfig {
    /// On its standard input.
    #[default]
    Stdin,
    /// In a file named by `LONGSHORE_PROMPT_FILE` and `{prompt_file}`.
    File,
}

/// Reads a config file; `None` where there is none.
pub fn read_config(path: &Path) -> Result<Option<Config>, ConfigError> {
    match std::fs::read_to_string(path) {
        Ok(text) => parse_config(&text, path).map(Some),
        Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(source) => Err(ConfigError::Read { path: path.to_owned(), source }),
    }
}

/// Reads a config file's text.
pub fn parse_config(text: &str, path: &Path) -> Result<Config, ConfigError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let fault = |offset: usize, problem: String| {
        let before = text.get(..offset.min(text.len())).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |start| start.chars().count()) + 1;
        ConfigError::Parse { path: path.to_owned(), line, column, problem }
    };
    let config: Config = toml::from_str(text)
        .map_err(|error| fault(error.span().map_or(0, |span| span.start), error.message().trim_end().to_owned()))?;
    // Serde's derive cannot say these two; the place is that of the key.
    let place = |key: &str| text.find(key).unwrap_or(0);
    if let Some(max @ (0 | 1001..)) = config.max {
        return Err(fault(place("max"), format!("`max` must be from 1 to 1000, found `{max}`")));
    }
    for (name, agent) in &config.agents {
        if agent.argv.first().is_none_or(String::is_empty) {
            let problem = format!("agent `{name}` has no program: `argv` must name one");
            return Err(fault(place(&format!("[agents.{name}]")), problem));
        }
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_error(text: &str) -> String {
        parse_config(text, Path::new("c.toml")).expect_err(text).to_string()
    }

    #[test]
    fn parses_a_full_config_file() {
        let text = r#"
            agent = "claude"
            image = "my/image:1"
            max = 3
            fan_out = "file"
            network = "bridge"
            memory = "512m"
            cpus = 1.5
            timeout = "20m"
            idle_timeout = "1h"
            retries = 2
            verify = ["make test"]
            grace = "5s"
            keep = true
            env = ["TOKEN", "MODE=fast"]
            [git]
            name = "Bot"
            email = "bot@example.org"
            [agents.claude]
            argv = ["claude", "-p"]
            prompt = "stdin"
            env = ["ANTHROPIC_API_KEY"]
        "#;
        let config = parse_config(text, Path::new("c.toml")).expect("a good file");
        assert_eq!(config.cpus, Some(Cpus(1500)));
        assert_eq!(config.memory, Some(Size(512 << 20)));
        assert_eq!(config.agents["claude"].argv, ["claude", "-p"]);
        assert_eq!(config.env.expect("given")[1].value(), Some("fast"));
    }

    #[test]
    fn errors_report_line_and_column() {
        let typo = parse_error("max = 3\nmemroy = \"2g\"\n");
        assert!(typo.starts_with("c.toml:2:1: unknown field `memroy`"), "{typo}");
        let unit = parse_error("timeout = \"30\"\n");
        assert!(unit.starts_with("c.toml:1:11: `30` has no unit"), "{unit}");
        let refused = parse_error("\n\nenv = [\"A\", \"PATH\"]\n");
        assert!(refused.starts_with("c.toml:3:") && refused.contains("`PATH` is refused"), "{refused}");
        assert!(parse_error("max = ").starts_with("c.toml:1:"));
        assert!(parse_error("image = 1\nmax = 0").contains("c.toml:1:9"));
        assert!(parse_error("keep = true\nmax = 0").starts_with("c.toml:2:1: `max` must be"));
        assert!(parse_error("[agents.x]\nargv = []").starts_with("c.toml:1:1: agent `x` has no program"));
        assert!(parse_error("[agents.x]\nargv = [\"a\"]\nshell = true").contains("unknown field `shell`"));
    }
}
