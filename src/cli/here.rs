//! Where a command works: the folder it was started in, the repository around it, the engine it can reach.
//!
//! Used by the commands. Errors of `delivery/` and `state/` become shown errors here, with their hints.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{Kind, Shown};
use super::settings::SettingsError;
use crate::delivery::{DeliveryError, Repo};
use crate::engine::docker::{Docker, Options};
use crate::engine::{Engine, resolve};
use crate::state::{StateError, SwarmDir};

/// Where a command works.
#[derive(Debug, Clone)]
pub struct Here {
    folder: PathBuf,
}

impl Here {
    /// In this folder, or in the current one.
    pub fn new(folder: Option<PathBuf>) -> Self {
        Self { folder: folder.unwrap_or_else(|| PathBuf::from(".")) }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The environment's value of a variable.
    pub fn lookup(name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    /// The repository.
    pub async fn repo(&self) -> Result<Repo, Shown> {
        Ok(Repo::discover(&self.folder).await?)
    }

    /// A swarm of the repository: the newest, or the one that was named.
    pub async fn swarm(&self, named: Option<&str>) -> Result<SwarmDir, Shown> {
        Ok(SwarmDir::resolve(self.repo().await?.root(), named)?)
    }

    /// The engine.
    pub async fn engine(&self) -> Result<Arc<dyn Engine>, Shown> {
        // Once for the process; a second time is told so, and is no error.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let endpoint = resolve::endpoint(&|name| std::env::var(name).ok())?;
        Ok(Arc::new(Docker::connect(&endpoint, Options::default()).await?))
    }

    /// The path of this program.
    pub fn exe() -> Option<PathBuf> {
        std::env::current_exe().ok()
    }
}

impl From<DeliveryError> for Shown {
    fn from(error: DeliveryError) -> Self {
        use DeliveryError as E;
        let kind = match &error {
            E::NotARepo { .. }
            | E::NoWorkTree { .. }
            | E::Ownership { .. }
            | E::OddPath { .. }
            | E::NoCommits { .. } => Kind::Input,
            E::CheckedOut { .. } | E::BranchClash { .. } | E::BranchName { .. } => Kind::Input,
            _ => Kind::Machinery,
        };
        let shown = Shown::of(kind, &error);
        match &error {
            E::NotARepo { .. } => shown.hint("run it inside a git repository, or name one with `-C DIR`"),
            E::NoCommits { .. } => {
                shown.hint("`git commit --allow-empty -m \"Begin\"` makes one; sandboxes start from a commit")
            }
            E::CheckedOut { branch, .. } => shown.hint(format!(
                "longshore never touches a working tree, so it cannot land on `{branch}` while you are on it: \
                 `git switch` to another branch, or name another with `--branch`"
            )),
            E::DiskFull { .. } => shown.hint("make room on the disk that has the repository"),
            _ => shown,
        }
    }
}

/// What can be done about a journal that cannot be read.
const LOST: &str = "nothing was changed: put a good copy of the file in its place and try again. Without one, the swarm's landed work is on \
     its branch, other work under refs/longshore/, and what is still in its volumes is listed by `longshore gc --dry-run`";

impl From<StateError> for Shown {
    fn from(error: StateError) -> Self {
        let kind = match &error {
            StateError::NoSuchSwarm { .. } | StateError::AmbiguousSwarm { .. } | StateError::NoSwarms(_) => Kind::Input,
            StateError::UnsupportedVersion { .. } | StateError::Symlink(_) | StateError::NotADirectory(_) => {
                Kind::Input
            }
            StateError::Locked { .. } => Kind::Input,
            _ => Kind::Machinery,
        };
        let shown = Shown::of(kind, &error);
        let gone = |path: &Path| path.extension().is_some_and(|end| end == "ndjson") && !path.exists();
        match &error {
            StateError::NoSwarms(_) => shown.hint("`longshore run FILE` makes one"),
            StateError::NoSuchSwarm { .. } => {
                shown.hint("the folders in .longshore/swarms are the swarms that there are")
            }
            StateError::AmbiguousSwarm { .. } => shown.hint("type more of the id"),
            StateError::Locked { .. } => {
                shown.hint("it runs: `longshore status` shows how it stands, `longshore stop` asks it to finish")
            }
            StateError::Io { path, .. } if gone(path) => shown.hint(LOST),
            StateError::Damaged { .. } | StateError::RecordsLost { .. } => shown.hint(LOST),
            error if error.is_disk_full() => shown.hint("make room on the disk that has the repository"),
            _ => shown,
        }
    }
}

impl From<SettingsError> for Shown {
    fn from(error: SettingsError) -> Self {
        let shown = Shown::of(Kind::Input, &error);
        match &error {
            SettingsError::UnknownAgent { name, .. } => {
                shown.hint(format!("define it in .longshore.toml: `[agents.{name}]` with `argv = [\"program\", ...]`"))
            }
            SettingsError::NotSet { key, .. } => {
                shown.hint(format!("set it, or give the value with `--env {key}=VALUE`"))
            }
            SettingsError::Config(_) => shown.hint("`longshore schema config` prints what a config file may have"),
            _ => shown,
        }
    }
}

/// Several problems with the settings.
pub(crate) fn settings_problems(problems: Vec<SettingsError>) -> Vec<Shown> {
    problems.into_iter().map(Shown::from).collect()
}
