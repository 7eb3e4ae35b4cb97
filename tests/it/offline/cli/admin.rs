//! `longshore admin` on a swarm's folder that was made by hand: a journal, and an SSOT with what the journal says.

use std::io::Write;
use std::process::Stdio;

use jiff::Timestamp;
use longshore::coordinator::control;
use longshore::ids::{AssignmentId, StoryKey};
use longshore::protocol::amp::message::{AmpMessage, Escalation};
use longshore::protocol::amp::store::{AdminAction, DecisionTarget, Ssot, TaskFile, TaskStatus};
use longshore::state::journal::JOURNAL_VERSION;
use longshore::state::{Journal, JournalHeader, SwarmDir};
use longshore::swarm::{AckTimeouts, AmpIntent, AmpSpec, Effect, Event, StorySpec, SwarmMachine, TaskAction};
use longshore::tasks::RiskLevel;

use super::{CliFixture, CliOutput, SWARM, spec};

const STARTED_AT: &str = "2026-11-21T12:00:00Z";

/// Two stories of high risk that wait for an approval, as a coordinator leaves them: journal, messages, task files.
fn suspended_swarm(world: &CliFixture) -> SwarmDir {
    let began: Timestamp = STARTED_AT.parse().expect("a time");
    let mut spec = spec();
    spec.stories[0].risk = RiskLevel::High;
    let key = StoryKey { file: 0, id: "US-002".parse().expect("valid") };
    let second = StorySpec { key: key.clone(), title: "Second".to_owned(), ..spec.stories[0].clone() };
    spec.stories.push(second);
    let mut assignment = spec.assignments[0].clone();
    (assignment.id, assignment.stories) = (AssignmentId::new(2026, 2), vec![key]);
    assignment.branch = "feat/x-us-002".parse().expect("valid");
    spec.assignments.push(assignment);
    spec.amp = Some(AmpSpec {
        began_ms: u64::try_from(began.as_millisecond()).expect("after 1970"),
        ack_timeouts: AckTimeouts::default(),
        heartbeat_timeout: longshore::swarm::spec::DEFAULT_HEARTBEAT_TIMEOUT,
        review_rounds: None,
    });
    let dir = SwarmDir::create(&world.root(), spec.swarm).expect("made");
    let header = JournalHeader {
        schema_version: JOURNAL_VERSION,
        program_version: "test".to_owned(),
        swarm_id: spec.swarm,
        started: began,
        spec: spec.clone(),
        settings: serde_json::Value::Null,
        tasks: Vec::new(),
    };
    let mut journal = Journal::create(&dir.journal_file(), &header).expect("a journal");
    journal.append(&[(Event::Began, Default::default())], began).expect("written");
    dir.set_latest().expect("made the latest");

    let ssot = Ssot::open(&world.root()).expect("an SSOT");
    for assignment in &spec.assignments {
        let task = TaskFile {
            task_id: assignment.id.clone(),
            swarm_id: spec.swarm,
            branch: assignment.branch.clone(),
            status: TaskStatus::Suspended,
            risk_level: RiskLevel::High,
            attempts: 0,
            reject_count: 0,
            stories: Vec::new(),
            progress: None,
            updated_at: began,
        };
        ssot.write_task_file(&task).expect("written");
    }
    for effect in SwarmMachine::new(spec).handle(&Event::Began, Default::default()) {
        if let Effect::SendAmp(intent) = effect
            && let AmpIntent::Escalation { id, escalation, .. } = *intent
        {
            ssot.ensure_message(&escalation_of(&id.to_string(), id.task_id(), &escalation)).expect("said");
        }
    }
    // For the record only.
    let info = format!("escalation-T-2026-001-{}", began.as_millisecond() + 500);
    let text = message_json(
        &info,
        "T-2026-001",
        serde_json::json!({
            "escalation_type": "ack_timeout", "severity": "info", "triggered_by": "system", "description": "late, that is all",
            "affected_msgs": [], "suggested_actions": [], "auto_suspended": false,
            "system_state_snapshot": {"task_status": "running", "reject_count": 0, "last_successful_msg_id": null}
        }),
    );
    ssot.ensure_message(&AmpMessage::parse(&text).expect("a good message")).expect("said");
    dir
}

fn message_json(id: &str, task: &str, payload: serde_json::Value) -> String {
    let millis: i64 = id.rsplit('-').next().expect("a number").parse().expect("a number");
    let at = Timestamp::from_millisecond(millis).expect("a time");
    serde_json::json!({
        "msg_id": id, "protocol_version": "AMP/1.0", "type": "escalation", "from": "coordinator", "to": "admin",
        "task_id": task, "timestamp": at.strftime("%Y-%m-%dT%H:%M:%S%.3f+00:00").to_string(), "requires_ack": false,
        "payload": payload
    })
    .to_string()
}

fn escalation_of(id: &str, task: &AssignmentId, escalation: &Escalation) -> AmpMessage {
    let payload = serde_json::to_value(escalation).expect("JSON");
    AmpMessage::parse(&message_json(id, task.as_str(), payload)).expect("a good message")
}

fn decisions(world: &CliFixture) -> Vec<(DecisionTarget, AdminAction, String)> {
    let swarm = SWARM.parse().expect("valid");
    let made = Ssot::open_read_only(&world.root()).decisions(&swarm).expect("read");
    made.into_iter().map(|made| (made.target, made.action, made.by)).collect()
}

fn json_lines(output: &CliOutput) -> Vec<serde_json::Value> {
    output.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn held_tasks_are_listed_and_shown() {
    let world = CliFixture::new();
    world.run(&["admin", "list"]).expect(2, &["no swarms found in"]);
    suspended_swarm(&world);
    let listed = world.run(&["admin", "list"]).expect(0, &["2 tasks wait for you"]);
    let rows: Vec<&str> = listed.out.lines().collect();
    assert_eq!(rows.len(), 2, "what waits is told once, and what is for the record is not: {}", listed.out);
    for (row, task, story) in [(rows[0], "T-2026-001", "US-001"), (rows[1], "T-2026-002", "US-002")] {
        for wanted in [task, story, "awaiting approval", "of high risk", "decide approve, answer, abort"] {
            assert!(row.contains(wanted), "`{wanted}` is missing in {row}");
        }
    }
    world.run(&["admin", "list", "--all"]).expect(0, &["info ack_timeout: late, that is all"]);
    let json = json_lines(&world.run(&["admin", "list", "--json", "--all"]).expect(0, &[]));
    assert_eq!(json.len(), 5, "{json:?}");
    assert_eq!((&json[0]["thing"], &json[0]["what"]), (&"wait".into(), &"approval".into()));
    assert_eq!(json[0]["actions"], serde_json::json!(["approve", "answer", "abort"]));
    let since: Timestamp = json[0]["since"].as_str().expect("text").parse().expect("a time");
    assert_eq!(since.as_second(), STARTED_AT.parse::<Timestamp>().expect("a time").as_second());

    let escalation = json[0]["escalation"].as_str().expect("an id").to_owned();
    let all = ["permission_denied", "critical", "longshore admin approve T-2026-001", "runs it", &escalation];
    for target in ["T-2026-001", "US-001", &escalation] {
        world.run(&["admin", "show", target]).expect(0, &all);
    }
    let shown = world.run(&["admin", "show", "US-001"]).expect(0, &all);
    assert!(!shown.out.contains("admin retry"), "what cannot be decided is not offered: {}", shown.out);

    let status = world.run(&["status"]).expect(0, &["open escalations", "waits for the admin: awaiting approval"]);
    let place = |what: &str| status.out.find(what).unwrap_or_else(|| panic!("{what} in {}", status.out));
    assert!(place("open escalations") < place("longshore admin approve") && place("admin approve") < place("STORY"));
    assert!(!status.out.contains("late, that is all"), "{}", status.out);
    let state: serde_json::Value =
        serde_json::from_str(&world.run(&["status", "--json"]).expect(0, &[]).out).expect("JSON");
    let schema = serde_json::from_str(&world.run(&["schema", "state"]).out).expect("JSON");
    assert!(jsonschema::validator_for(&schema).expect("a good schema").is_valid(&state), "{state}");
    assert_eq!(state["stories"][0]["waitsFor"]["what"], "approval");
}

#[test]
fn decisions_for_a_stopped_swarm_are_stored() {
    let world = CliFixture::new();
    let dir = suspended_swarm(&world);
    world.run(&["admin", "retry", "T-2026-001"]).expect(2, &["waits for an approval", "admin show T-2026-001"]);
    world.run(&["admin", "approve", "T-2026-009"]).expect(2, &["has no task `T-2026-009`", "T-2026-001 to T-2026-002"]);
    world.run(&["admin", "approve", "US-009"]).expect(2, &["no story, task or escalation `US-009`", "US-001, US-002"]);
    world.run(&["admin", "approve", "escalation-T-2026-001-1"]).expect(2, &["there is no escalation"]);
    world.run(&["admin", "show", "task_result-T-2026-001-1"]).expect(2, &["is a task_result, not an escalation"]);
    world.run(&["admin", "answer", "US-001", "  "]).expect(2, &["the answer is empty"]);
    assert!(decisions(&world).is_empty());

    let journal = std::fs::read(dir.journal_file()).expect("read");
    let user = [("USER", "ada")];
    let decided = ["T-2026-001 (US-001): approve: runs it", "`longshore resume a1b2c3d4` applies it"];
    world.run_with(&["admin", "approve", "US-001"], &user).expect(0, &decided);
    let again = ["there is nothing to abort", "ada decided `approve` already"];
    world.run(&["admin", "abort", "T-2026-001"]).expect(2, &again);
    world.run(&["admin", "list"]).expect(0, &["ada decided `approve`", "1 task waits for you"]);
    world.run(&["admin", "show", "T-2026-001"]).expect(0, &["ada decided `approve`", "nothing to decide now"]);

    let mut child = world
        .command(env!("CARGO_BIN_EXE_longshore"))
        .args(["admin", "answer", "T-2026-002", "-", "--swarm", "a1b2"])
        .env("USER", "")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("longshore runs");
    child.stdin.take().expect("piped").write_all(b"mind the gap\n--really\n").expect("written");
    CliOutput::of(&child.wait_with_output().expect("ended")).expect(0, &["answer: runs it with your answer"]);
    world.run(&["admin", "list"]).expect(0, &["all is decided: `longshore resume a1b2c3d4`"]);
    let made = decisions(&world);
    let story = StoryKey { file: 0, id: "US-001".parse().expect("valid") };
    assert_eq!(made[0], (DecisionTarget::Story(story), AdminAction::Approve, "ada".to_owned()));
    let text = "mind the gap\n--really".to_owned();
    assert_eq!(made[1].1, AdminAction::Answer { text });
    assert_eq!(std::fs::read(dir.journal_file()).expect("read"), journal, "the journal is its orchestrator's");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_swarm_receives_the_decision() {
    let world = CliFixture::new();
    let dir = suspended_swarm(&world);
    let _lock = dir.lock().expect("free");
    world.run(&["admin", "approve", "US-001"]).expect(3, &["no orchestrator listens", "try again"]);
    assert!(decisions(&world).is_empty(), "nobody was told");
    let (commands, mut arrived) = tokio::sync::mpsc::channel::<control::ControlRequest>(4);
    let server = control::serve(&dir, commands).expect("listening");
    let orchestrator = tokio::spawn(async move {
        let mut received = Vec::new();
        for answer in
            [control::ControlReply::Refused { problem: "not that".to_owned() }, control::ControlReply::Accepted]
        {
            let order = arrived.recv().await.expect("an order");
            let control::ControlCommand::Decide { decision } = order.command else { panic!("a decision") };
            received.push(decision);
            order.reply.send(answer).expect("somebody waits");
        }
        received
    });
    world.run(&["admin", "abort", "US-001"]).expect(2, &["error: not that"]);
    assert!(decisions(&world).is_empty(), "it was refused");
    world.run_with(&["admin", "abort", "US-001"], &[("USER", "ada")]).expect(0, &["applied by the running swarm"]);
    let received = orchestrator.await.expect("ended");
    assert_eq!(
        (&received[1].action, received[1].task.as_str(), received[1].by.as_str()),
        (&TaskAction::Abort, "T-2026-001", "ada")
    );
    let stored = Ssot::open_read_only(&world.root()).decisions(&SWARM.parse().expect("valid")).expect("read");
    assert_eq!((stored.len(), stored[0].id.to_string()), (1, received[1].id.clone()), "kept under the same id");
    server.abort();
}

#[test]
fn notify_urls_are_redacted() {
    let world = CliFixture::new();
    world.tasks("t.json", "feat/x", r#","command":"true""#);
    world.file(
        ".longshore.toml",
        "notify_url = 'https://me:s3cret@example.org/s3cret?k=s3cret'\n[amp]\nheartbeat = '5m'\n",
    );
    let output = world.run(&["doctor"]).expect(3, &["https://example.org/...", "amp.heartbeat", "5m"]);
    assert!(!output.out.contains("s3cret"), "{}", output.out);
    let output = world.run(&["run", "t.json", "--notify-url", "s3cret"]).expect(2, &["notify_url", "--notify-url"]);
    assert!(!output.err.contains("s3cret"), "{}", output.err);
    world.run_with(&["run", "t.json"], &[("LONGSHORE_AMP_ACK_RESULT", "500ms")]).expect(2, &["whole seconds"]);
    world.run(&["run", "t.json", "--notify", " "]).expect(2, &["notify", "it is empty"]);
}
