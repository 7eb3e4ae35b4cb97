//! Reads the config files: `.longshore.toml` in the repository and `longshore/config.toml` in the user's config directory,
//! both of one shape. Unknown keys are errors, so that a typo does not pass for a setting.

use std::path::Path;

use super::declaration::Config;
use super::error::ConfigError;

/// Reads a config file. `None` if it does not exist.
pub(crate) fn read_config(path: &Path) -> Result<Option<Config>, ConfigError> {
    match std::fs::read_to_string(path) {
        Ok(text) => parse_config(&text, path).map(Some),
        Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(source) => Err(ConfigError::Read { path: path.to_owned(), source }),
    }
}

pub(crate) fn parse_config(text: &str, path: &Path) -> Result<Config, ConfigError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let fault = |offset: usize, problem: String| {
        let before = text.get(..offset.min(text.len())).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |start| start.chars().count()) + 1;
        ConfigError::Parse { path: path.to_owned(), line, column, problem }
    };
    let config: Config = toml::from_str(text)
        .map_err(|error| fault(error.span().map_or(0, |span| span.start), error.message().trim_end().to_owned()))?;
    // Serde cannot check these two. They are reported at their key.
    let offset = |key: &str| text.find(key).unwrap_or(0);
    if let Some(max @ (0 | 1001..)) = config.max {
        return Err(fault(offset("max"), format!("`max` must be from 1 to 1000, found `{max}`")));
    }
    for (name, agent) in &config.agents {
        if agent.argv.first().is_none_or(String::is_empty) {
            let problem = format!("agent `{name}` has no program: `argv` must name one");
            return Err(fault(offset(&format!("[agents.{name}]")), problem));
        }
    }
    Ok(config)
}
