//! The shim as a whole, with real git and real processes in a temporary directory, without a container.

mod check;
mod depot;
mod disk_full;
mod mailbox;
mod memory;
mod merge;
mod progress;
mod repo_violations;
mod review;
mod special_files;
mod startup_and_stop;
mod stories;
mod watchdog;

use std::fs;
use std::io::{PipeReader, PipeWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::layout::Layout;
use super::memory_gauge::MemoryGauge;
use super::progress::HEARTBEAT_INTERVAL;
use super::serve::{ShimEnvironment, serve};
use super::setup::SandboxEnvironment;
use crate::handoff::assignment::AssignmentFile;
use crate::handoff::check::CheckFile;
use crate::handoff::result::{ResultFile, StoryResult};
use crate::handoff::review::ReviewFile;
use crate::ids::CommitId;
use crate::protocol::acp::message::{
    Completion, ContainerMessage, Envelope, StoryStatus, TaskRequest, decode_container, encode_task_request,
};
use crate::verdict::{Cause, Failure, StoryOutcome};

const ATTEMPT_DIR: &str = "T-2026-001-1";
const SWARM: &str = "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d";
const CONTAINER: &str = "abc123def456abc123def456abc123def456abc123def456abc123def456abcd";
const TASKS_PATH: &str = "tasks/feature.json";

/// A writer whose bytes can be read meanwhile.
#[derive(Clone, Default)]
struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl SharedBuffer {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

impl Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn git(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=trunk"])
        .args(args)
        .output()
        .expect("git runs");
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A swarm's volumes in a temporary directory, with a base commit in the objects.
struct SandboxFixture {
    dir: tempfile::TempDir,
    base: CommitId,
    assignment: Value,
    stop: CancellationToken,
    heartbeat: Duration,
}

struct ShimOutcome {
    code: u8,
    messages: Vec<ContainerMessage>,
    /// `None` for a review or a check.
    result: Option<ResultFile>,
    review: Option<ReviewFile>,
    check: Option<CheckFile>,
    log: String,
}

impl SandboxFixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let host = dir.path().join("host");
        fs::create_dir(&host).unwrap();
        git(&host, &["init", "-q"]);
        fs::write(host.join("README"), "hello\n").unwrap();
        fs::write(host.join("other.txt"), "one\ntwo\nthree\n").unwrap();
        fs::write(host.join(".gitignore"), "ignored/\n").unwrap();
        git(&host, &["add", "-A"]);
        git(&host, &["commit", "-qm", "base"]);
        let base = git(&host, &["rev-parse", "HEAD"]).parse().unwrap();
        let objects = dir.path().join("objects");
        fs::create_dir(&objects).unwrap();
        git(&objects, &["clone", "-q", "--bare", host.to_str().unwrap(), "repo.git"]);
        for name in ["repo", "run", "out"] {
            fs::create_dir_all(dir.path().join("work").join(ATTEMPT_DIR).join(name)).unwrap();
        }
        fs::create_dir_all(dir.path().join("in").join(ATTEMPT_DIR).join("tasks/tasks")).unwrap();
        let mut fixture =
            Self { dir, base, assignment: Value::Null, stop: CancellationToken::new(), heartbeat: HEARTBEAT_INTERVAL };
        fixture.assignment = json!({
            "schemaVersion": 1, "swarmId": SWARM, "attempt": {"assignment": "T-2026-001", "number": 1},
            "branch": "feat/work", "base": fixture.base.as_str(), "integrationBranch": "feat/all",
            "objectFormat": "sha1", "taskFilePath": TASKS_PATH, "stories": [{"id": "US-001"}], "agent": null, "verify": [],
            "storyTimeoutSecs": 60, "graceSecs": 2, "identity": {"name": "A Person", "email": "person@example.com"},
        });
        fixture
    }

    fn layout(&self) -> Layout {
        Layout::with_root(self.dir.path())
    }

    fn repo(&self) -> PathBuf {
        self.layout().repo_dir(ATTEMPT_DIR)
    }

    fn out(&self) -> PathBuf {
        self.layout().out_dir(ATTEMPT_DIR)
    }

    fn write_tasks(&self, text: &str) {
        fs::write(self.layout().tasks_file(ATTEMPT_DIR, TASKS_PATH), text).unwrap();
    }

    /// Writes a tasks file with these stories. Fields that are missing are filled in.
    fn set_stories(&mut self, stories: &[Value]) {
        let full: Vec<Value> = stories
            .iter()
            .enumerate()
            .map(|(place, story)| {
                let mut full = json!({
                    "id": format!("US-{:03}", place + 1), "title": format!("Story {}", place + 1), "description": "Do it.",
                    "acceptanceCriteria": ["it is done"], "priority": place + 1, "status": "pending", "dependsOn": [],
                    "notes": "",
                });
                full.as_object_mut().unwrap().extend(story.as_object().unwrap().clone());
                full
            })
            .collect();
        let ids: Vec<Value> = full.iter().map(|story| json!({"id": story["id"]})).collect();
        self.assignment["stories"] = json!(ids);
        let tasks = json!({
            "schemaVersion": "3.0",
            "metadata": {"title": "All", "type": "feat", "branchName": "feat/all", "createdAt": "2026-01-01", "planPath": null},
            "userStories": full,
        });
        self.write_tasks(&tasks.to_string());
    }

    fn request(&self) -> Vec<u8> {
        let envelope = Envelope {
            timestamp: jiff::Timestamp::UNIX_EPOCH,
            swarm_id: SWARM.parse().unwrap(),
            container_id: CONTAINER.parse().unwrap(),
        };
        let mut env_vars = crate::protocol::acp::message::EnvVars::new();
        env_vars.insert("SECRET_WORD".parse().unwrap(), "xyzzy".into()).unwrap();
        let request = TaskRequest {
            task_file_path: TASKS_PATH.parse().unwrap(),
            branch_name: "feat/work".parse().unwrap(),
            repo_url: "https://example.com/x.git".parse().unwrap(),
            env_vars,
        };
        encode_task_request(&envelope, &request).unwrap()
    }

    fn environment(&self, input: PipeReader, output: SharedBuffer, log: SharedBuffer) -> ShimEnvironment {
        fs::write(self.layout().assignment_file(ATTEMPT_DIR), self.assignment.to_string()).unwrap();
        ShimEnvironment {
            input: Box::new(input),
            output: Box::new(output),
            log: Box::new(log),
            hostname: CONTAINER[..12].into(),
            request_timeout: Duration::from_secs(60),
            sandbox: SandboxEnvironment {
                layout: self.layout(),
                env: ["PATH"].into_iter().filter_map(|name| Some((name.into(), std::env::var_os(name)?))).collect(),
                memory: MemoryGauge::with_root(self.dir.path().join("no-cgroup")),
                stop: self.stop.clone(),
                heartbeat_interval: self.heartbeat,
            },
        }
    }

    /// Runs the shim to its end; the input stays open until then.
    fn run(&self) -> ShimOutcome {
        self.run_with(|mut input: PipeWriter| {
            input.write_all(&self.request()).unwrap();
            input.write_all(b"\n").unwrap();
            Some(input)
        })
    }

    /// Runs the shim with what `feed` writes. The input then ends unless `feed` returns it.
    fn run_with(&self, feed: impl FnOnce(PipeWriter) -> Option<PipeWriter>) -> ShimOutcome {
        let (read, write) = std::io::pipe().unwrap();
        let open = feed(write);
        let (output, log) = (SharedBuffer::default(), SharedBuffer::default());
        let outside = self.environment(read, output.clone(), log.clone());
        let runtime = super::build_runtime().unwrap();
        let code = runtime
            .block_on(async { tokio::time::timeout(Duration::from_secs(120), serve(outside, ATTEMPT_DIR)).await });
        drop(open);
        let messages = output
            .bytes()
            .split(|b| *b == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| decode_container(line).expect("the shim writes ACP only").1)
            .collect();
        let result = fs::read(self.out().join("result.json")).ok();
        let kind = ["review", "check"].into_iter().find(|kind| self.assignment.get(kind).is_some());
        ShimOutcome {
            code: code.expect("the shim ends"),
            messages,
            result: read_as(result.as_ref().filter(|_| kind.is_none())),
            review: read_as(result.as_ref().filter(|_| kind == Some("review"))),
            check: read_as(result.as_ref().filter(|_| kind == Some("check"))),
            log: String::from_utf8_lossy(&log.bytes()).into_owned(),
        }
    }

    /// Runs the shim with one story.
    fn run_command(&mut self, command: &str) -> ShimOutcome {
        self.set_stories(&[json!({"command": command})]);
        self.run()
    }

    /// Fetches the bundle into a fresh clone of the host's repo, checks it, and returns the clone.
    fn fetch_bundle(&self) -> PathBuf {
        let clone = self.dir.path().join("received");
        git(self.dir.path(), &["clone", "-q", "host", "received"]);
        let bundle = self.out().join("result.bundle");
        git(&clone, &["fetch", "-q", bundle.to_str().unwrap(), "+refs/*:refs/got/*"]);
        git(&clone, &["fsck", "--strict"]);
        clone
    }

    fn git_show(&self, clone: &Path, spec: &str) -> String {
        git(clone, &["show", spec])
    }
}

fn read_as<T: serde::de::DeserializeOwned>(result: Option<&Vec<u8>>) -> Option<T> {
    result.map(|bytes| serde_json::from_slice(bytes).unwrap())
}

impl ShimOutcome {
    fn story(&self, place: usize) -> &StoryResult {
        &self.result.as_ref().expect("there is a result").stories[place]
    }

    fn failure(&self, place: usize) -> (&Failure, Option<&CommitId>) {
        match &self.story(place).outcome {
            StoryOutcome::Failed { failure, salvage, .. } => (failure, salvage.as_ref()),
            other => panic!("the story is not failed: {other:?}\n{}", self.log),
        }
    }

    fn unsaved(&self, place: usize) -> bool {
        matches!(self.story(place).outcome, StoryOutcome::Failed { unsaved: true, .. })
    }

    fn cause(&self, place: usize) -> Cause {
        self.failure(place).0.cause
    }

    fn commit(&self, place: usize) -> &CommitId {
        match &self.story(place).outcome {
            StoryOutcome::Finished { commit } => commit,
            other => panic!("the story is not finished: {other:?}\n{}", self.log),
        }
    }

    fn completion(&self) -> &Completion {
        match self.messages.last() {
            Some(ContainerMessage::Completion(completion)) => completion,
            other => panic!("the last message is no completion: {other:?}\n{}", self.log),
        }
    }

    /// The reported error codes.
    fn errors(&self) -> Vec<&str> {
        self.messages
            .iter()
            .filter_map(|message| match message {
                ContainerMessage::Error(error) => Some(error.code.as_str()),
                _ => None,
            })
            .collect()
    }

    /// The reported statuses of a story, without repetitions.
    fn statuses(&self, story: &str) -> Vec<StoryStatus> {
        let mut moves: Vec<StoryStatus> = self
            .messages
            .iter()
            .filter_map(|message| match message {
                ContainerMessage::Progress(update) if update.story_id.as_str() == story => Some(update.status),
                _ => None,
            })
            .collect();
        moves.dedup();
        moves
    }

    #[track_caller]
    fn assert_failed(&self, cause: Cause) {
        let (failure, _) = self.failure(0);
        assert_eq!(failure.cause, cause, "{:?}\n{}", failure, self.log);
        assert_eq!(self.statuses("US-001"), [StoryStatus::InProgress, StoryStatus::Failed]);
        assert_eq!(self.code, 0, "{:?}\n{}", self.completion(), self.log);
        assert_eq!(self.completion().errors.len(), 1);
    }
}

/// Waits until the condition holds, for at most a minute.
fn wait_until(what: &str, mut is_met: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !is_met() {
        assert!(began.elapsed() < Duration::from_secs(60), "waited for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn fixture_assignment_is_valid() {
    let file: AssignmentFile = serde_json::from_value(SandboxFixture::new().assignment).unwrap();
    assert_eq!(file.attempt.dir_name(), ATTEMPT_DIR);
}
