//! Lets tests shorten what takes minutes. Not in release builds.
//!
//! `LONGSHORE_TEST_LIVENESS_SECS=8` replaces the 150 s that a sandbox of a new swarm may send nothing.

use std::time::Duration;

pub(super) fn liveness_override() -> Option<Duration> {
    let text = std::env::var("LONGSHORE_TEST_LIVENESS_SECS").ok()?;
    Some(Duration::from_secs(text.parse().expect("a test gives a number of seconds")))
}
