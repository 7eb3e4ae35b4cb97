//! The clients that collecting works with, and the transfer of a sandbox's `out` directory to the host: through the depot, or
//! through the sandbox's container if the depot cannot be started again.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::coordinator::attempt::AttemptContext;
use crate::coordinator::fault::{engine_fault, protocol_violation};
use crate::delivery::Repo;
use crate::engine::depot::{CollectedFiles, DepotClient};
use crate::engine::{Engine, EngineError};
use crate::error_chain::error_chain;
use crate::handoff::depot::DepotErrorKind;
use crate::swarm::MachineryFault;

use super::archive::{self, ArchiveError};

/// The directory of bundles that are being checked, in the swarm's directory.
pub(crate) const INCOMING_DIR: &str = "incoming";

#[derive(Clone)]
pub(crate) struct Collector {
    pub engine: Arc<dyn Engine>,
    pub depot: DepotClient,
    pub repo: Repo,
    /// The directory of bundles that are being checked.
    pub incoming: PathBuf,
    /// The largest accepted bundle, in bytes.
    pub max_bundle: u64,
    /// Finished work is reviewed, so that its tree is compared with rejected ones.
    pub has_reviews: bool,
}

/// The path of a bundle that is being checked. The file is removed on drop.
pub(crate) struct BundleFile(PathBuf);

impl Deref for BundleFile {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for BundleFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Collector {
    /// A path that no other collection uses, not even an aborted one of the same attempt.
    pub fn bundle_file(&self, context: &AttemptContext) -> BundleFile {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        BundleFile(self.incoming.join(format!("{}-{number}.bundle", context.attempt.dir_name())))
    }

    /// Fetches what the sandbox left in its `out` directory, unchecked; `None` if there is no such directory.
    pub async fn fetch_output(
        &self,
        context: &AttemptContext,
        bundle: &Path,
    ) -> Result<Option<CollectedFiles>, MachineryFault> {
        let dir = context.attempt.dir_name();
        match self.depot.collect(&dir, context.uid, self.max_bundle, bundle).await {
            Ok(collected) => Ok(Some(collected)),
            Err(EngineError::Depot { kind: Some(DepotErrorKind::NotFound), .. }) => Ok(None),
            Err(EngineError::Depot { kind: Some(DepotErrorKind::Refused), message, .. }) => {
                Err(protocol_violation(message))
            }
            // Without a kind the depot died and could not be started again.
            Err(error @ EngineError::Depot { kind: None, .. }) => {
                self.fetch_without_depot(context, bundle, &error).await.map(Some)
            }
            Err(error) => Err(engine_fault(&error)),
        }
    }

    /// Fetches the result from the stopped container. If it has none either, the fault is the depot's: nothing is known of the
    /// work.
    async fn fetch_without_depot(
        &self,
        context: &AttemptContext,
        bundle: &Path,
        depot_error: &EngineError,
    ) -> Result<CollectedFiles, MachineryFault> {
        let Some(container) = &context.container else { return Err(engine_fault(depot_error)) };
        let attempt = &context.attempt;
        match archive::fetch(self.engine.as_ref(), container, &attempt.dir_name(), self.max_bundle, bundle).await {
            Ok(collected) if collected.result.is_some() => {
                tracing::warn!(%attempt, depot = %error_chain(depot_error), "the result was fetched without the depot, which is gone");
                Ok(collected)
            }
            Ok(_) => Err(engine_fault(depot_error)),
            Err(ArchiveError::Refused(message)) => Err(protocol_violation(message)),
            Err(ArchiveError::Engine(error)) => Err(engine_fault(&error)),
            Err(error) => {
                tracing::warn!(%attempt, error = %error_chain(&error), "cannot fetch a result without the depot, which is gone");
                Err(engine_fault(depot_error))
            }
        }
    }
}
