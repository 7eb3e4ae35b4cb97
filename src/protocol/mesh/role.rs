//! Roles: the tokens that frames use, their IRIs, and how a node resolves them (2.1, 2.2, 5.2.2).
//!
//! Roles are compared by IRI, never by the text in a frame. Must not: know about blocks.

use std::collections::BTreeMap;

use thiserror::Error;

use super::syntax::is_iri;

/// IRIs of 2.1; longshore's own form.
const URN_PREFIX: &str = "urn:agentic:mesh:role:";
/// IRIs of 2.2, equivalent to those of 2.1.
const AMP_PREFIX: &str = "amp://role/";

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Every intermediary and the ultimate receiver.
    Next,
    /// No node acts in it.
    None,
    UltimateReceiver,
    InitialSender,
    Intermediary,
    /// Another role, by its IRI.
    Custom(String),
}

/// A role that cannot be registered or assumed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RoleError {
    /// 2.1.
    #[error("a node must not act in the role `none`")]
    NoneRole,
    /// 2.2: a node's position on the path determines these roles.
    #[error("the role `{0}` follows from the node's position on the path")]
    FixedByNodeKind(&'static str),
    #[error("a role must be a known token or an IRI, found `{0}`")]
    UnknownRole(String),
    /// 2.1: a token maps to exactly one IRI.
    #[error("the token `{0}` is invalid or already registered for another role")]
    InvalidToken(String),
}

const CORE_TOKENS: [(&str, Role); 5] = [
    ("next", Role::Next),
    ("none", Role::None),
    ("ultimateReceiver", Role::UltimateReceiver),
    ("initialSender", Role::InitialSender),
    ("intermediary", Role::Intermediary),
];

impl Role {
    /// The role as frames write it: its token, or the IRI of a custom role.
    pub fn token(&self) -> &str {
        match self {
            Self::Next => "next",
            Self::None => "none",
            Self::UltimateReceiver => "ultimateReceiver",
            Self::InitialSender => "initialSender",
            Self::Intermediary => "intermediary",
            Self::Custom(iri) => iri,
        }
    }

    fn from_core_token(token: &str) -> Option<Self> {
        CORE_TOKENS.iter().find(|(name, _)| *name == token).map(|(_, role)| role.clone())
    }

    fn from_iri(iri: &str) -> Option<Self> {
        let local = iri.strip_prefix(URN_PREFIX).or_else(|| iri.strip_prefix(AMP_PREFIX));
        match local {
            Some("") => None,
            Some(local) if is_iri(iri) => {
                Some(Self::from_core_token(local).unwrap_or(Self::Custom(format!("{URN_PREFIX}{local}"))))
            }
            None if is_iri(iri) => Some(Self::Custom(iri.to_owned())),
            _ => None,
        }
    }
}

/// Tokens that a node knows besides the spec's five (2.1 lets extensions define more).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoleRegistry {
    tokens: BTreeMap<String, String>,
}

impl RoleRegistry {
    /// Maps a token to an IRI. The spec's own tokens cannot be remapped.
    pub fn register_token(&mut self, token: &str, iri: &str) -> Result<(), RoleError> {
        let taken = Role::from_core_token(token).is_some()
            || token.is_empty()
            || token.contains(':')
            || self.tokens.get(token).is_some_and(|other| other != iri);
        match Role::from_iri(iri) {
            _ if taken => Err(RoleError::InvalidToken(token.to_owned())),
            Some(Role::Custom(full)) => {
                self.tokens.insert(token.to_owned(), full);
                Ok(())
            }
            _ => Err(RoleError::UnknownRole(iri.to_owned())),
        }
    }

    /// The role that a token or IRI names, if it is known.
    pub fn resolve(&self, text: &str) -> Option<Role> {
        let registered = || self.tokens.get(text).map(|iri| Role::Custom(iri.clone()));
        Role::from_core_token(text).or_else(registered).or_else(|| Role::from_iri(text))
    }

    /// Like [`resolve`](Self::resolve), but unknown roles count as `ultimateReceiver` (5.2.2, rule 5).
    pub fn resolve_or_ultimate_receiver(&self, text: &str) -> Role {
        self.resolve(text).unwrap_or(Role::UltimateReceiver)
    }
}

#[cfg(test)]
#[path = "tests/role.rs"]
mod tests;
