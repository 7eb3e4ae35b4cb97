//! Tests that span several files of the module, and what tests share.

mod conformance;
#[cfg(feature = "orchestrator")]
mod golden;
#[cfg(feature = "orchestrator")]
mod properties;
pub(super) mod support;

pub(super) use conformance::{sections_without_test, table_rows};
