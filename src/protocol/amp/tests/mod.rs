//! The golden files of `tests/golden/amp` beside reader, writer and schema.

mod golden;
mod machine;
#[cfg(feature = "orchestrator")]
mod schema;
