//! The host's copy: which new files are found, and which are skipped.

use super::*;
use crate::protocol::mailbox::message::{MailboxDraft, MessageRecipient};

struct HostCopyFixture {
    _dir: tempfile::TempDir,
    copy: HostCopy,
    /// The file of `host/001`.
    message: PathBuf,
    text: String,
}

impl HostCopyFixture {
    /// A copy with one message of `host`.
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let copy = HostCopy::open(dir.path(), BTreeSet::new()).expect("created");
        let host: AgentId = "host".parse().expect("an id");
        let draft = MailboxDraft::new(MessageRecipient::Broadcast, MailboxMessageType::Status, "s", "all of it");
        copy.mailbox.send(&host, &draft, None, jiff::Timestamp::now()).expect("sent");
        let message = copy.root().join("agents/host/001.md");
        let text = fs::read_to_string(&message).expect("a file");
        Self { _dir: dir, copy, message, text }
    }

    fn write_shared(&self, name: &str, text: &str) -> PathBuf {
        let path = self.copy.shared_path(name);
        fs::write(&path, text).expect("written");
        path
    }

    fn scan(&mut self, writers_stopped: bool, in_volume: bool) -> Vec<OutgoingFile> {
        let options = ScanOptions { writers_stopped, ..ScanOptions::default() };
        self.copy.find_new(options, |_, _| in_volume).expect("readable")
    }

    /// New shared files, whatever their age.
    fn new_shared(&mut self) -> Vec<String> {
        paths(&self.scan(true, true))
    }

    fn has_warning(&self, path: &str) -> bool {
        self.copy.warned_paths.contains(path)
    }
}

fn paths(found: &[OutgoingFile]) -> Vec<String> {
    found.iter().map(|outgoing| outgoing.file.path.clone()).collect()
}

/// Sets how long ago a file was written.
fn set_age(path: &Path, age: Duration) {
    let file = fs::File::options().write(true).open(path).expect("opened");
    file.set_modified(SystemTime::now() - age).expect("set");
}

#[test]
fn files_are_transferred_once_settled() {
    let mut fixture = HostCopyFixture::new();
    // A header and half of a body are a valid message.
    fs::write(&fixture.message, fixture.text.replace("all of it", "all")).expect("written");
    let shared = fixture.write_shared("PLAN.md", "ha");
    // Repeats until the scan is fast enough: on a stalled machine the files become old.
    let found = loop {
        let started_at = Instant::now();
        for path in [&fixture.message, &shared] {
            set_age(path, Duration::ZERO);
        }
        let found = fixture.scan(false, false);
        if started_at.elapsed() < SETTLE_TIME / 2 {
            break found;
        }
    };
    assert_eq!(paths(&found), [""; 0]);
    assert!(fixture.copy.has_unsettled());
    fs::write(&fixture.message, &fixture.text).expect("written");
    for path in [&fixture.message, &shared] {
        set_age(path, SETTLE_TIME);
    }
    let found = fixture.scan(false, false);
    assert_eq!(found[0].file.text.as_deref(), Some(fixture.text.as_str()));
    assert_eq!(paths(&found), ["agents/host/001.md", "shared/PLAN.md"]);
    assert!(!fixture.copy.has_unsettled() && fixture.copy.warned_paths.is_empty());
}

#[test]
fn recent_files_are_complete_once_writers_have_stopped() {
    let mut fixture = HostCopyFixture::new();
    fixture.write_shared("LAST.md", "now");
    assert_eq!(fixture.new_shared(), ["shared/LAST.md"]);
}

#[test]
fn changes_of_transferred_messages_are_warned_about() {
    let mut fixture = HostCopyFixture::new();
    fixture.scan(true, false);
    fixture.scan(true, true);
    assert!(fixture.copy.warned_paths.is_empty());
    fs::write(&fixture.message, fixture.text.replace("all of it", "something else")).expect("written");
    fixture.scan(true, true);
    assert!(fixture.has_warning("agents/host/001.md"));
}

#[test]
fn only_new_shared_files_count_towards_the_limit() {
    let mut fixture = HostCopyFixture::new();
    let stamps = SyncedStamps { volume: "v".to_owned(), host: "h".to_owned() };
    fixture.copy.shared.insert("ZZZ.md".to_owned(), stamps);
    fixture.write_shared("ZZZ.md", "ours");
    for number in 0..MAX_SHARED_FILES + 5 {
        fixture.write_shared(&format!("H{number}.md"), "x");
    }
    let found = fixture.scan(true, true);
    assert!(found.iter().all(|outgoing| outgoing.file.text.is_some()), "{:?}", paths(&found));
    assert_eq!(found.len(), MAX_SHARED_FILES);
    assert!(paths(&found).contains(&"shared/ZZZ.md".to_owned()));
    assert!(fixture.has_warning("shared"));
}

#[test]
fn a_missing_shared_directory_removes_nothing() {
    let mut fixture = HostCopyFixture::new();
    fixture.copy.shared.insert("PLAN.md".to_owned(), SyncedStamps::default());
    let shared = fixture.copy.root().join("shared");
    fs::remove_dir_all(&shared).expect("removed");
    assert_eq!(fixture.new_shared(), [""; 0]);
    fs::create_dir(&shared).expect("created");
    let removed = fixture.scan(true, true);
    assert_eq!(paths(&removed), ["shared/PLAN.md"]);
    assert_eq!(removed[0].file.text, None);
}

#[test]
fn numbers_may_be_padded_differently() {
    let mut fixture = HostCopyFixture::new();
    fs::rename(&fixture.message, fixture.message.with_file_name("1.md")).expect("renamed");
    assert_eq!(paths(&fixture.scan(true, false)), ["agents/host/001.md"]);
}

#[test]
fn files_must_fit_one_request_as_json() {
    let mut fixture = HostCopyFixture::new();
    for (text, fits) in [("x".repeat(900_000), true), ("\u{1}".repeat(200_000), false), ("x".repeat(1_100_000), false)]
    {
        let path = fixture.write_shared("BIG.md", &text);
        assert_eq!(fixture.new_shared(), if fits { &["shared/BIG.md"][..] } else { &[] });
        fs::remove_file(path).expect("removed");
    }
}
