//! Random conversations in a real directory: each sender's messages for the reader are delivered complete, once and in order.
//!
//! Two senders and a reader take random steps: they send short, long, expired messages and messages for others; files are lost,
//! truncated or duplicated; time passes; agents collect. Finally all agents collect until nothing changes. Only one of the senders
//! loses files: see `messages_behind_mutual_gaps_are_delivered_late`.

use std::collections::BTreeSet;
use std::fs;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::super::agent_mailbox::AgentMailbox;
use super::super::machine::Warning;
use super::super::message::{AgentId, MailboxDraft, MailboxMessage, MailboxMessageType, MessageRecipient, Seq};
use super::super::store::Mailbox;

/// One step of an agent or of fate. A sender is 0 or 1; the reader is 2.
#[derive(Debug, Clone)]
enum SimulationStep {
    /// `expires`: before it can be read.
    Send { sender: usize, to: usize, lines: usize, expires: bool },
    /// Removes a sender's file.
    Remove { sender: usize, which: usize },
    /// Also removes the sender's copy.
    RemoveWithCopy { sender: usize, which: usize },
    /// Cuts a sender's file short.
    Truncate { sender: usize, which: usize, at: usize },
    /// Copies a file to another name with the same number.
    Duplicate { sender: usize, which: usize },
    /// Adds a file that is not a message.
    AddJunk { sender: usize, name: usize },
    /// An agent collects its messages.
    Collect { who: usize },
    /// Lets time pass.
    AdvanceTime { millis: i64 },
}

fn simulation_steps() -> impl Strategy<Value = Vec<SimulationStep>> {
    (0..2_usize).prop_flat_map(|damaged| proptest::collection::vec(simulation_step(damaged), 1..40))
}

/// `damaged` is the sender that loses files.
fn simulation_step(damaged: usize) -> impl Strategy<Value = SimulationStep> {
    let (sender, which) = (0..2_usize, 0..20_usize);
    prop_oneof![
        6 => (sender.clone(), 0..4_usize, prop_oneof![Just(1_usize), Just(1), Just(900)], prop::bool::weighted(0.1))
            .prop_map(|(sender, to, lines, expires)| SimulationStep::Send { sender, to, lines, expires }),
        2 => which.clone().prop_map(move |which| SimulationStep::Remove { sender: damaged, which }),
        1 => which.clone().prop_map(move |which| SimulationStep::RemoveWithCopy { sender: damaged, which }),
        1 => (which.clone(), 0..200_usize).prop_map(move |(which, at)| SimulationStep::Truncate { sender: damaged, which, at }),
        1 => (sender.clone(), which).prop_map(|(sender, which)| SimulationStep::Duplicate { sender, which }),
        1 => (sender, 0..3_usize).prop_map(|(sender, name)| SimulationStep::AddJunk { sender, name }),
        3 => (0..3_usize).prop_map(|who| SimulationStep::Collect { who }),
        2 => (1..500_i64).prop_map(|millis| SimulationStep::AdvanceTime { millis }),
    ]
}

/// A message as the reader should receive it.
struct SentMessage {
    message: MailboxMessage,
    files: Vec<Seq>,
    lost: bool,
}

struct MailboxSimulation {
    dir: tempfile::TempDir,
    now: Timestamp,
    sent: [Vec<SentMessage>; 2],
    /// Removed or truncated files. Each is damaged only once, because a resend is requested only once.
    damaged: BTreeSet<(usize, Seq)>,
    /// Messages, and whether they are late.
    delivered: Vec<(MailboxMessage, bool)>,
    warnings: Vec<Warning>,
}

const NAMES: [&str; 3] = ["alpha", "bravo", "reader"];

fn id(who: usize) -> AgentId {
    NAMES[who].parse().expect("an id")
}

impl MailboxSimulation {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        Mailbox::create(dir.path()).expect("created");
        let now = Timestamp::from_second(1_771_500_000).expect("a time");
        Self {
            dir,
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
            self.delivered.extend(batch.messages.iter().map(|delivered| (delivered.message.clone(), delivered.late)));
            self.warnings.extend(batch.warnings.iter().cloned());
        }
        batch.commit().expect("committed");
    }

    fn was_delivered(&self, of: &MailboxMessage) -> bool {
        self.delivered.iter().any(|(message, _)| message.reference() == of.reference())
    }

    fn send(&mut self, sender: usize, to: usize, lines: usize, expires: bool) {
        let to = if to == 3 { MessageRecipient::Broadcast } else { MessageRecipient::Agent(id(to)) };
        let body: Vec<String> = (0..lines).map(|line| format!("line {line} of {}", self.sent[sender].len())).collect();
        // Sent an hour ago with a ttl of a minute.
        let ttl = expires.then_some(1);
        let at = if expires { self.now - SignedDuration::from_hours(1) } else { self.now };
        let draft =
            MailboxDraft { ttl, ..MailboxDraft::new(to, MailboxMessageType::Status, "subject", body.join("\n")) };
        let sent = self.agent_mailbox(sender).send(&draft, at).expect("sent");
        let files = sent.iter().map(|message| message.seq).collect();
        let message = super::super::parts::join(&sent).expect("there are some");
        let message = MailboxMessage { part: None, ..message };
        self.sent[sender].push(SentMessage { message, files, lost: false });
    }

    fn pick(&self, sender: usize, which: usize) -> Option<(usize, Seq)> {
        let sent = &self.sent[sender];
        let at = which.checked_rem(sent.len())?;
        let seq = sent[at].files[which % sent[at].files.len()];
        Some((at, seq))
    }

    fn pick_undamaged(&mut self, sender: usize, which: usize) -> Option<(usize, Seq)> {
        self.pick(sender, which).filter(|(_, seq)| self.damaged.insert((sender, *seq)))
    }

    fn run_step(&mut self, step: &SimulationStep) {
        match *step {
            SimulationStep::Send { sender, to, lines, expires } => self.send(sender, to, lines, expires),
            SimulationStep::Remove { sender, which } => {
                if let Some((_, seq)) = self.pick_undamaged(sender, which) {
                    let _ = fs::remove_file(self.file(sender, seq));
                }
            }
            SimulationStep::RemoveWithCopy { sender, which } => {
                // A message in parts would arrive incomplete, which has tests of its own.
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
                    // Too short for a complete header.
                    fs::write(self.file(sender, seq), &bytes[..at.min(bytes.len().min(120))]).expect("truncated");
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
                fs::create_dir_all(&outbox).expect("created");
                fs::write(outbox.join(name), "junk").expect("written");
            }
            SimulationStep::Collect { who } => self.collect(who),
            SimulationStep::AdvanceTime { millis } => self.now += SignedDuration::from_millis(millis),
        }
    }

    /// All agents collect until nothing changes.
    fn run_until_quiet(&mut self) {
        // The loss of a sender's last message is noticed only when another one follows.
        for sender in 0..2 {
            self.send(sender, 2, 1, false);
        }
        let mut quiet_rounds = 0;
        for _ in 0..60 {
            let before = (self.delivered.len(), self.warnings.len());
            // Often enough that a request for a message is answered before it times out.
            for _ in 0..6 {
                for who in [2, 0, 1] {
                    self.collect(who);
                }
                self.now += SignedDuration::from_millis(600);
            }
            self.now += SignedDuration::from_secs(31);
            self.collect(2);
            let last = |sender: usize| self.sent[sender].last().is_some_and(|sent| self.was_delivered(&sent.message));
            let is_quiet = last(0) && last(1) && before == (self.delivered.len(), self.warnings.len());
            quiet_rounds = if is_quiet { quiet_rounds + 1 } else { 0 };
            // A sender may need a round to give up a gap before it sees the request for its message.
            if quiet_rounds == 2 {
                return;
            }
        }
        panic!("the agents do not become quiet");
    }
}

/// Runs the steps and checks what the reader received.
fn check_delivery(steps: &[SimulationStep]) -> Result<(), TestCaseError> {
    let mut simulation = MailboxSimulation::new();
    for step in steps {
        simulation.run_step(step);
    }
    simulation.run_until_quiet();
    let (reader, warnings) = (id(2), &simulation.warnings);
    for sender in 0..2 {
        let is_due = |sent: &&SentMessage| sent.message.to.is_for(&reader) && sent.message.ttl.is_none();
        let due: Vec<&MailboxMessage> =
            simulation.sent[sender].iter().filter(|sent| !sent.lost).filter(is_due).map(|sent| &sent.message).collect();
        let is_from_sender =
            |message: &MailboxMessage| message.from == id(sender) && message.message_type != MailboxMessageType::Error;
        let delivered: Vec<&MailboxMessage> =
            simulation.delivered.iter().map(|(message, _)| message).filter(|message| is_from_sender(message)).collect();
        // Keeps the output of a failure short.
        let summary = |messages: &[&MailboxMessage]| {
            let words = messages.iter().map(|one| format!("{} {}", one.reference(), one.content.body.len()));
            words.collect::<Vec<_>>()
        };
        prop_assert_eq!(summary(&delivered), summary(&due), "{:?}", warnings);
        prop_assert!(delivered == due, "the messages differ in their content");
        // Every permanent loss is reported.
        let is_reported = |seq: Seq| {
            warnings.iter().any(|warning| {
                matches!(warning, Warning::Lost(range)
                    if range.from == id(sender) && (range.first..=range.last).contains(&seq))
            })
        };
        for sent in simulation.sent[sender].iter().filter(|sent| sent.lost && sent.message.to.is_for(&reader)) {
            prop_assert!(is_reported(sent.message.seq), "the loss of {} is not reported", sent.message.reference());
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 400, ..ProptestConfig::default() })]

    /// Design Principles.
    #[test]
    fn each_senders_messages_are_delivered_complete_once_and_in_order(steps in simulation_steps()) {
        check_delivery(&steps)?;
    }
}

/// The reader relies on bravo's request for a message of alpha. Alpha can read it only after a gap of bravo, and its own request for
/// that is behind the gap that bravo waits for. The agents give up their gaps when they time out.
#[test]
fn messages_behind_mutual_gaps_are_delivered_late() {
    use SimulationStep::{AdvanceTime, Collect, Remove, Send};
    let steps = [
        Send { sender: 0, to: 2, lines: 1, expires: false },
        Remove { sender: 0, which: 0 },
        Send { sender: 0, to: 0, lines: 1, expires: false },
        Collect { who: 1 },
        Send { sender: 1, to: 0, lines: 1, expires: false },
        AdvanceTime { millis: 82 },
        Collect { who: 2 },
        AdvanceTime { millis: 218 },
        Remove { sender: 1, which: 0 },
        Collect { who: 1 },
    ];
    let mut simulation = MailboxSimulation::new();
    steps.iter().for_each(|step| simulation.run_step(step));
    simulation.run_until_quiet();
    let delivered: Vec<(String, bool)> =
        simulation.delivered.iter().map(|(message, late)| (message.reference().to_string(), *late)).collect();
    assert!(delivered.contains(&("alpha/001".to_owned(), true)), "{delivered:?}");
    assert!(delivered.contains(&("alpha/003".to_owned(), false)), "{delivered:?}");
}
