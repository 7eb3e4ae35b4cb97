//! Speaks to a swarm's depot: the helper container through which files travel between the host and the swarm's volumes
//! (`handoff/depot.rs` has the frames, `shim/` the other end).
//!
//! Called by `coordinator/`. `frames.rs` turns bytes into frames and back, `link.rs` carries many requests over the one
//! stream, `spool.rs` takes what comes out to a file, `start.rs` starts the container and `keeper.rs` starts it again when it
//! died, on the same volumes: what they hold is not lost with it. Must not: run git, or believe what came out of a sandbox.
//!
//! | what happens | what callers see |
//! |---|---|
//! | the depot answers with a fault | [`EngineError::DepotClient`] with its kind |
//! | its stream ends or breaks the frames' rules | nothing: it is started again, once for all that wait, and what they asked is repeated once |
//! | the same again, or under a pack, or it cannot be started | [`EngineError::DepotClient`] without a kind, with the depot's last words |
//! | the same, and the engine does not answer | an error that is [`EngineError::is_unreachable`]; the next request tries again |
//! | no answer and no progress for too long | [`EngineError::TimedOut`] of that request alone |
//! | the caller goes away | the request is forgotten; its late answer is dropped |

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncRead;
use tokio_util::task::AbortOnDropHandle;

use super::{Engine, EngineError, EngineResult};
use crate::handoff::depot::{
    DepotRequest, DepotResponse, MAX_LEFT_OUT_PATH_CHARS, MAX_LEFT_OUT_PATHS, ObjectTip, TextFile,
};
use crate::handoff::result::MAX_RESULT_BYTES;
use crate::ids::{CommitId, ContainerId, SwarmId};

#[cfg(test)]
pub(crate) mod fake;
mod frames;
mod supervisor;
mod connection;
pub mod mailbox;
mod spool;
mod start;
#[cfg(test)]
mod tests;

use connection::DepotConnection;
use spool::Spool;
use supervisor::DepotSupervisor;

/// For requests that move little.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// For requests that run git or move much: how long nothing at all may happen.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(600);
/// For bringing out what an attempt left, likewise. The end of a swarm waits for it.
const COLLECT_TIMEOUT: Duration = Duration::from_secs(150);
/// A depot to start.
#[derive(Debug, Clone)]
pub struct DepotSpec {
    /// The swarm that it serves.
    pub swarm: SwarmId,
    /// The repository, as the hash that its objects volume is labelled with.
    pub repo: String,
    /// Image: any with git.
    pub image: String,
    /// The container's name.
    pub name: String,
    /// The volumes' names.
    pub volumes: DepotVolumes,
    /// The shim, built for the engine's architecture.
    pub shim_binary: Bytes,
    /// The volumes are those of an orchestrator that is gone, and the engine may still be starting its sandboxes with the
    /// shim that is there: the same one is not brought again.
    pub reuse_shim: bool,
    /// Memory limit in bytes; 0 for none.
    pub memory_limit: u64,
}

/// The names of a swarm's volumes. Those that are not there are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DepotVolumes {
    /// The repository's objects; kept between swarms.
    pub objects: String,
    /// The *in* volume.
    pub inbox: String,
    /// The *work* volume.
    pub work: String,
    /// The *mailbox* volume, where the swarm has one.
    pub mailbox: Option<String>,
}

/// What [`DepotClient::collect`] brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectedFiles {
    /// `result.json`, hostile as it is; `None` where there is none.
    pub result: Option<Vec<u8>>,
    /// Whether there is a bundle, which then lies where it was asked for.
    pub has_bundle: bool,
}

/// What [`DepotClient::salvage`] brought.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SalvagedWork {
    /// The commit; `None` where there is nothing beyond the base.
    pub commit: Option<CommitId>,
    /// Paths that are not in it, though they were there.
    pub left_out: Vec<String>,
}

/// What [`DepotClient::free_space`] found on the engine's machine, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineSpace {
    /// Free on the volumes' disk.
    pub free: u64,
    /// The size of that disk.
    pub total: u64,
    /// Memory that new processes could have; 0 where that is not known.
    pub memory_available: u64,
}

/// A running depot. Clones speak to the same one; requests run side by side.
#[derive(Clone)]
pub struct DepotClient {
    supervisor: Arc<DepotSupervisor>,
}

impl DepotClient {
    /// Makes the volumes and the container, brings the shim, and waits until the depot is ready. A depot that an earlier
    /// orchestrator left is replaced. After an error nothing but the volumes is left.
    ///
    /// # Errors
    /// Those of the engine; [`EngineError::DepotClient`] where the container ends at once; [`EngineError::TimedOut`].
    pub async fn start(engine: Arc<dyn Engine>, spec: &DepotSpec) -> EngineResult<Self> {
        let running = start::start_depot(
            &engine,
            spec,
            if spec.reuse_shim { start::ShimInstall::IfMissing } else { start::ShimInstall::Always },
        )
        .await?;
        Ok(Self { supervisor: Arc::new(DepotSupervisor::new(engine, spec.clone(), running)) })
    }

    /// Starts it again where it has died: what any request does too.
    ///
    /// # Errors
    /// Why it cannot be brought back; [`EngineError::is_unreachable`] where the engine does not answer, and then it is worth
    /// another try when it does.
    pub async fn ensure_alive(&self) -> EngineResult<()> {
        self.supervisor.live_connection("looking after it").await.map(drop)
    }

    /// The depot's container: another one after each death.
    pub fn container_id(&self) -> ContainerId {
        self.supervisor.running_depot().container.clone()
    }

    /// Makes the repository in the objects volume if it is not there; the commits that are complete in it.
    pub async fn prepare_objects_volume(&self, format: &str) -> EngineResult<Vec<ObjectTip>> {
        const OPERATION: &str = "preparing the objects volume";
        match self.request(OPERATION, &DepotRequest::OpenObjects { format: format.to_owned() }, ANSWER_TIMEOUT).await? {
            DepotResponse::Objects { tips } => Ok(tips),
            other => Err(unexpected_answer(OPERATION, &other)),
        }
    }

    /// Stores a pack, and remembers `tips` as complete. `shallow` is the host repo's file of that name.
    ///
    /// # Errors
    /// Also [`EngineError::Failed`] where `pack` cannot be read or is empty (even a pack of nothing has 32 bytes). The depot
    /// refuses what broke off: tips are never believed by halves. A depot that dies is brought back, but half of the pack is
    /// read by then: that is [`EngineError::DepotClient`] without a kind, and worth another try with a new pack.
    pub async fn store_pack(
        &self,
        pack: impl AsyncRead + Send + Unpin,
        tips: Vec<ObjectTip>,
        shallow: String,
    ) -> EngineResult<()> {
        const OPERATION: &str = "storing a pack";
        let storing = |link: Arc<DepotConnection>| async move {
            let mut exchange =
                link.send_request(OPERATION, &DepotRequest::StorePack { tips, shallow }, PROGRESS_TIMEOUT).await?;
            exchange.send_body(pack).await?;
            exchange.wait_for_answer().await
        };
        expect_nothing(OPERATION, &self.supervisor.request_once(OPERATION, storing).await?)
    }

    /// Makes an attempt's folders, owned by `uid`, with these files to read.
    pub async fn prepare_sandbox_dirs(&self, folder: &str, uid: u32, files: Vec<TextFile>) -> EngineResult<()> {
        const OPERATION: &str = "preparing a sandbox's folders";
        let request = DepotRequest::Prepare { attempt_dir: folder.to_owned(), uid, files };
        let discard = DepotRequest::Discard { attempt_dir: folder.to_owned(), uid };
        let (request, discard) = (&request, &discard);
        let preparing = |link: Arc<DepotConnection>, again| async move {
            if again {
                // One that died may have made them, or half of them.
                link.send_request(OPERATION, discard, PROGRESS_TIMEOUT).await?.wait_for_answer().await?;
            }
            link.send_request(OPERATION, request, ANSWER_TIMEOUT).await?.wait_for_answer().await
        };
        expect_nothing(OPERATION, &self.supervisor.request_with_retry(OPERATION, preparing).await?)
    }

    /// Brings out what an attempt left: `result.json`, and its bundle to the path given, whose folder must be there.
    /// No file is made where there is no bundle.
    pub async fn collect(
        &self,
        folder: &str,
        uid: u32,
        max_bytes: u64,
        bundle_to: &Path,
    ) -> EngineResult<CollectedFiles> {
        const OPERATION: &str = "collecting a result";
        let request = DepotRequest::Collect { attempt_dir: folder.to_owned(), uid, max_bytes };
        let most = max_bytes.saturating_add(MAX_RESULT_BYTES);
        let (answer, spool) = self.request_to_spool(OPERATION, &request, most, bundle_to).await?;
        let DepotResponse::Collected { result_bytes, bundle } = answer else {
            return Err(unexpected_answer(OPERATION, &answer));
        };
        let rest = spool.length().checked_sub(result_bytes);
        if result_bytes > MAX_RESULT_BYTES || rest.is_none_or(|rest| bundle != (rest > 0)) {
            let length = spool.length();
            let message = format!("{length} bytes are not a result of {result_bytes} bytes with bundle: {bundle}");
            return Err(EngineError::Depot { operation: OPERATION, kind: None, message });
        }
        let result = spool.split_to_file(result_bytes, bundle_to).await?;
        Ok(CollectedFiles { result: Some(result).filter(|result| !result.is_empty()), has_bundle: bundle })
    }

    /// Commits what is in a clone whose shim is dead, and brings it out as a bundle. No file is made where there is nothing
    /// beyond `base`.
    pub async fn salvage(
        &self,
        folder: &str,
        uid: u32,
        base: &CommitId,
        reference: &str,
        max_bytes: u64,
        bundle_to: &Path,
    ) -> EngineResult<SalvagedWork> {
        const OPERATION: &str = "salvaging a work folder";
        let (folder, base, reference) = (folder.to_owned(), base.clone(), reference.to_owned());
        let request = DepotRequest::Salvage { attempt_dir: folder, uid, base, reference, max_bytes };
        let (answer, spool) = self.request_to_spool(OPERATION, &request, max_bytes, bundle_to).await?;
        let DepotResponse::Salvaged { commit, mut left_out } = answer else {
            return Err(unexpected_answer(OPERATION, &answer));
        };
        if commit.is_some() != (spool.length() > 0) {
            let message = format!("{} bytes came with the commit {commit:?}", spool.length());
            return Err(EngineError::Depot { operation: OPERATION, kind: None, message });
        }
        spool.split_to_file(0, bundle_to).await?;
        // The process that said them was the sandbox's user's.
        left_out.truncate(MAX_LEFT_OUT_PATHS);
        left_out.iter_mut().for_each(|path| *path = path.chars().take(MAX_LEFT_OUT_PATH_CHARS).collect());
        Ok(SalvagedWork { commit, left_out })
    }

    /// Removes an attempt's folders.
    pub async fn remove_sandbox_dirs(&self, folder: &str, uid: u32) -> EngineResult<()> {
        const OPERATION: &str = "removing a sandbox's folders";
        let request = DepotRequest::Discard { attempt_dir: folder.to_owned(), uid };
        expect_nothing(OPERATION, &self.request(OPERATION, &request, PROGRESS_TIMEOUT).await?)
    }

    /// The space on the engine's disk, and its memory.
    pub async fn free_space(&self) -> EngineResult<EngineSpace> {
        const OPERATION: &str = "asking for free space";
        match self.request(OPERATION, &DepotRequest::MeasureSpace, ANSWER_TIMEOUT).await? {
            DepotResponse::Space { free, total, memory_available } => Ok(EngineSpace { free, total, memory_available }),
            other => Err(unexpected_answer(OPERATION, &other)),
        }
    }

    /// Removes the container; the volumes stay. Whatever is under way fails.
    pub async fn close(&self) -> EngineResult<()> {
        self.supervisor.close().await
    }

    async fn request(
        &self,
        operation: &'static str,
        request: &DepotRequest,
        within: Duration,
    ) -> EngineResult<DepotResponse> {
        let asking = |link: Arc<DepotConnection>, _| async move {
            link.send_request(operation, request, within).await?.wait_for_answer().await
        };
        self.supervisor.request_with_retry(operation, asking).await
    }

    /// A request with data in its answer, taken by a task of its own: a caller that is slow to poll must not hold up the
    /// other requests.
    async fn request_to_spool(
        &self,
        operation: &'static str,
        request: &DepotRequest,
        most: u64,
        target: &Path,
    ) -> EngineResult<(DepotResponse, Spool)> {
        let receiving = |link: Arc<DepotConnection>, _| async move {
            let exchange = link.send_request(operation, request, COLLECT_TIMEOUT).await?;
            let target = target.to_owned();
            let taking = async move { spool::receive_to_spool(exchange, most, &target).await };
            match AbortOnDropHandle::new(tokio::spawn(taking)).await {
                Ok(taken) => taken,
                Err(panicked) => Err(EngineError::Failed { operation, source: Box::new(panicked) }),
            }
        };
        self.supervisor.request_with_retry(operation, receiving).await
    }
}

fn expect_nothing(operation: &'static str, answer: &DepotResponse) -> EngineResult<()> {
    if *answer == DepotResponse::Empty { Ok(()) } else { Err(unexpected_answer(operation, answer)) }
}

fn unexpected_answer(operation: &'static str, answer: &DepotResponse) -> EngineError {
    EngineError::Depot { operation, kind: None, message: format!("it answered another question: {answer:?}") }
}
