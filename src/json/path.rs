//! Where a value stands in a JSON document.

use std::fmt;

use super::text::excerpt;

/// The path of a value: a chain back to the root, rendered only when there is an error to report.
#[derive(Clone, Copy)]
pub(crate) enum JsonPath<'p> {
    Root,
    Key(&'p JsonPath<'p>, &'p str),
    Index(&'p JsonPath<'p>, usize),
}

impl fmt::Display for JsonPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(Self::Root, key) => f.write_str(&excerpt(key)),
            Self::Key(parent, key) => write!(f, "{parent}.{}", excerpt(key)),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}
