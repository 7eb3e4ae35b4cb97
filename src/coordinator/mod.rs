//! The one loop: inputs -> events -> the machine -> the journal -> effects. It owns the machine and the journal, and it
//! awaits nothing that a sandbox, the engine or git could hold up: all of that runs in tasks that send events back.
//!
//! | file | what |
//! |---|---|
//! | `run.rs` | the loop |
//! | `recovery.rs` | goes on with a swarm that another orchestrator began |
//! | `engine_monitor.rs` | whether the engine is there |
//! | `reconcile.rs` | what the engine has against what the machine knows |
//! | `session.rs` | one sandbox, from its folder to its exit |
//! | `dispatch.rs` | what is handed out: files, container, task-request, merge message |
//! | `admission.rs` | holds starts back while the engine is short of memory or disk |
//! | `carry_out.rs` | the other effects: collect, merge, remove |
//! | `archive.rs` | a result's way out past a depot that is gone for good |
//! | `rescue.rs` | saves what a dead swarm left, for `longshore gc` |
//! | `bridge.rs` | AMP's messages, of the machine's words and the plan |
//! | `telling.rs` | their way to the SSOT |
//! | `memory.rs` | what stories learned, for those that come after |
//! | `notify.rs` | a command and a URL that hear of each escalation |
//! | `mailbox.rs` | carries the agents' mailbox between its volume and the host |
//! | `snapshot_writer.rs` | writes the state file |
//! | `objects_volume.rs` | keeps the objects volume topped up |
//! | `event_queue.rs` | the fair way in for events |
//! | `control.rs` | the socket that `longshore stop` talks to |
//!
//! Called by `cli/run.rs` and `cli/resume.rs`. Must not: decide anything; decisions are the machine's.

mod admission;
pub mod archive;
mod bridge;
mod carry_out;
pub mod control;
mod create;
mod diff_summary;
mod dispatch;
mod event_queue;
mod sandbox_log;
mod memory;
pub mod mailbox;
pub mod notify;
mod objects_volume;
mod engine_monitor;
mod reconcile;
mod rescue;
mod review;
mod run;
mod salvage;
mod session;
mod stop_signals;
mod snapshot_writer;
mod recovery;
mod telling;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::delivery::{DeliveryError, Repo};
use crate::engine::{Engine, EngineError};
use crate::handoff::assignment::{AgentSpec, GitIdentity};
use crate::ids::{AttemptId, StoryKey};
use crate::plan::Plan;
use crate::protocol::acp::message::{EnvVars, RepoUrl};
use crate::protocol::amp::store::Ssot;
use crate::protocol::mailbox::store::MailboxError;
use crate::report::Reporter;
use crate::state::{StateError, SwarmDir, SwarmStore};
use crate::swarm::{AmpIntent, SwarmMachine, SwarmOutcome, SwarmSpec, TaskDecision};

pub use admission::Reserve;
pub use bridge::AmpComposer;
pub use memory::{DEFAULT_MEMORY_BUDGET, MAX_MEMORY_BUDGET, memory_name, restore_memories};
pub use rescue::{RescueOutcome, RescueSpec, rescue, unsaved_attempts};
pub use run::run;
pub use telling::{EscalationListener, restore_messages};

/// Everything that a swarm needs to run, checked.
pub struct SwarmSetup {
    /// The plan; the machine knows it as `spec`.
    pub plan: Plan,
    /// What the machine is made of.
    pub spec: SwarmSpec,
    /// How sandboxes are made.
    pub sandbox: SandboxSettings,
    /// The user's repo.
    pub repo: Repo,
    /// What runs sandboxes.
    pub engine: Arc<dyn Engine>,
    /// The swarm's folder, locked.
    pub dir: SwarmDir,
    /// The journal, its header written.
    pub store: SwarmStore,
    /// Who tells the user.
    pub reporter: Box<dyn Reporter>,
    /// Where AMP's messages are kept.
    pub ssot: Arc<Ssot>,
    /// Who is told of escalations.
    pub escalation_listener: Box<dyn EscalationListener>,
    /// The static `acp-shim` for the image's architecture.
    pub shim: Bytes,
    /// What the journal says, where the swarm is taken up again and not new.
    pub resumed: Option<ResumedSwarm>,
}

/// A swarm that another orchestrator began.
pub struct ResumedSwarm {
    /// The machine after the journal's last event.
    pub machine: SwarmMachine,
    /// That event's time.
    pub elapsed: Duration,
    /// That event's time by the wall clock; none where there is no event.
    pub last_event_at: Option<Timestamp>,
    /// All that it says in AMP.
    pub intents: Vec<AmpIntent>,
    /// What the admin decided meanwhile.
    pub decisions: Vec<TaskDecision>,
}

/// Who reviews, and what for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReviewSettings {
    /// The reviewer.
    pub agent: AgentSpec,
    /// What it has to answer beside the stories' acceptance criteria.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub criteria: Vec<String>,
}

/// How every sandbox of a swarm is made.
#[derive(Debug, Clone)]
pub struct SandboxSettings {
    /// Image reference.
    pub image: String,
    /// The image's own `PATH`.
    pub image_path: Option<String>,
    /// `none`, or a network's name.
    pub network: String,
    /// Bytes.
    pub memory: u64,
    /// Thousandths of a CPU.
    pub milli_cpus: u64,
    /// Processes.
    pub pids: i64,
    /// What runs stories without a `command`.
    pub agent: Option<AgentSpec>,
    /// Who reviews finished work.
    pub review: Option<ReviewSettings>,
    /// Verify commands beyond those of the tasks files.
    pub verify: Vec<String>,
    /// The most bytes that a story is given of what others learned.
    pub memory_budget: usize,
    /// Travels in task-requests alone.
    pub env: EnvVars,
    /// Who commits.
    pub identity: GitIdentity,
    /// The repo's URL, as ACP wants it.
    pub repo_url: RepoUrl,
    /// What must be left on the engine when another sandbox starts.
    pub reserve: Reserve,
    /// Leave containers in place after they ended.
    pub keep_containers: bool,
    /// The largest result bundle that is taken, in bytes.
    pub max_bundle: u64,
    /// Whether the engine can mount a folder of a volume.
    pub supports_subpath: bool,
}

/// Why a swarm could not go on. What had been decided by then is in the journal.
#[derive(Debug, Error)]
pub enum CoordinatorError {
    /// The engine or the depot.
    #[error("the engine cannot run this swarm")]
    Engine(#[from] EngineError),
    /// Git on the host.
    #[error("the repository cannot be used")]
    Delivery(#[from] DeliveryError),
    /// The record could not be written: nothing more is started, because it could not be accounted for.
    #[error("the swarm's record cannot be written")]
    State(#[from] StateError),
    /// The host's copy of the agents' mailbox.
    #[error("the mailbox cannot be kept")]
    Mailbox(#[from] MailboxError),
    /// The control socket.
    #[error("cannot listen on `{path}`")]
    Control {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// How a swarm ended, and what is worth saying after the table.
#[derive(Debug)]
pub struct RunReport {
    /// How.
    pub outcome: SwarmOutcome,
    /// Work folders that could not be salvaged: their attempt and the volume they are in.
    pub unsalvaged: Vec<(AttemptId, String)>,
    /// Each story's log file.
    pub story_logs: BTreeMap<StoryKey, PathBuf>,
}

/// The names of a swarm's volumes and containers.
#[derive(Debug, Clone)]
pub struct ResourceNames {
    /// The depot container.
    pub depot: String,
    /// The *objects* volume: the repo's, not the swarm's.
    pub objects: String,
    /// The *in* volume.
    pub inbox: String,
    /// The *work* volume.
    pub work: String,
    /// The *mailbox* volume.
    pub mailbox: String,
    /// What sandboxes' names begin with.
    pub prefix: String,
}

impl ResourceNames {
    /// The names for this swarm of this repo.
    pub fn new(swarm: crate::ids::SwarmId, repo: &Repo) -> Self {
        let prefix = format!("longshore-{}", swarm.short());
        Self {
            depot: format!("{prefix}-depot"),
            objects: format!("longshore-objects-{}", repo.hash()),
            inbox: format!("{prefix}-in"),
            work: format!("{prefix}-work"),
            mailbox: format!("{prefix}-mailbox"),
            prefix,
        }
    }

    /// A sandbox's container name.
    pub fn sandbox(&self, attempt: &AttemptId) -> String {
        format!("{}-{}", self.prefix, attempt.dir_name().to_lowercase())
    }
}

/// Why a swarm's volumes are not removed with its end, if they are not.
pub fn reason_to_keep_volumes(machine: &SwarmMachine, keep: bool) -> Option<&'static str> {
    if machine.attempts().any(|view| view.work_dir_kept) {
        Some("work that could not be salvaged is in them")
    } else if !machine.is_complete() {
        Some("`longshore resume` goes on with them")
    } else if keep {
        Some("`--keep` was given")
    } else {
        None
    }
}
