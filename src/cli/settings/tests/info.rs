//! Lists all settings, for tests of the settings and of their documentation.

use crate::cli::settings::declaration::{Config, ENV_HELP};
use crate::cli::settings::layers::SettingVisitor;
use crate::cli::settings::setting::{Setting, SettingValue, env_var_name};

/// What a setting is called in each layer, and what its help says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SettingInfo {
    /// The name in `doctor` and in errors.
    pub name: &'static str,
    /// The key in a config file, with its table: `review.agent`.
    pub key: &'static str,
    /// The flag with its dashes.
    pub flag: Option<&'static str>,
    /// The environment variable.
    pub env: Option<String>,
    /// The default as `doctor` shows it.
    pub default: String,
    pub help: &'static str,
}

/// Every setting there is, with `env` and `agents`.
pub(crate) fn settings() -> Vec<SettingInfo> {
    struct Infos(Vec<SettingInfo>);
    impl SettingVisitor for Infos {
        fn visit<T: SettingValue>(&mut self, setting: &Setting<T>) -> Option<T> {
            self.0.push(SettingInfo {
                name: setting.name,
                key: setting.key,
                flag: setting.flag_name(),
                env: Some(setting.env()),
                default: setting.show_value(setting.default.as_ref()),
                help: setting.help,
            });
            None
        }
    }
    let mut infos = Infos(Vec::new());
    Config::visit(&mut infos);
    infos.0.extend([
        SettingInfo {
            name: "env",
            key: "env",
            flag: Some("--env"),
            env: Some(env_var_name("env")),
            default: "none".to_owned(),
            help: ENV_HELP,
        },
        SettingInfo {
            name: "agents.NAME",
            key: "agents.NAME",
            flag: None,
            env: None,
            default: "none".to_owned(),
            help: "Commands that can be agents",
        },
    ]);
    infos.0
}
