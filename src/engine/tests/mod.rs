//! Support for tests: an engine in memory.

pub(crate) mod fake;
