//! The outcome of a story: the closed list of causes, each with its class, its ACP error code and the
//! evidence beside it.
//!
//! Written by the shim (`shim/`) for what it saw inside a sandbox and by the machine (`swarm/`) for what was seen from
//! outside; shown by `report/` and kept by `state/`. Must not: do I/O.
//!
//! To add a cause: a variant, its class, its ACP code and its sentence below.

use serde::{Deserialize, Serialize};

use crate::ids::CommitId;

/// Why a story did not land, or was not tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A criterion's test command or a verify command exited non-zero, or merge markers were committed.
    VerificationFailed,
    /// The agent exited non-zero, was killed by a signal of its own making, or called `acp-shim fail`.
    AgentFailed,
    /// The agent exited 0 and the tree is the one that it started from.
    NoChanges,
    /// The story's commits do not merge onto the integration branch.
    Conflict,
    /// A reviewer rejected it.
    Rejected,
    /// The admin ended it.
    AbortedByAdmin,
    /// The kernel killed the agent or the sandbox for memory, and a counter proves it.
    Oom,
    /// Killed with SIGKILL near the memory limit, and no counter proves why.
    OomSuspected,
    /// The story's time ran out.
    Timeout,
    /// No output and no CPU use for too long.
    Hung,
    /// A person or a signal stopped the swarm.
    StoppedByUser,
    /// Something outside longshore killed the container.
    KilledOutside,
    /// A ref other than the assigned branch moved, or the work was left on another branch.
    BranchViolation,
    /// The agent damaged or deleted the clone's `.git`.
    RepoDamaged,
    /// The sandbox broke the protocol: too many bad records, or a result that is not what it must be.
    ProtocolViolation,
    /// The image is not there, or cannot run the shim.
    ImageMissing,
    /// The engine refused or failed an operation.
    EngineError,
    /// No space left in the sandbox's volume, on the engine's side, or on the host.
    DiskFull,
    /// The sandbox could not make its clone.
    CloneFailed,
    /// The sandbox could not check its branch out.
    CheckoutFailed,
    /// The tasks file was not where the task-request said.
    TaskFileNotFound,
    /// The tasks file in the sandbox failed validation.
    TaskFileInvalid,
    /// The sandbox refused its dispatch with a fault of the Agentic Mesh Protocol.
    DispatchRefused,
    /// The stream between orchestrator and sandbox ended early.
    ConnectionLost,
    /// The shim ended without a completion, and nothing above explains it.
    ShimCrash,
    /// A story that this one depends on did not land.
    DependencyFailed,
    /// The host could not do its part: a git operation, or a write, failed.
    HostError,
}

/// Who is responsible for a cause, and so what a retry costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CauseClass {
    /// The story's own doing: costs one of its retries.
    Story,
    /// The machinery's: retried with backoff without costing the story a retry.
    Machinery,
    /// A person wanted it so: not retried.
    User,
}

impl Cause {
    pub fn class(self) -> CauseClass {
        use Cause::*;
        match self {
            VerificationFailed | AgentFailed | NoChanges | Conflict | Rejected | AbortedByAdmin | Oom
            | OomSuspected | Timeout | Hung | BranchViolation | RepoDamaged | ProtocolViolation | DependencyFailed
            | TaskFileInvalid | DispatchRefused => CauseClass::Story,
            StoppedByUser => CauseClass::User,
            KilledOutside | ImageMissing | EngineError | DiskFull | CloneFailed | CheckoutFailed | TaskFileNotFound
            | ConnectionLost | ShimCrash | HostError => CauseClass::Machinery,
        }
    }

    /// The standard error code of ACP that stands for this cause (ACP, "Standard Error Codes").
    pub fn acp_code(self) -> &'static str {
        use Cause::*;
        match self {
            Oom | OomSuspected => "CONTAINER_OOM",
            Timeout | Hung => "CONTAINER_TIMEOUT",
            CloneFailed => "GIT_CLONE_FAILED",
            CheckoutFailed | BranchViolation | RepoDamaged => "GIT_CHECKOUT_FAILED",
            TaskFileNotFound => "TASK_FILE_NOT_FOUND",
            TaskFileInvalid => "TASK_FILE_INVALID",
            ConnectionLost => "ACP_CONNECTION_LOST",
            AgentFailed | KilledOutside | ShimCrash => "AGENT_CRASH",
            VerificationFailed | NoChanges | Conflict | Rejected | AbortedByAdmin | StoppedByUser
            | ProtocolViolation | ImageMissing | EngineError | DiskFull | DependencyFailed | DispatchRefused
            | HostError => "UNKNOWN_ERROR",
        }
    }

    /// The name in files and reports.
    pub fn as_str(self) -> &'static str {
        use Cause::*;
        match self {
            VerificationFailed => "verification_failed",
            AgentFailed => "agent_failed",
            NoChanges => "no_changes",
            Conflict => "conflict",
            Rejected => "rejected",
            AbortedByAdmin => "aborted_by_admin",
            Oom => "oom",
            OomSuspected => "oom_suspected",
            Timeout => "timeout",
            Hung => "hung",
            StoppedByUser => "stopped_by_user",
            KilledOutside => "killed_outside",
            BranchViolation => "branch_violation",
            RepoDamaged => "repo_damaged",
            ProtocolViolation => "protocol_violation",
            ImageMissing => "image_missing",
            EngineError => "engine_error",
            DiskFull => "disk_full",
            CloneFailed => "clone_failed",
            CheckoutFailed => "checkout_failed",
            TaskFileNotFound => "task_file_not_found",
            TaskFileInvalid => "task_file_invalid",
            DispatchRefused => "dispatch_refused",
            ConnectionLost => "connection_lost",
            ShimCrash => "shim_crash",
            DependencyFailed => "dependency_failed",
            HostError => "host_error",
        }
    }
}

/// The evidence for a cause. Every field is optional; absent means not observed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Evidence {
    /// One sentence for people: "the verify command `make test` exited 2".
    pub summary: String,
    /// The command that decided, as it was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Its exit code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// The signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// How often the kernel's memory counter rose while it ran (`memory.events` or `memory.oom_control`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_kills: Option<u64>,
    /// Paths concerned: conflicting files, moved refs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// The last lines that it printed, oldest first; at most 50 lines of at most 500 characters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tail: Vec<String>,
    /// The processes of a hung or silent sandbox, a line each, children below their parents and further in; at most
    /// [`MAX_HANG_SNAPSHOT_LINES`] lines of [`MAX_HANG_SNAPSHOT_CHARS`] characters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<String>,
    /// Its pipes and sockets, a line each, with who holds which end; at most as many.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pipes: Vec<String>,
}

/// The most lines of [`Evidence::processes`] and of [`Evidence::pipes`].
pub const MAX_HANG_SNAPSHOT_LINES: usize = 50;
/// The most characters of each.
pub const MAX_HANG_SNAPSHOT_CHARS: usize = 200;

impl Evidence {
    /// Evidence that is one sentence.
    pub fn from_summary(summary: impl Into<String>) -> Self {
        Self { summary: summary.into(), ..Self::default() }
    }
}

/// A cause with its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// The cause.
    pub cause: Cause,
    /// The evidence for the cause.
    pub evidence: Evidence,
    /// Where the host keeps what the sandbox had in its work folder, as a ref name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub salvage: Option<String>,
}

impl Failure {
    /// A failure whose evidence is one sentence, with nothing salvaged.
    pub fn new(cause: Cause, summary: impl Into<String>) -> Self {
        Self { cause, evidence: Evidence::from_summary(summary), salvage: None }
    }
}

/// One acceptance criterion after a story's run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CriterionResult {
    /// The criterion's id: its own, or `AC-n` by its place from 1.
    pub id: String,
    /// The text of the criterion.
    pub text: String,
    /// True if a check ran and passed, false if it ran and failed, null if it could not be checked.
    pub met: Option<bool>,
}

/// One line of a story's work log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct StoryLogEntry {
    /// The time, RFC 3339.
    pub at: String,
    /// The log line.
    pub text: String,
}

/// The outcome of one story as reported by the sandbox. The host accepts `Finished` only once it has the commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[expect(clippy::large_enum_variant, reason = "there is one for each story, and none is moved often")]
pub enum StoryOutcome {
    /// Committed, and every check passed.
    Finished {
        /// The commit that the story ends with.
        commit: CommitId,
    },
    /// Attempted, but not finished.
    Failed {
        /// The cause, with its evidence.
        failure: Failure,
        /// The commit with the contents of the work folder, in the bundle under
        /// `refs/longshore/salvage/<story>`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        salvage: Option<CommitId>,
        /// There was, or may have been, something to salvage that no commit holds: it is in the work folder alone.
        #[serde(default)]
        unsaved: bool,
    },
    /// Not tried, because a story in the same sandbox that it depends on failed.
    Skipped {
        /// The story that failed.
        because: crate::ids::StoryId,
    },
    /// Not tried, because the sandbox was stopped before.
    NotReached,
}
