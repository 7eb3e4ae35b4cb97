//! The integration tests, in one binary: it links once.
//!
//! `depot` and `engine` need a Docker daemon and the sandbox image, and fail without them, saying how to get them.

mod cli;
mod depot;
mod engine;
