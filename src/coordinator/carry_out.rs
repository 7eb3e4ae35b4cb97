//! The effects that are not a sandbox's life: getting results out and onto the host, merging, removing. Each is one async function
//! that ends in an event. Called by `run.rs`, each in a task of its own. Must not: believe what came out of a sandbox.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::delivery::{DeliveryError, Expected, MergeMessage, MergeOutcome, Repo, result_ref, salvage_ref};
use crate::engine::Engine;
use crate::engine::EngineError;
use crate::engine::depot::{Collected, Depot, Salvaged};
use crate::handoff::assignment::Identity;
use crate::handoff::depot::DepotFaultKind;
use crate::handoff::layout;
use crate::handoff::result::{RESULT_VERSION, ResultFile, StoryResult};
use crate::ids::{AttemptId, BranchName, CommitId, ContainerId, StoryId, SwarmId};
use crate::swarm::{Event, Fault, Rest, Salvaging};
use crate::verdict::{Cause, StoryOutcome};

use super::archive::{self, ArchiveError};
use super::session::{chain, engine_fault};

/// What is known of an attempt whose sandbox ended.
#[derive(Debug, Clone)]
pub(super) struct Remains {
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

impl Remains {
    fn salvage_ref(&self, story_path: &str) -> String {
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
pub(super) struct Hands {
    pub engine: Arc<dyn Engine>,
    pub depot: Depot,
    pub repo: Repo,
    /// Where bundles are put while they are looked at.
    pub incoming: PathBuf,
    pub max_bundle: u64,
}

/// Sees what a container that runs looks like; nothing where it has ended, or the engine does not say.
pub(super) async fn examine(engine: &dyn Engine, attempt: AttemptId, container: &ContainerId) -> Option<Event> {
    let seen = engine.inspect(container).await.ok().flatten().filter(|seen| seen.running)?;
    let processes = engine.top(container).await.unwrap_or_default();
    Some(Event::Examined { attempt, paused: seen.paused, processes })
}

/// Gets the result out, verified, under refs; or, where there is none, what the work folder has.
pub(super) async fn collect(hands: Hands, remains: Remains, what: Salvaging) -> Event {
    let bundle = hands.incoming.join(format!("{}.bundle", remains.attempt.folder()));
    let event = match result(&hands, &remains, &bundle).await {
        Ok(Some((tip, stories))) => {
            let rest = rest(&hands, &remains, &bundle, tip.as_ref(), &stories).await;
            Event::ResultCollected { attempt: remains.attempt.clone(), tip, stories, rest }
        }
        Ok(None) => {
            let summary = match what {
                Salvaging::Result => "the sandbox said `completion` and left no result",
                Salvaging::Remains => "the sandbox ended without a result",
            };
            salvage(&hands, &remains, &bundle, Fault::new(Cause::ProtocolViolation, summary, true)).await
        }
        Err(fault) => salvage(&hands, &remains, &bundle, fault).await,
    };
    let _ = tokio::fs::remove_file(&bundle).await;
    event
}

pub(super) type Result_ = (Option<CommitId>, Vec<StoryResult>);

pub(super) async fn result(hands: &Hands, remains: &Remains, bundle: &Path) -> Result<Option<Result_>, Fault> {
    let Some(collected) = fetch(hands, remains, bundle).await? else { return Ok(None) };
    let Some(bytes) = collected.result else { return Ok(None) };
    let refused = |summary: String| Fault::new(Cause::ProtocolViolation, summary, false);
    let file: ResultFile = serde_json::from_slice(&bytes)
        .map_err(|error| refused(format!("`{}` cannot be read: {error}", layout::RESULT_FILE)))?;
    agrees(&file, remains).map_err(refused)?;
    let moved = file.tip != file.base;
    if file.bundle != collected.bundle {
        return Err(refused("the result and the bundle contradict each other".to_owned()));
    }
    let mut stories = file.stories;
    for story in &mut stories {
        // Where work is kept is the host's to say.
        if let StoryOutcome::Failed { failure, .. } = &mut story.outcome {
            failure.salvage = None;
        }
    }
    if collected.bundle {
        let mut salvage: Vec<(StoryId, CommitId, String)> = Vec::new();
        for story in &stories {
            if let StoryOutcome::Failed { salvage: Some(commit), .. } = &story.outcome
                && let Some((_, path)) = remains.stories.iter().find(|(id, _)| *id == story.id)
            {
                let name = hands.repo.free_name(&remains.salvage_ref(path), commit).await;
                salvage.push((story.id.clone(), commit.clone(), name.map_err(|error| error.fault())?));
            }
        }
        let expected = Expected {
            branch: remains.branch.clone(),
            base: remains.base.clone(),
            tip: moved.then(|| file.tip.clone()),
            result_ref: remains.result_ref(),
            salvage: salvage.clone(),
        };
        hands.repo.import(bundle, &expected).await.map_err(|error| error.fault())?;
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
pub(super) async fn fetch(hands: &Hands, remains: &Remains, bundle: &Path) -> Result<Option<Collected>, Fault> {
    let folder = remains.attempt.folder();
    match hands.depot.collect(&folder, remains.uid, hands.max_bundle, bundle).await {
        Err(EngineError::Depot { kind: Some(DepotFaultKind::NotFound), .. }) => Ok(None),
        Err(EngineError::Depot { kind: Some(DepotFaultKind::Refused), message, .. }) => {
            Err(Fault::new(Cause::ProtocolViolation, message, false))
        }
        // Without a kind it has died, and could not be brought back.
        Err(error @ EngineError::Depot { kind: None, .. }) => {
            past_the_depot(hands, remains, bundle, &error).await.map(Some)
        }
        Err(error) => Err(engine_fault(&error)),
        Ok(collected) => Ok(Some(collected)),
    }
}

/// The result by the engine's own way out, from the container that made it. Where that has none either, it is the depot's
/// failure that counts: nothing is known of the work.
async fn past_the_depot(
    hands: &Hands,
    remains: &Remains,
    bundle: &Path,
    depot: &EngineError,
) -> Result<Collected, Fault> {
    let Some(container) = &remains.container else { return Err(engine_fault(depot)) };
    let folder = remains.attempt.folder();
    let fetched = archive::fetch(hands.engine.as_ref(), container, &folder, hands.max_bundle, bundle).await;
    let attempt = &remains.attempt;
    match fetched {
        Ok(collected) if collected.result.is_some() => {
            tracing::warn!(%attempt, depot = %chain(depot), "the result was fetched past a depot that is gone");
            Ok(collected)
        }
        Ok(_) => Err(engine_fault(depot)),
        Err(ArchiveError::Refused(message)) => Err(Fault::new(Cause::ProtocolViolation, message, false)),
        Err(ArchiveError::Engine(error)) => Err(engine_fault(&error)),
        Err(error) => {
            tracing::warn!(%attempt, error = %chain(&error), "cannot fetch a result past a depot that is gone");
            Err(engine_fault(depot))
        }
    }
}

/// Whether the file speaks of this attempt and no other.
fn agrees(file: &ResultFile, remains: &Remains) -> Result<(), String> {
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

/// Brings out what the work folder has beyond its result, where the result says or leaves open that there is something; none where
/// that was not asked for or did not work out.
async fn rest(
    hands: &Hands,
    remains: &Remains,
    bundle: &Path,
    tip: Option<&CommitId>,
    stories: &[StoryResult],
) -> Option<Rest> {
    let open = stories.iter().find(|story| match &story.outcome {
        StoryOutcome::Failed { unsaved, .. } => *unsaved,
        StoryOutcome::NotReached => true,
        StoryOutcome::Finished { .. } | StoryOutcome::Skipped { .. } => false,
    })?;
    let (story, path) = remains.stories.iter().find(|(id, _)| *id == open.id)?;
    let inside = layout::salvage_ref(story);
    let (folder, base) = (remains.attempt.folder(), &remains.base);
    let saved = hands.depot.salvage(&folder, remains.uid, base, &inside, hands.max_bundle, bundle).await;
    let saved = saved
        .inspect_err(
            |error| tracing::warn!(attempt = %remains.attempt, error = %chain(error), "cannot salvage a work folder"),
        )
        .ok()?;
    match saved.commit {
        Some(commit) if Some(&commit) != tip => {
            let imported = import_salvage(hands, bundle, &inside, &commit, &remains.salvage_ref(path)).await;
            imported.ok().map(|reference| Rest::Kept { reference })
        }
        _ if saved.left_out.is_empty() => Some(Rest::Nothing),
        _ => None,
    }
}

/// What can still be had when there is no result to believe.
async fn salvage(hands: &Hands, remains: &Remains, bundle: &Path, mut fault: Fault) -> Event {
    let (mut salvage, mut seen) = (None, Seen::default());
    let attempt = &remains.attempt;
    if let Some((story, path)) = remains.stories.first() {
        let inside = layout::salvage_ref(story);
        let folder = attempt.folder();
        let saved = hands.depot.salvage(&folder, remains.uid, &remains.base, &inside, hands.max_bundle, bundle).await;
        seen = Seen::of(&saved);
        match saved {
            Ok(Salvaged { commit, left_out }) => {
                fault.evidence.paths.extend(left_out);
                if let Some(commit) = commit {
                    let imported = import_salvage(hands, bundle, &inside, &commit, &remains.salvage_ref(path)).await;
                    salvage = imported
                        .inspect_err(
                            |error| tracing::warn!(%attempt, error = %chain(error), "cannot import what was salvaged"),
                        )
                        .ok();
                }
            }
            Err(_) if seen.nothing_there => {}
            Err(error) => tracing::warn!(%attempt, error = %chain(&error), "cannot salvage a work folder"),
        }
    } else {
        seen.nothing_there = true;
    }
    let Seen { nothing_there, left_out, no_answer } = seen;
    Event::CollectFailed { attempt: attempt.clone(), fault, salvage, nothing_there, left_out, no_answer }
}

/// What a salvage says of the work folder.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Seen {
    nothing_there: bool,
    left_out: bool,
    no_answer: bool,
}

impl Seen {
    fn of(saved: &Result<Salvaged, EngineError>) -> Self {
        match saved {
            Ok(Salvaged { commit, left_out }) => Self {
                // Nothing beyond the base: nothing to keep.
                nothing_there: commit.is_none() && left_out.is_empty(),
                left_out: !left_out.is_empty(),
                no_answer: false,
            },
            // It was never made, or is gone.
            Err(EngineError::Depot { kind: Some(DepotFaultKind::NotFound), .. }) => {
                Self { nothing_there: true, ..Self::default() }
            }
            Err(error) => Self { no_answer: matches!(error, EngineError::TimedOut { .. }), ..Self::default() },
        }
    }
}

/// Takes a salvage in under a name that no other commit has, and gives that name.
async fn import_salvage(
    hands: &Hands,
    bundle: &Path,
    inside: &str,
    commit: &CommitId,
    name: &str,
) -> Result<String, DeliveryError> {
    let name = hands.repo.free_name(name, commit).await?;
    hands.repo.import_salvage(bundle, inside, commit, &name).await?;
    Ok(name)
}

/// What is merged, and how the merge is to be called.
pub(super) struct Landing {
    pub attempt: AttemptId,
    pub branch: BranchName,
    pub onto: CommitId,
    pub tip: CommitId,
    pub message: MergeMessage,
    pub identity: Identity,
    pub kept: String,
    /// Whether it is the first on its branch, which may have to be made.
    pub first: bool,
}

/// Merges onto the integration branch.
pub(super) async fn merge(repo: Repo, landing: Landing) -> Event {
    let Landing { attempt, branch, onto, tip, message, identity, kept, first } = landing;
    // Made now and not before: a swarm that lands nothing leaves no branch behind.
    if first
        && let Ok(None) = repo.branch_head(branch.as_str()).await
        && let Err(error) = repo.create_branch(&branch, &onto).await
    {
        return Event::MergeFailed { attempt, fault: error.fault(), kept };
    }
    match repo.land(&branch, &onto, &tip, &message, &identity).await {
        Ok((outcome, at)) => {
            if at != onto {
                tracing::info!(%attempt, %branch, from = %onto, to = %at, "somebody committed on the branch meanwhile: merging onto that");
            }
            match outcome {
                MergeOutcome::Merged { head } => Event::Merged { attempt, head },
                MergeOutcome::Conflict { paths } => Event::MergeConflicted { attempt, paths, kept },
            }
        }
        // An orchestrator that died between the merge and its record did this, and somebody moved the branch since.
        Err(DeliveryError::BranchMoved { .. }) if let Ok(Some(head)) = repo.landed(&branch, &tip).await => {
            Event::Merged { attempt, head }
        }
        Err(error) => Event::MergeFailed { attempt, fault: error.fault(), kept },
    }
}

/// Removes a sandbox's container, and its folders unless they are to be kept.
pub(super) async fn remove(
    hands: Hands,
    attempt: AttemptId,
    container: Option<ContainerId>,
    uid: u32,
    keep_work: bool,
) -> Event {
    if let Some(container) = container
        && let Err(error) = hands.engine.remove(&container).await
    {
        tracing::warn!(%attempt, error = %chain(&error), "cannot remove a sandbox; `longshore gc` will");
    }
    if !keep_work && let Err(error) = hands.depot.discard(&attempt.folder(), uid).await {
        tracing::warn!(%attempt, error = %chain(&error), "cannot remove a work folder; it goes with its volume");
    }
    Event::SandboxRemoved { attempt }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_salvage_says_of_the_folder() {
        let saved = |commit: bool, left_out: &[&str]| {
            let commit = commit.then(|| "0".repeat(40).parse().expect("40 digits"));
            Ok(Salvaged { commit, left_out: left_out.iter().map(|path| (*path).to_owned()).collect() })
        };
        let fault = |kind| Err(EngineError::Depot { operation: "salvaging", kind, message: String::new() });
        let seen = |nothing_there, left_out, no_answer| Seen { nothing_there, left_out, no_answer };
        let table = [
            (saved(true, &[]), seen(false, false, false)),
            (saved(true, &["secret.txt"]), seen(false, true, false)),
            (saved(false, &["secret.txt"]), seen(false, true, false)),
            (saved(false, &[]), seen(true, false, false)),
            (fault(Some(DepotFaultKind::NotFound)), seen(true, false, false)),
            (fault(Some(DepotFaultKind::Failed)), seen(false, false, false)),
            (fault(None), seen(false, false, false)),
        ];
        for (saved, wanted) in table {
            assert_eq!(Seen::of(&saved), wanted, "{saved:?}");
        }
    }
}
