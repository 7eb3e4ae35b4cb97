//! A rule of a protocol, and the [`Violation`] of one. Each protocol lists its rules in its `rules.rs` with `rules!`.

use std::fmt;

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    pub name: &'static str,
    /// The section of the protocol's spec; "longshore" if the spec leaves it open.
    pub section: &'static str,
    pub description: &'static str,
}

/// The first rule that a message breaks. A value, not an error of longshore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The name of a [`Rule`].
    pub rule: &'static str,
    /// `payload.subtasks[0].subtask_id`; `message` or `line` if no single field is wrong.
    pub field: String,
    /// A fragment on one line.
    pub problem: String,
}

impl Violation {
    pub(in crate::protocol) fn new(rule: &'static str, field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { rule, field: field.into(), problem: problem.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (rule `{}`)", self.field, self.problem, self.rule)
    }
}

impl std::error::Error for Violation {}

/// Declares, for each line `NAME = "name", "section", "description";`, a constant with the name, and `RULES` with all of them.
macro_rules! rules {
    ($($constant:ident = $name:literal, $section:literal, $says:literal;)*) => {
        $(#[doc = $says] pub const $constant: &str = $name;)*
        /// All rules, in the order of the spec.
        pub const RULES: &[$crate::protocol::rule::Rule] =
            &[$($crate::protocol::rule::Rule { name: $name, section: $section, description: $says }),*];
    };
}
pub(in crate::protocol) use rules;
