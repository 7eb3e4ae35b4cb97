//! Speaks to a swarm's depot: the helper container through which files travel between the host and the swarm's volumes
//! (`handoff/depot.rs` has the frames, `shim/` the other end).
//!
//! Called by `coordinator/`. `frames.rs` turns bytes into frames and back, `link.rs` carries many requests over the one
//! stream, `spool.rs` takes what comes out to a file. Must not: run git, or believe what came out of a sandbox.
//!
//! | what happens | what callers see |
//! |---|---|
//! | the depot answers with a fault | [`EngineError::Depot`] with its kind |
//! | its stream ends or breaks the frames' rules | [`EngineError::Depot`] without a kind: for all that wait, and for all later calls at once |
//! | no answer and no progress for too long | [`EngineError::TimedOut`] of that request alone |
//! | the caller goes away | the request is forgotten; its late answer is dropped |

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::io::AsyncRead;
use tokio_util::task::AbortOnDropHandle;

use super::{ContainerSpec, Engine, EngineError, EngineResult, FoundKind, VolumeMount, label};
use crate::handoff::depot::{Answer, LEFT_OUT_CHARS, LEFT_OUT_MAX, Request, TextFile, Tip};
use crate::handoff::layout;
use crate::handoff::result::RESULT_MAX_BYTES;
use crate::ids::{CommitId, ContainerId, SwarmId};

#[cfg(test)]
pub(crate) mod fake;
mod frames;
mod link;
mod spool;
#[cfg(test)]
mod tests;

use link::Link;
use spool::Spool;

/// What the depot's root may do: own folders for others, and become them.
const CAPABILITIES: [&str; 4] = ["CHOWN", "DAC_OVERRIDE", "SETGID", "SETUID"];
/// The depot's process limit: git runs a few at a time for each request.
const PIDS: i64 = 1024;
/// From the start of the container to its first frame.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// For requests that move little.
const ANSWER_WITHIN: Duration = Duration::from_secs(120);
/// For requests that run git or move much: how long nothing at all may happen.
const PROGRESS_WITHIN: Duration = Duration::from_secs(600);
/// For bringing out what an attempt left, likewise. The end of a swarm waits for it.
const REMAINS_WITHIN: Duration = Duration::from_secs(150);
/// How long to look for the cause of a depot's end.
const POST_MORTEM: Duration = Duration::from_secs(5);

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
    pub shim: Bytes,
    /// Memory limit in bytes; 0 for none.
    pub memory: u64,
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
}

/// What [`Depot::collect`] brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collected {
    /// `result.json`, hostile as it is; `None` where there is none.
    pub result: Option<Vec<u8>>,
    /// Whether there is a bundle, which then lies where it was asked for.
    pub bundle: bool,
}

/// What [`Depot::salvage`] brought.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// The commit; `None` where there is nothing beyond the base.
    pub commit: Option<CommitId>,
    /// Paths that are not in it, though they were there.
    pub left_out: Vec<String>,
}

/// What [`Depot::space`] found on the engine's machine, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Free on the volumes' disk.
    pub free: u64,
    /// The size of that disk.
    pub total: u64,
    /// Memory that new processes could have; 0 where that is not known.
    pub memory_available: u64,
}

/// A running depot. Clones speak to the same one; requests run side by side.
#[derive(Clone)]
pub struct Depot {
    engine: Arc<dyn Engine>,
    container: ContainerId,
    link: Arc<Link>,
}

impl Depot {
    /// Makes the volumes and the container, brings the shim, and waits until the depot is ready. A depot that an earlier
    /// orchestrator left is replaced. After an error nothing but the volumes is left.
    ///
    /// # Errors
    /// Those of the engine; [`EngineError::Depot`] where the container ends at once; [`EngineError::TimedOut`].
    pub async fn start(engine: Arc<dyn Engine>, spec: &DepotSpec) -> EngineResult<Self> {
        let of_swarm = |role: &str| {
            let labels = [(label::SWARM, spec.swarm.to_string()), (label::ROLE, role.to_owned())];
            BTreeMap::from(labels.map(|(key, value)| (key.to_owned(), value)))
        };
        let objects = [(label::REPO, spec.repo.clone()), (label::ROLE, "objects".to_owned())];
        let objects = BTreeMap::from(objects.map(|(key, value)| (key.to_owned(), value)));
        let (inbox, work) = (of_swarm("in"), of_swarm("work"));
        futures::try_join!(
            engine.ensure_volume(&spec.volumes.objects, &objects),
            engine.ensure_volume(&spec.volumes.inbox, &inbox),
            engine.ensure_volume(&spec.volumes.work, &work),
        )?;

        let body = container(spec, of_swarm("depot"));
        let container = match engine.create(&body).await {
            // The name is taken: by the depot of an orchestrator that died.
            Err(EngineError::Refused { status: 409, .. }) => {
                remove_stale(&*engine, spec.swarm).await?;
                engine.create(&body).await?
            }
            other => other?,
        };
        match Self::bring_up(Arc::clone(&engine), container.clone(), spec.shim.clone()).await {
            Ok(depot) => Ok(depot),
            Err(error) => {
                if let Err(left) = engine.remove(&container).await {
                    tracing::warn!(error = &left as &dyn std::error::Error, %container, "the depot could not be removed");
                }
                Err(error)
            }
        }
    }

    async fn bring_up(engine: Arc<dyn Engine>, container: ContainerId, shim: Bytes) -> EngineResult<Self> {
        engine.upload(&container, layout::IN, shim_archive(&shim)?).await?;
        let attachment = engine.attach(&container).await?;
        let (link, ready) = Link::open(attachment, post_mortem(Arc::clone(&engine), container.clone()));
        let depot = Self { engine: Arc::clone(&engine), container: container.clone(), link: Arc::new(link) };
        engine.start(&container).await?;
        match tokio::time::timeout(READY_WITHIN, ready).await {
            Ok(Ok(())) => Ok(depot),
            // The reader is gone, and has left word.
            Ok(Err(_)) => Err(depot.link.ended("starting")),
            Err(_) => Err(EngineError::TimedOut { operation: "starting the depot", after: READY_WITHIN }),
        }
    }

    /// The depot's container.
    pub fn container(&self) -> &ContainerId {
        &self.container
    }

    /// Makes the repository in the objects volume if it is not there; the commits that are complete in it.
    pub async fn objects(&self, format: &str) -> EngineResult<Vec<Tip>> {
        const OPERATION: &str = "preparing the objects volume";
        match self.ask(OPERATION, &Request::Objects { format: format.to_owned() }, ANSWER_WITHIN).await? {
            Answer::Objects { tips } => Ok(tips),
            other => Err(unexpected(OPERATION, &other)),
        }
    }

    /// Stores a pack, and remembers `tips` as complete. `shallow` is the host repo's file of that name.
    ///
    /// # Errors
    /// Also [`EngineError::Failed`] where `pack` cannot be read or is empty (even a pack of nothing has 32 bytes). The depot
    /// refuses what broke off: tips are never believed by halves.
    pub async fn store_pack(
        &self,
        pack: impl AsyncRead + Send + Unpin,
        tips: Vec<Tip>,
        shallow: String,
    ) -> EngineResult<()> {
        const OPERATION: &str = "storing a pack";
        let mut exchange = self.link.ask(OPERATION, &Request::StorePack { tips, shallow }, PROGRESS_WITHIN).await?;
        exchange.send_body(pack).await?;
        nothing(OPERATION, &exchange.answer().await?)
    }

    /// Makes an attempt's folders, owned by `uid`, with these files to read.
    pub async fn prepare(&self, folder: &str, uid: u32, files: Vec<TextFile>) -> EngineResult<()> {
        const OPERATION: &str = "preparing a sandbox's folders";
        let request = Request::Prepare { folder: folder.to_owned(), uid, files };
        nothing(OPERATION, &self.ask(OPERATION, &request, ANSWER_WITHIN).await?)
    }

    /// Brings out what an attempt left: `result.json`, and its bundle to the path given, whose folder must be there.
    /// No file is made where there is no bundle.
    pub async fn collect(&self, folder: &str, uid: u32, max_bytes: u64, bundle_to: &Path) -> EngineResult<Collected> {
        const OPERATION: &str = "collecting a result";
        let request = Request::Collect { folder: folder.to_owned(), uid, max_bytes };
        let most = max_bytes.saturating_add(RESULT_MAX_BYTES);
        let (answer, spool) = self.receive(OPERATION, &request, most, bundle_to).await?;
        let Answer::Collected { result_bytes, bundle } = answer else { return Err(unexpected(OPERATION, &answer)) };
        let rest = spool.length().checked_sub(result_bytes);
        if result_bytes > RESULT_MAX_BYTES || rest.is_none_or(|rest| bundle != (rest > 0)) {
            let length = spool.length();
            let message = format!("{length} bytes are not a result of {result_bytes} bytes with bundle: {bundle}");
            return Err(EngineError::Depot { operation: OPERATION, kind: None, message });
        }
        let result = spool.split(result_bytes, bundle_to).await?;
        Ok(Collected { result: Some(result).filter(|result| !result.is_empty()), bundle })
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
    ) -> EngineResult<Salvaged> {
        const OPERATION: &str = "salvaging a work folder";
        let (folder, base, reference) = (folder.to_owned(), base.clone(), reference.to_owned());
        let request = Request::Salvage { folder, uid, base, reference, max_bytes };
        let (answer, spool) = self.receive(OPERATION, &request, max_bytes, bundle_to).await?;
        let Answer::Salvaged { commit, mut left_out } = answer else { return Err(unexpected(OPERATION, &answer)) };
        if commit.is_some() != (spool.length() > 0) {
            let message = format!("{} bytes came with the commit {commit:?}", spool.length());
            return Err(EngineError::Depot { operation: OPERATION, kind: None, message });
        }
        spool.split(0, bundle_to).await?;
        // The process that said them was the sandbox's user's.
        left_out.truncate(LEFT_OUT_MAX);
        left_out.iter_mut().for_each(|path| *path = path.chars().take(LEFT_OUT_CHARS).collect());
        Ok(Salvaged { commit, left_out })
    }

    /// Removes an attempt's folders.
    pub async fn discard(&self, folder: &str, uid: u32) -> EngineResult<()> {
        const OPERATION: &str = "removing a sandbox's folders";
        let request = Request::Discard { folder: folder.to_owned(), uid };
        nothing(OPERATION, &self.ask(OPERATION, &request, PROGRESS_WITHIN).await?)
    }

    /// The space on the engine's disk, and its memory.
    pub async fn space(&self) -> EngineResult<Space> {
        const OPERATION: &str = "asking for free space";
        match self.ask(OPERATION, &Request::Space, ANSWER_WITHIN).await? {
            Answer::Space { free, total, memory_available } => Ok(Space { free, total, memory_available }),
            other => Err(unexpected(OPERATION, &other)),
        }
    }

    /// Removes the container; the volumes stay. Whatever is under way fails.
    pub async fn close(&self) -> EngineResult<()> {
        // The stream first: removal can hang on one that nobody reads.
        self.link.close("it was closed");
        self.engine.remove(&self.container).await
    }

    async fn ask(&self, operation: &'static str, request: &Request, within: Duration) -> EngineResult<Answer> {
        self.link.ask(operation, request, within).await?.answer().await
    }

    /// A request with data in its answer, taken by a task of its own: a caller that is slow to poll must not hold up the
    /// other requests.
    async fn receive(
        &self,
        operation: &'static str,
        request: &Request,
        most: u64,
        target: &Path,
    ) -> EngineResult<(Answer, Spool)> {
        let exchange = self.link.ask(operation, request, REMAINS_WITHIN).await?;
        let target = target.to_owned();
        let taking = async move { spool::receive(exchange, most, &target).await };
        match AbortOnDropHandle::new(tokio::spawn(taking)).await {
            Ok(taken) => taken,
            Err(panicked) => Err(EngineError::Failed { operation, source: Box::new(panicked) }),
        }
    }
}

fn container(spec: &DepotSpec, labels: BTreeMap<String, String>) -> ContainerSpec {
    let mount = |volume: &str, target: &str| VolumeMount {
        volume: volume.to_owned(),
        target: target.to_owned(),
        read_only: false,
        subpath: None,
    };
    ContainerSpec {
        name: spec.name.clone(),
        image: spec.image.clone(),
        argv: vec![layout::SHIM.to_owned(), "depot".to_owned()],
        env: Vec::new(),
        user: (0, 0),
        workdir: "/".to_owned(),
        labels,
        mounts: vec![
            mount(&spec.volumes.objects, layout::OBJECTS),
            mount(&spec.volumes.inbox, layout::IN),
            mount(&spec.volumes.work, layout::WORK),
        ],
        tmpfs: vec![("/tmp".to_owned(), "rw,nosuid,nodev,size=64m,mode=1777".to_owned())],
        memory: spec.memory,
        milli_cpus: 0,
        pids: PIDS,
        network: "none".to_owned(),
        capabilities: CAPABILITIES.map(str::to_owned).to_vec(),
    }
}

/// A tar with the shim where [`layout::SHIM`] says, relative to [`layout::IN`].
fn shim_archive(shim: &[u8]) -> EngineResult<Bytes> {
    let failed = |error| EngineError::Failed { operation: "packing the shim", source: Box::new(error) };
    let mut archive = tar::Builder::new(Vec::with_capacity(shim.len() + 4096));
    let entry = |kind, size| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mode(0o755);
        header
    };
    let mut folder = entry(tar::EntryType::Directory, 0);
    archive.append_data(&mut folder, "bin/", std::io::empty()).map_err(failed)?;
    let mut file = entry(tar::EntryType::Regular, shim.len() as u64);
    archive.append_data(&mut file, "bin/acp-shim", shim).map_err(failed)?;
    archive.into_inner().map(Bytes::from).map_err(failed)
}

/// Removes the depots of this swarm that nobody speaks to any more.
async fn remove_stale(engine: &dyn Engine, swarm: SwarmId) -> EngineResult<()> {
    for found in engine.find(label::SWARM, Some(&swarm.to_string())).await? {
        let is_depot = found.labels.get(label::ROLE).is_some_and(|role| role == "depot");
        if found.kind == FoundKind::Container
            && is_depot
            && let Ok(id) = found.id.parse()
        {
            engine.remove(&id).await?;
        }
    }
    Ok(())
}

/// What became of the container, as the end of a sentence.
fn post_mortem(engine: Arc<dyn Engine>, container: ContainerId) -> BoxFuture<'static, String> {
    Box::pin(async move {
        // The end of the stream comes a little before the end of the container.
        let _ = tokio::time::timeout(POST_MORTEM, engine.wait(&container)).await;
        match tokio::time::timeout(POST_MORTEM, engine.inspect(&container)).await {
            Err(_) => "and the engine does not say why".to_owned(),
            Ok(Err(error)) => format!("and the engine does not say why ({error})"),
            Ok(Ok(None)) => "and its container is gone".to_owned(),
            Ok(Ok(Some(state))) => match (state.exit_code, state.oom_killed) {
                (_, true) => "its container ran out of memory".to_owned(),
                (Some(code), false) => format!("its container ended with code {code}"),
                (None, false) => "though its container runs".to_owned(),
            },
        }
    })
}

fn nothing(operation: &'static str, answer: &Answer) -> EngineResult<()> {
    if *answer == Answer::Nothing { Ok(()) } else { Err(unexpected(operation, answer)) }
}

fn unexpected(operation: &'static str, answer: &Answer) -> EngineError {
    EngineError::Depot { operation, kind: None, message: format!("it answered another question: {answer:?}") }
}
