//! The in-sandbox side.
pub mod children;
pub mod clone;
pub mod git;
pub mod layout;
pub mod memory;
pub mod salvage;
pub mod staging;
pub mod tail;
