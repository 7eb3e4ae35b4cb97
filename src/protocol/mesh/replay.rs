//! What a node has seen: the memory by which a frame that comes a second time is told (7.3: replay attacks).
//!
//! Kept by the caller beside the node and handed to the modules as data, so that processing stays pure. Must not: grow without end;
//! what is older than the window is refused for its age, and need not be remembered.

use jiff::Timestamp;

/// One message that was taken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seen {
    /// Until when it has to be remembered.
    pub until: Timestamp,
    /// Who sent it.
    pub sender: String,
    /// Its id or nonce.
    pub id: String,
}
