//! What an attempt's sandbox gets: its files, its container and its task-request. Called by `effects.rs`. Must not: do I/O; it
//! builds values.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::coordinator::amp::composer::AmpComposer;
use crate::coordinator::attempt::AttemptContext;
use crate::coordinator::checks::shared_verify;
use crate::coordinator::mailbox::SandboxSeat;
use crate::coordinator::memory::{DispatchContext, StoryMemory};
use crate::coordinator::swarm_context::SwarmContext;
use crate::engine::{ContainerSpec, VolumeMount, label};
use crate::handoff::assignment::{
    ASSIGNMENT_VERSION, AssignedStory, AssignmentFile, MailboxMembership, MailboxPeer, MergeInProgress,
};
use crate::handoff::check::CheckAssignment;
use crate::handoff::depot::TextFile;
use crate::handoff::layout;
use crate::ids::{BranchName, CommitId, StoryKey};
use crate::plan::PlannedAgent;
use crate::protocol::acp::message::{TaskFilePath, TaskRequest};
use crate::swarm::{AssignmentSpec, AttemptRole, AttemptView};

use super::review_diff::ReviewDiff;

/// What the shim needs to run agents as another user. It keeps them from all of its children, and gives up the last at once.
const SHIM_CAPABILITIES: [&str; 4] = ["KILL", "SETGID", "SETUID", "SETPCAP"];
/// The most other agents that a prompt names.
const MAX_PEERS: usize = 40;

/// The task of a sandbox.
pub(crate) struct SandboxTask {
    /// The stories, each with the reason why its previous attempt failed.
    pub stories: Vec<(StoryKey, Option<String>)>,
    /// The admin's guidance.
    pub guidance: Vec<String>,
}

/// Everything that a sandbox is made of.
pub(crate) struct SandboxSpec {
    pub context: AttemptContext,
    /// The index of the tasks file.
    pub file: u16,
    /// The branch of `context.base`.
    pub base_branch: BranchName,
    /// The agent's seat in the mailbox.
    pub seat: Option<SandboxSeat>,
    pub container: ContainerSpec,
    pub files: Vec<TextFile>,
    /// `None` for a reviewer.
    pub dispatch: Option<DispatchContext>,
    pub request: TaskRequest,
    pub log_path: PathBuf,
    pub review_diff: Option<ReviewDiff>,
    /// The commit that the sandbox merges with, and its branch.
    pub merge_head: Option<(BranchName, CommitId)>,
}

impl SandboxSpec {
    /// `None` if the plan has no such assignment. `dependency_memories` are those of the stories' dependencies.
    pub fn new(
        swarm: &SwarmContext,
        composer: &AmpComposer,
        view: &AttemptView,
        context: AttemptContext,
        task: SandboxTask,
        dependency_memories: Vec<Arc<StoryMemory>>,
    ) -> Option<Self> {
        let (index, assignment) = swarm.find_assignment(&view.id.assignment)?;
        let file = &swarm.spec.files[usize::from(assignment.file)];
        let planned = &swarm.plan.files[usize::from(assignment.file)];
        let review = view.review();
        let membership = match view.role {
            AttemptRole::Executor | AttemptRole::Reviewer(_) => mailbox_membership(swarm, index, review.is_some()),
            AttemptRole::Checker(_) => None,
        };
        let keys: Vec<StoryKey> = task.stories.iter().map(|(key, _)| key.clone()).collect();
        let files = vec![
            assignment_file(swarm, composer, view, assignment, task, membership.clone()),
            TextFile {
                path: format!("{}/{}", layout::TASKS_DIR, planned.task_file_path),
                text: swarm.plan.tasks_file_for(assignment.file, &keys),
            },
        ];
        let request = TaskRequest {
            task_file_path: planned
                .task_file_path
                .parse::<TaskFilePath>()
                .expect("the plan makes paths that ACP allows"),
            branch_name: assignment.branch.clone(),
            repo_url: swarm.sandbox.repo_url.clone(),
            env_vars: swarm.sandbox.env.clone(),
        };
        // A reviewer gets the work in its assignment file, and no memory. In a check sandbox is nobody who could use it.
        let dispatch = view.is_executor().then(|| DispatchContext {
            swarm: swarm.spec.swarm,
            attempt: view.id.clone(),
            branch: assignment.branch.to_string(),
            stories: keys.iter().map(|key| swarm.plan.story(key).clone()).collect(),
            header_blocks: swarm.plan.header_blocks(assignment.file, &keys),
            memory: dependency_memories,
            budget: swarm.sandbox.memory_budget,
        });
        let on_own_branch = view.is_rework || view.merge.is_some() || !view.is_executor();
        Some(Self {
            file: assignment.file,
            base_branch: if on_own_branch { assignment.branch.clone() } else { file.branch.clone() },
            seat: membership.map(|seat| SandboxSeat { seat, uid: context.uid }),
            container: container_spec(swarm, &context, &view.role),
            files,
            dispatch,
            request,
            log_path: swarm.dir.log_file(&view.id.assignment),
            merge_head: view.merge.as_ref().map(|merge| (file.branch.clone(), merge.head.clone())),
            review_diff: review.map(|review| ReviewDiff {
                path: composer.diff_path(&view.id.dir_name()),
                from: review.base.clone(),
                to: review.commit.clone(),
            }),
            context,
        })
    }
}

fn assignment_file(
    swarm: &SwarmContext,
    composer: &AmpComposer,
    view: &AttemptView,
    assignment: &AssignmentSpec,
    task: SandboxTask,
    mailbox: Option<MailboxMembership>,
) -> TextFile {
    let (spec, sandbox) = (&swarm.spec, &swarm.sandbox);
    let assigned = |(key, previous_failure): (StoryKey, _)| AssignedStory { id: key.id, previous_failure };
    let file = AssignmentFile {
        schema_version: ASSIGNMENT_VERSION,
        swarm_id: spec.swarm,
        attempt: view.id.clone(),
        branch: assignment.branch.clone(),
        base: view.base.clone(),
        integration_branch: spec.files[usize::from(assignment.file)].branch.to_string(),
        object_format: swarm.repo.object_format().to_owned(),
        task_file_path: swarm.plan.files[usize::from(assignment.file)].task_file_path.clone(),
        stories: task.stories.into_iter().map(assigned).collect(),
        agent: sandbox.agent.clone(),
        verify: match view.role {
            AttemptRole::Checker(_) => shared_verify(spec, &swarm.plan, &sandbox.verify, assignment.file),
            AttemptRole::Executor | AttemptRole::Reviewer(_) => sandbox.verify.clone(),
        },
        story_timeout_secs: spec.limits.story_timeout.as_secs().max(1),
        // Rounded up: zero means no limit.
        idle_timeout_secs: spec.limits.idle_timeout.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX),
        grace_secs: spec.limits.grace_period.as_secs().max(1),
        identity: sandbox.identity.clone(),
        guidance: task.guidance,
        rework: view.is_rework,
        mailbox,
        check: view
            .check()
            .map(|check| CheckAssignment { commit: check.commit.clone(), tolerated: check.tolerated.clone() }),
        merge: view
            .merge
            .as_ref()
            .map(|merge| MergeInProgress { head: merge.head.clone(), paths: merge.paths.clone() }),
        checked_after: spec.landing.is_some(),
        review: view.review().and_then(|review| {
            let agent = &sandbox.review.as_ref()?.agent;
            composer.review_assignment(&view.id.dir_name(), review, agent)
        }),
    };
    TextFile {
        path: layout::ASSIGNMENT_FILE.to_owned(),
        text: serde_json::to_string_pretty(&file).expect("an assignment file has string keys only"),
    }
}

/// The mailbox identity of an assignment's agent or of its reviewer; `None` without a mailbox.
fn mailbox_membership(swarm: &SwarmContext, index: usize, is_review: bool) -> Option<MailboxMembership> {
    let plan = &swarm.plan;
    let planned = plan.agents.get(index)?;
    let PlannedAgent { id: agent, role } = if is_review { planned.reviewer() } else { planned.clone() };
    let others = plan.agents.iter().zip(&plan.assignments).filter(|(other, _)| other.id != agent);
    let peer = |(other, assignment): (&PlannedAgent, &AssignmentSpec)| MailboxPeer {
        agent: other.id.clone(),
        role: other.role.clone(),
        task: plan.story(&assignment.stories[0]).title.clone(),
    };
    let peers = others.take(MAX_PEERS).map(peer).collect();
    Some(MailboxMembership { agent, role, peers })
}

fn role_label(role: &AttemptRole) -> &'static str {
    match role {
        AttemptRole::Executor => "sandbox",
        AttemptRole::Reviewer(_) => "reviewer",
        AttemptRole::Checker(_) => "checker",
    }
}

fn container_spec(swarm: &SwarmContext, context: &AttemptContext, role: &AttemptRole) -> ContainerSpec {
    let (sandbox, volumes) = (&swarm.sandbox, &swarm.names.volumes);
    let (attempt, uid, users) = (&context.attempt, context.uid, context.users());
    let dir = attempt.dir_name();
    let mount = |volume: &str, target: &str, read_only: bool, subpath: Option<&str>| VolumeMount {
        volume: volume.to_owned(),
        target: target.to_owned(),
        read_only,
        subpath: subpath.map(str::to_owned),
    };
    let mut mounts = vec![mount(&volumes.objects, layout::OBJECTS, true, None)];
    if sandbox.supports_subpath {
        mounts.push(mount(&volumes.inbox, layout::BIN, true, Some("bin")));
        mounts.push(mount(&volumes.inbox, &format!("{}/{dir}", layout::IN), true, Some(&dir)));
        mounts.push(mount(&volumes.work, &format!("{}/{dir}", layout::WORK), false, Some(&dir)));
    } else {
        mounts.push(mount(&volumes.inbox, layout::IN, true, None));
        mounts.push(mount(&volumes.work, layout::WORK, false, None));
    }
    mounts.extend(volumes.mailbox.as_ref().map(|mailbox| mount(mailbox, layout::MAILBOX, false, None)));
    let ids: Vec<&str> = context.stories.iter().map(|(id, _)| id.as_str()).collect();
    let labels = BTreeMap::from([
        (label::SWARM.to_owned(), context.swarm.to_string()),
        (label::ASSIGNMENT.to_owned(), attempt.assignment.to_string()),
        (label::STORY.to_owned(), ids.join(",")),
        (label::ATTEMPT.to_owned(), attempt.number.to_string()),
        (label::ROLE.to_owned(), role_label(role).to_owned()),
        (label::REPO.to_owned(), swarm.repo.hash()),
    ]);
    ContainerSpec {
        name: swarm.names.sandbox(attempt),
        image: sandbox.image.clone(),
        argv: vec![layout::SHIM.to_owned(), "serve".to_owned(), dir, users.agent.to_string(), users.shim.to_string()],
        env: vec![("HOME".to_owned(), layout::HOME.to_owned())],
        // Until the shim has become its user.
        user: (0, 0),
        workdir: "/".to_owned(),
        labels,
        mounts,
        tmpfs: vec![
            ("/tmp".to_owned(), "rw,exec,nosuid,nodev,mode=1777".to_owned()),
            (layout::HOME.to_owned(), format!("rw,exec,nosuid,nodev,mode=0700,uid={uid},gid={uid}")),
        ],
        memory_limit: sandbox.memory,
        milli_cpus: sandbox.milli_cpus,
        pids_limit: sandbox.pids,
        network: sandbox.network.clone(),
        added_capabilities: SHIM_CAPABILITIES.map(str::to_owned).to_vec(),
    }
}
