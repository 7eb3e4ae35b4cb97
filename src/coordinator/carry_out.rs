//! The effects that are not a sandbox's life: getting results out and onto the host, merging, removing. Each is one async function
//! that ends in an event. Called by `run.rs`, each in a task of its own. Must not: believe what came out of a sandbox.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::delivery::{DeliveryError, ExpectedBundle, MergeMessage, MergeOutcome, Repo, result_ref, salvage_ref};
use crate::engine::Engine;
use crate::engine::EngineError;
use crate::engine::depot::{CollectedFiles, DepotClient};
use crate::handoff::assignment::GitIdentity;
use crate::handoff::depot::DepotErrorKind;
use crate::handoff::layout;
use crate::handoff::result::{RESULT_VERSION, ResultFile, StoryResult};
use crate::ids::{AttemptId, BranchName, CommitId, ContainerId, StoryId, SwarmId};
use crate::protocol::amp::message::DiffSummary;
use crate::protocol::amp::store::Ssot;
use crate::swarm::{CollectMode, Event, MachineryFault};
use crate::verdict::{Cause, StoryOutcome};

use super::archive::{self, ArchiveError};
use super::diff_summary::summarize_diff;
use super::engine_monitor::EngineMonitor;
use super::review;
use super::salvage::{salvage_leftover, salvage_without_result};
use super::session::ReviewDiff;
use super::session::engine_fault;
use crate::error_chain::error_chain;

/// The most bytes of a diff under review that are written down.
const MAX_DIFF_BYTES: usize = 64 << 20;

/// What is known of an attempt whose sandbox ended.
#[derive(Debug, Clone)]
pub(super) struct AttemptContext {
    pub swarm: SwarmId,
    pub attempt: AttemptId,
    pub uid: u32,
    pub branch: BranchName,
    pub base: CommitId,
    /// Its stories, and the word for each in ref names.
    pub stories: Vec<(StoryId, String)>,
    /// The sandbox's container, while it is there.
    pub container: Option<ContainerId>,
}

impl AttemptContext {
    /// Where work of this attempt that did not land is kept.
    pub fn salvage_ref(&self, story_path: &str) -> String {
        salvage_ref(self.swarm, story_path, self.attempt.number)
    }

    /// Where the commits of this attempt are kept, landed or not.
    pub fn result_ref(&self) -> String {
        match self.stories.as_slice() {
            [(_, path)] => result_ref(self.swarm, path, self.attempt.number),
            _ => result_ref(self.swarm, self.attempt.assignment.as_str(), self.attempt.number),
        }
    }
}

/// What collecting works with.
#[derive(Clone)]
pub(super) struct EffectExecutor {
    pub engine: Arc<dyn Engine>,
    pub depot: DepotClient,
    pub repo: Repo,
    /// Where bundles are put while they are looked at.
    pub incoming: PathBuf,
    pub max_bundle: u64,
}

/// Sees what a container that runs looks like; nothing where it has ended, or the engine does not say.
pub(super) async fn examine(engine: &dyn Engine, attempt: AttemptId, container: &ContainerId) -> Option<Event> {
    let seen = engine.inspect(container).await.ok().flatten().filter(|seen| seen.running)?;
    let processes = engine.top(container).await.unwrap_or_default();
    Some(Event::SandboxInspected { attempt, paused: seen.paused, processes })
}

/// Gets the result out, verified, under refs; or, where there is none, what the work folder has.
pub(super) async fn collect(hands: EffectExecutor, remains: AttemptContext, what: CollectMode) -> Event {
    let bundle = hands.incoming.join(format!("{}.bundle", remains.attempt.dir_name()));
    let event = match fetch_result(&hands, &remains, &bundle).await {
        Ok(Some((tip, stories))) => {
            let rest = salvage_leftover(&hands, &remains, &bundle, tip.as_ref(), &stories).await;
            let ResultChanges { diffs, tree } = count_changes(&hands.repo, &remains.base, tip.as_ref(), &stories).await;
            let kept = tip.is_some().then(|| remains.result_ref());
            Event::ResultCollected {
                attempt: remains.attempt.clone(),
                tip,
                stories,
                leftover: rest,
                diffs,
                tree,
                result_ref: kept,
            }
        }
        Ok(None) => {
            let summary = match what {
                CollectMode::Result => "the sandbox said `completion` and left no result",
                CollectMode::Salvage => "the sandbox ended without a result",
            };
            salvage_without_result(
                &hands,
                &remains,
                &bundle,
                MachineryFault::new(Cause::ProtocolViolation, summary, true),
            )
            .await
        }
        Err(fault) => salvage_without_result(&hands, &remains, &bundle, fault).await,
    };
    let _ = tokio::fs::remove_file(&bundle).await;
    event
}

pub(super) type VerifiedResult = (Option<CommitId>, Vec<StoryResult>);

pub(super) async fn fetch_result(
    hands: &EffectExecutor,
    remains: &AttemptContext,
    bundle: &Path,
) -> Result<Option<VerifiedResult>, MachineryFault> {
    let Some(collected) = fetch_output(hands, remains, bundle).await? else { return Ok(None) };
    let Some(bytes) = collected.result else { return Ok(None) };
    let refused = |summary: String| MachineryFault::new(Cause::ProtocolViolation, summary, false);
    let file: ResultFile = serde_json::from_slice(&bytes)
        .map_err(|error| refused(format!("`{}` cannot be read: {error}", layout::RESULT_FILE)))?;
    check_result_matches(&file, remains).map_err(refused)?;
    let moved = file.tip != file.base;
    if file.bundle != collected.has_bundle {
        return Err(refused("the result and the bundle contradict each other".to_owned()));
    }
    let mut stories = file.stories;
    for story in &mut stories {
        // Where work is kept is the host's to say.
        if let StoryOutcome::Failed { failure, .. } = &mut story.outcome {
            failure.salvage = None;
        }
    }
    if collected.has_bundle {
        let mut salvage: Vec<(StoryId, CommitId, String)> = Vec::new();
        for story in &stories {
            if let StoryOutcome::Failed { salvage: Some(commit), .. } = &story.outcome
                && let Some((_, path)) = remains.stories.iter().find(|(id, _)| *id == story.id)
            {
                let name = hands.repo.unused_ref_name(&remains.salvage_ref(path), commit).await;
                salvage.push((story.id.clone(), commit.clone(), name.map_err(|error| error.to_fault())?));
            }
        }
        let expected = ExpectedBundle {
            branch: remains.branch.clone(),
            base: remains.base.clone(),
            tip: moved.then(|| file.tip.clone()),
            result_ref: remains.result_ref(),
            salvage: salvage.clone(),
        };
        hands.repo.import_bundle(bundle, &expected).await.map_err(|error| error.to_fault())?;
        for (id, _, reference) in salvage {
            for story in stories.iter_mut().filter(|story| story.id == id) {
                if let StoryOutcome::Failed { failure, .. } = &mut story.outcome {
                    failure.salvage = Some(reference.clone());
                }
            }
        }
    } else if moved {
        return Err(refused("the result names commits and there is no bundle".to_owned()));
    }
    Ok(Some((moved.then_some(file.tip), stories)))
}

/// Gets out what the sandbox left in its `out` folder, unseen; none where there is no such folder.
pub(super) async fn fetch_output(
    hands: &EffectExecutor,
    remains: &AttemptContext,
    bundle: &Path,
) -> Result<Option<CollectedFiles>, MachineryFault> {
    let folder = remains.attempt.dir_name();
    match hands.depot.collect(&folder, remains.uid, hands.max_bundle, bundle).await {
        Err(EngineError::Depot { kind: Some(DepotErrorKind::NotFound), .. }) => Ok(None),
        Err(EngineError::Depot { kind: Some(DepotErrorKind::Refused), message, .. }) => {
            Err(MachineryFault::new(Cause::ProtocolViolation, message, false))
        }
        // Without a kind it has died, and could not be brought back.
        Err(error @ EngineError::Depot { kind: None, .. }) => {
            fetch_without_depot(hands, remains, bundle, &error).await.map(Some)
        }
        Err(error) => Err(engine_fault(&error)),
        Ok(collected) => Ok(Some(collected)),
    }
}

/// The result by the engine's own way out, from the container that made it. Where that has none either, it is the depot's
/// failure that counts: nothing is known of the work.
async fn fetch_without_depot(
    hands: &EffectExecutor,
    remains: &AttemptContext,
    bundle: &Path,
    depot: &EngineError,
) -> Result<CollectedFiles, MachineryFault> {
    let Some(container) = &remains.container else { return Err(engine_fault(depot)) };
    let folder = remains.attempt.dir_name();
    let fetched = archive::fetch(hands.engine.as_ref(), container, &folder, hands.max_bundle, bundle).await;
    let attempt = &remains.attempt;
    match fetched {
        Ok(collected) if collected.result.is_some() => {
            tracing::warn!(%attempt, depot = %error_chain(depot), "the result was fetched past a depot that is gone");
            Ok(collected)
        }
        Ok(_) => Err(engine_fault(depot)),
        Err(ArchiveError::Refused(message)) => Err(MachineryFault::new(Cause::ProtocolViolation, message, false)),
        Err(ArchiveError::Engine(error)) => Err(engine_fault(&error)),
        Err(error) => {
            tracing::warn!(%attempt, error = %error_chain(&error), "cannot fetch a result past a depot that is gone");
            Err(engine_fault(depot))
        }
    }
}

/// Whether the file speaks of this attempt and no other.
fn check_result_matches(file: &ResultFile, remains: &AttemptContext) -> Result<(), String> {
    let same =
        |what: &str, is: bool| if is { Ok(()) } else { Err(format!("the result's {what} is not this attempt's")) };
    same("version", file.schema_version == RESULT_VERSION)?;
    same("swarm", file.swarm_id == remains.swarm)?;
    same("attempt", file.attempt == remains.attempt)?;
    same("base", file.base == remains.base)?;
    let mut told: Vec<&StoryId> = file.stories.iter().map(|story| &story.id).collect();
    let mut asked: Vec<&StoryId> = remains.stories.iter().map(|(id, _)| id).collect();
    told.sort();
    asked.sort();
    same("list of stories", told == asked)?;
    let moved = file.tip != file.base;
    let finished = file.stories.iter().any(|story| matches!(story.outcome, StoryOutcome::Finished { .. }));
    same("tip", moved == finished)
}

/// Git's own count of what each story changed, in their order, and the tip's tree. For people and for the record: what cannot be
/// had is left out.
async fn count_changes(repo: &Repo, base: &CommitId, tip: Option<&CommitId>, stories: &[StoryResult]) -> ResultChanges {
    let mut diffs = Vec::with_capacity(stories.len());
    let mut from = base;
    for story in stories {
        let to = match &story.outcome {
            StoryOutcome::Finished { commit } => Some(commit),
            StoryOutcome::Failed { salvage, .. } => salvage.as_ref(),
            StoryOutcome::Skipped { .. } | StoryOutcome::NotReached => None,
        };
        let diff = match to {
            Some(to) => repo.diff_stat(from, to).await.map(summarize_diff).inspect_err(|error| {
                tracing::warn!(error = %error_chain(error), story = %story.id, "cannot count what a story changed");
            }),
            None => Ok(DiffSummary::default()),
        };
        diffs.push(diff.unwrap_or_default());
        if let StoryOutcome::Finished { commit } = &story.outcome {
            from = commit;
        }
    }
    let tree = match tip {
        Some(tip) => repo.tree_id(tip).await.ok(),
        None => None,
    };
    ResultChanges { diffs, tree }
}

struct ResultChanges {
    diffs: Vec<DiffSummary>,
    tree: Option<String>,
}

/// Writes what is under review down, for people and for who reads the request.
pub(super) async fn write_review_diff(repo: &Repo, diff: &ReviewDiff) -> Result<(), Box<MachineryFault>> {
    let fault = |error: std::io::Error| {
        let cause = if error.kind() == std::io::ErrorKind::StorageFull { Cause::DiskFull } else { Cause::HostError };
        let summary = format!("cannot write the diff under review to `{}`: {error}", diff.path.display());
        Box::new(MachineryFault::new(cause, summary, true))
    };
    let mut text = Vec::new();
    let all = repo.write_patch(&diff.from, &diff.to, |piece| {
        text.extend_from_slice(piece);
        text.len() < MAX_DIFF_BYTES
    });
    all.await.map_err(|error| Box::new(error.to_fault()))?;
    let folder = diff.path.parent().unwrap_or(&diff.path);
    tokio::fs::create_dir_all(folder).await.map_err(fault)?;
    tokio::fs::write(&diff.path, &text).await.map_err(fault)
}

/// Sandboxes that are to be frozen, or to go on: one after the other, in the order in which it was asked for.
pub(super) fn spawn_pause_worker(
    engine: Arc<dyn Engine>,
    presence: EngineMonitor,
) -> (mpsc::UnboundedSender<(ContainerId, bool)>, JoinHandle<()>) {
    let (asked, mut asks) = mpsc::unbounded_channel();
    let freezing = tokio::spawn(async move {
        while let Some((container, frozen)) = asks.recv().await {
            set_paused(Arc::clone(&engine), container, frozen, presence.clone()).await;
        }
    });
    (asked, freezing)
}

/// Freezes a sandbox, or lets it go on.
async fn set_paused(engine: Arc<dyn Engine>, container: ContainerId, frozen: bool, mut presence: EngineMonitor) {
    loop {
        let done = if frozen { engine.pause(&container).await } else { engine.unpause(&container).await };
        match done {
            Err(error) if error.is_unreachable() => presence.wait_until_available().await,
            Err(error) => {
                tracing::warn!(container = %container.short(), error = %error_chain(&error), frozen, "cannot freeze or thaw a sandbox");
                return;
            }
            Ok(()) => return,
        }
    }
}

/// Gets a reviewer's verdict out.
pub(super) async fn collect_review(
    hands: EffectExecutor,
    remains: AttemptContext,
    criteria: Vec<String>,
    what: CollectMode,
    ssot: Arc<Ssot>,
) -> Event {
    let attempt = remains.attempt.clone();
    match review::fetch_review(hands, remains, criteria, what).await {
        Ok(reviewed) => {
            if let Some((text, rule)) = review::violated_rule(&reviewed) {
                let from = format!("reviewer, {attempt}");
                let logged =
                    tokio::task::spawn_blocking(move || ssot.log_rejected(&text, &rule, Timestamp::now(), &from)).await;
                if let Ok(Err(error)) = logged {
                    tracing::warn!(%attempt, error = %error_chain(&error), "cannot write a refused verdict to the error log");
                }
            }
            Event::ReviewCollected { attempt, outcome: Box::new(reviewed) }
        }
        Err(fault) => Event::CollectFailed {
            attempt,
            fault,
            salvage_ref: None,
            // A reviewer's work folder holds nothing that anybody would miss.
            work_dir_empty: true,
            salvage_incomplete: false,
            depot_timed_out: false,
        },
    }
}

/// What is merged, and how the merge is to be called.
pub(super) struct MergeRequest {
    pub attempt: AttemptId,
    pub branch: BranchName,
    pub onto: CommitId,
    pub tip: CommitId,
    pub message: MergeMessage,
    pub identity: GitIdentity,
    pub result_ref: String,
    /// Whether it is the first on its branch, which may have to be made.
    pub is_first_on_branch: bool,
}

/// Merges onto the integration branch.
pub(super) async fn merge(repo: Repo, landing: MergeRequest) -> Event {
    let MergeRequest { attempt, branch, onto, tip, message, identity, result_ref: kept, is_first_on_branch: first } =
        landing;
    // Made now and not before: a swarm that lands nothing leaves no branch behind.
    if first
        && let Ok(None) = repo.branch_head(branch.as_str()).await
        && let Err(error) = repo.create_integration_branch(&branch, &onto).await
    {
        return Event::MergeFailed { attempt, fault: error.to_fault(), result_ref: kept };
    }
    match repo.land(&branch, &onto, &tip, &message, &identity).await {
        Ok((outcome, at)) => {
            if at != onto {
                tracing::info!(%attempt, %branch, from = %onto, to = %at, "somebody committed on the branch meanwhile: merging onto that");
            }
            match outcome {
                MergeOutcome::Merged { head } => Event::Merged { attempt, head },
                MergeOutcome::Conflict { paths } => Event::MergeConflicted { attempt, paths, result_ref: kept },
            }
        }
        // An orchestrator that died between the merge and its record did this, and somebody moved the branch since.
        Err(DeliveryError::BranchMoved { .. }) if let Ok(Some(head)) = repo.head_if_landed(&branch, &tip).await => {
            Event::Merged { attempt, head }
        }
        Err(error) => Event::MergeFailed { attempt, fault: error.to_fault(), result_ref: kept },
    }
}

/// Removes a sandbox's container, and its folders unless they are to be kept.
pub(super) async fn remove_sandbox(
    hands: EffectExecutor,
    attempt: AttemptId,
    container: Option<ContainerId>,
    uid: u32,
    keep_work: bool,
) -> Event {
    if let Some(container) = container
        && let Err(error) = hands.engine.remove(&container).await
    {
        tracing::warn!(%attempt, error = %error_chain(&error), "cannot remove a sandbox; `longshore gc` will");
    }
    if !keep_work && let Err(error) = hands.depot.remove_sandbox_dirs(&attempt.dir_name(), uid).await {
        tracing::warn!(%attempt, error = %error_chain(&error), "cannot remove a work folder; it goes with its volume");
    }
    Event::SandboxRemoved { attempt }
}
