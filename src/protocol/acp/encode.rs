//! An ACP message -> a line, within all limits.

use thiserror::Error;

use super::message::{ContainerMessage, Envelope, TaskRequest};

/// Why a message cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// Nothing in a task-request can be shortened.
    #[error("the task-request has {bytes} bytes and the limit is 65,536; its biggest variable is `{biggest}`")]
    TooLarge {
        /// Bytes of the line.
        bytes: usize,
        /// The name of the longest field: of an environment variable, or of a payload field where no variable is longer.
        biggest: String,
    },
}

/// A task-request as one line, without its newline.
pub fn encode_task_request(envelope: &Envelope, request: &TaskRequest) -> Result<Vec<u8>, EncodeError> {
    let _ = (envelope, request);
    unimplemented!("skeleton")
}

/// A container's message as one line, without its newline; free text that is too long is shortened, and marked.
pub fn encode_container(envelope: &Envelope, message: &ContainerMessage) -> Vec<u8> {
    let _ = (envelope, message);
    unimplemented!("skeleton")
}
