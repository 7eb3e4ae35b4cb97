//! Notifies people of each escalation: runs the user's command, posts to the user's URL, or both.
//!
//! A sent notification leaves a marker in the swarm's directory, `notified/<msg_id>.<command|url>`, so that it is sent once, unless a
//! crash falls between the notification and its marker. Notifications without a marker are sent when the swarm is resumed. A
//! failure is logged, shown once, and changes nothing.
//!
//! Made by `cli/` and passed to the coordinator as its
//! [`EscalationListener`](crate::coordinator::EscalationListener). Must not: delay anything, or show a whole URL.

mod command;
mod notifier;
mod policy;
mod post;
#[cfg(test)]
mod tests;

pub use notifier::{EscalationNotifier, NotifyTargets};
pub use policy::NotifyPolicy;
pub use post::NotifyUrl;
