//! How to run an agent: its command line, and how it gets its prompt. Part of an assignment and of a review.

use serde::{Deserialize, Serialize};

/// How to run an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentSpec {
    /// The agent's name in the config.
    pub name: String,
    /// Program and arguments. `{prompt_file}` and `{story}` in an argument are replaced.
    pub argv: Vec<String>,
    /// How the prompt reaches the agent.
    pub prompt: PromptDelivery,
}

impl AgentSpec {
    /// Program and arguments with the placeholders replaced.
    pub fn expand_argv(&self, prompt_file: &str, story: &str) -> Vec<String> {
        let expand = |arg: &String| arg.replace("{prompt_file}", prompt_file).replace("{story}", story);
        self.argv.iter().map(expand).collect()
    }
}

/// How the prompt reaches an agent. Never through argv, which is limited to 128 KB and visible in process lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptDelivery {
    /// On standard input, which then ends.
    #[default]
    Stdin,
    /// In a file, whose path is in `LONGSHORE_PROMPT_FILE` and replaces `{prompt_file}`.
    File,
}
