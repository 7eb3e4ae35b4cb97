//! Why a sandbox as a whole fails.

use super::channel::Channel;
use super::command::OutputLog;
use crate::protocol::acp::message::{CompletionStatus, ContainerMessage, ErrorCode, ErrorReport};

#[derive(Debug)]
pub struct FatalError {
    pub code: ErrorCode,
    pub message: String,
}

impl FatalError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Reports the error and the failed completion that follows. Returns the exit code.
    pub fn send(self, channel: &Channel, log: &OutputLog) -> u8 {
        log.write_line(&format!("{}: {}", self.code, self.message));
        let errors = vec![self.message.clone()];
        channel.send(&ContainerMessage::Error(ErrorReport { code: self.code, message: self.message }));
        channel.send_completion(CompletionStatus::Failed, errors);
        1
    }
}
