//! Activity of a connection, by which the server closes idle ones.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

pub(super) struct ConnectionActivity(Mutex<Activity>);

struct Activity {
    open_requests: usize,
    idle_since: Instant,
    idle_limit: Duration,
    /// Idle limit from the first request on.
    idle_timeout: Duration,
}

/// Keeps a connection active until it is dropped.
pub(super) struct InFlightRequest(Arc<ConnectionActivity>);

impl ConnectionActivity {
    /// `first_request`: time until the first request, which includes the detection of the HTTP version.
    pub(super) fn new(first_request: Duration, idle_timeout: Duration) -> Arc<Self> {
        let (idle_since, idle_limit) = (Instant::now(), first_request);
        Arc::new(Self(Mutex::new(Activity { open_requests: 0, idle_since, idle_limit, idle_timeout })))
    }

    fn lock(&self) -> MutexGuard<'_, Activity> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin_request(self: &Arc<Self>) -> InFlightRequest {
        let mut activity = self.lock();
        activity.open_requests += 1;
        activity.idle_limit = activity.idle_timeout;
        InFlightRequest(Arc::clone(self))
    }

    fn time_left(&self) -> Duration {
        let activity = self.lock();
        let idle = if activity.open_requests == 0 { activity.idle_since.elapsed() } else { Duration::ZERO };
        activity.idle_limit.saturating_sub(idle)
    }

    /// Completes once the connection was idle for its limit.
    pub(super) async fn wait_until_idle(&self) {
        loop {
            let left = self.time_left();
            if left.is_zero() {
                return;
            }
            sleep(left.max(Duration::from_millis(100))).await;
        }
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        let mut activity = self.0.lock();
        activity.open_requests -= 1;
        activity.idle_since = Instant::now();
    }
}
