//! [`DepotClient`]: the requests to a depot.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncRead;
use tokio_util::task::AbortOnDropHandle;

use super::connection::{DepotConnection, depot_error};
use super::spec::DepotSpec;
use super::spool::Spool;
use super::start::{self, ShimInstall};
use super::supervisor::DepotSupervisor;
use crate::engine::{Engine, EngineError, EngineResult};
use crate::handoff::depot::{
    DepotRequest, DepotResponse, MAX_LEFT_OUT_PATH_CHARS, MAX_LEFT_OUT_PATHS, ObjectTip, TextFile,
};
use crate::handoff::result::MAX_RESULT_BYTES;
use crate::handoff::sandbox_users::SandboxUsers;
use crate::ids::{CommitId, ContainerId};

/// The timeout of requests that move little data.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a request that runs git or moves much data may make no progress.
pub(super) const PROGRESS_TIMEOUT: Duration = Duration::from_secs(600);
/// The same for fetching results. The end of a swarm waits for it.
const COLLECT_TIMEOUT: Duration = Duration::from_secs(150);

/// The files that an attempt left, from [`DepotClient::collect`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectedFiles {
    /// The untrusted `result.json`, if there is one.
    pub result: Option<Vec<u8>>,
    /// Whether a bundle was written to the requested path.
    pub has_bundle: bool,
}

/// The work that [`DepotClient::salvage`] saved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SalvagedWork {
    /// The commit, or `None` if nothing changed since the base.
    pub commit: Option<CommitId>,
    /// Paths that the commit could not include.
    pub left_out: Vec<String>,
}

/// Space on the engine's machine in bytes, from [`DepotClient::free_space`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineSpace {
    /// Free space on the volumes' disk.
    pub free: u64,
    /// The size of that disk.
    pub total: u64,
    /// Memory available to new processes; 0 if unknown.
    pub memory_available: u64,
}

/// A running depot. Clones share it, and requests run concurrently.
#[derive(Clone)]
pub struct DepotClient {
    pub(super) supervisor: Arc<DepotSupervisor>,
}

impl DepotClient {
    /// Creates the volumes and the container, installs the shim, and waits until the depot is ready. Replaces the depot of an
    /// earlier orchestrator. After an error, only the volumes remain.
    ///
    /// # Errors
    /// Those of the engine; [`EngineError::Depot`] if the container exits at once; [`EngineError::TimedOut`].
    pub async fn start(engine: Arc<dyn Engine>, spec: &DepotSpec) -> EngineResult<Self> {
        let shim = if spec.reuse_shim { ShimInstall::IfMissing } else { ShimInstall::Always };
        let running = start::start_depot(&engine, spec, shim).await?;
        Ok(Self { supervisor: Arc::new(DepotSupervisor::new(engine, spec.clone(), running)) })
    }

    /// Restarts the depot if it has died. Every request does the same.
    ///
    /// # Errors
    /// The reason why it cannot be restarted. If the error [is unreachable](EngineError::is_unreachable), another try may succeed
    /// once the engine answers.
    pub async fn ensure_alive(&self) -> EngineResult<()> {
        self.supervisor.live_connection("checking that it is alive").await.map(drop)
    }

    /// The depot's container, which changes with each restart.
    pub fn container_id(&self) -> ContainerId {
        self.supervisor.running_depot().container
    }

    /// Creates the repository in the objects volume if it is missing. Returns the commits that are complete in it.
    pub async fn prepare_objects_volume(&self, format: &str) -> EngineResult<Vec<ObjectTip>> {
        const OPERATION: &str = "preparing the objects volume";
        let request = DepotRequest::OpenObjects { format: format.to_owned() };
        match self.request(OPERATION, &request, ANSWER_TIMEOUT).await? {
            DepotResponse::Objects { tips } => Ok(tips),
            other => Err(unexpected_answer(OPERATION, &other)),
        }
    }

    /// Stores a pack and records `tips` as complete. `shallow` is the content of the host repository's `shallow` file.
    ///
    /// # Errors
    /// [`EngineError::Failed`] if `pack` cannot be read or is empty (a pack without objects has 32 bytes). The depot refuses a
    /// truncated pack, so incomplete tips are never recorded. If the depot dies, it is restarted, but part of the pack has been
    /// read: the error is [`EngineError::Depot`] without a kind, and another try with a new pack may succeed.
    pub async fn store_pack(
        &self,
        pack: impl AsyncRead + Send + Unpin,
        tips: Vec<ObjectTip>,
        shallow: String,
    ) -> EngineResult<()> {
        const OPERATION: &str = "storing a pack";
        let send = |connection: Arc<DepotConnection>| async move {
            let request = DepotRequest::StorePack { tips, shallow };
            let mut pending = connection.send_request(OPERATION, &request, PROGRESS_TIMEOUT).await?;
            pending.send_body(pack).await?;
            pending.wait_for_answer().await
        };
        expect_nothing(OPERATION, &self.supervisor.request_once(OPERATION, send).await?)
    }

    /// Creates an attempt's directories with these files to read.
    pub async fn prepare_sandbox_dirs(&self, dir: &str, users: SandboxUsers, files: Vec<TextFile>) -> EngineResult<()> {
        const OPERATION: &str = "preparing a sandbox's directories";
        let SandboxUsers { agent: uid, shim: shim_uid } = users;
        let request = &DepotRequest::Prepare { attempt_dir: dir.to_owned(), uid, shim_uid, files };
        let discard = &DepotRequest::Discard { attempt_dir: dir.to_owned(), uid };
        let send = |connection: Arc<DepotConnection>, is_retry| async move {
            if is_retry {
                // The depot that died may have created some of them.
                connection.send_request(OPERATION, discard, PROGRESS_TIMEOUT).await?.wait_for_answer().await?;
            }
            connection.send_request(OPERATION, request, ANSWER_TIMEOUT).await?.wait_for_answer().await
        };
        expect_nothing(OPERATION, &self.supervisor.request_with_retry(OPERATION, send).await?)
    }

    /// Fetches what an attempt left: `result.json`, and its bundle to `bundle_path`, whose directory must exist. Without a
    /// bundle, no file is created.
    pub async fn collect(
        &self,
        dir: &str,
        uid: u32,
        max_bytes: u64,
        bundle_path: &Path,
    ) -> EngineResult<CollectedFiles> {
        const OPERATION: &str = "collecting a result";
        let request = DepotRequest::Collect { attempt_dir: dir.to_owned(), uid, max_bytes };
        let limit = max_bytes.saturating_add(MAX_RESULT_BYTES);
        let spool = || Spool::beside(bundle_path, limit);
        let (answer, spool) = self.request_data(OPERATION, &request, COLLECT_TIMEOUT, spool).await?;
        let DepotResponse::Collected { result_bytes, bundle } = answer else {
            return Err(unexpected_answer(OPERATION, &answer));
        };
        let length = spool.length();
        let rest = length.checked_sub(result_bytes);
        if result_bytes > MAX_RESULT_BYTES || rest.is_none_or(|rest| bundle != (rest > 0)) {
            let problem = format!("{length} bytes are not a result of {result_bytes} bytes with bundle: {bundle}");
            return Err(depot_error(OPERATION, &problem));
        }
        let result = spool.split_to_file(OPERATION, result_bytes, bundle_path).await?;
        Ok(CollectedFiles { result: Some(result).filter(|result| !result.is_empty()), has_bundle: bundle })
    }

    /// Commits the content of a clone whose shim is dead, and fetches it as a bundle. If nothing changed since `base`, no file is
    /// created.
    pub async fn salvage(
        &self,
        dir: &str,
        uid: u32,
        base: &CommitId,
        reference: &str,
        max_bytes: u64,
        bundle_path: &Path,
    ) -> EngineResult<SalvagedWork> {
        const OPERATION: &str = "salvaging a work directory";
        let (attempt_dir, base, reference) = (dir.to_owned(), base.clone(), reference.to_owned());
        let request = DepotRequest::Salvage { attempt_dir, uid, base, reference, max_bytes };
        let spool = || Spool::beside(bundle_path, max_bytes);
        let (answer, spool) = self.request_data(OPERATION, &request, COLLECT_TIMEOUT, spool).await?;
        let DepotResponse::Salvaged { commit, mut left_out } = answer else {
            return Err(unexpected_answer(OPERATION, &answer));
        };
        if commit.is_some() != (spool.length() > 0) {
            let problem = format!("{} bytes came with the commit {commit:?}", spool.length());
            return Err(depot_error(OPERATION, &problem));
        }
        spool.split_to_file(OPERATION, 0, bundle_path).await?;
        // The list comes from a process of the sandbox's user.
        left_out.truncate(MAX_LEFT_OUT_PATHS);
        left_out.iter_mut().for_each(|path| *path = path.chars().take(MAX_LEFT_OUT_PATH_CHARS).collect());
        Ok(SalvagedWork { commit, left_out })
    }

    /// Removes an attempt's directories.
    pub async fn remove_sandbox_dirs(&self, dir: &str, uid: u32) -> EngineResult<()> {
        const OPERATION: &str = "removing a sandbox's directories";
        let request = DepotRequest::Discard { attempt_dir: dir.to_owned(), uid };
        expect_nothing(OPERATION, &self.request(OPERATION, &request, PROGRESS_TIMEOUT).await?)
    }

    /// Measures the space on the engine's disk and its memory.
    pub async fn free_space(&self) -> EngineResult<EngineSpace> {
        const OPERATION: &str = "measuring free space";
        match self.request(OPERATION, &DepotRequest::MeasureSpace, ANSWER_TIMEOUT).await? {
            DepotResponse::Space { free, total, memory_available } => Ok(EngineSpace { free, total, memory_available }),
            other => Err(unexpected_answer(OPERATION, &other)),
        }
    }

    /// Removes the container and keeps the volumes. Pending requests fail.
    pub async fn close(&self) -> EngineResult<()> {
        self.supervisor.close().await
    }

    pub(super) async fn request(
        &self,
        operation: &'static str,
        request: &DepotRequest,
        timeout: Duration,
    ) -> EngineResult<DepotResponse> {
        let send = |connection: Arc<DepotConnection>, _| async move {
            connection.send_request(operation, request, timeout).await?.wait_for_answer().await
        };
        self.supervisor.request_with_retry(operation, send).await
    }

    /// Sends a request whose answer has data. A task of its own receives it into a new spool, so that a caller that polls slowly
    /// does not block other requests.
    pub(super) async fn request_data(
        &self,
        operation: &'static str,
        request: &DepotRequest,
        timeout: Duration,
        new_spool: impl Fn() -> Spool,
    ) -> EngineResult<(DepotResponse, Spool)> {
        let send = |connection: Arc<DepotConnection>, _| {
            let spool = new_spool();
            async move {
                let pending = connection.send_request(operation, request, timeout).await?;
                match AbortOnDropHandle::new(tokio::spawn(spool.receive(pending))).await {
                    Ok(received) => received,
                    Err(panicked) => Err(EngineError::Failed { operation, source: Box::new(panicked) }),
                }
            }
        };
        self.supervisor.request_with_retry(operation, send).await
    }
}

pub(super) fn expect_nothing(operation: &'static str, answer: &DepotResponse) -> EngineResult<()> {
    if *answer == DepotResponse::Empty { Ok(()) } else { Err(unexpected_answer(operation, answer)) }
}

pub(super) fn unexpected_answer(operation: &'static str, answer: &DepotResponse) -> EngineError {
    depot_error(operation, &format!("unexpected answer: {answer:?}"))
}
