//! What the coordinator knows of an attempt beyond the machine: its identity on the engine and in ref names, and the channels
//! to its session.

use std::sync::Arc;

use tokio::sync::{Notify, watch};

use crate::delivery::{result_ref, salvage_ref};
use crate::engine::Signal;
use crate::handoff::sandbox_users::SandboxUsers;
use crate::ids::{AttemptId, BranchName, CommitId, ContainerId, StoryId, SwarmId};
use crate::swarm::{AttemptView, SwarmSpec};

/// The first uid of agents. Each attempt of a swarm has its own uid.
const FIRST_UID: u32 = 20_000;
/// The number of these uids. As many follow for the shims: a rootless engine maps 65,536.
const UID_COUNT: u32 = 20_000;

/// An attempt's identity: what its work directory, its commits and its refs are found by.
#[derive(Debug, Clone)]
pub(crate) struct AttemptContext {
    pub swarm: SwarmId,
    pub attempt: AttemptId,
    /// The agent's user.
    pub uid: u32,
    pub branch: BranchName,
    pub base: CommitId,
    /// The integration branch's commit that it merges, after a conflict.
    pub merge_head: Option<CommitId>,
    /// Its stories, each with its label in ref names.
    pub stories: Vec<(StoryId, String)>,
    /// The sandbox's container, while it exists.
    pub container: Option<ContainerId>,
}

impl AttemptContext {
    /// `None` if the spec has no such assignment.
    pub fn new(spec: &SwarmSpec, view: &AttemptView, container: Option<ContainerId>) -> Option<Self> {
        let index = spec.assignments.iter().position(|assignment| assignment.id == view.id.assignment)?;
        // Derived from index and number, so that a resumed swarm gives each attempt the same uid.
        let nth = index as u32 + (view.id.number - 1) * spec.assignments.len() as u32;
        Some(Self {
            swarm: spec.swarm,
            attempt: view.id.clone(),
            uid: FIRST_UID + nth % UID_COUNT,
            branch: spec.assignments[index].branch.clone(),
            base: view.base.clone(),
            merge_head: view.merge.as_ref().map(|merge| merge.head.clone()),
            stories: view.stories.iter().map(|(key, _)| (key.id.clone(), spec.story_ref(key).label)).collect(),
            container,
        })
    }

    /// The users of the sandbox.
    pub fn users(&self) -> SandboxUsers {
        SandboxUsers { agent: self.uid, shim: self.uid + UID_COUNT }
    }

    /// The ref for work of this attempt that did not land.
    pub fn salvage_ref(&self, label: &str) -> String {
        salvage_ref(self.swarm, label, self.attempt.number)
    }

    /// The ref for the commits of this attempt, landed or not.
    pub fn result_ref(&self) -> String {
        let label = match self.stories.as_slice() {
            [(_, label)] => label,
            _ => self.attempt.assignment.as_str(),
        };
        result_ref(self.swarm, label, self.attempt.number)
    }
}

/// An attempt and the sending side of its session's channels.
pub(super) struct AttemptHandle {
    context: AttemptContext,
    stop_signal: watch::Sender<Option<Signal>>,
    inspect_requested: Arc<Notify>,
}

/// The receiving side, for the session.
pub(super) struct SessionControl {
    pub stop_signal: watch::Receiver<Option<Signal>>,
    /// The engine may know of an end that the session has not been told of.
    pub inspect_requested: Arc<Notify>,
}

impl AttemptHandle {
    pub fn new(context: AttemptContext) -> (Self, SessionControl) {
        let (sender, stop_signal) = watch::channel(None);
        let inspect_requested = Arc::new(Notify::new());
        let handle = Self { context, stop_signal: sender, inspect_requested: Arc::clone(&inspect_requested) };
        (handle, SessionControl { stop_signal, inspect_requested })
    }

    /// An attempt whose session has ended.
    pub fn without_session(context: AttemptContext) -> Self {
        Self::new(context).0
    }

    pub fn context(&self) -> &AttemptContext {
        &self.context
    }

    pub fn container(&self) -> Option<&ContainerId> {
        self.context.container.as_ref()
    }

    pub fn set_container(&mut self, container: ContainerId) {
        self.context.container = Some(container);
    }

    pub fn take_container(&mut self) -> Option<ContainerId> {
        self.context.container.take()
    }

    /// Has the session signal the sandbox.
    pub fn signal(&self, signal: Signal) {
        self.stop_signal.send_replace(Some(signal));
    }

    /// Has the session check whether its container still runs.
    pub fn request_inspection(&self) {
        self.inspect_requested.notify_one();
    }
}
