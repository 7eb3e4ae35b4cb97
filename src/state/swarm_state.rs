//! `swarm-state.json`: a snapshot of the swarm for people and programs. Made from the machine's views; no decision
//! depends on it, so it may be behind the journal and can be regenerated at any time.
//!
//! Called by `store.rs` (write) and by `cli/` and `report/` (read, and `longshore schema`).

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fnv::fnv1a;
use crate::ids::{AssignmentId, BranchName, CommitId, ContainerId, StoryId, SwarmId};
use crate::protocol::acp::message::StoryStatus;
use crate::state::error::{StateError, StateResult};
use crate::state::swarm_dir::write_atomic;
use crate::swarm::{
    AdminHold, AttemptRole, AttemptView, ContainerStatus, HoldKind, StoryProgress, StoryView, SwarmMachine,
    SwarmOutcome,
};
use crate::verdict::{Cause, Evidence, Failure};

/// The version that this build writes, and the newest that it reads.
pub const STATE_VERSION: u32 = 1;
/// The placeholder while the checksum is computed, and the bytes after it.
const ZERO_CHECKSUM: &str = "0000000000000000";
const TRAILER: &[u8] = b"\"\n}\n";
/// Larger files were not written by longshore.
const MAX_STATE_BYTES: u64 = 256 * 1024 * 1024;

/// The contents of `swarm-state.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SwarmState {
    /// [`STATE_VERSION`].
    pub schema_version: u32,
    /// The swarm.
    pub swarm_id: SwarmId,
    /// When it began, RFC 3339.
    #[schemars(with = "String")]
    pub created_at: Timestamp,
    /// The newest event in this snapshot, RFC 3339.
    #[schemars(with = "String")]
    pub updated_at: Timestamp,
    /// The number of journal events in this snapshot; a journal with fewer has lost some.
    #[serde(default)]
    pub journal_records: u64,
    /// The swarm's status.
    pub status: SwarmStatus,
    /// One for each attempt, in the order of their starts.
    pub containers: Vec<ContainerState>,
    /// The stories of all tasks files, in the plan's order.
    pub stories: Vec<StoryState>,
    /// How the checks failed before anything was changed, if that ended the swarm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_failure: Option<Failure>,
    /// FNV-1a (64 bits, hexadecimal) over the file's bytes with zeros in this place. Empty in memory.
    pub checksum: String,
}

/// A swarm's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SwarmStatus {
    /// Running, or its orchestrator was killed; check the lock to distinguish the two.
    Running,
    /// A stop was requested.
    Stopping,
    /// Every story landed.
    Landed,
    /// Some story failed through its own fault.
    SomeFailed,
    /// The checks fail before anything was changed.
    RedBase,
    /// Some story failed through the machinery's fault.
    MachineryFailed,
    /// The remaining stories wait for the admin; can be resumed.
    Suspended,
    /// Stopped; can be resumed.
    Interrupted,
}

/// One attempt's container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerState {
    /// Null before the container is created.
    pub container_id: Option<ContainerId>,
    /// Null before the container is created.
    pub container_name: Option<String>,
    /// As the user typed it.
    pub task_file_path: String,
    /// The branch that it works on.
    pub branch_name: BranchName,
    /// `pending`, `running`, `completed`, `failed` or `stopped`.
    pub status: ContainerStatus,
    /// Its stories, counted by its own reports.
    pub story_progress: StoryProgress,
    /// Always null for now: longshore opens no pull requests.
    pub pr_url: Option<String>,
    /// Null where it has not ended or vanished.
    pub exit_code: Option<i64>,
    /// Why it failed.
    pub error: Option<String>,
    /// The attempt's number within its assignment, from 1.
    pub attempt: u32,
    /// When it began, RFC 3339.
    #[schemars(with = "String")]
    pub created_at: Timestamp,
    /// Its newest event, RFC 3339.
    #[schemars(with = "String")]
    pub updated_at: Timestamp,
    /// The assignment.
    pub assignment: AssignmentId,
    /// Its sandbox's role.
    #[serde(default)]
    pub role: SandboxRole,
    /// Records that broke a rule.
    pub bad_records: u32,
    /// The refs that keep what it left, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub salvaged: Vec<String>,
    /// The work folder's name in the work volume, where it was kept because it could not be salvaged, or not all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_kept: Option<String>,
}

/// A sandbox's role.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SandboxRole {
    /// Executes stories.
    #[default]
    Executor,
    /// Reviews another sandbox's work.
    Reviewer,
    /// Runs the checks of a commit.
    Checker,
}

/// The admin decision that a story waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitState {
    /// The kind of decision.
    #[serde(rename = "what")]
    pub kind: HoldKind,
    /// The reason in one sentence.
    pub reason: String,
    /// Since when, RFC 3339.
    #[schemars(with = "String")]
    pub since: Timestamp,
    /// The `msg_id` of the escalation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalation: Option<String>,
}

/// One story.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoryState {
    /// `US-ddd`; unique in its tasks file only.
    pub id: StoryId,
    /// `pending`, `in_progress`, `completed` (landed), `failed` or `skipped`.
    pub status: StoryStatus,
    /// The sandboxes that were asked to do it and reached it.
    pub attempts: u32,
    /// The branch that it was done on; null for a story that was not to run.
    pub branch: Option<BranchName>,
    /// Where it ends, once landed.
    pub commit: Option<CommitId>,
    /// Why it did not land, or why its last try did not.
    pub cause: Option<Cause>,
    /// What proves the cause.
    pub evidence: Option<Evidence>,
    /// The ref that keeps what its last failure left.
    pub salvage: Option<String>,
    /// The refs that keep its unlanded work, oldest first; omitted if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub salvaged: Vec<String>,
    /// For a skipped story: the one that did not land.
    pub because: Option<StoryId>,
    /// The assignment; null for a story that was not to run.
    pub assignment: Option<AssignmentId>,
    /// What it waits for the admin for; left out where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<WaitState>,
    /// How often its task was rejected in a review; left out where it never was.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rejects: u32,
    /// For people.
    pub title: String,
    /// As the user typed it.
    pub tasks_file: String,
    /// Whether the tasks file said that it was done before the swarm began.
    pub done_before: bool,
    /// When a sandbox began it first, RFC 3339.
    #[schemars(with = "Option<String>")]
    pub started_at: Option<Timestamp>,
    /// When it was decided, RFC 3339.
    #[schemars(with = "Option<String>")]
    pub ended_at: Option<Timestamp>,
    /// In the sandbox that finished it.
    pub duration_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StateVersion {
    schema_version: u64,
}

impl SwarmState {
    /// The state of a machine whose swarm began at `started`.
    pub fn from_machine(machine: &SwarmMachine, started: Timestamp) -> Self {
        let status = match (machine.outcome(), machine.stop_level()) {
            (Some(SwarmOutcome::Landed), _) => SwarmStatus::Landed,
            (Some(SwarmOutcome::SomeFailed), _) => SwarmStatus::SomeFailed,
            (Some(SwarmOutcome::RedBase), _) => SwarmStatus::RedBase,
            (Some(SwarmOutcome::MachineryFailed), _) => SwarmStatus::MachineryFailed,
            (Some(SwarmOutcome::Suspended), _) => SwarmStatus::Suspended,
            (Some(SwarmOutcome::Interrupted), _) => SwarmStatus::Interrupted,
            (None, Some(_)) => SwarmStatus::Stopping,
            (None, None) => SwarmStatus::Running,
        };
        Self {
            schema_version: STATE_VERSION,
            swarm_id: machine.spec().swarm,
            created_at: started,
            updated_at: wall_clock_time(started, machine.last_event_at() + machine.total_absence()),
            journal_records: machine.event_count(),
            status,
            containers: machine.attempts().map(|attempt| container_state(machine, attempt, started)).collect(),
            stories: machine.stories().map(|view| story_state(machine, view, started)).collect(),
            base_failure: machine.red_base().cloned(),
            checksum: String::new(),
        }
    }

    /// The file's bytes.
    pub fn to_bytes(&self) -> StateResult<Vec<u8>> {
        let zeroed = Self { checksum: ZERO_CHECKSUM.to_owned(), ..self.clone() };
        let mut bytes = serde_json::to_vec_pretty(&zeroed)
            .map_err(|source| StateError::Encode { what: "the swarm's state", source })?;
        bytes.push(b'\n');
        let checksum = format!("{:016x}", fnv1a(0, &bytes));
        // The checksum is the last field, so its offset is known from the end.
        let offset = bytes.len() - TRAILER.len() - checksum.len();
        bytes[offset..offset + checksum.len()].copy_from_slice(checksum.as_bytes());
        Ok(bytes)
    }

    /// Replaces the file atomically.
    pub fn write(&self, path: &Path) -> StateResult<u64> {
        let bytes = self.to_bytes()?;
        write_atomic(path, &bytes)?;
        Ok(bytes.len() as u64)
    }

    /// Reads the file.
    ///
    /// # Errors
    /// [`StateError::UnsupportedVersion`] for a file of a later version, [`StateError::Damaged`] for an incomplete file.
    pub fn read(path: &Path) -> StateResult<Self> {
        let mut bytes = Vec::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(MAX_STATE_BYTES).read_to_end(&mut bytes))
            .map_err(StateError::io("read", path))?;
        Self::parse(&bytes, path)
    }

    pub(super) fn parse(bytes: &[u8], path: &Path) -> StateResult<Self> {
        let damaged = |error: serde_json::Error| StateError::Damaged {
            path: path.to_owned(),
            offset: byte_offset(bytes, &error),
            location: format!("line {}, column {}", error.line(), error.column()),
            problem: error.to_string(),
        };
        let StateVersion { schema_version: found } = serde_json::from_slice(bytes).map_err(damaged)?;
        if found > u64::from(STATE_VERSION) {
            return Err(StateError::UnsupportedVersion { path: path.to_owned(), found, supported: STATE_VERSION });
        }
        let state: Self = serde_json::from_slice(bytes).map_err(damaged)?;
        let offset = bytes.len().checked_sub(TRAILER.len() + ZERO_CHECKSUM.len());
        let right = offset.is_some_and(|offset| {
            let mut zeroed = bytes.to_vec();
            zeroed[offset..offset + ZERO_CHECKSUM.len()].copy_from_slice(ZERO_CHECKSUM.as_bytes());
            state.checksum == format!("{:016x}", fnv1a(0, &zeroed)) && bytes.ends_with(TRAILER)
        });
        if right {
            Ok(Self { checksum: String::new(), ..state })
        } else {
            Err(StateError::Damaged {
                path: path.to_owned(),
                offset: 0,
                location: "somewhere in it".to_owned(),
                problem: "its checksum is wrong; the journal beside it is authoritative".to_owned(),
            })
        }
    }
}

/// When a hold began. Prefers the escalation's timestamp, which includes the time between runs.
pub fn hold_since(hold: &AdminHold, started: Timestamp) -> Timestamp {
    let escalated_at =
        hold.escalation_id.as_ref().and_then(|id| Timestamp::from_millisecond(i64::try_from(id.unix_ms()).ok()?).ok());
    escalated_at.unwrap_or_else(|| wall_clock_time(started, hold.since))
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Converts time since the swarm's start to wall-clock time.
pub fn wall_clock_time(started: Timestamp, elapsed: Duration) -> Timestamp {
    jiff::SignedDuration::try_from(elapsed)
        .ok()
        .and_then(|elapsed| started.checked_add(elapsed).ok())
        .unwrap_or(started)
}

fn container_state(machine: &SwarmMachine, view: &AttemptView, started: Timestamp) -> ContainerState {
    let assignment =
        machine.assignment_spec(&view.id.assignment).expect("an attempt is made of an assignment of the plan");
    ContainerState {
        container_id: view.container.clone(),
        container_name: view.container_name.clone(),
        task_file_path: machine.spec().files[usize::from(assignment.file)].path.clone(),
        branch_name: assignment.branch.clone(),
        status: view.status,
        story_progress: view.progress(),
        pr_url: None,
        exit_code: view.exit.as_ref().and_then(|exit| exit.code),
        error: view.error.clone(),
        attempt: view.id.number,
        created_at: wall_clock_time(started, view.created),
        updated_at: wall_clock_time(started, view.updated),
        assignment: view.id.assignment.clone(),
        role: match view.role {
            AttemptRole::Executor => SandboxRole::Executor,
            AttemptRole::Reviewer(_) => SandboxRole::Reviewer,
            AttemptRole::Checker(_) => SandboxRole::Checker,
        },
        bad_records: view.bad_records,
        salvaged: view.salvage_refs.clone(),
        work_kept: view.work_dir_kept.then(|| view.id.dir_name()),
    }
}

fn story_state(machine: &SwarmMachine, view: &StoryView, started: Timestamp) -> StoryState {
    let spec = machine.story_spec(&view.key).expect("a view is made of a story of the plan");
    let failure = view.failure.as_ref();
    let hold = view.assignment.as_ref().filter(|_| !view.is_closed()).and_then(|id| machine.admin_hold(id));
    StoryState {
        id: view.key.id.clone(),
        status: view.status,
        attempts: view.attempts,
        branch: view.branch.clone(),
        commit: view.commit.clone(),
        cause: failure.map(|failure| failure.cause),
        evidence: failure.map(|failure| failure.evidence.clone()),
        salvage: failure.and_then(|failure| failure.salvage.clone()),
        salvaged: view.salvage_refs.clone(),
        because: view.blocked_by.as_ref().map(|key| key.id.clone()),
        assignment: view.assignment.clone(),
        waits_for: hold.map(|hold| WaitState {
            kind: hold.kind,
            reason: hold.reason.clone(),
            since: hold_since(hold, started),
            escalation: hold.escalation_id.as_ref().map(ToString::to_string),
        }),
        rejects: view.assignment.as_ref().map_or(0, |id| machine.reject_count(id)),
        title: spec.title.clone(),
        tasks_file: machine.spec().files[usize::from(view.key.file)].path.clone(),
        done_before: view.done_before,
        started_at: view.started.map(|elapsed| wall_clock_time(started, elapsed)),
        ended_at: view.ended.map(|elapsed| wall_clock_time(started, elapsed)),
        duration_ms: view.duration.map(|duration| duration.as_millis() as u64),
    }
}

/// The byte offset of a serde_json error's line and column.
fn byte_offset(bytes: &[u8], error: &serde_json::Error) -> u64 {
    let before: usize =
        bytes.split_inclusive(|byte| *byte == b'\n').take(error.line().saturating_sub(1)).map(<[u8]>::len).sum();
    (before + error.column().saturating_sub(1)) as u64
}
