//! `[agents.NAME]` of a config file.

use schemars::JsonSchema;
use serde::Deserialize;

use super::variable::Variable;
use crate::handoff::assignment::{AgentSpec, PromptDelivery};

/// `[agents.NAME]`: a command that does a story.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentConfig {
    /// Program and arguments, without a shell. `{prompt_file}` and `{story}` in an argument are replaced.
    #[schemars(length(min = 1))]
    pub argv: Vec<String>,
    /// How the agent gets its prompt.
    #[serde(default)]
    pub prompt: PromptConfig,
    /// Environment variables of yours that the agent gets. Those that are not set are left out.
    #[serde(default)]
    pub env: Vec<Variable>,
}

/// How an agent gets its prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PromptConfig {
    /// On its standard input.
    #[default]
    Stdin,
    /// In a file named by `LONGSHORE_PROMPT_FILE` and `{prompt_file}`.
    File,
}

impl AgentConfig {
    pub(crate) fn to_spec(&self, name: &str) -> AgentSpec {
        AgentSpec {
            name: name.to_owned(),
            argv: self.argv.clone(),
            prompt: match self.prompt {
                PromptConfig::Stdin => PromptDelivery::Stdin,
                PromptConfig::File => PromptDelivery::File,
            },
        }
    }
}
