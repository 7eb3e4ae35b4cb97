//! Gives the errors of other modules a kind and a hint.

use std::io;
use std::path::Path;

use super::{CommandError, CommandErrorKind};
use crate::cli::settings::SettingsError;
use crate::coordinator::CoordinatorError;
use crate::delivery::DeliveryError;
use crate::engine::EngineError;
use crate::protocol::amp::store::SsotError;
use crate::protocol::mailbox::error::MailboxError;
use crate::state::StateError;

const DISK_FULL_HINT: &str = "make room on the disk that has the repository";
const LOST_JOURNAL_HINT: &str = "nothing was changed: restore the file from a copy and try again. Without one, the swarm's landed work is on its \
     branch, other work is under refs/longshore/, and `longshore gc --dry-run` lists what is still in its volumes";

/// An error in writing to standard output.
impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            CommandError::new(CommandErrorKind::OutputClosed, "")
        } else {
            CommandError::machinery("cannot write to standard output").with_cause(&error)
        }
    }
}

impl From<EngineError> for CommandError {
    fn from(error: EngineError) -> Self {
        let kind = match &error {
            EngineError::InvalidSettings { .. } => CommandErrorKind::Input,
            _ => CommandErrorKind::Machinery,
        };
        CommandError::from_error(kind, &error).with_hint(match &error {
            EngineError::Unreachable { endpoint, .. } => unreachable_hint(endpoint),
            EngineError::PermissionDenied { .. } => {
                "add yourself to the `docker` group (`sudo usermod -aG docker $USER`, then log in again), or use \
                 rootless Docker and set DOCKER_HOST to its socket"
            }
            EngineError::InvalidSettings { .. } => "check DOCKER_HOST, DOCKER_CONTEXT and `docker context ls`",
            EngineError::DiskFull { .. } => {
                "run `longshore gc --dry-run` to see what longshore could free, and `docker system df` for the rest"
            }
            EngineError::NotFound { .. }
            | EngineError::TimedOut { .. }
            | EngineError::Refused { .. }
            | EngineError::Failed { .. }
            | EngineError::Depot { .. } => "run `longshore doctor` to check the engine and everything else a run needs",
        })
    }
}

fn unreachable_hint(endpoint: &str) -> &'static str {
    if endpoint.contains(".sock") || endpoint.starts_with("unix") || endpoint.starts_with('/') {
        "start Docker (`sudo systemctl start docker`, `sudo service docker start`, or Docker Desktop), or set \
         DOCKER_HOST to a running engine"
    } else {
        "check that the engine named by DOCKER_HOST or the current docker context is up and reachable"
    }
}

impl From<DeliveryError> for CommandError {
    fn from(error: DeliveryError) -> Self {
        use DeliveryError as E;
        let kind = match &error {
            E::NotARepo { .. }
            | E::NoWorkTree { .. }
            | E::DubiousOwnership { .. }
            | E::PathWithNewline { .. }
            | E::NoCommits { .. }
            | E::BranchCheckedOut { .. }
            | E::BranchNameConflict { .. }
            | E::InvalidBranchName { .. } => CommandErrorKind::Input,
            _ => CommandErrorKind::Machinery,
        };
        let converted = CommandError::from_error(kind, &error);
        match &error {
            E::NotARepo { .. } => converted.with_hint("run it inside a git repository, or name one with `-C DIR`"),
            E::NoCommits { .. } => converted
                .with_hint("make one with `git commit --allow-empty -m \"Begin\"`: sandboxes start from a commit"),
            E::BranchCheckedOut { branch, .. } => converted.with_hint(format!(
                "longshore never touches a working tree, so it cannot land on a branch that is checked out: leave \
                 `{branch}` with `git switch`, or name another branch with `--branch`"
            )),
            E::DiskFull { .. } => converted.with_hint(DISK_FULL_HINT),
            _ => converted,
        }
    }
}

impl From<StateError> for CommandError {
    fn from(error: StateError) -> Self {
        use StateError as E;
        let kind = match &error {
            E::NoSuchSwarm { .. }
            | E::AmbiguousSwarm { .. }
            | E::NoSwarms(_)
            | E::UnsupportedVersion { .. }
            | E::Symlink(_)
            | E::NotADirectory(_)
            | E::Locked { .. } => CommandErrorKind::Input,
            _ => CommandErrorKind::Machinery,
        };
        let converted = CommandError::from_error(kind, &error);
        let is_lost_journal = |path: &Path| path.extension().is_some_and(|end| end == "ndjson") && !path.exists();
        match &error {
            E::NoSwarms(_) => converted.with_hint("start one with `longshore run FILE`"),
            E::NoSuchSwarm { .. } => converted.with_hint("`ls .longshore/swarms` lists the swarms"),
            E::AmbiguousSwarm { .. } => converted.with_hint("type more of the id"),
            E::Locked { .. } => converted
                .with_hint("it is running: `longshore status` shows its state, and `longshore stop` asks it to finish"),
            E::Io { path, .. } if is_lost_journal(path) => converted.with_hint(LOST_JOURNAL_HINT),
            E::Damaged { .. } | E::RecordsLost { .. } => converted.with_hint(LOST_JOURNAL_HINT),
            error if error.is_disk_full() => converted.with_hint(DISK_FULL_HINT),
            _ => converted,
        }
    }
}

impl From<CoordinatorError> for CommandError {
    fn from(error: CoordinatorError) -> Self {
        match error {
            CoordinatorError::Engine(error) => error.into(),
            CoordinatorError::Delivery(error) => error.into(),
            CoordinatorError::State(error) => error.into(),
            error => CommandError::from_error(CommandErrorKind::Machinery, &error),
        }
    }
}

impl From<SsotError> for CommandError {
    fn from(error: SsotError) -> Self {
        let error = match error {
            SsotError::Dir(error) => return StateError::from(error).into(),
            error => error,
        };
        let kind = match &error {
            SsotError::NotDirectory(_) | SsotError::MessageNotFound(_) => CommandErrorKind::Input,
            _ => CommandErrorKind::Machinery,
        };
        let converted = CommandError::from_error(kind, &error);
        match &error {
            error if error.is_disk_full() => converted.with_hint(DISK_FULL_HINT),
            SsotError::Damaged { .. } => converted.with_hint("`longshore ssot check` lists everything that is wrong"),
            _ => converted,
        }
    }
}

impl From<MailboxError> for CommandError {
    fn from(error: MailboxError) -> Self {
        let kind = match &error {
            MailboxError::Io { .. } | MailboxError::Locked(_) => CommandErrorKind::Machinery,
            _ => CommandErrorKind::Input,
        };
        let converted = CommandError::from_error(kind, &error);
        match &error {
            MailboxError::NoMailbox(_) => converted.with_hint("make one with `longshore mailbox send --dir DIR`"),
            MailboxError::IdTaken { .. } => converted.with_hint("choose another id with `--as ID`"),
            _ => converted,
        }
    }
}

impl From<SettingsError> for CommandError {
    fn from(error: SettingsError) -> Self {
        let converted = CommandError::from_error(CommandErrorKind::Input, &error);
        match &error {
            SettingsError::UnknownAgent { name, .. } => converted
                .with_hint(format!("define it in .longshore.toml: `[agents.{name}]` with `argv = [\"program\", ...]`")),
            SettingsError::VariableNotSet { key, .. } => {
                converted.with_hint(format!("set it, or give the value with `--env {key}=VALUE`"))
            }
            SettingsError::Config(_) => {
                converted.with_hint("`longshore schema config` prints the keys of a config file")
            }
            _ => converted,
        }
    }
}
