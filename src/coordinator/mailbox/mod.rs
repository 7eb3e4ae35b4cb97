//! A swarm's mailbox, kept in sync between its volume and the host's copy (`.longshore/swarms/<id>/mailbox/`). One task transfers
//! changes in both directions, assigns outboxes before sandboxes start, and keeps the roster.
//!
//! | what | which side wins |
//! |---|---|
//! | messages of sandboxes' agents | the volume; the copy gets them in the order of their numbers |
//! | messages of people and other agents on the host | the copy |
//! | `ROSTER.md` | the copy, where this task and `longshore mailbox` change it under its lock |
//! | shared files and claims | the last change; if both sides changed, the volume, and the host's file is set aside |
//!
//! | file | content |
//! |---|---|
//! | `sync.rs` | the task |
//! | `roster.rs` | the statuses of agents |
//! | `host_copy.rs` | the copy: stores received files, finds new ones |
//! | `state.rs` | what `longshore mailbox` needs to know about the swarm |
//! | `shared_state.rs`, `summary.rs` | `STATE.md` at the start and at the end |
//!
//! The event loop opens and closes the mailbox; sessions report the start and the end of sandboxes, and wait only for their own
//! agent's outbox. The depot's supervisor restarts a depot that dies; if that fails, the task tries again. Must not: block the
//! event loop, or end the swarm.

use std::path::Path;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::error::CoordinatorError;
use crate::engine::EngineResult;
use crate::engine::depot::DepotClient;
use crate::handoff::assignment::MailboxMembership;
use crate::ids::AgentId;
use crate::plan::Plan;
use crate::state::SwarmDir;
use crate::swarm::SwarmMachine;

mod host_copy;
mod roster;
mod shared_state;
mod state;
mod summary;
mod sync;

pub(crate) use host_copy::COPY_DIR;
pub(super) use roster::SandboxExit;
pub(crate) use state::MailboxState;

use sync::{MailboxSync, SyncCommand};

/// How long a session waits for its agent's row in the roster. It needs the outbox, which exists by then.
const SEAT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the last messages may take to arrive.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(20);

/// An agent and the user of its sandbox.
#[derive(Debug, Clone)]
pub(super) struct SandboxSeat {
    pub seat: MailboxMembership,
    pub uid: u32,
}

/// Controls the task.
#[derive(Clone)]
pub(super) struct MailboxHandle {
    depot: DepotClient,
    commands: mpsc::UnboundedSender<SyncCommand>,
}

impl MailboxHandle {
    /// Assigns an agent its outbox, and waits until the agent is in the roster.
    pub(super) async fn seat_agent(&self, seat: &SandboxSeat) -> EngineResult<()> {
        self.depot.assign_outbox(&seat.seat.agent, seat.uid).await?;
        let (done, is_done) = oneshot::channel();
        let _ = self.commands.send(SyncCommand::AgentSeated { seat: seat.seat.clone(), done });
        let _ = timeout(SEAT_TIMEOUT, is_done).await;
        Ok(())
    }

    /// Reports that an agent's sandbox has ended.
    pub(super) fn report_exit(&self, agent: &AgentId, exit: SandboxExit) {
        let _ = self.commands.send(SyncCommand::SandboxExited { agent: agent.clone(), exit });
    }

    /// Transfers the last changes and ends the task. `over`: the swarm will not be resumed.
    pub(super) async fn close(&self, over: bool) {
        let (done, is_done) = oneshot::channel();
        let _ = self.commands.send(SyncCommand::Close { over, done });
        if timeout(CLOSE_TIMEOUT, is_done).await.is_err() {
            tracing::warn!("timed out transferring the last messages out of the mailbox");
        }
    }
}

/// Opens the mailbox and starts its task. Creates the copy if needed, and fills a new volume from it. `before` is the state of a
/// swarm that is resumed.
///
/// # Errors
/// Those of the depot and of the copy.
pub(super) async fn open(
    depot: &DepotClient,
    dir: &SwarmDir,
    plan: &Plan,
    before: Option<&SwarmMachine>,
) -> Result<(MailboxHandle, AbortOnDropHandle<()>), CoordinatorError> {
    let sync = MailboxSync::open(depot.clone(), &dir.path(), plan, before).await?;
    let (commands, receiver) = mpsc::unbounded_channel();
    let task = AbortOnDropHandle::new(tokio::spawn(sync.run(receiver)));
    Ok((MailboxHandle { depot: depot.clone(), commands }, task))
}

/// Transfers the messages of a swarm that will not be resumed to the host.
pub(super) async fn export(depot: &DepotClient, swarm_dir: &Path) -> Result<(), CoordinatorError> {
    MailboxSync::export(depot.clone(), swarm_dir).await
}
