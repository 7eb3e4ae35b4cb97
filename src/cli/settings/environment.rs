//! The `LONGSHORE_*` variables, as a layer of the settings.

use std::collections::BTreeMap;
use std::fmt;

use super::{Lookup, SettingsError, variable_name};
use crate::cli::args::FanOutArg;
use crate::cli::config::{AmpConfig, Config, GitConfig, ReviewConfig};
use crate::cli::variable::VariableError;

/// The `LONGSHORE_*` layer.
pub(super) fn environment(lookup: Lookup<'_>) -> Result<Config, Vec<SettingsError>> {
    let mut problems = Vec::new();
    fn get<T>(
        lookup: Lookup<'_>,
        problems: &mut Vec<SettingsError>,
        setting: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let name = variable_name(setting);
        let value = lookup(&name).filter(|value| !value.is_empty())?;
        let parsed = value.to_str().ok_or_else(|| "it is not UTF-8".to_owned()).and_then(parse);
        parsed.map_err(|problem| problems.push(SettingsError::Environment { name, problem })).ok()
    }
    fn parsed<T: std::str::FromStr<Err: fmt::Display>>(text: &str) -> Result<T, String> {
        text.trim().parse().map_err(|error: T::Err| error.to_string())
    }
    fn yes_or_no(text: &str) -> Result<bool, String> {
        match text {
            "1" | "true" | "yes" => Ok(true),
            "0" | "false" | "no" => Ok(false),
            other => Err(format!("`{other}` is neither `true` nor `false`")),
        }
    }
    let text = |value: &str| Ok::<_, String>(value.to_owned());
    let all = &mut problems;
    let config = Config {
        agent: get(lookup, all, "agent", text),
        image: get(lookup, all, "image", text),
        max: get(lookup, all, "max", |value| match value.trim().parse() {
            Ok(max @ 1..=1000) => Ok(max),
            _ => Err(format!("`{value}` is not a number from 1 to 1000")),
        }),
        fan_out: get(lookup, all, "fan_out", |value| match value {
            "story" => Ok(FanOutArg::Story),
            "file" => Ok(FanOutArg::File),
            other => Err(format!("`{other}` is neither `story` nor `file`")),
        }),
        network: get(lookup, all, "network", text),
        memory: get(lookup, all, "memory", parsed),
        reserve_memory: get(lookup, all, "reserve_memory", parsed),
        reserve_disk: get(lookup, all, "reserve_disk", parsed),
        memory_budget: get(lookup, all, "memory_budget", parsed),
        cpus: get(lookup, all, "cpus", parsed),
        timeout: get(lookup, all, "timeout", parsed),
        idle_timeout: get(lookup, all, "idle_timeout", parsed),
        retries: get(lookup, all, "retries", |value| {
            value.trim().parse().map_err(|_| format!("`{value}` is not a number"))
        }),
        verify: get(lookup, all, "verify", |value| Ok(vec![value.to_owned()])),
        grace: get(lookup, all, "grace", parsed),
        notify: get(lookup, all, "notify", text),
        notify_url: get(lookup, all, "notify_url", text),
        keep: get(lookup, all, "keep", yes_or_no),
        mailbox: get(lookup, all, "mailbox", yes_or_no),
        env: get(lookup, all, "env", |value| {
            value
                .split(',')
                .map(str::trim)
                .filter(|name| !name.is_empty())
                .map(|name| name.parse().map_err(|error: VariableError| error.to_string()))
                .collect()
        }),
        review: ReviewConfig {
            agent: get(lookup, all, "review", text),
            criteria: get(lookup, all, "review_criteria", |value| Ok(vec![value.to_owned()])),
            rounds: get(lookup, all, "review_rounds", |value| {
                value.trim().parse().map_err(|_| format!("`{value}` is not a number"))
            }),
        },
        amp: AmpConfig {
            ack_dispatch: get(lookup, all, "amp_ack_dispatch", parsed),
            ack_result: get(lookup, all, "amp_ack_result", parsed),
            ack_request: get(lookup, all, "amp_ack_request", parsed),
            ack_verdict: get(lookup, all, "amp_ack_verdict", parsed),
            heartbeat: get(lookup, all, "amp_heartbeat", parsed),
        },
        git: GitConfig { name: get(lookup, all, "git_name", text), email: get(lookup, all, "git_email", text) },
        agents: BTreeMap::new(),
    };
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}
