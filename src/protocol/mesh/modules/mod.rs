//! Modules: what a node can do with header blocks beside handing them to its caller (3.1.1, 3.3).
//!
//! A module has a URI, the features it provides, the blocks it owns and a stage. `process.rs` asks each module of a node once a frame
//! to receive it, in the order of the stages, and once more to forward it if the node relays it. Must not: do I/O; what a module
//! keeps between frames comes in with the node and goes out with the outcome.

mod content;
#[cfg(test)]
mod declarations;
#[cfg(test)]
mod testing;
pub mod ttl;
pub mod upgrade;

use std::fmt::Debug;

use serde_json::{Map, Value};

use super::fault::Fault;
use super::process::Work;

/// When a module acts (3.3: the order among modules). Identity and integrity are settled before anything acts on them (7.0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// How long a message lives.
    Life,
    /// Who sent it.
    Identity,
    /// Whether it is as it was sent.
    Integrity,
    /// Whether it came before.
    Freshness,
    /// Who may do what.
    Permission,
    /// What is sealed is opened.
    Opening,
    /// What it says is well-formed.
    Content,
    /// Where it goes.
    Routing,
    /// What was done is written down.
    Record,
}

/// What a module is: the declarations that 3.1.1 and 3.3 ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// Its own URI.
    pub uri: &'static str,
    /// The features that it provides, by URI.
    pub features: &'static [&'static str],
    /// The blocks that it owns.
    pub blocks: &'static [&'static str],
    /// When it acts.
    pub stage: Stage,
}

/// A module of a node.
pub trait Module: Debug + Send + Sync {
    /// What it is.
    fn about(&self) -> &'static About;

    /// Takes part in processing a frame, whether its blocks are there or not.
    fn receive(&self, work: &mut Work<'_>) -> Result<(), Box<Fault>>;

    /// Takes part in relaying it.
    fn forward(&self, _work: &mut Work<'_>) -> Result<(), Box<Fault>> {
        Ok(())
    }

    /// Has the last word on what is relayed, when all that changes has changed. `changed`: an active intermediary changed it.
    fn depart(&self, _work: &mut Work<'_>, _changed: bool) -> Result<(), Box<Fault>> {
        Ok(())
    }

    /// Whether it opens a sealed gram.
    fn opens(&self, _gram: &Map<String, Value>) -> bool {
        false
    }
}
