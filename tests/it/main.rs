//! The integration tests, in one binary: it links once.
//!
//! `depot`, `engine` and `run` need a Docker daemon and the sandbox image, and fail without them, saying how to get them.

mod cli;
mod depot;
mod engine;
mod run;
