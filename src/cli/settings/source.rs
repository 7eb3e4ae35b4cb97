//! Where the value of a setting comes from.

use std::fmt;
use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SettingSource {
    Default,
    /// A config file.
    File(PathBuf),
    /// A `LONGSHORE_*` variable.
    Environment(String),
    Flag(&'static str),
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingSource::Default => f.write_str("default"),
            SettingSource::File(path) => write!(f, "{}", path.display()),
            SettingSource::Environment(name) => f.write_str(name),
            SettingSource::Flag(flag) => f.write_str(flag),
        }
    }
}

/// A value and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sourced<T> {
    pub value: T,
    pub source: SettingSource,
}
