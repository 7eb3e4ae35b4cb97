//! The exit codes of `longshore`.
//!
//! | code | variant | meaning |
//! |---|---|---|
//! | 0 | `Success` | every story landed, or the command did what it was asked to do |
//! | 1 | `Unsuccessful` | a story did not land, or a check found errors |
//! | 2 | `InvalidInput` | bad usage or bad input, or the checks fail before anything was changed |
//! | 3 | `Machinery` | the engine, git, the disk or another part of the machinery failed |
//! | 4 | `Suspended` | only tasks that wait for the admin are left |
//! | 130 | `Interrupted` | stopped by a signal or by `longshore stop`; can be resumed |

use std::process::ExitCode;

use crate::swarm::SwarmOutcome;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum ExitStatus {
    Success = 0,
    Unsuccessful = 1,
    InvalidInput = 2,
    Machinery = 3,
    Suspended = 4,
    Interrupted = 130,
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        ExitCode::from(status as u8)
    }
}

impl From<SwarmOutcome> for ExitStatus {
    fn from(outcome: SwarmOutcome) -> Self {
        match outcome {
            SwarmOutcome::Landed => ExitStatus::Success,
            SwarmOutcome::SomeFailed => ExitStatus::Unsuccessful,
            SwarmOutcome::RedBase => ExitStatus::InvalidInput,
            SwarmOutcome::MachineryFailed => ExitStatus::Machinery,
            SwarmOutcome::Suspended => ExitStatus::Suspended,
            SwarmOutcome::Interrupted => ExitStatus::Interrupted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swarm_outcomes_map_to_their_exit_codes() {
        use SwarmOutcome as O;
        for outcome in [O::Landed, O::SomeFailed, O::RedBase, O::MachineryFailed, O::Suspended, O::Interrupted] {
            assert_eq!(ExitStatus::from(outcome) as u8, outcome.exit_code(), "{outcome:?}");
        }
    }
}
