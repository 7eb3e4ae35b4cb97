//! `longshore mailbox`: the spec's own session between two programs, and what people see of it.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use longshore::protocol::mailbox::message::{MailboxDraft, MailboxMessageType, MessageRecipient};
use longshore::protocol::mailbox::roster::RosterEntry;
use longshore::protocol::mailbox::store::Mailbox;
use longshore::state::SwarmDir;

use super::{CliFixture, CliOutput};

impl CliFixture {
    fn mailbox(&self, me: &str, args: &[&str]) -> CliOutput {
        self.run(&[args, &["--dir", "amp", "--as", me]].concat())
    }

    /// Starts a command that runs for a while.
    fn begin(&self, args: &[&str]) -> Running {
        self.begin_with(args, Stdio::piped())
    }

    /// The same, with its output in a file.
    fn begin_into(&self, args: &[&str], file: &Path) -> Running {
        self.begin_with(args, std::fs::File::create(file).expect("a file").into())
    }

    fn begin_with(&self, args: &[&str], out: Stdio) -> Running {
        let mut command: Command = self.command(env!("CARGO_BIN_EXE_longshore"));
        let child = command.args(args).stdout(out).stderr(Stdio::piped()).spawn().expect("longshore runs");
        Running(Some(child))
    }
}

/// Killed when dropped.
struct Running(Option<Child>);

impl Running {
    fn end(mut self) -> CliOutput {
        CliOutput::of(&self.0.take().expect("it runs").wait_with_output().expect("it ends"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The session of the spec (Example: Two-Agent Brain Research Session): who sends what to whom, and about what.
const SESSION: [(&str, &str, &str, &str, &str); 9] = [
    ("alpha/001", "REQUEST", "bravo", "", "Set up your outbox, ACK when ready"),
    ("bravo/001", "ACK", "alpha", "alpha/001", "Ready. Awaiting instructions."),
    (
        "alpha/002",
        "REQUEST",
        "bravo",
        "",
        "Fix brain.py line 518 — add try/except around rank_bm25 import with graceful fallback",
    ),
    ("bravo/002", "STATUS", "alpha", "alpha/002", "Working on it..."),
    (
        "bravo/003",
        "RESPONSE",
        "alpha",
        "alpha/002",
        "Done. Added try/except, falls back to simple substring matching. Tested locally — passes.",
    ),
    ("alpha/003", "REQUEST", "bravo", "", "Also create RULE-006 for uv venv hygiene. Here's the content: [...]"),
    ("bravo/004", "RESPONSE", "alpha", "alpha/003", "RULE-006 written. INDEX-MASTER updated."),
    ("alpha/004", "DONE", "bravo", "", "All tasks complete. Signing off."),
    ("bravo/005", "DONE", "alpha", "", "Acknowledged. Signing off."),
];

/// One of the two agents: sends its own messages and waits for the other's. Returns what it read, in order.
fn take_part(world: &CliFixture, me: &str) -> Vec<serde_json::Value> {
    let mut read: Vec<serde_json::Value> = Vec::new();
    for (reference, kind, to, re, text) in SESSION {
        if reference.starts_with(me) {
            let about: &[&str] = if re.is_empty() { &[] } else { &["--re", re] };
            let args =
                [&["mailbox", "send", "--dir", "amp", "--as", me, "--to", to, "--type", kind], about, &["--", text]];
            assert_eq!(world.run(&args.concat()).expect(0, &[]).out, format!("{reference}\n"));
            continue;
        }
        // Two messages may arrive at once.
        while !read.iter().any(|message| message["ref"] == reference) {
            let output = world.mailbox(me, &["mailbox", "read", "--wait", "--timeout", "60", "--json"]).expect(0, &[]);
            read.extend(output.out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON")));
        }
    }
    read
}

/// Startup; Shutdown.
/// Example.
#[test]
fn the_specs_session_between_two_programs_message_by_message() {
    let world = CliFixture::without_repo();
    let (alpha, bravo) = std::thread::scope(|scope| {
        let bravo = scope.spawn(|| take_part(&world, "bravo"));
        (take_part(&world, "alpha"), bravo.join().expect("bravo ends"))
    });
    for (me, read) in [("alpha", alpha), ("bravo", bravo)] {
        let wanted: Vec<_> = SESSION.iter().filter(|(reference, ..)| !reference.starts_with(me)).collect();
        assert_eq!(read.len(), wanted.len(), "{me} read {read:?}");
        for (message, (reference, kind, to, re, text)) in read.iter().zip(wanted) {
            let re = if re.is_empty() { serde_json::Value::Null } else { (*re).into() };
            assert_eq!(
                [&message["ref"], &message["type"], &message["to"], &message["body"]],
                [*reference, *kind, *to, *text]
            );
            assert_eq!(message["re"], re);
        }
    }
    // The files are those of the spec, so other programs can read them.
    for (reference, kind, to, re, text) in SESSION {
        let file =
            std::fs::read_to_string(world.root().join("amp/agents").join(format!("{reference}.md"))).expect("a file");
        let (from, seq) = reference.split_once('/').expect("a reference");
        let time = file.split("<!-- timestamp: ").nth(1).and_then(|rest| rest.get(..19)).expect("a time");
        let re = if re.is_empty() { String::new() } else { format!("<!-- re: {re} -->\n") };
        let subject: String = text.chars().take(80).collect();
        assert_eq!(
            file,
            format!(
                "<!-- amp-version: 1 -->\n<!-- from: {from} -->\n<!-- to: {to} -->\n<!-- seq: {seq} -->\n<!-- type: {kind} -->\n\
                 <!-- timestamp: {time} -->\n{re}\n## Subject\n{}\n\n## Body\n{text}\n",
                subject.trim_end()
            )
        );
    }
    let roster = world.run(&["mailbox", "roster", "--dir", "amp", "--json"]).expect(0, &[]).out;
    assert_eq!(roster.matches("\"status\":\"done\"").count(), 2, "{roster}");
    assert!(!roster.contains("pending"), "everything was answered: {roster}");
    let output = world.mailbox("alpha", &["mailbox", "read", "--wait", "--from", "bravo"]);
    output.expect(1, &["bravo is gone (`done`) and has nothing more to say"]);
    let log = world
        .run(&["mailbox", "log", "--dir", "amp"])
        .expect(0, &["alpha/001  REQUEST   -> bravo  Set up your outbox"]);
    assert_eq!(log.out.lines().count(), 9);
}

#[test]
fn commands_use_the_newest_swarm_by_default() {
    let world = CliFixture::new();
    world.run(&["mailbox", "log"]).expect(2, &["no swarms found in"]);
    let swarm: SwarmDir = world.swarm();
    world.run(&["mailbox", "log"]).expect(2, &["swarm a1b2c3d4 has no mailbox", "--mailbox"]);
    let dir = swarm.path().join("mailbox");
    let mailbox = Mailbox::create(&dir).expect("created");
    let row = RosterEntry::new("us-001".parse().expect("an id"), "coder", None, jiff::Timestamp::now());
    mailbox.register(&row).expect("registered");
    world.run(&["mailbox", "log"]).expect(0, &["the mailbox has no messages"]);
    let sent = world.run(&["mailbox", "send", "--to", "us-001", "Please hurry"]).expect(0, &[]);
    assert_eq!(sent.out, "host/001\n");
    assert_eq!(mailbox.roster().expect("a roster").entries(), [row], "the roster is the swarm's business");
    assert!(swarm.path().join("mailbox-read/host/sent/001.md").is_file());
    world.run(&["mailbox", "roster"]).expect(0, &["host/001 waits for a reply from us-001, 0 min: Please hurry"]);
    world.run(&["mailbox", "log", "--swarm", "a1b2"]).expect(0, &["host/001  REQUEST   -> us-001  Please hurry"]);
    world.run(&["mailbox", "log", "nobody"]).expect(0, &[]);
    world.run(&["mailbox", "read", "host/001", "--as", "us-001"]).expect(0, &["## Body\nPlease hurry"]);
    world.run(&["mailbox", "read", "host/009"]).expect(2, &["there is no message host/009"]);
    world.run(&["mailbox", "read"]).expect(0, &["no new messages"]);
    let waited = world.run(&["mailbox", "read", "--wait", "--timeout", "1"]);
    waited.expect(1, &["no message within 1 s"]);
}

#[test]
fn the_host_cannot_act_as_a_sandbox_and_is_warned_when_the_swarm_has_ended() {
    let world = CliFixture::new();
    let swarm: SwarmDir = world.swarm();
    let mailbox = Mailbox::create(&swarm.path().join("mailbox")).expect("made");
    for agent in ["alpha", "Walter"] {
        let row = RosterEntry::new(agent.parse().expect("an id"), "r", None, jiff::Timestamp::now());
        mailbox.register(&row).expect("registered");
    }
    let stands = |over: bool| {
        let text = format!(r#"{{"sandboxes":["alpha","alpha-reviewer"],"over":{over}}}"#);
        std::fs::write(swarm.path().join("mailbox-standing.json"), text).expect("written");
    };
    stands(false);
    let send = |me: &str, to: &str| world.run(&["mailbox", "send", "--as", me, "--to", to, "x"]);
    for me in ["alpha", "ALPHA", "alpha-reviewer"] {
        send(me, "*").expect(2, &["is the agent of a sandbox", "--as ID"]);
        world.run(&["mailbox", "read", "--as", me]).expect(2, &["is the agent of a sandbox"]);
        // Reading along is allowed.
        world.run(&["mailbox", "read", "--all", "--as", me]).expect(0, &[]);
    }
    send("walter", "*").expect(2, &["too similar to `Walter`"]);
    assert!(!mailbox.root().join("agents/ALPHA").exists() && !mailbox.root().join("agents/walter").exists());
    let output = send("Walter", "*").expect(0, &[]);
    assert!(!output.err.contains("ended"), "{}", output.err);
    stands(true);
    for to in ["*", "alpha"] {
        send("Walter", to).expect(0, &["the swarm has ended: its agents will not read this message"]);
    }
}

#[test]
fn the_log_has_the_order_of_the_conversation_whatever_the_clocks_say() {
    let world = CliFixture::without_repo();
    let mailbox = Mailbox::create(&world.root().join("amp")).expect("made");
    // All within one second: replies determine the order, and otherwise the times of the files.
    let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).expect("a time");
    let say = |from: &str, re: Option<&str>, after: u64| {
        let draft = MailboxDraft::new(MessageRecipient::Broadcast, MailboxMessageType::Status, "s", "b");
        let draft = MailboxDraft { re: re.map(|re| re.parse().expect("a reference")), ..draft };
        let from = from.parse().expect("an id");
        let sent = mailbox.send(&from, &draft, None, now).expect("sent").swap_remove(0);
        let file = mailbox.root().join(format!("agents/{}.md", sent.reference()));
        let time = std::time::SystemTime::from(now) + Duration::from_millis(after);
        std::fs::File::options().write(true).open(file).expect("open").set_modified(time).expect("set");
    };
    say("bravo", None, 900);
    say("alpha", Some("bravo/001"), 100);
    say("bravo", Some("alpha/001"), 950);
    say("zulu", None, 300);
    say("charlie", None, 400);
    let wanted = ["zulu/001", "charlie/001", "bravo/001", "alpha/001", "bravo/002"];
    let order = |output: CliOutput| -> Vec<String> {
        output.out.lines().filter_map(|line| line.split_whitespace().nth(1).map(str::to_owned)).collect()
    };
    // The file of alpha/001 is the oldest, and pulls up the message that it answers.
    let pulled = ["bravo/001", "alpha/001", "zulu/001", "charlie/001", "bravo/002"];
    assert_eq!(order(world.run(&["mailbox", "log", "--dir", "amp"]).expect(0, &[])), pulled);
    let file = mailbox.root().join("agents/alpha/001.md");
    let late = std::time::SystemTime::from(now) + Duration::from_secs(100);
    std::fs::File::options().write(true).open(file).expect("open").set_modified(late).expect("set");
    assert_eq!(order(world.run(&["mailbox", "log", "--dir", "amp"]).expect(0, &[])), wanted);
    let read = world.mailbox("host", &["mailbox", "read", "--all", "--json"]).expect(0, &[]).out;
    let place = |reference: &str| read.find(&format!("\"ref\":\"{reference}\"")).expect("it is there");
    assert!(place("bravo/001") < place("alpha/001") && place("alpha/001") < place("bravo/002"), "{read}");
}

#[test]
fn usage_errors_are_reported() {
    let world = CliFixture::without_repo();
    world.run(&["mailbox", "log", "--dir", "nowhere"]).expect(2, &["there is no directory", "nowhere"]);
    world.run(&["mailbox", "log", "--dir", "."]).expect(2, &["there is no mailbox in"]);
    world.mailbox("alpha", &["mailbox", "send", "hello"]).expect(2, &["the recipient is missing", "--to ID"]);
    world.mailbox("alpha", &["mailbox", "send", "--to", "*"]).expect(2, &["neither a subject nor a body"]);
    world.mailbox("../x", &["mailbox", "read"]).expect(2, &["an agent id must be"]);
    world.mailbox("alpha", &["mailbox", "send", "--to", "*", "--type", "SHOUT", "x"]).expect(2, &["REQUEST, RESPONSE"]);
    world.mailbox("alpha", &["mailbox", "read", "--all", "--wait"]).expect(2, &["cannot be used with"]);
    world.mailbox("alpha", &["mailbox", "read"]).expect(0, &["no new messages"]);
    world.mailbox("Alpha", &["mailbox", "read"]).expect(2, &["too similar to `alpha`", "--as ID"]);
}

#[test]
fn watch_prints_messages_as_they_are_sent() {
    let world = CliFixture::without_repo();
    let send = |me: &str, args: &[&str]| world.mailbox(me, &[&["mailbox", "send"], args].concat()).expect(0, &[]).out;
    send("alpha", &["--to", "bravo", "before"]);
    let watched = world.root().join("watched");
    let watching = world.begin_into(&["mailbox", "watch", "--dir", "amp"], &watched);
    let all = world.begin(&["mailbox", "watch", "--all", "--full", "--dir", "amp"]);
    // Messages that are sent before the watch begins are not printed: sends some until it has begun.
    let started_at = Instant::now();
    while std::fs::metadata(&watched).expect("a file").len() == 0 {
        assert!(started_at.elapsed() < Duration::from_secs(60), "nothing is printed");
        send("alpha", &["--to", "bravo", "--type", "STATUS", "begins"]);
    }
    let started_at = Instant::now();
    let mut sent = vec![
        send("bravo", &["--to", "*", "--type", "STATUS", "one\u{1b}[2J"]),
        send("alpha", &["--to", "*", "--type", "STATUS", "two"]),
    ];
    sent.extend(["alpha", "bravo"].map(|me| send(me, &["--type", "DONE", "bye"])));
    watching.end().expect(0, &["bravo is active", "alpha is done", "all agents are gone"]);
    assert!(started_at.elapsed() < Duration::from_secs(30));
    let printed = std::fs::read_to_string(watched).expect("a file");
    let references: Vec<&str> = printed.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    let sent: Vec<&str> = sent.iter().map(|line| line.trim_end()).collect();
    assert!(references.ends_with(&sent) && !references.contains(&"alpha/001"), "{printed}");
    all.end().expect(0, &["==== alpha/001\n<!-- amp-version: 1 -->", "## Body\nbefore", "## Body\none[2J\n"]);
}
