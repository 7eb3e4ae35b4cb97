//! Tests of the steps of a run that need no engine.

mod preflight;
mod setup;
mod unfinished;
