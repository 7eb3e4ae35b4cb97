//! The trait for reporting a swarm's announcements. Called by `coordinator/`.

use jiff::Timestamp;

use crate::swarm::Announcement;

/// Reports what happens to the user.
pub trait Reporter: Send {
    /// Reports one announcement. Never blocks for long and never fails.
    fn announce(&mut self, at: Timestamp, announcement: &Announcement);
    /// The last call: leaves the terminal clean.
    fn close(&mut self);
}
