//! `acp-shim mail`, command by command, in a real directory.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::error::{EXIT_FAILED, EXIT_GONE, EXIT_TIMEOUT};
use super::*;
use crate::protocol::mailbox::roster::{AgentStatus, RosterEntry};
use crate::protocol::mailbox::store::Mailbox;

struct MailboxFixture {
    dir: tempfile::TempDir,
}

struct MailOutput {
    code: u8,
    out: String,
    err: String,
}

impl MailboxFixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mailbox = Mailbox::create(&dir.path().join("amp")).expect("created");
        for agent in ["alpha", "bravo"] {
            let row = RosterEntry::new(agent.parse().expect("an id"), "coder", None, jiff::Timestamp::now());
            mailbox.register(&row).expect("registered");
        }
        Self { dir }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("amp")
    }

    fn run_with(&self, agent: &str, args: &[&str], input: &[u8]) -> MailOutput {
        self.run_with_more_stories(agent, args, input, false)
    }

    fn run_with_more_stories(&self, agent: &str, args: &[&str], mut input: &[u8], more: bool) -> MailOutput {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let env = MailEnvironment {
            mailbox: Some(self.root()),
            agent: Some(agent.into()),
            has_more_stories: more,
            socket: Some(self.dir.path().join(agent).join("shim.sock").into()),
            input: &mut input,
            out: &mut out,
            err: &mut err,
        };
        let code = run(&args, env);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        MailOutput { code, out: text(out), err: text(err) }
    }

    fn run(&self, agent: &str, args: &[&str]) -> MailOutput {
        self.run_with(agent, args, b"")
    }

    /// The output of a command that succeeds.
    fn run_ok(&self, agent: &str, args: &[&str]) -> String {
        let output = self.run(agent, args);
        assert_eq!((output.code, output.err.as_str()), (EXIT_OK, ""), "{args:?}");
        output.out
    }

    /// How long it takes until alpha, who waits for bravo, notices bravo's message. An earlier message of charlie is printed, and
    /// does not end the wait.
    fn wait_delay(&self) -> Duration {
        std::thread::scope(|scope| {
            let waiting =
                scope.spawn(|| (self.run("alpha", &["wait", "--from", "bravo", "--timeout", "60"]), Instant::now()));
            std::thread::sleep(Duration::from_millis(300));
            let charlie = self.run("charlie", &["send", "--to", "alpha", "--type", "STATUS", "early"]);
            assert_eq!(charlie.code, EXIT_OK);
            std::thread::sleep(Duration::from_millis(300));
            self.run_ok("bravo", &["send", "--to", "alpha", "--type", "STATUS", "here"]);
            let sent = Instant::now();
            let (output, ended) = waiting.join().expect("the wait ends");
            assert_eq!(output.code, EXIT_OK, "{}", output.err);
            let (early, here) = (output.out.find("early"), output.out.find("here"));
            assert!(early.is_some() && early < here, "{}", output.out);
            ended.saturating_duration_since(sent)
        })
    }

    fn set_status(&self, agent: &str, status: &AgentStatus) {
        let mailbox = Mailbox::open(&self.root()).expect("a mailbox");
        mailbox.set_status(&agent.parse().expect("an id"), status).expect("changed");
    }
}

#[test]
fn done_is_sent_as_status_while_stories_remain() {
    let fixture = MailboxFixture::new();
    let sent = fixture.run_with_more_stories("bravo", &["send", "--type", "DONE", "the first is done"], b"", true);
    assert_eq!((sent.code, sent.out.as_str()), (EXIT_OK, "bravo/001\n"), "{}", sent.err);
    assert!(sent.err.contains("sent as STATUS: you have more stories"), "{}", sent.err);
    assert!(fixture.run_ok("alpha", &["read"]).contains("<!-- type: STATUS -->"));
    let waits = ["wait", "--from", "bravo", "--timeout", "1"];
    assert_eq!(fixture.run("alpha", &waits).code, EXIT_TIMEOUT, "bravo is still active");
    fixture.run_ok("bravo", &["send", "--type", "DONE", "all is done"]);
    assert!(fixture.run_ok("alpha", &waits).contains("<!-- type: DONE -->"));
    assert_eq!(fixture.run("alpha", &waits).code, EXIT_GONE);
}

#[test]
fn a_request_is_read_and_answered() {
    let fixture = MailboxFixture::new();
    assert_eq!(fixture.run_ok("alpha", &["send", "--to", "bravo", "Please", "review it"]), "alpha/001\n");
    let read = fixture.run_ok("bravo", &["read"]);
    assert!(read.starts_with("==== alpha/001\n<!-- amp-version: 1 -->\n"), "{read}");
    assert!(read.contains("<!-- type: REQUEST -->") && read.contains("## Body\nPlease review it\n"), "{read}");
    assert!(read.ends_with("(reply: acp-shim mail send --re alpha/001 TEXT)\n\n"), "{read}");
    assert!(
        fixture.run_ok("alpha", &["state", "--json"]).contains("\"pending\":[{\"ref\":\"alpha/001\",\"by\":\"bravo\"")
    );
    assert_eq!(
        fixture.run_ok("bravo", &["send", "--json", "--re", "alpha/001", "Fine"]),
        "{\"sent\":[\"bravo/001\"]}\n"
    );
    let answer: serde_json::Value = serde_json::from_str(&fixture.run_ok("alpha", &["wait", "--json"])).expect("JSON");
    assert_eq!([&answer["type"], &answer["re"], &answer["body"]], ["RESPONSE", "alpha/001", "Fine"]);
    assert!(fixture.run_ok("alpha", &["state", "--json"]).contains("\"pending\":[]"));
    let again = fixture.run("bravo", &["read"]);
    assert_eq!((again.code, again.out.as_str(), again.err.as_str()), (EXIT_OK, "", "acp-shim mail: no new messages\n"));
    assert!(fixture.run_ok("bravo", &["read", "alpha/001"]).contains("Please review it"));
    assert!(fixture.run_ok("bravo", &["read", "--all"]).contains("Please review it"));
    assert_eq!(fixture.run("bravo", &["read", "alpha/009"]).code, EXIT_FAILED);
}

#[test]
fn send_accepts_every_option() {
    let fixture = MailboxFixture::new();
    let flags =
        ["--subject", "S", "--context", "C", "--expect=E", "--priority", "high", "--ttl", "5", "--type", "handoff"];
    let output = fixture.run_with("alpha", &[&["send", "--to", "*"][..], &flags, &["-"]].concat(), b"from\ninput\n");
    assert_eq!(output.code, EXIT_OK, "{}", output.err);
    let file = std::fs::read_to_string(fixture.root().join("agents/alpha/001.md")).expect("a file");
    for text in [
        "to: *",
        "type: HANDOFF",
        "priority: high",
        "ttl: 5",
        "## Body\nfrom\ninput\n\n## Context\nC\n\n## Expected Response\nE\n",
    ] {
        assert!(file.contains(text), "{file}");
    }
    assert!(fixture.run_ok("bravo", &["read"]).contains("(accept: acp-shim mail send --re alpha/001 --type ACK TEXT)"));
    fixture.run_ok("bravo", &["send", "--type", "DONE", "Signing off"]);
    let done = std::fs::read_to_string(fixture.root().join("agents/bravo/001.md")).expect("a file");
    assert!(done.contains("<!-- to: * -->\n") && done.contains("## Subject\nSigning off\n"), "{done}");
    // A subject is enough; text that looks like a flag follows `--`.
    fixture.run_ok("alpha", &["send", "--to", "bravo", "--subject", "only this"]);
    fixture.run_ok("alpha", &["send", "--to", "bravo", "--", "--to"]);
    assert!(fixture.run_ok("bravo", &["read"]).contains("## Body\n--to\n"));
}

#[test]
fn usage_errors_exit_2_with_a_message() {
    let fixture = MailboxFixture::new();
    for (args, why) in [
        (&["sned"][..], "no such command: `sned`; the commands are send, read,"),
        (&["send", "x"], "the recipient is missing"),
        (&["send", "--to", "b c", "x"], "found `b c`"),
        (&["send", "--to", "bravo", "--type", "SHOUT", "x"], "REQUEST, RESPONSE"),
        (&["send", "--to", "bravo", "--mood", "x"], "no such option: `--mood`"),
        (&["send", "--to"], "`--to` needs a value"),
        (&["send", "--to", "bravo", "--to", "bravo", "x"], "occurs twice"),
        (&["send", "--to", "bravo", "-"], "neither a subject nor a body"),
        (&["read", "alpha"], "expected an agent id, `/` and a number"),
        (&["wait", "now"], "unexpected argument `now`"),
        (&["wait", "--timeout", "soon"], "`--timeout`: expected a whole number from 0, found `soon`"),
        (&["send", "--to", "bravo", "--ttl", "0", "x"], "`--ttl`: expected a whole number from 1, found `0`"),
        (&["claim", "../x"], "a shared file's name"),
        (&["state", "--set", "--append", "x"], "not both"),
    ] {
        let output = fixture.run("alpha", args);
        assert_eq!(output.code, EXIT_USAGE, "{args:?}");
        assert!(output.err.starts_with("acp-shim mail: ") && output.err.contains(why), "{args:?}: {}", output.err);
    }
    assert_eq!(fixture.run("alpha", &[]).code, EXIT_USAGE);
    assert!(fixture.run_ok("alpha", &["--help"]).starts_with("usage: acp-shim mail COMMAND\n"));
    let (mut input, mut out, mut err) = (std::io::empty(), Vec::new(), Vec::new());
    let env = MailEnvironment {
        mailbox: None,
        agent: None,
        has_more_stories: false,
        socket: None,
        input: &mut input,
        out: &mut out,
        err: &mut err,
    };
    assert_eq!(run(&["read".to_owned()], env), EXIT_USAGE);
    assert!(String::from_utf8_lossy(&err).contains("`LONGSHORE_MAILBOX` is not set"));
}

/// Error Handling.
#[test]
fn wait_ends_on_a_match_on_departure_and_on_timeout() {
    let fixture = MailboxFixture::new();
    let started_at = Instant::now();
    let over = fixture.run("alpha", &["wait", "--timeout", "1"]);
    assert_eq!((over.code, over.err.as_str()), (EXIT_TIMEOUT, "acp-shim mail: no message within 1 s\n"));
    assert!(started_at.elapsed() >= Duration::from_secs(1));
    // A busy machine may delay some of the notices, but not all.
    assert!((0..10).any(|_| fixture.wait_delay() < Duration::from_millis(200)));
    fixture.set_status("bravo", &AgentStatus::Crashed);
    let gone = fixture.run("alpha", &["wait", "--from", "bravo", "--timeout", "60"]);
    assert_eq!(gone.code, EXIT_GONE);
    assert_eq!(gone.err, "acp-shim mail: bravo is gone (`crashed`) and has nothing more to say\n");
    fixture.run_ok("charlie", &["send", "--type", "DONE", "bye"]);
    assert_eq!(fixture.run("alpha", &["wait", "--timeout", "60"]).code, EXIT_OK, "the last message is read first");
    assert_eq!(fixture.run("alpha", &["wait", "--timeout", "60"]).code, EXIT_GONE);
    let warned = fixture.run("alpha", &["send", "--to", "bravo", "x"]);
    assert_eq!((warned.code, warned.err.as_str()), (EXIT_OK, "acp-shim mail: bravo is gone (`crashed`)\n"));
}

#[test]
fn wait_reports_to_the_shim() {
    let fixture = MailboxFixture::new();
    let run = fixture.dir.path().join("alpha");
    std::fs::create_dir(&run).expect("a directory");
    let listener = std::os::unix::net::UnixListener::bind(run.join("shim.sock")).expect("a socket");
    let received = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a caller");
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(&stream), &mut line).expect("a line");
        stream.write_all(b"{}\n").expect("answered");
        line
    });
    assert_eq!(fixture.run("alpha", &["wait", "--timeout", "1"]).code, EXIT_TIMEOUT);
    assert_eq!(received.join().expect("it ends"), "{\"ask\":\"waiting\"}\n");
}

/// STATE.md Structure.
/// During Work.
#[test]
fn shared_state_is_written_under_claims() {
    let fixture = MailboxFixture::new();
    let none = fixture.run("alpha", &["state"]);
    assert_eq!((none.code, none.err.as_str()), (EXIT_OK, "acp-shim mail: there is no shared/STATE.md yet\n"));
    fixture.run_ok("alpha", &["state", "--set", "# Shared State"]);
    fixture.run_ok("bravo", &["state", "--append", "- Root cause: missing rank-bm25"]);
    assert_eq!(fixture.run_ok("alpha", &["state"]), "# Shared State\n- Root cause: missing rank-bm25\n");
    assert_eq!(fixture.run_with("alpha", &["state", "--set", "--file", "ARTIFACTS.md"], b"one\n").code, EXIT_OK);
    assert_eq!(fixture.run_ok("bravo", &["state", "--file", "ARTIFACTS.md"]), "one\n");
    let claimed = fixture.run_ok("bravo", &["claim", "--note", "a fix"]);
    assert!(claimed.starts_with("shared/STATE.md is yours for 2 minutes"), "{claimed}");
    let file = std::fs::read_to_string(fixture.root().join("shared/.claim-STATE-bravo")).expect("a claim");
    assert!(file.contains("<!-- target: STATE.md -->\nClaiming STATE.md for update — a fix\n"), "{file}");
    let taken = fixture.run("alpha", &["claim", "--timeout", "0"]);
    assert_eq!(taken.code, EXIT_TIMEOUT);
    assert!(taken.err.starts_with("acp-shim mail: bravo has claimed STATE.md, until "), "{}", taken.err);
    // Writing under one's own claim withdraws it.
    fixture.run_ok("bravo", &["state", "--append", "more"]);
    assert_eq!(fixture.run("bravo", &["release"]).code, EXIT_FAILED);
    assert_eq!(fixture.run_ok("alpha", &["claim", "--json"]), "{\"claimed\":\"STATE.md\"}\n");
    fixture.run_ok("alpha", &["release"]);
}

#[test]
fn roster_lists_participants() {
    let fixture = MailboxFixture::new();
    fixture.run("charlie", &["send", "--to", "alpha", "--type", "DONE", "\u{1b}[2Jbye"]);
    fixture.set_status("bravo", &AgentStatus::Done);
    std::fs::write(fixture.root().join("agents/bravo/\u{1b}x.md"), "").expect("written");
    let output = fixture.run("alpha", &["roster"]);
    assert_eq!(output.code, EXIT_OK);
    let rows: Vec<Vec<&str>> = output.out.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    assert_eq!(rows[1..3], [vec!["alpha", "active", "0"], vec!["bravo", "done", "0"]]);
    assert!(
        output.out.lines().last().is_some_and(|line| line.contains("charlie  done, not in the roster")),
        "{}",
        output.out
    );
    assert!(
        output.err.contains("agents/bravo/x.md is not a message") && !output.err.contains('\u{1b}'),
        "{}",
        output.err
    );
    assert!(!fixture.run_ok("alpha", &["read"]).contains('\u{1b}'));
    let json = fixture.run("alpha", &["roster", "--json"]).out;
    let first: serde_json::Value = serde_json::from_str(json.lines().next().expect("a line")).expect("JSON");
    assert_eq!([&first["id"], &first["status"], &first["role"]], ["alpha", "active", "coder"]);
}
