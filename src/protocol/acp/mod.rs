//! ACP: what orchestrator and sandbox say to each other, one JSON object a line.

pub mod decode;
pub mod encode;
pub mod fields;
pub mod machine;
pub mod message;
pub mod rules;
pub mod urls;
