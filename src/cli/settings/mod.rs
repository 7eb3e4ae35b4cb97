//! The settings: flags over `LONGSHORE_*` variables over `.longshore.toml` in the repository over the user's config file over
//! defaults. Each value knows where it comes from, for `longshore doctor` and for errors.
//!
//! `declaration.rs` declares every setting once. [`load`](load::load) merges the layers. A list (`verify`) of a higher layer
//! replaces those of the lower ones; `env` and `agents` are merged by name. Must not: touch the engine or git.

mod agent_config;
pub(crate) mod config_file;
pub(crate) mod declaration;
mod declare;
mod environment;
mod error;
pub(crate) mod flags;
mod layers;
pub(crate) mod load;
mod merged;
mod setting;
mod source;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod variable;

pub(crate) use agent_config::AgentConfig;
pub(crate) use declaration::{Config, DEFAULT_IMAGE, ENV_HELP, Settings};
pub(crate) use environment::EnvLookup;
pub(crate) use error::SettingsError;
pub(crate) use layers::SettingRow;
pub(crate) use load::load;
pub(crate) use source::SettingSource;
