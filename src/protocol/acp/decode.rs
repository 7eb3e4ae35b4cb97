//! A line -> an ACP message, with every rule of the spec checked.

use super::message::{BadRecord, ContainerMessage, Envelope, TaskRequest};

/// Reads what a container says.
pub fn decode_container(line: &[u8]) -> Result<(Envelope, ContainerMessage), BadRecord> {
    let _ = line;
    unimplemented!("skeleton")
}

/// Reads what the orchestrator says.
pub fn decode_task_request(line: &[u8]) -> Result<(Envelope, TaskRequest), BadRecord> {
    let _ = line;
    unimplemented!("skeleton")
}
