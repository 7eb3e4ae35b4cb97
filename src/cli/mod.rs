//! cli.
pub mod amounts;
pub mod args;
pub mod config;
pub mod error;
pub mod settings;
pub mod variable;
