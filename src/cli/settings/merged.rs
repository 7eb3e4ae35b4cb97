//! What the merged settings give: the agents, the sandboxes' variables, `doctor`'s rows.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::agent_config::AgentConfig;
use super::declaration::Settings;
use super::environment::EnvLookup;
use super::error::SettingsError;
use super::layers::SettingRow;
use super::source::{SettingSource, Sourced};
use super::variable::Variable;

impl Settings {
    /// Every setting as `doctor` shows it, without the values of environment variables.
    pub(crate) fn rows(&self) -> Vec<SettingRow> {
        let mut rows = Vec::new();
        self.add_rows(&mut rows);
        let row = |name, value, source: &SettingSource| SettingRow { name, value, source: source.to_string() };
        rows.extend(self.env.iter().map(|env| row("env".to_owned(), env.value.to_string(), &env.source)));
        let agents = self.agents.iter();
        rows.extend(
            agents.map(|(name, agent)| row(format!("agents.{name}"), agent.value.argv.join(" "), &agent.source)),
        );
        rows
    }

    /// The agent's name and definition. `None` if there is no agent.
    pub(crate) fn agent(&self) -> Result<Option<(&str, &AgentConfig)>, SettingsError> {
        self.resolve_agent(&self.agent)
    }

    /// The reviewer's name and definition. `None` if there is no review.
    pub(crate) fn reviewer(&self) -> Result<Option<(&str, &AgentConfig)>, SettingsError> {
        self.resolve_agent(&self.review.agent)
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

    /// The variables for the sandboxes with their values: those of `env`, and those of the agents that are set.
    pub(crate) fn resolve_variables(
        &self,
        lookup: EnvLookup<'_>,
    ) -> Result<BTreeMap<String, String>, Vec<SettingsError>> {
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
        // The agents' first, so that a flag can replace them.
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
