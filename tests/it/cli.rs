//! The command line as a user meets it: the real program, a cleared environment, stdout, stderr and exit code together.
//!
//! Nothing here needs a Docker daemon: `DOCKER_HOST` names a socket that is not there.

mod admin;
mod mailbox;
mod validate;

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use longshore::coordinator::control;
use longshore::ids::{AssignmentId, StoryKey};
use longshore::protocol::amp::message::{Ack, AmpMessage};
use longshore::protocol::amp::store::Ssot;
use longshore::state::journal::JOURNAL_VERSION;
use longshore::state::{Journal, JournalHeader, SwarmDir};
use longshore::swarm::{AssignmentSpec, StopLevel, StorySpec, SwarmLimits, SwarmSpec, TasksFileSpec};

const SWARM: &str = "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d";

/// A git repository with one commit, on `main`, and a home folder of its own.
struct World {
    folder: tempfile::TempDir,
}

/// What a command gave.
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl World {
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
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(folder.path().join("repo")).expect("made");
        std::fs::create_dir_all(folder.path().join("home")).expect("made");
        Self { folder }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("repo")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.root())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").expect("a PATH"))
            .env("HOME", self.folder.path().join("home"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CEILING_DIRECTORIES", self.folder.path())
            .env("DOCKER_HOST", format!("unix://{}/none.sock", self.folder.path().display()))
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

    fn run(&self, args: &[&str]) -> Said {
        self.run_with(args, &[])
    }

    fn run_with(&self, args: &[&str], environment: &[(&str, &str)]) -> Said {
        let mut command = self.command(env!("CARGO_BIN_EXE_longshore"));
        let output = command.args(args).envs(environment.iter().copied()).output().expect("longshore runs");
        Said::of(&output)
    }

    /// The folder of a swarm with one story that has not begun.
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

impl Said {
    fn of(output: &Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Checks the exit code, and that each of these is in stdout or stderr.
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
        }],
        stories: vec![StorySpec {
            key: key.clone(),
            title: "First".to_owned(),
            depends_on: Vec::new(),
            done: None,
            risk: Default::default(),
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
fn usage() {
    let world = World::without_repo();
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
fn a_good_file_is_planned_and_its_json_fits_the_schema() {
    let world = World::new();
    world.tasks("t.json", "feat/x", r#","command":"true""#);
    let said = world.run(&["plan", "t.json"]).expect(0, &["US-001", "US-002", "feat/x"]);
    assert_eq!(said.err, "");
    let said = world.run(&["plan", "t.json", "--json"]).expect(0, &[]);
    let plan: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    let schema: serde_json::Value =
        serde_json::from_str(&world.run(&["schema", "plan"]).expect(0, &[]).out).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a good schema");
    assert!(validator.is_valid(&plan), "{plan}");
    assert!(!validator.is_valid(&serde_json::json!({})));
    assert!(!world.root().join(".longshore").exists(), "planning makes nothing");
}

#[test]
fn a_plan_needs_no_repository_and_no_agent() {
    let world = World::without_repo();
    world.tasks("t.json", "feat/x", "");
    world.run(&["plan", "t.json"]).expect(0, &["US-001", "1 story needs an agent"]);
}

#[test]
fn all_that_is_wrong_with_files_is_told_at_once() {
    let world = World::new();
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
fn run_tells_everything_at_once_and_makes_nothing() {
    let world = World::new();
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
fn without_a_daemon_it_is_the_machinery_that_failed() {
    let world = World::new();
    world.tasks("t.json", "feat/x", r#","command":"true""#);
    world.run(&["run", "t.json"]).expect(3, &["error: no engine answers at", "caused by:", "hint: start Docker"]);
    world.run(&["images", "list"]).expect(3, &["error: no engine answers at"]);
    world.run(&["gc"]).expect(3, &["error: no engine answers at"]);
}

#[test]
fn repositories_that_cannot_be_run_in() {
    let nowhere = World::without_repo();
    nowhere.tasks("t.json", "feat/x", r#","command":"true""#);
    nowhere.run(&["run", "t.json"]).expect(2, &["is not in a git repository", "`-C DIR`"]);
    let empty = World::without_commits();
    empty.tasks("t.json", "feat/x", r#","command":"true""#);
    empty.run(&["run", "t.json"]).expect(2, &["has no commits yet", "git commit --allow-empty"]);
    let busy = World::new();
    busy.tasks("t.json", "feat/x", r#","command":"true""#);
    busy.git(&["checkout", "--quiet", "-b", "feat/x"]);
    busy.run(&["run", "t.json"]).expect(2, &["branch `feat/x` is checked out", "`--branch`"]);
    let clash = World::new();
    clash.tasks("t.json", "feat/x", r#","command":"true""#);
    clash.git(&["branch", "feat"]);
    clash.run(&["run", "t.json"]).expect(2, &["`feat/x` cannot exist beside branch `feat`"]);
}

#[test]
fn settings_come_in_layers_and_say_where_from() {
    let world = World::new();
    world.file(".longshore.toml", "memory = '1g'\nmax = 3\nretries = 5\n[agents.mine]\nargv = ['agent', '--go']\n");
    let config = world.folder.path().join("home/.config/longshore");
    std::fs::create_dir_all(&config).expect("made");
    std::fs::write(config.join("config.toml"), "memory = '8g'\ngrace = '3s'\nretries = 6\n").expect("written");
    let environment = [("LONGSHORE_MAX", "7"), ("LONGSHORE_NETWORK", "bridge")];
    let said = world.run_with(&["doctor", "--image", "my/image"], &environment).expect(3, &["BAD   engine"]);
    let row = |name: &str| {
        let mut lines = said.out.lines().map(str::trim);
        let found = lines.find(|line| line.split_whitespace().next() == Some(name) && !line.contains("BAD"));
        found.unwrap_or_else(|| panic!("{name} in {}", said.out)).to_owned()
    };
    assert!(row("memory").contains("1g") && row("memory").ends_with(".longshore.toml"));
    assert!(row("max").contains('7') && row("max").ends_with("LONGSHORE_MAX"));
    assert!(row("retries").contains('5'));
    assert!(row("grace").contains("3s") && row("grace").ends_with("config.toml"));
    assert!(row("timeout").contains("30m") && row("timeout").ends_with("default"));
    assert!(row("agents.mine").contains("agent --go"));
    assert!(said.out.contains("my/image") && said.out.contains("--image"));
}

#[test]
fn faults_in_settings_have_a_place() {
    let world = World::new();
    world.tasks("t.json", "feat/x", r#","command":"true""#);
    world.file(".longshore.toml", "max = 3\nmemroy = '1g'\n");
    world
        .run(&["plan", "t.json"])
        .expect(2, &[".longshore.toml:2:1: unknown field `memroy`", "longshore schema config"]);
    world.file(".longshore.toml", "");
    world.run_with(&["plan", "t.json"], &[("LONGSHORE_MAX", "many")]).expect(2, &["`LONGSHORE_MAX`", "`many`"]);
    for refused in ["LD_PRELOAD", "PATH", "GIT_DIR", "LONGSHORE_SWARM", "lower", "A-B"] {
        let said = world.run(&["run", "t.json", "--env", &format!("{refused}=s3cret")]).expect(2, &[refused]);
        assert!(!said.err.contains("s3cret"), "{}", said.err);
    }
    world.run(&["run", "t.json", "--env", "NOT_SET_ANYWHERE"]).expect(2, &["`NOT_SET_ANYWHERE` is not set"]);
    world.run(&["run", "t.json", "--network", "host"]).expect(2, &["may not share the host's network"]);
}

#[test]
fn values_of_variables_are_not_shown() {
    let world = World::new();
    world.tasks("t.json", "feat/x", r#","command":"true""#);
    let environment = [("LONGSHORE_ENV", "TOKEN"), ("TOKEN", "s3cret-one"), ("LONGSHORE_LOG", "trace")];
    for args in [&["run", "t.json", "--env", "OTHER=s3cret-two"][..], &["doctor"]] {
        let said = world.run_with(args, &environment).expect(3, &[]);
        assert!(!said.out.contains("s3cret") && !said.err.contains("s3cret"), "{}{}", said.out, said.err);
    }
}

#[test]
fn schemas_completions_and_manual_pages() {
    let world = World::without_repo();
    for what in ["tasks", "state", "events", "plan", "config", "report", "amp", "amp-ack", "amp-verdict"] {
        let said = world.run(&["schema", what]).expect(0, &["\"$schema\""]);
        let schema: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
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
fn a_reader_that_leaves_ends_it_quietly() {
    let world = World::without_repo();
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
fn without_a_swarm_there_is_nothing_to_tell() {
    let world = World::new();
    for args in [&["status"][..], &["stop"], &["logs", "US-001"]] {
        world.run(args).expect(2, &["no swarm has been run here", "`longshore run FILE`"]);
    }
    world.run(&["status", "zzzz"]).expect(2, &["at least the first four characters"]);
    assert!(!world.root().join(".longshore").exists());
}

#[test]
fn status_tells_the_living_from_the_dead() {
    let world = World::new();
    let dir = world.swarm();
    world.run(&["status"]).expect(0, &["dead", "US-001", "First", "pending", "feat/x"]);
    let lock = dir.lock().expect("free");
    world.run(&["status", "a1b2"]).expect(0, &[": running\n", "US-001"]);
    drop(lock);
    world.run(&["status", "b1b2"]).expect(2, &["no swarm `b1b2`"]);
    let said = world.run(&["status", "--json"]).expect(0, &[]);
    let state: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!((&state["swarmId"], &state["stories"][0]["id"]), (&SWARM.into(), &"US-001".into()));
    let schema = serde_json::from_str(&world.run(&["schema", "state"]).out).expect("JSON");
    assert!(jsonschema::validator_for(&schema).expect("a good schema").is_valid(&state), "{state}");
    assert_eq!(world.run(&["status", "-C", "/", "--json"]).code, Some(2));
}

#[test]
fn logs_are_found_by_story_and_by_assignment() {
    let world = World::new();
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
async fn stop_reaches_a_running_swarm_and_no_other() {
    let world = World::new();
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
fn help_is_quick() {
    let world = World::without_repo();
    let fastest = (0..5)
        .map(|_| {
            let begun = std::time::Instant::now();
            world.run(&["--help"]).expect(0, &[]);
            begun.elapsed()
        })
        .min()
        .expect("five runs");
    // The bound for a release build is 20 ms; this one is not optimised, and the machine may be busy.
    assert!(fastest < Duration::from_millis(200), "{fastest:?}");
}

#[test]
fn values_that_mean_nothing_are_refused_for_what_they_are() {
    let world = World::new();
    world.tasks("t.json", "feat/x", r#","command":"true""#);
    for (flag, value, wanted) in [
        ("--max", "-1", "-1 is not in 1..=1000"),
        ("--retries", "-1", "-1 is not in 0..=100"),
        ("--memory", "-5g", "'-5g'"),
        ("--cpus", "-1", "'-1'"),
        ("--timeout", "-5s", "'-5s'"),
        ("--grace", "-1", "'-1'"),
    ] {
        let said = world.run(&["run", "t.json", flag, value]).expect(2, &["invalid value", flag, wanted]);
        assert!(!said.err.contains("tip:"), "{}", said.err);
    }
    world.run(&["run", "t.json", "--verify", " "]).expect(2, &["a verify command is empty (from --verify)"]);
    world.run_with(&["run", "t.json"], &[("LONGSHORE_VERIFY", " ")]).expect(2, &["is empty (from LONGSHORE_VERIFY)"]);
}

#[test]
fn logs_are_listed_where_none_is_named() {
    let world = World::new();
    let dir = world.swarm();
    world.run(&["logs"]).expect(0, &["none yet"]);
    std::fs::write(dir.log_file(&"T-2026-001".parse().expect("valid")), "one\n").expect("written");
    for args in [&["logs"][..], &["logs", "a1b2c3d4"]] {
        world.run(args).expect(0, &[SWARM, "T-2026-001  US-001  4 bytes", "T-2026-001.log"]);
    }
}

#[test]
fn what_cannot_be_written_is_an_error() {
    let world = World::new();
    world.tasks("t.json", "feat/x", r#","command":"true""#);
    world.swarm();
    for command in ["plan t.json --json", "status --json", "salvage --json", "doctor --json", "schema state"] {
        let mut shell = world.command("sh");
        let line = format!("exec \"$0\" {command} >/dev/full");
        let output = shell.args(["-c", &line, env!("CARGO_BIN_EXE_longshore")]).output().expect("a shell");
        let said = Said::of(&output);
        said.expect(if command.starts_with("salvage") { 0 } else { 3 }, &[]);
    }
}

#[test]
fn the_doctor_speaks_json() {
    let world = World::new();
    let said = world.run(&["doctor", "--json", "--image", "some/image"]).expect(3, &[]);
    let lines: Vec<serde_json::Value> =
        said.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let find = |name: &str| lines.iter().find(|line| line["name"] == name).unwrap_or_else(|| panic!("{name}"));
    assert_eq!((&find("engine")["thing"], &find("engine")["verdict"]), (&"check".into(), &"bad".into()));
    assert!(find("engine")["hint"].as_str().is_some_and(|hint| hint.contains("start Docker")));
    assert_eq!((&find("image")["verdict"], find("image")["reason"].as_str()), (&"some/image".into(), Some("--image")));
}

#[test]
fn kept_work_without_a_swarm() {
    let world = World::new();
    world.run(&["salvage"]).expect(0, &["nothing is kept"]);
    assert_eq!(world.run(&["salvage", "--json"]).expect(0, &[]).out, "");
    world.run(&["salvage", "show", "US-001"]).expect(2, &["no kept work is called `US-001`", "nothing is kept"]);
    world.run(&["salvage", "apply", "US-001"]).expect(2, &["no kept work is called `US-001`"]);
    world.run(&["salvage", "show"]).expect(2, &["<REF|STORY>"]);
    world.run(&["completions", "bash"]).expect(0, &["salvage"]);
    world.git(&["update-ref", &format!("refs/longshore/salvage/{SWARM}/US-001/1"), "HEAD"]);
    world.run(&["salvage"]).expect(0, &["a1b2c3d4  US-001  1", "main"]);
}

#[test]
fn the_conversation_is_told() {
    let world = World::new();
    world.run(&["ssot", "log"]).expect(0, &["nothing was said"]);
    world.run(&["ssot", "log", "T-2026-001"]).expect(2, &["nothing was said about a task `T-2026-001`", "--all"]);
    world.run(&["ssot", "log", "T-1"]).expect(2, &["an assignment id"]);
    world.run(&["ssot", "show", "escalation-T-2026-001-5"]).expect(2, &["there is no message"]);
    assert!(!world.root().join(".longshore").exists(), "reading makes nothing");

    let swarm = world.swarm().swarm();
    let ssot = Ssot::open(&world.root()).expect("opened");
    let say = |task: &str, text: &str| {
        let text = text.replace("TASK", task);
        let message = AmpMessage::parse(&text).expect("a good message");
        ssot.ensure_message(&message).expect("written");
        message
    };
    let dispatch = r#"{"msg_id":"task_dispatch-TASK-1772116327001","protocol_version":"AMP/1.0","type":"task_dispatch",
        "from":"coordinator","to":"executor","task_id":"TASK","timestamp":"2026-02-26T14:32:07.001+00:00",
        "requires_ack":true,"payload":{"description":"Do the story","repo":"/r","branch":"feat/x","subtasks":
        [{"subtask_id":"TASK-S1","description":"a","estimated_lines":1}],"acceptance_criteria":["it works"],
        "risk_level":"low"}}"#;
    let escalation = r#"{"msg_id":"escalation-TASK-1772116327002","protocol_version":"AMP/1.0","type":"escalation",
        "from":"system","to":"admin","task_id":"TASK","timestamp":"2026-02-26T14:32:07.002+00:00","requires_ack":false,
        "payload":{"escalation_type":"unknown","severity":"warning","triggered_by":"system","description":"It crashed",
        "affected_msgs":["task_dispatch-TASK-1772116327001"],"system_state_snapshot":{"task_status":"failed",
        "reject_count":0,"last_successful_msg_id":null},"auto_suspended":true}}"#;
    let first = say("T-2026-001", dispatch);
    say("T-2026-001", escalation);
    say("T-2026-002", dispatch);
    let ack = format!(r#"{{"ack_of":"{}","by":"executor","timestamp":"2026-02-26T14:32:10.001+00:00"}}"#, first.id());
    ssot.ensure_ack(&Ack::parse(&ack).expect("a good ack")).expect("written");
    let file = |task: &str, swarm: &str| {
        let text = format!(
            r#"{{"task_id":"{task}","swarm_id":"{swarm}","branch":"feat/x","status":"running","risk_level":"low",
            "attempts":1,"reject_count":0,"stories":[],"updated_at":"2026-02-26T14:32:07Z"}}"#
        );
        ssot.write_task_file(&serde_json::from_str(&text).expect("a good task file")).expect("written");
    };
    file("T-2026-001", &swarm.to_string());
    file("T-2026-002", "b1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d");

    let said = world
        .run(&["ssot", "log"])
        .expect(0, &["coordinator -> executor", "acked after 3.0 s", "1 story: Do the story"]);
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(lines.len(), 2, "the newest swarm's task alone: {}", said.out);
    assert!(lines[1].contains("system -> admin") && lines[1].contains("warning unknown: It crashed"), "{}", said.out);
    assert!(lines[1].contains("  open  "), "{}", said.out);
    assert_eq!(world.run(&["ssot", "log", "T-2026-001"]).expect(0, &[]).out, said.out);
    let all = world.run(&["ssot", "log", "--all"]).expect(0, &["T-2026-001", "T-2026-002", "overdue by"]);
    assert_eq!(all.out.lines().count(), 3);
    let json = world.run(&["ssot", "log", "T-2026-001", "--json"]).expect(0, &[]);
    let lines: Vec<serde_json::Value> =
        json.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&lines[0]["message"]["type"], &lines[0]["ack_state"]), (&"task_dispatch".into(), &"acked".into()));
    assert_eq!((&lines[0]["ack_seconds"], &lines[0]["ack"]["by"]), (&3.0.into(), &"executor".into()));
    assert_eq!((&lines[1]["ack_state"], &lines[1]["ack"]), (&"open".into(), &serde_json::Value::Null));
    world.run(&["ssot", "show", first.id().as_str()]).expect(0, &["\"Do the story\"", "\"ack_of\""]);

    world.run(&["ssot", "check"]).expect(0, &["3 messages: 0 errors, 1 warning", "its ack is overdue"]);
    world.run(&["ssot", "mirror"]).expect(0, &["branch longshore/ssot is at "]);
    world.run(&["ssot", "mirror"]).expect(0, &["branch longshore/ssot has it all"]);
    std::fs::write(ssot.message_path(first.id()), "{").expect("torn");
    let check = world.run(&["ssot", "check", "--json"]).expect(1, &["\"weight\":\"error\"", "it is torn"]);
    assert!(check.out.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{}", check.out);
    world.run(&["ssot", "check", "--reindex"]).expect(1, &["0 entries were wrong"]);
}
