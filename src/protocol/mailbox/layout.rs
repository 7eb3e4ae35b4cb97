//! The names in a mailbox's directory. Pure.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Tells agents how to take part.
pub const PROTOCOL_FILE: &str = "PROTOCOL.md";
/// The text of [`PROTOCOL_FILE`].
pub const PROTOCOL_TEXT: &str = include_str!("protocol.md");
/// Lists the participants.
pub const ROSTER_FILE: &str = "ROSTER.md";
/// The directory of the outboxes.
pub const AGENTS_DIR: &str = "agents";
/// The directory of the shared files and of the claims on them.
pub const SHARED_DIR: &str = "shared";
/// The shared file with goals, task assignments and decisions.
pub const STATE_FILE: &str = "STATE.md";
/// Prefix of the names of claims in [`SHARED_DIR`].
pub const CLAIM_PREFIX: &str = ".claim-";

/// The name of a file in `shared/`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SharedName(String);

impl SharedName {
    /// `STATE.md`.
    pub fn state() -> Self {
        Self(STATE_FILE.to_owned())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as claims use it: `STATE` for `STATE.md`.
    pub fn stem(&self) -> &str {
        self.0.strip_suffix(".md").unwrap_or(&self.0)
    }
}

impl fmt::Display for SharedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "a shared file's name has 1 to 100 letters, digits, `.`, `_` and `-` and begins with a letter or digit, found `{0}`"
)]
pub struct SharedNameError(String);

impl FromStr for SharedName {
    type Err = SharedNameError;
    fn from_str(text: &str) -> Result<Self, SharedNameError> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        let valid = text.len() <= 100
            && text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
            && text.bytes().all(allowed);
        if valid { Ok(Self(text.to_owned())) } else { Err(SharedNameError(text.chars().take(80).collect())) }
    }
}
