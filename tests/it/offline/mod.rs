//! Tests that need no Docker daemon.

mod cli;
mod fuzz;
mod journal;
mod mesh;
