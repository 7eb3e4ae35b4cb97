//! A node: where it stands on the path, the roles that it acts in, what it understands.
//!
//! Made by whoever receives frames, and given to [`process`](super::process::process). It is plain data that stays the same while a
//! message is processed (2.2). Must not: do I/O or keep what a message said; what is to be remembered comes with the outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value};
use thiserror::Error;

use super::fault::Fault;
use super::limits::FrameLimits;
use super::modules::Module;
use super::relay::FrameChange;
use super::replay::ReplayMemory;
use super::role::{Role, RoleError, RoleRegistry, is_iri};
use super::version::SupportedVersions;

/// Where a node stands on a message's path (2.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// The ultimate receiver: it processes the Body.
    UltimateReceiver,
    /// A forwarding intermediary: it relays, and changes only what modules want.
    ForwardingIntermediary,
    /// An active intermediary: it changes what it relays, and says so in the frame.
    ActiveIntermediary,
}

/// What a Body must be like (5.3, rule 5): the application's schema. Says what is wrong and where, as a JSON Pointer in the Body.
pub trait BodySchema: Send + Sync {
    /// Checks a Body that is no fault.
    fn check(&self, body: &Map<String, Value>) -> Result<(), BodyProblem>;

    /// Checks the subcode (5.4.1) and the detail (5.4.5) of a fault against the application's own lists; without any, all will do.
    fn check_fault(&self, _fault: &Fault) -> Result<(), BodyProblem> {
        Ok(())
    }
}

/// What is wrong with a Body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyProblem {
    /// Where: `/task/orderId`; empty for the Body itself.
    pub pointer: String,
    /// What, as a fragment.
    pub problem: String,
}

/// A node of the mesh.
#[derive(Clone)]
pub struct Node {
    uri: String,
    kind: NodeKind,
    roles: BTreeSet<Role>,
    /// The role tokens that it knows beside the spec's.
    pub role_registry: RoleRegistry,
    /// The sizes that it takes.
    pub limits: FrameLimits,
    /// The versions of the frame that it takes.
    pub versions: SupportedVersions,
    /// The `encodingStyle`s that it knows.
    pub encoding_styles: BTreeSet<String>,
    pub(super) understood_blocks: BTreeMap<String, bool>,
    pub(super) modules: Vec<Arc<dyn Module>>,
    pub(super) body_schema: Option<Arc<dyn BodySchema>>,
    pub(super) changes: Vec<FrameChange>,
    /// What it has seen.
    pub replay_memory: ReplayMemory,
    pub(super) authorized_blocks: BTreeSet<String>,
}

/// Why there is no such node.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NodeError {
    /// 2.1: a node is identified by a URI.
    #[error("a node's name must be an absolute URI, found `{0}`")]
    InvalidUri(String),
    /// It cannot act in a role.
    #[error(transparent)]
    Role(#[from] RoleError),
}

impl Node {
    /// A node with the spec's roles and no modules.
    pub fn new(uri: &str, place: NodeKind) -> Result<Self, NodeError> {
        if !is_iri(uri) {
            return Err(NodeError::InvalidUri(uri.to_owned()));
        }
        // 2.2, Table 2: everybody but the initial sender acts in `next`, the ultimate receiver alone in its role.
        let own = if place == NodeKind::UltimateReceiver { Role::UltimateReceiver } else { Role::Intermediary };
        Ok(Self {
            uri: uri.to_owned(),
            kind: place,
            roles: BTreeSet::from([Role::Next, own]),
            role_registry: RoleRegistry::default(),
            limits: FrameLimits::default(),
            versions: SupportedVersions::default(),
            encoding_styles: ["application/json", "application/amp+json"].map(str::to_owned).into(),
            understood_blocks: BTreeMap::new(),
            modules: Vec::new(),
            body_schema: None,
            changes: Vec::new(),
            replay_memory: ReplayMemory::default(),
            authorized_blocks: BTreeSet::new(),
        })
    }

    /// An ultimate receiver.
    pub fn ultimate_receiver(uri: &str) -> Result<Self, NodeError> {
        Self::new(uri, NodeKind::UltimateReceiver)
    }

    /// A forwarding intermediary.
    pub fn forwarding_intermediary(uri: &str) -> Result<Self, NodeError> {
        Self::new(uri, NodeKind::ForwardingIntermediary)
    }

    /// An active intermediary.
    pub fn active_intermediary(uri: &str) -> Result<Self, NodeError> {
        Self::new(uri, NodeKind::ActiveIntermediary)
    }

    /// The same acting in one role more: a token of its vocabulary or an IRI.
    pub fn with_role(mut self, role: &str) -> Result<Self, NodeError> {
        match self.role_registry.resolve(role) {
            None => return Err(RoleError::UnknownRole(role.to_owned()).into()),
            Some(Role::None) => return Err(RoleError::NoneRole.into()),
            Some(Role::UltimateReceiver) if self.kind != NodeKind::UltimateReceiver => {
                return Err(RoleError::FixedByNodeKind("ultimateReceiver").into());
            }
            Some(Role::Intermediary) if self.kind == NodeKind::UltimateReceiver => {
                return Err(RoleError::FixedByNodeKind("intermediary").into());
            }
            Some(role) => self.roles.insert(role),
        };
        Ok(self)
    }

    /// The same understanding these blocks, which the caller finds in the outcome and acts on. An intermediary takes them out.
    pub fn with_understood_blocks<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.understood_blocks.extend(names.into_iter().map(|name| (name.to_owned(), false)));
        self
    }

    /// The same understanding these blocks, and putting them in again when it relays (2.7.1).
    pub fn with_reinserted_blocks<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.understood_blocks.extend(names.into_iter().map(|name| (name.to_owned(), true)));
        self
    }

    /// The same with a module. Modules act in the order of their stages, whatever order they come in.
    pub fn with_module(mut self, module: impl Module + 'static) -> Self {
        self.modules.push(Arc::new(module));
        self.modules.sort_by_key(|module| module.descriptor().stage);
        self
    }

    /// The same with a schema for Bodies.
    pub fn with_body_schema(mut self, schema: impl BodySchema + 'static) -> Self {
        self.body_schema = Some(Arc::new(schema));
        self
    }

    /// The same with what it changes in the frames that it relays; an active intermediary alone does so.
    pub fn with_changes(mut self, changes: impl IntoIterator<Item = FrameChange>) -> Self {
        self.changes.extend(changes);
        self
    }

    /// The same with leave to handle these blocks with side effects (7.2, rule 3): an authorization that whoever runs the node has
    /// validated. An ultimate receiver needs none.
    pub fn with_authorized_blocks<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.authorized_blocks.extend(names.into_iter().map(str::to_owned));
        self
    }

    /// The URI that it is known by.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Where it stands.
    pub fn kind(&self) -> NodeKind {
        self.kind
    }

    /// The roles that it acts in.
    pub fn roles(&self) -> &BTreeSet<Role> {
        &self.roles
    }

    /// Whether it acts in a role. Nobody acts in `none`.
    pub fn acts_in_role(&self, role: &Role) -> bool {
        *role != Role::None && self.roles.contains(role)
    }

    /// What a fault of it says that it is.
    pub(super) fn fault_role(&self) -> Role {
        if self.kind == NodeKind::UltimateReceiver { Role::UltimateReceiver } else { Role::Intermediary }
    }

    /// The module that a block is of.
    pub(super) fn module_for_block(&self, name: &str) -> Option<&dyn Module> {
        self.modules.iter().find(|module| module.descriptor().blocks.contains(&name)).map(|module| &**module)
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let modules: Vec<&str> = self.modules.iter().map(|module| module.descriptor().uri).collect();
        f.debug_struct("Node")
            .field("uri", &self.uri)
            .field("place", &self.kind)
            .field("roles", &self.roles)
            .field("understands", &self.understood_blocks)
            .field("modules", &modules)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_2_1_and_2_2_a_node_needs_a_uri_and_never_acts_in_none() {
        assert_eq!(Node::ultimate_receiver("node-17").map(|_| ()), Err(NodeError::InvalidUri("node-17".to_owned())));
        for place in [NodeKind::UltimateReceiver, NodeKind::ForwardingIntermediary, NodeKind::ActiveIntermediary] {
            let node = Node::new("agent://node-17", place).expect("a node");
            assert!(!node.acts_in_role(&Role::None));
            for none in ["none", "amp://role/none", "urn:agentic:mesh:role:none"] {
                assert_eq!(
                    node.clone().with_role(none).map(|_| ()),
                    Err(NodeError::Role(RoleError::NoneRole)),
                    "{none}"
                );
            }
        }
    }

    #[test]
    fn section_2_2_every_node_acts_in_next_and_only_the_last_as_ultimate_receiver() {
        for (place, ultimate) in [
            (NodeKind::UltimateReceiver, true),
            (NodeKind::ForwardingIntermediary, false),
            (NodeKind::ActiveIntermediary, false),
        ] {
            let node = Node::new("agent://node-17", place).expect("a node");
            assert!(node.acts_in_role(&Role::Next));
            assert_eq!(node.acts_in_role(&Role::UltimateReceiver), ultimate);
            assert_eq!(node.acts_in_role(&Role::Intermediary), !ultimate);
            let other = if ultimate { "intermediary" } else { "ultimateReceiver" };
            assert_eq!(node.with_role(other).map(|_| ()), Err(NodeError::Role(RoleError::FixedByNodeKind(other))));
        }
    }

    #[test]
    fn section_2_2_a_node_may_act_in_custom_roles() {
        let mut node = Node::forwarding_intermediary("agent://b").expect("a node");
        node.role_registry.register_token("cache", "amp://example.org/cache").expect("a token");
        assert!(node.clone().with_role("manager").is_err());
        let node = node.with_role("cache").and_then(|node| node.with_role("initialSender")).expect("roles");
        assert!(node.acts_in_role(&Role::Custom("amp://example.org/cache".to_owned())));
        assert!(node.acts_in_role(&Role::InitialSender));
    }
}
