//! The SSOT: two at once, what a crash and a power cut leave, what must not be overwritten.

mod check;
mod writers;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tempfile::TempDir;

use super::files::to_json_bytes;
use super::*;
use crate::ids::{AssignmentId, SwarmId};
use crate::protocol::acp::message::StoryStatus;
use crate::protocol::amp::message::{
    Ack, AmpDraft, AmpMessage, AmpMessageType, AmpRole, Escalation, EscalationSeverity, EscalationType, MsgId, Payload,
    RiskLevel, Subtask, SystemStateSnapshot, TaskDispatch,
};
use crate::protocol::rule::Violation;

/// 2026-11-22T12:00:00Z.
const START_MS: u64 = 1_795_348_800_000;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millisecond(ms as i64).expect("a time")
}

fn task(number: u32) -> AssignmentId {
    AssignmentId::new(2026, number)
}

fn swarm() -> SwarmId {
    "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d".parse().expect("a swarm")
}

fn dispatch(task: &AssignmentId, ms: u64, description: &str, context_ref: Vec<MsgId>) -> AmpMessage {
    let payload = TaskDispatch {
        description: description.to_owned(),
        repo: "/repo".to_owned(),
        branch: "feat/x".to_owned(),
        subtasks: vec![Subtask {
            subtask_id: format!("{task}-S1"),
            description: "the story".to_owned(),
            estimated_lines: 0,
        }],
        acceptance_criteria: vec!["it works".to_owned()],
        risk_level: RiskLevel::Low,
        forbidden_actions: Vec::new(),
        tech_constraints: None,
    };
    let draft = AmpDraft {
        from: AmpRole::Coordinator,
        to: AmpRole::Executor,
        task_id: task.clone(),
        timestamp: at(ms),
        requires_ack: true,
        ack_timeout_sec: None,
        context_ref,
        payload: Payload::TaskDispatch(payload),
    };
    AmpMessage::new(MsgId::new(AmpMessageType::TaskDispatch, task.clone(), ms), draft).expect("a good dispatch")
}

fn escalation(task: &AssignmentId, ms: u64, affected_msgs: Vec<MsgId>) -> AmpMessage {
    let payload = Escalation {
        escalation_type: EscalationType::Conflict,
        severity: EscalationSeverity::Warning,
        triggered_by: AmpRole::Coordinator,
        description: "two branches do not merge".to_owned(),
        affected_msgs,
        system_state_snapshot: SystemStateSnapshot {
            task_status: "suspended".to_owned(),
            reject_count: 0,
            last_successful_msg_id: None,
        },
        suggested_actions: Vec::new(),
        auto_suspended: true,
    };
    let draft = AmpDraft {
        from: AmpRole::Coordinator,
        to: AmpRole::Admin,
        task_id: task.clone(),
        timestamp: at(ms),
        requires_ack: false,
        ack_timeout_sec: None,
        context_ref: Vec::new(),
        payload: Payload::Escalation(payload),
    };
    AmpMessage::new(MsgId::new(AmpMessageType::Escalation, task.clone(), ms), draft).expect("a good escalation")
}

fn ack(of: &AmpMessage, ms: u64) -> Ack {
    Ack { ack_of: of.id().clone(), by: of.to(), timestamp: at(ms), note: None }
}

fn task_file(task: &AssignmentId) -> TaskFile {
    TaskFile {
        task_id: task.clone(),
        swarm_id: swarm(),
        branch: "feat/x".parse().expect("a branch"),
        status: TaskStatus::Running,
        risk_level: RiskLevel::Low,
        attempts: 1,
        reject_count: 0,
        stories: vec![TaskStory {
            subtask_id: format!("{task}-S1"),
            story: "US-001".to_owned(),
            title: "A story".to_owned(),
            status: StoryStatus::InProgress,
        }],
        progress: Some("writing tests".to_owned()),
        updated_at: at(START_MS),
    }
}

fn new_ssot() -> (TempDir, Ssot) {
    let repo = TempDir::new().expect("a folder");
    let ssot = Ssot::open(repo.path()).expect("opened");
    (repo, ssot)
}

#[test]
fn written_messages_are_read_back() {
    let (repo, ssot) = new_ssot();
    let (first, second) = (dispatch(&task(1), START_MS, "do it", vec![]), escalation(&task(1), START_MS + 5, vec![]));
    assert_eq!(ssot.ensure_message(&second).expect("written"), EnsureOutcome::Written);
    assert_eq!(ssot.ensure_message(&first).expect("written"), EnsureOutcome::Written);
    let ack = ack(&first, START_MS + 2);
    assert_eq!(ssot.ensure_ack(&ack).expect("written"), EnsureOutcome::Written);
    ssot.write_task_file(&task_file(&task(1))).expect("written");
    ssot.sync().expect("synced");

    // By another value, as another process has one; it makes nothing.
    let other = Ssot::open_read_only(repo.path());
    assert_eq!(other.message(first.id()).expect("read"), Some(first.clone()));
    assert_eq!(other.ack(first.id()).expect("read"), Some(ack.clone()));
    assert_eq!(other.task_file(&task(1)).expect("read"), Some(task_file(&task(1))));
    let log = other.log(&task(1)).expect("read");
    assert_eq!(log, [LogEntry { message: first, ack: Some(ack) }, LogEntry { message: second, ack: None }]);
    assert_eq!(other.message(&"escalation-T-2026-009-5".parse().expect("an id")).expect("read"), None);
}

#[test]
fn existing_files_are_not_overwritten() {
    let (_repo, ssot) = new_ssot();
    let first = dispatch(&task(1), START_MS, "do it", vec![]);
    ssot.ensure_message(&first).expect("written");
    let bytes = fs::read(ssot.message_path(first.id())).expect("there");
    assert_eq!(ssot.ensure_message(&first).expect("the same"), EnsureOutcome::AlreadyThere);
    let other = dispatch(&task(1), START_MS, "do something else", vec![]);
    assert!(matches!(ssot.ensure_message(&other), Err(SsotError::Conflict { .. })));
    assert_eq!(fs::read(ssot.message_path(first.id())).expect("there"), bytes);

    ssot.ensure_ack(&ack(&first, START_MS + 1)).expect("written");
    assert_eq!(ssot.ensure_ack(&ack(&first, START_MS + 1)).expect("the same"), EnsureOutcome::AlreadyThere);
    assert!(matches!(ssot.ensure_ack(&ack(&first, START_MS + 2)), Err(SsotError::Conflict { .. })));
    assert!(matches!(
        ssot.ensure_ack(&ack(&dispatch(&task(2), START_MS, "x", vec![]), START_MS)),
        Err(SsotError::MessageNotFound(_))
    ));
    // The same in another hand: spaces and the order of keys say nothing.
    let value: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
    fs::write(ssot.message_path(first.id()), value.to_string()).expect("written");
    assert_eq!(ssot.ensure_message(&first).expect("the same"), EnsureOutcome::AlreadyThere);
}

#[test]
fn torn_files_are_rewritten() {
    let (_repo, ssot) = new_ssot();
    let message = dispatch(&task(1), START_MS, "do it", vec![]);
    ssot.ensure_message(&message).expect("written");
    ssot.ensure_ack(&ack(&message, START_MS)).expect("written");
    let path = ssot.message_path(message.id());
    let whole = fs::read(&path).expect("there");
    for torn in [&b""[..], &whole[..whole.len() / 2], &vec![0; whole.len()]] {
        fs::write(&path, torn).expect("torn");
        assert_eq!(ssot.message(message.id()).expect("read"), None);
        assert_eq!(ssot.log(&task(1)).expect("read"), []);
        assert_eq!(ssot.ensure_message(&message).expect("healed"), EnsureOutcome::Written);
        assert_eq!(fs::read(&path).expect("there"), whole);
    }
    fs::write(ssot.ack_path(message.id()), b"{\"ack_of\"").expect("torn");
    assert_eq!(ssot.ack(message.id()).expect("read"), None);
    assert_eq!(ssot.ensure_ack(&ack(&message, START_MS)).expect("healed"), EnsureOutcome::Written);
    // JSON that is no message is not the work of a power cut, and is nobody's to overwrite.
    fs::write(&path, b"{\"mine\": true}").expect("written");
    assert!(matches!(ssot.ensure_message(&message), Err(SsotError::Conflict { .. })));
    assert!(matches!(ssot.message(message.id()), Err(SsotError::Damaged { .. })));
}

#[test]
fn a_message_under_another_id_is_reported_as_damaged() {
    let (_repo, ssot) = new_ssot();
    let message = dispatch(&task(1), START_MS, "do it", vec![]);
    ssot.ensure_message(&message).expect("written");
    let other = MsgId::new(AmpMessageType::TaskDispatch, task(1), START_MS + 1);
    fs::rename(ssot.message_path(message.id()), ssot.message_path(&other)).expect("moved");
    let error = ssot.message(&other).expect_err("another id");
    assert!(error.to_string().contains(message.id().as_str()), "{error}");
}

#[test]
fn escalations_are_open_until_they_are_acknowledged() {
    let (repo, ssot) = new_ssot();
    let messages: Vec<AmpMessage> = [3, 1, 2].map(|n| escalation(&task(n), START_MS + u64::from(n), vec![])).into();
    for message in &messages {
        ssot.ensure_message(message).expect("written");
        ssot.ensure_message(&dispatch(message.task_id(), START_MS, "do it", vec![])).expect("written");
    }
    let open = |ssot: &Ssot| -> Vec<u64> {
        ssot.open_escalations().expect("read").iter().map(|message| message.id().unix_ms() - START_MS).collect()
    };
    assert_eq!(open(&ssot), [1, 2, 3]);
    ssot.ensure_ack(&ack(&messages[2], START_MS + 10)).expect("written");
    assert_eq!(open(&ssot), [1, 3]);
    // A resume that makes all of it again opens nothing.
    messages
        .iter()
        .for_each(|message| assert_eq!(ssot.ensure_message(message).expect("there"), EnsureOutcome::AlreadyThere));
    assert_eq!(open(&ssot), [1, 3]);

    // Of a writer that died between marker and message, or between ack and marker, nothing is told.
    let marker = |id: &MsgId| repo.path().join(".longshore/ssot/index/open").join(id.as_str());
    fs::write(marker(&MsgId::new(AmpMessageType::Escalation, task(9), START_MS)), b"").expect("written");
    fs::write(marker(messages[2].id()), b"").expect("written");
    assert_eq!(open(&ssot), [1, 3]);
    // The message comes, then.
    ssot.ensure_message(&escalation(&task(9), START_MS, vec![])).expect("written");
    assert_eq!(open(&ssot), [0, 1, 3]);

    // A lost marker comes back with the message's next writer...
    fs::remove_file(marker(messages[0].id())).expect("removed");
    assert_eq!(open(&ssot), [0, 1]);
    ssot.ensure_message(&messages[0]).expect("there");
    assert_eq!(open(&ssot), [0, 1, 3]);
    // ... a lost index with the next who opens the SSOT.
    fs::remove_dir_all(repo.path().join(".longshore/ssot/index")).expect("removed");
    assert!(open(&ssot).is_empty());
    assert_eq!(open(&Ssot::open(repo.path()).expect("opened")), [0, 1, 3]);
}

#[test]
fn rebuild_index_repairs_the_index() {
    let (repo, ssot) = new_ssot();
    let messages: Vec<AmpMessage> = [1, 2, 3].map(|n| escalation(&task(n), START_MS, vec![])).into();
    messages
        .iter()
        .for_each(|message| assert_eq!(ssot.ensure_message(message).expect("written"), EnsureOutcome::Written));
    ssot.ensure_ack(&ack(&messages[1], START_MS)).expect("written");
    assert_eq!(ssot.rebuild_index().expect("made"), 0);
    let open = repo.path().join(".longshore/ssot/index/open");
    fs::remove_file(open.join(messages[0].id().as_str())).expect("removed");
    fs::write(open.join(messages[1].id().as_str()), b"").expect("written");
    let problems: Vec<ProblemSeverity> = index_problems(&ssot).iter().map(|problem| problem.severity).collect();
    assert_eq!(problems, [ProblemSeverity::Error, ProblemSeverity::Warning]);
    assert_eq!(ssot.rebuild_index().expect("made"), 2);
    assert_eq!(index_problems(&ssot), []);
}

fn index_problems(ssot: &Ssot) -> Vec<SsotProblem> {
    let mut problems = ssot.check(at(START_MS)).expect("checked");
    problems.retain(|problem| problem.path.starts_with("index"));
    problems
}

#[test]
fn conversations_are_in_order() {
    let (_repo, ssot) = new_ssot();
    // The same millisecond, and ids whose order as text is another.
    let ms = 9_999_999_999;
    let messages = [
        escalation(&task(2), ms + 1, vec![]),
        escalation(&task(1), ms, vec![]),
        dispatch(&task(1), ms, "do it", vec![]),
        dispatch(&task(1000), ms + 2, "do it", vec![]),
    ];
    for message in &messages {
        ssot.ensure_message(message).expect("written");
        ssot.write_task_file(&task_file(message.task_id())).expect("written");
    }
    let all = |since| -> Vec<MsgId> {
        let log = ssot.log_all(since).expect("read");
        log.map(|entry| entry.expect("read").message.id().clone()).collect()
    };
    let expected: Vec<MsgId> = [2, 1, 0, 3].map(|n: usize| messages[n].id().clone()).into();
    assert_eq!(all(None), expected);
    assert_eq!(all(Some(at(ms + 1))), expected[2..]);
    assert_eq!(ssot.task_message_ids(&task(1)).expect("read"), expected[..2]);
    let tasks: Vec<AssignmentId> = ssot.task_files().expect("read").into_iter().map(|task| task.task_id).collect();
    assert_eq!(tasks, [task(1), task(2), task(1000)]);
}

#[test]
fn reading_creates_no_files() {
    let repo = TempDir::new().expect("a folder");
    let ssot = Ssot::open_read_only(repo.path());
    assert_eq!(ssot.log(&task(1)).expect("read"), []);
    assert_eq!(ssot.task_files().expect("read"), []);
    assert_eq!(ssot.message_ids(None).expect("read"), []);
    assert_eq!(ssot.open_escalations().expect("read"), []);
    assert_eq!(ssot.decisions(&swarm()).expect("read"), []);
    assert_eq!(ssot.rejected_messages().expect("read"), []);
    assert_eq!(ssot.check(at(START_MS)).expect("checked"), []);
    assert_eq!(fs::read_dir(repo.path()).expect("a folder").count(), 0);
}

#[test]
fn git_ignores_the_ssot_and_symlinks_are_rejected() {
    let (repo, _ssot) = new_ssot();
    assert_eq!(fs::read_to_string(repo.path().join(".longshore/.gitignore")).expect("there"), "*\n");
    assert!(fs::read_to_string(repo.path().join(".longshore/ssot/README.md")).expect("there").contains("AMP/1.0"));

    // A repo that brings its own `.longshore`, whose links lead out of it.
    for link in ["ssot", "ssot/messages", "ssot/messages/T-2026-001"] {
        let (repo, out) = (TempDir::new().expect("a folder"), TempDir::new().expect("a folder"));
        let link = repo.path().join(".longshore").join(link);
        fs::create_dir_all(link.parent().expect("below the repo")).expect("made");
        std::os::unix::fs::symlink(out.path(), &link).expect("linked");
        let written = Ssot::open(repo.path())
            .and_then(|ssot| ssot.ensure_message(&dispatch(&task(1), START_MS, "do it", vec![])));
        assert!(matches!(written, Err(SsotError::NotDirectory(path)) if path == link));
        assert_eq!(fs::read_dir(out.path()).expect("a folder").count(), 0, "{link:?}");
    }
}

#[test]
fn ids_cannot_escape_the_ssot_dir() {
    for name in ["escalation-../../x-5", "escalation-T-2026-1/../x-5", "task_dispatch-T-2026-001-5/..", "../x", ""] {
        assert!(name.parse::<MsgId>().is_err(), "{name}");
    }
    for name in ["T-2026-001/..", "../T-2026-001", "T-2026-001\0"] {
        assert!(name.parse::<AssignmentId>().is_err(), "{name}");
    }
    assert!(serde_json::from_str::<DecisionId>("\"../../x\"").is_err());
}

#[test]
fn a_torn_task_file_reads_as_missing() {
    let (repo, ssot) = new_ssot();
    ssot.write_task_file(&task_file(&task(1))).expect("written");
    let path = repo.path().join(".longshore/ssot/tasks/T-2026-001.json");
    let file: serde_json::Value = serde_json::from_slice(&fs::read(&path).expect("there")).expect("JSON");
    assert_eq!((&file["task_id"], &file["status"]), (&"T-2026-001".into(), &"running".into()));
    assert_eq!(file["stories"][0]["status"], "in_progress");
    fs::write(&path, b"{").expect("torn");
    assert_eq!(ssot.task_file(&task(1)).expect("read"), None);
    let mut newer = task_file(&task(1));
    newer.status = TaskStatus::Completed;
    ssot.write_task_file(&newer).expect("written");
    assert_eq!(ssot.task_file(&task(1)).expect("read"), Some(newer));
}

#[test]
fn task_status_names_match_their_json() {
    use TaskStatus as S;
    for status in [S::Pending, S::WaitingApproval, S::Running, S::InReview, S::Suspended] {
        assert_eq!(serde_json::to_value(status).expect("JSON"), status.as_str());
    }
    for status in [S::Locked, S::Completed, S::Failed, S::Aborted] {
        assert_eq!(serde_json::to_value(status).expect("JSON"), status.as_str());
    }
}

#[test]
fn rejected_messages_are_logged_with_their_rule() {
    let (repo, ssot) = new_ssot();
    let violation =
        Violation { rule: "branch-protected", field: "payload.branch".to_owned(), problem: "is `main`".to_owned() };
    let long = format!("{{\"é\": \"{}\n\"}}", "x".repeat(5000));
    ssot.log_rejected(&long, &violation, at(START_MS), "T-2026-001 attempt 1").expect("noted");
    ssot.log_rejected("second", &violation, at(START_MS), "stdin").expect("noted");
    let file = repo.path().join(".longshore/ssot/errors/2026-11.ndjson");
    assert_eq!(fs::read_to_string(&file).expect("there").lines().count(), 2);
    // Half a line, as a power cut leaves it, does not swallow the next.
    let whole = fs::read(&file).expect("there");
    fs::write(&file, &whole[..whole.len() - 5]).expect("torn");
    ssot.log_rejected("third", &violation, at(START_MS), "stdin").expect("noted");
    let refused = ssot.rejected_messages().expect("read");
    assert_eq!(refused.len(), 2);
    assert_eq!((refused[0].rule.as_str(), refused[0].field.as_str()), ("branch-protected", "payload.branch"));
    assert_eq!((refused[0].excerpt.chars().count(), refused[0].bytes), (1000, long.len() as u64));
    assert_eq!((refused[1].excerpt.as_str(), refused[1].from.as_str()), ("third", "stdin"));
}

/// A ratio, because times depend on the machine: the folder of a task with 1,000 neighbours costs what one alone costs.
#[test]
fn lookup_cost_is_independent_of_the_ssot_size() {
    fn measure(ssot: &Ssot, id: &MsgId) -> Duration {
        let once = || {
            let began = Instant::now();
            for _ in 0..20 {
                assert!(ssot.message(id).expect("read").is_some());
                assert_eq!(ssot.log(id.task_id()).expect("read").len(), 10);
            }
            began.elapsed()
        };
        // The best of several: others use the machine too.
        (0..7).map(|_| once()).min().expect("seven")
    }
    let (_small, small) = new_ssot();
    let (_big, big) = new_ssot();
    let say = |ssot: &Ssot, number: u32| {
        for n in 0..10 {
            ssot.ensure_message(&dispatch(&task(number), START_MS + n, "do it", vec![])).expect("written");
        }
    };
    (1..=2).for_each(|number| say(&small, number));
    (1..=400).for_each(|number| say(&big, number));
    let id = MsgId::new(AmpMessageType::TaskDispatch, task(2), START_MS + 5);
    let (alone, among) = (measure(&small, &id), measure(&big, &id));
    // A scan would cost two hundred times as much.
    assert!(among < alone * 5, "{among:?} for 4,000 messages, {alone:?} for 20");
}

#[test]
fn a_full_disk_is_recognized() {
    let full = SsotError::io("write", Path::new("x"))(std::io::ErrorKind::StorageFull.into());
    assert!(full.is_disk_full());
    assert!(!SsotError::TaskNumbersExhausted { year: 2026, count: 1 }.is_disk_full());
}

fn write_json(ssot: &Ssot, path: PathBuf, value: &impl serde::Serialize) {
    fs::create_dir_all(path.parent().expect("below the SSOT")).expect("made");
    fs::write(&path, to_json_bytes(&path, value).expect("JSON")).expect("written");
    assert!(path.starts_with(ssot.dir()));
}
