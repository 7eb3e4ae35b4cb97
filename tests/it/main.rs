//! The integration tests, in one binary: it links once.
//!
//! `engine` needs a Docker daemon and the sandbox image, and fails without them, saying how to get them.

mod cli;
mod engine;
