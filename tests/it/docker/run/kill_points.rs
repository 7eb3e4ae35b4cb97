//! Death of the orchestrator at every boundary between two records of a journal: right after a record is on the disk and before
//! anything that follows from it, and with half of it on the disk, when all is done that follows from the one before. Then
//! `resume`: every story has landed exactly once, no story's command has run a second time, nothing is left.
//!
//! What ran is counted from the engine's own events: how many containers it started for each story.

#![expect(clippy::print_stderr, reason = "the table of boundaries is what this shows")]

use std::collections::BTreeSet;
use std::io::BufRead;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Child;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::*;

const KILL_POINT: &str = "LONGSHORE_TEST_DIE_AT_RECORD";
const BRANCH: &str = "feat/boundary";
/// Swarms at work at a time: each waits for the disk and the engine as much as for a processor.
const PARALLEL_SWARMS: usize = 3;

/// One story that another one builds upon, and one whose first attempt does not pass its check.
fn stories() -> Value {
    let ran =
        |number: usize, command: &str| story(number, &format!("echo \"it runs: $LONGSHORE_ATTEMPT\" >&2; {command}"));
    json!([
        ran(1, "echo $LONGSHORE_ATTEMPT >> one"),
        with_fields(ran(2, "echo $LONGSHORE_ATTEMPT >> two"), json!({ "verify": ["grep -q 2 two"] })),
        depending_on(ran(3, "cat one one > three; echo $LONGSHORE_ATTEMPT >> three"), &[1]),
    ])
}

/// What a swarm comes to that nobody disturbs, and has to come to if somebody does.
#[derive(Debug, PartialEq, Eq)]
struct SwarmOutcome {
    verdicts: Vec<String>,
    tree: String,
    history: BTreeSet<String>,
    refs: Vec<String>,
}

fn swarm_outcome(scratch: &SwarmFixture) -> SwarmOutcome {
    let state = scratch.state();
    let history = scratch.git(&["log", "--format=%s", &format!("main..{BRANCH}")]);
    let lines: Vec<&str> = history.lines().collect();
    let mut history: BTreeSet<String> = lines.iter().map(|&line| line.to_owned()).collect();
    assert_eq!(history.len(), lines.len(), "something is there twice: {lines:?}");
    // Which of them needs no merge commit depends on which is the first.
    history.retain(|line| !line.starts_with("Merge "));
    let refs = scratch.refs().into_iter().map(|name| name.replace(state.swarm(), "SWARM")).collect();
    SwarmOutcome {
        verdicts: state.verdicts().into_iter().map(|(id, verdict)| format!("{id} {verdict}")).collect(),
        tree: scratch.git(&["rev-parse", &format!("{BRANCH}^{{tree}}")]),
        history,
        refs,
    }
}

/// The engine's word on which sandboxes it started.
struct ContainerEvents {
    child: Child,
    lines: Arc<Mutex<Vec<Value>>>,
}

impl ContainerEvents {
    fn new() -> Self {
        let mut child = Command::new("docker")
            .args(["events", "--filter", "type=container", "--filter", &format!("label={}", label::SWARM)])
            .args(["--format", "{{json .}}"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the docker client runs");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (seen, output) = (Arc::clone(&lines), child.stdout.take().expect("piped"));
        std::thread::spawn(move || {
            for line in std::io::BufReader::new(output).lines().map_while(Result::ok) {
                let event = serde_json::from_str(&line).expect("the engine's events are JSON");
                seen.lock().expect("no panic holds it").push(event);
            }
        });
        let watch = Self { child, lines };
        watch.catch_up();
        watch
    }

    /// Waits until all is seen that has happened: something that it does itself, the last thing there is, is seen.
    fn catch_up(&self) {
        let mark = uuid::Uuid::new_v4().to_string();
        eventually("the engine tells its events", || {
            let name = format!("longshore-test-mark-{}", uuid::Uuid::new_v4());
            let labels = format!("{}={mark}", label::SWARM);
            docker(&["create", "--name", &name, "--label", &labels, "longshore/sandbox:latest", "true"]).expect("made");
            docker(&["rm", &name]).expect("removed");
            let started_at = Instant::now();
            while started_at.elapsed() < Duration::from_secs(2) {
                if self.attributes_of(&mark, "destroy").next().is_some() {
                    return Some(());
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            None
        });
    }

    /// The attributes of a swarm's containers to which this happened.
    fn attributes_of(&self, swarm: &str, what: &str) -> impl Iterator<Item = Value> {
        let lines = self.lines.lock().expect("no panic holds it");
        let found = lines.iter().filter(|event| event["Action"] == what);
        let attributes = found.map(|event| &event["Actor"]["Attributes"]).filter(|it| it[label::SWARM] == swarm);
        attributes.cloned().collect::<Vec<_>>().into_iter()
    }

    /// How many sandboxes were started for each attempt of each story.
    fn starts(&self, swarm: &str) -> BTreeMap<String, usize> {
        let mut starts = BTreeMap::new();
        for it in self.attributes_of(swarm, "start").filter(|it| it[label::ROLE] == "sandbox") {
            *starts.entry(format!("{} {}", as_text(&it[label::STORY]), as_text(&it[label::ATTEMPT]))).or_default() += 1;
        }
        starts
    }
}

impl Drop for ContainerEvents {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Shows the journal of a swarm that did not come to what it should.
struct JournalOnPanic<'a>(&'a SwarmFixture);

impl Drop for JournalOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", std::fs::read_to_string(self.0.journal()).unwrap_or_default());
        }
    }
}

/// A swarm whose orchestrator dies at these places, one life after the other, and then may live. Gives the swarm, and whether it
/// died as often as that: a journal may be too short for it.
fn run_with_kills(places: &[String], whole: &SwarmOutcome) -> (String, bool) {
    let scratch = SwarmFixture::new();
    let _told = JournalOnPanic(&scratch);
    let tasks = scratch.tasks(BRANCH, stories());
    let mut died = 0;
    for place in places {
        let args = if died == 0 { run_args(&tasks) } else { vec!["resume"] };
        let ran = scratch.start_with(&args, &[(KILL_POINT, place)]).wait();
        if ran.status.code().is_some() {
            ran.expect(0, &["3 landed"]);
            break;
        }
        died += 1;
        let journal = std::fs::read(scratch.journal()).expect("a journal");
        assert_eq!(place.ends_with('-'), !journal.ends_with(b"\n"), "it died somewhere else");
        let records = journal.iter().filter(|byte| **byte == b'\n').count();
        let (at, torn) = place.strip_suffix('-').map_or((place.as_str(), 0), |at| (at, 1));
        assert_eq!(records + torn - 1, at.parse::<usize>().expect("a number"), "it died somewhere else");
    }
    if died == places.len() {
        let resumed = scratch.longshore(&["resume"]).expect(0, &[]);
        if resumed.err.contains("nothing to resume") {
            // The last record was on the disk: all that is left to do is what `gc` does.
            scratch.longshore(&["gc"]).expect(0, &[]);
        } else {
            resumed.expect(0, &["3 landed"]);
        }
    }
    assert_eq!(&swarm_outcome(&scratch), whole);
    assert_eq!(scratch.engine_resources(), [""; 0]);
    scratch.git(&["fsck", "--strict"]);
    for log in all_files(&scratch.latest().join("logs")) {
        let log = std::fs::read_to_string(log).expect("text");
        // Whoever takes a sandbox up again has its output from the beginning, and says so.
        for part in log.split("from its beginning") {
            for attempt in 1..=2 {
                let runs = part.matches(&format!("it runs: {attempt}")).count();
                assert!(runs <= 1, "attempt {attempt} ran {runs} times in\n{log}");
            }
        }
    }
    (scratch.swarms().pop().expect("a swarm"), died == places.len())
}

fn run_args(tasks: &str) -> Vec<&str> {
    vec!["run", tasks, "--max", "2", "--retries", "1", "--grace", "1s"]
}

impl SwarmFixture {
    /// The journal of the only swarm.
    fn journal(&self) -> PathBuf {
        let swarm = self.swarms().pop().expect("a swarm");
        self.root().join(".longshore/swarms").join(swarm).join("journal.ndjson")
    }
}

/// Goes through swarms with their deaths, several at a time, until `places` has no more or a journal ends before a death.
fn kill_at_each(places: impl Fn(u64) -> Option<Vec<String>> + Sync) -> usize {
    let watch = ContainerEvents::new();
    let undisturbed = SwarmFixture::new();
    let tasks = undisturbed.tasks(BRANCH, stories());
    undisturbed.longshore(&run_args(&tasks)).expect(0, &["3 landed"]);
    let whole = swarm_outcome(&undisturbed);
    assert_eq!(whole.verdicts, ["US-001 landed", "US-002 landed", "US-003 landed"]);
    assert_eq!(undisturbed.show(BRANCH, "two"), "2");
    let swarm = undisturbed.swarms().pop().expect("a swarm");
    drop(undisturbed);

    let (next, end) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let rows = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL_SWARMS {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::SeqCst);
                    if index >= end.load(Ordering::SeqCst) {
                        return;
                    }
                    let Some(deaths) = places(index) else { return };
                    let started_at = Instant::now();
                    let lived = catch_unwind(AssertUnwindSafe(|| run_with_kills(&deaths, &whole)));
                    if let Ok((_, false)) = lived {
                        end.fetch_min(index, Ordering::SeqCst);
                    }
                    rows.lock().expect("no panic holds it").insert(index, (deaths, started_at.elapsed(), lived));
                }
            });
        }
    });
    watch.catch_up();
    let once = watch.starts(&swarm);
    let rows = rows.into_inner().expect("no panic held it");
    let (mut failed, mut boundaries) = (Vec::new(), 0);
    for (deaths, took, lived) in rows.values() {
        let deaths = deaths.join(", then ");
        let seconds = took.as_secs_f64();
        match lived {
            Ok((swarm, died)) => {
                let starts = watch.starts(swarm);
                let word = match (starts == once, died) {
                    (false, _) => "STARTED TWICE",
                    (true, true) => "as undisturbed",
                    (true, false) => "as undisturbed (the journal ended before)",
                };
                eprintln!("death at {deaths:<16} {seconds:>5.1} s  sandboxes started {starts:?}  {word}");
                boundaries += usize::from(*died);
                if starts != once {
                    failed.push(format!("{deaths}: the engine started {starts:?} and not {once:?}"));
                }
            }
            Err(panic) => {
                eprintln!("death at {deaths:<16} {seconds:>5.1} s  FAILED");
                let message = panic.downcast_ref::<String>().cloned();
                let message = message.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                failed.push(format!("{deaths}: {}", message.unwrap_or_default()));
            }
        }
    }
    eprintln!("{boundaries} boundaries; undisturbed, sandboxes started: {once:?}");
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    assert_eq!(once.values().sum::<usize>(), 4, "{once:?}");
    boundaries
}

/// A bound on the records of such a small swarm.
const MAX_RECORDS: u64 = 200;

#[test]
fn resume_continues_after_a_kill_at_any_record() {
    let boundaries = kill_at_each(|index| (index < MAX_RECORDS).then(|| vec![index.to_string()]));
    assert!(boundaries >= 2 * RECORDS_BETWEEN_KILLS as usize, "{boundaries}");
}

/// How far apart the deaths of one swarm are below.
const RECORDS_BETWEEN_KILLS: u64 = 12;

/// And dies again within another, while what the first death left is taken up, and again.
#[test]
fn resume_continues_after_kills_within_records_of_run_and_resume() {
    let deaths = |first: u64| {
        [first, first + RECORDS_BETWEEN_KILLS, first + 2 * RECORDS_BETWEEN_KILLS]
            .map(|record| format!("{record}-"))
            .to_vec()
    };
    let swarms = kill_at_each(|index| (index < RECORDS_BETWEEN_KILLS).then(|| deaths(index + 1)));
    assert_eq!(swarms, RECORDS_BETWEEN_KILLS as usize, "every death has come");
}
