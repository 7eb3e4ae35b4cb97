//! Modules: what a node can do with header blocks beside handing them to its caller (3.1.1, 3.3).
//!
//! A module has a URI, the features it provides, the blocks it owns and a stage. `process.rs` asks each module of a node once a frame
//! to receive it, in the order of the stages, and once more to forward it if the node relays it. Each file begins with the module's
//! specification, as 3.1.1 and 3.3 want it; where it says nothing of a message exchange pattern, any will do. Must not: do I/O; what a
//! module keeps between frames comes in with the node and goes out with the outcome.
//!
//! | module | stage | needs keys |
//! |---|---|---|
//! | [`ttl`] | life | |
//! | `authentication` | identity | yes |
//! | `signature` | integrity | yes |
//! | [`freshness`] | freshness | |
//! | `authorization` | permission | yes |
//! | `encryption` | opening | yes |
//! | [`validation`], [`upgrade`] | content | |
//! | [`routing`] | routing | |
//! | [`audit`] | record | if entries are signed |
//!
//! No module has abstract properties (3.3), so there is nothing to be mapped. Those that need keys are in builds with the feature `orchestrator`. Trust and privacy (7): a node trusts the keys of its ring, and
//! intermediaries with the blocks that they are authorized for; what it does not seal, every node on the way reads.

pub mod audit;
#[cfg(feature = "orchestrator")]
pub mod authentication;
#[cfg(feature = "orchestrator")]
pub mod authorization;
mod block_fields;
#[cfg(test)]
mod declarations;
#[cfg(feature = "orchestrator")]
pub mod encryption;
pub mod freshness;
#[cfg(all(test, feature = "orchestrator"))]
mod end_to_end;
#[cfg(feature = "orchestrator")]
pub mod keys;
pub mod routing;
#[cfg(feature = "orchestrator")]
pub mod signature;
#[cfg(test)]
mod test_support;
pub mod ttl;
pub mod upgrade;
pub mod validation;

use std::fmt::Debug;

use serde_json::{Map, Value};

use super::fault::Fault;
use super::process::ProcessingContext;

/// When a module acts (3.3: the order among modules). Identity and integrity are settled before anything acts on them (7.0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModuleStage {
    /// How long a message lives.
    Lifetime,
    /// Who sent it.
    Identity,
    /// Whether it is as it was sent.
    Integrity,
    /// Whether it came before.
    Freshness,
    /// Who may do what.
    Authorization,
    /// What is sealed is opened.
    Decryption,
    /// What it says is well-formed.
    Content,
    /// Where it goes.
    Routing,
    /// What was done is written down.
    Audit,
}

/// What a module is: the declarations that 3.1.1 and 3.3 ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModuleDescriptor {
    /// Its own URI.
    pub uri: &'static str,
    /// The features that it provides, by URI.
    pub features: &'static [&'static str],
    /// The blocks that it owns.
    pub blocks: &'static [&'static str],
    /// When it acts.
    pub stage: ModuleStage,
}

/// A module of a node.
pub trait Module: Debug + Send + Sync {
    /// What it is.
    fn descriptor(&self) -> &'static ModuleDescriptor;

    /// Takes part in processing a frame, whether its blocks are there or not.
    fn receive(&self, work: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>>;

    /// Takes part in relaying it.
    fn forward(&self, _work: &mut ProcessingContext<'_>) -> Result<(), Box<Fault>> {
        Ok(())
    }

    /// Has the last word, when all that changes has changed: on what is relayed, or what the ultimate receiver has. `changed`: an
    /// active intermediary changed it.
    fn finish(&self, _work: &mut ProcessingContext<'_>, _changed: bool) -> Result<(), Box<Fault>> {
        Ok(())
    }

    /// Whether it opens a sealed gram.
    fn can_decrypt(&self, _gram: &Map<String, Value>) -> bool {
        false
    }
}

/// Somebody who signs: a module that can do without keys asks for no more.
pub trait MessageSigner: Debug + Send + Sync {
    /// The id that others know the key by.
    fn key_id(&self) -> &str;

    /// Signs bytes for a purpose.
    fn sign(&self, purpose: &str, bytes: &[u8]) -> String;
}

/// Somebody who knows whose signature it is.
pub trait SignatureVerifier: Debug + Send + Sync {
    /// The agent that signed; none if the key is not known or the signature does not hold.
    fn verify_signer(&self, key_id: &str, purpose: &str, bytes: &[u8], value: &str) -> Option<String>;
}
