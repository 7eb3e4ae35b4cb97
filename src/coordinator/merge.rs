//! Lands an attempt's tip on its integration branch. Called by `effects.rs`, each landing in a task of its own.

use crate::delivery::{DeliveryError, LandingCandidate, LandingOptions, MoveOutcome, Repo, landing_ref};
use crate::ids::{AttemptId, BranchName, CommitId, StoryKey};
use crate::swarm::Event;

use super::attempt::AttemptContext;
use super::fault::delivery_fault;
use super::landing::{landing_message, landing_options};
use super::swarm_context::SwarmContext;

/// How often one landing follows a branch that somebody else moves.
const MAX_BRANCH_MOVES: usize = 8;

/// A merge to be done.
pub(super) struct MergeRequest {
    attempt: AttemptId,
    branch: BranchName,
    onto: CommitId,
    candidate: LandingCandidate,
    options: LandingOptions,
    result_ref: String,
    /// Holds what is prepared. An orchestrator that died may have moved the branch there already.
    keep_ref: String,
}

/// How a landing ended.
enum LandingOutcome {
    Landed { head: CommitId },
    Conflicting { paths: Vec<String> },
}

impl MergeRequest {
    pub fn new(
        swarm: &SwarmContext,
        context: &AttemptContext,
        file: u16,
        onto: CommitId,
        base: CommitId,
        tip: CommitId,
        stories: &[StoryKey],
    ) -> Self {
        let message = landing_message(swarm, file, stories);
        let options = landing_options(swarm, file, &onto);
        let file = &swarm.spec.files[usize::from(file)];
        Self {
            attempt: context.attempt.clone(),
            branch: file.branch.clone(),
            candidate: LandingCandidate { tip, base, message },
            options,
            result_ref: context.result_ref(),
            keep_ref: landing_ref(swarm.spec.swarm, &context.attempt.dir_name()),
            onto,
        }
    }

    pub async fn run(self, repo: &Repo) -> Event {
        match self.land(repo).await {
            Ok(LandingOutcome::Landed { head }) => Event::Merged { attempt: self.attempt, head },
            Ok(LandingOutcome::Conflicting { paths }) => {
                Event::MergeConflicted { attempt: self.attempt, paths, result_ref: self.result_ref }
            }
            Err(error) => {
                Event::MergeFailed { attempt: self.attempt, fault: delivery_fault(&error), result_ref: self.result_ref }
            }
        }
    }

    async fn land(&self, repo: &Repo) -> Result<LandingOutcome, DeliveryError> {
        let Self { attempt, branch, candidate, options, keep_ref, .. } = self;
        // An orchestrator that died between the move and its record landed this, and the branch may have moved since.
        if let Some(prepared) = repo.read_ref(keep_ref).await?
            && let Some(head) = repo.is_landed(branch, &prepared).await?
        {
            return Ok(LandingOutcome::Landed { head });
        }
        let mut known_head = self.onto.clone();
        let mut moves = 0;
        loop {
            let prepared =
                repo.prepare_landing(branch, &known_head, std::slice::from_ref(candidate), options, keep_ref).await?;
            if prepared.onto != self.onto {
                tracing::info!(%attempt, %branch, from = %self.onto, to = %prepared.onto, "the branch was moved by somebody else: merged onto its new head");
            }
            let Some(last) = prepared.commits.last() else {
                return Ok(LandingOutcome::Conflicting { paths: prepared.conflict.unwrap_or_default() });
            };
            let subject = &candidate.message.subject;
            let moved = repo.move_branch(branch, prepared.branch_head(), &last.commit, subject, &options.committer);
            match moved.await? {
                MoveOutcome::Moved => return Ok(LandingOutcome::Landed { head: last.commit.clone() }),
                MoveOutcome::BranchMoved { found } if moves == MAX_BRANCH_MOVES => {
                    let (branch, expected) = (branch.to_string(), prepared.onto);
                    return Err(DeliveryError::BranchMoved { branch, expected, found });
                }
                MoveOutcome::BranchMoved { .. } => known_head = prepared.onto,
            }
            moves += 1;
        }
    }
}
