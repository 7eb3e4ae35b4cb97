//! What is handed out: an attempt's files, container and task-request, and a landing's merge message. Called by `run.rs`. Must not:
//! wait; it makes values and spawns tasks.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{Notify, watch};

use crate::delivery::MergeMessage;
use crate::engine::{ContainerSpec, VolumeMount, label};
use crate::handoff::assignment::{ASSIGNMENT_VERSION, AssignedStory, AssignmentFile, MailboxMembership, MailboxPeer};
use crate::handoff::depot::TextFile;
use crate::handoff::layout;
use crate::ids::{AttemptId, CommitId, StoryKey};
use crate::plan::PlannedAgent;
use crate::protocol::acp::message::{TaskFilePath, TaskRequest};
use crate::swarm::AssignmentSpec;
use crate::swarm::amp_intent::ReviewSpec;

use super::carry_out::{self, AttemptContext, MergeRequest};
use super::mailbox::SandboxSeat;
use super::memory::DispatchContext;
use super::run::{AttemptHandle, Coordinator};
use super::session::{self, ReviewDiff, SessionContext, SessionOrigin, SessionSpec};

/// The first uid of sandboxes; each attempt of a swarm has its own.
const FIRST_UID: u32 = 20_000;
/// How many uids there are: a rootless engine maps 65,536.
const UID_COUNT: u32 = 40_000;

/// The most other agents that a prompt names.
const MAX_PEERS: usize = 40;

/// An attempt's uid. By place and number, so that a swarm that is taken up again gives each attempt the same.
pub(super) fn attempt_uid(place: usize, attempt: &AttemptId, assignments: usize) -> u32 {
    FIRST_UID + (place as u32 + (attempt.number - 1) * assignments as u32) % UID_COUNT
}

/// What a sandbox is to do.
pub(super) struct AttemptSpec {
    /// The stories, each with what went wrong the time before.
    pub stories: Vec<(StoryKey, Option<String>)>,
    /// What the admin said.
    pub guidance: Vec<String>,
    /// Their work is to be reviewed, and not done.
    pub review: Option<Box<ReviewSpec>>,
}

impl Coordinator {
    pub(super) fn start_attempt(
        &mut self,
        attempt: AttemptId,
        task: AttemptSpec,
        base: CommitId,
        origin: SessionOrigin,
    ) {
        let AttemptSpec { stories, guidance, review } = task;
        let Some(remains) = self.attempt_context(&attempt, stories.iter().map(|(key, _)| key), &base) else { return };
        let Some((place, assignment)) = self.find_assignment(&attempt.assignment) else { return };
        let assignment = assignment.clone();
        let spec = &self.setup.spec;
        let file = &spec.files[usize::from(assignment.file)];
        let planned = &self.setup.plan.files[usize::from(assignment.file)];
        let uid = remains.uid;
        let rework = self.machine.attempt(&attempt).is_some_and(|view| view.is_rework);
        let sandbox = &self.setup.sandbox;
        let seat = self.mailbox_seat(place, review.is_some());
        let brief = AssignmentFile {
            schema_version: ASSIGNMENT_VERSION,
            swarm_id: spec.swarm,
            attempt: attempt.clone(),
            branch: assignment.branch.clone(),
            base: base.clone(),
            integration_branch: file.branch.to_string(),
            object_format: self.setup.repo.object_format().to_owned(),
            task_file_path: planned.task_file_path.clone(),
            stories: stories
                .iter()
                .map(|(key, previous)| AssignedStory { id: key.id.clone(), previous_failure: previous.clone() })
                .collect(),
            agent: sandbox.agent.clone(),
            verify: sandbox.verify.clone(),
            story_timeout_secs: spec.limits.story_timeout.as_secs().max(1),
            // Rounded up: zero is for ever.
            idle_timeout_secs: spec.limits.idle_timeout.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX),
            grace_secs: spec.limits.grace_period.as_secs().max(1),
            identity: sandbox.identity.clone(),
            guidance,
            rework,
            mailbox: seat.clone(),
            review: review.as_deref().and_then(|review| {
                let agent = &sandbox.review.as_ref()?.agent;
                self.ssot_writer.composer.review_work(&attempt.dir_name(), review, agent)
            }),
        };
        let keys: Vec<StoryKey> = stories.iter().map(|(key, _)| key.clone()).collect();
        let files = vec![
            TextFile {
                path: layout::ASSIGNMENT_FILE.to_owned(),
                text: serde_json::to_string_pretty(&brief).expect("an assignment file has string keys only"),
            },
            TextFile {
                path: format!("{}/{}", layout::TASKS_DIR, planned.task_file_path),
                text: self.setup.plan.tasks_file_for(assignment.file, &keys),
            },
        ];
        let request = TaskRequest {
            task_file_path: planned
                .task_file_path
                .parse::<TaskFilePath>()
                .expect("the plan makes paths that ACP allows"),
            branch_name: assignment.branch.clone(),
            repo_url: sandbox.repo_url.clone(),
            env_vars: sandbox.env.clone(),
        };
        // A reviewer is told what was done by other ways, and has nothing to remember.
        let handed = review.is_none().then(|| DispatchContext {
            swarm: spec.swarm,
            attempt: attempt.clone(),
            branch: assignment.branch.to_string(),
            stories: keys.iter().map(|key| self.setup.plan.story(key).clone()).collect(),
            header_blocks: self.setup.plan.header_blocks(assignment.file, &keys),
            memory: self.memory.dependency_memories(&keys, &self.setup.plan, &self.machine),
            budget: self.setup.sandbox.memory_budget,
        });
        let (stop, stopped) = watch::channel(None);
        let look = Arc::new(Notify::new());
        let job = SessionSpec {
            swarm: spec.swarm,
            attempt: attempt.clone(),
            file: assignment.file,
            stories: stories.iter().map(|(key, _)| key.id.clone()).collect(),
            base_branch: if rework || review.is_some() { assignment.branch.clone() } else { file.branch.clone() },
            base,
            uid,
            seat: seat.map(|seat| SandboxSeat { seat, uid }),
            container: self.container_spec(&attempt, &stories, uid, review.is_some()),
            files,
            dispatch: handed,
            request,
            log_path: self.setup.dir.log_file(&attempt.assignment),
            review_diff: review.map(|review| ReviewDiff {
                path: self.ssot_writer.composer.diff_path(&attempt.dir_name()),
                from: review.base,
                to: review.commit,
            }),
            origin,
        };
        let tools = SessionContext {
            engine: Arc::clone(&self.setup.engine),
            depot: self.executor.depot.clone(),
            objects: Arc::clone(&self.objects),
            repo: self.setup.repo.clone(),
            events: self.events.with_own_share(),
            engine_monitor: self.engine_monitor.clone(),
            admission: Arc::clone(&self.admission),
            inspect_requested: Arc::clone(&look),
            mailbox: self.mailbox.as_ref().map(|(mail, _)| mail.clone()),
            stop_signal: stopped,
        };
        let container = match &job.origin {
            SessionOrigin::Adopted { container, .. } => Some(container.clone()),
            SessionOrigin::Fresh | SessionOrigin::Interrupted { .. } => None,
        };
        self.attempts
            .insert(attempt, AttemptHandle { container, context: remains, stop_signal: stop, inspect_requested: look });
        self.tasks.spawn(session::run(job, tools));
    }

    /// What an attempt is known by once its sandbox has ended; none for an attempt that the plan does not have.
    pub(super) fn attempt_context<'a>(
        &self,
        attempt: &AttemptId,
        stories: impl Iterator<Item = &'a StoryKey>,
        base: &CommitId,
    ) -> Option<AttemptContext> {
        let (index, assignment) = self.find_assignment(&attempt.assignment)?;
        let spec = &self.setup.spec;
        Some(AttemptContext {
            swarm: spec.swarm,
            attempt: attempt.clone(),
            uid: attempt_uid(index, attempt, spec.assignments.len()),
            branch: assignment.branch.clone(),
            base: base.clone(),
            stories: stories.map(|key| (key.id.clone(), self.setup.plan.label(key))).collect(),
            container: None,
        })
    }

    /// Who an assignment's agent, or its reviewer, is in the mailbox, where there is one.
    fn mailbox_seat(&self, place: usize, reviews: bool) -> Option<MailboxMembership> {
        let plan = &self.setup.plan;
        let seat = plan.agents.get(place)?;
        let PlannedAgent { id: agent, role } = if reviews { seat.reviewer() } else { seat.clone() };
        let others = plan.agents.iter().zip(&plan.assignments).filter(|(other, _)| other.id != agent);
        let peer = |(other, assignment): (&PlannedAgent, &AssignmentSpec)| MailboxPeer {
            agent: other.id.clone(),
            role: other.role.clone(),
            task: plan.story(&assignment.stories[0]).title.clone(),
        };
        let peers = others.take(MAX_PEERS).map(peer).collect();
        Some(MailboxMembership { agent, role, peers })
    }

    fn container_spec(
        &self,
        attempt: &AttemptId,
        stories: &[(StoryKey, Option<String>)],
        uid: u32,
        reviews: bool,
    ) -> ContainerSpec {
        let sandbox = &self.setup.sandbox;
        let folder = attempt.dir_name();
        let own = |volume: &str, target: &str, read_only: bool, path: Option<String>| VolumeMount {
            volume: volume.to_owned(),
            target: target.to_owned(),
            read_only,
            subpath: path,
        };
        let mut mounts = vec![own(&self.names.objects, layout::OBJECTS, true, None)];
        if sandbox.supports_subpath {
            mounts.push(own(&self.names.inbox, layout::BIN, true, Some("bin".to_owned())));
            let target = format!("{}/{folder}", layout::IN);
            mounts.push(own(&self.names.inbox, &target, true, Some(folder.clone())));
            let target = format!("{}/{folder}", layout::WORK);
            mounts.push(own(&self.names.work, &target, false, Some(folder.clone())));
        } else {
            mounts.push(own(&self.names.inbox, layout::IN, true, None));
            mounts.push(own(&self.names.work, layout::WORK, false, None));
        }
        if self.setup.plan.has_mailbox() {
            mounts.push(own(&self.names.mailbox, layout::MAILBOX, false, None));
        }
        let ids: Vec<&str> = stories.iter().map(|(key, _)| key.id.as_str()).collect();
        let labels = BTreeMap::from([
            (label::SWARM.to_owned(), self.setup.spec.swarm.to_string()),
            (label::ASSIGNMENT.to_owned(), attempt.assignment.to_string()),
            (label::STORY.to_owned(), ids.join(",")),
            (label::ATTEMPT.to_owned(), attempt.number.to_string()),
            (label::ROLE.to_owned(), if reviews { "reviewer" } else { "sandbox" }.to_owned()),
            (label::REPO.to_owned(), self.setup.repo.hash()),
        ]);
        ContainerSpec {
            name: self.names.sandbox(attempt),
            image: sandbox.image.clone(),
            argv: vec![layout::SHIM.to_owned(), "serve".to_owned(), folder],
            env: vec![("HOME".to_owned(), layout::HOME.to_owned())],
            user: (uid, uid),
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
            added_capabilities: Vec::new(),
        }
    }

    pub(super) fn start_merge(
        &mut self,
        attempt: AttemptId,
        file: u16,
        onto: CommitId,
        tip: CommitId,
        stories: &[StoryKey],
    ) {
        let Some(live) = self.attempts.get(&attempt) else { return };
        let titles: Vec<String> =
            stories.iter().map(|key| format!("{}: {}", key.id, self.setup.plan.story(key).title)).collect();
        let subject = match titles.as_slice() {
            [only] => format!("Merge {only}"),
            several => {
                format!("Merge {} stories of {}", several.len(), self.setup.plan.files[usize::from(file)].tasks.title)
            }
        };
        let body = if titles.len() > 1 { titles.join("\n") } else { String::new() };
        let landing = MergeRequest {
            branch: self.setup.spec.files[usize::from(file)].branch.clone(),
            tip,
            message: MergeMessage {
                subject,
                body,
                swarm: self.setup.spec.swarm,
                stories: stories.iter().map(|key| key.id.clone()).collect(),
            },
            identity: self.setup.sandbox.identity.clone(),
            result_ref: live.context.result_ref(),
            is_first_on_branch: onto == self.setup.spec.files[usize::from(file)].base,
            onto,
            attempt,
        };
        let (repo, postbox) = (self.setup.repo.clone(), self.events.clone());
        self.tasks.spawn(async move { postbox.send_now(carry_out::merge(repo, landing).await) });
    }
}
