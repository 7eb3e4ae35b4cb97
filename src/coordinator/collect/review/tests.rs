//! Valid and invalid reviews. Git is real; the test writes the sandbox's files.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::delivery::Repo;
use crate::engine::depot::fake::FakeVolumes;
use crate::engine::depot::{DepotClient, DepotSpec, DepotVolumes};
use crate::engine::fake::FakeEngine;
use crate::ids::AttemptId;

const SWARM: &str = "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d";
const CRITERION: &str = "it greets";
const RESULT_REF: &str = "refs/longshore/results/a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d/US-001/2";

struct ReviewFixture {
    temp_dir: tempfile::TempDir,
    volumes: FakeVolumes,
    collector: Collector,
    context: AttemptContext,
}

impl ReviewFixture {
    async fn new() -> Self {
        let temp_dir = tempfile::tempdir().unwrap();
        let root = temp_dir.path().join("repo");
        std::fs::create_dir(&root).unwrap();
        git(&root, &["init", "-q", "-b", "main"]);
        std::fs::write(root.join("README"), "helo\nyou\n").unwrap();
        git(&root, &["add", "-A"]);
        git(&root, &["commit", "-qm", "US-001: greet"]);
        let commit: CommitId = git(&root, &["rev-parse", "HEAD"]).parse().unwrap();
        let volumes = FakeVolumes::default();
        let played = volumes.clone();
        let engine = Arc::new(FakeEngine::new(move |run| played.clone().serve(run)).with_image("image"));
        let named = |name: &str| format!("longshore-test-{name}");
        let spec = DepotSpec {
            swarm: SWARM.parse().unwrap(),
            repo: "0123456789ab".to_owned(),
            image: "image".to_owned(),
            name: named("depot"),
            volumes: DepotVolumes { objects: named("objects"), inbox: named("in"), work: named("work"), mailbox: None },
            shim_binary: b"shim".to_vec().into(),
            reuse_shim: false,
            memory_limit: 0,
        };
        let depot = DepotClient::start(engine.clone(), &spec).await.unwrap();
        let attempt = AttemptId { assignment: "T-2026-001".parse().unwrap(), number: 2 };
        let context = AttemptContext {
            swarm: SWARM.parse().unwrap(),
            attempt,
            uid: 20_001,
            branch: "feat/work".parse().unwrap(),
            base: commit,
            merge_head: None,
            stories: vec![("US-001".parse().unwrap(), "US-001".to_owned())],
            container: None,
        };
        depot.prepare_sandbox_dirs(&context.attempt.dir_name(), context.users(), Vec::new()).await.unwrap();
        let collector = Collector {
            has_reviews: false,
            engine,
            depot,
            repo: Repo::discover(&root).await.unwrap(),
            incoming: temp_dir.path().to_owned(),
            max_bundle: 1 << 20,
        };
        Self { temp_dir, volumes, collector, context }
    }

    fn root(&self) -> PathBuf {
        self.temp_dir.path().join("repo")
    }

    /// A commit in a clone of the repo, on top of the one under review, and its bundle.
    fn commit(&self, text: &str) -> (CommitId, Vec<u8>) {
        let clone = tempfile::tempdir().unwrap();
        let at = clone.path();
        git(at, &["clone", "-q", self.root().to_str().unwrap(), "."]);
        git(at, &["checkout", "-qb", "feat/work"]);
        std::fs::write(at.join("README"), text).unwrap();
        git(at, &["commit", "-qam", "mend"]);
        git(at, &["bundle", "create", "-q", "bundle", "feat/work", &format!("^{}", self.context.base)]);
        (git(at, &["rev-parse", "HEAD"]).parse().unwrap(), std::fs::read(at.join("bundle")).unwrap())
    }

    /// A result with these fields in it; null takes one out.
    fn result(&self, more: Value) -> Value {
        let mut result = json!({
            "schemaVersion": 1, "swarmId": SWARM, "attempt": {"assignment": "T-2026-001", "number": 2},
            "commit": self.context.base.as_str(), "verdict": verdict("approved"), "bundle": false,
        });
        let fields = result.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        fields.retain(|_, value| !value.is_null());
        result
    }

    async fn collect(&self, result: &[u8], bundle: Option<Vec<u8>>) -> Result<ReviewOutcome, MachineryFault> {
        self.volumes.update_attempt_dir(&self.context.attempt.dir_name(), |dir| {
            dir.result = Some(result.to_vec());
            dir.bundle = bundle;
        });
        let criteria = vec![CRITERION.to_owned()];
        let collected = fetch_review(&self.collector, &self.context, &criteria, CollectMode::Result).await;
        let left: Vec<_> = std::fs::read_dir(self.temp_dir.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(left, ["repo"], "a bundle was left behind");
        collected
    }

    async fn reviewed(&self, result: Value, bundle: Option<Vec<u8>>) -> ReviewOutcome {
        self.collect(&serde_json::to_vec(&result).unwrap(), bundle).await.unwrap()
    }

    fn refs(&self) -> String {
        git(&self.root(), &["for-each-ref", "--format=%(refname) %(objectname)", "refs/longshore"])
    }
}

fn git(dir: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.current_dir(dir).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let output = command.args(["-c", "user.name=t", "-c", "user.email=t@t"]).args(args).output().unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn verdict(decision: &str) -> Value {
    let passed = decision != "rejected";
    let mut verdict = json!({
        "decision": decision, "confidence": 0.9,
        "criteria_results": [{"criterion": CRITERION, "passed": passed, "evidence": "seen"}],
    });
    if decision == "rejected" {
        verdict["issues"] = json!([
            {"severity": "major", "file": "README", "line": 1, "description": "helo", "suggested_fix": "hello"}
        ]);
    }
    if decision == "approved_with_fix" {
        verdict["direct_fixes"] = json!([{"file": "README", "change_type": "typo", "diff_lines": 2}]);
    }
    verdict
}

#[tokio::test]
async fn verdict_is_collected_without_a_bundle() {
    let fixture = ReviewFixture::new().await;
    for (word, decision) in [("approved", ReviewDecision::Approved), ("rejected", ReviewDecision::Rejected)] {
        let reviewed = fixture.reviewed(fixture.result(json!({"verdict": verdict(word)})), None).await;
        assert_eq!(reviewed.verdict.as_ref().map(|verdict| verdict.decision), Some(decision));
        assert_eq!((&reviewed.fix, &reviewed.failure), (&None, &None));
        // It goes through the journal.
        let text = serde_json::to_string(&reviewed).unwrap();
        assert_eq!(serde_json::from_str::<ReviewOutcome>(&text).unwrap(), reviewed);
    }
    assert_eq!(fixture.refs(), "");
}

#[tokio::test]
async fn fix_is_imported_under_our_ref_and_checked_by_git() {
    for (text, refused) in
        [("hello\nyou\n", None), ("hello\nworld\n", Some("different words")), ("1\n2\n3\n4\n", Some("6 lines"))]
    {
        let fixture = ReviewFixture::new().await;
        let (commit, bundle) = fixture.commit(text);
        let result = json!({"verdict": verdict("approved_with_fix"), "fix": commit.as_str(), "bundle": true});
        let reviewed = fixture.reviewed(fixture.result(result.clone()), Some(bundle.clone())).await;
        assert_eq!(reviewed.verdict.as_ref().map(|verdict| verdict.decision), Some(ReviewDecision::ApprovedWithFix));
        let fix = reviewed.fix.clone().expect("a fix");
        assert_eq!(fix.commit, commit);
        match (&fix.scope_violation, refused) {
            (None, None) => {}
            (Some(found), Some(wanted)) => assert!(found.contains(wanted), "{found}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(fixture.refs(), format!("{RESULT_REF} {commit}"));
        // As often as it is collected: an orchestrator may die in between.
        assert_eq!(fixture.reviewed(fixture.result(result), Some(bundle)).await, reviewed);
    }
}

#[tokio::test]
async fn failure_keeps_its_evidence() {
    let fixture = ReviewFixture::new().await;
    let failure = json!({"cause": "hung", "evidence": {"summary": "the reviewer hung"}, "salvage": "refs/heads/main"});
    let reviewed = fixture.reviewed(fixture.result(json!({"verdict": null, "failure": failure})), None).await;
    assert_eq!(reviewed, ReviewOutcome::failed(Failure::new(Cause::Hung, "the reviewer hung")));
}

#[tokio::test]
async fn invalid_result_is_the_sandboxs_protocol_violation() {
    let fixture = ReviewFixture::new().await;
    let (commit, bundle) = fixture.commit("hello\nyou\n");
    let fix = |verdict: Value| json!({"verdict": verdict, "fix": commit.as_str(), "bundle": true});
    let failure = json!({"cause": "hung", "evidence": {"summary": "x"}});
    let mut unsure = verdict("approved");
    unsure["confidence"] = json!(7);
    let mut other = verdict("approved");
    other["criteria_results"] = json!([]);
    let mut no_fixes = verdict("approved_with_fix");
    no_fixes.as_object_mut().unwrap().remove("direct_fixes");
    let base = fixture.context.base.as_str();
    let table: Vec<(Value, bool, &str)> = vec![
        (json!({"schemaVersion": 2}), false, "version"),
        (json!({"swarmId": SWARM.replace('a', "b")}), false, "swarm"),
        (json!({"attempt": {"assignment": "T-2026-001", "number": 1}}), false, "attempt"),
        (json!({"commit": commit.as_str()}), false, "commit"),
        (json!({"stories": []}), false, "unknown field"),
        (json!({"verdict": null}), false, "not one of a verdict and a failure"),
        (json!({"failure": failure}), false, "not one of a verdict and a failure"),
        (json!({"verdict": {}}), false, "not valid"),
        (json!({"verdict": unsure}), false, "confidence"),
        (json!({"verdict": other}), false, "criteria"),
        // A fix that contradicts its verdict.
        (fix(verdict("approved")), true, "not `approved_with_fix`"),
        (fix(verdict("rejected")), true, "not `approved_with_fix`"),
        (fix(no_fixes), true, "direct_fixes"),
        (fix(verdict("approved_with_fix")), false, "contradict"),
        (json!({"verdict": verdict("approved_with_fix")}), false, "there is no fix"),
        (json!({"verdict": verdict("approved_with_fix"), "bundle": true}), true, "contradict"),
        (json!({"bundle": true}), false, "contradict"),
        (json!({}), true, "contradict"),
        (json!({"verdict": null, "failure": failure, "fix": commit.as_str(), "bundle": true}), true, "not one of"),
        (json!({"verdict": verdict("approved_with_fix"), "fix": base, "bundle": true}), true, "under review"),
        (
            json!({"verdict": verdict("approved_with_fix"), "fix": "1".repeat(40), "bundle": true}),
            true,
            "the result bundle was refused",
        ),
    ];
    for (more, with_bundle, problem) in table {
        let bundle = with_bundle.then(|| bundle.clone());
        let reviewed = fixture.reviewed(fixture.result(more.clone()), bundle).await;
        let failure = reviewed.failure.as_ref().unwrap_or_else(|| panic!("{more} was believed"));
        assert_eq!(failure.cause, Cause::ProtocolViolation, "{more}");
        assert!(failure.evidence.summary.contains(problem), "{more}: {}", failure.evidence.summary);
        assert!(reviewed.verdict.is_none() && reviewed.fix.is_none());
    }
    for bytes in [&b"no JSON"[..], b"[]", &b"[".repeat(100_000)] {
        let reviewed = fixture.collect(bytes, None).await.unwrap();
        assert_eq!(reviewed.failure.map(|failure| failure.cause), Some(Cause::ProtocolViolation));
    }
    assert_eq!(fixture.refs(), "", "nothing was imported");
}

#[tokio::test]
async fn fix_not_based_on_the_reviewed_commit_is_refused() {
    let fixture = ReviewFixture::new().await;
    // A commit beside it, with the same tree as a fix would have.
    let clone = fixture.temp_dir.path().join("repo");
    git(&clone, &["checkout", "-q", "--orphan", "feat/work"]);
    std::fs::write(clone.join("README"), "hello\nyou\n").unwrap();
    git(&clone, &["commit", "-qam", "mend"]);
    let commit = git(&clone, &["rev-parse", "HEAD"]);
    let bundle = fixture.temp_dir.path().join("bundle");
    git(&clone, &["bundle", "create", "-q", bundle.to_str().unwrap(), "feat/work"]);
    let bytes = std::fs::read(&bundle).unwrap();
    std::fs::remove_file(&bundle).unwrap();
    let result = json!({"verdict": verdict("approved_with_fix"), "fix": commit, "bundle": true});
    let reviewed = fixture.reviewed(fixture.result(result), Some(bytes)).await;
    let failure = reviewed.failure.expect("it is refused");
    assert!(failure.evidence.summary.contains("does not descend"), "{failure:?}");
    assert_eq!(fixture.refs(), "");
}

#[tokio::test]
async fn missing_result_differs_from_a_machinery_failure() {
    let fixture = ReviewFixture::new().await;
    let criteria = [CRITERION.to_owned()];
    let reviewed = fetch_review(&fixture.collector, &fixture.context, &criteria, CollectMode::Salvage).await.unwrap();
    let summary = reviewed.failure.expect("there is no result").evidence.summary;
    assert_eq!(summary, "the reviewer's sandbox ended without a result");

    // The host's directory for bundles is missing, which is not the reviewer's fault.
    let (commit, bundle) = fixture.commit("hello\nyou\n");
    let result =
        fixture.result(json!({"verdict": verdict("approved_with_fix"), "fix": commit.as_str(), "bundle": true}));
    fixture.volumes.update_attempt_dir(&fixture.context.attempt.dir_name(), |dir| {
        dir.result = Some(serde_json::to_vec(&result).unwrap());
        dir.bundle = Some(bundle);
    });
    let collector = Collector { incoming: fixture.temp_dir.path().join("gone"), ..fixture.collector.clone() };
    let fault = fetch_review(&collector, &fixture.context, &criteria, CollectMode::Result).await.unwrap_err();
    assert_ne!(fault.cause, Cause::ProtocolViolation, "{fault:?}");
}
