//! Paths inside a sandbox and inside the depot. Both mount the same three volumes at the same places.
//!
//! `<attempt>` is the attempt's directory name, `T-2026-001-1`: [`AttemptId::dir_name`](crate::ids::AttemptId::dir_name).

/// The parent of all mount points.
pub const ROOT: &str = "/longshore";
/// Mount point of the *objects* volume, read-only in sandboxes.
pub const OBJECTS: &str = "/longshore/objects";
/// The bare repository in the objects volume. The clones borrow its objects.
pub const OBJECTS_REPO: &str = "/longshore/objects/repo.git";
/// Mount point of the *in* volume, read-only in sandboxes.
pub const IN: &str = "/longshore/in";
/// The directory of the shim, last on an agent's `PATH`.
pub const BIN: &str = "/longshore/in/bin";
/// The shim.
pub const SHIM: &str = "/longshore/in/bin/acp-shim";
/// Mount point of the *work* volume.
pub const WORK: &str = "/longshore/work";
/// Mount point of the *mailbox* volume, if the swarm has one. A sandbox may write its own outbox and `shared`.
pub const MAILBOX: &str = "/longshore/mailbox";
/// `$HOME` in a sandbox: a tmpfs.
pub const HOME: &str = "/home/agent";

/// In `IN/<attempt>/`: the [`AssignmentFile`](super::assignment::AssignmentFile).
pub const ASSIGNMENT_FILE: &str = "assignment.json";
/// In `IN/<attempt>/`: the assignment as a mesh frame with memory ([`DispatchFrame`](super::dispatch::DispatchFrame)).
pub const DISPATCH_FILE: &str = "dispatch.json";
/// In `IN/<attempt>/`: the directory that contains the tasks file at its `taskFilePath`.
pub const TASKS_DIR: &str = "tasks";
/// In `WORK/<attempt>/`: the clone.
pub const REPO_DIR: &str = "repo";
/// In `WORK/<attempt>/`: the directory of the socket and the prompts.
pub const RUN_DIR: &str = "run";
/// In `WORK/<attempt>/run/`: the socket on which `acp-shim task|progress|fail` reach the shim.
pub const SOCKET_FILE: &str = "shim.sock";
/// In `WORK/<attempt>/`: the memory for a story.
pub const MEMORY_DIR: &str = "in";
/// In `WORK/<attempt>/in/`: the memory as a MemoryGram.
pub const MEMORY_JSON_FILE: &str = "memory.json";
/// In `WORK/<attempt>/in/`: the memory as text.
pub const MEMORY_TEXT_FILE: &str = "memory.md";
/// In `WORK/<attempt>/`: the output, which only the shim's user can access.
pub const OUT_DIR: &str = "out";
/// In `WORK/<attempt>/out/`: the [`ResultFile`](super::result::ResultFile).
pub const RESULT_FILE: &str = "result.json";
/// In `WORK/<attempt>/out/`: the git bundle with the assigned branch and the salvage refs.
pub const BUNDLE_FILE: &str = "result.bundle";

/// The ref, in a bundle and in a clone, of a failed story's salvaged work.
pub fn salvage_ref(story: &crate::ids::StoryId) -> String {
    format!("refs/longshore/salvage/{story}")
}
