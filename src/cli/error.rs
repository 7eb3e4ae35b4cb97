//! Errors as the user sees them: `error: what`, `  caused by: ...`, `  hint: what to do`, and the exit code.
//!
//! Every command returns [`CommandError`]; `cli/mod.rs` prints it. Modules below know nothing of exit codes or hints: they are
//! given here. Must not: panic, or print by itself.

use std::error::Error;
use std::fmt::{self, Write};
use std::io;

use crate::engine::EngineError;

/// What kind of trouble, which decides the exit code (README, "Exit codes").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommandErrorKind {
    /// Standard output was closed by its reader: nothing is said, and nothing is wrong.
    OutputClosed,
    /// Some story did not land, or what was asked about is not well.
    Unsuccessful,
    /// The engine, the disk or git failed us.
    Machinery,
    /// Bad usage or bad input: the user can mend it.
    Input,
}

impl CommandErrorKind {
    /// The exit code.
    pub fn exit_code(self) -> u8 {
        match self {
            CommandErrorKind::OutputClosed => 0,
            CommandErrorKind::Unsuccessful => 1,
            CommandErrorKind::Input => 2,
            CommandErrorKind::Machinery => 3,
        }
    }
}

/// One or more problems, ready to be shown.
#[derive(Debug)]
pub struct CommandError {
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
    /// A problem in one sentence.
    pub fn new(kind: CommandErrorKind, message: impl Into<String>) -> Self {
        Self { diagnostics: vec![Diagnostic { kind, message: message.into(), causes: Vec::new(), hint: None }] }
    }

    /// Bad usage or bad input.
    pub fn input(message: impl Into<String>) -> Self {
        Self::new(CommandErrorKind::Input, message)
    }

    /// The machinery failed.
    pub fn machinery(message: impl Into<String>) -> Self {
        Self::new(CommandErrorKind::Machinery, message)
    }

    /// An error with its chain of causes.
    pub fn from_error(kind: CommandErrorKind, error: &dyn Error) -> Self {
        Self {
            diagnostics: vec![Diagnostic { kind, message: error.to_string(), causes: error_chain(error), hint: None }],
        }
    }

    /// Several problems, shown one after the other; `Ok` where there are none.
    pub fn combine(problems: Vec<CommandError>) -> Result<(), CommandError> {
        if problems.is_empty() {
            return Ok(());
        }
        Err(CommandError { diagnostics: problems.into_iter().flat_map(|shown| shown.diagnostics).collect() })
    }

    /// Adds what caused it, with that one's own causes.
    #[must_use]
    pub fn with_cause(mut self, error: &dyn Error) -> Self {
        if let Some(last) = self.diagnostics.last_mut() {
            last.causes.push(error.to_string());
            last.causes.extend(error_chain(error));
        }
        self
    }

    /// Says what to do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        if let Some(last) = self.diagnostics.last_mut() {
            last.hint = Some(hint.into());
        }
        self
    }

    /// The exit code: that of the gravest problem. Bad input comes first, because it is what the user can mend.
    pub fn exit_code(&self) -> u8 {
        self.diagnostics.iter().map(|problem| problem.kind).max().unwrap_or(CommandErrorKind::Machinery).exit_code()
    }

    /// Whether there is nothing to say.
    pub fn is_output_closed(&self) -> bool {
        self.diagnostics.iter().all(|problem| problem.kind == CommandErrorKind::OutputClosed)
    }
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

/// Errors may quote what a file or a sandbox said: control characters are taken out, and lines after the first indented.
fn clean_and_indent(text: &str) -> String {
    let mut out = String::new();
    for (number, line) in text.trim_end().lines().enumerate() {
        let line = crate::report::text::sanitize(line);
        let _ = if number == 0 { write!(out, "{line}") } else { write!(out, "\n    {line}") };
    }
    out
}

/// What is behind an error, nearest first. A cause that only repeats the one before is left out.
fn error_chain(error: &dyn Error) -> Vec<String> {
    let mut causes: Vec<String> = Vec::new();
    let mut before = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !before.contains(&text) {
            causes.push(text.clone());
        }
        before = text;
        next = cause.source();
    }
    causes
}

impl From<EngineError> for CommandError {
    fn from(error: EngineError) -> Self {
        let shown = |kind| CommandError::from_error(kind, &error);
        match &error {
            EngineError::Unreachable { endpoint, .. } => {
                shown(CommandErrorKind::Machinery).with_hint(unreachable_hint(endpoint))
            }
            EngineError::PermissionDenied { .. } => shown(CommandErrorKind::Machinery).with_hint(
                "add yourself to the `docker` group (`sudo usermod -aG docker $USER`, then log in again), or use \
                 rootless Docker and set DOCKER_HOST to its socket",
            ),
            EngineError::InvalidSettings { .. } => {
                shown(CommandErrorKind::Input).with_hint("look at DOCKER_HOST, DOCKER_CONTEXT and `docker context ls`")
            }
            EngineError::DiskFull { .. } => shown(CommandErrorKind::Machinery).with_hint(
                "`longshore gc --dry-run` shows what longshore could give back; `docker system df` the rest",
            ),
            EngineError::NotFound { .. }
            | EngineError::TimedOut { .. }
            | EngineError::Refused { .. }
            | EngineError::Failed { .. }
            | EngineError::Depot { .. } => shown(CommandErrorKind::Machinery)
                .with_hint("`longshore doctor` checks the engine and all that a run needs"),
        }
    }
}

fn unreachable_hint(endpoint: &str) -> String {
    if endpoint.contains(".sock") || endpoint.starts_with("unix") || endpoint.starts_with('/') {
        "start Docker (`sudo systemctl start docker`, `sudo service docker start`, or Docker Desktop), or set \
         DOCKER_HOST to an engine that runs"
            .to_owned()
    } else {
        "look whether the engine that DOCKER_HOST or the current docker context names is up and can be reached"
            .to_owned()
    }
}

/// Writing to standard output failed: a reader that left is no error.
impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            CommandError::new(CommandErrorKind::OutputClosed, "")
        } else {
            CommandError::machinery("cannot write to standard output").with_cause(&error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_causes_and_hint_are_printed_on_separate_lines() {
        let error = EngineError::Unreachable {
            endpoint: "unix:///var/run/docker.sock".to_owned(),
            source: Box::new(io::Error::new(io::ErrorKind::NotFound, "no such file")),
        };
        let shown = CommandError::from(error);
        let text = shown.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "error: no engine answers at `unix:///var/run/docker.sock`");
        assert_eq!(lines[1], "  caused by: no such file");
        assert!(lines[2].starts_with("  hint: start Docker"), "{text}");
        assert_eq!(shown.exit_code(), 3);
    }

    #[test]
    fn invalid_input_takes_precedence_for_the_exit_code() {
        let both = CommandError::combine(vec![
            CommandError::machinery("no engine"),
            CommandError::input("no file").with_hint("make one"),
        ]);
        let both = both.expect_err("two problems");
        assert_eq!(both.exit_code(), 2);
        assert_eq!(both.to_string(), "error: no engine\nerror: no file\n  hint: make one\n");
        assert!(CommandError::combine(Vec::new()).is_ok());
    }

    #[test]
    fn broken_pipe_prints_nothing_and_exits_0() {
        let shown = CommandError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(shown.is_output_closed());
        assert_eq!((shown.exit_code(), shown.to_string().as_str()), (0, ""));
        assert_eq!(CommandError::from(io::Error::from(io::ErrorKind::StorageFull)).exit_code(), 3);
    }

    #[test]
    fn quoted_text_is_stripped_of_control_characters() {
        assert_eq!(CommandError::input("a\u{1b}[31mb\nc").to_string(), "error: ab\n    c\n");
    }
}
