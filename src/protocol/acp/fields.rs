//! The fields of ACP messages that have rules of their own: newtypes, valid wherever they are seen.
//!
//! Used by [`message`](super::message); built from flags and plans by the orchestrator and from lines by
//! [`decode`](super::decode). Must not: show a value of an environment variable.

use std::borrow::{Borrow, Cow};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::rules;
// Until the mesh uses `crate::json`.
pub(in crate::protocol) use crate::json::text::excerpt;

/// Why a text is not the field that it was read as.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{problem}")]
pub struct FieldError {
    /// The rule's name: one of [`RULES`](rules::RULES).
    pub rule: &'static str,
    /// What is wrong, as a fragment.
    pub problem: String,
}

impl FieldError {
    pub(super) fn new(rule: &'static str, problem: impl Into<String>) -> Self {
        Self { rule, problem: problem.into() }
    }
}

/// A tasks file's path in a task-request: relative, no `..`, no backslash or control character, ends in `.json`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TaskFilePath(String);

impl TaskFilePath {
    /// The path as text, relative to the repo.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TaskFilePath {
    type Err = FieldError;
    fn from_str(text: &str) -> Result<Self, FieldError> {
        let problem = if text.starts_with('/') {
            "must be a relative path"
        } else if text.split('/').any(|part| part == "..") {
            "must not contain `..`"
        } else if text.contains('\\') {
            "must not contain a backslash"
        } else if text.chars().any(char::is_control) {
            "must not contain a NUL or another control character"
        } else if !text.ends_with(".json") {
            "must end with `.json`"
        } else {
            return Ok(Self(text.to_owned()));
        };
        Err(FieldError::new(rules::TASK_FILE_PATH, format!("{problem}, found `{}`", excerpt(text))))
    }
}

impl fmt::Display for TaskFilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The name of an environment variable that a task-request may set: ACP's `^[A-Z_][A-Z0-9_]*$`, and none of those that
/// decide what the sandbox runs: `PATH`, `HOME`, `LD_*`, `GIT_*` and longshore's own `LONGSHORE_*`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EnvKey(String);

impl EnvKey {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for EnvKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl FromStr for EnvKey {
    type Err = FieldError;
    fn from_str(text: &str) -> Result<Self, FieldError> {
        let first = text.as_bytes().first().is_some_and(|b| matches!(b, b'A'..=b'Z' | b'_'));
        if !first || !text.bytes().all(|b| matches!(b, b'A'..=b'Z' | b'0'..=b'9' | b'_')) {
            let problem = format!("must match `^[A-Z_][A-Z0-9_]*$`, found `{}`", excerpt(text));
            return Err(FieldError::new(rules::ENV_KEY, problem));
        }
        let prefix = ["LD_", "GIT_", "LONGSHORE_"].iter().any(|prefix| text.starts_with(prefix));
        if prefix || matches!(text, "PATH" | "HOME") {
            let problem = format!(
                "must not be `PATH`, `HOME` or begin with `LD_`, `GIT_` or `LONGSHORE_`, found `{}`",
                excerpt(text)
            );
            return Err(FieldError::new(rules::ENV_KEY_REFUSED, problem));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for EnvKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The environment that a task-request carries. Its values are secrets: `Debug` shows names only, there is no `Display`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct EnvVars(BTreeMap<EnvKey, String>);

impl EnvVars {
    /// Nothing set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a variable; an earlier value of it is replaced. A value with a NUL is refused: no process can have it.
    pub fn insert(&mut self, key: EnvKey, value: String) -> Result<(), FieldError> {
        if value.contains('\0') {
            return Err(FieldError::new(rules::ENV_VALUE, format!("the value of `{key}` must not contain a NUL")));
        }
        self.0.insert(key, value);
        Ok(())
    }

    /// Names and values, by name. The values are for the environment of a process and for nothing else.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(EnvKey::as_str)
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// How many are set.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for EnvVars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EnvVars")?;
        f.debug_set().entries(self.names()).finish()
    }
}

/// A machine-readable error code: `^[A-Z][A-Z0-9_]*$`. The standard ones are constants; others are allowed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ErrorCode(Cow<'static, str>);

impl ErrorCode {
    /// The container ran out of memory.
    pub const CONTAINER_OOM: Self = Self(Cow::Borrowed("CONTAINER_OOM"));
    /// The container exceeded its time.
    pub const CONTAINER_TIMEOUT: Self = Self(Cow::Borrowed("CONTAINER_TIMEOUT"));
    /// The repository could not be cloned.
    pub const GIT_CLONE_FAILED: Self = Self(Cow::Borrowed("GIT_CLONE_FAILED"));
    /// The branch could not be checked out.
    pub const GIT_CHECKOUT_FAILED: Self = Self(Cow::Borrowed("GIT_CHECKOUT_FAILED"));
    /// The tasks file is not there.
    pub const TASK_FILE_NOT_FOUND: Self = Self(Cow::Borrowed("TASK_FILE_NOT_FOUND"));
    /// The tasks file is not valid.
    pub const TASK_FILE_INVALID: Self = Self(Cow::Borrowed("TASK_FILE_INVALID"));
    /// The connection to the orchestrator was lost.
    pub const ACP_CONNECTION_LOST: Self = Self(Cow::Borrowed("ACP_CONNECTION_LOST"));
    /// The agent's process crashed.
    pub const AGENT_CRASH: Self = Self(Cow::Borrowed("AGENT_CRASH"));
    /// Anything else.
    pub const UNKNOWN_ERROR: Self = Self(Cow::Borrowed("UNKNOWN_ERROR"));
    /// ACP, "Standard Error Codes", in the spec's order.
    pub const STANDARD: [Self; 9] = [
        Self::CONTAINER_OOM,
        Self::CONTAINER_TIMEOUT,
        Self::GIT_CLONE_FAILED,
        Self::GIT_CHECKOUT_FAILED,
        Self::TASK_FILE_NOT_FOUND,
        Self::TASK_FILE_INVALID,
        Self::ACP_CONNECTION_LOST,
        Self::AGENT_CRASH,
        Self::UNKNOWN_ERROR,
    ];

    /// The code as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is one of the spec's nine.
    pub fn is_standard(&self) -> bool {
        Self::STANDARD.contains(self)
    }
}

impl FromStr for ErrorCode {
    type Err = FieldError;
    fn from_str(text: &str) -> Result<Self, FieldError> {
        let first = text.as_bytes().first().is_some_and(u8::is_ascii_uppercase);
        if !first || !text.bytes().all(|b| matches!(b, b'A'..=b'Z' | b'0'..=b'9' | b'_')) {
            let problem = format!("must match `^[A-Z][A-Z0-9_]*$`, found `{}`", excerpt(text));
            return Err(FieldError::new(rules::ERROR_CODE, problem));
        }
        let standard = Self::STANDARD.into_iter().find(|code| code.as_str() == text);
        Ok(standard.unwrap_or_else(|| Self(Cow::Owned(text.to_owned()))))
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
