//! Layers, their sources and invalid values.

mod config_file;
mod declaration;
pub(crate) mod info;

use std::ffi::OsString;
use std::path::Path;

use clap::Parser;

use super::config_file::parse_config;
use super::error::SettingsError;
use super::source::Sourced;
use super::{Config, SettingRow, SettingSource, load};
use crate::cli::amounts::Size;
use crate::cli::args::{Cli, CliCommand};
use crate::cli::run::preflight::flags_layer;

fn parse_flags(line: &str) -> Config {
    let cli = Cli::try_parse_from(format!("longshore run f.json {line}").split_whitespace());
    match cli.expect("good flags").command {
        CliCommand::Run(args) => flags_layer(&args).expect("good variables"),
        _ => panic!("run"),
    }
}

fn env_table<'a>(pairs: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<OsString> + 'a {
    move |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
}

fn row(name: &str, value: &str, source: &str) -> SettingRow {
    SettingRow { name: name.to_owned(), value: value.to_owned(), source: source.to_owned() }
}

#[test]
fn higher_layers_override_lower_ones() {
    let dir = tempfile::tempdir().expect("a directory");
    let repo = dir.path().join("repo");
    let user = dir.path().join("config/longshore");
    std::fs::create_dir_all(&repo).expect("made");
    std::fs::create_dir_all(&user).expect("made");
    std::fs::write(
        repo.join(".longshore.toml"),
        "max = 3\nmemory = '1g'\nimage = 'repo'\nverify = ['repo']\nenv = ['B=repo', 'C=repo']\n[agents.a]\nargv = ['repo']",
    )
    .expect("written");
    std::fs::write(
        user.join("config.toml"),
        "max = 4\nmemory = '2g'\nimage = 'user'\nretries = 7\nverify = ['u1', 'u2']\n[agents.a]\nargv = ['user']\n[agents.b]\nargv = ['user']",
    )
    .expect("written");
    let config_home = dir.path().join("config");
    let pairs = [
        ("XDG_CONFIG_HOME", config_home.to_str().expect("UTF-8")),
        ("LONGSHORE_MAX", "2"),
        ("LONGSHORE_MEMORY", "512m"),
        ("LONGSHORE_ENV", "B=env,D=env"),
    ];
    let settings = load(parse_flags("--max 1 --env A=flag"), Some(&repo), &env_table(&pairs)).expect("good settings");
    assert_eq!((settings.max.value, settings.max.source), (Some(1), SettingSource::Flag("--max")));
    let memory = SettingSource::Environment("LONGSHORE_MEMORY".into());
    assert_eq!((settings.memory.value, settings.memory.source), (Size(512 << 20), memory));
    assert_eq!(
        (settings.image.value, settings.image.source),
        ("repo".into(), SettingSource::File(repo.join(".longshore.toml")))
    );
    assert_eq!((settings.retries.value, settings.retries.source), (7, SettingSource::File(user.join("config.toml"))));
    assert_eq!((settings.network.value, settings.network.source), ("none".into(), SettingSource::Default));
    assert_eq!(settings.verify.value, ["repo"]);
    assert_eq!((&settings.agents["a"].value.argv[0][..], &settings.agents["b"].value.argv[0][..]), ("repo", "user"));
    let env: Vec<_> = settings.env.iter().map(|v| (v.value.key(), v.value.value().unwrap_or_default())).collect();
    assert_eq!(env, [("A", "flag"), ("B", "env"), ("D", "env"), ("C", "repo")]);
}

#[test]
fn idle_timeout_defaults_to_on_and_can_be_off() {
    let with = |line: &str, pairs| {
        load(parse_flags(line), None, &env_table(pairs)).map(|all| all.idle_timeout.value.0.as_secs()).ok()
    };
    assert_eq!(with("", &[]), Some(600));
    assert_eq!(with("--idle-timeout off", &[]), Some(0));
    assert_eq!(with("", &[("LONGSHORE_IDLE_TIMEOUT", "2h")]), Some(7200));
    assert_eq!(with("--idle-timeout 10ms", &[]), None);
    let rows = load(parse_flags("--idle-timeout 0"), None, &env_table(&[])).expect("good settings").rows();
    assert!(rows.contains(&row("idle_timeout", "off", "--idle-timeout")), "{rows:?}");
}

#[test]
fn mailbox_setting_overrides_the_tasks_files() {
    let with = |line: &str, pairs| load(parse_flags(line), None, &env_table(pairs)).expect("good settings").mailbox;
    assert_eq!(with("", &[]), Sourced { value: None, source: SettingSource::Default });
    assert_eq!(with("--mailbox", &[("LONGSHORE_MAILBOX", "no")]).value, Some(true));
    let off = with("", &[("LONGSHORE_MAILBOX", "no")]);
    assert_eq!((off.value, off.source), (Some(false), SettingSource::Environment("LONGSHORE_MAILBOX".into())));
    assert!(load(parse_flags(""), None, &env_table(&[("LONGSHORE_MAILBOX", "/longshore/mailbox")])).is_err());
    let config = parse_config("mailbox = true", Path::new("c.toml")).expect("good");
    let rows = load(config, None, &env_table(&[])).expect("good settings").rows();
    assert!(rows.iter().any(|row| row.name == "mailbox" && row.value == "true"), "{rows:?}");
}

#[test]
fn all_problems_are_reported_at_once() {
    let pairs = [("LONGSHORE_MAX", "none"), ("LONGSHORE_TIMEOUT", "30"), ("LONGSHORE_KEEP", "maybe")];
    let problems = load(parse_flags(""), None, &env_table(&pairs)).expect_err("three problems");
    assert_eq!(problems.len(), 3, "{problems:?}");
    let problems =
        load(parse_flags("--memory 1m --network host --timeout 10ms"), None, &env_table(&[])).expect_err("three");
    assert_eq!(problems.len(), 3, "{problems:?}");
}

#[test]
fn unknown_agent_error_lists_known_agents() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join(".longshore.toml"), "[agents.one]\nargv=['x']\n[agents.two]\nargv=['x']")
        .expect("ok");
    let settings = load(parse_flags("--agent three"), Some(dir.path()), &env_table(&[])).expect("good settings");
    let error = settings.agent().expect_err("not there").to_string();
    assert_eq!(error, "there is no agent `three` (asked for by --agent); known are: `one`, `two`");
}

#[test]
fn variables_take_their_values_from_the_environment() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(
        dir.path().join(".longshore.toml"),
        "agent = 'x'\n[agents.x]\nargv=['x']\nenv=['KEY', 'ABSENT', 'MODE']",
    )
    .expect("written");
    let pairs = [("KEY", "k"), ("MODE", "m"), ("TAKEN", "t")];
    let lookup = env_table(&pairs);
    let settings = load(parse_flags("--env TAKEN --env MODE=flag"), Some(dir.path()), &lookup).expect("good");
    let values = settings.resolve_variables(&lookup).expect("all there");
    let wanted = [("KEY", "k"), ("MODE", "flag"), ("TAKEN", "t")];
    assert_eq!(values, wanted.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    let missing = load(parse_flags("--env NOT_THERE"), None, &lookup).expect("good").resolve_variables(&lookup);
    assert!(
        matches!(&missing.expect_err("absent")[..], [SettingsError::VariableNotSet { key, .. }] if key == "NOT_THERE")
    );
}

#[test]
fn variable_values_are_never_shown() {
    let settings = load(parse_flags("--env TOKEN=s3cret"), None, &env_table(&[])).expect("good");
    assert!(!format!("{:?} {:?}", settings, settings.rows()).contains("s3cret"));
}
