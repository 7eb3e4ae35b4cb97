//! Exit codes of `acp-shim mail`, and errors that end a command.

use std::error::Error;

use crate::protocol::mailbox::error::MailboxError;
use crate::protocol::mailbox::parts::DraftError;

pub(super) const EXIT_OK: u8 = 0;
pub(super) const EXIT_FAILED: u8 = 1;
pub(super) const EXIT_USAGE: u8 = 2;
/// The awaited agent is gone.
pub(super) const EXIT_GONE: u8 = 3;
pub(super) const EXIT_TIMEOUT: u8 = 4;

pub(super) struct MailError {
    pub(super) message: String,
    pub(super) exit_code: u8,
}

impl MailError {
    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), exit_code: EXIT_USAGE }
    }
}

impl From<MailboxError> for MailError {
    fn from(error: MailboxError) -> Self {
        let is_usage = matches!(error, MailboxError::Draft(DraftError::Empty));
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        Self { message: format!("{error}{cause}"), exit_code: if is_usage { EXIT_USAGE } else { EXIT_FAILED } }
    }
}

impl From<std::io::Error> for MailError {
    fn from(error: std::io::Error) -> Self {
        Self { message: format!("cannot read or write: {error}"), exit_code: EXIT_FAILED }
    }
}
