//! The wall clock is stepped in the middle of a swarm. It is for people: no deadline, no verdict and no order hangs on it.
//!
//! libfaketime is put in front of the program, and gives it another wall clock as often as the test writes one to a file. What is
//! measured by the monotonic clock stays true, as it does where an administrator or NTP sets a clock.

use super::*;

/// How far the clock is stepped: further than any limit of the swarm.
const OFFSET: &str = "+3600";

/// The wall clock of the program.
struct FakeClock {
    library: PathBuf,
    offset: PathBuf,
}

impl FakeClock {
    fn new(scratch: &SwarmFixture) -> Self {
        let folders: Vec<PathBuf> =
            std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|it| it.path()).collect();
        let folders = folders.into_iter().chain(["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(PathBuf::from));
        let mut places = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1"));
        let library =
            places.find(|path| path.exists()).expect("libfaketime, which `scripts/setup.sh --tests` installs");
        let clock = Self { library, offset: scratch.folder.path().join("clock") };
        clock.set("+0");
        clock
    }

    /// From now on the program's wall clock is off by so many seconds.
    fn set(&self, offset: &str) {
        let next = self.offset.with_extension("next");
        std::fs::write(&next, format!("{offset}\n")).expect("written");
        std::fs::rename(&next, &self.offset).expect("whole or not at all");
    }

    fn start(&self, scratch: &SwarmFixture, args: &[&str]) -> RunningCommand {
        let environment = [
            ("LD_PRELOAD", &*self.library.to_string_lossy()),
            ("FAKETIME_TIMESTAMP_FILE", &*self.offset.to_string_lossy()),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("DONT_FAKE_MONOTONIC", "1"),
            ("NO_FAKE_STAT", "1"),
        ]
        .map(|(name, value)| (name, value.to_owned()));
        let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        scratch.start_with(args, &environment)
    }
}

/// The journal's records: the wall clock's times, and the swarm's own.
fn times(scratch: &SwarmFixture) -> Vec<(jiff::Timestamp, u64)> {
    let swarm = scratch.swarms().pop().expect("a swarm");
    let path = scratch.root().join(".longshore/swarms").join(swarm).join("journal.ndjson");
    let journal = std::fs::read_to_string(path).expect("a journal");
    let records = journal.lines().skip(1).map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    records
        .map(|record| {
            let at = as_text(&record["at"]).parse().expect("a time");
            (at, record["elapsedMs"].as_u64().expect("a number"))
        })
        .collect()
}

#[test]
fn a_stepped_clock_changes_no_verdict() {
    let scratch = SwarmFixture::new();
    let clock = FakeClock::new(&scratch);
    let waits = |number: usize| story(number, &format!("{WAIT_FOR_GO} echo run >> f{number}"));
    let stories = json!([waits(1), depending_on(waits(2), &[1]), depending_on(waits(3), &[2])]);
    let tasks = scratch.tasks("feat/clock", stories);
    let args = ["run", &tasks, "--max", "1", "--retries", "0", "--timeout", "60s", "--idle-timeout", "60s"];
    let running = clock.start(&scratch, &args);
    let next = |known: &[SandboxHandle]| {
        let fresh = |found: SandboxHandle| known.iter().all(|other| other.0 != found.0).then_some(found);
        eventually("the next sandbox runs", || fresh(scratch.sandboxes(1).remove(0)))
    };
    let first = next(&[]);
    clock.set(OFFSET);
    first.release();
    let second = next(&[first]);
    clock.set("-3600");
    second.release();
    let third = next(&[second]);
    running.signal("KILL");
    running.wait();
    // Two hours before what the journal has seen.
    let resumed = clock.start(&scratch, &["resume"]);
    third.release();
    let ran = resumed.wait().expect(0, &["3 landed"]);
    for word in ["timeout", "hung", "connection_lost", "trying again"] {
        assert!(!ran.err.contains(word), "{}", ran.err);
    }

    let state = scratch.state();
    state.expect(&["landed", "landed", "landed"]);
    assert_eq!(scratch.show("feat/clock", "f1"), "run");
    for number in [1, 2, 3] {
        assert_eq!(state.story(number)["attempts"], 1);
    }
    let times = times(&scratch);
    let hours = |a: jiff::Timestamp, b: jiff::Timestamp| b.duration_since(a).as_secs() / 3000;
    let steps: Vec<i64> = times.windows(2).map(|pair| hours(pair[0].0, pair[1].0)).filter(|step| *step != 0).collect();
    assert_eq!(steps, [1, -2], "the clock was stepped under the swarm");
    assert!(times.windows(2).all(|pair| pair[0].1 <= pair[1].1), "the swarm's own time never goes back: {times:?}");
    assert!(times.last().expect("records").1 < 120_000, "and knows of no hour: {times:?}");
    let in_order = |value: &Value| {
        let at = |name: &str| -> jiff::Timestamp { as_text(&value[name]).parse().expect("a time") };
        assert!(at("createdAt") <= at("updatedAt"), "{value:#}");
    };
    in_order(&state.0);
    state.0["containers"].as_array().expect("containers").iter().for_each(in_order);
    // What looks at ages finds a swarm of the future, and says nothing wrong of it.
    for args in [&["status"][..], &["salvage"], &["gc", "--dry-run"]] {
        clock.start(&scratch, args).wait().expect(0, &[]);
    }
    assert_eq!(scratch.engine_resources(), [""; 0]);
}
