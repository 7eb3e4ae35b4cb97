//! The integration tests, in one binary: it links once.

mod docker;
mod offline;
