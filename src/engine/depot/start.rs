//! Starts a depot: volumes, container, shim, first frame.
//!
//! Called by `client.rs` for the first start and by `supervisor.rs` for restarts.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;

use super::connection::{DepotConnection, depot_error};
use super::spec::DepotSpec;
use crate::engine::{ContainerSpec, Engine, EngineError, EngineResourceKind, EngineResult, VolumeMount, label};
use crate::handoff::layout;
use crate::ids::{ContainerId, SwarmId};

/// The depot's root creates directories for other users and becomes those users.
const CAPABILITIES: [&str; 4] = ["CHOWN", "DAC_OVERRIDE", "SETGID", "SETUID"];
/// Git runs a few processes at a time for each request.
const PIDS_LIMIT: i64 = 1024;
/// The time from the start of the container to its first frame.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long to wait for the reason of a depot's exit.
const POST_MORTEM_TIMEOUT: Duration = Duration::from_secs(5);

/// The most bytes of a tar besides its one file.
const TAR_OVERHEAD: usize = 64 * 1024;
/// How often to create the container while its name is taken.
const MAX_CREATE_RETRIES: u32 = 5;
/// Added to the delay before each retry.
const CREATE_RETRY_DELAY: Duration = Duration::from_millis(200);

/// A depot's container and the connection to it.
#[derive(Clone)]
pub(super) struct RunningDepot {
    pub container: ContainerId,
    pub connection: Arc<DepotConnection>,
}

/// When to upload the shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShimInstall {
    Always,
    /// Only if the volume lacks this very shim. Sandboxes may be starting with the existing one.
    IfMissing,
}

/// Creates the volumes and the container, and waits until the depot is ready.
pub(super) async fn start_depot(
    engine: &Arc<dyn Engine>,
    spec: &DepotSpec,
    shim: ShimInstall,
) -> EngineResult<RunningDepot> {
    let labels = |owner: (&str, String), role: &str| {
        BTreeMap::from([(owner.0.to_owned(), owner.1), (label::ROLE.to_owned(), role.to_owned())])
    };
    let of_swarm = |role: &str| labels((label::SWARM, spec.swarm.to_string()), role);
    let objects = labels((label::REPO, spec.repo.clone()), "objects");
    let (inbox, work, mailbox) = (of_swarm("in"), of_swarm("work"), of_swarm("mailbox"));
    let with_mailbox = async {
        match &spec.volumes.mailbox {
            Some(volume) => engine.ensure_volume(volume, &mailbox).await,
            None => Ok(()),
        }
    };
    futures::try_join!(
        engine.ensure_volume(&spec.volumes.objects, &objects),
        engine.ensure_volume(&spec.volumes.inbox, &inbox),
        engine.ensure_volume(&spec.volumes.work, &work),
        with_mailbox,
    )?;

    let body = depot_container_spec(spec, of_swarm("depot"));
    let mut tries = 0;
    let container = loop {
        match engine.create(&body).await {
            // The name is taken by the depot of an orchestrator that died, whose creation may still be in progress.
            Err(EngineError::Refused { status: 409, .. }) if tries < MAX_CREATE_RETRIES => {
                tokio::time::sleep(CREATE_RETRY_DELAY * tries).await;
                remove_stale_depots(&**engine, spec.swarm).await?;
                tries += 1;
            }
            other => break other?,
        }
    };
    match install_and_start(engine, &container, spec, shim).await {
        Ok(connection) => Ok(RunningDepot { container, connection: Arc::new(connection) }),
        Err(error) => {
            if let Err(error) = engine.remove(&container).await {
                tracing::warn!(error = &error as &dyn std::error::Error, %container, "cannot remove the depot");
            }
            Err(error)
        }
    }
}

async fn install_and_start(
    engine: &Arc<dyn Engine>,
    container: &ContainerId,
    spec: &DepotSpec,
    shim: ShimInstall,
) -> EngineResult<DepotConnection> {
    if shim == ShimInstall::Always || !has_shim(&**engine, container, &spec.shim_binary).await {
        engine.upload(container, layout::IN, shim_tar(&spec.shim_binary)?).await?;
    }
    let streams = engine.attach(container).await?;
    let (connection, ready) = DepotConnection::open(streams, post_mortem(Arc::clone(engine), container.clone()));
    engine.start(container).await?;
    match tokio::time::timeout(READY_TIMEOUT, ready).await {
        Ok(Ok(())) => Ok(connection),
        // The connection closed, and has the reason.
        Ok(Err(_)) => Err(depot_error("starting", &connection.close_reason())),
        Err(_) => Err(EngineError::TimedOut { operation: "starting the depot", after: READY_TIMEOUT }),
    }
}

/// Whether the volume has this very shim. `false` if that cannot be read.
async fn has_shim(engine: &dyn Engine, container: &ContainerId, shim: &[u8]) -> bool {
    let Ok(mut chunks) = engine.download(container, layout::SHIM).await else { return false };
    let mut archive = Vec::new();
    while let Some(chunk) = chunks.next().await {
        match chunk {
            Ok(chunk) if archive.len() + chunk.len() <= shim.len() + TAR_OVERHEAD => archive.extend_from_slice(&chunk),
            _ => return false,
        }
    }
    let mut archive = tar::Archive::new(&archive[..]);
    let Ok(mut entries) = archive.entries() else { return false };
    let Some(Ok(mut entry)) = entries.next() else { return false };
    let mut found = Vec::new();
    let executable = entry.header().mode().is_ok_and(|mode| mode & 0o111 == 0o111);
    executable && entry.read_to_end(&mut found).is_ok() && found == shim
}

pub(super) fn depot_container_spec(spec: &DepotSpec, labels: BTreeMap<String, String>) -> ContainerSpec {
    let mount = |volume: &str, target: &str| VolumeMount {
        volume: volume.to_owned(),
        target: target.to_owned(),
        read_only: false,
        subpath: None,
    };
    let mut mounts = vec![
        mount(&spec.volumes.objects, layout::OBJECTS),
        mount(&spec.volumes.inbox, layout::IN),
        mount(&spec.volumes.work, layout::WORK),
    ];
    mounts.extend(spec.volumes.mailbox.as_deref().map(|volume| mount(volume, layout::MAILBOX)));
    ContainerSpec {
        name: spec.name.clone(),
        image: spec.image.clone(),
        argv: vec![layout::SHIM.to_owned(), "depot".to_owned()],
        env: Vec::new(),
        user: (0, 0),
        workdir: "/".to_owned(),
        labels,
        mounts,
        tmpfs: vec![("/tmp".to_owned(), "rw,nosuid,nodev,size=64m,mode=1777".to_owned())],
        memory_limit: spec.memory_limit,
        milli_cpus: 0,
        pids_limit: PIDS_LIMIT,
        network: "none".to_owned(),
        added_capabilities: CAPABILITIES.map(str::to_owned).to_vec(),
    }
}

/// A tar with the shim at the path of [`layout::SHIM`] relative to [`layout::IN`].
fn shim_tar(shim: &[u8]) -> EngineResult<Bytes> {
    let failed = |error| EngineError::Failed { operation: "packing the shim", source: Box::new(error) };
    let mut archive = tar::Builder::new(Vec::with_capacity(shim.len() + 4096));
    let entry = |kind, size| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mode(0o755);
        header
    };
    let mut dir = entry(tar::EntryType::Directory, 0);
    archive.append_data(&mut dir, "bin/", std::io::empty()).map_err(failed)?;
    let mut file = entry(tar::EntryType::Regular, shim.len() as u64);
    archive.append_data(&mut file, "bin/acp-shim", shim).map_err(failed)?;
    archive.into_inner().map(Bytes::from).map_err(failed)
}

/// Removes the swarm's depots that an earlier orchestrator or an interrupted start left.
pub(super) async fn remove_stale_depots(engine: &dyn Engine, swarm: SwarmId) -> EngineResult<()> {
    for found in engine.find_resources(label::SWARM, Some(&swarm.to_string())).await? {
        let is_depot = found.labels.get(label::ROLE).is_some_and(|role| role == "depot");
        if found.kind == EngineResourceKind::Container
            && is_depot
            && let Ok(id) = found.id.parse()
        {
            engine.remove(&id).await?;
        }
    }
    Ok(())
}

/// The state of the container, as the end of a sentence.
fn post_mortem(engine: Arc<dyn Engine>, container: ContainerId) -> BoxFuture<'static, String> {
    Box::pin(async move {
        // The stream ends shortly before the container exits.
        let _ = tokio::time::timeout(POST_MORTEM_TIMEOUT, engine.wait(&container)).await;
        match tokio::time::timeout(POST_MORTEM_TIMEOUT, engine.inspect(&container)).await {
            Err(_) => "and the engine does not report why".to_owned(),
            Ok(Err(error)) => format!("and the engine does not report why ({error})"),
            Ok(Ok(None)) => "and its container is gone".to_owned(),
            Ok(Ok(Some(state))) => match (state.exit_code, state.oom_killed) {
                (_, true) => "its container ran out of memory".to_owned(),
                (Some(code), false) => format!("its container ended with code {code}"),
                (None, false) => "although its container runs".to_owned(),
            },
        }
    })
}
