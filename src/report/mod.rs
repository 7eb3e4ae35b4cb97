//! report.
pub mod text;
