//! Parses the arguments of `acp-shim mail`: positional ones, and flags with or without a value.
//!
//! Must not: know their meaning.

use std::str::FromStr;

use super::error::MailError;

/// The name, and whether a value follows.
pub(super) type Flag = (&'static str, bool);

/// The commands and their flags.
pub(super) const COMMANDS: &[(&str, &[Flag])] = &[
    (
        "send",
        &[
            ("--to", true),
            ("--re", true),
            ("--type", true),
            ("--subject", true),
            ("--context", true),
            ("--expect", true),
            ("--priority", true),
            ("--ttl", true),
            JSON,
        ],
    ),
    ("read", &[("--all", false), JSON]),
    ("wait", &[("--from", true), ("--re", true), ("--timeout", true), JSON]),
    ("state", &[("--set", false), ("--append", true), ("--file", true), JSON]),
    ("claim", &[("--note", true), ("--timeout", true), JSON]),
    ("release", &[JSON]),
    ("roster", &[JSON]),
];

const JSON: Flag = ("--json", false);

#[derive(Debug, Default)]
pub(super) struct ParsedArgs {
    flags: Vec<(&'static str, String)>,
    pub(super) positional: Vec<String>,
}

impl ParsedArgs {
    /// After `--` every argument is positional.
    pub(super) fn parse(args: &[String], known: &[Flag]) -> Result<Self, MailError> {
        let mut parsed = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if arg == "--" {
                parsed.positional.extend(args.cloned());
                break;
            }
            if !arg.starts_with("--") {
                parsed.positional.push(arg.clone());
                continue;
            }
            let (name, value) = arg.split_once('=').map_or((arg.as_str(), None), |(name, value)| (name, Some(value)));
            let Some((name, takes)) = known.iter().find(|(flag, _)| *flag == name).copied() else {
                let names = known.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
                let problem = format!("no such option: `{name}`; the options are {names}; text follows `--`");
                return Err(MailError::usage(problem));
            };
            let value = match (takes, value) {
                (true, Some(value)) => value.to_owned(),
                (true, None) => args.next().ok_or_else(|| MailError::usage(format!("`{name}` needs a value")))?.clone(),
                (false, None) => String::new(),
                (false, Some(_)) => return Err(MailError::usage(format!("`{name}` takes no value"))),
            };
            if parsed.value(name).is_some() {
                return Err(MailError::usage(format!("`{name}` occurs twice")));
            }
            parsed.flags.push((name, value));
        }
        Ok(parsed)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.flags.iter().find(|(flag, _)| *flag == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn parse_value<T: FromStr>(&self, name: &str) -> Result<Option<T>, MailError>
    where
        T::Err: std::fmt::Display,
    {
        let Some(text) = self.value(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|error: T::Err| MailError::usage(format!("`{name}`: {error}")))
    }

    pub(super) fn parse_number(&self, name: &str, min: u32) -> Result<Option<u32>, MailError> {
        let Some(text) = self.value(name) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| *number >= min);
        let wrong = || MailError::usage(format!("`{name}`: expected a whole number from {min}, found `{text}`"));
        number.map(Some).ok_or_else(wrong)
    }

    pub(super) fn parse_positional<T: FromStr>(&self, at: usize) -> Result<Option<T>, MailError>
    where
        T::Err: std::fmt::Display,
    {
        let Some(text) = self.positional.get(at) else { return Ok(None) };
        text.parse().map(Some).map_err(|error: T::Err| MailError::usage(error.to_string()))
    }

    pub(super) fn reject_positional_from(&self, at: usize) -> Result<(), MailError> {
        match self.positional.get(at) {
            Some(word) => Err(MailError::usage(format!("unexpected argument `{word}`"))),
            None => Ok(()),
        }
    }
}
