//! A swarm's mailbox, between its volume and the host's copy (`.longshore/swarms/<id>/mailbox/`): one task carries what is new
//! both ways, gives agents their outboxes before their sandboxes start, and keeps the roster.
//!
//! | what | who says how it is |
//! |---|---|
//! | messages of sandboxes' agents | the volume: the copy gets them, in the order of their numbers |
//! | messages of people and other agents on the host | the copy: the volume gets them |
//! | `ROSTER.md` | the copy, where this task and `longshore mailbox` change it under its lock; the volume gets it |
//! | shared files and claims | whoever changed them last; where both did, the volume, and the host's are set aside |
//!
//! | how an agent stands | when |
//! |---|---|
//! | `active` | its sandbox is about to start |
//! | `done` | it said DONE since then, and nothing behind it |
//! | `crashed` | its container ended by itself, or was ended by somebody else, with an error and before that |
//! | `left` | its sandbox is over otherwise; or the swarm is, for whoever is still there then, on the host too |
//!
//! Called by `run.rs` (open, close) and by sessions (seat, left), which wait for nothing but their own agent's seat. A depot
//! that dies is brought back by its keeper; one that cannot be is asked again from time to time. Must not: hold up the loop, or
//! end the swarm.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinError;
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::engine::depot::Depot;
use crate::engine::depot::mailbox::{MailNews, MailWritten};
use crate::engine::{EngineError, EngineResult};
use crate::handoff::assignment::MailboxSeat;
use crate::handoff::mailbox::{MailAsk, MailFile, Numbers, PUT_BYTES};
use crate::ids::AgentId;
use crate::plan::{Plan, PlannedSeat};
use crate::protocol::mailbox::message::{Kind, Seq};
use crate::protocol::mailbox::roster::{Roster, Row, Status};
use crate::protocol::mailbox::store::{MailboxResult, PROTOCOL_FILE, PROTOCOL_TEXT, ROSTER_FILE};
use crate::state::SwarmDir;
use crate::swarm::Machine;

use super::CoordinatorError;
use super::run::{blocking, until};
use super::session::chain;

mod copy;
mod goals;
mod standing;
mod summary;

pub use standing::Standing;

use copy::{Arrival, HostCopy};

/// The host's copy, in the swarm's folder.
pub const COPY_DIR: &str = "mailbox";
/// How long the depot waits for something new before it says that there is nothing.
const WAIT: Duration = Duration::from_secs(20);
/// How long a session waits for its agent's row in the roster: the outbox, which it needs, is there by then.
const SEATING: Duration = Duration::from_secs(10);
/// How long the last messages may take to come out.
const CLOSING: Duration = Duration::from_secs(20);
/// From one failure to the next try, and the most that this grows to.
const TRY_AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// What somebody on the host is there for, who does not say.
const HOST_ROLE: &str = "on the host";

/// An agent in its place.
#[derive(Debug, Clone)]
pub(super) struct Seat {
    /// Who, and what for.
    pub seat: MailboxSeat,
    /// Its sandbox's user.
    pub uid: u32,
}

/// How a sandbox's end looks from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Departure {
    /// By itself and without an error, or because it was told to.
    Ended,
    /// Otherwise.
    Crashed,
}

enum Order {
    Seated { seat: MailboxSeat, known: oneshot::Sender<()> },
    Left { agent: AgentId, how: Departure },
    Close { over: bool, closed: oneshot::Sender<()> },
}

/// The way to the task.
#[derive(Clone)]
pub(super) struct Mail {
    depot: Depot,
    orders: mpsc::UnboundedSender<Order>,
}

impl Mail {
    /// Gives an agent its outbox, and waits until the roster has it.
    pub(super) async fn seat(&self, seat: &Seat) -> EngineResult<()> {
        self.depot.mail_seat(&seat.seat.agent, seat.uid).await?;
        let (known, is_known) = oneshot::channel();
        let _ = self.orders.send(Order::Seated { seat: seat.seat.clone(), known });
        let _ = timeout(SEATING, is_known).await;
        Ok(())
    }

    /// Its sandbox is over.
    pub(super) fn left(&self, agent: &AgentId, how: Departure) {
        let _ = self.orders.send(Order::Left { agent: agent.clone(), how });
    }

    /// Brings out what is left. `over`: nobody goes on with the swarm.
    pub(super) async fn close(&self, over: bool) {
        let (closed, is_closed) = oneshot::channel();
        let _ = self.orders.send(Order::Close { over, closed });
        if timeout(CLOSING, is_closed).await.is_err() {
            tracing::warn!("the last messages did not come out of the mailbox in time");
        }
    }
}

/// Who all the sandboxes' agents can be.
pub(super) fn sandboxes(seats: &[PlannedSeat]) -> BTreeSet<AgentId> {
    seats.iter().flat_map(|seat| [seat.agent.clone(), seat.reviewer().agent]).collect()
}

/// Opens the mailbox and starts its task: the copy is made where it is not there, and a volume that is gone is filled again
/// from it.
///
/// # Errors
/// Those of the depot and of the copy.
pub(super) async fn open(
    depot: &Depot,
    dir: &SwarmDir,
    plan: &Plan,
    before: Option<&Machine>,
) -> Result<(Mail, AbortOnDropHandle<()>), CoordinatorError> {
    let copy = blocking(|| HostCopy::open(&dir.path(), sandboxes(&plan.seats)))?;
    let mut carrier = Carrier::new(depot.clone(), copy);
    let (fresh, there) = depot.mail_open().await?;
    carrier.there = there;
    if fresh {
        blocking(|| carrier.copy.forget_volume());
    }
    carrier.known.messages = blocking(|| carrier.copy.messages())?;
    carrier.known.shared = carrier.copy.shared_stamps();
    let sandboxes = sandboxes(&plan.seats);
    for agent in &sandboxes {
        let last = carrier.known.messages.get(agent.as_str()).and_then(Numbers::last).and_then(Seq::new);
        carrier.words.extend(last.map(|last| (agent.clone(), last)));
    }
    blocking(|| Standing { sandboxes, over: false }.keep(&dir.path()));
    match before {
        Some(machine) => carrier.take_up(&plan.seats, machine),
        None => drop(told(blocking(|| goals::write(carrier.copy.mailbox(), plan)), "STATE.md cannot be written")),
    }
    carrier.put(vec![MailFile::text(PROTOCOL_FILE, PROTOCOL_TEXT)]).await?;
    // A swarm that begins has nobody yet who could be in the middle of writing, and its goal is to be there before its agents.
    carrier.carry_in(true, before.is_none()).await?;
    carrier.put_roster().await?;
    let (orders, orders_in) = mpsc::unbounded_channel();
    let task = AbortOnDropHandle::new(tokio::spawn(carrier.run(orders_in)));
    Ok((Mail { depot: depot.clone(), orders }, task))
}

/// What is known of a sandbox's agent.
#[derive(Debug, Default)]
struct Agent {
    /// What it said before it was seated counts no more.
    before: Option<Seq>,
    /// It has signed off since, and said no more.
    done: bool,
    /// Its sandbox is over.
    over: bool,
}

/// A question to the depot that is under way.
type Asked = AbortOnDropHandle<EngineResult<MailNews>>;

/// Its answer.
fn answer(asked: Result<EngineResult<MailNews>, JoinError>) -> EngineResult<MailNews> {
    asked.unwrap_or_else(|panicked| {
        Err(EngineError::Failed { operation: "waiting for mail", source: Box::new(panicked) })
    })
}

struct Carrier {
    depot: Depot,
    copy: HostCopy,
    /// The messages that the volume has, as far as they are the host's to put there.
    there: BTreeMap<String, Numbers>,
    /// What the copy has.
    known: MailAsk,
    agents: BTreeMap<AgentId, Agent>,
    /// The last message of each that says how it stands.
    words: BTreeMap<AgentId, Seq>,
    /// The roster that the volume has.
    roster: String,
    /// When to look at the copy again, because something in it is being written.
    look_again: Option<Instant>,
    /// Failures in a row.
    troubles: u32,
}

impl Carrier {
    fn new(depot: Depot, copy: HostCopy) -> Self {
        Self {
            depot,
            copy,
            there: BTreeMap::new(),
            known: MailAsk::default(),
            agents: BTreeMap::new(),
            words: BTreeMap::new(),
            roster: String::new(),
            look_again: None,
            troubles: 0,
        }
    }

    /// The agents of sandboxes that run on from before.
    fn take_up(&mut self, seats: &[PlannedSeat], machine: &Machine) {
        for view in machine.attempts() {
            let place = machine.spec().assignments.iter().position(|one| one.id == view.id.assignment);
            let Some(seat) = place.and_then(|place| seats.get(place)) else { continue };
            let agent = if view.review.is_some() { seat.reviewer().agent } else { seat.agent.clone() };
            self.agents.entry(agent).or_default();
        }
        let rows = self.copy.mailbox().roster().map(|roster| roster.rows()).unwrap_or_default();
        for (agent, state) in &mut self.agents {
            state.done = rows.iter().any(|row| row.id == *agent && row.status == Status::Done);
        }
    }

    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let mut changes = copy::watch(self.copy.root());
        let mut waiting: Option<Asked> = None;
        let mut not_before: Option<Instant> = None;
        loop {
            if waiting.is_none() && not_before.is_none_or(|time| time <= Instant::now()) {
                not_before = None;
                waiting = Some(self.ask(WAIT, false));
            }
            let carried = tokio::select! {
                biased;
                order = orders.recv() => match order {
                    None => return,
                    Some(Order::Seated { seat, known }) => {
                        self.seated(&seat);
                        let put = self.put_roster().await;
                        let _ = known.send(());
                        put
                    }
                    Some(Order::Left { agent, how }) => self.left(&agent, how).await,
                    Some(Order::Close { over, closed }) => {
                        drop(waiting);
                        self.finish(over).await;
                        let _ = closed.send(());
                        return;
                    }
                },
                news = async { waiting.as_mut().expect("asked for while it is waited for").await }, if waiting.is_some() => {
                    waiting = None;
                    match answer(news) {
                        Ok(news) => {
                            self.troubles = 0;
                            self.take_in(news);
                            Ok(())
                        }
                        Err(error) => Err(error),
                    }
                }
                changed = changes.recv() => match changed {
                    Some(()) => self.carry_in(false, false).await,
                    // The thread has died: what people write is seen by another.
                    None => {
                        changes = copy::watch(self.copy.root());
                        Ok(())
                    }
                },
                () = until(self.look_again) => self.carry_in(false, false).await,
                () = until(not_before), if waiting.is_none() => Ok(()),
            };
            let told = match carried {
                Ok(()) => self.put_roster().await,
                Err(error) => Err(error),
            };
            if let Err(error) = told {
                not_before = Some(Instant::now() + self.trouble(&error));
            }
        }
    }

    /// Notes that the depot did not do what it was asked. Gives how long to leave it alone.
    fn trouble(&mut self, error: &EngineError) -> Duration {
        if self.troubles == 0 {
            tracing::warn!(error = %chain(error), "the mailbox waits: the depot does not answer");
        }
        self.troubles = self.troubles.saturating_add(1);
        (TRY_AGAIN.0 * self.troubles).min(TRY_AGAIN.1)
    }

    /// Asks by a task of its own: it may be in the middle of starting the depot again, which others wait for, whatever this
    /// one does.
    fn ask(&self, within: Duration, settled: bool) -> Asked {
        let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let ask = MailAsk { within_ms, settled, ..self.known.clone() };
        let depot = self.depot.clone();
        AbortOnDropHandle::new(tokio::spawn(async move { depot.mail_wait(ask).await }))
    }

    fn seated(&mut self, seat: &MailboxSeat) {
        let before = self.known.messages.get(seat.agent.as_str()).and_then(|numbers| numbers.last()).and_then(Seq::new);
        self.agents.insert(seat.agent.clone(), Agent { before, ..Agent::default() });
        let row = Row::new(seat.agent.clone(), seat.role.clone(), None, Timestamp::now());
        self.change_roster(&seat.agent, |known| match known {
            Some(known) if known.status == Status::Active => None,
            // One that is tried again registers again; by when it started, others know.
            _ => Some(Change::Row(row.clone())),
        });
    }

    async fn left(&mut self, agent: &AgentId, how: Departure) -> EngineResult<()> {
        // Its last word may be in the mailbox: a DONE, or what it said behind one.
        let said_done = self.agents.get(agent).is_some_and(|state| state.done);
        let drained = if how == Departure::Ended || said_done { self.drain(true).await } else { Ok(()) };
        if let Some(state) = self.agents.get_mut(agent) {
            state.over = true;
            if !state.done {
                self.set_status(agent, if how == Departure::Crashed { &Status::Crashed } else { &Status::Left });
            }
        }
        drained
    }

    fn set_status(&mut self, agent: &AgentId, status: &Status) {
        self.change_roster(agent, |known| match known {
            Some(known) if known.status != *status => Some(Change::Status(status.clone())),
            _ => None,
        });
    }

    fn change_roster(&mut self, agent: &AgentId, what: impl Fn(Option<&Row>) -> Option<Change>) {
        let changed = blocking(|| {
            self.copy.mailbox().change_roster(|roster| {
                Ok(match what(roster.row(agent).as_ref()) {
                    None => false,
                    Some(Change::Row(row)) => {
                        roster.add(&row);
                        true
                    }
                    Some(Change::Status(status)) => roster.set_status(agent, &status),
                })
            })
        });
        told(changed, "the roster cannot be written");
    }

    /// Gives the volume the roster of the copy.
    async fn put_roster(&mut self) -> EngineResult<()> {
        let Some(mut roster) = told(blocking(|| self.copy.mailbox().roster()), "the roster cannot be read") else {
            return Ok(());
        };
        let known = Roster::of(self.roster.as_str());
        if roster.rows().is_empty() && !known.rows().is_empty() {
            tracing::warn!("the roster was lost, and is written again");
            let restored = blocking(|| {
                self.copy.mailbox().change_roster(|lost| {
                    known.rows().iter().for_each(|row| lost.add(row));
                    Ok(true)
                })?;
                self.copy.mailbox().roster()
            });
            let Some(restored) = told(restored, "the roster cannot be written") else { return Ok(()) };
            roster = restored;
        }
        if roster.text() != self.roster {
            self.put(vec![MailFile::text(ROSTER_FILE, roster.text())]).await?;
            roster.text().clone_into(&mut self.roster);
        }
        Ok(())
    }

    /// Puts files into the volume, as many at once as fit. What was kept out is the caller's to know.
    async fn put(&mut self, files: Vec<MailFile>) -> EngineResult<MailWritten> {
        let mut written = MailWritten::default();
        let mut files = files.into_iter().peekable();
        while files.peek().is_some() {
            let (mut batch, mut bytes) = (Vec::new(), 0);
            while let Some(file) = files.next_if(|file| batch.is_empty() || bytes + file.json_len() <= PUT_BYTES) {
                bytes += file.json_len();
                batch.push(file);
            }
            let part = self.depot.mail_put(batch).await?;
            written.stamps.extend(part.stamps);
            written.kept.extend(part.kept);
        }
        Ok(written)
    }

    /// Takes in what came out of the volume.
    fn take_in(&mut self, news: MailNews) {
        let arrivals = blocking(|| self.copy.take_in(&news));
        for arrival in arrivals {
            match arrival {
                Arrival::Message(agent, seq, kind) => {
                    self.known.messages.entry(agent.to_string()).or_default().insert(seq.get());
                    self.heard(&agent, seq, kind);
                }
                Arrival::Shared(name, stamp) => drop(self.known.shared.insert(name, stamp)),
            }
        }
        for name in &news.gone {
            self.known.shared.remove(name);
        }
        for refused in news.refused {
            let (path, why) = (refused.path, refused.why);
            tracing::warn!(path, why, "something in the mailbox is not carried to the host");
            self.known.refused.push(refused.key);
        }
    }

    /// An agent said something: a DONE is the end until more is said. Who asks for a message again has not come back for
    /// that, and what was said in an earlier attempt does not count.
    fn heard(&mut self, agent: &AgentId, seq: Seq, kind: Option<Kind>) {
        let Some(kind) = kind.filter(|kind| *kind != Kind::Error) else { return };
        if self.words.get(agent).is_some_and(|last| *last >= seq) {
            return;
        }
        self.words.insert(agent.clone(), seq);
        let done = kind == Kind::Done;
        if let Some(state) = self.agents.get_mut(agent) {
            if state.before >= Some(seq) || (state.over && !done) {
                return;
            }
            state.done = done;
        }
        self.change_roster(agent, |known| match known?.status {
            Status::Done if !done => Some(Change::Status(Status::Active)),
            Status::Done => None,
            _ => done.then_some(Change::Status(Status::Done)),
        });
    }

    /// Brings out all that there is now. `settled`: nobody writes any more.
    async fn drain(&mut self, settled: bool) -> EngineResult<()> {
        loop {
            let news = answer(self.ask(Duration::ZERO, settled).await)?;
            let (more, empty) = (news.more, news.files.is_empty());
            self.take_in(news);
            if !more || empty {
                return Ok(());
            }
        }
    }

    /// Forgets the messages that the copy has lost. Whether there are any.
    fn forget_lost(&mut self) -> bool {
        let has = told(blocking(|| self.copy.messages()), "the host's copy of the mailbox cannot be read");
        let Some(mut has) = has else { return false };
        let mut lost = false;
        for (agent, known) in &mut self.known.messages {
            lost |= known.retain(&has.remove(agent).unwrap_or_default());
        }
        lost
    }

    /// Carries what is new on the host into the volume, and mends what the copy has lost. `all`: also what sandboxes' agents
    /// sent and the volume has lost. `settled`: nobody writes any more.
    async fn carry_in(&mut self, all: bool, settled: bool) -> EngineResult<()> {
        self.look_again = None;
        if self.forget_lost() {
            self.drain(settled).await?;
        }
        let there = &self.there;
        let found = blocking(|| {
            self.copy.find_new(all, settled, |agent, seq| {
                there.get(agent.as_str()).is_some_and(|numbers| numbers.contains(seq.get()))
            })
        });
        self.look_again = self.copy.is_restless().then(|| Instant::now() + copy::SETTLE);
        let Some(found) = told(found, "the host's copy of the mailbox cannot be read") else { return Ok(()) };
        if found.is_empty() {
            return Ok(());
        }
        let written = self.put(found.iter().map(|file| file.file.clone()).collect()).await?;
        for (agent, seq, kind) in found.iter().filter_map(|file| file.message.clone()) {
            self.there.entry(agent.to_string()).or_default().insert(seq.get());
            // It would come back as news.
            self.known.messages.entry(agent.to_string()).or_default().insert(seq.get());
            if !self.copy.is_sandbox(&agent) {
                self.heard_on_host(&agent, seq, kind);
            }
        }
        for path in &written.kept {
            tracing::warn!(path, "what the host has is not put into the mailbox: something else is there");
        }
        blocking(|| self.copy.carried_in(&found, &written));
        self.known.shared = self.copy.shared_stamps();
        Ok(())
    }

    /// Somebody on the host wrote: whoever does not know the roster gets a row all the same.
    fn heard_on_host(&mut self, agent: &AgentId, seq: Seq, kind: Option<Kind>) {
        let row = Row::new(agent.clone(), HOST_ROLE, None, Timestamp::now());
        self.change_roster(agent, |known| known.is_none().then(|| Change::Row(row.clone())));
        self.heard(agent, seq, kind);
    }

    async fn finish(&mut self, over: bool) {
        if let Err(error) = self.drain(true).await {
            tracing::warn!(error = %chain(&error), "cannot bring the last messages out of the mailbox");
        }
        if let Err(error) = self.carry_in(false, true).await {
            tracing::warn!(error = %chain(&error), "the last messages of the host do not reach the mailbox");
        }
        if over {
            self.end();
            told(blocking(|| summary::write(self.copy.mailbox(), Timestamp::now())), "the summary cannot be written");
            // For who looks into volumes that are kept.
            let _ = self.carry_in(false, true).await;
        }
        let _ = self.put_roster().await;
    }

    /// Nobody is left who could write, on the host neither: nobody would read it.
    fn end(&mut self) {
        let left = blocking(|| {
            self.copy.mailbox().change_roster(|roster| {
                let mut changed = false;
                for row in roster.rows().iter().filter(|row| !row.status.is_gone()) {
                    changed |= roster.set_status(&row.id, &Status::Left);
                }
                Ok(changed)
            })
        });
        told(left, "the roster cannot be written");
        blocking(|| Standing::end(self.copy.folder()));
    }
}

enum Change {
    Row(Row),
    Status(Status),
}

impl MailFile {
    fn text(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: Some(text.to_owned()), only_if: String::new() }
    }
}

/// A value, or a line in the log: the mailbox is no reason to end a swarm.
fn told<T>(result: MailboxResult<T>, what: &str) -> Option<T> {
    result.inspect_err(|error| tracing::warn!(error = %chain(error), "{what}")).ok()
}

/// Brings out what is in the mailbox of a swarm that nobody goes on with.
pub(super) async fn bring_out(depot: &Depot, folder: &Path) -> Result<(), CoordinatorError> {
    let copy = blocking(|| HostCopy::open(folder, BTreeSet::new()))?;
    let mut carrier = Carrier::new(depot.clone(), copy);
    let (fresh, _) = depot.mail_open().await?;
    if !fresh {
        carrier.known.messages = blocking(|| carrier.copy.messages())?;
        carrier.known.shared = carrier.copy.shared_stamps();
        carrier.drain(true).await?;
    }
    carrier.end();
    Ok(())
}
