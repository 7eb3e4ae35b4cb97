//! The task that keeps a mailbox's volume and the host's copy in sync. Started by `mod.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::super::error::CoordinatorError;
use super::super::runtime::{run_blocking, sleep_until_deadline};
use super::host_copy::{self, HostCopy, OutgoingSource, ReceivedFile, ScanOptions, log_error};
use super::roster::{self, RosterKeeper, SandboxExit};
use super::state::MailboxState;
use super::{shared_state, summary};
use crate::engine::depot::DepotClient;
use crate::engine::depot::mailbox::{MailboxChanges, MailboxWriteOutcome};
use crate::engine::{EngineError, EngineResult};
use crate::error_chain::error_chain;
use crate::handoff::assignment::MailboxMembership;
use crate::handoff::mailbox::{MailFileWrite, MailQuery, MessageNumbers};
use crate::ids::AgentId;
use crate::plan::{Plan, PlannedAgent};
use crate::protocol::mailbox::layout::{PROTOCOL_FILE, PROTOCOL_TEXT, ROSTER_FILE};
use crate::protocol::mailbox::message::Seq;
use crate::swarm::SwarmMachine;

/// How long the depot waits for a change before it responds without one.
const LONG_POLL_TIMEOUT: Duration = Duration::from_secs(20);
const MIN_RETRY_DELAY: Duration = Duration::from_millis(500);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);

pub(super) enum SyncCommand {
    AgentSeated { seat: MailboxMembership, done: oneshot::Sender<()> },
    SandboxExited { agent: AgentId, exit: SandboxExit },
    Close { over: bool, done: oneshot::Sender<()> },
}

pub(super) struct MailboxSync {
    depot: DepotClient,
    copy: HostCopy,
    roster: RosterKeeper,
    /// The messages in the volume that need not be sent there.
    volume_messages: BTreeMap<String, MessageNumbers>,
    /// What the copy has.
    host_contents: MailQuery,
    /// When to scan the copy again, because a file is being written.
    recheck_at: Option<Instant>,
    /// Consecutive failures.
    failures: u32,
}

impl MailboxSync {
    pub(super) async fn open(
        depot: DepotClient,
        swarm_dir: &Path,
        plan: &Plan,
        before: Option<&SwarmMachine>,
    ) -> Result<Self, CoordinatorError> {
        let sandbox_agents: BTreeSet<AgentId> =
            plan.agents.iter().flat_map(|seat| [seat.id.clone(), seat.reviewer().id]).collect();
        let mut sync = Self::load(depot, swarm_dir, sandbox_agents.clone()).await?.0;
        let last_messages = sandbox_agents.iter().filter_map(|agent| Some((agent.clone(), sync.last_message(agent)?)));
        sync.roster = RosterKeeper::new(last_messages.collect());
        run_blocking(|| MailboxState { sandbox_agents, over: false }.save(swarm_dir));
        match before {
            Some(machine) => sync.roster.resume(sync.copy.mailbox(), running_agents(&plan.agents, machine)),
            None => {
                let written = run_blocking(|| shared_state::write_initial_state(sync.copy.mailbox(), plan));
                log_error(written, "cannot write STATE.md");
            }
        }
        sync.put_files(vec![MailFileWrite::from_text(PROTOCOL_FILE, PROTOCOL_TEXT)]).await?;
        // At the start of a swarm nobody can be writing, and its goal has to be in the volume before its agents.
        sync.sync_to_volume(ScanOptions { include_sandbox_agents: true, writers_stopped: before.is_none() }).await?;
        sync.sync_roster().await?;
        Ok(sync)
    }

    /// Transfers the messages of a swarm that will not be resumed to the host.
    pub(super) async fn export(depot: DepotClient, swarm_dir: &Path) -> Result<(), CoordinatorError> {
        let (mut sync, is_new_volume) = Self::load(depot, swarm_dir, BTreeSet::new()).await?;
        if !is_new_volume {
            sync.drain_volume(true).await?;
        }
        sync.mark_over();
        Ok(())
    }

    /// Opens both sides. Returns whether the volume is new.
    async fn load(
        depot: DepotClient,
        swarm_dir: &Path,
        sandbox_agents: BTreeSet<AgentId>,
    ) -> Result<(Self, bool), CoordinatorError> {
        let mut copy = run_blocking(|| HostCopy::open(swarm_dir, sandbox_agents))?;
        let (is_new_volume, volume_messages) = depot.open_mailbox().await?;
        if is_new_volume {
            run_blocking(|| copy.forget_volume());
        }
        let host_contents = MailQuery {
            known_messages: run_blocking(|| copy.message_numbers())?,
            known_shared: copy.shared_stamps(),
            ..MailQuery::default()
        };
        let roster = RosterKeeper::new(BTreeMap::new());
        let sync = Self { depot, copy, roster, volume_messages, host_contents, recheck_at: None, failures: 0 };
        Ok((sync, is_new_volume))
    }

    /// The last message of an agent in the copy.
    fn last_message(&self, agent: &AgentId) -> Option<Seq> {
        self.host_contents.known_messages.get(agent.as_str()).and_then(MessageNumbers::last).and_then(Seq::new)
    }

    pub(super) async fn run(mut self, mut commands: mpsc::UnboundedReceiver<SyncCommand>) {
        let mut host_changes = host_copy::watch_changes(self.copy.root());
        let mut poll: Option<PollTask> = None;
        let mut retry_at: Option<Instant> = None;
        loop {
            if poll.is_none() && retry_at.is_none_or(|time| time <= Instant::now()) {
                retry_at = None;
                poll = Some(self.poll(LONG_POLL_TIMEOUT, false));
            }
            let handled = tokio::select! {
                biased;
                command = commands.recv() => match command {
                    None => return,
                    Some(SyncCommand::AgentSeated { seat, done }) => {
                        self.roster.handle_seated(self.copy.mailbox(), &seat, self.last_message(&seat.agent));
                        let synced = self.sync_roster().await;
                        let _ = done.send(());
                        synced
                    }
                    Some(SyncCommand::SandboxExited { agent, exit }) => self.handle_exit(&agent, exit).await,
                    Some(SyncCommand::Close { over, done }) => {
                        drop(poll);
                        self.finish(over).await;
                        let _ = done.send(());
                        return;
                    }
                },
                changes = async { poll.as_mut().expect("the branch is enabled only with a poll").await },
                    if poll.is_some() =>
                {
                    poll = None;
                    poll_result(changes).map(|changes| {
                        self.failures = 0;
                        self.apply_changes(changes);
                    })
                }
                changed = host_changes.recv() => match changed {
                    Some(()) => self.sync_to_volume(ScanOptions::default()).await,
                    // The watching thread died.
                    None => {
                        host_changes = host_copy::watch_changes(self.copy.root());
                        Ok(())
                    }
                },
                () = sleep_until_deadline(self.recheck_at) => self.sync_to_volume(ScanOptions::default()).await,
                () = sleep_until_deadline(retry_at), if poll.is_none() => Ok(()),
            };
            let synced = match handled {
                Ok(()) => self.sync_roster().await,
                Err(error) => Err(error),
            };
            if let Err(error) = synced {
                retry_at = Some(Instant::now() + self.next_retry_delay(&error));
            }
        }
    }

    fn next_retry_delay(&mut self, error: &EngineError) -> Duration {
        if self.failures == 0 {
            tracing::warn!(error = %error_chain(error), "the mailbox waits because the depot does not respond");
        }
        self.failures = self.failures.saturating_add(1);
        (MIN_RETRY_DELAY * self.failures).min(MAX_RETRY_DELAY)
    }

    /// Queries the depot in a task of its own, which may be restarting the depot and must not be cancelled then.
    fn poll(&self, wait: Duration, writers_stopped: bool) -> PollTask {
        let timeout_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let query = MailQuery { timeout_ms, writers_stopped, ..self.host_contents.clone() };
        let depot = self.depot.clone();
        AbortOnDropHandle::new(tokio::spawn(async move { depot.wait_for_mail(query).await }))
    }

    async fn handle_exit(&mut self, agent: &AgentId, exit: SandboxExit) -> EngineResult<()> {
        // The mailbox may have a last message: a DONE, or one that follows a DONE.
        let may_have_more = exit == SandboxExit::Normal || self.roster.is_done(agent);
        let drained = if may_have_more { self.drain_volume(true).await } else { Ok(()) };
        self.roster.handle_exit(self.copy.mailbox(), agent, exit);
        drained
    }

    /// Writes the copy's roster to the volume, if it has changed.
    async fn sync_roster(&mut self) -> EngineResult<()> {
        if let Some(text) = self.roster.new_text(self.copy.mailbox()) {
            self.put_files(vec![MailFileWrite::from_text(ROSTER_FILE, text.as_str())]).await?;
            self.roster.set_volume_text(text);
        }
        Ok(())
    }

    /// Writes files to the volume, in requests as large as possible.
    async fn put_files(&mut self, files: Vec<MailFileWrite>) -> EngineResult<MailboxWriteOutcome> {
        let mut written = MailboxWriteOutcome::default();
        let mut files = files.into_iter().peekable();
        while files.peek().is_some() {
            let (mut batch, mut bytes) = (Vec::new(), 0);
            let has_room = |file: &MailFileWrite, bytes: usize| bytes + file.json_len() <= host_copy::MAX_PUT_BYTES;
            while let Some(file) = files.next_if(|file| batch.is_empty() || has_room(file, bytes)) {
                bytes += file.json_len();
                batch.push(file);
            }
            let part = self.depot.write_mail(batch).await?;
            written.stamps.extend(part.stamps);
            written.conflicts.extend(part.conflicts);
        }
        Ok(written)
    }

    /// Stores changes of the volume in the copy.
    fn apply_changes(&mut self, changes: MailboxChanges) {
        for received in run_blocking(|| self.copy.store_changes(&changes)) {
            match received {
                ReceivedFile::Message(agent, seq, message_type) => {
                    self.host_contents.known_messages.entry(agent.to_string()).or_default().insert(seq.get());
                    self.roster.handle_message(self.copy.mailbox(), &agent, seq, message_type);
                }
                ReceivedFile::Shared(name, stamp) => drop(self.host_contents.known_shared.insert(name, stamp)),
            }
        }
        for name in &changes.removed {
            self.host_contents.known_shared.remove(name);
        }
        for refused in changes.refused {
            tracing::warn!(path = refused.path, reason = refused.reason, "cannot transfer a file of the mailbox");
            self.host_contents.known_refusals.push(refused.key);
        }
    }

    /// Transfers everything that is in the volume now to the copy.
    async fn drain_volume(&mut self, writers_stopped: bool) -> EngineResult<()> {
        loop {
            let changes = poll_result(self.poll(Duration::ZERO, writers_stopped).await)?;
            let is_last = !changes.has_more || changes.files.is_empty();
            self.apply_changes(changes);
            if is_last {
                return Ok(());
            }
        }
    }

    /// Forgets messages that the copy has lost, so that they are transferred again. Returns whether there are any.
    fn forget_lost_messages(&mut self) -> bool {
        let present = log_error(run_blocking(|| self.copy.message_numbers()), "cannot read the copy of the mailbox");
        let Some(mut present) = present else { return false };
        let mut lost = false;
        for (agent, known) in &mut self.host_contents.known_messages {
            lost |= known.intersect_with(&present.remove(agent).unwrap_or_default());
        }
        lost
    }

    /// Transfers new files of the copy to the volume, and restores what the copy has lost.
    async fn sync_to_volume(&mut self, options: ScanOptions) -> EngineResult<()> {
        self.recheck_at = None;
        if self.forget_lost_messages() {
            self.drain_volume(options.writers_stopped).await?;
        }
        let in_volume = |agent: &AgentId, seq: Seq| {
            self.volume_messages.get(agent.as_str()).is_some_and(|numbers| numbers.contains(seq.get()))
        };
        let found = run_blocking(|| self.copy.find_new(options, in_volume));
        self.recheck_at = self.copy.has_unsettled().then(|| Instant::now() + host_copy::SETTLE_TIME);
        let Some(found) = log_error(found, "cannot read the copy of the mailbox") else { return Ok(()) };
        if found.is_empty() {
            return Ok(());
        }
        let written = self.put_files(found.iter().map(|outgoing| outgoing.file.clone()).collect()).await?;
        for outgoing in &found {
            let OutgoingSource::Message { agent, seq, message_type } = &outgoing.source else { continue };
            self.volume_messages.entry(agent.to_string()).or_default().insert(seq.get());
            // Otherwise it would come back as a change of the volume.
            self.host_contents.known_messages.entry(agent.to_string()).or_default().insert(seq.get());
            if !self.copy.is_sandbox_agent(agent) {
                self.roster.handle_host_message(self.copy.mailbox(), agent, *seq, *message_type);
            }
        }
        for path in &written.conflicts {
            tracing::warn!(path, "cannot transfer a file to the mailbox: a different one has its name");
        }
        run_blocking(|| self.copy.mark_transferred(&found, &written));
        self.host_contents.known_shared = self.copy.shared_stamps();
        Ok(())
    }

    async fn finish(&mut self, over: bool) {
        if let Err(error) = self.drain_volume(true).await {
            tracing::warn!(error = %error_chain(&error), "cannot transfer the last messages out of the mailbox");
        }
        let options = ScanOptions { writers_stopped: true, ..ScanOptions::default() };
        if let Err(error) = self.sync_to_volume(options).await {
            tracing::warn!(error = %error_chain(&error), "cannot transfer the last messages into the mailbox");
        }
        if over {
            self.mark_over();
            let written = run_blocking(|| summary::write_summary(self.copy.mailbox(), Timestamp::now()));
            log_error(written, "cannot write the summary");
            // For volumes that are kept.
            let _ = self.sync_to_volume(options).await;
        }
        let _ = self.sync_roster().await;
    }

    fn mark_over(&mut self) {
        roster::mark_all_left(self.copy.mailbox());
        run_blocking(|| MailboxState::mark_over(self.copy.swarm_dir()));
    }
}

type PollTask = AbortOnDropHandle<EngineResult<MailboxChanges>>;

fn poll_result(joined: Result<EngineResult<MailboxChanges>, tokio::task::JoinError>) -> EngineResult<MailboxChanges> {
    let panicked = |error| EngineError::Failed { operation: "waiting for mail", source: Box::new(error) };
    joined.map_err(panicked)?
}

/// The agents of the attempts that are running.
fn running_agents(seats: &[PlannedAgent], machine: &SwarmMachine) -> Vec<AgentId> {
    let assignments = &machine.spec().assignments;
    let running = machine.attempts().filter_map(|view| {
        let index = assignments.iter().position(|assignment| assignment.id == view.id.assignment)?;
        let seat = seats.get(index)?;
        Some(if view.review().is_some() { seat.reviewer().id } else { seat.id.clone() })
    });
    running.collect()
}
