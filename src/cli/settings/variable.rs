//! Environment variables for sandboxes, as the user names them: `KEY`, which takes its value from the user's environment, or
//! `KEY=VALUE`. Only names are ever shown. Values travel in ACP's task-request and nowhere else.
//!
//! Must not: read the environment, or show a value.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use thiserror::Error;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum VariableError {
    #[error(
        "`{0}` is not a name for an environment variable: use capital letters, digits and `_`, and no digit first (ACP)"
    )]
    InvalidKey(String),
    #[error(
        "`{0}` is refused: `PATH`, `HOME`, `LD_*`, `GIT_*` and `LONGSHORE_*` are set inside the sandbox and nowhere else"
    )]
    ReservedKey(String),
    #[error("the value of `{0}` contains a NUL character")]
    NulInValue(String),
}

/// A variable. Its `Debug` and `Display` never show the value.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    key: String,
    value: Option<String>,
}

impl Variable {
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The value, if it was given with the name.
    pub fn value(&self) -> Option<&str> {
        self.value.as_deref()
    }
}

/// Checks a name against ACP's `^[A-Z_][A-Z0-9_]*$` and the reserved names.
fn validate_key(key: &str) -> Result<(), VariableError> {
    let mut bytes = key.bytes();
    let head = bytes.next().is_some_and(|b| b.is_ascii_uppercase() || b == b'_');
    if !head || !bytes.all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_') {
        // Truncated, since it may be a secret pasted in place of a name.
        return Err(VariableError::InvalidKey(key.chars().take(40).collect()));
    }
    let refused =
        matches!(key, "PATH" | "HOME") || ["LD_", "GIT_", "LONGSHORE_"].iter().any(|prefix| key.starts_with(prefix));
    if refused { Err(VariableError::ReservedKey(key.to_owned())) } else { Ok(()) }
}

impl FromStr for Variable {
    type Err = VariableError;
    fn from_str(text: &str) -> Result<Self, VariableError> {
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key, Some(value.to_owned())),
            None => (text, None),
        };
        validate_key(key)?;
        if value.as_deref().is_some_and(|value| value.contains('\0')) {
            return Err(VariableError::NulInValue(key.to_owned()));
        }
        Ok(Self { key: key.to_owned(), value })
    }
}

/// A variable as typed after `--env`. An error is kept for later, since clap's own message would show the value.
#[derive(Debug, Clone)]
pub(crate) struct VariableArg(pub Result<Variable, VariableError>);

impl FromStr for VariableArg {
    type Err = std::convert::Infallible;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.parse()))
    }
}

impl TryFrom<String> for Variable {
    type Error = VariableError;
    fn try_from(text: String) -> Result<Self, VariableError> {
        text.parse()
    }
}

impl<'de> Deserialize<'de> for Variable {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for Variable {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Variable".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "pattern": "^[A-Z_][A-Z0-9_]*(=.*)?$",
            "description": "`KEY` to take its value from the user's environment, or `KEY=VALUE`"
        })
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)
    }
}

impl fmt::Debug for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.key, if self.value.is_some() { "=..." } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_and_reserved_keys_are_rejected() {
        for right in ["API_KEY", "_X", "A1", "PATHS", "HOMEPAGE", "LDFLAGS", "GITHUB_TOKEN"] {
            assert!(right.parse::<Variable>().is_ok(), "{right}");
        }
        for wrong in ["", "=x", "1A", "A-B", "A B", "ä", "A.B=x", "lower", "Path"] {
            assert!(matches!(wrong.parse::<Variable>(), Err(VariableError::InvalidKey(_))), "{wrong}");
        }
        for refused in ["PATH", "HOME=/x", "LD_PRELOAD=x", "GIT_DIR", "LONGSHORE_X=1"] {
            assert!(matches!(refused.parse::<Variable>(), Err(VariableError::ReservedKey(_))), "{refused}");
        }
    }

    #[test]
    fn values_are_kept_and_never_shown() {
        let variable: Variable = "TOKEN=s3cret=x".parse().expect("a good variable");
        assert_eq!((variable.key(), variable.value()), ("TOKEN", Some("s3cret=x")));
        assert!(!format!("{variable:?} {variable}").contains("s3cret"));
    }
}
