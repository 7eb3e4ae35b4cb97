//! Errors as the user sees them: `error: what`, `  caused by: ...`, `  hint: what to do`, and the exit code.
//!
//! Every command returns [`Shown`]; `cli/mod.rs` prints it. Modules below know nothing of exit codes or hints: they are
//! given here. Must not: panic, or print by itself.

use std::error::Error;
use std::fmt::{self, Write};
use std::io;

use crate::engine::EngineError;

/// What kind of trouble, which decides the exit code (README, "Exit codes").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Standard output was closed by its reader: nothing is said, and nothing is wrong.
    Quiet,
    /// Some story did not land, or what was asked about is not well.
    Unsuccessful,
    /// The engine, the disk or git failed us.
    Machinery,
    /// Bad usage or bad input: the user can mend it.
    Input,
}

impl Kind {
    /// The exit code.
    pub fn exit_code(self) -> u8 {
        match self {
            Kind::Quiet => 0,
            Kind::Unsuccessful => 1,
            Kind::Input => 2,
            Kind::Machinery => 3,
        }
    }
}

/// One or more problems, ready to be shown.
#[derive(Debug)]
pub struct Shown {
    problems: Vec<Problem>,
}

#[derive(Debug)]
struct Problem {
    kind: Kind,
    message: String,
    causes: Vec<String>,
    hint: Option<String>,
}

impl Shown {
    /// A problem in one sentence.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { problems: vec![Problem { kind, message: message.into(), causes: Vec::new(), hint: None }] }
    }

    /// Bad usage or bad input.
    pub fn input(message: impl Into<String>) -> Self {
        Self::new(Kind::Input, message)
    }

    /// The machinery failed.
    pub fn machinery(message: impl Into<String>) -> Self {
        Self::new(Kind::Machinery, message)
    }

    /// An error with its chain of causes.
    pub fn of(kind: Kind, error: &dyn Error) -> Self {
        Self { problems: vec![Problem { kind, message: error.to_string(), causes: chain(error), hint: None }] }
    }

    /// Several problems, shown one after the other; `Ok` where there are none.
    pub fn all(problems: Vec<Shown>) -> Result<(), Shown> {
        if problems.is_empty() {
            return Ok(());
        }
        Err(Shown { problems: problems.into_iter().flat_map(|shown| shown.problems).collect() })
    }

    /// Adds what caused it, with that one's own causes.
    #[must_use]
    pub fn caused_by(mut self, error: &dyn Error) -> Self {
        if let Some(last) = self.problems.last_mut() {
            last.causes.push(error.to_string());
            last.causes.extend(chain(error));
        }
        self
    }

    /// Says what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        if let Some(last) = self.problems.last_mut() {
            last.hint = Some(hint.into());
        }
        self
    }

    /// The exit code: that of the gravest problem. Bad input comes first, because it is what the user can mend.
    pub fn exit_code(&self) -> u8 {
        self.problems.iter().map(|problem| problem.kind).max().unwrap_or(Kind::Machinery).exit_code()
    }

    /// Whether there is nothing to say.
    pub fn is_quiet(&self) -> bool {
        self.problems.iter().all(|problem| problem.kind == Kind::Quiet)
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in self.problems.iter().filter(|problem| problem.kind != Kind::Quiet) {
            writeln!(f, "error: {}", indented(&problem.message))?;
            for cause in &problem.causes {
                writeln!(f, "  caused by: {}", indented(cause))?;
            }
            if let Some(hint) = &problem.hint {
                writeln!(f, "  hint: {}", indented(hint))?;
            }
        }
        Ok(())
    }
}

/// Errors may quote what a file or a sandbox said: control characters are taken out, and lines after the first indented.
fn indented(text: &str) -> String {
    let mut out = String::new();
    for (number, line) in text.trim_end().lines().enumerate() {
        let line = crate::report::text::sanitize(line);
        let _ = if number == 0 { write!(out, "{line}") } else { write!(out, "\n    {line}") };
    }
    out
}

/// What is behind an error, nearest first. A cause that only repeats the one before is left out.
fn chain(error: &dyn Error) -> Vec<String> {
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

impl From<EngineError> for Shown {
    fn from(error: EngineError) -> Self {
        let shown = |kind| Shown::of(kind, &error);
        match &error {
            EngineError::Unreachable { endpoint, .. } => shown(Kind::Machinery).hint(unreachable_hint(endpoint)),
            EngineError::Permission { .. } => shown(Kind::Machinery).hint(
                "add yourself to the `docker` group (`sudo usermod -aG docker $USER`, then log in again), or use \
                 rootless Docker and set DOCKER_HOST to its socket",
            ),
            EngineError::Settings { .. } => {
                shown(Kind::Input).hint("look at DOCKER_HOST, DOCKER_CONTEXT and `docker context ls`")
            }
            EngineError::DiskFull { .. } => shown(Kind::Machinery)
                .hint("`longshore gc --dry-run` shows what longshore could give back; `docker system df` the rest"),
            EngineError::NotFound { .. }
            | EngineError::TimedOut { .. }
            | EngineError::Refused { .. }
            | EngineError::Failed { .. }
            | EngineError::Depot { .. } => {
                shown(Kind::Machinery).hint("`longshore doctor` checks the engine and all that a run needs")
            }
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
impl From<io::Error> for Shown {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Shown::new(Kind::Quiet, "")
        } else {
            Shown::machinery("cannot write to standard output").caused_by(&error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_causes_and_hint_each_have_a_line() {
        let error = EngineError::Unreachable {
            endpoint: "unix:///var/run/docker.sock".to_owned(),
            source: Box::new(io::Error::new(io::ErrorKind::NotFound, "no such file")),
        };
        let shown = Shown::from(error);
        let text = shown.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "error: no engine answers at `unix:///var/run/docker.sock`");
        assert_eq!(lines[1], "  caused by: no such file");
        assert!(lines[2].starts_with("  hint: start Docker"), "{text}");
        assert_eq!(shown.exit_code(), 3);
    }

    #[test]
    fn bad_input_decides_the_exit_code() {
        let both = Shown::all(vec![Shown::machinery("no engine"), Shown::input("no file").hint("make one")]);
        let both = both.expect_err("two problems");
        assert_eq!(both.exit_code(), 2);
        assert_eq!(both.to_string(), "error: no engine\nerror: no file\n  hint: make one\n");
        assert!(Shown::all(Vec::new()).is_ok());
    }

    #[test]
    fn a_broken_pipe_is_quiet() {
        let shown = Shown::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(shown.is_quiet());
        assert_eq!((shown.exit_code(), shown.to_string().as_str()), (0, ""));
        assert_eq!(Shown::from(io::Error::from(io::ErrorKind::StorageFull)).exit_code(), 3);
    }

    #[test]
    fn quoted_text_cannot_drive_the_terminal() {
        assert_eq!(Shown::input("a\u{1b}[31mb\nc").to_string(), "error: ab\n    c\n");
    }
}
