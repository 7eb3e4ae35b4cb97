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

use crate::engine::depot::DepotClient;
use crate::engine::depot::mailbox::{MailboxChanges, MailboxWriteOutcome};
use crate::engine::{EngineError, EngineResult};
use crate::handoff::assignment::MailboxMembership;
use crate::handoff::mailbox::{MAX_PUT_BYTES, MailFileWrite, MailQuery, MessageNumbers};
use crate::ids::AgentId;
use crate::plan::{Plan, PlannedAgent};
use crate::protocol::mailbox::message::{MailboxMessageType, Seq};
use crate::protocol::mailbox::roster::{AgentStatus, Roster, RosterEntry};
use crate::protocol::mailbox::store::{MailboxResult, PROTOCOL_FILE, PROTOCOL_TEXT, ROSTER_FILE};
use crate::state::SwarmDir;
use crate::swarm::SwarmMachine;

use super::error::CoordinatorError;
use super::runtime::{run_blocking, sleep_until_deadline};
use crate::error_chain::error_chain;

mod host_copy;
mod shared_state;
mod state;
mod summary;

pub use state::MailboxState;

use host_copy::{HostCopy, ReceivedFile};

/// The host's copy, in the swarm's folder.
pub const COPY_DIR: &str = "mailbox";
/// How long the depot waits for something new before it says that there is nothing.
const LONG_POLL_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a session waits for its agent's row in the roster: the outbox, which it needs, is there by then.
const SEAT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the last messages may take to come out.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(20);
/// From one failure to the next try, and the most that this grows to.
const RETRY_DELAY_RANGE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// What somebody on the host is there for, who does not say.
const HOST_ROLE: &str = "on the host";

/// An agent in its place.
#[derive(Debug, Clone)]
pub(super) struct SandboxSeat {
    /// Who, and what for.
    pub seat: MailboxMembership,
    /// Its sandbox's user.
    pub uid: u32,
}

/// How a sandbox's end looks from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SandboxExit {
    /// By itself and without an error, or because it was told to.
    Normal,
    /// Otherwise.
    Crashed,
}

enum SyncCommand {
    AgentSeated { seat: MailboxMembership, done: oneshot::Sender<()> },
    SandboxExited { agent: AgentId, exit: SandboxExit },
    Close { over: bool, done: oneshot::Sender<()> },
}

/// The way to the task.
#[derive(Clone)]
pub(super) struct MailboxHandle {
    depot: DepotClient,
    commands: mpsc::UnboundedSender<SyncCommand>,
}

impl MailboxHandle {
    /// Gives an agent its outbox, and waits until the roster has it.
    pub(super) async fn seat_agent(&self, seat: &SandboxSeat) -> EngineResult<()> {
        self.depot.assign_outbox(&seat.seat.agent, seat.uid).await?;
        let (known, is_known) = oneshot::channel();
        let _ = self.commands.send(SyncCommand::AgentSeated { seat: seat.seat.clone(), done: known });
        let _ = timeout(SEAT_TIMEOUT, is_known).await;
        Ok(())
    }

    /// Its sandbox is over.
    pub(super) fn report_exit(&self, agent: &AgentId, how: SandboxExit) {
        let _ = self.commands.send(SyncCommand::SandboxExited { agent: agent.clone(), exit: how });
    }

    /// Brings out what is left. `over`: nobody goes on with the swarm.
    pub(super) async fn close(&self, over: bool) {
        let (closed, is_closed) = oneshot::channel();
        let _ = self.commands.send(SyncCommand::Close { over, done: closed });
        if timeout(CLOSE_TIMEOUT, is_closed).await.is_err() {
            tracing::warn!("the last messages did not come out of the mailbox in time");
        }
    }
}

/// Who all the sandboxes' agents can be.
pub(super) fn sandbox_agents(seats: &[PlannedAgent]) -> BTreeSet<AgentId> {
    seats.iter().flat_map(|seat| [seat.id.clone(), seat.reviewer().id]).collect()
}

/// Opens the mailbox and starts its task: the copy is made where it is not there, and a volume that is gone is filled again
/// from it.
///
/// # Errors
/// Those of the depot and of the copy.
pub(super) async fn open(
    depot: &DepotClient,
    dir: &SwarmDir,
    plan: &Plan,
    before: Option<&SwarmMachine>,
) -> Result<(MailboxHandle, AbortOnDropHandle<()>), CoordinatorError> {
    let copy = run_blocking(|| HostCopy::open(&dir.path(), sandbox_agents(&plan.agents)))?;
    let mut carrier = MailboxSync::new(depot.clone(), copy);
    let (fresh, there) = depot.open_mailbox().await?;
    carrier.volume_messages = there;
    if fresh {
        run_blocking(|| carrier.copy.forget_volume());
    }
    carrier.host_contents.known_messages = run_blocking(|| carrier.copy.message_numbers())?;
    carrier.host_contents.known_shared = carrier.copy.shared_stamps();
    let sandboxes = sandbox_agents(&plan.agents);
    for agent in &sandboxes {
        let last =
            carrier.host_contents.known_messages.get(agent.as_str()).and_then(MessageNumbers::last).and_then(Seq::new);
        carrier.last_messages.extend(last.map(|last| (agent.clone(), last)));
    }
    run_blocking(|| MailboxState { sandbox_agents: sandboxes, over: false }.save(&dir.path()));
    match before {
        Some(machine) => carrier.resume_agents(&plan.agents, machine),
        None => drop(log_error(
            run_blocking(|| shared_state::write_initial_state(carrier.copy.mailbox(), plan)),
            "STATE.md cannot be written",
        )),
    }
    carrier.put_files(vec![MailFileWrite::from_text(PROTOCOL_FILE, PROTOCOL_TEXT)]).await?;
    // A swarm that begins has nobody yet who could be in the middle of writing, and its goal is to be there before its agents.
    carrier.sync_to_volume(true, before.is_none()).await?;
    carrier.sync_roster().await?;
    let (orders, orders_in) = mpsc::unbounded_channel();
    let task = AbortOnDropHandle::new(tokio::spawn(carrier.run(orders_in)));
    Ok((MailboxHandle { depot: depot.clone(), commands: orders }, task))
}

/// What is known of a sandbox's agent.
#[derive(Debug, Default)]
struct AgentState {
    /// What it said before it was seated counts no more.
    ignored_up_to: Option<Seq>,
    /// It has signed off since, and said no more.
    done: bool,
    /// Its sandbox is over.
    sandbox_ended: bool,
}

/// A question to the depot that is under way.
type PollTask = AbortOnDropHandle<EngineResult<MailboxChanges>>;

/// Its answer.
fn poll_result(asked: Result<EngineResult<MailboxChanges>, JoinError>) -> EngineResult<MailboxChanges> {
    asked.unwrap_or_else(|panicked| {
        Err(EngineError::Failed { operation: "waiting for mail", source: Box::new(panicked) })
    })
}

struct MailboxSync {
    depot: DepotClient,
    copy: HostCopy,
    /// The messages that the volume has, as far as they are the host's to put there.
    volume_messages: BTreeMap<String, MessageNumbers>,
    /// What the copy has.
    host_contents: MailQuery,
    agents: BTreeMap<AgentId, AgentState>,
    /// The last message of each that says how it stands.
    last_messages: BTreeMap<AgentId, Seq>,
    /// The roster that the volume has.
    volume_roster: String,
    /// When to look at the copy again, because something in it is being written.
    recheck_at: Option<Instant>,
    /// Failures in a row.
    failures: u32,
}

impl MailboxSync {
    fn new(depot: DepotClient, copy: HostCopy) -> Self {
        Self {
            depot,
            copy,
            volume_messages: BTreeMap::new(),
            host_contents: MailQuery::default(),
            agents: BTreeMap::new(),
            last_messages: BTreeMap::new(),
            volume_roster: String::new(),
            recheck_at: None,
            failures: 0,
        }
    }

    /// The agents of sandboxes that run on from before.
    fn resume_agents(&mut self, seats: &[PlannedAgent], machine: &SwarmMachine) {
        for view in machine.attempts() {
            let place = machine.spec().assignments.iter().position(|one| one.id == view.id.assignment);
            let Some(seat) = place.and_then(|place| seats.get(place)) else { continue };
            let agent = if view.review.is_some() { seat.reviewer().id } else { seat.id.clone() };
            self.agents.entry(agent).or_default();
        }
        let rows = self.copy.mailbox().roster().map(|roster| roster.entries()).unwrap_or_default();
        for (agent, state) in &mut self.agents {
            state.done = rows.iter().any(|row| row.id == *agent && row.status == AgentStatus::Done);
        }
    }

    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<SyncCommand>) {
        let mut changes = host_copy::watch_changes(self.copy.root());
        let mut waiting: Option<PollTask> = None;
        let mut not_before: Option<Instant> = None;
        loop {
            if waiting.is_none() && not_before.is_none_or(|time| time <= Instant::now()) {
                not_before = None;
                waiting = Some(self.poll(LONG_POLL_TIMEOUT, false));
            }
            let carried = tokio::select! {
                biased;
                order = orders.recv() => match order {
                    None => return,
                    Some(SyncCommand::AgentSeated { seat, done }) => {
                        self.handle_seated(&seat);
                        let put = self.sync_roster().await;
                        let _ = done.send(());
                        put
                    }
                    Some(SyncCommand::SandboxExited { agent, exit }) => self.handle_exit(&agent, exit).await,
                    Some(SyncCommand::Close { over, done }) => {
                        drop(waiting);
                        self.finish(over).await;
                        let _ = done.send(());
                        return;
                    }
                },
                news = async { waiting.as_mut().expect("asked for while it is waited for").await }, if waiting.is_some() => {
                    waiting = None;
                    match poll_result(news) {
                        Ok(news) => {
                            self.failures = 0;
                            self.apply_news(news);
                            Ok(())
                        }
                        Err(error) => Err(error),
                    }
                }
                changed = changes.recv() => match changed {
                    Some(()) => self.sync_to_volume(false, false).await,
                    // The thread has died: what people write is seen by another.
                    None => {
                        changes = host_copy::watch_changes(self.copy.root());
                        Ok(())
                    }
                },
                () = sleep_until_deadline(self.recheck_at) => self.sync_to_volume(false, false).await,
                () = sleep_until_deadline(not_before), if waiting.is_none() => Ok(()),
            };
            let told = match carried {
                Ok(()) => self.sync_roster().await,
                Err(error) => Err(error),
            };
            if let Err(error) = told {
                not_before = Some(Instant::now() + self.note_failure(&error));
            }
        }
    }

    /// Notes that the depot did not do what it was asked. Gives how long to leave it alone.
    fn note_failure(&mut self, error: &EngineError) -> Duration {
        if self.failures == 0 {
            tracing::warn!(error = %error_chain(error), "the mailbox waits: the depot does not answer");
        }
        self.failures = self.failures.saturating_add(1);
        (RETRY_DELAY_RANGE.0 * self.failures).min(RETRY_DELAY_RANGE.1)
    }

    /// Asks by a task of its own: it may be in the middle of starting the depot again, which others wait for, whatever this
    /// one does.
    fn poll(&self, within: Duration, settled: bool) -> PollTask {
        let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let ask = MailQuery { timeout_ms: within_ms, writers_stopped: settled, ..self.host_contents.clone() };
        let depot = self.depot.clone();
        AbortOnDropHandle::new(tokio::spawn(async move { depot.wait_for_mail(ask).await }))
    }

    fn handle_seated(&mut self, seat: &MailboxMembership) {
        let before = self
            .host_contents
            .known_messages
            .get(seat.agent.as_str())
            .and_then(|numbers| numbers.last())
            .and_then(Seq::new);
        self.agents.insert(seat.agent.clone(), AgentState { ignored_up_to: before, ..AgentState::default() });
        let row = RosterEntry::new(seat.agent.clone(), seat.role.clone(), None, Timestamp::now());
        self.change_roster(&seat.agent, |known| match known {
            Some(known) if known.status == AgentStatus::Active => None,
            // One that is tried again registers again; by when it started, others know.
            _ => Some(RosterChange::Row(row.clone())),
        });
    }

    async fn handle_exit(&mut self, agent: &AgentId, how: SandboxExit) -> EngineResult<()> {
        // Its last word may be in the mailbox: a DONE, or what it said behind one.
        let said_done = self.agents.get(agent).is_some_and(|state| state.done);
        let drained = if how == SandboxExit::Normal || said_done { self.drain_volume(true).await } else { Ok(()) };
        if let Some(state) = self.agents.get_mut(agent) {
            state.sandbox_ended = true;
            if !state.done {
                self.set_status(
                    agent,
                    if how == SandboxExit::Crashed { &AgentStatus::Crashed } else { &AgentStatus::Left },
                );
            }
        }
        drained
    }

    fn set_status(&mut self, agent: &AgentId, status: &AgentStatus) {
        self.change_roster(agent, |known| match known {
            Some(known) if known.status != *status => Some(RosterChange::Status(status.clone())),
            _ => None,
        });
    }

    fn change_roster(&mut self, agent: &AgentId, what: impl Fn(Option<&RosterEntry>) -> Option<RosterChange>) {
        let changed = run_blocking(|| {
            self.copy.mailbox().update_roster(|roster| {
                Ok(match what(roster.entry(agent).as_ref()) {
                    None => false,
                    Some(RosterChange::Row(row)) => {
                        roster.add(&row);
                        true
                    }
                    Some(RosterChange::Status(status)) => roster.set_status(agent, &status),
                })
            })
        });
        log_error(changed, "the roster cannot be written");
    }

    /// Gives the volume the roster of the copy.
    async fn sync_roster(&mut self) -> EngineResult<()> {
        let Some(mut roster) = log_error(run_blocking(|| self.copy.mailbox().roster()), "the roster cannot be read")
        else {
            return Ok(());
        };
        let known = Roster::from_text(self.volume_roster.as_str());
        if roster.entries().is_empty() && !known.entries().is_empty() {
            tracing::warn!("the roster was lost, and is written again");
            let restored = run_blocking(|| {
                self.copy.mailbox().update_roster(|lost| {
                    known.entries().iter().for_each(|row| lost.add(row));
                    Ok(true)
                })?;
                self.copy.mailbox().roster()
            });
            let Some(restored) = log_error(restored, "the roster cannot be written") else { return Ok(()) };
            roster = restored;
        }
        if roster.text() != self.volume_roster {
            self.put_files(vec![MailFileWrite::from_text(ROSTER_FILE, roster.text())]).await?;
            roster.text().clone_into(&mut self.volume_roster);
        }
        Ok(())
    }

    /// Puts files into the volume, as many at once as fit. What was kept out is the caller's to know.
    async fn put_files(&mut self, files: Vec<MailFileWrite>) -> EngineResult<MailboxWriteOutcome> {
        let mut written = MailboxWriteOutcome::default();
        let mut files = files.into_iter().peekable();
        while files.peek().is_some() {
            let (mut batch, mut bytes) = (Vec::new(), 0);
            while let Some(file) = files.next_if(|file| batch.is_empty() || bytes + file.json_len() <= MAX_PUT_BYTES) {
                bytes += file.json_len();
                batch.push(file);
            }
            let part = self.depot.write_mail(batch).await?;
            written.stamps.extend(part.stamps);
            written.conflicts.extend(part.conflicts);
        }
        Ok(written)
    }

    /// Takes in what came out of the volume.
    fn apply_news(&mut self, news: MailboxChanges) {
        let arrivals = run_blocking(|| self.copy.store_news(&news));
        for arrival in arrivals {
            match arrival {
                ReceivedFile::Message(agent, seq, kind) => {
                    self.host_contents.known_messages.entry(agent.to_string()).or_default().insert(seq.get());
                    self.handle_message(&agent, seq, kind);
                }
                ReceivedFile::Shared(name, stamp) => drop(self.host_contents.known_shared.insert(name, stamp)),
            }
        }
        for name in &news.removed {
            self.host_contents.known_shared.remove(name);
        }
        for refused in news.refused {
            let (path, why) = (refused.path, refused.reason);
            tracing::warn!(path, why, "something in the mailbox is not carried to the host");
            self.host_contents.known_refusals.push(refused.key);
        }
    }

    /// An agent said something: a DONE is the end until more is said. Who asks for a message again has not come back for
    /// that, and what was said in an earlier attempt does not count.
    fn handle_message(&mut self, agent: &AgentId, seq: Seq, kind: Option<MailboxMessageType>) {
        let Some(kind) = kind.filter(|kind| *kind != MailboxMessageType::Error) else { return };
        if self.last_messages.get(agent).is_some_and(|last| *last >= seq) {
            return;
        }
        self.last_messages.insert(agent.clone(), seq);
        let done = kind == MailboxMessageType::Done;
        if let Some(state) = self.agents.get_mut(agent) {
            if state.ignored_up_to >= Some(seq) || (state.sandbox_ended && !done) {
                return;
            }
            state.done = done;
        }
        self.change_roster(agent, |known| match known?.status {
            AgentStatus::Done if !done => Some(RosterChange::Status(AgentStatus::Active)),
            AgentStatus::Done => None,
            _ => done.then_some(RosterChange::Status(AgentStatus::Done)),
        });
    }

    /// Brings out all that there is now. `settled`: nobody writes any more.
    async fn drain_volume(&mut self, settled: bool) -> EngineResult<()> {
        loop {
            let news = poll_result(self.poll(Duration::ZERO, settled).await)?;
            let (more, empty) = (news.has_more, news.files.is_empty());
            self.apply_news(news);
            if !more || empty {
                return Ok(());
            }
        }
    }

    /// Forgets the messages that the copy has lost. Whether there are any.
    fn forget_lost_messages(&mut self) -> bool {
        let has =
            log_error(run_blocking(|| self.copy.message_numbers()), "the host's copy of the mailbox cannot be read");
        let Some(mut has) = has else { return false };
        let mut lost = false;
        for (agent, known) in &mut self.host_contents.known_messages {
            lost |= known.intersect_with(&has.remove(agent).unwrap_or_default());
        }
        lost
    }

    /// Carries what is new on the host into the volume, and mends what the copy has lost. `all`: also what sandboxes' agents
    /// sent and the volume has lost. `settled`: nobody writes any more.
    async fn sync_to_volume(&mut self, all: bool, settled: bool) -> EngineResult<()> {
        self.recheck_at = None;
        if self.forget_lost_messages() {
            self.drain_volume(settled).await?;
        }
        let there = &self.volume_messages;
        let found = run_blocking(|| {
            self.copy.find_new(all, settled, |agent, seq| {
                there.get(agent.as_str()).is_some_and(|numbers| numbers.contains(seq.get()))
            })
        });
        self.recheck_at = self.copy.has_unsettled().then(|| Instant::now() + host_copy::SETTLE_TIME);
        let Some(found) = log_error(found, "the host's copy of the mailbox cannot be read") else { return Ok(()) };
        if found.is_empty() {
            return Ok(());
        }
        let written = self.put_files(found.iter().map(|file| file.file.clone()).collect()).await?;
        for (agent, seq, kind) in found.iter().filter_map(|file| file.message.clone()) {
            self.volume_messages.entry(agent.to_string()).or_default().insert(seq.get());
            // It would come back as news.
            self.host_contents.known_messages.entry(agent.to_string()).or_default().insert(seq.get());
            if !self.copy.is_sandbox_agent(&agent) {
                self.handle_host_message(&agent, seq, kind);
            }
        }
        for path in &written.conflicts {
            tracing::warn!(path, "what the host has is not put into the mailbox: something else is there");
        }
        run_blocking(|| self.copy.mark_carried(&found, &written));
        self.host_contents.known_shared = self.copy.shared_stamps();
        Ok(())
    }

    /// Somebody on the host wrote: whoever does not know the roster gets a row all the same.
    fn handle_host_message(&mut self, agent: &AgentId, seq: Seq, kind: Option<MailboxMessageType>) {
        let row = RosterEntry::new(agent.clone(), HOST_ROLE, None, Timestamp::now());
        self.change_roster(agent, |known| known.is_none().then(|| RosterChange::Row(row.clone())));
        self.handle_message(agent, seq, kind);
    }

    async fn finish(&mut self, over: bool) {
        if let Err(error) = self.drain_volume(true).await {
            tracing::warn!(error = %error_chain(&error), "cannot bring the last messages out of the mailbox");
        }
        if let Err(error) = self.sync_to_volume(false, true).await {
            tracing::warn!(error = %error_chain(&error), "the last messages of the host do not reach the mailbox");
        }
        if over {
            self.mark_ended();
            log_error(
                run_blocking(|| summary::write_summary(self.copy.mailbox(), Timestamp::now())),
                "the summary cannot be written",
            );
            // For who looks into volumes that are kept.
            let _ = self.sync_to_volume(false, true).await;
        }
        let _ = self.sync_roster().await;
    }

    /// Nobody is left who could write, on the host neither: nobody would read it.
    fn mark_ended(&mut self) {
        let left = run_blocking(|| {
            self.copy.mailbox().update_roster(|roster| {
                let mut changed = false;
                for row in roster.entries().iter().filter(|row| !row.status.is_gone()) {
                    changed |= roster.set_status(&row.id, &AgentStatus::Left);
                }
                Ok(changed)
            })
        });
        log_error(left, "the roster cannot be written");
        run_blocking(|| MailboxState::mark_over(self.copy.swarm_dir()));
    }
}

enum RosterChange {
    Row(RosterEntry),
    Status(AgentStatus),
}

impl MailFileWrite {
    fn from_text(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: Some(text.to_owned()), expected_stamp: String::new() }
    }
}

/// A value, or a line in the log: the mailbox is no reason to end a swarm.
fn log_error<T>(result: MailboxResult<T>, what: &str) -> Option<T> {
    result.inspect_err(|error| tracing::warn!(error = %error_chain(error), "{what}")).ok()
}

/// Brings out what is in the mailbox of a swarm that nobody goes on with.
pub(super) async fn export(depot: &DepotClient, folder: &Path) -> Result<(), CoordinatorError> {
    let copy = run_blocking(|| HostCopy::open(folder, BTreeSet::new()))?;
    let mut carrier = MailboxSync::new(depot.clone(), copy);
    let (fresh, _) = depot.open_mailbox().await?;
    if !fresh {
        carrier.host_contents.known_messages = run_blocking(|| carrier.copy.message_numbers())?;
        carrier.host_contents.known_shared = carrier.copy.shared_stamps();
        carrier.drain_volume(true).await?;
    }
    carrier.mark_ended();
    Ok(())
}
