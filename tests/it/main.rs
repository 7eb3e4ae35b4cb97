//! The integration tests, in one binary: it links once.
//!
//! `depot` and `engine` need a Docker daemon and the sandbox image, and fail without them, saying how to get them.

<<<<<<< HEAD
mod depot;
=======
mod cli;
>>>>>>> cli
mod engine;
