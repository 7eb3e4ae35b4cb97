//! The program at work, what it gave, and the state file that it left.

use std::io::Read;
use std::process::{Child, ExitStatus};
use std::thread::JoinHandle;

use super::*;

/// The program at work; its output is read all the time. Killed when it is dropped.
pub struct RunningCommand {
    child: Child,
    out: Option<JoinHandle<Vec<u8>>>,
    err: Option<JoinHandle<Vec<u8>>>,
}

impl RunningCommand {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("longshore runs");
        fn drain(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                pipe.read_to_end(&mut bytes).expect("read");
                bytes
            })
        }
        let out = drain(child.stdout.take().expect("piped"));
        let err = drain(child.stderr.take().expect("piped"));
        Self { child, out: Some(out), err: Some(err) }
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().expect("kill runs");
        assert!(sent.success());
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    pub fn has_exited(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    #[track_caller]
    pub fn wait(mut self) -> CommandResult {
        let started_at = Instant::now();
        let status = loop {
            match self.child.try_wait().expect("a child") {
                Some(status) => break Some(status),
                None if started_at.elapsed() > TIMEOUT => break None,
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        if status.is_none() {
            let _ = self.child.kill();
        }
        let text = |thread: Option<JoinHandle<Vec<u8>>>| {
            let bytes = thread.expect("taken once").join().expect("read");
            String::from_utf8(bytes).expect("what longshore prints is UTF-8")
        };
        let (out, err) = (text(self.out.take()), text(self.err.take()));
        match status {
            Some(status) => CommandResult { status, out, err },
            None => panic!("longshore did not end within {TIMEOUT:?}\n{out}\n{err}"),
        }
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the program gave.
pub struct CommandResult {
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
}

impl CommandResult {
    /// Checks the exit code, and that each of these is in stdout or stderr.
    #[track_caller]
    pub fn expect(self, code: i32, wanted: &[&str]) -> Self {
        let all = format!("{}\n{}", self.out, self.err);
        assert_eq!(self.status.code(), Some(code), "{all}");
        for wanted in wanted {
            assert!(all.contains(wanted), "`{wanted}` is missing in\n{all}");
        }
        assert!(!all.contains("panicked") && !all.contains('\u{1b}'), "{all}");
        self
    }
}

/// `swarm-state.json`.
pub struct StateFile(pub Value);

impl StateFile {
    pub fn swarm(&self) -> &str {
        as_text(&self.0["swarmId"])
    }

    #[track_caller]
    pub fn story(&self, number: usize) -> &Value {
        let id = format!("US-{number:03}");
        let stories = self.0["stories"].as_array().expect("stories");
        stories.iter().find(|story| story["id"] == id.as_str()).unwrap_or_else(|| panic!("no {id} in {}", self.0))
    }

    /// `landed`, or the status and cause of each story: `failed timeout`.
    pub fn verdicts(&self) -> BTreeMap<String, String> {
        let verdict = |story: &Value| match (as_text(&story["status"]), story["cause"].as_str()) {
            ("completed", None) => "landed".to_owned(),
            (status, cause) => format!("{status} {}", cause.unwrap_or("-")),
        };
        let stories = self.0["stories"].as_array().expect("stories");
        stories.iter().map(|story| (as_text(&story["id"]).to_owned(), verdict(story))).collect()
    }

    /// Checks every story's verdict, from US-001 on.
    #[track_caller]
    pub fn expect(&self, wanted: &[&str]) -> &Self {
        let found: Vec<String> = self.verdicts().into_values().collect();
        assert_eq!(found, wanted, "{:#}", self.0);
        self
    }

    /// The ref that keeps what a story left.
    #[track_caller]
    pub fn salvage(&self, number: usize) -> &str {
        as_text(&self.story(number)["salvage"])
    }
}
