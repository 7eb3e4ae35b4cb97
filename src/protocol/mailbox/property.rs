//! Random conversations over a real folder: of each sender exactly the reader's messages are delivered, whole, once, in order.
//!
//! Two senders and a reader do random things: send short, long, foreign and expired messages; files are lost, torn or doubled;
//! time goes by; now and then somebody looks. In the end everybody looks until nothing happens any more.

use std::collections::BTreeSet;
use std::fs;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::agent_mailbox::AgentMailbox;
use super::machine::Warning;
use super::message::{AgentId, MailboxDraft, MailboxMessage, MailboxMessageType, MessageRecipient, Seq};
use super::store::Mailbox;

#[derive(Debug, Clone)]
enum SimulationStep {
    /// A sender says something: to whom, how long, whether it is expired when it is read.
    Send { sender: usize, to: usize, lines: usize, expires: bool },
    /// A file of a sender is removed.
    Remove { sender: usize, which: usize },
    /// ... and its copy too.
    RemoveWithCopy { sender: usize, which: usize },
    /// A file of a sender is cut short.
    Truncate { sender: usize, which: usize, at: usize },
    /// A file of a sender is there under another name as well.
    Duplicate { sender: usize, which: usize },
    /// A file that is no message.
    AddJunk { sender: usize, name: usize },
    /// Somebody looks: the reader is 2.
    Collect { who: usize },
    /// Time goes by.
    AdvanceTime { millis: i64 },
}

fn simulation_steps() -> impl Strategy<Value = Vec<SimulationStep>> {
    let (sender, which) = (0..2_usize, 0..20_usize);
    let deed = prop_oneof![
        6 => (sender.clone(), 0..4_usize, prop_oneof![Just(1_usize), Just(1), Just(900)], prop::bool::weighted(0.1))
            .prop_map(|(sender, to, lines, expires)| SimulationStep::Send { sender, to, lines, expires }),
        2 => (sender.clone(), which.clone()).prop_map(|(sender, which)| SimulationStep::Remove { sender, which }),
        1 => (sender.clone(), which.clone()).prop_map(|(sender, which)| SimulationStep::RemoveWithCopy { sender, which }),
        1 => (sender.clone(), which.clone(), 0..200_usize).prop_map(|(sender, which, at)| SimulationStep::Truncate { sender, which, at }),
        1 => (sender.clone(), which).prop_map(|(sender, which)| SimulationStep::Duplicate { sender, which }),
        1 => (sender, 0..3_usize).prop_map(|(sender, name)| SimulationStep::AddJunk { sender, name }),
        3 => (0..3_usize).prop_map(|who| SimulationStep::Collect { who }),
        2 => (1..500_i64).prop_map(|millis| SimulationStep::AdvanceTime { millis }),
    ];
    proptest::collection::vec(deed, 1..40)
}

/// What a sender said, as the reader should get it.
struct SentMessage {
    message: MailboxMessage,
    files: Vec<Seq>,
    lost: bool,
}

struct MailboxSimulation {
    dir: tempfile::TempDir,
    now: Timestamp,
    sent: [Vec<SentMessage>; 2],
    /// What was removed or torn: each file once, for what is asked for is asked for once.
    damaged: BTreeSet<(usize, Seq)>,
    delivered: Vec<MailboxMessage>,
    warnings: Vec<Warning>,
}

const NAMES: [&str; 3] = ["alpha", "bravo", "reader"];

fn id(who: usize) -> AgentId {
    NAMES[who].parse().expect("an id")
}

impl MailboxSimulation {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Mailbox::create(folder.path()).expect("made");
        let now = Timestamp::from_second(1_771_500_000).expect("a time");
        Self {
            dir: folder,
            now,
            sent: Default::default(),
            damaged: BTreeSet::new(),
            delivered: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn agent_mailbox(&self, who: usize) -> AgentMailbox {
        let mailbox = Mailbox::open(self.dir.path()).expect("a mailbox");
        AgentMailbox::new(mailbox, id(who), &self.dir.path().join("private").join(NAMES[who]))
    }

    fn file(&self, sender: usize, seq: Seq) -> std::path::PathBuf {
        self.dir.path().join("agents").join(NAMES[sender]).join(seq.file_name())
    }

    fn collect(&mut self, who: usize) {
        let batch = self.agent_mailbox(who).collect(self.now).expect("collected");
        if who == 2 {
            self.delivered.extend(batch.messages.iter().map(|letter| letter.message.clone()));
            self.warnings.extend(batch.warnings.iter().cloned());
        }
        batch.commit().expect("kept");
    }

    fn was_delivered(&self, of: &MailboxMessage) -> bool {
        self.delivered.iter().any(|message| message.reference() == of.reference())
    }

    fn send(&mut self, sender: usize, to: usize, lines: usize, expires: bool) {
        let to = if to == 3 { MessageRecipient::Broadcast } else { MessageRecipient::Agent(id(to)) };
        let body: Vec<String> = (0..lines).map(|line| format!("line {line} of {}", self.sent[sender].len())).collect();
        // An hour before it is read, and good for a minute.
        let ttl = expires.then_some(1);
        let at = if expires { self.now - SignedDuration::from_hours(1) } else { self.now };
        let draft =
            MailboxDraft { ttl, ..MailboxDraft::new(to, MailboxMessageType::Status, "subject", body.join("\n")) };
        let sent = self.agent_mailbox(sender).send(&draft, at).expect("sent");
        let files = sent.iter().map(|message| message.seq).collect();
        let message = super::parts::join(&sent).expect("there are some");
        let message = MailboxMessage { part: None, ..message };
        self.sent[sender].push(SentMessage { message, files, lost: false });
    }

    /// A file of a sender, if it has any.
    fn pick(&self, sender: usize, which: usize) -> Option<(usize, Seq)> {
        let said = &self.sent[sender];
        let at = which.checked_rem(said.len())?;
        let seq = said[at].files[which % said[at].files.len()];
        Some((at, seq))
    }

    /// A file that was not hurt yet.
    fn pick_undamaged(&mut self, sender: usize, which: usize) -> Option<(usize, Seq)> {
        self.pick(sender, which).filter(|(_, seq)| self.damaged.insert((sender, *seq)))
    }

    fn run_step(&mut self, deed: &SimulationStep) {
        match *deed {
            SimulationStep::Send { sender, to, lines, expires } => self.send(sender, to, lines, expires),
            SimulationStep::Remove { sender, which } => {
                if let Some((_, seq)) = self.pick_undamaged(sender, which) {
                    let _ = fs::remove_file(self.file(sender, seq));
                }
            }
            SimulationStep::RemoveWithCopy { sender, which } => {
                // A message in parts would come without one of them: that has tests of its own.
                if let Some((at, seq)) =
                    self.pick(sender, which).filter(|(at, _)| self.sent[sender][*at].files.len() == 1)
                {
                    let double = self.file(sender, seq).with_file_name(format!("0{seq}.md"));
                    for file in [self.file(sender, seq), double] {
                        let _ = fs::remove_file(file);
                    }
                    let copy = self.dir.path().join("private").join(NAMES[sender]).join("sent").join(seq.file_name());
                    let _ = fs::remove_file(copy);
                    let message = &self.sent[sender][at].message;
                    let expired = self.warnings.contains(&Warning::Expired(message.reference()));
                    let read = expired || self.was_delivered(message);
                    self.sent[sender][at].lost |= !read;
                }
            }
            SimulationStep::Truncate { sender, which, at } => {
                if let Some((_, seq)) = self.pick_undamaged(sender, which)
                    && let Ok(bytes) = fs::read(self.file(sender, seq))
                {
                    // The header is never whole in this many bytes.
                    fs::write(self.file(sender, seq), &bytes[..at.min(bytes.len().min(120))]).expect("torn");
                }
            }
            SimulationStep::Duplicate { sender, which } => {
                if let Some((_, seq)) = self.pick(sender, which) {
                    let other = self.file(sender, seq).with_file_name(format!("0{seq}.md"));
                    let _ = fs::copy(self.file(sender, seq), other);
                }
            }
            SimulationStep::AddJunk { sender, name } => {
                let name = ["notes.md", ".010.md", "x"][name];
                let outbox = self.dir.path().join("agents").join(NAMES[sender]);
                fs::create_dir_all(&outbox).expect("made");
                fs::write(outbox.join(name), "junk").expect("written");
            }
            SimulationStep::Collect { who } => self.collect(who),
            SimulationStep::AdvanceTime { millis } => self.now += SignedDuration::from_millis(millis),
        }
    }

    /// Everybody looks until nothing happens any more.
    fn run_until_quiet(&mut self) {
        // Nobody misses the last of all: something comes behind it.
        for sender in 0..2 {
            self.send(sender, 2, 1, false);
        }
        for _ in 0..60 {
            let before = (self.delivered.len(), self.warnings.len());
            for (who, millis) in [(2, 400), (2, 1100), (2, 0), (0, 0), (1, 0), (2, 31_000), (2, 0)] {
                self.collect(who);
                self.now += SignedDuration::from_millis(millis);
            }
            let last = |sender: usize| self.sent[sender].last().is_some_and(|said| self.was_delivered(&said.message));
            if last(0) && last(1) && before == (self.delivered.len(), self.warnings.len()) {
                return;
            }
        }
        panic!("it does not come to an end");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 400, ..ProptestConfig::default() })]

    /// Design Principles.
    #[test]
    fn each_senders_messages_are_delivered_complete_once_and_in_order(deeds in simulation_steps()) {
        let mut world = MailboxSimulation::new();
        for deed in &deeds {
            world.run_step(deed);
        }
        world.run_until_quiet();
        for sender in 0..2 {
            let delivered: Vec<&MailboxMessage> = world.delivered.iter()
                .filter(|message| message.from == id(sender) && message.message_type != MailboxMessageType::Error).collect();
            let due: Vec<&MailboxMessage> = world.sent[sender].iter()
                .filter(|said| !said.lost && said.message.to.is_for(&id(2)) && said.message.ttl.is_none())
                .map(|said| &said.message).collect();
            // Few words where it goes wrong.
            let words = |of: &[&MailboxMessage]| of.iter().map(|one| format!("{} {}", one.reference(), one.content.body.len())).collect::<Vec<_>>();
            prop_assert_eq!(words(&delivered), words(&due), "{:?}", world.warnings);
            prop_assert!(delivered == due, "the same messages say something else");
            // Every gap is found: what is lost for good is named.
            let named: BTreeSet<Seq> = world.warnings.iter().filter_map(|warning| match warning {
                Warning::Lost(missing) if missing.from == id(sender) => Some((missing.first.get()..=missing.last.get()).filter_map(Seq::new)),
                _ => None,
            }).flatten().collect();
            for said in world.sent[sender].iter().filter(|said| said.lost && said.message.to.is_for(&id(2))) {
                prop_assert!(named.contains(&said.message.seq), "{} was lost", said.message.reference());
            }
        }
    }
}
