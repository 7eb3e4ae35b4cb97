//! Roles: the tokens that a frame names them by, their IRIs, and those that a node acts in (2.1, 2.2, 5.2.2).
//!
//! Used by `block.rs`, `fault.rs` and `process.rs`. A role is compared by its IRI, never by the text that it came as. Must not:
//! know about blocks.

use std::collections::BTreeMap;

use thiserror::Error;

/// The IRIs of 2.1; what is written has these.
pub const URN_PREFIX: &str = "urn:agentic:mesh:role:";
/// The IRIs of 2.2, which mean the same.
pub const AMP_PREFIX: &str = "amp://role/";

/// A role.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Every intermediary and the ultimate receiver.
    Next,
    /// Nobody.
    None,
    /// The last node of the path.
    UltimateReceiver,
    /// The first node of the path.
    InitialSender,
    /// A node between these.
    Intermediary,
    /// Another role, by its IRI.
    Custom(String),
}

/// Why a role cannot be defined or assumed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RoleError {
    /// 2.1: nobody acts in `none`.
    #[error("a node must not act in the role `none`")]
    NoneRole,
    /// 2.2: the place of a node on the path decides over these.
    #[error("the role `{0}` follows from the node's place on the path")]
    FixedByNodeKind(&'static str),
    /// It is neither a token that is known nor an IRI.
    #[error("a role must be a known token or an IRI, found `{0}`")]
    UnknownRole(String),
    /// 2.1: tokens map unambiguously to IRIs.
    #[error("the token `{0}` is taken, or not one")]
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
    /// The full IRI (2.1), by which roles are compared.
    pub fn iri(&self) -> String {
        match self {
            Self::Custom(iri) => iri.clone(),
            _ => format!("{URN_PREFIX}{}", self.token()),
        }
    }

    /// As a frame names it: the token, or the IRI of a role that has none.
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

    /// A role by its IRI, of either family.
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

/// The tokens that a node knows beside the five of the spec (2.1: extensions may define more).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoleRegistry {
    tokens: BTreeMap<String, String>,
}

impl RoleRegistry {
    /// Gives a token to an IRI: each token has one IRI, and none of the spec's is given away.
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

    /// The role that a text names; none if it is not recognised.
    pub fn resolve(&self, text: &str) -> Option<Role> {
        let defined = || self.tokens.get(text).map(|iri| Role::Custom(iri.clone()));
        Role::from_core_token(text).or_else(defined).or_else(|| Role::from_iri(text))
    }

    /// The role that a text names. What is not recognised is taken as `ultimateReceiver` (5.2.2, rule 5).
    pub fn resolve_or_ultimate_receiver(&self, text: &str) -> Role {
        self.resolve(text).unwrap_or(Role::UltimateReceiver)
    }
}

/// Whether a text is an absolute IRI: a scheme, a colon, and something that has no white space.
pub fn is_iri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let in_scheme = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
    let bad = |c: char| c.is_whitespace() || c.is_control() || "<>\"{}|\\^`".contains(c);
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(in_scheme)
        && !rest.is_empty()
        && text.len() <= 2048
        && !rest.contains(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_2_1_and_2_2_tokens_and_both_iri_families_resolve_to_one_role() {
        let vocabulary = RoleRegistry::default();
        for (token, role) in CORE_TOKENS {
            for text in [token.to_owned(), format!("{URN_PREFIX}{token}"), format!("{AMP_PREFIX}{token}")] {
                assert_eq!(vocabulary.resolve(&text), Some(role.clone()), "{text}");
            }
            assert_eq!(role.iri(), format!("urn:agentic:mesh:role:{token}"));
            assert_eq!(role.token(), token);
        }
        let manager = vocabulary.resolve("amp://role/manager");
        assert!(manager.is_some());
        assert_eq!(manager, vocabulary.resolve("urn:agentic:mesh:role:manager"));
    }

    #[test]
    fn section_2_1_tokens_are_case_sensitive() {
        for text in ["Next", "NEXT", "ultimatereceiver", "urn:agentic:mesh:role:Next"] {
            assert_ne!(RoleRegistry::default().resolve_or_ultimate_receiver(text), Role::Next, "{text}");
        }
    }

    #[test]
    fn section_2_1_a_token_maps_to_one_iri() {
        let mut vocabulary = RoleRegistry::default();
        assert_eq!(vocabulary.register_token("cache", "amp://example.org/cache"), Ok(()));
        assert_eq!(vocabulary.register_token("cache", "amp://example.org/cache"), Ok(()));
        assert_eq!(vocabulary.resolve_or_ultimate_receiver("cache").iri(), "amp://example.org/cache");
        assert_eq!(
            vocabulary.resolve_or_ultimate_receiver("amp://example.org/cache"),
            vocabulary.resolve_or_ultimate_receiver("cache")
        );
        for (token, iri) in
            [("cache", "amp://example.org/other"), ("next", "amp://x/y"), ("", "amp://x/y"), ("a:b", "amp://x/y")]
        {
            assert_eq!(
                vocabulary.register_token(token, iri),
                Err(RoleError::InvalidToken(token.to_owned())),
                "{token}"
            );
        }
        for iri in ["cache", "amp://role/none", "amp://role/", "no iri"] {
            assert_eq!(vocabulary.register_token("other", iri), Err(RoleError::UnknownRole(iri.to_owned())), "{iri}");
        }
    }

    #[test]
    fn section_5_2_2_an_unrecognised_role_resolves_to_ultimate_receiver() {
        for text in ["manager", "", "amp://role/", "two words", "http://a b"] {
            assert_eq!(RoleRegistry::default().resolve(text), None, "{text}");
            assert_eq!(RoleRegistry::default().resolve_or_ultimate_receiver(text), Role::UltimateReceiver, "{text}");
        }
        let iri = "amp://example.org/finance/accountManager";
        assert_eq!(RoleRegistry::default().resolve_or_ultimate_receiver(iri), Role::Custom(iri.to_owned()));
    }
}
