//! Where things are inside a sandbox and inside the depot. Both see the same three volumes at the same places.
//!
//! A sandbox's attempt_dir name is [`AttemptId::attempt_dir`](crate::ids::AttemptId::attempt_dir), `T-2026-001-1`.

/// Where the volumes are mounted.
pub const ROOT: &str = "/longshore";
/// Mount point of the *objects* volume: read-only in sandboxes.
pub const OBJECTS: &str = "/longshore/objects";
/// The bare repository in the objects volume, whose objects the clones borrow.
pub const OBJECTS_REPO: &str = "/longshore/objects/repo.git";
/// Mount point of the *in* volume: read-only in sandboxes.
pub const IN: &str = "/longshore/in";
/// The folder of the shim, last on an agent's `MAX_PATH_BYTES`.
pub const BIN: &str = "/longshore/in/bin";
/// The shim itself.
pub const SHIM: &str = "/longshore/in/bin/acp-shim";
/// Mount point of the *work* volume.
pub const WORK: &str = "/longshore/work";
/// Mount point of the *mailbox* volume, where the swarm has one: each sandbox may write its own outbox, and `shared`.
pub const MAILBOX: &str = "/longshore/mailbox";
/// `$HOME` in a sandbox: a tmpfs.
pub const HOME: &str = "/home/agent";

/// In `IN/<folder>/`: what the attempt is asked to do ([`AssignmentFile`](super::assignment::AssignmentFile)).
pub const ASSIGNMENT_FILE: &str = "assignment.json";
/// In `IN/<folder>/`: the same as a frame of the mesh, with what was learned before ([`DispatchFrame`](super::dispatch::DispatchFrame)).
pub const DISPATCH_FILE: &str = "dispatch.json";
/// In `IN/<folder>/`: the folder below which the tasks file lies at its `taskFilePath`.
pub const TASKS_DIR: &str = "tasks";
/// In `WORK/<folder>/`: the clone.
pub const REPO_DIR: &str = "repo";
/// In `WORK/<folder>/`: the socket's folder.
pub const RUN_DIR: &str = "run";
/// In `WORK/<folder>/run/`: where `acp-shim task|progress|fail` reach the shim.
pub const SOCKET_FILE: &str = "shim.sock";
/// In `WORK/<folder>/`: what a story is given to remember.
pub const MEMORY_DIR: &str = "in";
/// In `WORK/<folder>/in/`: as a MemoryGram.
pub const MEMORY_JSON_FILE: &str = "memory.json";
/// In `WORK/<folder>/in/`: to be read.
pub const MEMORY_TEXT_FILE: &str = "memory.md";
/// In `WORK/<folder>/`: what comes out.
pub const OUT_DIR: &str = "out";
/// In `WORK/<folder>/out/`: [`ResultFile`](super::result::ResultFile).
pub const RESULT_FILE: &str = "result.json";
/// In `WORK/<folder>/out/`: the git bundle with the assigned branch and the salvage refs.
pub const BUNDLE_FILE: &str = "result.bundle";

/// The ref in a bundle, and in a clone, that holds what a failed story had in the work folder.
pub fn salvage_ref(story: &crate::ids::StoryId) -> String {
    format!("refs/longshore/salvage/{story}")
}
