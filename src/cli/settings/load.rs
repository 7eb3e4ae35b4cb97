//! Loads and merges the layers: flags over `LONGSHORE_*` over `.longshore.toml` over the user's config file over defaults.

use std::path::{Path, PathBuf};

use super::config_file::read_config;
use super::declaration::{Config, Settings};
use super::environment::{EnvLookup, environment_layer};
use super::error::SettingsError;
use super::layers::{LayerOrigin, SettingsLayer};

/// The config file's name in a repository.
const REPO_CONFIG: &str = ".longshore.toml";

/// Merges `flags` and the other layers. `repo` is the root of the repository, if there is one. Reports all problems.
pub(crate) fn load(flags: Config, repo: Option<&Path>, lookup: EnvLookup<'_>) -> Result<Settings, Vec<SettingsError>> {
    let mut problems = Vec::new();
    let environment = environment_layer(lookup).unwrap_or_else(|faults| {
        problems.extend(faults);
        Config::default()
    });
    let mut layers = vec![
        SettingsLayer { origin: LayerOrigin::Flags, config: flags },
        SettingsLayer { origin: LayerOrigin::Environment, config: environment },
    ];
    for path in [repo.map(|root| root.join(REPO_CONFIG)), user_config_path(lookup)].into_iter().flatten() {
        match read_config(&path) {
            Ok(Some(config)) => layers.push(SettingsLayer { origin: LayerOrigin::File(path), config }),
            Ok(None) => {}
            Err(error) => problems.push(error.into()),
        }
    }
    let settings = Settings::merge(&layers);
    settings.add_problems(&mut problems);
    if problems.is_empty() { Ok(settings) } else { Err(problems) }
}

/// The path of the user's config file: below `$XDG_CONFIG_HOME`, or `$HOME/.config`.
fn user_config_path(lookup: EnvLookup<'_>) -> Option<PathBuf> {
    let set = |name: &str| lookup(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // The XDG specification has relative paths ignored.
    let dir = set("XDG_CONFIG_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| set("HOME").map(|home| home.join(".config")))?;
    Some(dir.join("longshore").join("config.toml"))
}
