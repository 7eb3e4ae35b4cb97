//! Errors as the user sees them: `error: what`, `  caused by: ...`, `  hint: what to do`, and the exit code.
//!
//! Every command returns [`CommandError`]; `dispatch.rs` prints it. Other modules know nothing of exit codes or hints:
//! `conversions.rs` adds them. Must not: panic, or print.

mod conversions;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::fmt::{self, Write};

use super::exit_status::ExitStatus;
use super::settings::SettingsError;
use crate::report::text::sanitize;

pub(crate) type CommandResult = Result<ExitStatus, CommandError>;

/// The kind of a problem, from the least to the most important.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CommandErrorKind {
    /// The reader of standard output is gone. Nothing is printed.
    OutputClosed,
    Unsuccessful,
    Machinery,
    /// Comes first, because the user can correct it.
    Input,
}

impl CommandErrorKind {
    fn exit_status(self) -> ExitStatus {
        match self {
            CommandErrorKind::OutputClosed => ExitStatus::Success,
            CommandErrorKind::Unsuccessful => ExitStatus::Unsuccessful,
            CommandErrorKind::Input => ExitStatus::InvalidInput,
            CommandErrorKind::Machinery => ExitStatus::Machinery,
        }
    }
}

/// One or more problems.
#[derive(Debug)]
pub(crate) struct CommandError {
    diagnostics: Vec<Diagnostic>,
}

#[derive(Debug)]
struct Diagnostic {
    kind: CommandErrorKind,
    message: String,
    causes: Vec<String>,
    hint: Option<String>,
}

impl CommandError {
    pub(crate) fn new(kind: CommandErrorKind, message: impl Into<String>) -> Self {
        Self { diagnostics: vec![Diagnostic { kind, message: message.into(), causes: Vec::new(), hint: None }] }
    }

    pub(crate) fn input(message: impl Into<String>) -> Self {
        Self::new(CommandErrorKind::Input, message)
    }

    pub(crate) fn machinery(message: impl Into<String>) -> Self {
        Self::new(CommandErrorKind::Machinery, message)
    }

    /// An error and its chain of sources.
    pub(crate) fn from_error(kind: CommandErrorKind, error: &dyn Error) -> Self {
        Self {
            diagnostics: vec![Diagnostic { kind, message: error.to_string(), causes: source_chain(error), hint: None }],
        }
    }

    /// Joins several problems into one error. `Ok` if there are none.
    pub(crate) fn combine(problems: Vec<CommandError>) -> Result<(), CommandError> {
        if problems.is_empty() {
            return Ok(());
        }
        Err(CommandError { diagnostics: problems.into_iter().flat_map(|problem| problem.diagnostics).collect() })
    }

    /// Adds a cause and its chain of sources to the last problem.
    #[must_use]
    pub(crate) fn with_cause(mut self, error: &dyn Error) -> Self {
        if let Some(last) = self.diagnostics.last_mut() {
            last.causes.push(error.to_string());
            last.causes.extend(source_chain(error));
        }
        self
    }

    /// Adds what to do about the last problem.
    #[must_use]
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        if let Some(last) = self.diagnostics.last_mut() {
            last.hint = Some(hint.into());
        }
        self
    }

    /// The exit status of the most important problem.
    pub(crate) fn exit_status(&self) -> ExitStatus {
        self.diagnostics.iter().map(|problem| problem.kind).max().unwrap_or(CommandErrorKind::Machinery).exit_status()
    }

    /// Whether there is nothing to print.
    pub(crate) fn is_output_closed(&self) -> bool {
        self.diagnostics.iter().all(|problem| problem.kind == CommandErrorKind::OutputClosed)
    }
}

pub(crate) fn settings_errors(problems: Vec<SettingsError>) -> Vec<CommandError> {
    problems.into_iter().map(CommandError::from).collect()
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in self.diagnostics.iter().filter(|problem| problem.kind != CommandErrorKind::OutputClosed) {
            writeln!(f, "error: {}", clean_and_indent(&problem.message))?;
            for cause in &problem.causes {
                writeln!(f, "  caused by: {}", clean_and_indent(cause))?;
            }
            if let Some(hint) = &problem.hint {
                writeln!(f, "  hint: {}", clean_and_indent(hint))?;
            }
        }
        Ok(())
    }
}

/// Removes control characters, since errors may quote files and sandboxes, and indents all lines but the first.
fn clean_and_indent(text: &str) -> String {
    let mut out = String::new();
    for (number, line) in text.trim_end().lines().enumerate() {
        let line = sanitize(line);
        let _ = if number == 0 { write!(out, "{line}") } else { write!(out, "\n    {line}") };
    }
    out
}

/// The sources of an error, nearest first, without those that repeat the error before them.
fn source_chain(error: &dyn Error) -> Vec<String> {
    let mut causes: Vec<String> = Vec::new();
    let mut previous = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !previous.contains(&text) {
            causes.push(text.clone());
        }
        previous = text;
        next = cause.source();
    }
    causes
}
