//! Every declared setting has its key, variable, row and flag.

use std::collections::BTreeSet;
use std::ffi::OsString;

use clap::CommandFactory;

use crate::cli::args::Cli;
use crate::cli::settings::tests::info::{SettingInfo, settings};
use crate::cli::settings::{Config, load};

/// A value that every check accepts, for settings that are no text.
fn sample(setting: &SettingInfo) -> &'static str {
    match setting.key {
        "keep" | "mailbox" | "no_merge_check" | "red_base" | "git.sign" => "true",
        "fan_out" => "file",
        "max" | "retries" | "review.rounds" | "cpus" => "3",
        "memory" | "reserve_memory" | "reserve_disk" => "64m",
        "memory_budget" => "8k",
        "notify_url" => "https://example.org/",
        "timeout" | "idle_timeout" | "grace" => "77s",
        key if key.starts_with("amp.") => "77s",
        "env" => "NAME=value",
        _ => "text",
    }
}

#[test]
fn every_setting_has_a_key_in_the_schema() {
    let schema = serde_json::to_value(schemars::schema_for!(Config)).expect("JSON");
    let properties = |object: &serde_json::Value| -> BTreeSet<String> {
        object["properties"].as_object().expect("properties").keys().cloned().collect()
    };
    let mut keys = properties(&schema);
    for (table, definition) in [("review", "ReviewConfig"), ("amp", "AmpConfig"), ("git", "GitConfig")] {
        assert!(keys.remove(table), "{table}");
        keys.extend(properties(&schema["$defs"][definition]).iter().map(|key| format!("{table}.{key}")));
    }
    assert!(keys.remove("agents") && keys.insert("agents.NAME".to_owned()));
    assert_eq!(keys, settings().iter().map(|setting| setting.key.to_owned()).collect());
}

#[test]
fn every_setting_has_a_variable_and_a_row() {
    for setting in settings().iter().filter(|setting| setting.key != "agents.NAME") {
        let name = setting.env.as_deref().expect("a variable");
        let lookup = |wanted: &str| (wanted == name).then(|| OsString::from(sample(setting)));
        let merged = load(Config::default(), None, &lookup).unwrap_or_else(|problems| panic!("{name}: {problems:?}"));
        let rows = merged.rows();
        let changed: Vec<_> = rows.iter().filter(|row| row.source != "default").collect();
        assert_eq!(changed.len(), 1, "{name}: {changed:?}");
        assert_eq!((changed[0].name.as_str(), changed[0].source.as_str()), (setting.name, name));
        assert_ne!(changed[0].value, setting.default, "{name}");
    }
}

#[test]
fn defaults_are_those_of_the_merged_settings() {
    let rows = load(Config::default(), None, &|_| None).expect("good defaults").rows();
    let infos = settings();
    let declared: Vec<_> = infos.iter().map(|setting| (setting.name, setting.default.as_str())).collect();
    let merged: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.value.as_str())).collect();
    assert_eq!(merged, declared[..merged.len()]);
    assert_eq!(declared[merged.len()..], [("env", "none"), ("agents.NAME", "none")]);
}

#[test]
fn every_flag_of_run_and_plan_that_is_a_setting_is_declared() {
    let cli = Cli::command();
    let flags = |name: &str| -> BTreeSet<String> {
        let command = cli.find_subcommand(name).expect("a command");
        let settings = command.get_arguments().filter(|arg| arg.get_help_heading() == Some("Settings"));
        settings.map(|arg| format!("--{}", arg.get_long().expect("a flag"))).collect()
    };
    let declared: BTreeSet<String> = settings().iter().filter_map(|setting| setting.flag.map(str::to_owned)).collect();
    assert_eq!(flags("run"), declared);
    assert_eq!(flags("plan"), ["--agent", "--fan-out", "--mailbox"].map(str::to_owned).into());
}
