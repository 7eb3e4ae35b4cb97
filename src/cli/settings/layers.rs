//! Layers of settings, the highest first, and how they are merged: the highest value counts. `env` and `agents` are merged
//! by name.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::agent_config::AgentConfig;
use super::setting::{Setting, SettingValue, env_var_name};
use super::source::{SettingSource, Sourced};
use super::variable::Variable;

/// Visits every setting and gives the values of a layer.
pub(super) trait SettingVisitor {
    fn visit<T: SettingValue>(&mut self, setting: &Setting<T>) -> Option<T>;
}

/// A setting as `doctor` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SettingRow {
    pub name: String,
    pub value: String,
    pub source: String,
}

pub(super) struct SettingsLayer<C> {
    pub origin: LayerOrigin,
    pub config: C,
}

pub(super) enum LayerOrigin {
    Flags,
    Environment,
    File(PathBuf),
}

impl<C> SettingsLayer<C> {
    fn source(&self, name: &str, flag: &'static str) -> SettingSource {
        match &self.origin {
            LayerOrigin::Flags => SettingSource::Flag(flag),
            LayerOrigin::Environment => SettingSource::Environment(env_var_name(name)),
            LayerOrigin::File(path) => SettingSource::File(path.clone()),
        }
    }
}

/// The value of the highest layer that has one.
pub(super) fn find_value<C, T: SettingValue>(
    layers: &[SettingsLayer<C>],
    setting: &Setting<T>,
    get: impl Fn(&C) -> Option<T>,
) -> Option<Sourced<T>> {
    layers.iter().find_map(|layer| {
        let source = || layer.source(setting.name, setting.flag_name().unwrap_or("a flag"));
        get(&layer.config).map(|value| Sourced { value, source: source() })
    })
}

/// Merges variables by their key. Within a layer the last one counts.
pub(super) fn merge_env<C>(
    layers: &[SettingsLayer<C>],
    get: impl Fn(&C) -> &Option<Vec<Variable>>,
) -> Vec<Sourced<Variable>> {
    let mut env: Vec<Sourced<Variable>> = Vec::new();
    for layer in layers {
        let mut added: Vec<Sourced<Variable>> = Vec::new();
        for variable in get(&layer.config).iter().flatten() {
            added.retain(|known| known.value.key() != variable.key());
            if !env.iter().any(|known| known.value.key() == variable.key()) {
                added.push(Sourced { value: variable.clone(), source: layer.source("env", "--env") });
            }
        }
        env.extend(added);
    }
    env
}

pub(super) fn merge_agents<C>(
    layers: &[SettingsLayer<C>],
    get: impl Fn(&C) -> &BTreeMap<String, AgentConfig>,
) -> BTreeMap<String, Sourced<AgentConfig>> {
    let mut agents = BTreeMap::new();
    for layer in layers {
        for (name, agent) in get(&layer.config) {
            let sourced = || Sourced { value: agent.clone(), source: layer.source("agents", "a flag") };
            agents.entry(name.clone()).or_insert_with(sourced);
        }
    }
    agents
}
