//! The in-sandbox side.
