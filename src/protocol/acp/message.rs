//! Everything that users of ACP need: the messages, their fields, and the way from and to a line.

pub use super::decode::{decode_container, decode_task_request};
pub use super::encode::{EncodeError, encode_container, encode_task_request};
pub use super::fields::{EnvKey, EnvVars, ErrorCode, FieldError, TaskFilePath};
pub use super::types::{
    Completion, CompletionStatus, ContainerMessage, Envelope, ErrorReport, MAX_ERROR_CHARS, MAX_ERRORS,
    MAX_MESSAGE_CHARS, MAX_OUTPUT_CHARS, ProgressUpdate, StoryStatus, TaskRequest,
};
pub use super::urls::RepoUrl;
