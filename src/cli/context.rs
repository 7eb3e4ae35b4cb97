//! Where a command works: the folder it was started in, the repository around it, the engine it can reach.
//!
//! Used by the commands. Errors of `delivery/` and `state/` become shown errors here, with their hints.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{CommandError, CommandErrorKind};
use super::settings::SettingsError;
use crate::delivery::{DeliveryError, Repo};
use crate::engine::docker::{DockerEngine, DockerOptions};
use crate::engine::{Engine, resolve};
use crate::state::{StateError, SwarmDir};

/// Where a command works.
#[derive(Debug, Clone)]
pub struct CommandContext {
    dir: PathBuf,
}

impl CommandContext {
    /// In this folder, or in the current one.
    pub fn new(folder: Option<PathBuf>) -> Self {
        Self { dir: folder.unwrap_or_else(|| PathBuf::from(".")) }
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The environment's value of a variable.
    pub fn env_var(name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    /// The repository.
    pub async fn discover_repo(&self) -> Result<Repo, CommandError> {
        Ok(Repo::discover(&self.dir).await?)
    }

    /// A swarm of the repository: the newest, or the one that was named.
    pub async fn resolve_swarm_dir(&self, named: Option<&str>) -> Result<SwarmDir, CommandError> {
        Ok(SwarmDir::resolve(self.discover_repo().await?.root(), named)?)
    }

    /// The engine.
    pub async fn connect_engine(&self) -> Result<Arc<dyn Engine>, CommandError> {
        // Once for the process; a second time is told so, and is no error.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let endpoint = resolve::resolve_endpoint(&|name| std::env::var(name).ok())?;
        Ok(Arc::new(DockerEngine::connect(&endpoint, DockerOptions::default()).await?))
    }

    /// The path of this program.
    pub fn current_exe() -> Option<PathBuf> {
        std::env::current_exe().ok()
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
            | E::NoCommits { .. } => CommandErrorKind::Input,
            E::BranchCheckedOut { .. } | E::BranchNameConflict { .. } | E::InvalidBranchName { .. } => {
                CommandErrorKind::Input
            }
            _ => CommandErrorKind::Machinery,
        };
        let shown = CommandError::from_error(kind, &error);
        match &error {
            E::NotARepo { .. } => shown.with_hint("run it inside a git repository, or name one with `-C DIR`"),
            E::NoCommits { .. } => {
                shown.with_hint("`git commit --allow-empty -m \"Begin\"` makes one; sandboxes start from a commit")
            }
            E::BranchCheckedOut { branch, .. } => shown.with_hint(format!(
                "longshore never touches a working tree, so it cannot land on `{branch}` while you are on it: \
                 `git switch` to another branch, or name another with `--branch`"
            )),
            E::DiskFull { .. } => shown.with_hint("make room on the disk that has the repository"),
            _ => shown,
        }
    }
}

/// What can be done about a journal that cannot be read.
const JOURNAL_LOST_HINT: &str = "nothing was changed: put a good copy of the file in its place and try again. Without one, the swarm's landed work is on \
     its branch, other work under refs/longshore/, and what is still in its volumes is listed by `longshore gc --dry-run`";

impl From<StateError> for CommandError {
    fn from(error: StateError) -> Self {
        let kind = match &error {
            StateError::NoSuchSwarm { .. } | StateError::AmbiguousSwarm { .. } | StateError::NoSwarms(_) => {
                CommandErrorKind::Input
            }
            StateError::UnsupportedVersion { .. } | StateError::Symlink(_) | StateError::NotADirectory(_) => {
                CommandErrorKind::Input
            }
            StateError::Locked { .. } => CommandErrorKind::Input,
            _ => CommandErrorKind::Machinery,
        };
        let shown = CommandError::from_error(kind, &error);
        let gone = |path: &Path| path.extension().is_some_and(|end| end == "ndjson") && !path.exists();
        match &error {
            StateError::NoSwarms(_) => shown.with_hint("`longshore run FILE` makes one"),
            StateError::NoSuchSwarm { .. } => {
                shown.with_hint("the folders in .longshore/swarms are the swarms that there are")
            }
            StateError::AmbiguousSwarm { .. } => shown.with_hint("type more of the id"),
            StateError::Locked { .. } => {
                shown.with_hint("it runs: `longshore status` shows how it stands, `longshore stop` asks it to finish")
            }
            StateError::Io { path, .. } if gone(path) => shown.with_hint(JOURNAL_LOST_HINT),
            StateError::Damaged { .. } | StateError::RecordsLost { .. } => shown.with_hint(JOURNAL_LOST_HINT),
            error if error.is_disk_full() => shown.with_hint("make room on the disk that has the repository"),
            _ => shown,
        }
    }
}

impl From<SettingsError> for CommandError {
    fn from(error: SettingsError) -> Self {
        let shown = CommandError::from_error(CommandErrorKind::Input, &error);
        match &error {
            SettingsError::UnknownAgent { name, .. } => shown
                .with_hint(format!("define it in .longshore.toml: `[agents.{name}]` with `argv = [\"program\", ...]`")),
            SettingsError::VariableNotSet { key, .. } => {
                shown.with_hint(format!("set it, or give the value with `--env {key}=VALUE`"))
            }
            SettingsError::Config(_) => shown.with_hint("`longshore schema config` prints what a config file may have"),
            _ => shown,
        }
    }
}

/// Several problems with the settings.
pub(crate) fn settings_errors(problems: Vec<SettingsError>) -> Vec<CommandError> {
    problems.into_iter().map(CommandError::from).collect()
}
