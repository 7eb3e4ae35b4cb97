//! The hook by which tests need not wait for what takes minutes; not in release builds.
//!
//! `LONGSHORE_TEST_LIVENESS_SECS=8`: so long, and not 150 s, may a sandbox of a new swarm say nothing. Called by `setup.rs`. Must not:
//! do anything where the variable is not set.

use std::time::Duration;

/// How long a sandbox may say nothing, where a test says it.
pub(super) fn liveness_override() -> Option<Duration> {
    let text = std::env::var("LONGSHORE_TEST_LIVENESS_SECS").ok()?;
    Some(Duration::from_secs(text.parse().expect("a test gives a number of seconds")))
}
