//! The integration tests, in one binary: it links once.
//!
//! `depot`, `engine`, `run` and `second_daemon` need a Docker daemon and the sandbox image, and fail without them, saying how to get them.

mod cli;
mod depot;
mod engine;
mod fuzz;
mod journal;
mod mesh;
mod run;
mod second_daemon;
