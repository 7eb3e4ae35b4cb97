//! Saves the work of a dead swarm under refs before `longshore gc` removes its directories. Called by `cli/gc/`, which holds the
//! swarm's lock. Must not: write to the journal, or remove anything but the depot that it starts.
//!
//! Sandboxes that still run are asked to stop first: a shim that is told to stop commits what there is. Then, for each attempt
//! whose work is not known to be on the host: its result, if there is one, and what else is in its directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;

use crate::coordinator::attempt::AttemptContext;
use crate::coordinator::collect::collector::Collector;
use crate::coordinator::collect::result::{CollectedResult, fetch_result};
use crate::coordinator::collect::salvage::{any_ref_has_same_files, salvage_ref_of};
use crate::coordinator::error::CoordinatorError;
use crate::coordinator::mailbox;
use crate::coordinator::resource_names::ResourceNames;
use crate::coordinator::start::objects_volume::ObjectsVolume;
use crate::delivery::{DeliveryError, Repo, salvage_ref};
use crate::engine::depot::DepotClient;
use crate::engine::{Engine, EngineError, EngineResourceKind, EngineResult, Signal, label};
use crate::error_chain::error_chain;
use crate::handoff::depot::DepotErrorKind;
use crate::handoff::layout;
use crate::ids::{AttemptId, CommitId, ContainerId};
use crate::swarm::{AttemptPhase, AttemptView, SwarmMachine, SwarmSpec};

/// The most attempts that are saved at once.
const MAX_CONCURRENT_ATTEMPTS: usize = 4;
/// How long a killed container may take to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a shim may take, after its agent's grace period, to commit and to bundle.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(20);

/// A dead swarm, and the means to reach its volumes.
pub struct RescueSpec<'a> {
    /// The machine after the journal's last event.
    pub machine: &'a SwarmMachine,
    pub repo: &'a Repo,
    pub engine: Arc<dyn Engine>,
    /// An image with git.
    pub image: String,
    /// The shim for that image.
    pub shim: Bytes,
    /// A directory for bundles that are being checked; created and removed.
    pub incoming: PathBuf,
    /// The largest accepted bundle, in bytes.
    pub max_bundle: u64,
    /// The swarm's directory if its agents have a mailbox, whose messages are exported too.
    pub mailbox_swarm_dir: Option<PathBuf>,
}

#[derive(Debug, Default)]
pub struct RescueOutcome {
    /// The new refs, each with its attempt.
    pub saved_refs: Vec<(AttemptId, String)>,
    /// Attempts whose directory could not be salvaged, each with the reason.
    pub failures: Vec<(AttemptId, String)>,
}

/// The attempts whose work may exist only on the engine.
pub fn unsaved_attempts(machine: &SwarmMachine) -> impl Iterator<Item = &AttemptView> {
    // A reviewer's directory has no work.
    let own = machine.attempts().filter(|view| view.is_executor());
    own.filter(|view| view.work_dir_kept || view.phase <= AttemptPhase::Collecting)
}

/// Saves the work of the swarm's attempts.
///
/// # Errors
/// The engine's error if nothing could be examined. Containers may have been stopped before it.
pub async fn rescue(swarm: RescueSpec<'_>) -> EngineResult<RescueOutcome> {
    let spec = swarm.machine.spec();
    let contexts: Vec<AttemptContext> = unsaved_attempts(swarm.machine)
        .filter_map(|view| AttemptContext::new(spec, view, view.container.clone()))
        .collect();
    if contexts.is_empty() && swarm.mailbox_swarm_dir.is_none() {
        return Ok(RescueOutcome::default());
    }
    end_sandboxes(&swarm.engine, &spec.swarm.to_string(), spec.limits.grace_period).await?;
    let names = ResourceNames::new(spec.swarm, swarm.repo, swarm.mailbox_swarm_dir.is_some());
    tokio::fs::create_dir_all(&swarm.incoming).await.map_err(|error| EngineError::Failed {
        operation: "creating a directory for salvaged work",
        source: Box::new(error),
    })?;
    let depot_spec = names.depot_spec(swarm.image, swarm.shim, true);
    let collector = Collector {
        has_reviews: false,
        depot: DepotClient::start(Arc::clone(&swarm.engine), &depot_spec).await?,
        engine: swarm.engine,
        repo: swarm.repo.clone(),
        incoming: swarm.incoming,
        max_bundle: swarm.max_bundle,
    };
    if let Err(error) = prepare_bases(&collector, spec, &contexts).await {
        tracing::warn!(error = %error_chain(&error), "cannot fill the objects volume; what can be salvaged without it is");
    }
    let mut outcome = RescueOutcome::default();
    let rescues = contexts.iter().map(|context| rescue_attempt(&collector, context));
    let rescued: Vec<_> = futures::stream::iter(rescues).buffered(MAX_CONCURRENT_ATTEMPTS).collect().await;
    for (context, rescued) in contexts.iter().zip(rescued) {
        let attempt = &context.attempt;
        match rescued {
            Ok(refs) => outcome.saved_refs.extend(refs.into_iter().map(|reference| (attempt.clone(), reference))),
            Err(reason) => outcome.failures.push((attempt.clone(), reason)),
        }
    }
    if let Some(dir) = &swarm.mailbox_swarm_dir
        && let Err(error) = mailbox::export(&collector.depot, dir).await
    {
        tracing::warn!(error = %error_chain(&error), "cannot export the messages of a mailbox");
    }
    if let Err(error) = collector.depot.close().await {
        tracing::warn!(error = %error_chain(&error), "cannot remove the depot of a rescue");
    }
    let _ = tokio::fs::remove_dir_all(&collector.incoming).await;
    Ok(outcome)
}

/// Makes the objects volume complete for the attempts' clones: it is a new one if the repository was moved.
async fn prepare_bases(
    collector: &Collector,
    spec: &SwarmSpec,
    contexts: &[AttemptContext],
) -> Result<(), CoordinatorError> {
    let objects = ObjectsVolume::open(&collector.depot, &collector.repo).await?;
    for context in contexts {
        if let Some(file) = spec.file_of(&context.attempt.assignment) {
            objects.ensure(&collector.depot, &collector.repo, &file.branch, &context.base).await?;
        }
    }
    Ok(())
}

/// Ends the swarm's sandboxes: signals all of them at once, and kills those that do not end.
async fn end_sandboxes(engine: &Arc<dyn Engine>, swarm: &str, grace: Duration) -> EngineResult<()> {
    let found = engine.find_resources(label::SWARM, Some(swarm)).await?;
    let running = found.iter().filter(|resource| {
        resource.kind == EngineResourceKind::Container
            && resource.running
            && resource.labels.get(label::ROLE).is_some_and(|role| role == "sandbox" || role == "reviewer")
    });
    let ids: Vec<ContainerId> = running.filter_map(|resource| resource.id.parse().ok()).collect();
    let ends = ids.iter().map(|id| end_container(engine.as_ref(), id, grace + COMMIT_TIMEOUT));
    futures::future::try_join_all(ends).await.map(drop)
}

async fn end_container(engine: &dyn Engine, id: &ContainerId, timeout: Duration) -> EngineResult<()> {
    // A paused container receives no signal.
    if engine.inspect(id).await?.is_some_and(|seen| seen.paused) {
        engine.unpause(id).await?;
    }
    for (signal, limit) in [(Signal::Term, timeout), (Signal::Kill, KILL_TIMEOUT)] {
        engine.signal(id, signal).await?;
        match tokio::time::timeout(limit, engine.wait(id)).await {
            Ok(Ok(_) | Err(EngineError::NotFound { .. })) => return Ok(()),
            Ok(Err(error)) => return Err(error),
            Err(_) => {}
        }
    }
    Err(EngineError::TimedOut { operation: "ending a sandbox", after: timeout + KILL_TIMEOUT })
}

/// Returns the refs that have the attempt's work.
async fn rescue_attempt(collector: &Collector, context: &AttemptContext) -> Result<Vec<String>, String> {
    let mut refs = Vec::new();
    let mut tip = None;
    // An invalid result is no reason to lose the directory, which is salvaged next.
    if let Ok(Some(result)) = fetch_result(collector, context, &collector.bundle_file(context)).await {
        let CollectedResult { tip: finished, stories } = result;
        refs.extend(stories.iter().filter_map(|story| salvage_ref_of(&story.outcome)).cloned());
        tip = finished;
    }
    let nothing_saved = refs.is_empty() && tip.is_none();
    let bundle = collector.bundle_file(context);
    if let Some(whole) = salvage_whole_work_dir(collector, context, &bundle, tip.as_ref(), nothing_saved).await? {
        if any_ref_has_same_files(&collector.repo, &whole, &refs).await.map_err(|error| error_chain(&error))? {
            collector.repo.delete_ref(&whole).await.map_err(|error| error_chain(&error))?;
        } else {
            refs.push(whole);
        }
    }
    Ok(refs)
}

/// Saves the whole directory as one commit: the agent's commits, finished stories, and uncommitted changes.
async fn salvage_whole_work_dir(
    collector: &Collector,
    context: &AttemptContext,
    bundle: &Path,
    tip: Option<&CommitId>,
    nothing_saved: bool,
) -> Result<Option<String>, String> {
    let Some((story, path)) = context.stories.first() else { return Ok(None) };
    let inside = layout::salvage_ref(story);
    let named = |path: &str| salvage_ref(context.swarm, path, context.attempt.number);
    // The story's own ref may have the work that its failure left.
    let whole = named(context.attempt.assignment.as_str());
    let names = if nothing_saved { vec![named(path), whole] } else { vec![whole] };
    let name = context.attempt.dir_name();
    let saved = collector.depot.salvage(&name, context.uid, &context.base, &inside, collector.max_bundle, bundle).await;
    let mut left_out = String::new();
    let commit = match saved {
        Ok(saved) if saved.commit.is_none() && !saved.left_out.is_empty() => {
            return Err(format!("what is in it cannot be committed: {}", saved.left_out.join(", ")));
        }
        Ok(saved) => {
            left_out = saved.left_out.join(", ");
            saved.commit
        }
        // The directory was never made, or is gone.
        Err(EngineError::Depot { kind: Some(DepotErrorKind::NotFound), .. }) => None,
        Err(error) => return Err(error_chain(&error)),
    };
    let Some(commit) = commit.as_ref().or(tip) else { return Ok(None) };
    let saved_as = |name: String| match left_out.is_empty() {
        true => Ok(Some(name)),
        false => Err(format!("`{name}` has all of it but {left_out}")),
    };
    for name in names {
        let result = match tip == Some(commit) {
            true => collector.repo.create_ref(&name, commit).await,
            false => collector.repo.import_salvage(bundle, &inside, commit, &name).await,
        };
        match result {
            Ok(()) => return saved_as(name),
            // An earlier rescue saved the same work in a commit with another timestamp.
            Err(DeliveryError::RefExists { holds, .. })
                if collector.repo.diff_stat(&holds, commit).await.is_ok_and(|stats| stats.is_empty()) =>
            {
                return saved_as(name);
            }
            Err(DeliveryError::RefExists { .. }) => {}
            Err(error) => return Err(error_chain(&error)),
        }
    }
    Err("the names of its salvage refs are taken by other work".to_owned())
}
