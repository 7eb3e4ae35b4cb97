//! A rule of a protocol: its name, where it stands, what it wants. Each protocol lists its own with `rules!`, in its `rules.rs`.
//!
//! Used by all folders here.

/// A rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Its name.
    pub name: &'static str,
    /// The section of the protocol's spec, or "longshore" where the spec leaves it open and longshore decides.
    pub section: &'static str,
    /// What it wants.
    pub description: &'static str,
}

/// Makes of each line `NAME = "name", "section", "what it wants";` a constant that has the name, and of all of them `RULES`.
macro_rules! rules {
    ($($constant:ident = $name:literal, $section:literal, $says:literal;)*) => {
        $(#[doc = $says] pub const $constant: &str = $name;)*
        /// All rules, in the order of the spec.
        pub const RULES: &[$crate::protocol::rule::Rule] =
            &[$($crate::protocol::rule::Rule { name: $name, section: $section, description: $says }),*];
    };
}
pub(in crate::protocol) use rules;
