//! The in-sandbox side.
pub mod ask;
pub mod channel;
pub mod children;
pub mod clone;
pub mod commit_message;
pub mod examine;
pub mod git;
pub mod layout;
pub mod memory;
pub mod progress;
pub mod prompt;
pub mod run;
pub mod salvage;
pub mod socket;
pub mod staging;
pub mod story;
pub mod tail;
