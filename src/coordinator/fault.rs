//! Converts errors of the engine, of git and of the host's disk into the machine's [`MachineryFault`]: the cause, the evidence,
//! and whether a retry can help.

use crate::delivery::DeliveryError;
use crate::engine::{ContainerSpec, EngineError};
use crate::error_chain::error_chain;
use crate::handoff::depot::DepotErrorKind;
use crate::swarm::MachineryFault;
use crate::verdict::{Cause, Evidence};

pub(super) fn engine_fault(error: &EngineError) -> MachineryFault {
    let cause = match error {
        EngineError::DiskFull { .. } | EngineError::Depot { kind: Some(DepotErrorKind::DiskFull), .. } => {
            Cause::DiskFull
        }
        _ => Cause::EngineError,
    };
    let retryable = match error {
        // Without a kind the depot died; the next attempt starts it again.
        EngineError::Depot { kind, .. } => matches!(kind, None | Some(DepotErrorKind::Failed)),
        other => other.is_retryable(),
    };
    MachineryFault {
        cause,
        evidence: Evidence::from_summary(error_chain(error)),
        retryable,
        engine_unreachable: error.is_unreachable(),
    }
}

/// Like [`engine_fault`], for the creation of this container.
pub(super) fn create_fault(error: &EngineError, container: &ContainerSpec) -> MachineryFault {
    match error {
        EngineError::NotFound { .. } => {
            MachineryFault::new(Cause::ImageMissing, format!("the image `{}` is not there", container.image), false)
        }
        other => engine_fault(other),
    }
}

/// Only a refused bundle is a sandbox's doing. Whatever the host's git cannot do is the machinery's, also if it ran out of memory.
pub(super) fn delivery_fault(error: &DeliveryError) -> MachineryFault {
    let cause = match error {
        DeliveryError::BundleRefused(_) => Cause::ProtocolViolation,
        DeliveryError::DiskFull { .. } => Cause::DiskFull,
        _ => Cause::HostError,
    };
    let retryable = error.is_retryable();
    let mut evidence = Evidence::from_summary(error.to_string());
    if let DeliveryError::CommandFailed { command, code, tail, .. } = error {
        evidence.command = Some(command.clone());
        evidence.exit_code = code.map(i64::from);
        evidence.tail = tail.lines().map(str::to_owned).collect();
    }
    MachineryFault { cause, evidence, retryable, engine_unreachable: false }
}

/// A failed write to the host's disk.
pub(super) fn storage_fault(is_disk_full: bool, summary: String, retryable: bool) -> MachineryFault {
    let cause = if is_disk_full { Cause::DiskFull } else { Cause::HostError };
    MachineryFault::new(cause, summary, retryable)
}

/// A sandbox broke the rules of a result or of a verdict.
pub(super) fn protocol_violation(summary: impl Into<String>) -> MachineryFault {
    MachineryFault::new(Cause::ProtocolViolation, summary, false)
}
