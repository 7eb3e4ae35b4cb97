//! URLs in ACP messages: a task-request's `repoUrl` and a completion's `prUrl`.

use std::fmt;
use std::str::FromStr;

use super::fields::FieldError;
use super::rules;

/// A repository's URL in a task-request: `https://`, `ssh://` or scp-like `user@host:path`, without credentials.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RepoUrl(String);

impl RepoUrl {
    /// The URL as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RepoUrl {
    type Err = FieldError;
    fn from_str(text: &str) -> Result<Self, FieldError> {
        if text.is_empty() {
            return Err(FieldError::new(rules::REPO_URL, "must not be empty"));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for RepoUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
