//! Prepares landings on the host, and moves branches. Called by `effects.rs`, each step in a task of its own that ends in an event.
//! Must not: decide what lands; that is the machine's.

use std::collections::BTreeSet;

use crate::delivery::{
    DeliveryError, LandingCandidate, LandingOptions, MergeMessage, MergedStory, MoveOutcome, Repo, landing_ref,
};
use crate::handoff::assignment::GitIdentity;
use crate::ids::{BranchName, CommitId, StoryKey};
use crate::swarm::{CandidateSpec, CheckableCommit, Event};

use super::checks::{CheckCommand, CheckMemory, check_commands};
use super::fault::delivery_fault;
use super::swarm_context::SwarmContext;

/// The candidates of a landing, to be merged and kept under a ref.
pub(super) struct LandingPreparation {
    landing: u64,
    branch: BranchName,
    onto: CommitId,
    candidates: Vec<LandingCandidate>,
    merge: bool,
    options: LandingOptions,
    keep_ref: String,
    /// The checks of each prefix of the candidates; of the head itself if there are none.
    checks: Vec<BTreeSet<CheckCommand>>,
    memory: CheckMemory,
}

impl LandingPreparation {
    pub fn new(
        swarm: &SwarmContext,
        landing: u64,
        file: u16,
        onto: CommitId,
        candidates: Vec<CandidateSpec>,
        merge: bool,
    ) -> Self {
        let commands =
            |stories: &[StoryKey]| check_commands(&swarm.spec, &swarm.plan, &swarm.sandbox.verify, file, stories);
        let mut stories: Vec<StoryKey> = Vec::new();
        let mut checks = Vec::new();
        for candidate in &candidates {
            stories.extend(candidate.stories.iter().cloned());
            checks.push(commands(&stories));
        }
        if candidates.is_empty() {
            checks.push(commands(&[]));
        }
        let candidates = candidates.into_iter().map(|candidate| {
            let message = landing_message(swarm, file, &candidate.stories);
            LandingCandidate { tip: candidate.tip, base: candidate.base, message }
        });
        Self {
            landing,
            branch: swarm.spec.files[usize::from(file)].branch.clone(),
            candidates: candidates.collect(),
            merge,
            options: landing_options(swarm, file, &onto),
            keep_ref: landing_ref(swarm.spec.swarm, &landing.to_string()),
            onto,
            checks,
            memory: swarm.checks.clone(),
        }
    }

    pub async fn run(self, repo: &Repo) -> Event {
        let landing = self.landing;
        match self.prepare(repo).await {
            Ok(event) => event,
            Err(error) => Event::LandingFailed { landing, fault: delivery_fault(&error) },
        }
    }

    async fn prepare(self, repo: &Repo) -> Result<Event, DeliveryError> {
        let Self { landing, branch, onto, candidates, merge, options, keep_ref, checks, memory } = self;
        let (onto, commits, conflict) = if candidates.is_empty() {
            let head = repo.branch_head(branch.as_str()).await?.unwrap_or(onto);
            let tree = repo.tree_id(&head).await?;
            (head.clone(), vec![(head, tree)], None)
        } else if merge {
            let prepared = repo.prepare_landing(&branch, &onto, &candidates, &options, &keep_ref).await?;
            if prepared.onto != onto {
                tracing::info!(%branch, from = %onto, to = %prepared.onto, "the branch was moved by somebody else: merging onto its new head");
            }
            let commits = prepared.commits.into_iter().map(|commit| (commit.commit, commit.tree)).collect();
            (prepared.onto, commits, prepared.conflict)
        } else {
            let mut commits = Vec::new();
            for candidate in &candidates {
                commits.push((candidate.tip.clone(), repo.tree_id(&candidate.tip).await?));
            }
            (onto, commits, None)
        };
        let commits = commits.into_iter().zip(&checks);
        let commits = commits
            .map(|((commit, tree), commands)| CheckableCommit { commit, checked: memory.has_passed(&tree, commands) });
        Ok(Event::LandingPrepared { landing, onto, commits: commits.collect(), conflict })
    }
}

/// A branch to be moved to a prepared commit.
pub(super) struct BranchMove {
    landing: u64,
    branch: BranchName,
    from: CommitId,
    to: CommitId,
    subject: String,
    committer: GitIdentity,
    may_create_branch: bool,
}

impl BranchMove {
    pub fn new(
        swarm: &SwarmContext,
        landing: u64,
        file: u16,
        from: CommitId,
        to: CommitId,
        stories: &[StoryKey],
    ) -> Self {
        let options = landing_options(swarm, file, &from);
        Self {
            landing,
            branch: swarm.spec.files[usize::from(file)].branch.clone(),
            subject: landing_message(swarm, file, stories).subject,
            committer: options.committer,
            may_create_branch: options.may_create_branch,
            from,
            to,
        }
    }

    pub async fn run(self, repo: &Repo) -> Event {
        let landing = self.landing;
        match self.move_branch(repo).await {
            Ok(event) => event,
            Err(error) => Event::LandingFailed { landing, fault: delivery_fault(&error) },
        }
    }

    async fn move_branch(self, repo: &Repo) -> Result<Event, DeliveryError> {
        let Self { landing, branch, from, to, subject, committer, may_create_branch } = self;
        let head = repo.branch_head(branch.as_str()).await?;
        let start = match &head {
            None if may_create_branch => None,
            _ => Some(&from),
        };
        // The branch contains it already if an orchestrator died between the move and its record.
        let found = match &head {
            Some(head) if *head != from => head.clone(),
            _ => match repo.move_branch(&branch, start, &to, &subject, &committer).await? {
                MoveOutcome::Moved => return Ok(Event::BranchMoved { landing, head: to }),
                MoveOutcome::BranchMoved { found: Some(found) } => found,
                MoveOutcome::BranchMoved { found: None } => {
                    let branch = branch.to_string();
                    return Err(DeliveryError::BranchMoved { branch, expected: from, found: None });
                }
            },
        };
        if let Some(head) = repo.is_landed(&branch, &to).await? {
            return Ok(Event::BranchMoved { landing, head });
        }
        if repo.is_landed(&branch, &from).await?.is_none() {
            // Rewound: what landed before is not there any more.
            let (branch, found) = (branch.to_string(), Some(found));
            return Err(DeliveryError::BranchMoved { branch, expected: from, found });
        }
        Ok(Event::BranchAdvanced { landing, found })
    }
}

pub(super) fn landing_options(swarm: &SwarmContext, file: u16, onto: &CommitId) -> LandingOptions {
    LandingOptions {
        author: swarm.sandbox.identity.clone(),
        committer: swarm.sandbox.identity.clone(),
        sign: swarm.sandbox.sign_landings,
        may_create_branch: *onto == swarm.spec.files[usize::from(file)].base,
    }
}

/// The message under which these stories of a tasks file land.
pub(super) fn landing_message(swarm: &SwarmContext, file: u16, stories: &[StoryKey]) -> MergeMessage {
    let plan = &swarm.plan;
    let titles: Vec<String> = stories.iter().map(|key| format!("{}: {}", key.id, plan.story(key).title)).collect();
    let planned = &plan.files[usize::from(file)];
    let (subject, body) = match titles.as_slice() {
        [only] => (format!("Merge {only}"), String::new()),
        several => (format!("Merge {} stories of {}", several.len(), planned.tasks.title), several.join("\n")),
    };
    let stories = stories.iter().map(|key| {
        let content = Some(plan.story(key).content_hash());
        MergedStory { id: key.id.clone(), content }
    });
    MergeMessage {
        subject,
        body,
        swarm: swarm.spec.swarm,
        tasks: Some(planned.task_file_path.clone()),
        stories: stories.collect(),
    }
}
