//! How a run reports, from flags, terminal and environment, and the reporter for it. Called by `cli/`.

use std::ffi::OsString;
use std::io::IsTerminal;

use super::background_writer::FirstWriteError;
use super::reporter::Reporter;
use super::text_style::TextStyle;
use super::{json, plain, progress};
use crate::ids::SwarmId;

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

/// The reporter of a mode. An event stream that cannot be written does not end the swarm: `first_error` has the reason afterwards.
pub fn new_reporter(
    mode: ReportMode,
    swarm: SwarmId,
    style: TextStyle,
    first_error: &FirstWriteError,
) -> Box<dyn Reporter> {
    match mode {
        ReportMode::Json => Box::new(json::JsonReporter::new(swarm, std::io::stdout(), first_error.clone())),
        ReportMode::Progress => Box::new(progress::ProgressBarReporter::new(swarm, style)),
        ReportMode::Plain => Box::new(plain::PlainReporter::new(swarm, style, std::io::stderr())),
        ReportMode::Quiet => Box::new(plain::PlainReporter::quiet(swarm, style, std::io::stderr())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Environment = &'static [(&'static str, &'static str)];

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
