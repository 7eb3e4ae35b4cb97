//! ACP: what orchestrator and sandbox say to each other, one JSON object a line.

pub mod machine;
pub mod message;
