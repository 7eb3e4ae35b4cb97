//! The `LONGSHORE_*` variables, as a layer of the settings.

use std::ffi::OsString;

use super::declaration::Config;
use super::error::SettingsError;
use super::layers::SettingVisitor;
use super::setting::{Setting, SettingValue, env_var_name};
use super::variable::{Variable, VariableError};

/// Looks a variable up in the environment, or in a table of a test.
pub(crate) type EnvLookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

pub(super) fn environment_layer(lookup: EnvLookup<'_>) -> Result<Config, Vec<SettingsError>> {
    let mut reader = EnvironmentReader { lookup, problems: Vec::new() };
    let mut config = Config::visit(&mut reader);
    config.env = reader.read_variable(env_var_name("env"), parse_variables);
    if reader.problems.is_empty() { Ok(config) } else { Err(reader.problems) }
}

struct EnvironmentReader<'a> {
    lookup: EnvLookup<'a>,
    problems: Vec<SettingsError>,
}

impl EnvironmentReader<'_> {
    fn read_variable<T>(&mut self, name: String, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let value = (self.lookup)(&name).filter(|value| !value.is_empty())?;
        let parsed = value.to_str().ok_or_else(|| "it is not UTF-8".to_owned()).and_then(parse);
        parsed.map_err(|problem| self.problems.push(SettingsError::InvalidEnvironment { name, problem })).ok()
    }
}

impl SettingVisitor for EnvironmentReader<'_> {
    fn visit<T: SettingValue>(&mut self, setting: &Setting<T>) -> Option<T> {
        self.read_variable(setting.env(), |text| setting.parse_env(text))
    }
}

/// Parses `A,B=1,C`.
fn parse_variables(text: &str) -> Result<Vec<Variable>, String> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.map(|name| name.parse().map_err(|error: VariableError| error.to_string())).collect()
}
