//! Modules: header blocks that a node processes by itself (3.1.1, 3.3).
//!
//! A [`Module`](super::node::Module) has a URI, features, blocks and a stage; `process.rs` calls the modules of a node in the order of their
//! stages. Each file begins with the module's specification as 3.1.1 and 3.3 require; any message exchange pattern will do unless it
//! says otherwise. Must not: do I/O; state between frames is part of the node and of the outcome.
//!
//! | module | stage | needs keys |
//! |---|---|---|
//! | [`ttl`] | lifetime | |
//! | `authentication` | identity | yes |
//! | `signature` | integrity | yes |
//! | [`freshness`] | freshness | |
//! | `authorization` | authorization | yes |
//! | `encryption` | decryption | yes |
//! | [`validation`], [`upgrade`] | content | |
//! | [`routing`] | routing | |
//! | [`audit`] | audit | if entries are signed |
//!
//! No module has abstract properties (3.3). Modules with keys need the feature `orchestrator`. Trust and privacy (7): a node trusts the
//! keys of its ring, and intermediaries with the blocks that they are authorized for; every node on the path reads what is not encrypted.

pub mod audit;
#[cfg(feature = "orchestrator")]
pub mod authentication;
#[cfg(feature = "orchestrator")]
pub(crate) mod authorization;
mod block_fields;
#[cfg(feature = "orchestrator")]
pub(crate) mod encryption;
pub mod freshness;
#[cfg(feature = "orchestrator")]
pub(crate) mod keys;
pub mod routing;
#[cfg(feature = "orchestrator")]
pub(crate) mod signature;
mod signing;
#[cfg(test)]
mod tests;
pub mod ttl;
pub mod upgrade;
pub mod validation;
