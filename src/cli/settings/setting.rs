//! [`Setting`]: everything there is to know about one setting, and [`SettingValue`]: how a type of value is written.
//!
//! Must not: know which settings there are.

use std::num::ParseIntError;

use clap::{Arg, ArgAction, ArgMatches, value_parser};

use super::error::SettingsError;
use super::source::SettingSource;
use crate::cli::amounts::{AmountError, Cpus, Size, Span, SpanOrOff};
use crate::plan::FanOut;

/// A type that settings have.
pub(crate) trait SettingValue: Clone + Send + Sync + 'static {
    /// Parses the value of a `LONGSHORE_*` variable.
    fn parse(text: &str) -> Result<Self, String>;

    /// The value as `doctor` and help show it.
    fn show(&self) -> String;

    /// Makes `arg` parse values of this type.
    fn configure(arg: Arg) -> Arg;

    fn from_matches(matches: &mut ArgMatches, id: &str) -> Option<Self> {
        matches.remove_one(id)
    }

    /// Whether help shows the default.
    const HELP_SHOWS_DEFAULT: bool = true;
}

macro_rules! displayed_values {
    ($parse:expr, $allow:ident: $($name:ident),*) => { $(
        impl SettingValue for $name {
            fn parse(text: &str) -> Result<Self, String> {
                $parse(text, text.trim().parse())
            }
            fn show(&self) -> String {
                self.to_string()
            }
            fn configure(arg: Arg) -> Arg {
                arg.value_parser(value_parser!($name)).$allow(true)
            }
        }
    )* };
}

displayed_values!(
    |_, parsed: Result<_, AmountError>| parsed.map_err(|error| error.to_string()),
    allow_hyphen_values: Size, Span, SpanOrOff, Cpus
);
displayed_values!(
    |text, parsed: Result<_, ParseIntError>| parsed.map_err(|_| format!("`{text}` is not a number")),
    allow_negative_numbers: u16, u32
);

impl SettingValue for String {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
    fn show(&self) -> String {
        self.clone()
    }
    fn configure(arg: Arg) -> Arg {
        arg
    }
}

impl SettingValue for Vec<String> {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(vec![text.to_owned()])
    }
    fn show(&self) -> String {
        if self.is_empty() { "none".to_owned() } else { self.join("; ") }
    }
    fn configure(arg: Arg) -> Arg {
        arg.action(ArgAction::Append)
    }
    fn from_matches(matches: &mut ArgMatches, id: &str) -> Option<Self> {
        matches.remove_many(id).map(Iterator::collect)
    }
    const HELP_SHOWS_DEFAULT: bool = false;
}

impl SettingValue for bool {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "1" | "true" | "yes" => Ok(true),
            "0" | "false" | "no" => Ok(false),
            other => Err(format!("`{other}` is neither `true` nor `false`")),
        }
    }
    fn show(&self) -> String {
        self.to_string()
    }
    fn configure(arg: Arg) -> Arg {
        arg.action(ArgAction::Set).value_parser(value_parser!(bool)).num_args(0).default_missing_value("true")
    }
    const HELP_SHOWS_DEFAULT: bool = false;
}

impl clap::ValueEnum for FanOut {
    fn value_variants<'a>() -> &'a [Self] {
        &[FanOut::Story, FanOut::File]
    }
    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        let (name, help) = match self {
            FanOut::Story => ("story", "One sandbox per story, started when the stories it depends on have landed"),
            FanOut::File => ("file", "One sandbox per tasks file"),
        };
        Some(clap::builder::PossibleValue::new(name).help(help))
    }
}

impl SettingValue for FanOut {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "story" => Ok(FanOut::Story),
            "file" => Ok(FanOut::File),
            other => Err(format!("`{other}` is neither `story` nor `file`")),
        }
    }
    fn show(&self) -> String {
        format!("{self:?}").to_lowercase()
    }
    fn configure(arg: Arg) -> Arg {
        arg.value_parser(value_parser!(FanOut))
    }
}

/// A setting of type `T`. Made by the declarations in `declaration.rs`.
pub(crate) struct Setting<T> {
    pub(super) name: &'static str,
    pub(super) key: &'static str,
    pub(super) help: &'static str,
    /// `--memory <SIZE>`.
    flag: Option<&'static str>,
    in_plan: bool,
    pub(super) default: Option<T>,
    unset: &'static str,
    parse: fn(&str) -> Result<T, String>,
    show: fn(&T) -> String,
    configure: fn(Arg) -> Arg,
    check: fn(&T) -> Option<&'static str>,
}

/// The methods that a declaration may use.
impl<T: SettingValue> Setting<T> {
    pub(super) fn new(key: &'static str, help: &'static str) -> Self {
        Self {
            name: key,
            key,
            help: help.trim_ascii_start(),
            flag: None,
            in_plan: false,
            default: None,
            unset: "none",
            parse: T::parse,
            show: T::show,
            configure: |arg| arg,
            check: |_| None,
        }
    }

    pub(super) fn default(self, value: impl Into<T>) -> Self {
        Self { default: Some(value.into()), ..self }
    }

    /// What `doctor` shows if the setting has no value.
    pub(super) fn unset(self, text: &'static str) -> Self {
        Self { unset: text, ..self }
    }

    /// Replaces the name, which otherwise is the key.
    pub(super) fn name(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// Adds a flag to `run`: `--memory <SIZE>`, or `--keep`.
    pub(super) fn flag(self, flag: &'static str) -> Self {
        Self { flag: Some(flag), ..self }
    }

    /// Adds a flag to `plan` and `run`.
    pub(super) fn plan_flag(self, flag: &'static str) -> Self {
        Self { in_plan: true, ..self.flag(flag) }
    }

    pub(super) fn configure(self, configure: fn(Arg) -> Arg) -> Self {
        Self { configure, ..self }
    }

    pub(super) fn parse(self, parse: fn(&str) -> Result<T, String>) -> Self {
        Self { parse, ..self }
    }

    pub(super) fn show(self, show: fn(&T) -> String) -> Self {
        Self { show, ..self }
    }

    /// Sets a check of the merged value that says what is wrong with it.
    pub(super) fn check(self, check: fn(&T) -> Option<&'static str>) -> Self {
        Self { check, ..self }
    }
}

impl<T: SettingValue> Setting<T> {
    pub(super) fn flag_name(&self) -> Option<&'static str> {
        self.flag.map(|flag| flag.split_once(' ').map_or(flag, |(name, _)| name))
    }

    pub(super) fn env(&self) -> String {
        env_var_name(self.name)
    }

    pub(super) fn parse_env(&self, text: &str) -> Result<T, String> {
        (self.parse)(text)
    }

    pub(super) fn show_value(&self, value: Option<&T>) -> String {
        value.map_or_else(|| self.unset.to_owned(), self.show)
    }

    /// What is wrong with a merged value.
    pub(super) fn problem(&self, value: Option<&T>, source: &SettingSource) -> Option<SettingsError> {
        let value = value?;
        (self.check)(value).map(|problem| SettingsError::InvalidValue {
            name: self.name,
            value: (self.show)(value),
            source_of_value: source.clone(),
            problem,
        })
    }

    pub(super) fn has_flag(&self, plan_only: bool) -> bool {
        self.flag.is_some() && (self.in_plan || !plan_only)
    }

    /// The flag for clap.
    pub(super) fn arg(&self) -> Option<Arg> {
        let (long, value_name) = match self.flag?.split_once(' ') {
            Some((long, value_name)) => (long, value_name.trim_matches(['<', '>'])),
            None => (self.flag?, ""),
        };
        let mut help = self.help.to_owned();
        if let Some(default) = self.default.as_ref().filter(|_| T::HELP_SHOWS_DEFAULT) {
            help.push_str(&format!(" [default: {}]", (self.show)(default)));
        }
        let arg = Arg::new(self.key).long(long.trim_start_matches('-')).help(help).help_heading("Settings");
        let arg = if value_name.is_empty() { arg } else { arg.value_name(value_name) };
        Some((self.configure)(T::configure(arg)))
    }

    pub(super) fn read_flag(&self, matches: &mut ArgMatches) -> Option<T> {
        T::from_matches(matches, self.key)
    }
}

/// `LONGSHORE_AMP_HEARTBEAT` for `amp.heartbeat`.
pub(super) fn env_var_name(setting: &str) -> String {
    format!("LONGSHORE_{}", setting.replace('.', "_").to_ascii_uppercase())
}
