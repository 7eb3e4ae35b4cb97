//! Identifiers: newtypes with private fields, built by `FromStr` or
//! `TryFrom<String>`, so that every value is valid.
//!
//! Used by every module. Must not: do I/O, read a clock, or depend on what the ids identify.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use uuid::Uuid;

/// Why a text is not the identifier that it was read as.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what} must be {rule}, found `{found}`")]
pub struct IdError {
    /// The kind of identifier, as an error shows it: "a story id".
    pub what: &'static str,
    /// The rule that was broken.
    pub rule: &'static str,
    /// The text found, shortened to 80 characters.
    pub found: String,
}

impl IdError {
    fn new(what: &'static str, rule: &'static str, found: &str) -> Self {
        Self { what, rule, found: found.chars().take(80).collect() }
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $rule:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema), schemars(inline))]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The identifier as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                let check: fn(&str) -> bool = $check;
                if check(&text) { Ok(Self(text)) } else { Err(IdError::new($what, $rule, &text)) }
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::try_from(text.to_owned())
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_id! {
    /// A story: `US-` and three digits (ACP, progress-update).
    StoryId, "a story id", "`US-` and three digits",
    |text| text.len() == 6 && text.starts_with("US-") && text.bytes().skip(3).all(|b| b.is_ascii_digit())
}

impl StoryId {
    /// The story with this number; `None` from 1000 on, which does not fit the id.
    pub fn from_number(number: u32) -> Option<Self> {
        (number < 1000).then(|| Self(format!("US-{number:03}")))
    }
}

text_id! {
    /// An assignment, which is AMP's task: `T-YYYY-NNN` (AMP/1.0, `task_id`).
    AssignmentId, "an assignment id", "`T-`, four digits, `-` and three or more digits",
    |text| {
        let Some((year, number)) = text.strip_prefix("T-").and_then(|rest| rest.split_once('-')) else { return false };
        let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        year.len() == 4 && digits(year) && number.len() >= 3 && number.len() <= 9 && digits(number)
    }
}

impl AssignmentId {
    /// The `number`th assignment (from 1) of a year.
    pub fn new(year: u16, number: u32) -> Self {
        Self(format!("T-{year:04}-{number:03}"))
    }

    /// The year.
    pub fn year(&self) -> u16 {
        self.0[2..6].parse().unwrap_or_default()
    }

    /// The number in that year.
    pub fn number(&self) -> u32 {
        self.0[7..].parse().unwrap_or_default()
    }
}

text_id! {
    /// A container's id: 12 to 64 lowercase hexadecimal digits.
    ContainerId, "a container id", "12 to 64 lowercase hexadecimal digits",
    |text| (12..=64).contains(&text.len()) && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

impl ContainerId {
    /// The first 12 digits, which is also the host name that Docker gives the container.
    pub fn short(&self) -> &str {
        &self.0[..12]
    }

    /// Whether the two name the same container, either of them possibly shortened.
    pub fn is_same_as(&self, other: &ContainerId) -> bool {
        self.0.starts_with(&other.0) || other.0.starts_with(&self.0)
    }
}

text_id! {
    /// A git commit: 40 (SHA-1) or 64 (SHA-256) lowercase hexadecimal digits.
    CommitId, "a commit id", "40 or 64 lowercase hexadecimal digits",
    |text| matches!(text.len(), 40 | 64) && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

impl CommitId {
    /// The first ten digits, for people.
    pub fn short(&self) -> &str {
        &self.0[..10]
    }
}

text_id! {
    /// A branch that a sandbox may work on: ACP's `^[a-zA-Z0-9][a-zA-Z0-9/_-]*$`, git's own rules for refs, and
    /// never `main` or `master`.
    BranchName, "a branch name",
    "letters, digits, `/`, `_` and `-`, beginning with a letter or digit, valid as a git ref, and not `main` or `master`",
    |text| {
        let alphabet = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'_' | b'-');
        text.len() <= 200
            && text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
            && text.bytes().all(alphabet)
            && !text.contains("//")
            && !text.ends_with('/')
            && !matches!(text, "main" | "master" | "HEAD")
    }
}

text_id! {
    /// A participant of a mailbox: `alpha`, `us-001`, `host`. Also names its outbox, so it is safe in file systems, shells
    /// and Markdown tables.
    AgentId, "an agent id", "1 to 64 letters, digits, `_` and `-`, beginning with a letter or digit",
    |text| {
        let alphabet = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
        text.len() <= 64 && text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric) && text.bytes().all(alphabet)
    }
}

/// One run of one or more tasks files: a UUID v4.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema), schemars(inline))]
#[serde(try_from = "String", into = "String")]
pub struct SwarmId(Uuid);

impl SwarmId {
    /// A new random id.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// The first eight digits: used in names of containers and volumes, and shown to people.
    pub fn short(&self) -> String {
        self.0.simple().to_string()[..8].to_owned()
    }
}

impl TryFrom<String> for SwarmId {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl FromStr for SwarmId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let wrong = || IdError::new("a swarm id", "a UUID v4, hyphenated", text);
        // `Uuid` also reads braces, URNs and bare digits; the wire has the hyphenated form only.
        let uuid = if text.len() == 36 { Uuid::try_parse(text).map_err(|_| wrong())? } else { return Err(wrong()) };
        if uuid.get_version_num() == 4 && uuid.get_variant() == uuid::Variant::RFC4122 {
            Ok(Self(uuid))
        } else {
            Err(wrong())
        }
    }
}

impl From<SwarmId> for String {
    fn from(id: SwarmId) -> String {
        id.to_string()
    }
}

impl fmt::Display for SwarmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for SwarmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// One try at an assignment, counted from 1. One sandbox, one work folder, one branch, one bundle.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
pub struct AttemptId {
    /// The assignment tried.
    pub assignment: AssignmentId,
    /// Which try it is, from 1; never used twice for the same assignment, however the earlier attempts ended.
    pub number: u32,
}

impl AttemptId {
    /// The name of this attempt's folders in the *in* and *work* volumes.
    pub fn dir_name(&self) -> String {
        format!("{}-{}", self.assignment, self.number)
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} attempt {}", self.assignment, self.number)
    }
}

/// A story within a swarm. Story ids are unique in one tasks file only, and a swarm may have several.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StoryKey {
    /// Index of the tasks file in the swarm, from 0.
    pub file: u16,
    /// The story in it.
    pub id: StoryId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn story_ids_are_us_and_three_digits() {
        assert!("US-001".parse::<StoryId>().is_ok());
        for wrong in ["US-1", "US-0001", "us-001", "US-00a", "US-001\n", "", "US-٠٠١"] {
            assert!(wrong.parse::<StoryId>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn branch_names_follow_acp_and_git_rules() {
        for right in ["feat/my-feature", "a", "mainline", "0/main"] {
            assert!(right.parse::<BranchName>().is_ok(), "{right:?}");
        }
        for wrong in ["", "main", "master", "-x", "/x", "a//b", "a/", "a.b", "a b", "a\n", "ä"] {
            assert!(wrong.parse::<BranchName>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn swarms_are_uuid_v4_hyphenated() {
        let text = "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d";
        assert_eq!(text.parse::<SwarmId>().expect("the spec's own example").to_string(), text);
        for wrong in ["a1b2c3d4-e5f6-1a7b-8c9d-0e1f2a3b4c5d", "a1b2c3d4e5f64a7b8c9d0e1f2a3b4c5d", "swarm"] {
            assert!(wrong.parse::<SwarmId>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn agent_ids_are_safe_file_names() {
        for right in ["alpha", "us-001", "B2_x", "0", &"a".repeat(64)] {
            assert!(right.parse::<AgentId>().is_ok(), "{right:?}");
        }
        for wrong in ["", "*", "-a", "_a", "a/b", "..", "a.md", "a b", "a|b", "a\n", "ä", &"a".repeat(65)] {
            assert!(wrong.parse::<AgentId>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn shortened_container_ids_match_the_full_id() {
        let long: ContainerId = "abc123def456aa".parse().expect("valid");
        let short: ContainerId = "abc123def456".parse().expect("valid");
        assert!(long.is_same_as(&short) && short.is_same_as(&long));
    }
}
