//! Keeps the roster of a swarm's mailbox.
//!
//! | status | when |
//! |---|---|
//! | `active` | the agent's sandbox is about to start |
//! | `done` | the agent's last message since then is a DONE |
//! | `crashed` | the container ended with an error, by itself or through somebody else, before a DONE |
//! | `left` | the sandbox ended otherwise before a DONE; or the swarm is over, also for agents on the host |
//!
//! Called by `sync.rs`. Must not: speak to the depot.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::super::runtime::run_blocking;
use super::host_copy::log_error;
use crate::handoff::assignment::MailboxMembership;
use crate::ids::AgentId;
use crate::protocol::mailbox::message::{MailboxMessageType, Seq};
use crate::protocol::mailbox::roster::{AgentStatus, Roster, RosterEntry};
use crate::protocol::mailbox::store::Mailbox;

/// The role of agents on the host that did not register.
const HOST_ROLE: &str = "on the host";

/// How a sandbox ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SandboxExit {
    /// By itself without an error, or on request.
    Normal,
    Crashed,
}

#[derive(Debug, Default)]
struct AgentState {
    /// Messages of earlier attempts, which do not count.
    ignored_up_to: Option<Seq>,
    /// The last message is a DONE.
    done: bool,
    sandbox_ended: bool,
}

enum RosterChange {
    Row(RosterEntry),
    Status(AgentStatus),
}

pub(super) struct RosterKeeper {
    /// The agents of running and ended sandboxes.
    agents: BTreeMap<AgentId, AgentState>,
    /// The last message of each agent that affects its status.
    last_messages: BTreeMap<AgentId, Seq>,
    /// The roster in the volume.
    volume_text: String,
}

impl RosterKeeper {
    pub(super) fn new(last_messages: BTreeMap<AgentId, Seq>) -> Self {
        Self { agents: BTreeMap::new(), last_messages, volume_text: String::new() }
    }

    /// Takes over the agents of sandboxes that kept running.
    pub(super) fn resume(&mut self, mailbox: &Mailbox, agents: impl IntoIterator<Item = AgentId>) {
        let rows = mailbox.roster().map(|roster| roster.entries()).unwrap_or_default();
        for agent in agents {
            let done = rows.iter().any(|row| row.id == agent && row.status == AgentStatus::Done);
            self.agents.insert(agent, AgentState { done, ..AgentState::default() });
        }
    }

    /// Registers an agent whose sandbox is about to start. `last_known` is its last message in the copy.
    pub(super) fn handle_seated(&mut self, mailbox: &Mailbox, seat: &MailboxMembership, last_known: Option<Seq>) {
        let state = AgentState { ignored_up_to: last_known, ..AgentState::default() };
        self.agents.insert(seat.agent.clone(), state);
        change(mailbox, &seat.agent, |known| match known {
            Some(known) if known.status == AgentStatus::Active => None,
            // A new row for a new attempt: its start time tells the others.
            _ => {
                Some(RosterChange::Row(RosterEntry::new(seat.agent.clone(), seat.role.clone(), None, Timestamp::now())))
            }
        });
    }

    pub(super) fn is_done(&self, agent: &AgentId) -> bool {
        self.agents.get(agent).is_some_and(|state| state.done)
    }

    pub(super) fn handle_exit(&mut self, mailbox: &Mailbox, agent: &AgentId, exit: SandboxExit) {
        let Some(state) = self.agents.get_mut(agent) else { return };
        state.sandbox_ended = true;
        if state.done {
            return;
        }
        let status = if exit == SandboxExit::Crashed { AgentStatus::Crashed } else { AgentStatus::Left };
        change(mailbox, agent, |known| (known?.status != status).then(|| RosterChange::Status(status.clone())));
    }

    /// Updates an agent's status after a message. A DONE counts until another message follows. An ERROR does not count: it may
    /// only request a missing message.
    pub(super) fn handle_message(
        &mut self,
        mailbox: &Mailbox,
        agent: &AgentId,
        seq: Seq,
        message_type: Option<MailboxMessageType>,
    ) {
        let Some(message_type) = message_type.filter(|known| *known != MailboxMessageType::Error) else { return };
        if self.last_messages.get(agent).is_some_and(|last| *last >= seq) {
            return;
        }
        self.last_messages.insert(agent.clone(), seq);
        let done = message_type == MailboxMessageType::Done;
        if let Some(state) = self.agents.get_mut(agent) {
            if state.ignored_up_to >= Some(seq) || (state.sandbox_ended && !done) {
                return;
            }
            state.done = done;
        }
        change(mailbox, agent, |known| match known?.status {
            AgentStatus::Done if !done => Some(RosterChange::Status(AgentStatus::Active)),
            AgentStatus::Done => None,
            _ => done.then_some(RosterChange::Status(AgentStatus::Done)),
        });
    }

    /// Like [`handle_message`](Self::handle_message), for an agent on the host, which may not have registered.
    pub(super) fn handle_host_message(
        &mut self,
        mailbox: &Mailbox,
        agent: &AgentId,
        seq: Seq,
        message_type: Option<MailboxMessageType>,
    ) {
        let row = || RosterEntry::new(agent.clone(), HOST_ROLE, None, Timestamp::now());
        change(mailbox, agent, |known| known.is_none().then(|| RosterChange::Row(row())));
        self.handle_message(mailbox, agent, seq, message_type);
    }

    /// The roster's text, if it is new to the volume. Restores a roster that lost all of its rows.
    pub(super) fn new_text(&self, mailbox: &Mailbox) -> Option<String> {
        let mut roster = log_error(run_blocking(|| mailbox.roster()), "cannot read the roster")?;
        let known = Roster::from_text(self.volume_text.as_str());
        if roster.entries().is_empty() && !known.entries().is_empty() {
            tracing::warn!("the roster was lost and is restored");
            let restored = run_blocking(|| {
                mailbox.update_roster(|lost| {
                    known.entries().iter().for_each(|row| lost.add(row));
                    Ok(true)
                })?;
                mailbox.roster()
            });
            roster = log_error(restored, "cannot write the roster")?;
        }
        (roster.text() != self.volume_text).then(|| roster.text().to_owned())
    }

    pub(super) fn set_volume_text(&mut self, text: String) {
        self.volume_text = text;
    }
}

/// Marks everybody who is still there as `left`: nobody would read what they write, also on the host.
pub(super) fn mark_all_left(mailbox: &Mailbox) {
    let changed = run_blocking(|| {
        mailbox.update_roster(|roster| {
            let mut changed = false;
            for row in roster.entries().iter().filter(|row| !row.status.is_gone()) {
                changed |= roster.set_status(&row.id, &AgentStatus::Left);
            }
            Ok(changed)
        })
    });
    log_error(changed, "cannot write the roster");
}

fn change(mailbox: &Mailbox, agent: &AgentId, change: impl Fn(Option<&RosterEntry>) -> Option<RosterChange>) {
    let changed = run_blocking(|| {
        mailbox.update_roster(|roster| {
            Ok(match change(roster.entry(agent).as_ref()) {
                None => false,
                Some(RosterChange::Row(row)) => {
                    roster.add(&row);
                    true
                }
                Some(RosterChange::Status(status)) => roster.set_status(agent, &status),
            })
        })
    });
    log_error(changed, "cannot write the roster");
}
