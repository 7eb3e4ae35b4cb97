//! A mailbox's directory: concurrent sends, hostile files, claims and the roster.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::super::layout::STATE_FILE;
use super::super::message::{MailboxMessageType, MessageRecipient};
use super::super::tests::fixtures::{id, now, seq};
use super::*;

fn draft(body: &str) -> MailboxDraft {
    MailboxDraft::new(MessageRecipient::Broadcast, MailboxMessageType::Status, "s", body)
}

fn mailbox() -> (tempfile::TempDir, Mailbox) {
    let dir = tempfile::tempdir().expect("a directory");
    let mailbox = Mailbox::create(&dir.path().join("amp")).expect("created");
    (dir, mailbox)
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

/// Design Principles; Directory Layout.
#[test]
fn the_layout_matches_the_spec() {
    let (_dir, mailbox) = mailbox();
    assert_eq!(
        names(mailbox.root()),
        [AGENTS_DIR, PROTOCOL_FILE, ROSTER_FILE, SHARED_DIR]
            .map(str::to_owned)
            .into_iter()
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect::<Vec<_>>()
    );
    mailbox.register(&RosterEntry::new(id("alpha"), "coder", Some(7), now())).expect("registered");
    let sent = mailbox.send(&id("alpha"), &draft("hello"), None, now()).expect("sent");
    assert_eq!(sent[0].reference().to_string(), "alpha/001");
    let path = mailbox.root().join("agents/alpha/001.md");
    assert_eq!(std::fs::read(&path).expect("a file"), text::render(&sent[0]).into_bytes());
    assert_eq!(path.metadata().expect("a file").permissions().mode() & 0o777, 0o644);
    // Existing files stay.
    std::fs::write(mailbox.root().join(PROTOCOL_FILE), "ours").expect("written");
    Mailbox::create(mailbox.root()).expect("opened");
    assert_eq!(std::fs::read_to_string(mailbox.root().join(PROTOCOL_FILE)).expect("a file"), "ours");
    assert!(Mailbox::open(&mailbox.root().join("nowhere")).is_err());
    assert!(matches!(Mailbox::open(&mailbox.root().join(AGENTS_DIR)), Err(MailboxError::NoMailbox(_))));
}

#[test]
fn seq_continues_after_the_highest_used() {
    let (_dir, mailbox) = mailbox();
    let alpha = id("alpha");
    let sent = |used: Option<u32>| mailbox.send(&alpha, &draft("b"), used.map(seq), now()).expect("sent")[0].seq.get();
    assert_eq!((sent(None), sent(None)), (1, 2));
    // The number of a lost message is not used again if the caller remembers it.
    std::fs::remove_file(mailbox.root().join("agents/alpha/002.md")).expect("removed");
    assert_eq!(sent(Some(2)), 3);
    std::fs::write(mailbox.root().join("agents/alpha/9.md"), "somebody's").expect("written");
    assert_eq!(sent(None), 10);
    std::fs::write(mailbox.root().join("agents/alpha/999999999.md"), "the last").expect("written");
    let full = mailbox.send(&alpha, &draft("b"), None, now());
    assert!(matches!(full, Err(MailboxError::Draft(DraftError::Full))), "{full:?}");
}

/// Design Principles.
#[test]
fn concurrent_sends_get_unique_numbers_and_contiguous_parts() {
    let (_dir, mailbox) = mailbox();
    let long: String = (0..3000).map(|n| format!("line {n}\n")).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            // Each has a handle of its own, as different processes do.
            let (root, long) = (mailbox.root(), &long);
            scope.spawn(move || {
                let mailbox = Mailbox::open(root).expect("a mailbox");
                for n in 0..10 {
                    let body = if n % 3 == 0 { long } else { "short" };
                    let sent = mailbox.send(&id("alpha"), &draft(body), None, now()).expect("sent");
                    let first = sent[0].seq.get();
                    let numbers: Vec<u32> = sent.iter().map(|message| message.seq.get()).collect();
                    assert_eq!(numbers, (first..first + sent.len() as u32).collect::<Vec<_>>());
                }
            });
        }
    });
    let listing = mailbox.list_outbox(&id("alpha")).expect("a listing");
    let numbers: Vec<u32> = listing.files.keys().map(|seq| seq.get()).collect();
    assert_eq!(numbers, (1..=4 * (6 + 4 * 3)).collect::<Vec<_>>());
    assert!(listing.unnumbered.is_empty());
    for (seq, name) in &listing.files {
        assert!(
            matches!(mailbox.read_message(&id("alpha"), *seq, name).expect("readable"), ReadOutcome::Message(_)),
            "{name}"
        );
    }
    let left: Vec<String> =
        names(&mailbox.root().join("agents/alpha")).into_iter().filter(|name| !name.ends_with(".md")).collect();
    assert_eq!(left, [OUTBOX_LOCK]);
}

/// Design Principles; Message Format.
#[test]
fn invalid_files_are_reported_without_following_links_or_blocking() {
    let (dir, mailbox) = mailbox();
    let alpha = id("alpha");
    let good = mailbox.send(&alpha, &draft("b"), None, now()).expect("sent");
    let outbox = mailbox.root().join("agents/alpha");
    let good = text::render(&good[0]);
    std::fs::write(outbox.join("002.md"), &good).expect("written");
    std::fs::write(outbox.join("003.md"), good.replace("001", "003").replace("from: alpha", "from: bravo"))
        .expect("written");
    std::fs::write(outbox.join("004.md"), &good[..40]).expect("written");
    let secret = dir.path().join("secret.md");
    std::fs::write(&secret, good.replace("001", "005")).expect("written");
    symlink(&secret, outbox.join("005.md")).expect("linked");
    rustix::fs::mknodat(rustix::fs::CWD, outbox.join("006.md"), rustix::fs::FileType::Fifo, 0o644.into(), 0)
        .expect("a FIFO");
    std::fs::create_dir(outbox.join("007.md")).expect("a directory");
    std::fs::File::create(outbox.join("008.md")).expect("a file").set_len(1 << 40).expect("a huge file");
    let _socket = std::os::unix::net::UnixListener::bind(outbox.join("009.md")).expect("a socket");
    std::fs::write(outbox.join("notes.md"), "").expect("written");
    std::fs::write(outbox.join(".010.md"), "").expect("written");
    let listing = mailbox.list_outbox(&alpha).expect("a listing");
    assert_eq!((listing.files.len(), listing.unnumbered), (9, vec!["notes.md".to_owned()]));
    let found: Vec<(u32, &str)> = listing
        .files
        .iter()
        .map(|(seq, name)| match mailbox.read_message(&alpha, *seq, name).expect("readable") {
            ReadOutcome::Invalid(violation) => (seq.get(), violation.rule),
            ReadOutcome::Message(_) => (seq.get(), "-"),
            ReadOutcome::Missing => panic!("{name} is missing"),
        })
        .collect();
    let kind = rules::FILE_KIND;
    assert_eq!(
        found,
        [
            (1, "-"),
            (2, rules::SEQ),
            (3, rules::FROM),
            (4, rules::REQUIRED),
            (5, kind),
            (6, kind),
            (7, kind),
            (8, rules::SIZE),
            (9, kind)
        ]
    );
    // An outbox that is a link is ignored.
    symlink(&outbox, mailbox.root().join("agents/bravo")).expect("linked");
    assert_eq!(mailbox.list_outbox(&id("bravo")).expect("a listing"), OutboxListing::default());
    assert!(matches!(mailbox.send(&id("bravo"), &draft("b"), None, now()), Err(MailboxError::NotDirectory(_))));
    assert_eq!(mailbox.read_message(&alpha, seq(50), "050.md").expect("readable"), ReadOutcome::Missing);
}

#[test]
fn put_writes_bytes_exactly_and_never_replaces() {
    let (_dir, mailbox) = mailbox();
    let put = |bytes: &[u8]| mailbox.put(&id("alpha"), seq(3), bytes).expect("put");
    assert_eq!(
        [put(b"one"), put(b"one"), put(b"two")],
        [PutOutcome::Created, PutOutcome::Unchanged, PutOutcome::Conflict]
    );
    assert_eq!(mailbox.read_bytes(&id("alpha"), "003.md").expect("readable").as_deref(), Some(&b"one"[..]));
    assert_eq!(mailbox.read_bytes(&id("alpha"), "004.md").expect("readable"), None);
}

/// Agent Registration.
#[test]
fn concurrent_roster_updates_are_kept() {
    let (_dir, mailbox) = mailbox();
    std::thread::scope(|scope| {
        for n in 0..8 {
            let root = mailbox.root();
            scope.spawn(move || {
                let mailbox = Mailbox::open(root).expect("a mailbox");
                let me = id(&format!("agent-{n}"));
                mailbox.register(&RosterEntry::new(me.clone(), "r", None, now())).expect("registered");
                mailbox.register(&RosterEntry::new(me.clone(), "r", None, now())).expect("it is there");
                mailbox.set_status(&me, &AgentStatus::Done).expect("changed");
            });
        }
    });
    let rows = mailbox.roster().expect("a roster").entries();
    assert_eq!(rows.len(), 8);
    assert!(rows.iter().all(|row| row.status == AgentStatus::Done));
    assert_eq!(mailbox.roster().expect("a roster").text().lines().count(), 4 + 8);
    assert_eq!(mailbox.agents().expect("a listing").len(), 8);
    // Agent IDs must be unique (Agent Registration).
    let taken = mailbox.register(&RosterEntry::new(id("Agent-1"), "r", None, now()));
    assert!(matches!(taken, Err(MailboxError::IdTaken { .. })), "{taken:?}");
    assert!(matches!(mailbox.set_status(&id("nobody"), &AgentStatus::Done), Err(MailboxError::NotRegistered(_))));
    // An agent that was done returns with a new row.
    mailbox.register(&RosterEntry::new(id("agent-1"), "again", None, now())).expect("registered");
    assert_eq!(mailbox.roster().expect("a roster").entry(&id("agent-1")).expect("a row").status, AgentStatus::Active);
}

#[test]
fn shared_files_cannot_escape_the_mailbox() {
    let (dir, mailbox) = mailbox();
    for wrong in ["", "..", "../x", "a/b", ".claim-STATE-a", "a\nb", &"x".repeat(101)] {
        assert!(wrong.parse::<SharedName>().is_err(), "{wrong:?}");
    }
    let outside = dir.path().join("outside");
    std::fs::write(&outside, "secret").expect("written");
    symlink(&outside, mailbox.root().join("shared/STATE.md")).expect("linked");
    let state = SharedName::state();
    assert!(matches!(mailbox.read_shared(&state), Err(MailboxError::NotFile { .. })));
    mailbox.write_shared(&state, "# Shared State\n").expect("written");
    assert_eq!(std::fs::read_to_string(&outside).expect("a file"), "secret");
    assert_eq!(mailbox.read_shared(&state).expect("readable").as_deref(), Some("# Shared State\n"));
    assert_eq!(mailbox.read_shared(&"ARTIFACTS.md".parse().expect("a name")).expect("readable"), None);
    assert_eq!(names(&mailbox.root().join(SHARED_DIR)), [STATE_FILE]);
}

fn claim(agent: &str, at: Timestamp) -> Claim {
    Claim { agent: id(agent), at, target: SharedName::state(), note: "progress".to_owned() }
}

/// Write Coordination; Error Handling.
#[test]
fn a_claim_is_held_until_released_or_stale() {
    let (_dir, mailbox) = mailbox();
    let now = Timestamp::now();
    let later = |seconds: i64| now + jiff::SignedDuration::from_secs(seconds);
    let taken = |by: &str, claimed: ClaimOutcome| matches!(claimed, ClaimOutcome::HeldBy(agent, _) if agent == id(by));
    let state = SharedName::state();
    let try_at = |agent: &str, at: Timestamp| mailbox.claim(&claim(agent, at), at).expect("claims");
    assert_eq!(try_at("bravo", now), ClaimOutcome::Granted);
    assert_eq!(try_at("bravo", now), ClaimOutcome::Granted, "again");
    // The lower id of the same second is too late: bravo may already be writing.
    assert!(taken("bravo", try_at("alpha", now)));
    assert_eq!(names(&mailbox.root().join(SHARED_DIR)), [".claim-STATE-bravo", CLAIMS_LOCK]);
    assert!(mailbox.release(&id("bravo"), &state).expect("released"));
    assert!(!mailbox.release(&id("bravo"), &state).expect("there is none"));
    assert_eq!(try_at("alpha", later(1)), ClaimOutcome::Granted);
    // Stale Claim: older than 2 minutes.
    assert!(taken("alpha", try_at("bravo", later(121))));
    assert_eq!(try_at("bravo", later(122)), ClaimOutcome::Granted);
    assert_eq!(names(&mailbox.root().join(SHARED_DIR)), [".claim-STATE-bravo", CLAIMS_LOCK]);
}

/// Stale Claim: whatever its timestamp.
#[test]
fn a_claim_dated_in_the_future_becomes_stale() {
    let (_dir, mailbox) = mailbox();
    let path = mailbox.root().join(SHARED_DIR).join(".claim-STATE-zeta");
    let far = std::time::SystemTime::now() + Duration::from_secs(100_000_000);
    std::fs::File::create(&path).and_then(|file| file.set_modified(far)).expect("a file");
    let later = Timestamp::now() + jiff::SignedDuration::from_secs(130);
    assert_eq!(mailbox.claim(&claim("alpha", later), later).expect("claims"), ClaimOutcome::Granted);
    assert!(!path.exists());
}

/// Error Handling.
#[test]
fn of_two_simultaneous_claims_the_lower_id_wins() {
    let (_dir, mailbox) = mailbox();
    let now = Timestamp::now();
    // A program that does not know the lock wrote its claim just after ours: both are present.
    for (other, ours) in [("alpha", false), ("charlie", true)] {
        let theirs = claim(other, now);
        std::fs::write(mailbox.root().join(SHARED_DIR).join(theirs.file_name()), theirs.render()).expect("written");
        let mine = claim("bravo", now);
        std::fs::write(mailbox.root().join(SHARED_DIR).join(mine.file_name()), mine.render()).expect("written");
        assert_eq!(mailbox.claim(&mine, now).expect("claims") == ClaimOutcome::Granted, ours, "{other}");
        for agent in [other, "bravo"] {
            mailbox.release(&id(agent), &SharedName::state()).expect("released");
        }
    }
}

/// Write Coordination.
#[test]
fn updates_under_claims_are_not_lost() {
    let (_dir, mailbox) = mailbox();
    let state = SharedName::state();
    std::thread::scope(|scope| {
        for n in 0..4 {
            let (root, state) = (mailbox.root(), &state);
            scope.spawn(move || {
                let mailbox = Mailbox::open(root).expect("a mailbox");
                for _ in 0..5 {
                    let change = |mailbox: &Mailbox| {
                        let text = mailbox.read_shared(state)?.unwrap_or_default();
                        mailbox.write_shared(state, &format!("{text}{n}\n"))
                    };
                    let claim = claim(&format!("agent-{n}"), now());
                    let done = mailbox.with_claim(&claim, Duration::from_secs(60), change).expect("claims");
                    assert_eq!(done, Ok(()));
                }
            });
        }
    });
    assert_eq!(mailbox.read_shared(&state).expect("readable").expect("a file").lines().count(), 20);
    assert_eq!(names(&mailbox.root().join(SHARED_DIR)), [CLAIMS_LOCK, STATE_FILE]);
}

#[test]
fn locks_are_readable_by_all_and_inaccessible_ones_are_replaced() {
    use std::os::unix::fs::PermissionsExt as _;
    let (_dir, mailbox) = mailbox();
    let mode = |name: &str| std::fs::metadata(mailbox.root().join(name)).expect("a lock").permissions().mode() & 0o777;
    let shut = |name: &str, mode: u32| {
        let path = mailbox.root().join(name);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("closed");
    };
    let (outbox, claims) = (format!("agents/alpha/{OUTBOX_LOCK}"), format!("{SHARED_DIR}/{CLAIMS_LOCK}"));
    let all = || {
        mailbox.send(&id("alpha"), &draft("b"), None, now()).expect("sent");
        let at = Timestamp::now();
        assert_eq!(mailbox.claim(&claim("alpha", at), at).expect("claims"), ClaimOutcome::Granted);
        (mode(&outbox), mode(&claims))
    };
    all();
    // As with a umask of 077: the next attempt has another user.
    shut(&outbox, 0o600);
    shut(&claims, 0o600);
    assert_eq!(all(), (0o644, 0o644));
    // Inaccessible to everybody, or a link (root can open the former, but not the latter).
    shut(&outbox, 0o000);
    std::fs::remove_file(mailbox.root().join(&claims)).expect("removed");
    symlink("/nowhere/lock", mailbox.root().join(&claims)).expect("linked");
    assert_eq!(all(), (0o644, 0o644));
    assert!(mailbox.root().join(&claims).symlink_metadata().expect("there").is_file());
    // Where it cannot give way there is no claim: nobody writes as if there were one.
    std::fs::remove_file(mailbox.root().join(&claims)).expect("removed");
    std::fs::create_dir(mailbox.root().join(&claims)).expect("created");
    let at = Timestamp::now();
    assert!(mailbox.claim(&claim("alpha", at), at).is_err());
}
