//! What the user sees of a swarm: while it runs ([`Reporter`]) and when it is over (`summary.rs`, `report_file.rs`).
//!
//! [`Announcement`] -> `report_line.rs` (a sentence) -> `plain.rs` (a line an event) or `progress.rs` (bars, the only user of
//! indicatif); or -> `event.rs` (the versioned wire form) -> `json.rs`. Lines are written on a
//! thread of their own (`background_writer.rs`). Called by `cli/` (chooses the mode, prints the
//! summary) and by `coordinator/` (announces). Must not: fail a swarm. A terminal that is gone, or a full disk under a
//! redirected output, loses lines and nothing else; that events were lost is told when the swarm is over ([`FirstWriteError`]).

mod background_writer;
pub mod event;
pub mod report_file;
pub mod json;
pub mod story_labels;
pub mod plain;
pub mod progress;
pub mod summary;
pub mod table;
pub mod text;
pub mod report_line;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use jiff::tz::TimeZone;

pub use story_labels::StoryLabels;

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
pub enum ReportMode {
    /// NDJSON events on standard output.
    Json,
    /// Bars on standard error.
    Progress,
    /// A line an event on standard error.
    Plain,
    /// Problems only, on standard error.
    Quiet,
}

impl ReportMode {
    /// Bars need a terminal that can move its cursor, and are noise in the log of a CI job.
    pub fn detect(json: bool, quiet: bool, lookup: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let terminal = std::io::stderr().is_terminal() && std::io::stdout().is_terminal();
        Self::from_environment(json, quiet, terminal, lookup)
    }

    fn from_environment(json: bool, quiet: bool, terminal: bool, lookup: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let set = |name: &str| lookup(name).is_some_and(|value| !value.is_empty() && value != "false" && value != "0");
        let dumb = lookup("TERM").is_some_and(|term| term == "dumb");
        match (json, quiet) {
            (true, _) => ReportMode::Json,
            (_, true) => ReportMode::Quiet,
            _ if terminal && !dumb && !set("CI") => ReportMode::Progress,
            _ => ReportMode::Plain,
        }
    }
}

/// How text looks.
#[derive(Debug, Clone)]
pub struct TextStyle {
    /// Colours on standard error.
    pub colour: bool,
    /// For the times of day.
    pub time_zone: TimeZone,
}

impl TextStyle {
    /// That of this terminal, for what is written to `stream`. `NO_COLOR` (<https://no-color.org>) is honoured.
    pub fn for_stream(stream: &impl IsTerminal, lookup: &dyn Fn(&str) -> Option<OsString>) -> Self {
        Self { colour: use_colour(stream.is_terminal(), lookup), time_zone: TimeZone::system() }
    }

    /// Without colours, in UTC: for tests and files.
    pub fn plain() -> Self {
        Self { colour: false, time_zone: TimeZone::UTC }
    }
}

fn use_colour(terminal: bool, lookup: &dyn Fn(&str) -> Option<OsString>) -> bool {
    let forbidden = lookup("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = lookup("TERM").is_some_and(|term| term == "dumb");
    terminal && !forbidden && !dumb
}

/// Why a stream of events is not whole, where it is not. Clones tell of the same stream.
#[derive(Debug, Clone, Default)]
pub struct FirstWriteError(Arc<OnceLock<std::io::Error>>);

impl FirstWriteError {
    /// The first write that failed. A reader that went away is no trouble.
    pub fn error(&self) -> Option<&std::io::Error> {
        self.0.get()
    }

    fn record(&self, error: std::io::Error) {
        if error.kind() != std::io::ErrorKind::BrokenPipe {
            // The first is the one that says why.
            let _ = self.0.set(error);
        }
    }
}

/// The reporter of a mode. A stream of events that cannot be written does not end the swarm: `trouble` tells of it afterwards.
pub fn new_reporter(
    mode: ReportMode,
    names: StoryLabels,
    look: TextStyle,
    trouble: &FirstWriteError,
) -> Box<dyn Reporter> {
    match mode {
        ReportMode::Json => Box::new(json::JsonReporter::new(names, std::io::stdout(), trouble.clone())),
        ReportMode::Progress => Box::new(progress::ProgressBarReporter::new(names, look)),
        ReportMode::Plain => Box::new(plain::PlainReporter::new(names, look, std::io::stderr())),
        ReportMode::Quiet => Box::new(plain::PlainReporter::quiet(names, look, std::io::stderr())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Environment = &'static [(&'static str, &'static str)];

    #[test]
    fn colour_needs_a_capable_terminal() {
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
            assert_eq!(use_colour(terminal, &lookup), wanted, "{environment:?}");
        }
    }

    #[test]
    fn the_mode_depends_on_flags_and_terminal() {
        let table: [(bool, bool, bool, Environment, ReportMode); 8] = [
            (false, false, true, &[], ReportMode::Progress),
            (false, false, false, &[], ReportMode::Plain),
            (false, false, true, &[("CI", "true")], ReportMode::Plain),
            (false, false, true, &[("CI", "")], ReportMode::Progress),
            (false, false, true, &[("CI", "false")], ReportMode::Progress),
            (false, false, true, &[("TERM", "dumb")], ReportMode::Plain),
            (true, false, true, &[], ReportMode::Json),
            (false, true, true, &[], ReportMode::Quiet),
        ];
        for (json, quiet, terminal, environment, wanted) in table {
            let lookup =
                |name: &str| environment.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value));
            assert_eq!(ReportMode::from_environment(json, quiet, terminal, &lookup), wanted, "{environment:?}");
        }
    }
}
