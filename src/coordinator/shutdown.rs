//! The end of an orchestrator: one function a phase. Called by `startup.rs` after the loop has ended. A signal ends any wait.

use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc;

use crate::engine::Engine;
use crate::engine::depot::DepotClient;
use crate::error_chain::error_chain;
use crate::report::Reporter;
use crate::state::{StateResult, SwarmStore};
use crate::swarm::{Announcement, AttemptPhase, SwarmMachine, SwarmOutcome};

use super::amp::ssot_writer::SsotWriter;
use super::collect::collector::INCOMING_DIR;
use super::effects::{EffectExecutor, StoppedExecutor};
use super::error::CoordinatorError;
use super::event_loop::Coordinator;
use super::resource_names::ResourceNames;
use super::runtime::run_blocking;
use super::stop_signals::StopSignals;

/// How long the last removals may take.
const LAST_TASKS_TIMEOUT: Duration = Duration::from_secs(60);
/// How long pausing the last sandboxes may take.
const LAST_PAUSES_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a slow engine may take to remove the depot and the volumes.
pub(super) const CLEANUP_TIMEOUT: Duration = Duration::from_secs(900);
/// The same after the user asked to leave at once.
const INTERRUPTED_CLEANUP_TIMEOUT: Duration = Duration::from_secs(3);

/// Why a swarm's volumes are kept at its end; `None` if they are removed.
pub fn reason_to_keep_volumes(machine: &SwarmMachine, keep: bool) -> Option<&'static str> {
    if !machine.has_begun() {
        // Nothing is in them.
        None
    } else if machine.attempts().any(|view| view.work_dir_kept) {
        Some("work that could not be salvaged is in them")
    } else if !machine.is_complete() {
        Some("`longshore resume` needs them")
    } else if keep {
        Some("`--keep` was given")
    } else {
        None
    }
}

/// Finishes the tasks, closes every part, and removes what the swarm does not need any more.
pub(super) async fn shut_down(
    coordinator: Coordinator,
    loop_result: Result<(), CoordinatorError>,
) -> Result<SwarmOutcome, CoordinatorError> {
    let Coordinator { machine, clock, store, snapshots, executor, inputs, outcome, .. } = coordinator;
    let warnings = inputs.close();
    // After three signals nobody waits for tasks; one more signal ends any wait below.
    let mut signals = StopSignals::new();
    let finished = outcome.is_some() && loop_result.is_ok();
    let executor = stop_executor(executor, finished, &machine, &mut signals).await;
    let StoppedExecutor { swarm, mut reporter, amp, mailbox, mailbox_task, depot } = executor;
    if let Some(mailbox) = mailbox {
        let over = finished && machine.is_complete();
        wait_or_signal(&mut signals, None, mailbox.close(over)).await;
    }
    drop(mailbox_task);
    close_amp(amp, reporter.as_mut(), warnings, &mut signals).await;
    reporter.close();
    snapshots.close().await;
    let snapshot_result = match &loop_result {
        // The state file must not have what the journal lacks.
        Err(CoordinatorError::State(_)) => Ok(()),
        _ => write_last_snapshot(store, &machine, clock.now()),
    };
    let keep_volumes = reason_to_keep_volumes(&machine, swarm.sandbox.keep_containers).is_some()
        || loop_result.is_err()
        || snapshot_result.is_err();
    let cleanup = async {
        close_depot(&depot).await;
        if finished
            && machine.is_complete()
            && let Err(error) = swarm.repo.delete_landing_refs(swarm.spec.swarm).await
        {
            tracing::warn!(error = %error_chain(&error), "cannot remove the refs of prepared landings; `longshore gc` will");
        }
        if !keep_volumes {
            remove_volumes(swarm.engine.as_ref(), &swarm.names).await;
        }
    };
    let timeout = if outcome.is_some() { CLEANUP_TIMEOUT } else { INTERRUPTED_CLEANUP_TIMEOUT };
    if wait_or_signal(&mut signals, Some(timeout), cleanup).await.is_none() {
        tracing::warn!("the engine did not remove everything in time; `longshore gc` will");
    }
    // An aborted collection may have left a bundle.
    let _ = std::fs::remove_dir_all(swarm.dir.path().join(INCOMING_DIR));
    loop_result?;
    snapshot_result?;
    Ok(outcome.unwrap_or(SwarmOutcome::Interrupted))
}

/// Waits for `future`; `None` if the timeout or a signal ends the wait.
pub(super) async fn wait_or_signal<T>(
    signals: &mut StopSignals,
    timeout: Option<Duration>,
    future: impl Future<Output = T>,
) -> Option<T> {
    let limited = async {
        match timeout {
            Some(timeout) => tokio::time::timeout(timeout, future).await.ok(),
            None => Some(future.await),
        }
    };
    tokio::select! {
        output = limited => output,
        _ = signals.next() => None,
    }
}

async fn stop_executor(
    mut executor: EffectExecutor,
    finished: bool,
    machine: &SwarmMachine,
    signals: &mut StopSignals,
) -> StoppedExecutor {
    // The sandboxes of a swarm that can be resumed go on: their sessions would not end.
    if finished && machine.attempts().all(|view| view.phase == AttemptPhase::Settled) {
        wait_or_signal(signals, Some(LAST_TASKS_TIMEOUT), executor.finish_tasks()).await;
    }
    executor.stop(LAST_PAUSES_TIMEOUT).await
}

/// Writes the last messages, and waits until their listener has sent its notifications.
async fn close_amp(
    amp: SsotWriter,
    reporter: &mut dyn Reporter,
    mut warnings: mpsc::UnboundedReceiver<String>,
    signals: &mut StopSignals,
) {
    let listener = run_blocking(|| amp.close());
    wait_or_signal(signals, None, listener.close()).await;
    while let Ok(problem) = warnings.try_recv() {
        reporter.announce(Timestamp::now(), &Announcement::NotifyFailed { problem });
    }
}

fn write_last_snapshot(mut store: SwarmStore, machine: &SwarmMachine, elapsed: Duration) -> StateResult<()> {
    let snapshot = store.snapshot(machine, elapsed)?;
    run_blocking(|| snapshot.write()).map(drop)
}

pub(super) async fn close_depot(depot: &DepotClient) {
    if let Err(error) = depot.close().await {
        tracing::warn!(error = %error_chain(&error), "cannot remove the depot; `longshore gc` will");
    }
}

pub(super) async fn remove_volumes(engine: &dyn Engine, names: &ResourceNames) {
    for volume in names.swarm_volumes() {
        if let Err(error) = engine.remove_volume(volume).await {
            tracing::warn!(volume, error = %error_chain(&error), "cannot remove a volume; `longshore gc` will");
        }
    }
}
