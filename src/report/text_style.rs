//! Colours and time zone of text.

use std::ffi::OsString;
use std::io::IsTerminal;

use jiff::tz::TimeZone;

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
}
