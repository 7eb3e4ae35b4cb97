//! Why a sandbox as a whole fails.

use super::channel::Channel;
use super::command::OutputLog;
use crate::protocol::acp::message::{CompletionStatus, ContainerMessage, ErrorCode, ErrorReport};
use crate::verdict::{Cause, Failure};

#[derive(Debug)]
pub struct FatalError {
    pub code: ErrorCode,
    pub message: String,
}

impl FatalError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The failure for a result that has a place for it.
    pub fn to_failure(&self, stopped: bool) -> Failure {
        let cause = match &self.code {
            _ if stopped => Cause::StoppedByUser,
            code if *code == ErrorCode::GIT_CLONE_FAILED => Cause::CloneFailed,
            code if *code == ErrorCode::GIT_CHECKOUT_FAILED => Cause::CheckoutFailed,
            code if *code == ErrorCode::TASK_FILE_NOT_FOUND => Cause::TaskFileNotFound,
            code if *code == ErrorCode::TASK_FILE_INVALID => Cause::TaskFileInvalid,
            _ => Cause::EngineError,
        };
        Failure::new(cause, self.message.clone())
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
