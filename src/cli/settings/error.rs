//! Why settings cannot be used.

use std::path::PathBuf;

use thiserror::Error;

use super::source::SettingSource;
use super::variable::VariableError;

#[derive(Debug, Error)]
pub(crate) enum SettingsError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("the environment variable `{name}` has an invalid value: {problem}")]
    InvalidEnvironment { name: String, problem: String },
    #[error("`--env`: {0}")]
    InvalidVariable(VariableError),
    #[error("there is no agent `{name}` (asked for by {source_of_name}); {}", describe_known_agents(.known))]
    UnknownAgent { name: String, source_of_name: SettingSource, known: Vec<String> },
    #[error("`{key}` is not set in your environment, and {source_of_name} passes it on")]
    VariableNotSet { key: String, source_of_name: SettingSource },
    #[error("the value of `{key}` in your environment is not UTF-8")]
    VariableNotUtf8 { key: String },
    #[error("{name} = `{value}` (from {source_of_value}) is invalid: {problem}")]
    InvalidValue { name: &'static str, value: String, source_of_value: SettingSource, problem: &'static str },
}

/// Why a config file cannot be used.
#[derive(Debug, Error)]
pub(crate) enum ConfigError {
    #[error("cannot read the config file `{}`", .path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// `line` and `column` count from 1, `column` in characters.
    #[error("{}:{line}:{column}: {problem}", .path.display())]
    Parse { path: PathBuf, line: usize, column: usize, problem: String },
}

fn describe_known_agents(known: &[String]) -> String {
    if known.is_empty() {
        "no config file defines any".to_owned()
    } else {
        format!("known are: {}", known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))
    }
}
