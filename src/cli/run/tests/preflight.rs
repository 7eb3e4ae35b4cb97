//! Networks and branches that a run may not use.

use std::collections::BTreeSet;
use std::path::Path;

use crate::cli::ExitStatus;
use crate::cli::run::preflight::{check_network, conflicting_swarm_error};
use crate::engine::fake::FakeEngine;
use crate::ids::SwarmId;
use crate::state::journal::JOURNAL_VERSION;
use crate::state::{Journal, JournalHeader, SwarmDir};
use crate::swarm::{SwarmLimits, SwarmSpec, TasksFileSpec};

#[tokio::test]
async fn missing_network_is_an_error() {
    let engine = FakeEngine::new(|_| async { 0 }).with_network("build");
    assert!(check_network(&engine, "none").await.is_ok() && check_network(&engine, "build").await.is_ok());
    let missing = check_network(&engine, "bulid").await.expect_err("not there");
    assert_eq!(missing.exit_status(), ExitStatus::Machinery);
}

fn create_swarm_on(root: &Path, branch: &str) -> SwarmDir {
    let file = TasksFileSpec {
        path: "a.json".to_owned(),
        slug: "a".to_owned(),
        title: "A".to_owned(),
        branch: branch.parse().expect("valid"),
        base: "0123456789".repeat(4).parse().expect("valid"),
        has_verify: false,
    };
    let limits = SwarmLimits {
        max_sandboxes: 1,
        retries: 0,
        machinery_retries: 0,
        backoff: std::time::Duration::ZERO,
        story_timeout: std::time::Duration::ZERO,
        idle_timeout: std::time::Duration::ZERO,
        slack: std::time::Duration::ZERO,
        grace_period: std::time::Duration::ZERO,
        max_bad_records: 1,
        liveness_timeout: crate::swarm::default_liveness_timeout(),
    };
    let swarm = SwarmId::random();
    let header = JournalHeader {
        schema_version: JOURNAL_VERSION,
        program_version: String::new(),
        swarm_id: swarm,
        started: jiff::Timestamp::UNIX_EPOCH,
        spec: SwarmSpec {
            swarm,
            files: vec![file],
            stories: Vec::new(),
            assignments: Vec::new(),
            limits,
            amp: None,
            landing: None,
        },
        settings: serde_json::Value::Null,
        tasks: Vec::new(),
    };
    let dir = SwarmDir::create(root, swarm).expect("made");
    Journal::create(&dir.journal_file(), &header).expect("begun");
    dir
}

#[test]
fn a_branch_allows_one_live_swarm() {
    let root = tempfile::tempdir().expect("a directory");
    let asked = |branch: &str, own| conflicting_swarm_error(root.path(), &BTreeSet::from([branch]), own);
    assert!(asked("feat/a", None).is_none(), "no swarm at all");
    let (dir, other) = (create_swarm_on(root.path(), "feat/a"), create_swarm_on(root.path(), "feat/b"));
    let lock = dir.lock().expect("free");
    let _other = other.lock().expect("free");
    let refused = asked("feat/a", None).expect("refused");
    assert_eq!(refused.exit_status(), ExitStatus::InvalidInput);
    assert!(asked("feat/c", None).is_none() && asked("feat/a", Some(dir.swarm())).is_none());
    drop(lock);
    assert!(asked("feat/a", None).is_none(), "it is over");
}
