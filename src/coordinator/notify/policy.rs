//! Timeouts and retries of notifications.

use std::time::Duration;

#[derive(Debug, Clone, Copy)]
pub struct NotifyPolicy {
    pub command_timeout: Duration,
    pub request_timeout: Duration,
    /// The pause before the second request; it doubles with each request.
    pub retry_delay: Duration,
    /// Requests after the first.
    pub retries: usize,
    /// For all pending notifications at the swarm's end.
    pub close_timeout: Duration,
}

impl Default for NotifyPolicy {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            command_timeout: seconds(30),
            request_timeout: seconds(10),
            retry_delay: seconds(1),
            retries: 6,
            close_timeout: seconds(10),
        }
    }
}
