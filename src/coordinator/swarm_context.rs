//! The facts of a running swarm that do not change.

use std::sync::Arc;

use crate::delivery::Repo;
use crate::engine::Engine;
use crate::ids::AssignmentId;
use crate::plan::Plan;
use crate::protocol::amp::store::Ssot;
use crate::state::SwarmDir;
use crate::swarm::{AssignmentSpec, SwarmSpec};

use super::checks::CheckMemory;
use super::resource_names::ResourceNames;
use super::sandbox_settings::SandboxSettings;

/// The facts of a running swarm that do not change.
pub(super) struct SwarmContext {
    pub plan: Plan,
    pub spec: SwarmSpec,
    pub sandbox: SandboxSettings,
    pub names: ResourceNames,
    pub dir: SwarmDir,
    pub repo: Repo,
    pub engine: Arc<dyn Engine>,
    pub ssot: Arc<Ssot>,
    pub checks: CheckMemory,
}

impl SwarmContext {
    /// An assignment and its index.
    pub fn find_assignment(&self, id: &AssignmentId) -> Option<(usize, &AssignmentSpec)> {
        self.spec.assignments.iter().enumerate().find(|(_, assignment)| assignment.id == *id)
    }
}
