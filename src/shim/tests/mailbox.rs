//! The depot's mailbox over pipes, as the current user: what is transferred, refused and written. Outboxes of other users are
//! tested in real sandboxes.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, Instant};

use super::depot::DepotClient;
use super::*;
use crate::handoff::depot::{DepotErrorKind, DepotRequest, DepotResponse};
use crate::handoff::mailbox::{
    MAX_MESSAGE_BYTES, MAX_OUTBOX_MESSAGES, MAX_REFUSALS, MAX_SHARED_FILES, MailFileWrite, MailQuery, MessageNumbers,
};
use crate::protocol::mailbox::layout::PROTOCOL_FILE;
use crate::protocol::mailbox::message::{MailboxDraft, MailboxMessageType, MessageRecipient, Seq};
use crate::protocol::mailbox::store::Mailbox;

/// A depot with an open mailbox.
struct MailboxHarness {
    _dir: tempfile::TempDir,
    mailbox_dir: PathBuf,
    client: DepotClient,
    query: MailQuery,
}

/// Paths with contents, removed names, and refusals.
#[derive(Debug, Default, PartialEq)]
struct ReceivedMail {
    files: Vec<(String, Vec<u8>)>,
    removed: Vec<String>,
    refused: Vec<String>,
}

impl MailboxHarness {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::with_root(dir.path());
        let mut host = DepotClient::new(&layout);
        let opened = host.request(&DepotRequest::OpenMailbox).0.unwrap();
        assert_eq!(opened, DepotResponse::MailboxState { created: true, messages: BTreeMap::new() });
        let query = MailQuery { timeout_ms: 20_000, ..MailQuery::default() };
        Self { mailbox_dir: layout.mailbox_volume(), _dir: dir, client: host, query }
    }

    fn outbox(&self, agent: &str) -> PathBuf {
        let outbox = self.mailbox_dir.join("agents").join(agent);
        fs::create_dir_all(&outbox).unwrap();
        outbox
    }

    fn send(&self, agent: &str, body: &str) {
        let draft = MailboxDraft::new(MessageRecipient::Broadcast, MailboxMessageType::Status, "s", body);
        let mailbox = Mailbox::open(&self.mailbox_dir).unwrap();
        mailbox.send(&agent.parse().unwrap(), &draft, None, jiff::Timestamp::now()).unwrap();
    }

    fn put(&mut self, files: &[(&str, Option<&str>, &str)]) -> (BTreeMap<String, String>, Vec<String>) {
        let file = |(path, text, only_if): &(&str, Option<&str>, &str)| MailFileWrite {
            path: (*path).to_owned(),
            text: text.map(str::to_owned),
            expected_stamp: (*only_if).to_owned(),
        };
        match self.client.request(&DepotRequest::PutMail { files: files.iter().map(file).collect() }).0.unwrap() {
            DepotResponse::MailWritten { stamps, conflicts } => (stamps, conflicts),
            other => panic!("{other:?}"),
        }
    }

    /// Polls once, and remembers what was received.
    fn poll(&mut self) -> ReceivedMail {
        let (answer, data) = self.client.request(&DepotRequest::WaitForMail(self.query.clone()));
        let DepotResponse::NewMail { files, removed, refused, .. } = answer.unwrap() else { panic!("no news") };
        let mut news = ReceivedMail { removed, ..ReceivedMail::default() };
        let mut rest = &data[..];
        for file in files {
            let (content, remaining) = rest.split_at(usize::try_from(file.bytes).unwrap());
            rest = remaining;
            match file.path.split('/').collect::<Vec<_>>()[..] {
                ["agents", agent, name] => {
                    let seq = Seq::from_file_name(name).unwrap();
                    let known = self.query.known_messages.entry(agent.to_owned()).or_default();
                    assert!(known.insert(seq.get()), "{} came twice", file.path);
                }
                ["shared", name] => drop(self.query.known_shared.insert(name.to_owned(), file.stamp)),
                _ => panic!("{}", file.path),
            }
            news.files.push((file.path, content.to_vec()));
        }
        assert!(rest.is_empty());
        self.query.known_shared.retain(|name, _| !news.removed.contains(name));
        for refusal in refused {
            news.refused.push(format!("{}: {}", refusal.path, refusal.reason));
            self.query.known_refusals.push(refusal.key);
        }
        news
    }

    /// Polls until this many changes were received, including refusals.
    fn poll_until(&mut self, count: usize) -> ReceivedMail {
        let mut all = ReceivedMail::default();
        while all.files.len() + all.removed.len() + all.refused.len() < count {
            let news = self.poll();
            assert_ne!(news, ReceivedMail::default(), "only {all:?} came");
            all.files.extend(news.files);
            all.removed.extend(news.removed);
            all.refused.extend(news.refused);
        }
        all.files.sort();
        all.refused.sort();
        all
    }

    fn assert_no_more(&mut self) {
        let before = std::mem::replace(&mut self.query.timeout_ms, 300);
        assert_eq!(self.poll(), ReceivedMail::default());
        self.query.timeout_ms = before;
    }

    fn poll_paths(&mut self, count: usize) -> Vec<String> {
        self.poll_until(count).files.into_iter().map(|(path, _)| path).collect()
    }
}

#[test]
fn new_messages_are_delivered_promptly_and_once() {
    let mut harness = MailboxHarness::new();
    let _ = harness.outbox("alpha");
    let id = harness.client.send_request(&DepotRequest::WaitForMail(harness.query.clone()));
    std::thread::sleep(Duration::from_millis(100));
    let sent = Instant::now();
    harness.send("alpha", "one");
    let (answer, data) = harness.client.read_response(id);
    let DepotResponse::NewMail { files, .. } = answer.unwrap() else { panic!("no news") };
    assert!(sent.elapsed() < Duration::from_secs(2), "by notification, {:?}", sent.elapsed());
    assert_eq!(files[0].path, "agents/alpha/001.md");
    assert_eq!(data, fs::read(harness.mailbox_dir.join("agents/alpha/001.md")).unwrap());
    harness.query.known_messages.insert("alpha".to_owned(), MessageNumbers::from_iter([1]));
    harness.assert_no_more();
    // In a new outbox.
    harness.outbox("bravo");
    harness.send("bravo", "two");
    harness.send("alpha", "three");
    assert_eq!(harness.poll_paths(2), ["agents/alpha/002.md", "agents/bravo/001.md"]);
    harness.assert_no_more();
}

#[test]
fn large_deliveries_are_split_into_batches() {
    let mut harness = MailboxHarness::new();
    harness.outbox("alpha");
    for number in 0..300 {
        harness.send("alpha", &format!("{number}"));
    }
    let mut numbers = Vec::new();
    while numbers.len() < 300 {
        let files = harness.poll().files;
        assert!(files.len() <= 256);
        numbers.extend(files.into_iter().map(|(path, _)| path));
    }
    let in_order: Vec<String> = (1..=300).map(|number| format!("agents/alpha/{number:03}.md")).collect();
    assert_eq!(numbers, in_order, "in the order of their numbers");
    harness.assert_no_more();
}

#[test]
fn files_written_in_place_are_delivered_once_settled() {
    let mut harness = MailboxHarness::new();
    let outbox = harness.outbox("alpha");
    harness.send("alpha", "whole");
    let whole = fs::read_to_string(outbox.join("001.md")).unwrap().replace("seq: 001", "seq: 002");
    // Half of a message is invalid, and gets some time.
    fs::write(outbox.join("002.md"), &whole[..40]).unwrap();
    assert_eq!(harness.poll_paths(1), ["agents/alpha/001.md"]);
    fs::write(outbox.join("002.md"), &whole).unwrap();
    assert_eq!(harness.poll_until(1).files, [("agents/alpha/002.md".to_owned(), whole.clone().into_bytes())]);
    // A file that never becomes valid is transferred as it is.
    fs::write(outbox.join("3.md"), "hello").unwrap();
    assert_eq!(harness.poll_until(1).files, [("agents/alpha/003.md".to_owned(), b"hello".to_vec())]);
    harness.assert_no_more();
}

#[test]
fn hostile_files_are_refused_once_and_block_nothing() {
    let mut harness = MailboxHarness::new();
    let outbox = harness.outbox("mallory");
    let secret = harness.mailbox_dir.parent().unwrap().join("secret");
    fs::write(&secret, "root's").unwrap();
    symlink(&secret, outbox.join("001.md")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, outbox.join("002.md"), rustix::fs::Mode::from_raw_mode(0o644)).unwrap();
    fs::create_dir(outbox.join("003.md")).unwrap();
    std::os::unix::net::UnixListener::bind(outbox.join("004.md")).unwrap();
    let huge = fs::File::create(outbox.join("005.md")).unwrap();
    huge.set_len(1 << 40).unwrap();
    fs::write(outbox.join("notes.txt"), "not a message").unwrap();
    symlink("/etc/passwd", harness.mailbox_dir.join("shared/STATE.md")).unwrap();
    fs::create_dir(harness.mailbox_dir.join("shared/folder")).unwrap();
    fs::write(harness.mailbox_dir.join("shared/a b\n"), "x").unwrap();
    harness.send("mallory", "an honest word");
    let news = harness.poll_until(9);
    let paths: Vec<&str> = news.files.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["agents/mallory/006.md"]);
    let refused = news.refused.join("\n");
    for wanted in [
        "agents/mallory/001.md: it is a link",
        "agents/mallory/002.md: it is not a regular file",
        "agents/mallory/003.md: it is not a regular file",
        "agents/mallory/004.md: it is not a regular file",
        &format!("agents/mallory/005.md: it has 1099511627776 bytes, the limit is {MAX_MESSAGE_BYTES}"),
        "shared/STATE.md: it is a link",
        "shared/a?b?: its name has characters",
        "shared/folder: it is not a regular file",
    ] {
        assert!(refused.contains(wanted), "{wanted} is not in\n{refused}");
    }
    assert!(!refused.contains("root's"));
    harness.assert_no_more();
    // Another file of a refused name is checked again.
    fs::remove_file(harness.mailbox_dir.join("shared/STATE.md")).unwrap();
    fs::write(harness.mailbox_dir.join("shared/STATE.md"), "real").unwrap();
    assert_eq!(harness.poll_until(1).files, [("shared/STATE.md".to_owned(), b"real".to_vec())]);
}

#[test]
fn message_and_refusal_counts_are_limited() {
    let mut harness = MailboxHarness::new();
    let outbox = harness.outbox("mallory");
    // As if all but five had been received.
    let last = u32::try_from(MAX_OUTBOX_MESSAGES).unwrap();
    harness.query.known_messages.insert("mallory".to_owned(), (1..=last - 5).collect());
    for number in last - 4..=last + 20 {
        fs::write(outbox.join(format!("{number}.md")), "x").unwrap();
    }
    for number in 0..MAX_REFUSALS + 100 {
        symlink("x", harness.mailbox_dir.join(format!("shared/l{number:04}"))).unwrap();
    }
    harness.query.writers_stopped = true;
    let news = harness.poll_until(5 + MAX_REFUSALS);
    assert_eq!(news.files.len(), 5);
    assert_eq!(news.refused.len(), MAX_REFUSALS);
    assert!(news.refused[0].starts_with("agents/mallory: it has more than 10000 messages"), "{}", news.refused[0]);
    harness.assert_no_more();

    let mut harness = MailboxHarness::new();
    for number in 0..MAX_SHARED_FILES + 10 {
        fs::write(harness.mailbox_dir.join(format!("shared/f{number}")), "x").unwrap();
    }
    let news = harness.poll_until(MAX_SHARED_FILES + 1);
    assert_eq!((news.files.len(), news.refused.len()), (MAX_SHARED_FILES, 1));
    harness.assert_no_more();
}

#[test]
fn shared_file_changes_and_removals_are_delivered() {
    let mut harness = MailboxHarness::new();
    let state = harness.mailbox_dir.join("shared/STATE.md");
    fs::write(&state, "one").unwrap();
    fs::write(harness.mailbox_dir.join("shared/.claim-STATE-alpha"), "c").unwrap();
    fs::write(harness.mailbox_dir.join("shared/.hidden"), "h").unwrap();
    assert_eq!(harness.poll_paths(2), ["shared/.claim-STATE-alpha", "shared/STATE.md"]);
    fs::write(&state, "two").unwrap();
    assert_eq!(harness.poll_until(1).files, [("shared/STATE.md".to_owned(), b"two".to_vec())]);
    fs::remove_file(harness.mailbox_dir.join("shared/.claim-STATE-alpha")).unwrap();
    assert_eq!(harness.poll_until(1).removed, [".claim-STATE-alpha"]);
    harness.assert_no_more();
}

#[test]
fn put_never_replaces_files_of_others() {
    let mut harness = MailboxHarness::new();
    let put = [("ROSTER.md", Some("r1"), ""), (PROTOCOL_FILE, Some("p"), ""), ("agents/host/001.md", Some("m"), "")];
    assert_eq!(harness.put(&put), Default::default());
    assert_eq!(harness.put(&[("ROSTER.md", Some("r2"), "")]), Default::default());
    assert_eq!(fs::read_to_string(harness.mailbox_dir.join("ROSTER.md")).unwrap(), "r2");
    // The same message may be written again, a different one may not.
    assert_eq!(harness.put(&put[2..]), Default::default());
    assert_eq!(harness.put(&[("agents/host/001.md", Some("other"), "")]).1, ["agents/host/001.md"]);
    assert_eq!(fs::read_to_string(harness.mailbox_dir.join("agents/host/001.md")).unwrap(), "m");
    let mode = |path: &str| fs::metadata(harness.mailbox_dir.join(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(
        (mode("agents/host"), mode("agents/host/001.md"), mode("shared"), mode("")),
        (0o755, 0o644, 0o777, 0o755)
    );

    let first = harness.put(&[("shared/STATE.md", Some("one"), "")]).0["STATE.md"].clone();
    assert_eq!(fs::metadata(harness.mailbox_dir.join("shared/STATE.md")).unwrap().permissions().mode() & 0o777, 0o666);
    assert_eq!(harness.put(&[("shared/STATE.md", Some("two"), "")]).1, ["shared/STATE.md"], "it is there");
    assert_eq!(harness.put(&[("shared/STATE.md", Some("two"), &first)]).1, [""; 0]);
    assert_eq!(harness.put(&[("shared/STATE.md", None, &first)]).1, ["shared/STATE.md"], "it was changed");
    // A sandbox's obstacles stay, and nothing is written through them.
    let target = harness.mailbox_dir.parent().unwrap().join("target");
    fs::write(&target, "safe").unwrap();
    symlink(&target, harness.mailbox_dir.join("shared/link")).unwrap();
    harness.outbox("mallory");
    symlink(&target, harness.mailbox_dir.join("agents/mallory/001.md")).unwrap();
    fs::create_dir(harness.mailbox_dir.join("shared/folder")).unwrap();
    let hostile =
        [("shared/link", Some("x"), ""), ("agents/mallory/001.md", Some("x"), ""), ("shared/folder", Some("x"), "")];
    assert_eq!(harness.put(&hostile).1, ["agents/mallory/001.md", "shared/folder"]);
    assert_eq!(fs::read_to_string(&target).unwrap(), "safe");
    for bad in ["../x", "agents/a/b/001.md", "agents/a/x.md", "shared/../x", "shared/.x", "other", "agents/.a/001.md"] {
        let file = MailFileWrite { path: bad.to_owned(), text: Some("x".to_owned()), expected_stamp: String::new() };
        assert_eq!(
            harness.client.request_refused(&DepotRequest::PutMail { files: vec![file] }),
            DepotErrorKind::Refused,
            "{bad}"
        );
    }
    let left: Vec<_> = fs::read_dir(&harness.mailbox_dir).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with(".put-")), "{left:?}");
}

#[test]
fn opening_an_existing_mailbox_keeps_its_content() {
    let mut harness = MailboxHarness::new();
    harness.outbox("alpha");
    harness.send("alpha", "one");
    harness.send("alpha", "two");
    fs::write(harness.mailbox_dir.join(".put-1-1"), "half").unwrap();
    let opened = harness.client.request(&DepotRequest::OpenMailbox).0.unwrap();
    let messages = BTreeMap::from([("alpha".to_owned(), MessageNumbers::from_iter([1, 2]))]);
    assert_eq!(opened, DepotResponse::MailboxState { created: false, messages });
    assert!(!harness.mailbox_dir.join(".put-1-1").exists());
    for agent in ["../x", "", ".hidden"] {
        let seat = DepotRequest::AssignOutbox { agent: agent.to_owned(), uid: 20_000 };
        assert_eq!(harness.client.request_refused(&seat), DepotErrorKind::Refused);
    }
    let root = DepotRequest::AssignOutbox { agent: "alpha".to_owned(), uid: 0 };
    assert_eq!(harness.client.request_refused(&root), DepotErrorKind::Refused);
}
