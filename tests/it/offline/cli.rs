//! Runs the real program with a cleared environment, and checks stdout, stderr and exit code together.
//!
//! No test needs a Docker daemon: `DOCKER_HOST` names a socket that does not exist.

mod admin;
mod mailbox;
mod settings;
mod ssot;
mod validate;

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use longshore::coordinator::control;
use longshore::ids::{AssignmentId, StoryKey};
use longshore::state::journal::JOURNAL_VERSION;
use longshore::state::{Journal, JournalHeader, SwarmDir};
use longshore::swarm::{AssignmentSpec, StopLevel, StorySpec, SwarmLimits, SwarmSpec, TasksFileSpec};

const SWARM: &str = "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d";

/// A git repository with one commit, on `main`, and a home directory of its own.
struct CliFixture {
    dir: tempfile::TempDir,
}

/// The exit code and output of a command.
struct CliOutput {
    code: Option<i32>,
    out: String,
    err: String,
}

impl CliFixture {
    fn new() -> Self {
        let world = Self::without_commits();
        world.git(&["commit", "--quiet", "--allow-empty", "-m", "Begin"]);
        world
    }

    fn without_commits() -> Self {
        let world = Self::without_repo();
        world.git(&["init", "--quiet", "--initial-branch=main", "."]);
        world
    }

    fn without_repo() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(dir.path().join("repo")).expect("made");
        std::fs::create_dir_all(dir.path().join("home")).expect("made");
        Self { dir }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("repo")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.root())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").expect("a PATH"))
            .env("HOME", self.dir.path().join("home"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CEILING_DIRECTORIES", self.dir.path())
            .env("DOCKER_HOST", format!("unix://{}/none.sock", self.dir.path().display()))
            .stdin(Stdio::null());
        command
    }

    fn git(&self, args: &[&str]) {
        let identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org"];
        let output = self.command("git").args(identity).args(args).output().expect("git runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn file(&self, name: &str, text: &str) {
        std::fs::write(self.root().join(name), text).expect("written");
    }

    fn tasks(&self, name: &str, branch: &str, story: &str) {
        let text = format!(
            r#"{{"schemaVersion":"3.0","metadata":{{"title":"A feature","type":"feat","branchName":"{branch}","createdAt":"2026-01-01"}},
            "userStories":[{{"id":"US-001","title":"First","description":"","acceptanceCriteria":[],"priority":1,"status":"pending","dependsOn":[],"notes":""{story}}},
            {{"id":"US-002","title":"Second","description":"","acceptanceCriteria":[],"priority":1,"status":"pending","dependsOn":["US-001"],"notes":"","command":"true"}}]}}"#
        );
        self.file(name, &text);
    }

    fn run(&self, args: &[&str]) -> CliOutput {
        self.run_with(args, &[])
    }

    fn run_with(&self, args: &[&str], environment: &[(&str, &str)]) -> CliOutput {
        let mut command = self.command(env!("CARGO_BIN_EXE_longshore"));
        let output = command.args(args).envs(environment.iter().copied()).output().expect("longshore runs");
        CliOutput::of(&output)
    }

    /// Creates a swarm with one story that has not started.
    fn swarm(&self) -> SwarmDir {
        let spec = spec();
        let dir = SwarmDir::create(&self.root(), spec.swarm).expect("made");
        let header = JournalHeader {
            schema_version: JOURNAL_VERSION,
            program_version: "test".to_owned(),
            swarm_id: spec.swarm,
            started: "2026-11-21T12:00:00Z".parse().expect("a time"),
            spec,
            settings: serde_json::Value::Null,
            tasks: Vec::new(),
        };
        Journal::create(&dir.journal_file(), &header).expect("a journal");
        dir.set_latest().expect("made the latest");
        dir
    }
}

impl CliOutput {
    fn of(output: &Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Checks the exit code, and that stdout or stderr contains each of `wanted`.
    #[track_caller]
    fn expect(self, code: i32, wanted: &[&str]) -> Self {
        let all = format!("{}\n{}", self.out, self.err);
        assert_eq!(self.code, Some(code), "{all}");
        for wanted in wanted {
            assert!(all.contains(wanted), "`{wanted}` is missing in\n{all}");
        }
        assert!(!all.contains("panicked") && !all.contains('\u{1b}'), "{all}");
        self
    }
}

fn spec() -> SwarmSpec {
    let key = StoryKey { file: 0, id: "US-001".parse().expect("valid") };
    SwarmSpec {
        swarm: SWARM.parse().expect("valid"),
        files: vec![TasksFileSpec {
            path: "t.json".to_owned(),
            slug: "t".to_owned(),
            title: "A feature".to_owned(),
            branch: "feat/x".parse().expect("valid"),
            base: "1".repeat(40).parse().expect("valid"),
            has_verify: false,
        }],
        stories: vec![StorySpec {
            key: key.clone(),
            title: "First".to_owned(),
            depends_on: Vec::new(),
            done: None,
            risk: Default::default(),
            has_command: false,
            has_verify: false,
            tested_criteria: Vec::new(),
        }],
        assignments: vec![AssignmentSpec {
            id: AssignmentId::new(2026, 1),
            file: 0,
            branch: "feat/x-us-001".parse().expect("valid"),
            stories: vec![key],
            priority: 1,
            exclusive_with: Vec::new(),
        }],
        amp: None,
        landing: None,
        limits: SwarmLimits {
            max_sandboxes: 1,
            retries: 1,
            machinery_retries: 3,
            backoff: Duration::from_secs(1),
            story_timeout: Duration::from_secs(60),
            idle_timeout: Duration::ZERO,
            slack: Duration::from_secs(60),
            grace_period: Duration::from_secs(10),
            max_bad_records: 100,
            liveness_timeout: Duration::from_secs(150),
        },
    }
}

#[test]
fn help_and_usage_errors() {
    let world = CliFixture::without_repo();
    world.run(&["--help"]).expect(0, &["Usage: longshore", "Exit codes:"]);
    world.run(&["--version"]).expect(0, &["longshore 0."]);
    world.run(&[]).expect(2, &["Usage: longshore"]);
    world.run(&["dance"]).expect(2, &["dance"]);
    world.run(&["run"]).expect(2, &["FILE"]);
    world.run(&["run", "t.json", "--memory", "lots"]).expect(2, &["`lots` is not a size"]);
    world.run(&["run", "t.json", "--timeout", "30"]).expect(2, &["`30` has no unit"]);
    world.run(&["run", "t.json", "--cpus", "many"]).expect(2, &["`many` is not a number of CPUs"]);
    world.run(&["run", "t.json", "--max", "0"]).expect(2, &["--max"]);
    world.run(&["run", "--help"]).expect(
        0,
        &["--notify-url", "low and medium risk only", "--fan-out", "--verify", "--write-back", "[default: 30m]"],
    );
}

#[test]
fn plan_json_matches_its_schema() {
    let world = CliFixture::new();
    world.tasks("t.json", "feat/x", r#","command":"true""#);
    let output = world.run(&["plan", "t.json"]).expect(0, &["US-001", "US-002", "feat/x"]);
    assert_eq!(output.err, "");
    let output = world.run(&["plan", "t.json", "--json"]).expect(0, &[]);
    let plan: serde_json::Value = serde_json::from_str(&output.out).expect("JSON");
    let schema: serde_json::Value =
        serde_json::from_str(&world.run(&["schema", "plan"]).expect(0, &[]).out).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a good schema");
    assert!(validator.is_valid(&plan), "{plan}");
    assert!(!validator.is_valid(&serde_json::json!({})));
    assert!(!world.root().join(".longshore").exists(), "planning makes nothing");
}

#[test]
fn a_plan_needs_no_repository_and_no_agent() {
    let world = CliFixture::without_repo();
    world.tasks("t.json", "feat/x", "");
    world.run(&["plan", "t.json"]).expect(0, &["US-001", "1 story needs an agent"]);
}

#[test]
fn plan_reports_all_problems_at_once() {
    let world = CliFixture::new();
    world.tasks("main.json", "main", r#","command":"true""#);
    world.file("no.json", "{");
    world.file(
        "cycle.json",
        &std::fs::read_to_string(world.root().join("main.json"))
            .expect("read")
            .replace(r#""dependsOn":[]"#, r#""dependsOn":["US-002","US-009"]"#),
    );
    world.run(&["plan", "gone.json", "no.json", "cycle.json"]).expect(
        2,
        &["error: gone.json: there is no such file", "error: no.json", "error: cycle.json", "US-009", "  hint: "],
    );
    world.run(&["plan", "main.json"]).expect(2, &["main.json", "`main`", "hint: "]);
}

#[test]
fn run_reports_all_problems_and_creates_nothing() {
    let world = CliFixture::new();
    let all = [
        "error: gone.json: there is no such file",
        "error: no engine answers",
        "there is no agent `nobody`",
        "start Docker",
    ];
    world.run(&["run", "gone.json", "--agent", "nobody"]).expect(2, &all);
    assert!(!world.root().join(".longshore").exists());
}

#[test]
fn missing_daemon_exits_with_3() {
    let world = CliFixture::new();
    world.tasks("t.json", "feat/x", r#","command":"true""#);
    world.run(&["run", "t.json"]).expect(3, &["error: no engine answers at", "caused by:", "hint: start Docker"]);
    world.run(&["images", "list"]).expect(3, &["error: no engine answers at"]);
    world.run(&["gc"]).expect(3, &["error: no engine answers at"]);
}

#[test]
fn unusable_repositories_are_refused() {
    let nowhere = CliFixture::without_repo();
    nowhere.tasks("t.json", "feat/x", r#","command":"true""#);
    nowhere.run(&["run", "t.json"]).expect(2, &["is not in a git repository", "`-C DIR`"]);
    let empty = CliFixture::without_commits();
    empty.tasks("t.json", "feat/x", r#","command":"true""#);
    empty.run(&["run", "t.json"]).expect(2, &["has no commits yet", "git commit --allow-empty"]);
    let busy = CliFixture::new();
    busy.tasks("t.json", "feat/x", r#","command":"true""#);
    busy.git(&["checkout", "--quiet", "-b", "feat/x"]);
    busy.run(&["run", "t.json"]).expect(2, &["branch `feat/x` is checked out", "`--branch`"]);
    let clash = CliFixture::new();
    clash.tasks("t.json", "feat/x", r#","command":"true""#);
    clash.git(&["branch", "feat"]);
    clash.run(&["run", "t.json"]).expect(2, &["`feat/x` cannot exist beside branch `feat`"]);
}

#[test]
fn schemas_completions_and_man_pages_are_printed() {
    let world = CliFixture::without_repo();
    for what in ["tasks", "state", "events", "plan", "config", "report", "amp", "amp-ack", "amp-verdict"] {
        let output = world.run(&["schema", what]).expect(0, &["\"$schema\""]);
        let schema: serde_json::Value = serde_json::from_str(&output.out).expect("JSON");
        assert!(jsonschema::validator_for(&schema).is_ok(), "{what}");
    }
    world.run(&["schema", "everything"]).expect(2, &["everything"]);
    for shell in ["bash", "zsh", "fish"] {
        world.run(&["completions", shell]).expect(0, &["longshore", "fan-out"]);
    }
    world.run(&["man"]).expect(0, &[".TH longshore"]);
    let pages = world.root().join("pages");
    world.run(&["man", "--dir", pages.to_str().expect("UTF-8")]).expect(0, &[]);
    assert!(pages.join("longshore.1").exists() && pages.join("longshore-run.1").exists());
}

#[test]
fn closed_stdout_ends_a_command_quietly() {
    let world = CliFixture::without_repo();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = world
        .command(env!("CARGO_BIN_EXE_longshore"))
        .args(["schema", "events"])
        .stdout(writer)
        .stderr(Stdio::piped())
        .output()
        .expect("longshore runs");
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn commands_without_a_swarm_fail() {
    let world = CliFixture::new();
    for args in [&["status"][..], &["stop"], &["logs", "US-001"]] {
        world.run(args).expect(2, &["no swarms found in", "`longshore run FILE`"]);
    }
    world.run(&["status", "zzzz"]).expect(2, &["at least the first four characters"]);
    assert!(!world.root().join(".longshore").exists());
}

#[test]
fn status_distinguishes_running_and_dead_swarms() {
    let world = CliFixture::new();
    let dir = world.swarm();
    world.run(&["status"]).expect(0, &["dead", "US-001", "First", "pending", "feat/x"]);
    let lock = dir.lock().expect("free");
    world.run(&["status", "a1b2"]).expect(0, &[": running\n", "US-001"]);
    drop(lock);
    world.run(&["status", "b1b2"]).expect(2, &["no swarm `b1b2`"]);
    let output = world.run(&["status", "--json"]).expect(0, &[]);
    let state: serde_json::Value = serde_json::from_str(&output.out).expect("JSON");
    assert_eq!((&state["swarmId"], &state["stories"][0]["id"]), (&SWARM.into(), &"US-001".into()));
    let schema = serde_json::from_str(&world.run(&["schema", "state"]).out).expect("JSON");
    assert!(jsonschema::validator_for(&schema).expect("a good schema").is_valid(&state), "{state}");
    assert_eq!(world.run(&["status", "-C", "/", "--json"]).code, Some(2));
}

#[test]
fn logs_are_found_by_story_and_by_assignment() {
    let world = CliFixture::new();
    let dir = world.swarm();
    world.run(&["logs", "US-001"]).expect(2, &["there is no log of T-2026-001"]);
    std::fs::write(dir.log_file(&AssignmentId::new(2026, 1)), "one\ntwo\nthree\n").expect("written");
    assert_eq!(world.run(&["logs", "US-001"]).expect(0, &[]).out, "one\ntwo\nthree\n");
    assert_eq!(world.run(&["logs", "a1b2c3d4", "T-2026-001", "--tail", "1"]).expect(0, &[]).out, "three\n");
    // Nobody runs the swarm: following it ends at once.
    assert_eq!(world.run(&["logs", "US-001", "--follow"]).expect(0, &[]).out, "one\ntwo\nthree\n");
    world.run(&["logs", "US-002"]).expect(2, &["no story or assignment `US-002`", "its stories are US-001"]);
    world.run(&["logs", "T-2026-009"]).expect(2, &["no story or assignment `T-2026-009`"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_reaches_only_a_running_swarm() {
    let world = CliFixture::new();
    let dir = world.swarm();
    world.run(&["stop"]).expect(2, &["is not running"]);
    let _lock = dir.lock().expect("free");
    world.run(&["stop"]).expect(3, &["no orchestrator listens", "try again"]);
    let (commands, mut arrived) = tokio::sync::mpsc::channel(4);
    let server = control::serve(&dir, commands).expect("listening");
    let orchestrator = tokio::spawn(async move {
        let mut levels = Vec::new();
        while let Some(order) = arrived.recv().await {
            if let control::ControlCommand::Stop { level } = order.command {
                levels.push(level);
            }
            let last = levels.len() == 2;
            order.reply.send(control::ControlReply::Accepted).expect("somebody waits");
            if last {
                break;
            }
        }
        levels
    });
    world.run(&["stop"]).expect(0, &[SWARM, "asked to finish"]);
    world.run(&["stop", "--kill"]).expect(0, &["killed"]);
    assert_eq!(orchestrator.await.expect("ended"), [StopLevel::Graceful, StopLevel::Kill]);
    server.abort();
}

#[test]
fn help_starts_no_runtime() {
    let world = CliFixture::without_repo();
    let fastest = (0..5)
        .map(|_| {
            let started_at = std::time::Instant::now();
            world.run(&["--help"]).expect(0, &[]);
            started_at.elapsed()
        })
        .min()
        .expect("five runs");
    // The bound for a release build is 20 ms; this one is not optimised, and the machine may be busy.
    assert!(fastest < Duration::from_millis(200), "{fastest:?}");
}

#[test]
fn logs_without_a_name_lists_them() {
    let world = CliFixture::new();
    let dir = world.swarm();
    world.run(&["logs"]).expect(0, &["none yet"]);
    std::fs::write(dir.log_file(&"T-2026-001".parse().expect("valid")), "one\n").expect("written");
    for args in [&["logs"][..], &["logs", "a1b2c3d4"]] {
        world.run(args).expect(0, &[SWARM, "T-2026-001  US-001  4 bytes", "T-2026-001.log"]);
    }
}

#[test]
fn write_errors_are_reported() {
    let world = CliFixture::new();
    world.tasks("t.json", "feat/x", r#","command":"true""#);
    world.swarm();
    for command in ["plan t.json --json", "status --json", "salvage --json", "doctor --json", "schema state"] {
        let mut shell = world.command("sh");
        let line = format!("exec \"$0\" {command} >/dev/full");
        let output = shell.args(["-c", &line, env!("CARGO_BIN_EXE_longshore")]).output().expect("a shell");
        let output = CliOutput::of(&output);
        output.expect(if command.starts_with("salvage") { 0 } else { 3 }, &[]);
    }
}

#[test]
fn salvage_without_a_swarm() {
    let world = CliFixture::new();
    world.run(&["salvage"]).expect(0, &["no kept work"]);
    assert_eq!(world.run(&["salvage", "--json"]).expect(0, &[]).out, "");
    world
        .run(&["salvage", "show", "US-001"])
        .expect(2, &["no kept work is called `US-001`", "this repository has no kept work"]);
    world.run(&["salvage", "apply", "US-001"]).expect(2, &["no kept work is called `US-001`"]);
    world.run(&["salvage", "show"]).expect(2, &["<REF|STORY>"]);
    world.run(&["completions", "bash"]).expect(0, &["salvage"]);
    world.git(&["update-ref", &format!("refs/longshore/salvage/{SWARM}/US-001/1"), "HEAD"]);
    world.run(&["salvage"]).expect(0, &["a1b2c3d4  US-001  1", "main"]);
}
