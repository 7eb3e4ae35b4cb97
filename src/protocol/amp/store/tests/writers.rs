//! Several writers at once: threads with a value of their own, and processes.

use std::collections::BTreeSet;
use std::env;
use std::process::Command;
use std::sync::Barrier;
use std::thread;

use super::*;
use crate::ids::StoryKey;

/// Says to a process that it is the second one, and where.
const WRITER_REPO_ENV: &str = "LONGSHORE_TEST_SSOT_WRITER";

fn run_concurrently<T: Send>(writers: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let barrier = Barrier::new(writers);
    let (barrier, work) = (&barrier, &work);
    thread::scope(|scope| {
        let run = |n| {
            scope.spawn(move || {
                barrier.wait();
                work(n)
            })
        };
        let threads: Vec<_> = (0..writers).map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

#[test]
fn exactly_one_of_many_writers_of_an_id_wins() {
    let (repo, ssot) = new_ssot();
    for round in 0..50 {
        let results = run_concurrently(4, |n| {
            let other = Ssot::open(repo.path()).expect("opened");
            let message = dispatch(&task(1), START_MS + round, &format!("writer {}", n % 2), vec![]);
            (n % 2, other.ensure_message(&message))
        });
        let won: Vec<usize> = results
            .iter()
            .filter(|(_, result)| matches!(result, Ok(EnsureOutcome::Written)))
            .map(|(n, _)| *n)
            .collect();
        let [won] = won[..] else { panic!("{results:?}") };
        for (n, result) in &results {
            match result {
                Ok(_) => assert_eq!(*n, won),
                Err(error) => assert!(*n != won && matches!(error, SsotError::Conflict { .. }), "{error}"),
            }
        }
        let there = ssot.message(&MsgId::new(AmpMessageType::TaskDispatch, task(1), START_MS + round)).expect("read");
        let Some(Payload::TaskDispatch(payload)) = there.as_ref().map(AmpMessage::payload) else { panic!("{there:?}") };
        assert_eq!(payload.description, format!("writer {won}"));
    }
    assert_eq!(fs::read_dir(ssot.dir().join("tmp")).expect("a folder").count(), 0, "nothing is left aside");
}

#[test]
fn concurrent_writers_repair_a_torn_file_once() {
    let (repo, ssot) = new_ssot();
    for round in 0..30 {
        let message = dispatch(&task(1), START_MS + round, "do it", vec![]);
        ssot.ensure_message(&message).expect("written");
        fs::write(ssot.message_path(message.id()), b"").expect("torn");
        let results =
            run_concurrently(3, |_| Ssot::open_read_only(repo.path()).ensure_message(&message).expect("healed"));
        assert_eq!(results.iter().filter(|ensured| **ensured == EnsureOutcome::Written).count(), 1);
        assert_eq!(ssot.message(message.id()).expect("read"), Some(message));
    }
}

/// Both write the same messages and some of their own, ask for numbers, and decide.
fn second_writer(repo: &Path, own: u32) -> BTreeSet<u32> {
    let ssot = Ssot::open(repo).expect("opened");
    let mut numbers = BTreeSet::new();
    for n in 0..100_u64 {
        ssot.ensure_message(&dispatch(&task(1), START_MS + n, "do it", vec![])).expect("the same by both");
        ssot.ensure_message(&escalation(&task(own), START_MS + n, vec![])).expect("its own");
        let first = ssot.allocate_task_numbers(2026, 3).expect("numbers");
        assert!((first..first + 3).all(|number| numbers.insert(number)));
        ssot.record_decision(&decision(DecisionId::random())).expect("decided");
    }
    numbers
}

#[test]
fn two_processes_write_at_once() {
    if let Some(repo) = env::var_os(WRITER_REPO_ENV) {
        let numbers = second_writer(Path::new(&repo), 3);
        fs::write(Path::new(&repo).join("numbers"), serde_json::to_string(&numbers).expect("JSON")).expect("written");
        return;
    }
    let (repo, ssot) = new_ssot();
    let mut second = Command::new(env::current_exe().expect("this program"))
        .args(["--exact", "protocol::amp::store::tests::writers::two_processes_write_at_once"])
        .env(WRITER_REPO_ENV, repo.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("started");
    let mine = second_writer(repo.path(), 2);
    assert!(second.wait().expect("ended").success());
    let text = fs::read(repo.path().join("numbers")).expect("the second one's numbers");
    let theirs: BTreeSet<u32> = serde_json::from_slice(&text).expect("JSON");
    assert_eq!((mine.len(), theirs.len()), (300, 300));
    assert!(mine.is_disjoint(&theirs));
    assert_eq!(ssot.message_ids(None).expect("read").len(), 300);
    assert_eq!(ssot.open_escalations().expect("read").len(), 200);
    assert_eq!(ssot.decisions(&swarm()).expect("read").len(), 200);
}

#[test]
fn task_numbers_are_allocated_once() {
    let (repo, ssot) = new_ssot();
    assert_eq!(ssot.allocate_task_numbers(2026, 4).expect("numbers"), 1);
    assert_eq!(ssot.allocate_task_numbers(2026, 1).expect("numbers"), 5);
    assert_eq!(ssot.allocate_task_numbers(2027, 2).expect("another year"), 1);
    let mut given: Vec<u32> = run_concurrently(8, |n| {
        let other = Ssot::open_read_only(repo.path());
        (0..10)
            .map(|_| other.allocate_task_numbers(2026, n as u32 + 1).expect("numbers"))
            .map(move |first| (first, n as u32 + 1))
            .collect::<Vec<_>>()
    })
    .into_iter()
    .flatten()
    .flat_map(|(first, count)| first..first + count)
    .collect();
    given.sort_unstable();
    assert_eq!(given, (6..6 + 360).collect::<Vec<u32>>(), "no hole, and none twice");
}

#[test]
fn lost_number_files_are_recovered_from_used_ids() {
    let (repo, ssot) = new_ssot();
    ssot.allocate_task_numbers(2026, 40).expect("numbers");
    ssot.ensure_message(&dispatch(&task(12), START_MS, "do it", vec![])).expect("written");
    ssot.write_task_file(&task_file(&task(7))).expect("written");
    let file = repo.path().join(".longshore/ssot/numbers/2026");
    for lost in [&b""[..], b"x", b"2\n", b"\0\0\0"] {
        fs::write(&file, lost).expect("written");
        assert_eq!(ssot.allocate_task_numbers(2026, 1).expect("numbers"), 13);
    }
    assert_eq!(fs::read_to_string(&file).expect("there"), "14\n");
    fs::write(&file, "999999999\n").expect("written");
    assert!(matches!(
        ssot.allocate_task_numbers(2026, 2),
        Err(SsotError::TaskNumbersExhausted { year: 2026, count: 2 })
    ));
    assert_eq!(ssot.allocate_task_numbers(2026, 1).expect("the last one"), 999_999_999);
    assert!(matches!(ssot.allocate_task_numbers(2026, 1), Err(SsotError::TaskNumbersExhausted { .. })));
}

fn decision(id: DecisionId) -> AdminDecision {
    AdminDecision {
        id,
        swarm: swarm(),
        target: DecisionTarget::Task(task(1)),
        action: AdminAction::Answer { text: "use the other API".to_owned() },
        at: at(START_MS),
        by: "someone".to_owned(),
    }
}

#[test]
fn decisions_are_stored_in_order_and_once() {
    let (_repo, ssot) = new_ssot();
    let mut made = Vec::new();
    let story = StoryKey { file: 1, id: "US-003".parse().expect("a story") };
    let targets = [
        DecisionTarget::Task(task(1)),
        DecisionTarget::Story(story),
        DecisionTarget::Escalation(MsgId::new(AmpMessageType::Escalation, task(1), 5)),
    ];
    use AdminAction as A;
    for (n, action) in [A::Approve, A::Resume, A::Retry, A::Abort, A::Rollback].into_iter().enumerate() {
        let target = targets[n % 3].clone();
        made.push(AdminDecision { action, target, ..decision(DecisionId::random()) });
    }
    for decision in &made {
        assert_eq!(ssot.record_decision(decision).expect("kept"), EnsureOutcome::Written);
    }
    assert_eq!(ssot.record_decision(&made[2]).expect("there"), EnsureOutcome::AlreadyThere);
    assert_eq!(ssot.decisions(&swarm()).expect("read"), made);
    assert_eq!(ssot.decisions(&SwarmId::random()).expect("read"), []);
    let other = AdminDecision { action: A::Abort, ..made[2].clone() };
    assert!(matches!(ssot.record_decision(&other), Err(SsotError::Conflict { .. })));
    assert_eq!(ssot.decisions(&swarm()).expect("read"), made);
}
