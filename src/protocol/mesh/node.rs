//! A node: its position on the path, its roles, its modules, and the context in which modules process a frame.
//!
//! Plain data that does not change while a message is processed (2.2). [`Node`], [`Module`] and [`ProcessingContext`] stand together
//! because each needs the other two. Must not: do I/O, or keep anything of a message; the outcome carries what is to be remembered.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value};
use thiserror::Error;

use super::change::FrameChange;
use super::fault::{Fault, FaultCode};
use super::frame::Frame;
use super::limits::FrameLimits;
use super::replay::{ReplayEntry, ReplayMemory};
use super::role::{Role, RoleError, RoleRegistry};
use super::syntax::is_iri;
use super::version::SupportedVersions;

/// Position on a message's path (2.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// Processes the Body.
    UltimateReceiver,
    /// Relays, and changes only what modules require.
    ForwardingIntermediary,
    /// Changes what it relays, and records that in the frame.
    ActiveIntermediary,
}

impl NodeKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UltimateReceiver => "ultimateReceiver",
            Self::ForwardingIntermediary => "forwardingIntermediary",
            Self::ActiveIntermediary => "activeIntermediary",
        }
    }
}

/// In words: "ultimate receiver".
impl std::fmt::Display for NodeKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_str().chars().try_for_each(|c| match c {
            'A'..='Z' => write!(f, " {}", c.to_ascii_lowercase()),
            _ => write!(f, "{c}"),
        })
    }
}

/// The application's schema for Bodies (5.3, rule 5).
pub trait BodySchema: Send + Sync {
    /// Checks a Body that is not a fault.
    fn check(&self, body: &Map<String, Value>) -> Result<(), BodyProblem>;

    /// Checks subcode (5.4.1) and detail (5.4.5) of a fault against the application's lists; accepts all by default.
    fn check_fault(&self, _fault: &Fault) -> Result<(), BodyProblem> {
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyProblem {
    /// JSON Pointer into the Body: `/task/orderId`; empty for the Body itself.
    pub pointer: String,
    /// A fragment: "must be a string".
    pub problem: String,
}

/// When a module acts (3.3). Identity and integrity are established before any module acts on them (7.0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModuleStage {
    Lifetime,
    Identity,
    Integrity,
    Freshness,
    Authorization,
    Decryption,
    Content,
    Routing,
    Audit,
}

/// Declarations that 3.1.1 and 3.3 require of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModuleDescriptor {
    pub uri: &'static str,
    /// URIs of the features that it provides.
    pub features: &'static [&'static str],
    /// Names of the blocks that it owns.
    pub blocks: &'static [&'static str],
    pub stage: ModuleStage,
}

/// A module of a node.
pub trait Module: Debug + Send + Sync {
    fn descriptor(&self) -> &'static ModuleDescriptor;

    /// Takes part in processing a frame, whether or not the frame has the module's blocks.
    fn receive(&self, context: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>>;

    /// Takes part in relaying a frame. By default, reinserts the module's targeted blocks unchanged.
    fn forward(&self, context: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        for name in self.descriptor().blocks {
            if context.targeted_blocks.contains(*name) {
                context.reinsert(name, None)?;
            }
        }
        Ok(())
    }

    /// Runs last, on the frame that is relayed or delivered. `changed`: an active intermediary changed it.
    fn finish(&self, _context: &mut ProcessingContext<'_>, _changed: bool) -> Result<(), Box<Fault>> {
        Ok(())
    }

    /// Whether the module can decrypt a gram.
    fn can_decrypt(&self, _gram: &Map<String, Value>) -> bool {
        false
    }
}

/// What processing found out about a message, delivered with every outcome but a fault.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProcessingRecord {
    /// Verified sender.
    pub sender: Option<String>,
    /// Ids that the caller has to remember.
    pub replay_entries: Vec<ReplayEntry>,
    /// Remarks for a log.
    pub notes: Vec<String>,
}

/// A frame while a node processes it. Modules read and write it.
#[derive(Debug)]
pub struct ProcessingContext<'n> {
    pub node: &'n Node,
    /// The frame as received.
    pub original: &'n Frame,
    /// The frame so far.
    pub frame: Frame,
    pub now: Timestamp,
    pub record: ProcessingRecord,
    /// Verified time of sending.
    pub sent_at: Option<Timestamp>,
    /// Verified nonces, which identify the message besides its id.
    pub nonces: Vec<String>,
    /// Whether a signature proves that the frame is unchanged.
    pub is_intact: bool,
    /// Actions for the audit log.
    pub audit_actions: Vec<String>,
    /// Actions that the frame's own authorization permits this node.
    pub granted_actions: BTreeSet<String>,
    /// URI of the next node, if a module chooses it.
    pub next_hop: Option<String>,
    pub(super) targeted_blocks: BTreeSet<String>,
    pub(super) processed_blocks: BTreeSet<String>,
    pub(super) reinserted_blocks: BTreeSet<String>,
}

impl<'n> ProcessingContext<'n> {
    pub(super) fn new(node: &'n Node, original: &'n Frame, now: Timestamp) -> Self {
        let targeted =
            original.header.blocks().into_iter().filter(|block| node.acts_in_role(&block.role(&node.role_registry)));
        Self {
            node,
            original,
            frame: original.clone(),
            now,
            record: ProcessingRecord::default(),
            sent_at: None,
            nonces: Vec::new(),
            is_intact: false,
            audit_actions: Vec::new(),
            granted_actions: BTreeSet::new(),
            next_hop: None,
            targeted_blocks: targeted.map(|block| block.name.to_owned()).collect(),
            processed_blocks: BTreeSet::new(),
            reinserted_blocks: BTreeSet::new(),
        }
    }

    /// The module's own fields of a block that is present and targeted at this node.
    pub fn targeted_block(&self, name: &str) -> Option<Map<String, Value>> {
        let block = self.original.header.block(name)?;
        self.targeted_blocks.contains(name).then(|| block.content().clone())
    }

    /// All properties of a block, including those of its form.
    pub fn block_properties(&self, name: &str) -> Map<String, Value> {
        self.frame.header.block(name).map(|block| block.properties.clone()).unwrap_or_default()
    }

    /// Reinserts a processed block (2.7.1), unchanged or with new properties.
    pub fn reinsert(&mut self, name: &str, properties: Option<Map<String, Value>>) -> Result<(), Box<Fault>> {
        if let Some(properties) = properties {
            self.frame.header.set_block(name, properties)?;
        }
        self.reinserted_blocks.insert(name.to_owned());
        Ok(())
    }

    /// Whether a block is targeted at this node, and the node understands it.
    pub fn will_process(&self, name: &str) -> bool {
        self.targeted_blocks.contains(name) && self.node.understands(name)
    }

    pub fn is_intermediary(&self) -> bool {
        self.node.kind() != NodeKind::UltimateReceiver
    }

    /// Whether this node may process a block with side effects (7.2, rule 3).
    pub fn is_authorized_for(&self, name: &str) -> bool {
        !self.is_intermediary() || self.node.authorized_blocks.contains(name) || self.granted_actions.contains(name)
    }
}

#[derive(Clone)]
pub struct Node {
    uri: String,
    kind: NodeKind,
    roles: BTreeSet<Role>,
    pub role_registry: RoleRegistry,
    pub limits: FrameLimits,
    pub versions: SupportedVersions,
    pub encoding_styles: BTreeSet<String>,
    pub replay_memory: ReplayMemory,
    /// Blocks that the caller understands, and whether to reinsert them.
    pub(super) understood_blocks: BTreeMap<String, bool>,
    pub(super) modules: Vec<Arc<dyn Module>>,
    pub(super) body_schema: Option<Arc<dyn BodySchema>>,
    pub(super) changes: Vec<FrameChange>,
    pub(super) authorized_blocks: BTreeSet<String>,
}

/// A node that cannot be created.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NodeError {
    /// 2.1.
    #[error("a node's name must be an absolute URI, found `{0}`")]
    InvalidUri(String),
    #[error(transparent)]
    Role(#[from] RoleError),
}

impl Node {
    /// Creates a node with the spec's roles and no modules.
    pub fn new(uri: &str, kind: NodeKind) -> Result<Self, NodeError> {
        if !is_iri(uri) {
            return Err(NodeError::InvalidUri(uri.to_owned()));
        }
        // 2.2, Table 2: every node but the initial sender acts in `next`, only the ultimate receiver in its own role.
        let own = if kind == NodeKind::UltimateReceiver { Role::UltimateReceiver } else { Role::Intermediary };
        Ok(Self {
            uri: uri.to_owned(),
            kind,
            roles: BTreeSet::from([Role::Next, own]),
            role_registry: RoleRegistry::default(),
            limits: FrameLimits::default(),
            versions: SupportedVersions::default(),
            encoding_styles: ["application/json", "application/amp+json"].map(str::to_owned).into(),
            replay_memory: ReplayMemory::default(),
            understood_blocks: BTreeMap::new(),
            modules: Vec::new(),
            body_schema: None,
            changes: Vec::new(),
            authorized_blocks: BTreeSet::new(),
        })
    }

    pub fn ultimate_receiver(uri: &str) -> Result<Self, NodeError> {
        Self::new(uri, NodeKind::UltimateReceiver)
    }

    pub fn forwarding_intermediary(uri: &str) -> Result<Self, NodeError> {
        Self::new(uri, NodeKind::ForwardingIntermediary)
    }

    pub fn active_intermediary(uri: &str) -> Result<Self, NodeError> {
        Self::new(uri, NodeKind::ActiveIntermediary)
    }

    pub fn with_limits(mut self, limits: FrameLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Maps a token to the IRI of a role.
    pub fn with_role_token(mut self, token: &str, iri: &str) -> Result<Self, NodeError> {
        self.role_registry.register_token(token, iri)?;
        Ok(self)
    }

    /// Adds a role: an IRI, or a token of the node's registry.
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

    /// Adds blocks that the caller acts on, once the outcome names them. An intermediary removes them from the frame.
    pub fn with_understood_blocks<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.understood_blocks.extend(names.into_iter().map(|name| (name.to_owned(), false)));
        self
    }

    /// Like [`with_understood_blocks`](Self::with_understood_blocks), but an intermediary reinserts the blocks (2.7.1).
    pub fn with_reinserted_blocks<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.understood_blocks.extend(names.into_iter().map(|name| (name.to_owned(), true)));
        self
    }

    /// Adds a module. Modules act in the order of their stages.
    pub fn with_module(mut self, module: impl Module + 'static) -> Self {
        self.modules.push(Arc::new(module));
        self.modules.sort_by_key(|module| module.descriptor().stage);
        self
    }

    pub fn with_body_schema(mut self, schema: impl BodySchema + 'static) -> Self {
        self.body_schema = Some(Arc::new(schema));
        self
    }

    /// Adds changes to relayed frames; only an active intermediary makes them.
    pub fn with_changes(mut self, changes: impl IntoIterator<Item = FrameChange>) -> Self {
        self.changes.extend(changes);
        self
    }

    /// Authorizes an intermediary to process these blocks with side effects (7.2, rule 3). An ultimate receiver needs no authorization.
    pub fn with_authorized_blocks<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.authorized_blocks.extend(names.into_iter().map(str::to_owned));
        self
    }

    pub fn uri(&self) -> &str {
        &self.uri
    }

    pub fn kind(&self) -> NodeKind {
        self.kind
    }

    pub fn roles(&self) -> &BTreeSet<Role> {
        &self.roles
    }

    /// Whether the node acts in a role. No node acts in `none`.
    pub fn acts_in_role(&self, role: &Role) -> bool {
        *role != Role::None && self.roles.contains(role)
    }

    /// Whether the caller or a module understands a block.
    pub(super) fn understands(&self, name: &str) -> bool {
        let of_module = |module: &Arc<dyn Module>| module.descriptor().blocks.contains(&name);
        self.understood_blocks.contains_key(name) || self.modules.iter().any(of_module)
    }

    /// Names this node in a fault: required of an intermediary (5.4.3), allowed for an ultimate receiver.
    pub(super) fn attribute_fault(&self, mut fault: Box<Fault>) -> Box<Fault> {
        if fault.code == FaultCode::VersionMismatch {
            fault.supported_modules = self.modules.iter().map(|module| module.descriptor().uri.to_owned()).collect();
        }
        fault.node = Some(self.uri.clone());
        let is_last = self.kind == NodeKind::UltimateReceiver;
        fault.role = Some(if is_last { Role::UltimateReceiver } else { Role::Intermediary });
        fault
    }
}

impl Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let modules: Vec<&str> = self.modules.iter().map(|module| module.descriptor().uri).collect();
        f.debug_struct("Node")
            .field("uri", &self.uri)
            .field("kind", &self.kind)
            .field("roles", &self.roles)
            .field("understood_blocks", &self.understood_blocks)
            .field("modules", &modules)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "tests/node.rs"]
mod tests;
