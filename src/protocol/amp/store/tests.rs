//! The SSOT: two at once, what a crash and a power cut leave, what must not be overwritten.

mod sound;
mod writers;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tempfile::TempDir;

use super::files::to_bytes;
use super::*;
use crate::ids::SwarmId;
use crate::protocol::acp::message::StoryStatus;
use crate::protocol::amp::message::{
    Draft, Escalation, EscalationType, Payload, RiskLevel, Role, Severity, Snapshot, Subtask, TaskDispatch,
};
use crate::protocol::amp::rules::Violation;

/// 2026-11-22T12:00:00Z.
const BEGAN: u64 = 1_795_348_800_000;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millisecond(ms as i64).expect("a time")
}

fn task(number: u32) -> AssignmentId {
    AssignmentId::new(2026, number)
}

fn swarm() -> SwarmId {
    "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d".parse().expect("a swarm")
}

fn dispatch(task: &AssignmentId, ms: u64, description: &str, context_ref: Vec<MsgId>) -> Message {
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
    let draft = Draft {
        from: Role::Coordinator,
        to: Role::Executor,
        task: task.clone(),
        at: at(ms),
        requires_ack: true,
        ack_timeout_sec: None,
        context_ref,
        payload: Payload::Dispatch(payload),
    };
    Message::new(MsgId::new(Kind::TaskDispatch, task.clone(), ms), draft).expect("a good dispatch")
}

fn escalation(task: &AssignmentId, ms: u64, affected_msgs: Vec<MsgId>) -> Message {
    let payload = Escalation {
        escalation_type: EscalationType::Conflict,
        severity: Severity::Warning,
        triggered_by: Role::Coordinator,
        description: "two branches do not merge".to_owned(),
        affected_msgs,
        system_state_snapshot: Snapshot {
            task_status: "suspended".to_owned(),
            reject_count: 0,
            last_successful_msg_id: None,
        },
        suggested_actions: Vec::new(),
        auto_suspended: true,
    };
    let draft = Draft {
        from: Role::Coordinator,
        to: Role::Admin,
        task: task.clone(),
        at: at(ms),
        requires_ack: false,
        ack_timeout_sec: None,
        context_ref: Vec::new(),
        payload: Payload::Escalation(payload),
    };
    Message::new(MsgId::new(Kind::Escalation, task.clone(), ms), draft).expect("a good escalation")
}

fn ack(of: &Message, ms: u64) -> Ack {
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
        updated_at: at(BEGAN),
    }
}

fn fresh() -> (TempDir, Ssot) {
    let repo = TempDir::new().expect("a folder");
    let ssot = Ssot::open(repo.path()).expect("opened");
    (repo, ssot)
}

#[test]
fn what_is_written_is_read_again() {
    let (repo, ssot) = fresh();
    let (first, second) = (dispatch(&task(1), BEGAN, "do it", vec![]), escalation(&task(1), BEGAN + 5, vec![]));
    assert_eq!(ssot.ensure_message(&second).expect("written"), Ensured::Written);
    assert_eq!(ssot.ensure_message(&first).expect("written"), Ensured::Written);
    let ack = ack(&first, BEGAN + 2);
    assert_eq!(ssot.ensure_ack(&ack).expect("written"), Ensured::Written);
    ssot.put_task(&task_file(&task(1))).expect("written");
    ssot.sync().expect("synced");

    // By another value, as another process has one; it makes nothing.
    let other = Ssot::at(repo.path());
    assert_eq!(other.message(first.id()).expect("read"), Some(first.clone()));
    assert_eq!(other.ack(first.id()).expect("read"), Some(ack.clone()));
    assert_eq!(other.task(&task(1)).expect("read"), Some(task_file(&task(1))));
    let log = other.log(&task(1)).expect("read");
    assert_eq!(log, [Entry { message: first, ack: Some(ack) }, Entry { message: second, ack: None }]);
    assert_eq!(other.message(&"escalation-T-2026-009-5".parse().expect("an id")).expect("read"), None);
}

#[test]
fn what_is_there_stays() {
    let (_repo, ssot) = fresh();
    let first = dispatch(&task(1), BEGAN, "do it", vec![]);
    ssot.ensure_message(&first).expect("written");
    let bytes = fs::read(ssot.message_path(first.id())).expect("there");
    assert_eq!(ssot.ensure_message(&first).expect("the same"), Ensured::AlreadyThere);
    let other = dispatch(&task(1), BEGAN, "do something else", vec![]);
    assert!(matches!(ssot.ensure_message(&other), Err(SsotError::Conflict { .. })));
    assert_eq!(fs::read(ssot.message_path(first.id())).expect("there"), bytes);

    ssot.ensure_ack(&ack(&first, BEGAN + 1)).expect("written");
    assert_eq!(ssot.ensure_ack(&ack(&first, BEGAN + 1)).expect("the same"), Ensured::AlreadyThere);
    assert!(matches!(ssot.ensure_ack(&ack(&first, BEGAN + 2)), Err(SsotError::Conflict { .. })));
    assert!(matches!(
        ssot.ensure_ack(&ack(&dispatch(&task(2), BEGAN, "x", vec![]), BEGAN)),
        Err(SsotError::NoMessage(_))
    ));
    // The same in another hand: spaces and the order of keys say nothing.
    let value: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
    fs::write(ssot.message_path(first.id()), value.to_string()).expect("written");
    assert_eq!(ssot.ensure_message(&first).expect("the same"), Ensured::AlreadyThere);
}

#[test]
fn what_a_power_cut_tore_is_written_again() {
    let (_repo, ssot) = fresh();
    let message = dispatch(&task(1), BEGAN, "do it", vec![]);
    ssot.ensure_message(&message).expect("written");
    ssot.ensure_ack(&ack(&message, BEGAN)).expect("written");
    let path = ssot.message_path(message.id());
    let whole = fs::read(&path).expect("there");
    for torn in [&b""[..], &whole[..whole.len() / 2], &vec![0; whole.len()]] {
        fs::write(&path, torn).expect("torn");
        assert_eq!(ssot.message(message.id()).expect("read"), None);
        assert_eq!(ssot.log(&task(1)).expect("read"), []);
        assert_eq!(ssot.ensure_message(&message).expect("healed"), Ensured::Written);
        assert_eq!(fs::read(&path).expect("there"), whole);
    }
    fs::write(ssot.ack_path(message.id()), b"{\"ack_of\"").expect("torn");
    assert_eq!(ssot.ack(message.id()).expect("read"), None);
    assert_eq!(ssot.ensure_ack(&ack(&message, BEGAN)).expect("healed"), Ensured::Written);
    // JSON that is no message is not the work of a power cut, and is nobody's to overwrite.
    fs::write(&path, b"{\"mine\": true}").expect("written");
    assert!(matches!(ssot.ensure_message(&message), Err(SsotError::Conflict { .. })));
    assert!(matches!(ssot.message(message.id()), Err(SsotError::Damaged { .. })));
}

#[test]
fn a_message_under_another_ones_name_is_told() {
    let (_repo, ssot) = fresh();
    let message = dispatch(&task(1), BEGAN, "do it", vec![]);
    ssot.ensure_message(&message).expect("written");
    let other = MsgId::new(Kind::TaskDispatch, task(1), BEGAN + 1);
    fs::rename(ssot.message_path(message.id()), ssot.message_path(&other)).expect("moved");
    let error = ssot.message(&other).expect_err("another id");
    assert!(error.to_string().contains(message.id().as_str()), "{error}");
}

#[test]
fn escalations_are_open_until_they_are_acknowledged() {
    let (repo, ssot) = fresh();
    let messages: Vec<Message> = [3, 1, 2].map(|n| escalation(&task(n), BEGAN + u64::from(n), vec![])).into();
    for message in &messages {
        ssot.ensure_message(message).expect("written");
        ssot.ensure_message(&dispatch(message.task(), BEGAN, "do it", vec![])).expect("written");
    }
    let open = |ssot: &Ssot| -> Vec<u64> {
        ssot.open_escalations().expect("read").iter().map(|message| message.id().unix_ms() - BEGAN).collect()
    };
    assert_eq!(open(&ssot), [1, 2, 3]);
    ssot.ensure_ack(&ack(&messages[2], BEGAN + 10)).expect("written");
    assert_eq!(open(&ssot), [1, 3]);
    // A resume that makes all of it again opens nothing.
    messages.iter().for_each(|message| assert_eq!(ssot.ensure_message(message).expect("there"), Ensured::AlreadyThere));
    assert_eq!(open(&ssot), [1, 3]);

    // Of a writer that died between marker and message, or between ack and marker, nothing is told.
    let marker = |id: &MsgId| repo.path().join(".longshore/ssot/index/open").join(id.as_str());
    fs::write(marker(&MsgId::new(Kind::Escalation, task(9), BEGAN)), b"").expect("written");
    fs::write(marker(messages[2].id()), b"").expect("written");
    assert_eq!(open(&ssot), [1, 3]);
    // The message comes, then.
    ssot.ensure_message(&escalation(&task(9), BEGAN, vec![])).expect("written");
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
fn the_index_is_made_again() {
    let (repo, ssot) = fresh();
    let messages: Vec<Message> = [1, 2, 3].map(|n| escalation(&task(n), BEGAN, vec![])).into();
    messages.iter().for_each(|message| assert_eq!(ssot.ensure_message(message).expect("written"), Ensured::Written));
    ssot.ensure_ack(&ack(&messages[1], BEGAN)).expect("written");
    assert_eq!(ssot.reindex().expect("made"), 0);
    let open = repo.path().join(".longshore/ssot/index/open");
    fs::remove_file(open.join(messages[0].id().as_str())).expect("removed");
    fs::write(open.join(messages[1].id().as_str()), b"").expect("written");
    let problems: Vec<Weight> = index_problems(&ssot).iter().map(|problem| problem.weight).collect();
    assert_eq!(problems, [Weight::Error, Weight::Warning]);
    assert_eq!(ssot.reindex().expect("made"), 2);
    assert_eq!(index_problems(&ssot), []);
}

fn index_problems(ssot: &Ssot) -> Vec<Problem> {
    let mut problems = ssot.check(at(BEGAN)).expect("checked");
    problems.retain(|problem| problem.path.starts_with("index"));
    problems
}

#[test]
fn conversations_are_in_order() {
    let (_repo, ssot) = fresh();
    // The same millisecond, and ids whose order as text is another.
    let ms = 9_999_999_999;
    let said = [
        escalation(&task(2), ms + 1, vec![]),
        escalation(&task(1), ms, vec![]),
        dispatch(&task(1), ms, "do it", vec![]),
        dispatch(&task(1000), ms + 2, "do it", vec![]),
    ];
    for message in &said {
        ssot.ensure_message(message).expect("written");
        ssot.put_task(&task_file(message.task())).expect("written");
    }
    let all = |since| -> Vec<MsgId> {
        let log = ssot.log_all(since).expect("read");
        log.map(|entry| entry.expect("read").message.id().clone()).collect()
    };
    let expected: Vec<MsgId> = [2, 1, 0, 3].map(|n: usize| said[n].id().clone()).into();
    assert_eq!(all(None), expected);
    assert_eq!(all(Some(at(ms + 1))), expected[2..]);
    assert_eq!(ssot.ids_of(&task(1)).expect("read"), expected[..2]);
    let tasks: Vec<AssignmentId> = ssot.tasks().expect("read").into_iter().map(|task| task.task_id).collect();
    assert_eq!(tasks, [task(1), task(2), task(1000)]);
}

#[test]
fn reading_makes_nothing() {
    let repo = TempDir::new().expect("a folder");
    let ssot = Ssot::at(repo.path());
    assert_eq!(ssot.log(&task(1)).expect("read"), []);
    assert_eq!(ssot.tasks().expect("read"), []);
    assert_eq!(ssot.ids(None).expect("read"), []);
    assert_eq!(ssot.open_escalations().expect("read"), []);
    assert_eq!(ssot.decisions(&swarm()).expect("read"), []);
    assert_eq!(ssot.refused().expect("read"), []);
    assert_eq!(ssot.check(at(BEGAN)).expect("checked"), []);
    assert_eq!(fs::read_dir(repo.path()).expect("a folder").count(), 0);
}

#[test]
fn git_ignores_it_and_links_are_refused() {
    let (repo, _ssot) = fresh();
    assert_eq!(fs::read_to_string(repo.path().join(".longshore/.gitignore")).expect("there"), "*\n");
    assert!(fs::read_to_string(repo.path().join(".longshore/ssot/README.md")).expect("there").contains("AMP/1.0"));

    // A repo that brings its own `.longshore`, whose links lead out of it.
    for link in ["ssot", "ssot/messages", "ssot/messages/T-2026-001"] {
        let (repo, out) = (TempDir::new().expect("a folder"), TempDir::new().expect("a folder"));
        let link = repo.path().join(".longshore").join(link);
        fs::create_dir_all(link.parent().expect("below the repo")).expect("made");
        std::os::unix::fs::symlink(out.path(), &link).expect("linked");
        let written =
            Ssot::open(repo.path()).and_then(|ssot| ssot.ensure_message(&dispatch(&task(1), BEGAN, "do it", vec![])));
        assert!(matches!(written, Err(SsotError::NotFolder(path)) if path == link));
        assert_eq!(fs::read_dir(out.path()).expect("a folder").count(), 0, "{link:?}");
    }
}

#[test]
fn ids_cannot_lead_out_of_the_folder() {
    for name in ["escalation-../../x-5", "escalation-T-2026-1/../x-5", "task_dispatch-T-2026-001-5/..", "../x", ""] {
        assert!(name.parse::<MsgId>().is_err(), "{name}");
    }
    for name in ["T-2026-001/..", "../T-2026-001", "T-2026-001\0"] {
        assert!(name.parse::<AssignmentId>().is_err(), "{name}");
    }
    assert!(serde_json::from_str::<DecisionId>("\"../../x\"").is_err());
}

#[test]
fn a_torn_task_file_is_not_there() {
    let (repo, ssot) = fresh();
    ssot.put_task(&task_file(&task(1))).expect("written");
    let path = repo.path().join(".longshore/ssot/tasks/T-2026-001.json");
    let file: serde_json::Value = serde_json::from_slice(&fs::read(&path).expect("there")).expect("JSON");
    assert_eq!((&file["task_id"], &file["status"]), (&"T-2026-001".into(), &"running".into()));
    assert_eq!(file["stories"][0]["status"], "in_progress");
    fs::write(&path, b"{").expect("torn");
    assert_eq!(ssot.task(&task(1)).expect("read"), None);
    let mut newer = task_file(&task(1));
    newer.status = TaskStatus::Completed;
    ssot.put_task(&newer).expect("written");
    assert_eq!(ssot.task(&task(1)).expect("read"), Some(newer));
}

#[test]
fn words_of_a_status_are_those_in_the_file() {
    use TaskStatus as S;
    for status in [S::Pending, S::WaitingApproval, S::Running, S::InReview, S::Suspended] {
        assert_eq!(serde_json::to_value(status).expect("JSON"), status.word());
    }
    for status in [S::Locked, S::Completed, S::Failed, S::Aborted] {
        assert_eq!(serde_json::to_value(status).expect("JSON"), status.word());
    }
}

#[test]
fn refused_texts_are_kept_with_the_rule() {
    let (repo, ssot) = fresh();
    let violation =
        Violation { rule: "branch-protected", field: "payload.branch".to_owned(), problem: "is `main`".to_owned() };
    let long = format!("{{\"é\": \"{}\n\"}}", "x".repeat(5000));
    ssot.refuse(&long, &violation, at(BEGAN), "T-2026-001 attempt 1").expect("noted");
    ssot.refuse("second", &violation, at(BEGAN), "stdin").expect("noted");
    let file = repo.path().join(".longshore/ssot/errors/2026-11.ndjson");
    assert_eq!(fs::read_to_string(&file).expect("there").lines().count(), 2);
    // Half a line, as a power cut leaves it, does not swallow the next.
    let whole = fs::read(&file).expect("there");
    fs::write(&file, &whole[..whole.len() - 5]).expect("torn");
    ssot.refuse("third", &violation, at(BEGAN), "stdin").expect("noted");
    let refused = ssot.refused().expect("read");
    assert_eq!(refused.len(), 2);
    assert_eq!((refused[0].rule.as_str(), refused[0].field.as_str()), ("branch-protected", "payload.branch"));
    assert_eq!((refused[0].excerpt.chars().count(), refused[0].bytes), (1000, long.len() as u64));
    assert_eq!((refused[1].excerpt.as_str(), refused[1].from.as_str()), ("third", "stdin"));
}

/// A ratio, because times depend on the machine: the folder of a task with 1,000 neighbours costs what one alone costs.
#[test]
fn lookups_do_not_grow_with_the_ssot() {
    fn measure(ssot: &Ssot, id: &MsgId) -> Duration {
        let once = || {
            let began = Instant::now();
            for _ in 0..20 {
                assert!(ssot.message(id).expect("read").is_some());
                assert_eq!(ssot.log(id.task()).expect("read").len(), 10);
            }
            began.elapsed()
        };
        // The best of several: others use the machine too.
        (0..7).map(|_| once()).min().expect("seven")
    }
    let (_small, small) = fresh();
    let (_big, big) = fresh();
    let say = |ssot: &Ssot, number: u32| {
        for n in 0..10 {
            ssot.ensure_message(&dispatch(&task(number), BEGAN + n, "do it", vec![])).expect("written");
        }
    };
    (1..=2).for_each(|number| say(&small, number));
    (1..=400).for_each(|number| say(&big, number));
    let id = MsgId::new(Kind::TaskDispatch, task(2), BEGAN + 5);
    let (alone, among) = (measure(&small, &id), measure(&big, &id));
    // A scan would cost two hundred times as much.
    assert!(among < alone * 5, "{among:?} for 4,000 messages, {alone:?} for 20");
}

#[test]
fn a_full_disk_is_told() {
    let full = SsotError::io("write", Path::new("x"))(std::io::ErrorKind::StorageFull.into());
    assert!(full.disk_full());
    assert!(!SsotError::NoNumbers { year: 2026, count: 1 }.disk_full());
}

fn lay(ssot: &Ssot, path: PathBuf, value: &impl serde::Serialize) {
    fs::create_dir_all(path.parent().expect("below the SSOT")).expect("made");
    fs::write(&path, to_bytes(&path, value).expect("JSON")).expect("written");
    assert!(path.starts_with(ssot.folder()));
}
