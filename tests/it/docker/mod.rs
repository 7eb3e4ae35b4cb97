//! Tests that need a Docker daemon and the sandbox image. Without them they fail and say how to get them.

mod depot;
mod engine;
mod run;
mod second_daemon;
