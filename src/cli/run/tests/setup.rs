//! Concurrency and commit identity of a new swarm.

use std::path::Path;

use crate::cli::run::limits::swarm_limits;
use crate::cli::run::persisted_settings::commit_identity;
use crate::cli::settings::config_file::parse_config;
use crate::cli::settings::{self, Settings};
use crate::engine::EngineInfo;
use crate::handoff::assignment::GitIdentity;
use crate::plan::Plan;

fn load_settings(text: &str) -> Settings {
    let config = parse_config(text, Path::new("c.toml")).expect("a good config");
    settings::load(config, None, &|_| None).expect("good settings")
}

fn engine_info(cpus: usize, memory: u64) -> EngineInfo {
    EngineInfo {
        name: "Docker".to_owned(),
        api_version: "1.41".to_owned(),
        endpoint: "unix".to_owned(),
        arch: "x86_64".to_owned(),
        cpus,
        memory,
        volume_subpath: false,
        cgroup_version: 2,
        missing_limits: Vec::new(),
    }
}

#[test]
fn automatic_concurrency_fits_memory_and_cpus() {
    let plan = Plan {
        fan_out: Default::default(),
        files: Vec::new(),
        stories: Vec::new(),
        assignments: Vec::new(),
        waves: Vec::new(),
        agents: Vec::new(),
    };
    let gigabytes = |number: u64| number << 30;
    let table = [
        ("memory = '2g'", 2, gigabytes(16), 4),
        ("memory = '2g'", 8, gigabytes(16), 6),
        ("memory = '2g'", 2, gigabytes(1), 1),
        ("memory = '0'", 64, gigabytes(16), 16),
        ("max = 40", 1, gigabytes(1), 40),
    ];
    for (text, cpus, memory, wanted) in table {
        let limits = swarm_limits(&load_settings(text), &plan, &engine_info(cpus, memory));
        assert_eq!(limits.max_sandboxes, wanted, "{text} {cpus}");
    }
}

#[test]
fn commit_identity_prefers_settings_over_the_repo() {
    let of_repo = || Some(GitIdentity { name: "Ada".to_owned(), email: "ada@example.org".to_owned() });
    assert_eq!(commit_identity(&load_settings(""), of_repo()).name, "Ada");
    assert_eq!(commit_identity(&load_settings(""), None).email, "longshore@localhost");
    let mixed = commit_identity(&load_settings("[git]\nname = 'Bot'"), of_repo());
    assert_eq!((mixed.name.as_str(), mixed.email.as_str()), ("Bot", "ada@example.org"));
}
