//! How a swarm ended. The machine decides it; `state/` saves it, and the program exits with its code.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SwarmOutcome {
    /// Every story landed, or was done before.
    Landed,
    /// Some story did not land, because of itself.
    SomeFailed,
    /// Some story did not land, because of the machinery.
    MachineryFailed,
    /// The checks fail before anything was changed; no agent started.
    RedBase,
    /// What is left waits for the admin; can be resumed.
    Suspended,
    /// Stopped; can be resumed.
    Interrupted,
}

impl SwarmOutcome {
    /// The exit code; see docs/causes.md.
    pub fn exit_code(self) -> u8 {
        match self {
            SwarmOutcome::Landed => 0,
            SwarmOutcome::SomeFailed => 1,
            SwarmOutcome::RedBase => 2,
            SwarmOutcome::MachineryFailed => 3,
            SwarmOutcome::Suspended => 4,
            SwarmOutcome::Interrupted => 130,
        }
    }
}
