//! The JSON of a message of the SSOT, with its ack.

use serde_json::{Value, json};

use super::message_summary::AckState;
use crate::cli::error::{CommandError, CommandErrorKind};
use crate::protocol::amp::store::LogEntry;

/// A message and its ack as `--json` has them.
pub(super) fn entry_json(entry: &LogEntry, state: &AckState) -> Result<Value, CommandError> {
    let parse = |text: String| serde_json::from_str::<Value>(&text);
    let message = parse(entry.message.to_json())
        .map_err(|error| CommandError::from_error(CommandErrorKind::Machinery, &error))?;
    let ack = entry.ack.as_ref().map(|ack| parse(ack.to_json())).transpose();
    let ack = ack.map_err(|error| CommandError::from_error(CommandErrorKind::Machinery, &error))?;
    Ok(json!({ "message": message, "ack": ack, "ack_state": state.as_str(), "ack_seconds": state.seconds() }))
}
