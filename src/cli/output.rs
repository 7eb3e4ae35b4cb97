//! Writes to standard output and standard error.

use std::io::{IsTerminal, Write, stderr, stdout};

use serde::Serialize;

use super::error::CommandError;

/// Writes to standard output. A reader that is gone gives an error that ends the command quietly.
pub(crate) fn print_stdout(text: &str) -> Result<(), CommandError> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Writes a value as one line of JSON to standard output.
pub(crate) fn print_json_line(value: &impl Serialize) -> Result<(), CommandError> {
    print_stdout(&format!("{}\n", to_json(value)?))
}

/// `value` as JSON on one line, without a line break at its end.
pub(crate) fn to_json(value: &impl Serialize) -> Result<String, CommandError> {
    serde_json::to_string(value).map_err(|error| CommandError::machinery("cannot write JSON").with_cause(&error))
}

/// Writes a line to standard error. Errors are ignored: there is nowhere left to report them.
pub(crate) fn print_stderr(text: &str) {
    let _ = writeln!(stderr(), "{text}");
}

/// The width of the terminal: `COLUMNS`, else what the terminal reports, else 120. Unlimited if `stream` is no terminal.
pub(crate) fn terminal_columns(stream: &impl IsTerminal) -> usize {
    if !stream.is_terminal() {
        return usize::MAX;
    }
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let reported = || rustix::termios::tcgetwinsize(stderr()).map(|size| usize::from(size.ws_col)).unwrap_or(0);
    columns.unwrap_or_else(|| Some(reported()).filter(|columns| *columns > 20).unwrap_or(120))
}
