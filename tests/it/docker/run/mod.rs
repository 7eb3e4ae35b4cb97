//! The main job from end to end: the real program, a real daemon, real sandboxes, and a git repository that is thrown away.
//!
//! Nothing here sleeps for a time: whatever has to be waited for is a condition, and stories wait until a test lets them go
//! ([`SandboxContext::go`]). What a swarm leaves in the engine is removed by its label, also after a failure.

mod admin;
mod second_run;
mod failing_stories;
mod kill_points;
mod checks;
mod clock;
mod faults;
mod forged_results;
mod tasks_files;
mod disk_full;
mod early_stops;
mod gc;
mod landing;
mod inputs;
mod limits;
mod interference;
mod memory;
mod merge_queue;
mod mailbox;
mod objects_volume;
mod scheduling;
mod engine_outage;
mod longshore_process;
mod resume;
mod review;
mod salvage;
mod sandbox;
mod stop;
mod watchdog;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use longshore::delivery::Repo;
use longshore::engine::label;
use serde_json::{Value, json};

use longshore_process::{CommandResult, RunningCommand, StateFile};

/// What a command of a story begins with that waits until the test lets it go.
const WAIT_FOR_GO: &str = "touch /tmp/begun; until [ -e /tmp/go ]; do sleep 0.05; done; ";
/// Bounds every wait: a test that hangs must say where.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A story with a command.
fn story(number: usize, command: &str) -> Value {
    json!({
        "id": format!("US-{number:03}"), "title": format!("Story {number}"), "description": "",
        "acceptanceCriteria": [], "priority": number, "status": "pending", "dependsOn": [], "notes": "",
        "command": command,
    })
}

/// A swarm of two stories, one sandbox each, that change the same line: both begin before either goes on, so neither has the
/// other's work. The one that does not merge is done again on top of the other, where there is nothing for it to change. Gives
/// its state, and the numbers of the story that landed and of the one that lost.
fn conflict(scratch: &SwarmFixture) -> (StateFile, usize, usize) {
    let first = format!("if [ $LONGSHORE_ATTEMPT = 1 ]; then {WAIT_FOR_GO}fi; ");
    let edit = |number| story(number, &format!("{first}sed -i s/two/{number}/ lines.txt"));
    let tasks = scratch.tasks("feat/conflict", json!([edit(1), edit(2)]));
    let running = scratch.start(&["run", &tasks, "--max", "2", "--retries", "0"]);
    scratch.sandboxes(2).iter().for_each(SandboxHandle::release);
    running.wait().expect(1, &["1 landed, 1 failed", "conflict in `lines.txt`; trying again (attempt 2)"]);
    let state = scratch.state();
    let lost = if state.verdicts()["US-001"] == "landed" { 2 } else { 1 };
    (state, 3 - lost, lost)
}

/// A value with more or other fields.
fn with_fields(mut story: Value, fields: Value) -> Value {
    let fields = fields.as_object().expect("an object").clone();
    story.as_object_mut().expect("an object").extend(fields);
    story
}

/// A story that depends on others.
fn depending_on(story: Value, others: &[usize]) -> Value {
    let ids: Vec<String> = others.iter().map(|number| format!("US-{number:03}")).collect();
    with_fields(story, json!({ "dependsOn": ids }))
}

/// A repository with a file and two commits on `main`, and a home folder of its own.
struct SwarmFixture {
    folder: tempfile::TempDir,
}

impl SwarmFixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let scratch = Self { folder };
        for name in ["repo", "home"] {
            std::fs::create_dir_all(scratch.folder.path().join(name)).expect("made");
        }
        scratch.git(&["init", "--quiet", "--initial-branch=main", "."]);
        scratch.git(&["config", "user.name", "Ada"]);
        scratch.git(&["config", "user.email", "ada@example.org"]);
        scratch.write("lines.txt", "one\ntwo\nthree\n");
        scratch.git(&["add", "."]);
        scratch.git(&["commit", "--quiet", "-m", "Begin"]);
        scratch
    }

    /// The repository, wherever it is now.
    fn root(&self) -> PathBuf {
        Some(self.moved_root()).filter(|moved| moved.exists()).unwrap_or_else(|| self.folder.path().join("repo"))
    }

    /// Where a test may move the repository.
    fn moved_root(&self) -> PathBuf {
        self.folder.path().join("moved")
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.root().join(name), text).expect("written");
    }

    /// A tasks file outside of the repository, so that the working tree stays clean; gives its path as typed.
    fn tasks(&self, branch: &str, stories: Value) -> String {
        self.tasks_with("tasks.json", json!({ "branchName": branch }), stories)
    }

    fn tasks_with(&self, name: &str, metadata: Value, stories: Value) -> String {
        let common = json!({ "title": "A feature", "type": "feat", "createdAt": "2026-01-01" });
        let file = json!({ "schemaVersion": "3.0", "metadata": with_fields(common, metadata), "userStories": stories });
        std::fs::write(self.folder.path().join(name), file.to_string()).expect("written");
        format!("../{name}")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.root()).env_clear().stdin(Stdio::null());
        for name in ["PATH", "DOCKER_HOST"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        command
            .env("HOME", self.folder.path().join("home"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CEILING_DIRECTORIES", self.folder.path())
            .env("LONGSHORE_SHIM", crate::docker::depot::shim());
        command
    }

    #[track_caller]
    fn git(&self, args: &[&str]) -> String {
        let output = self.command("git").args(args).output().expect("git runs");
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// A file's text in a commit.
    #[track_caller]
    fn show(&self, commit: &str, path: &str) -> String {
        self.git(&["show", &format!("{commit}:{path}")])
    }

    /// The paths that a commit has.
    #[track_caller]
    fn paths(&self, commit: &str) -> Vec<String> {
        self.git(&["ls-tree", "-r", "--name-only", commit]).lines().map(str::to_owned).collect()
    }

    /// The names of all refs.
    fn refs(&self) -> Vec<String> {
        self.git(&["for-each-ref", "--format=%(refname)"]).lines().map(str::to_owned).collect()
    }

    fn start(&self, args: &[&str]) -> RunningCommand {
        self.start_with(args, &[])
    }

    fn start_with(&self, args: &[&str], environment: &[(&str, &str)]) -> RunningCommand {
        let mut command = self.command(env!("CARGO_BIN_EXE_longshore"));
        command.args(args).envs(environment.iter().copied());
        RunningCommand::start(command)
    }

    fn longshore(&self, args: &[&str]) -> CommandResult {
        self.start(args).wait()
    }

    /// The swarms' ids, from their folders.
    fn swarms(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.root().join(".longshore/swarms")) else { return Vec::new() };
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// The newest swarm's folder.
    fn latest(&self) -> PathBuf {
        let latest = self.longshore(&["status", "--json"]).expect(0, &[]);
        let state: Value = serde_json::from_str(&latest.out).expect("JSON");
        self.root().join(".longshore/swarms").join(as_text(&state["swarmId"]))
    }

    /// The newest swarm's state file, which has to be by its schema.
    fn state(&self) -> StateFile {
        let file = self.latest().join("swarm-state.json");
        let state = std::fs::read(&file).expect("a state file");
        let state: Value = serde_json::from_slice(&state).expect("JSON");
        let schema: Value = serde_json::from_str(&self.longshore(&["schema", "state"]).out).expect("JSON");
        let validator = jsonschema::validator_for(&schema).expect("a good schema");
        let errors: Vec<String> = validator.iter_errors(&state).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}");
        StateFile(state)
    }

    /// What the engine has of all swarms of this repository.
    fn engine_resources(&self) -> Vec<String> {
        self.swarms()
            .iter()
            .flat_map(|swarm| resources_with_label(&format!("{}={swarm}", label::SWARM)))
            .map(|(_, id)| id)
            .collect()
    }

    /// The sandbox of a story, once its story has begun; `count` of them.
    fn sandboxes(&self, count: usize) -> Vec<SandboxHandle> {
        let mut known = std::collections::BTreeSet::new();
        eventually("the sandboxes run their stories", || {
            let swarm = self.swarms().pop()?;
            let filter = format!("label={}={swarm}", label::SWARM);
            let listed = docker(&["ps", "-q", "--no-trunc", "--filter", &filter, "--filter", SANDBOX_FILTER]).ok()?;
            let mut has_begun = |id: &&str| {
                let is = known.contains(*id) || docker(&["exec", id, "test", "-e", "/tmp/begun"]).is_ok();
                if is {
                    known.insert((*id).to_owned());
                }
                is
            };
            let found: Vec<SandboxHandle> =
                listed.split_whitespace().filter(&mut has_begun).map(|id| SandboxHandle(id.to_owned())).collect();
            (found.len() == count).then_some(found)
        })
    }
}

/// What `docker ps` is asked for sandboxes alone.
const SANDBOX_FILTER: &str = "label=dev.longshore.role=sandbox";

impl Drop for SwarmFixture {
    fn drop(&mut self) {
        let mut labels: Vec<String> = self.swarms().iter().map(|swarm| format!("{}={swarm}", label::SWARM)).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        if let Ok(repo) = runtime.block_on(Repo::discover(&self.root())) {
            labels.push(format!("{}={}", label::REPO, repo.hash()));
        }
        for (kind, id) in labels.iter().flat_map(|label| resources_with_label(label)) {
            let _ = match kind {
                "volume" => docker(&["volume", "rm", &id]),
                _ => docker(&["rm", "-fv", &id]),
            };
        }
    }
}

/// Containers, then volumes, by a label.
fn resources_with_label(label: &str) -> Vec<(&'static str, String)> {
    let filter = format!("label={label}");
    let mut found = Vec::new();
    let kinds: [(_, &[&str]); 2] = [("container", &["ps", "-aq"]), ("volume", &["volume", "ls", "-q"])];
    for (kind, list) in kinds {
        let listed = docker(&[list, &["--filter", &filter]].concat()).unwrap_or_default();
        found.extend(listed.split_whitespace().map(|id| (kind, id.to_owned())));
    }
    found
}

fn docker(args: &[&str]) -> Result<String, String> {
    let output = Command::new("docker").args(args).stdin(Stdio::null()).output().expect("the docker client runs");
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// A running sandbox whose story waits.
struct SandboxHandle(String);

impl SandboxHandle {
    /// Lets its story go on.
    fn release(&self) {
        // Not waited for: the story may end, and the shim kill all that is left, before `touch` has exited.
        docker(&["exec", "--detach", &self.0, "touch", "/tmp/go"]).expect("the sandbox runs");
    }

    fn inspect(&self) -> Value {
        let text = docker(&["inspect", &self.0]).expect("the sandbox is there");
        let list: Value = serde_json::from_str(&text).expect("JSON");
        list[0].clone()
    }
}

/// Tries until there is something.
#[track_caller]
fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let started_at = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(started_at.elapsed() < TIMEOUT, "not within {TIMEOUT:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[track_caller]
fn as_text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("a string, and not {value}"))
}

/// All files below a folder.
fn all_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let kind = entry.file_type().expect("a kind");
        if kind.is_dir() {
            files.extend(all_files(&entry.path()));
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    files
}
