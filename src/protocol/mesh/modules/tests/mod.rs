//! Tests of all modules together.

mod declarations;
#[cfg(feature = "orchestrator")]
mod end_to_end;
