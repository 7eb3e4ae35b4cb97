//! Where a command works: its directory, the repository around it, the engine it can reach.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::CommandError;
use crate::delivery::Repo;
use crate::engine::docker::{DockerEngine, DockerOptions};
use crate::engine::{Engine, resolve};
use crate::state::SwarmDir;

#[derive(Debug, Clone)]
pub(crate) struct CommandContext {
    dir: PathBuf,
}

impl CommandContext {
    /// Works in `dir`, or in the current directory.
    pub(crate) fn new(dir: Option<PathBuf>) -> Self {
        Self { dir: dir.unwrap_or_else(|| PathBuf::from(".")) }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn env_var(name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    pub(crate) async fn discover_repo(&self) -> Result<Repo, CommandError> {
        Ok(Repo::discover(&self.dir).await?)
    }

    /// The swarm of the repository whose id starts with `prefix`, or the newest.
    pub(crate) async fn resolve_swarm_dir(&self, prefix: Option<&str>) -> Result<SwarmDir, CommandError> {
        Ok(SwarmDir::resolve(self.discover_repo().await?.root(), prefix)?)
    }

    pub(crate) async fn connect_engine(&self) -> Result<Arc<dyn Engine>, CommandError> {
        // Fails if it is installed already, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let endpoint = resolve::resolve_endpoint(&|name| std::env::var(name).ok())?;
        Ok(Arc::new(DockerEngine::connect(&endpoint, DockerOptions::default()).await?))
    }

    /// The path of this program.
    pub(crate) fn current_exe() -> Option<PathBuf> {
        std::env::current_exe().ok()
    }
}
