//! What a dead swarm left in its work folders, brought under refs before `longshore gc` removes them. Called by `cli/gc/`, which
//! holds the swarm's lock. Must not: write to the journal, or remove anything but the depot that it starts.
//!
//! Sandboxes that still run are ended first, politely: a shim that is told to stop commits what there is. Then, for each attempt
//! whose work the journal does not know to be on the host: its result, if it left one, and what else is in its folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;

use super::ResourceNames;
use super::carry_out::{self, AttemptContext, EffectExecutor};
use super::dispatch;
use super::mailbox;
use super::salvage::{any_ref_has_same_files, salvage_ref_of};
use crate::delivery::{DeliveryError, Repo, salvage_ref};
use crate::engine::depot::{DepotClient, DepotSpec, DepotVolumes};
use crate::engine::{Engine, EngineError, EngineResourceKind, EngineResult, Signal, label};
use crate::error_chain::error_chain;
use crate::handoff::depot::DepotErrorKind;
use crate::handoff::layout;
use crate::ids::{AttemptId, CommitId, ContainerId};
use crate::report;
use crate::swarm::{AttemptPhase, AttemptView, SwarmMachine};

/// Attempts that are saved at once.
const MAX_CONCURRENT_ATTEMPTS: usize = 4;
/// From SIGKILL to the end of a container.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// What a shim needs after its agent's grace to commit and to bundle.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(20);

/// A dead swarm, and what is needed to reach into its volumes.
pub struct RescueSpec<'a> {
    /// As its journal has it.
    pub machine: &'a SwarmMachine,
    /// The repo that it worked for.
    pub repo: &'a Repo,
    /// Where its volumes are.
    pub engine: Arc<dyn Engine>,
    /// An image with git.
    pub image: String,
    /// The shim for that image.
    pub shim: Bytes,
    /// A folder for bundles on their way; made, and removed again.
    pub incoming: PathBuf,
    /// The largest bundle that is taken, in bytes.
    pub max_bundle: u64,
    /// The swarm's folder, where its agents have a mailbox: what is in that is brought out too.
    pub mailbox_swarm_dir: Option<PathBuf>,
}

/// What became of the work.
#[derive(Debug, Default)]
pub struct RescueOutcome {
    /// The refs that were made, with whose work they have.
    pub saved_refs: Vec<(AttemptId, String)>,
    /// Whose folder could not be salvaged, and why.
    pub failures: Vec<(AttemptId, String)>,
}

/// The attempts whose work may be in the engine alone.
pub fn unsaved_attempts(machine: &SwarmMachine) -> impl Iterator<Item = &AttemptView> {
    // A reviewer's folder has nothing that anybody would miss.
    let own = machine.attempts().filter(|view| view.review.is_none());
    own.filter(|view| view.work_dir_kept || view.phase <= AttemptPhase::Collecting)
}

/// Saves what can be saved.
///
/// # Errors
/// Those of the engine, where nothing could be looked at at all. Containers may have been ended by then.
pub async fn rescue(with: RescueSpec<'_>) -> EngineResult<RescueOutcome> {
    let spec = with.machine.spec();
    let remains: Vec<AttemptContext> =
        unsaved_attempts(with.machine).filter_map(|view| attempt_context(with.machine, view)).collect();
    if remains.is_empty() && with.mailbox_swarm_dir.is_none() {
        return Ok(RescueOutcome::default());
    }
    end_sandboxes(&with.engine, &spec.swarm.to_string(), spec.limits.grace_period).await?;
    let names = ResourceNames::new(spec.swarm, with.repo);
    let mailbox = with.mailbox_swarm_dir.is_some().then_some(names.mailbox);
    let depot = DepotSpec {
        reuse_shim: true,
        swarm: spec.swarm,
        image: with.image,
        name: names.depot,
        volumes: DepotVolumes { objects: names.objects, inbox: names.inbox, work: names.work, mailbox },
        repo: with.repo.hash(),
        shim_binary: with.shim,
        memory_limit: 0,
    };
    tokio::fs::create_dir_all(&with.incoming).await.map_err(|error| EngineError::Failed {
        operation: "making a folder for what is salvaged",
        source: Box::new(error),
    })?;
    let depot = DepotClient::start(Arc::clone(&with.engine), &depot).await?;
    let hands = EffectExecutor {
        engine: with.engine,
        depot: depot.clone(),
        repo: with.repo.clone(),
        incoming: with.incoming.clone(),
        max_bundle: with.max_bundle,
    };
    let outcomes: Vec<(AttemptId, Result<Vec<String>, String>)> = futures::stream::iter(remains)
        .map(|remains| {
            let hands = &hands;
            async move { (remains.attempt.clone(), rescue_attempt(hands, &remains).await) }
        })
        .buffered(MAX_CONCURRENT_ATTEMPTS)
        .collect()
        .await;
    if let Some(folder) = &with.mailbox_swarm_dir
        && let Err(error) = mailbox::export(&depot, folder).await
    {
        tracing::warn!(error = %error_chain(&error), "cannot bring out what is left in a mailbox");
    }
    if let Err(error) = depot.close().await {
        tracing::warn!(error = %error_chain(&error), "cannot remove the depot of a rescue");
    }
    let _ = tokio::fs::remove_dir_all(&with.incoming).await;
    let mut rescued = RescueOutcome::default();
    for (attempt, outcome) in outcomes {
        match outcome {
            Ok(refs) => rescued.saved_refs.extend(refs.into_iter().map(|reference| (attempt.clone(), reference))),
            Err(reason) => rescued.failures.push((attempt, reason)),
        }
    }
    Ok(rescued)
}

fn attempt_context(machine: &SwarmMachine, view: &AttemptView) -> Option<AttemptContext> {
    let spec = machine.spec();
    let place = spec.assignments.iter().position(|assignment| assignment.id == view.id.assignment)?;
    let names = report::StoryLabels::from_spec(spec);
    Some(AttemptContext {
        swarm: spec.swarm,
        attempt: view.id.clone(),
        uid: dispatch::attempt_uid(place, &view.id, spec.assignments.len()),
        branch: spec.assignments[place].branch.clone(),
        base: view.base.clone(),
        container: view.container.clone(),
        stories: view.stories.iter().map(|(key, _)| (key.id.clone(), names.label(key).to_owned())).collect(),
    })
}

/// Ends the swarm's containers: asks all of them at once, and kills those that do not listen.
async fn end_sandboxes(engine: &Arc<dyn Engine>, swarm: &str, grace: Duration) -> EngineResult<()> {
    let found = engine.find_resources(label::SWARM, Some(swarm)).await?;
    let running = found.iter().filter(|thing| {
        thing.kind == EngineResourceKind::Container
            && thing.running
            && thing.labels.get(label::ROLE).is_some_and(|role| role == "sandbox" || role == "reviewer")
    });
    let ids: Vec<ContainerId> = running.filter_map(|thing| thing.id.parse().ok()).collect();
    let ends = ids.iter().map(|id| end_container(engine.as_ref(), id, grace + COMMIT_TIMEOUT));
    futures::future::try_join_all(ends).await.map(drop)
}

async fn end_container(engine: &dyn Engine, id: &ContainerId, patience: Duration) -> EngineResult<()> {
    // A frozen one hears nothing.
    if engine.inspect(id).await?.is_some_and(|seen| seen.paused) {
        engine.unpause(id).await?;
    }
    for (signal, within) in [(Signal::Term, patience), (Signal::Kill, KILL_TIMEOUT)] {
        engine.signal(id, signal).await?;
        match tokio::time::timeout(within, engine.wait(id)).await {
            Ok(Ok(_) | Err(EngineError::NotFound { .. })) => return Ok(()),
            Ok(Err(error)) => return Err(error),
            Err(_) => {}
        }
    }
    Err(EngineError::TimedOut { operation: "ending a sandbox", after: patience + KILL_TIMEOUT })
}

/// The refs that now have the attempt's work; why it could not be had.
async fn rescue_attempt(hands: &EffectExecutor, remains: &AttemptContext) -> Result<Vec<String>, String> {
    let bundle = hands.incoming.join(format!("{}.bundle", remains.attempt.dir_name()));
    let mut refs = Vec::new();
    let mut tip = None;
    // A result that cannot be believed is no reason to lose the folder: what is in that comes next.
    if let Ok(Some((finished, stories))) = carry_out::fetch_result(hands, remains, &bundle).await {
        refs.extend(stories.iter().filter_map(|story| salvage_ref_of(&story.outcome)).cloned());
        tip = finished;
    }
    let _ = tokio::fs::remove_file(&bundle).await;
    let saved = salvage_whole_work_dir(hands, remains, &bundle, tip.as_ref(), refs.is_empty() && tip.is_none()).await;
    let _ = tokio::fs::remove_file(&bundle).await;
    if let Some(whole) = saved? {
        if any_ref_has_same_files(&hands.repo, &whole, &refs).await.map_err(|error| error_chain(&error))? {
            hands.repo.delete_ref(&whole).await.map_err(|error| error_chain(&error))?;
        } else {
            refs.push(whole);
        }
    }
    Ok(refs)
}

/// All that is in the folder as one commit: commits of the agent's, what a result had finished, and what nobody committed.
async fn salvage_whole_work_dir(
    hands: &EffectExecutor,
    remains: &AttemptContext,
    bundle: &Path,
    tip: Option<&CommitId>,
    alone: bool,
) -> Result<Option<String>, String> {
    let Some((story, path)) = remains.stories.first() else { return Ok(None) };
    let inside = layout::salvage_ref(story);
    let named = |path: &str| salvage_ref(remains.swarm, path, remains.attempt.number);
    // The story's own name may be that of what its failure left.
    let whole = named(remains.attempt.assignment.as_str());
    let names = if alone { vec![named(path), whole] } else { vec![whole] };
    let name = remains.attempt.dir_name();
    let saved = hands.depot.salvage(&name, remains.uid, &remains.base, &inside, hands.max_bundle, bundle).await;
    let mut left_out = String::new();
    let commit = match saved {
        Ok(saved) if saved.commit.is_none() && !saved.left_out.is_empty() => {
            return Err(format!("what is in it cannot be committed: {}", saved.left_out.join(", ")));
        }
        Ok(saved) => {
            left_out = saved.left_out.join(", ");
            saved.commit
        }
        // It was never made, or is gone.
        Err(EngineError::Depot { kind: Some(DepotErrorKind::NotFound), .. }) => None,
        Err(error) => return Err(error_chain(&error)),
    };
    let Some(commit) = commit.as_ref().or(tip) else { return Ok(None) };
    let told = |name: String| match left_out.is_empty() {
        true => Ok(Some(name)),
        false => Err(format!("`{name}` has all of it but {left_out}")),
    };
    for name in names {
        let kept = match tip == Some(commit) {
            true => hands.repo.create_ref(&name, commit).await,
            false => hands.repo.import_salvage(bundle, &inside, commit, &name).await,
        };
        match kept {
            Ok(()) => return told(name),
            // An earlier rescue got so far: the same work, in a commit of another time.
            Err(DeliveryError::RefExists { holds, .. })
                if hands.repo.diff_stat(&holds, commit).await.is_ok_and(|stats| stats.is_empty()) =>
            {
                return told(name);
            }
            Err(DeliveryError::RefExists { .. }) => {}
            Err(error) => return Err(error_chain(&error)),
        }
    }
    Err("the names of its salvage refs are taken by other work".to_owned())
}
