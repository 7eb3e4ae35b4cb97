//! Input of the coordinator: everything that a swarm needs to run, already checked. Built by `cli/run/setup.rs` and
//! `cli/resume.rs`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use crate::delivery::Repo;
use crate::engine::Engine;
use crate::plan::Plan;
use crate::protocol::amp::store::Ssot;
use crate::report::Reporter;
use crate::state::{SwarmDir, SwarmStore};
use crate::swarm::{AmpIntent, SwarmMachine, SwarmSpec, TaskDecision};

use super::amp::escalation_listener::EscalationListener;
use super::sandbox_settings::SandboxSettings;

/// Everything that a swarm needs to run, checked.
pub struct SwarmSetup {
    pub plan: Plan,
    /// The plan in the machine's terms.
    pub spec: SwarmSpec,
    pub sandbox: SandboxSettings,
    pub repo: Repo,
    pub engine: Arc<dyn Engine>,
    /// The swarm's directory, locked.
    pub dir: SwarmDir,
    /// The journal, its header written.
    pub store: SwarmStore,
    pub reporter: Box<dyn Reporter>,
    pub ssot: Arc<Ssot>,
    pub escalation_listener: Box<dyn EscalationListener>,
    /// The static `acp-shim` for the image's architecture.
    pub shim: Bytes,
    /// The journal's content when an existing swarm is resumed.
    pub resumed: Option<ResumedSwarm>,
}

/// A swarm started by an earlier orchestrator.
pub struct ResumedSwarm {
    /// The machine after the journal's last event.
    pub machine: SwarmMachine,
    /// The swarm time of that event.
    pub elapsed: Duration,
    /// The wall-clock time of that event; `None` if there is no event.
    pub last_event_at: Option<Timestamp>,
    /// All AMP intents of the journal, in order.
    pub intents: Vec<AmpIntent>,
    /// The admin's decisions since then.
    pub decisions: Vec<TaskDecision>,
}
