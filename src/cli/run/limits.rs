//! The limits of a new swarm: how many sandboxes, how long, how often.

use std::time::Duration;

use jiff::Timestamp;

use crate::cli::error::CommandError;
use crate::cli::settings::Settings;
use crate::engine::EngineInfo;
use crate::plan::Plan;
use crate::swarm::{self, AckTimeouts, AmpSpec, SwarmLimits};

/// The most sandboxes at once, unless `max` asks for more.
const MAX_AUTOMATIC_CONCURRENCY: usize = 16;

pub(super) fn swarm_limits(settings: &Settings, plan: &Plan, info: &EngineInfo) -> SwarmLimits {
    SwarmLimits {
        max_sandboxes: settings.max.value.map_or_else(|| automatic_concurrency(settings, plan, info), usize::from),
        retries: settings.retries.value,
        machinery_retries: 3,
        backoff: Duration::from_secs(1),
        story_timeout: settings.timeout.value.0,
        idle_timeout: settings.idle_timeout.value.0,
        slack: Duration::from_secs(60),
        grace_period: settings.grace.value.0,
        max_bad_records: 100,
        liveness_timeout: liveness_timeout(),
    }
}

/// How long a sandbox may send nothing at all.
fn liveness_timeout() -> Duration {
    #[cfg(debug_assertions)]
    if let Some(shorter) = super::test_overrides::liveness_override() {
        return shorter;
    }
    swarm::default_liveness_timeout()
}

/// How many sandboxes run at once if `max` is not set: what the tasks file says, else what fits into three quarters of the
/// engine's memory, and two per CPU, because agents wait more than they compute.
fn automatic_concurrency(settings: &Settings, plan: &Plan, info: &EngineInfo) -> usize {
    if let Some(wanted) = plan.max_concurrency() {
        return wanted.max(1);
    }
    let by_memory = match (settings.memory.value.0, info.memory) {
        (0, _) | (_, 0) => MAX_AUTOMATIC_CONCURRENCY,
        (each, all) => usize::try_from(all / 4 * 3 / each).unwrap_or(MAX_AUTOMATIC_CONCURRENCY),
    };
    by_memory.min(2 * info.cpus).clamp(1, MAX_AUTOMATIC_CONCURRENCY)
}

pub(super) fn amp_spec(settings: &Settings, started: Timestamp) -> Result<AmpSpec, CommandError> {
    let amp = &settings.amp;
    Ok(AmpSpec {
        began_ms: u64::try_from(started.as_millisecond())
            .map_err(|error| CommandError::machinery("the clock is set to a time before 1970").with_cause(&error))?,
        ack_timeouts: AckTimeouts {
            dispatch: amp.ack_dispatch.value.0,
            result: amp.ack_result.value.0,
            request: amp.ack_request.value.0,
            verdict: amp.ack_verdict.value.0,
        },
        heartbeat_timeout: amp.heartbeat.value.0,
        review_rounds: settings.review.agent.value.is_some().then_some(settings.review.rounds.value),
    })
}
