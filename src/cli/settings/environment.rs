//! The `LONGSHORE_*` variables, as a layer of the settings.

use std::collections::BTreeMap;
use std::fmt;

use super::{EnvLookup, SettingsError, env_var_name};
use crate::cli::args::FanOutArg;
use crate::cli::config::{AmpConfig, Config, GitConfig, ReviewConfig};
use crate::cli::variable::VariableError;

/// The `LONGSHORE_*` layer.
pub(super) fn environment_layer(lookup: EnvLookup<'_>) -> Result<Config, Vec<SettingsError>> {
    let mut problems = Vec::new();
    fn read_setting<T>(
        lookup: EnvLookup<'_>,
        problems: &mut Vec<SettingsError>,
        setting: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let name = env_var_name(setting);
        let value = lookup(&name).filter(|value| !value.is_empty())?;
        let parsed = value.to_str().ok_or_else(|| "it is not UTF-8".to_owned()).and_then(parse);
        parsed.map_err(|problem| problems.push(SettingsError::InvalidEnvironment { name, problem })).ok()
    }
    fn parse_value<T: std::str::FromStr<Err: fmt::Display>>(text: &str) -> Result<T, String> {
        text.trim().parse().map_err(|error: T::Err| error.to_string())
    }
    fn parse_bool(text: &str) -> Result<bool, String> {
        match text {
            "1" | "true" | "yes" => Ok(true),
            "0" | "false" | "no" => Ok(false),
            other => Err(format!("`{other}` is neither `true` nor `false`")),
        }
    }
    let text = |value: &str| Ok::<_, String>(value.to_owned());
    let all = &mut problems;
    let config = Config {
        agent: read_setting(lookup, all, "agent", text),
        image: read_setting(lookup, all, "image", text),
        max: read_setting(lookup, all, "max", |value| match value.trim().parse() {
            Ok(max @ 1..=1000) => Ok(max),
            _ => Err(format!("`{value}` is not a number from 1 to 1000")),
        }),
        fan_out: read_setting(lookup, all, "fan_out", |value| match value {
            "story" => Ok(FanOutArg::Story),
            "file" => Ok(FanOutArg::File),
            other => Err(format!("`{other}` is neither `story` nor `file`")),
        }),
        network: read_setting(lookup, all, "network", text),
        memory: read_setting(lookup, all, "memory", parse_value),
        reserve_memory: read_setting(lookup, all, "reserve_memory", parse_value),
        reserve_disk: read_setting(lookup, all, "reserve_disk", parse_value),
        memory_budget: read_setting(lookup, all, "memory_budget", parse_value),
        cpus: read_setting(lookup, all, "cpus", parse_value),
        timeout: read_setting(lookup, all, "timeout", parse_value),
        idle_timeout: read_setting(lookup, all, "idle_timeout", parse_value),
        retries: read_setting(lookup, all, "retries", |value| {
            value.trim().parse().map_err(|_| format!("`{value}` is not a number"))
        }),
        verify: read_setting(lookup, all, "verify", |value| Ok(vec![value.to_owned()])),
        grace: read_setting(lookup, all, "grace", parse_value),
        notify: read_setting(lookup, all, "notify", text),
        notify_url: read_setting(lookup, all, "notify_url", text),
        keep: read_setting(lookup, all, "keep", parse_bool),
        mailbox: read_setting(lookup, all, "mailbox", parse_bool),
        env: read_setting(lookup, all, "env", |value| {
            value
                .split(',')
                .map(str::trim)
                .filter(|name| !name.is_empty())
                .map(|name| name.parse().map_err(|error: VariableError| error.to_string()))
                .collect()
        }),
        review: ReviewConfig {
            agent: read_setting(lookup, all, "review", text),
            criteria: read_setting(lookup, all, "review_criteria", |value| Ok(vec![value.to_owned()])),
            rounds: read_setting(lookup, all, "review_rounds", |value| {
                value.trim().parse().map_err(|_| format!("`{value}` is not a number"))
            }),
        },
        amp: AmpConfig {
            ack_dispatch: read_setting(lookup, all, "amp_ack_dispatch", parse_value),
            ack_result: read_setting(lookup, all, "amp_ack_result", parse_value),
            ack_request: read_setting(lookup, all, "amp_ack_request", parse_value),
            ack_verdict: read_setting(lookup, all, "amp_ack_verdict", parse_value),
            heartbeat: read_setting(lookup, all, "amp_heartbeat", parse_value),
        },
        git: GitConfig {
            name: read_setting(lookup, all, "git_name", text),
            email: read_setting(lookup, all, "git_email", text),
        },
        agents: BTreeMap::new(),
    };
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}
