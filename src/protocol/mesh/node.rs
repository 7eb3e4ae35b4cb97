//! A node: where it stands on the path, the roles that it acts in, what it understands.
//!
//! Made by whoever receives frames, and given to [`process`](super::process::process). It is plain data that stays the same while a
//! message is processed (2.2). Must not: do I/O or keep what a message said; what is to be remembered comes with the outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value};
use thiserror::Error;

use super::fault::Fault;
use super::limits::Limits;
use super::modules::Module;
use super::relay::Change;
use super::replay::Memory;
use super::role::{Role, RoleError, Vocabulary, is_iri};
use super::version::Versions;

/// Where a node stands on a message's path (2.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The ultimate receiver: it processes the Body.
    Ultimate,
    /// A forwarding intermediary: it relays, and changes only what modules want.
    Forwarding,
    /// An active intermediary: it changes what it relays, and says so in the frame.
    Active,
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
    place: Place,
    roles: BTreeSet<Role>,
    /// The role tokens that it knows beside the spec's.
    pub vocabulary: Vocabulary,
    /// The sizes that it takes.
    pub limits: Limits,
    /// The versions of the frame that it takes.
    pub versions: Versions,
    /// The `encodingStyle`s that it knows.
    pub encodings: BTreeSet<String>,
    pub(super) understands: BTreeMap<String, bool>,
    pub(super) modules: Vec<Arc<dyn Module>>,
    pub(super) schema: Option<Arc<dyn BodySchema>>,
    pub(super) changes: Vec<Change>,
    /// What it has seen.
    pub memory: Memory,
    pub(super) allowed: BTreeSet<String>,
}

/// Why there is no such node.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NodeError {
    /// 2.1: a node is identified by a URI.
    #[error("a node's name must be an absolute URI, found `{0}`")]
    Uri(String),
    /// It cannot act in a role.
    #[error(transparent)]
    Role(#[from] RoleError),
}

impl Node {
    /// A node with the spec's roles and no modules.
    pub fn new(uri: &str, place: Place) -> Result<Self, NodeError> {
        if !is_iri(uri) {
            return Err(NodeError::Uri(uri.to_owned()));
        }
        // 2.2, Table 2: everybody but the initial sender acts in `next`, the ultimate receiver alone in its role.
        let own = if place == Place::Ultimate { Role::UltimateReceiver } else { Role::Intermediary };
        Ok(Self {
            uri: uri.to_owned(),
            place,
            roles: BTreeSet::from([Role::Next, own]),
            vocabulary: Vocabulary::default(),
            limits: Limits::default(),
            versions: Versions::default(),
            encodings: ["application/json", "application/amp+json"].map(str::to_owned).into(),
            understands: BTreeMap::new(),
            modules: Vec::new(),
            schema: None,
            changes: Vec::new(),
            memory: Memory::default(),
            allowed: BTreeSet::new(),
        })
    }

    /// An ultimate receiver.
    pub fn ultimate(uri: &str) -> Result<Self, NodeError> {
        Self::new(uri, Place::Ultimate)
    }

    /// A forwarding intermediary.
    pub fn forwarding(uri: &str) -> Result<Self, NodeError> {
        Self::new(uri, Place::Forwarding)
    }

    /// An active intermediary.
    pub fn active(uri: &str) -> Result<Self, NodeError> {
        Self::new(uri, Place::Active)
    }

    /// The same acting in one role more: a token of its vocabulary or an IRI.
    pub fn acting_as(mut self, role: &str) -> Result<Self, NodeError> {
        match self.vocabulary.recognise(role) {
            None => return Err(RoleError::Unknown(role.to_owned()).into()),
            Some(Role::None) => return Err(RoleError::None.into()),
            Some(Role::UltimateReceiver) if self.place != Place::Ultimate => {
                return Err(RoleError::Place("ultimateReceiver").into());
            }
            Some(Role::Intermediary) if self.place == Place::Ultimate => {
                return Err(RoleError::Place("intermediary").into());
            }
            Some(role) => self.roles.insert(role),
        };
        Ok(self)
    }

    /// The same understanding these blocks, which the caller finds in the outcome and acts on. An intermediary takes them out.
    pub fn understanding<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.understands.extend(names.into_iter().map(|name| (name.to_owned(), false)));
        self
    }

    /// The same understanding these blocks, and putting them in again when it relays (2.7.1).
    pub fn reinserting<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.understands.extend(names.into_iter().map(|name| (name.to_owned(), true)));
        self
    }

    /// The same with a module. Modules act in the order of their stages, whatever order they come in.
    pub fn with(mut self, module: impl Module + 'static) -> Self {
        self.modules.push(Arc::new(module));
        self.modules.sort_by_key(|module| module.about().stage);
        self
    }

    /// The same with a schema for Bodies.
    pub fn agreeing(mut self, schema: impl BodySchema + 'static) -> Self {
        self.schema = Some(Arc::new(schema));
        self
    }

    /// The same with what it changes in the frames that it relays; an active intermediary alone does so.
    pub fn changing(mut self, changes: impl IntoIterator<Item = Change>) -> Self {
        self.changes.extend(changes);
        self
    }

    /// The same with leave to handle these blocks with side effects (7.2, rule 3): an authorization that whoever runs the node has
    /// validated. An ultimate receiver needs none.
    pub fn authorized<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.allowed.extend(names.into_iter().map(str::to_owned));
        self
    }

    /// The URI that it is known by.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Where it stands.
    pub fn place(&self) -> Place {
        self.place
    }

    /// The roles that it acts in.
    pub fn roles(&self) -> &BTreeSet<Role> {
        &self.roles
    }

    /// Whether it acts in a role. Nobody acts in `none`.
    pub fn acts_as(&self, role: &Role) -> bool {
        *role != Role::None && self.roles.contains(role)
    }

    /// What a fault of it says that it is.
    pub(super) fn own_role(&self) -> Role {
        if self.place == Place::Ultimate { Role::UltimateReceiver } else { Role::Intermediary }
    }

    /// The module that a block is of.
    pub(super) fn module(&self, name: &str) -> Option<&dyn Module> {
        self.modules.iter().find(|module| module.about().blocks.contains(&name)).map(|module| &**module)
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let modules: Vec<&str> = self.modules.iter().map(|module| module.about().uri).collect();
        f.debug_struct("Node")
            .field("uri", &self.uri)
            .field("place", &self.place)
            .field("roles", &self.roles)
            .field("understands", &self.understands)
            .field("modules", &modules)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_2_1_and_2_2_a_node_has_a_uri_and_never_acts_in_none() {
        assert_eq!(Node::ultimate("node-17").map(|_| ()), Err(NodeError::Uri("node-17".to_owned())));
        for place in [Place::Ultimate, Place::Forwarding, Place::Active] {
            let node = Node::new("agent://node-17", place).expect("a node");
            assert!(!node.acts_as(&Role::None));
            for none in ["none", "amp://role/none", "urn:agentic:mesh:role:none"] {
                assert_eq!(node.clone().acting_as(none).map(|_| ()), Err(NodeError::Role(RoleError::None)), "{none}");
            }
        }
    }

    #[test]
    fn section_2_2_who_acts_in_next_and_who_as_the_ultimate_receiver() {
        for (place, ultimate) in [(Place::Ultimate, true), (Place::Forwarding, false), (Place::Active, false)] {
            let node = Node::new("agent://node-17", place).expect("a node");
            assert!(node.acts_as(&Role::Next));
            assert_eq!(node.acts_as(&Role::UltimateReceiver), ultimate);
            assert_eq!(node.acts_as(&Role::Intermediary), !ultimate);
            let other = if ultimate { "intermediary" } else { "ultimateReceiver" };
            assert_eq!(node.acting_as(other).map(|_| ()), Err(NodeError::Role(RoleError::Place(other))));
        }
    }

    #[test]
    fn section_2_2_a_node_may_act_in_roles_of_its_own() {
        let mut node = Node::forwarding("agent://b").expect("a node");
        node.vocabulary.define("cache", "amp://example.org/cache").expect("a token");
        assert!(node.clone().acting_as("manager").is_err());
        let node = node.acting_as("cache").and_then(|node| node.acting_as("initialSender")).expect("roles");
        assert!(node.acts_as(&Role::Custom("amp://example.org/cache".to_owned())));
        assert!(node.acts_as(&Role::InitialSender));
    }
}
