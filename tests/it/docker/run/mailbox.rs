//! Agents that communicate through a mailbox: real sandboxes with users of their own, one volume, and the host's copy.

mod ends;
mod gone;
mod many;
mod patterns;
mod session;

use longshore::ids::AgentId;
use longshore::protocol::mailbox::message::{MailboxMessage, MailboxMessageType, MessageRecipient};
use longshore::protocol::mailbox::roster::AgentStatus;
use longshore::protocol::mailbox::store::{Mailbox, ReadOutcome, SharedName};

use super::*;

/// Shell functions for stories that send and wait with the protocol's files alone.
const FILES: &str = r#"
set -e
cd "$LONGSHORE_MAILBOX"
say() {  # say NNN TO TYPE BODY
    printf '<!-- amp-version: 1 -->\n<!-- from: %s -->\n<!-- to: %s -->\n<!-- seq: %s -->\n<!-- type: %s -->\n<!-- timestamp: 2026-02-19T11:32:15 -->\n\n## Subject\n%s\n\n## Body\n%s\n' \
        "$LONGSHORE_AGENT" "$2" "$1" "$3" "$4" "$4" > "agents/$LONGSHORE_AGENT/.part"
    mv "agents/$LONGSHORE_AGENT/.part" "agents/$LONGSHORE_AGENT/$1.md"
}
hear() {  # hear AGENT/NNN
    until [ -e "agents/$1.md" ]; do sleep 0.05; done
}
"#;

/// A story whose agent has this id and role in the mailbox.
fn agent(number: usize, id: &str, role: &str, command: &str) -> Value {
    with_fields(story(number, command), json!({ "mailbox": { "agent": id, "role": role } }))
}

fn id(text: &str) -> AgentId {
    text.parse().expect("an id")
}

impl SwarmFixture {
    /// Tasks with a mailbox, whose agents all run at once.
    fn mail_tasks(&self, branch: &str, stories: Value) -> String {
        let count = stories.as_array().map_or(1, Vec::len);
        let metadata = json!({ "branchName": branch, "mailbox": true, "maxConcurrency": count });
        self.tasks_with("tasks.json", metadata, stories)
    }

    /// The host's copy of the only swarm's mailbox, once it exists.
    fn mailbox(&self) -> Mailbox {
        eventually("the host has a copy of the mailbox", || {
            let swarm = self.swarms().pop()?;
            Mailbox::open(&self.root().join(".longshore/swarms").join(swarm).join("mailbox")).ok()
        })
    }
}

/// An agent's messages, by number. An invalid file fails the test.
#[track_caller]
fn messages(mailbox: &Mailbox, agent: &str) -> Vec<MailboxMessage> {
    let agent = id(agent);
    let files = mailbox.list_outbox(&agent).expect("a listing").files;
    let read = |(seq, name): (_, String)| match mailbox.read_message(&agent, seq, &name).expect("read") {
        ReadOutcome::Message(message) => *message,
        other => panic!("{agent}/{name} is not a message: {other:?}"),
    };
    files.into_iter().map(read).collect()
}

/// An agent's messages: number, type and subject.
#[track_caller]
fn sent_messages(mailbox: &Mailbox, agent: &str) -> Vec<(u32, MailboxMessageType, String)> {
    messages(mailbox, agent).into_iter().map(|one| (one.seq.get(), one.message_type, one.content.subject)).collect()
}

fn statuses(mailbox: &Mailbox) -> BTreeMap<String, AgentStatus> {
    mailbox.roster().expect("a roster").entries().into_iter().map(|row| (row.id.to_string(), row.status)).collect()
}

fn state_file(mailbox: &Mailbox) -> String {
    mailbox.read_shared(&SharedName::state()).expect("read").expect("there is a STATE.md")
}

/// Tries what an agent may not do. Prints a line with the kernel's answer for each attempt.
const TRESPASS: &str = r#"
hear alpha/001
attempt() { if said=$("$@" 2>&1); then echo "DONE $*"; else echo "DENIED $* ($said)"; fi; }
put() { sh -c "printf x $1 $2"; }
{
    attempt put '>' agents/alpha/666.md
    attempt put '>>' agents/alpha/001.md
    attempt put '>' agents/alpha/001.md
    attempt mv agents/alpha/001.md agents/alpha/777.md
    attempt mv agents/alpha/001.md agents/charlie/001.md
    attempt rm -f agents/alpha/001.md
    attempt ln agents/charlie/001.md agents/alpha/777.md
    attempt ln -s ../../ROSTER.md agents/alpha/778.md
    attempt mkdir agents/alpha/sub
    attempt chmod 777 agents/alpha
    attempt mkdir agents/delta
    attempt put '>' agents/file
    attempt mv agents/alpha agents/gone
    attempt mv agents/charlie agents/other
    attempt rmdir agents/charlie
    attempt put '>>' ROSTER.md
    attempt rm -f ROSTER.md
    attempt mv ROSTER.md shared/ROSTER.md
    attempt put '>' PROTOCOL.md
    attempt put '>' new
    attempt mv shared elsewhere
    attempt chmod 777 .
} > /tmp/attempts
{
    attempt put '>' agents/charlie/notes
    attempt put '>' shared/ARTIFACTS.md
    attempt cat agents/alpha/001.md
} > /tmp/allowed
"#;

/// Denies all others access to its outbox.
const CLOSES: &str = r#"
say 001 '*' STATUS secret
chmod 600 agents/mallory/001.md
chmod 700 agents/mallory
touch shared/closed
"#;
/// Reads the messages of the other agents.
const READS: &str = r#"
until [ -e shared/closed ]; do sleep 0.05; done
acp-shim mail read > /tmp/read
acp-shim mail roster >> /tmp/read
"#;

/// Design Principles.
#[test]
fn the_kernel_keeps_each_agent_to_its_own_outbox() {
    let scratch = SwarmFixture::new();
    let alpha = agent(
        1,
        "alpha",
        "victim",
        &format!("{FILES} say 001 charlie STATUS hello; hear charlie/002; {READS} cd - >/dev/null; mv /tmp/read ."),
    );
    let mallory = agent(3, "mallory", "closed", &format!("{FILES} {CLOSES} cd - > /dev/null; echo m > m"));
    let charlie = format!(
        "{FILES} say 001 alpha STATUS mine; {TRESPASS} say 002 alpha STATUS tried; cd - >/dev/null; mv /tmp/attempts /tmp/allowed ."
    );
    let tasks = scratch.mail_tasks("feat/kept", json!([alpha, agent(2, "charlie", "trespasser", &charlie), mallory]));
    let ran = scratch.longshore(&["run", &tasks, "--retries", "0"]);
    ran.expect(0, &["3 landed", "relaxed: a mailbox that all sandboxes share (from the tasks file)"]);
    let attempts = scratch.show("feat/kept", "attempts");
    let lines: Vec<&str> = attempts.lines().collect();
    assert_eq!(lines.len(), 22, "{attempts}");
    for line in lines {
        let denied =
            line.starts_with("DENIED") && (line.contains("Permission denied") || line.contains("not permitted"));
        assert!(denied, "not denied by the kernel: {line}\n{attempts}");
    }
    let allowed = scratch.show("feat/kept", "allowed");
    assert_eq!(allowed.lines().filter(|line| line.starts_with("DENIED")).count(), 0, "{allowed}");

    let mailbox = scratch.mailbox();
    let status = |number, subject: &str| (number, MailboxMessageType::Status, subject.to_owned());
    // Neither sent a DONE: longshore sent it for them.
    let done = (2, MailboxMessageType::Done, "Signing off".to_owned());
    assert_eq!(sent_messages(&mailbox, "alpha"), [status(1, "hello"), done.clone()]);
    assert_eq!(
        sent_messages(&mailbox, "charlie"),
        [status(1, "mine"), status(2, "tried"), (3, done.1, done.2.clone())]
    );
    let last = messages(&mailbox, "charlie").pop().expect("a message");
    assert!(last.to == MessageRecipient::Broadcast && last.content.body.starts_with("US-002 done."), "{last:?}");
    let all = ["alpha", "charlie", "mallory"].map(|agent| (agent.to_owned(), AgentStatus::Done));
    assert_eq!(statuses(&mailbox), all.into());
    let read = scratch.show("feat/kept", "read");
    assert!(read.contains("charlie/001") && read.contains("charlie/002") && !read.contains("secret"), "{read}");
    assert_eq!(sent_messages(&mailbox, "mallory")[0], status(1, "secret"), "the host's copy has it");
    let rows = mailbox.roster().expect("a roster").entries();
    let mut roles: Vec<&str> = rows.iter().map(|row| row.role.as_str()).collect();
    roles.sort_unstable();
    assert_eq!(roles, ["closed", "trespasser", "victim"]);
    assert_eq!(std::fs::read_to_string(mailbox.root().join("shared/ARTIFACTS.md")).expect("carried"), "x");
    let state = state_file(&mailbox);
    assert!(
        state.contains("of 3 agents, 3 signed off") && state.contains("| charlie | trespasser | done | 3 |"),
        "{state}"
    );
    assert_eq!(scratch.engine_resources(), [""; 0], "the volume is removed with the swarm");
}
