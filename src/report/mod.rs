//! What the user sees of a swarm: while it runs ([`Reporter`]) and when it is over (`summary.rs`, `file.rs`).
//!
//! [`Announcement`] -> `words.rs` (a sentence) -> `plain.rs` (a line an event) or `progress.rs` (bars, the only user of
//! indicatif); or -> `event.rs` (the versioned wire form) -> `json.rs`. Lines are written on a
//! thread of their own (`aside.rs`). Called by `cli/` (chooses the mode, prints the
//! summary) and by `coordinator/` (announces). Must not: fail a swarm. A terminal that is gone, or a full disk under a
//! redirected output, loses lines and nothing else; that events were lost is told when the swarm is over ([`Trouble`]).

mod aside;
pub mod event;
pub mod file;
pub mod json;
pub mod names;
pub mod plain;
pub mod progress;
pub mod summary;
pub mod text;
pub mod words;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use jiff::tz::TimeZone;

pub use names::Names;

use crate::swarm::Announcement;

/// Tells the user what happens.
pub trait Reporter: Send {
    /// Tells one thing. Never blocks for long and never fails.
    fn announce(&mut self, at: Timestamp, announcement: &Announcement);
    /// The last call: leaves the terminal clean.
    fn close(&mut self);
}

/// How a run reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// NDJSON events on standard output.
    Json,
    /// Bars on standard error.
    Progress,
    /// A line an event on standard error.
    Plain,
    /// Problems only, on standard error.
    Quiet,
}

impl Mode {
    /// Bars need a terminal that can move its cursor, and are noise in the log of a CI job.
    pub fn choose(json: bool, quiet: bool, lookup: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let terminal = std::io::stderr().is_terminal() && std::io::stdout().is_terminal();
        Self::decide(json, quiet, terminal, lookup)
    }

    fn decide(json: bool, quiet: bool, terminal: bool, lookup: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let set = |name: &str| lookup(name).is_some_and(|value| !value.is_empty() && value != "false" && value != "0");
        let dumb = lookup("TERM").is_some_and(|term| term == "dumb");
        match (json, quiet) {
            (true, _) => Mode::Json,
            (_, true) => Mode::Quiet,
            _ if terminal && !dumb && !set("CI") => Mode::Progress,
            _ => Mode::Plain,
        }
    }
}

/// How text looks.
#[derive(Debug, Clone)]
pub struct Look {
    /// Colours on standard error.
    pub colour: bool,
    /// For the times of day.
    pub zone: TimeZone,
}

impl Look {
    /// That of this terminal, for what is written to `stream`. `NO_COLOR` (<https://no-color.org>) is honoured.
    pub fn of(stream: &impl IsTerminal, lookup: &dyn Fn(&str) -> Option<OsString>) -> Self {
        Self { colour: colour(stream.is_terminal(), lookup), zone: TimeZone::system() }
    }

    /// Without colours, in UTC: for tests and files.
    pub fn bare() -> Self {
        Self { colour: false, zone: TimeZone::UTC }
    }
}

fn colour(terminal: bool, lookup: &dyn Fn(&str) -> Option<OsString>) -> bool {
    let forbidden = lookup("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = lookup("TERM").is_some_and(|term| term == "dumb");
    terminal && !forbidden && !dumb
}

/// Why a stream of events is not whole, where it is not. Clones tell of the same stream.
#[derive(Debug, Clone, Default)]
pub struct Trouble(Arc<OnceLock<std::io::Error>>);

impl Trouble {
    /// The first write that failed. A reader that went away is no trouble.
    pub fn error(&self) -> Option<&std::io::Error> {
        self.0.get()
    }

    fn note(&self, error: std::io::Error) {
        if error.kind() != std::io::ErrorKind::BrokenPipe {
            // The first is the one that says why.
            let _ = self.0.set(error);
        }
    }
}

/// The reporter of a mode. A stream of events that cannot be written does not end the swarm: `trouble` tells of it afterwards.
pub fn reporter(mode: Mode, names: Names, look: Look, trouble: &Trouble) -> Box<dyn Reporter> {
    match mode {
        Mode::Json => Box::new(json::Json::new(names, std::io::stdout(), trouble.clone())),
        Mode::Progress => Box::new(progress::Progress::new(names, look)),
        Mode::Plain => Box::new(plain::Plain::new(names, look, std::io::stderr())),
        Mode::Quiet => Box::new(plain::Plain::quiet(names, look, std::io::stderr())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Environment = &'static [(&'static str, &'static str)];

    #[test]
    fn colours_are_for_terminals_that_want_them() {
        let table: [(bool, Environment, bool); 5] = [
            (true, &[], true),
            (false, &[], false),
            (true, &[("NO_COLOR", "1")], false),
            (true, &[("NO_COLOR", "")], true),
            (true, &[("TERM", "dumb")], false),
        ];
        for (terminal, environment, wanted) in table {
            let lookup =
                |name: &str| environment.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value));
            assert_eq!(colour(terminal, &lookup), wanted, "{environment:?}");
        }
    }

    #[test]
    fn modes() {
        let table: [(bool, bool, bool, Environment, Mode); 8] = [
            (false, false, true, &[], Mode::Progress),
            (false, false, false, &[], Mode::Plain),
            (false, false, true, &[("CI", "true")], Mode::Plain),
            (false, false, true, &[("CI", "")], Mode::Progress),
            (false, false, true, &[("CI", "false")], Mode::Progress),
            (false, false, true, &[("TERM", "dumb")], Mode::Plain),
            (true, false, true, &[], Mode::Json),
            (false, true, true, &[], Mode::Quiet),
        ];
        for (json, quiet, terminal, environment, wanted) in table {
            let lookup =
                |name: &str| environment.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value));
            assert_eq!(Mode::decide(json, quiet, terminal, &lookup), wanted, "{environment:?}");
        }
    }
}
