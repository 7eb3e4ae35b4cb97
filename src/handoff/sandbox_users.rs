//! The two users of a sandbox. Each attempt of a swarm has its own.

/// User ids, which are also the group ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxUsers {
    /// Runs agents, checks and git, and owns `repo`, `run` and `in`.
    pub agent: u32,
    /// Runs the shim, and owns the work directory itself and `out`: no agent can signal or limit the shim, or write a result.
    pub shim: u32,
}
