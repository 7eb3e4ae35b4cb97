//! Merges an attempt's tip onto its integration branch. Called by `effects.rs`, each merge in a task of its own.

use crate::delivery::{DeliveryError, MergeMessage, MergeOutcome, Repo};
use crate::handoff::assignment::GitIdentity;
use crate::ids::{AttemptId, BranchName, CommitId, StoryKey};
use crate::swarm::Event;

use super::attempt::AttemptContext;
use super::fault::delivery_fault;
use super::swarm_context::SwarmContext;

/// A merge to be done.
pub(super) struct MergeRequest {
    attempt: AttemptId,
    branch: BranchName,
    onto: CommitId,
    tip: CommitId,
    message: MergeMessage,
    identity: GitIdentity,
    result_ref: String,
    /// The first merge onto the branch, which may not exist yet.
    is_first_on_branch: bool,
}

impl MergeRequest {
    pub fn new(
        swarm: &SwarmContext,
        context: &AttemptContext,
        file: u16,
        onto: CommitId,
        tip: CommitId,
        stories: &[StoryKey],
    ) -> Self {
        let plan = &swarm.plan;
        let titles: Vec<String> = stories.iter().map(|key| format!("{}: {}", key.id, plan.story(key).title)).collect();
        let (subject, body) = match titles.as_slice() {
            [only] => (format!("Merge {only}"), String::new()),
            several => {
                let title = &plan.files[usize::from(file)].tasks.title;
                (format!("Merge {} stories of {title}", several.len()), several.join("\n"))
            }
        };
        let file = &swarm.spec.files[usize::from(file)];
        Self {
            attempt: context.attempt.clone(),
            branch: file.branch.clone(),
            tip,
            message: MergeMessage {
                subject,
                body,
                swarm: swarm.spec.swarm,
                stories: stories.iter().map(|key| key.id.clone()).collect(),
            },
            identity: swarm.sandbox.identity.clone(),
            result_ref: context.result_ref(),
            is_first_on_branch: onto == file.base,
            onto,
        }
    }

    pub async fn run(self, repo: &Repo) -> Event {
        let Self { attempt, branch, onto, tip, message, identity, result_ref, is_first_on_branch } = self;
        // Created as late as possible: a swarm that lands nothing leaves no branch behind.
        if is_first_on_branch
            && let Ok(None) = repo.branch_head(branch.as_str()).await
            && let Err(error) = repo.create_integration_branch(&branch, &onto).await
        {
            return Event::MergeFailed { attempt, fault: delivery_fault(&error), result_ref };
        }
        match repo.land(&branch, &onto, &tip, &message, &identity).await {
            Ok((outcome, at)) => {
                if at != onto {
                    tracing::info!(%attempt, %branch, from = %onto, to = %at, "the branch was moved by somebody else: merged onto its new head");
                }
                match outcome {
                    MergeOutcome::Merged { head } => Event::Merged { attempt, head },
                    MergeOutcome::Conflict { paths } => Event::MergeConflicted { attempt, paths, result_ref },
                }
            }
            // An orchestrator that died between the merge and its record merged this tip, and the branch was moved since.
            Err(DeliveryError::BranchMoved { .. }) if let Ok(Some(head)) = repo.head_if_landed(&branch, &tip).await => {
                Event::Merged { attempt, head }
            }
            Err(error) => Event::MergeFailed { attempt, fault: delivery_fault(&error), result_ref },
        }
    }
}
