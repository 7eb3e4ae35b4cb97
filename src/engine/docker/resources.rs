//! The engine itself, images, volumes, networks, and the search for all of them by label.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bollard::models::{ContainerSummaryStateEnum, SystemInfo, SystemInfoCgroupVersionEnum, VolumeCreateRequest};
use bollard::query_parameters as query;
use bytes::Bytes;
use futures::StreamExt;

use super::client::{DockerEngine, LONG_TIMEOUT, not_found_as_none};
use super::lifecycle::retry_with_backoff;
use crate::engine::{
    CALL_TIMEOUT, EngineError, EngineInfo, EngineResource, EngineResourceKind, EngineResult, ImageInfo,
};

/// The longest time without output of a build.
const BUILD_IDLE_TIMEOUT: Duration = Duration::from_secs(1800);

impl DockerEngine {
    pub(super) async fn engine_info(&self) -> EngineResult<EngineInfo> {
        let operation = "identifying the engine";
        let (version, info) = futures::try_join!(
            self.call(operation, "", CALL_TIMEOUT, self.client.version()),
            self.call(operation, "", CALL_TIMEOUT, self.client.info()),
        )?;
        let podman = version.components.iter().flatten().find(|component| component.name.contains("Podman"));
        let name = match podman {
            Some(component) => format!("Podman {}", component.version),
            None => format!("Docker {}", version.version.unwrap_or_default()),
        };
        Ok(EngineInfo {
            name,
            api_version: version.api_version.unwrap_or_default(),
            endpoint: self.endpoint.clone(),
            arch: rust_arch(info.architecture.as_deref().or(version.arch.as_deref()).unwrap_or_default()),
            cpus: info.ncpu.and_then(|cpus| usize::try_from(cpus).ok()).unwrap_or(1).max(1),
            memory: info.mem_total.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(0),
            volume_subpath: self.volume_subpath,
            cgroup_version: if info.cgroup_version == Some(SystemInfoCgroupVersionEnum::_2) { 2 } else { 1 },
            missing_limits: missing_limits(&info),
        })
    }

    pub(super) async fn inspect_image(&self, name: &str) -> EngineResult<Option<ImageInfo>> {
        let operation = "looking for an image";
        // The name becomes part of a URL path.
        let is_invalid = |c: char| !(c.is_ascii_alphanumeric() || "._-:/@".contains(c));
        if name.is_empty() || name.starts_with(['/', '.']) || name.contains("..") || name.contains(is_invalid) {
            let message = format!("`{name}` is not a valid image name");
            return Err(EngineError::Refused { operation, status: 400, message });
        }
        let answer = self.call(operation, name, CALL_TIMEOUT, self.client.inspect_image(name)).await;
        let Some(image) = not_found_as_none(answer)? else { return Ok(None) };
        let config = image.config.unwrap_or_default();
        let path = config.env.into_iter().flatten().find_map(|pair| pair.strip_prefix("PATH=").map(str::to_owned));
        Ok(Some(ImageInfo {
            id: image.id.unwrap_or_default(),
            tags: image.repo_tags.unwrap_or_default(),
            arch: rust_arch(image.architecture.as_deref().unwrap_or_default()),
            path,
            size: image.size.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(0),
            labels: config.labels.into_iter().flatten().collect(),
        }))
    }

    pub(super) async fn list_images(&self, label: &str) -> EngineResult<Vec<ImageInfo>> {
        let options = query::ListImagesOptionsBuilder::default().filters(&label_filter(label, None)).build();
        let call = self.client.list_images(Some(options));
        let mut images = Vec::new();
        for summary in self.call("listing images", label, CALL_TIMEOUT, call).await? {
            // Skips images that were removed meanwhile.
            images.extend(self.inspect_image(&summary.id).await?);
        }
        Ok(images)
    }

    pub(super) async fn build(
        &self,
        tag: &str,
        context: Bytes,
        args: &[(String, String)],
        progress: &mut (dyn FnMut(&str) + Send),
    ) -> EngineResult<()> {
        let operation = "building an image";
        let args: HashMap<&str, &str> = args.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let options = query::BuildImageOptionsBuilder::default()
            .t(tag)
            .dockerfile("Dockerfile")
            .rm(true)
            .forcerm(true)
            .buildargs(&args)
            .build();
        let mut answers = self.client.build_image(options, None, Some(bollard::body_full(context)));
        let mut line = String::new();
        loop {
            let Ok(answer) = tokio::time::timeout(BUILD_IDLE_TIMEOUT, answers.next()).await else {
                return Err(EngineError::TimedOut { operation, after: BUILD_IDLE_TIMEOUT });
            };
            let Some(answer) = answer else { break };
            let answer = answer.map_err(|error| self.map_error(operation, tag, error))?;
            line.push_str(answer.stream.as_deref().unwrap_or_default());
            while let Some(end) = line.find('\n') {
                let whole: String = line.drain(..=end).collect();
                if !whole.trim().is_empty() {
                    progress(whole.trim_end());
                }
            }
        }
        if !line.trim().is_empty() {
            progress(line.trim_end());
        }
        Ok(())
    }

    pub(super) async fn create_volume(&self, name: &str, labels: &BTreeMap<String, String>) -> EngineResult<()> {
        let request = VolumeCreateRequest {
            name: Some(name.to_owned()),
            labels: Some(labels.clone().into_iter().collect()),
            ..VolumeCreateRequest::default()
        };
        self.call("creating a volume", name, CALL_TIMEOUT, self.client.create_volume(request)).await.map(drop)
    }

    pub(super) async fn delete_volume(&self, name: &str) -> EngineResult<()> {
        let once = || async {
            let call = self.client.remove_volume(name, None::<query::RemoveVolumeOptions>);
            not_found_as_none(self.call("removing a volume", name, LONG_TIMEOUT, call).await).map(drop)
        };
        // 409: its container was just removed, and the daemon has not released the volume yet.
        retry_with_backoff(once, |error| matches!(error, EngineError::Refused { status: 409, .. })).await
    }

    pub(super) async fn has_network(&self, name: &str) -> EngineResult<bool> {
        // The name becomes part of a URL path. Engines allow no other names.
        if name.starts_with('.') || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)) {
            return Ok(false);
        }
        let call = self.client.inspect_network(name, None);
        let answer = self.call("looking for a network", name, CALL_TIMEOUT, call).await;
        not_found_as_none(answer).map(|network| network.is_some())
    }

    pub(super) async fn delete_network(&self, name: &str) -> EngineResult<()> {
        let answer = self.call("removing a network", name, CALL_TIMEOUT, self.client.remove_network(name)).await;
        not_found_as_none(answer).map(drop)
    }

    pub(super) async fn search_resources(&self, label: &str, value: Option<&str>) -> EngineResult<Vec<EngineResource>> {
        let operation = "searching by label";
        let filters = label_filter(label, value);
        let containers = query::ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        let volumes = query::ListVolumesOptionsBuilder::default().filters(&filters).build();
        let networks = query::ListNetworksOptionsBuilder::default().filters(&filters).build();
        let images = query::ListImagesOptionsBuilder::default().filters(&filters).build();
        let (containers, volumes, networks, images) = futures::try_join!(
            self.call(operation, label, CALL_TIMEOUT, self.client.list_containers(Some(containers))),
            self.call(operation, label, CALL_TIMEOUT, self.client.list_volumes(Some(volumes))),
            self.call(operation, label, CALL_TIMEOUT, self.client.list_networks(Some(networks))),
            self.call(operation, label, CALL_TIMEOUT, self.client.list_images(Some(images))),
        )?;
        let mut found = Vec::new();
        for container in containers {
            let name = container.names.into_iter().flatten().next().unwrap_or_default();
            let (id, name) = (container.id.unwrap_or_default(), name.trim_start_matches('/').to_owned());
            let paused = container.state == Some(ContainerSummaryStateEnum::PAUSED);
            let running = paused || container.state == Some(ContainerSummaryStateEnum::RUNNING);
            let resource = resource(EngineResourceKind::Container, id, name, container.labels);
            found.push(EngineResource { running, paused, ..resource });
        }
        for volume in volumes.volumes.into_iter().flatten() {
            found.push(resource(EngineResourceKind::Volume, volume.name.clone(), volume.name, Some(volume.labels)));
        }
        for network in networks {
            let name = network.name.unwrap_or_default();
            found.push(resource(EngineResourceKind::Network, network.id.unwrap_or_default(), name, network.labels));
        }
        for image in images {
            let name = image.repo_tags.into_iter().next().unwrap_or_else(|| image.id.clone());
            found.push(resource(EngineResourceKind::Image, image.id, name, Some(image.labels)));
        }
        Ok(found)
    }
}

fn resource(
    kind: EngineResourceKind,
    id: String,
    name: String,
    labels: Option<HashMap<String, String>>,
) -> EngineResource {
    EngineResource { kind, id, name, labels: labels.into_iter().flatten().collect(), running: false, paused: false }
}

fn label_filter(label: &str, value: Option<&str>) -> HashMap<String, Vec<String>> {
    let filter = value.map_or_else(|| label.to_owned(), |value| format!("{label}={value}"));
    HashMap::from([("label".to_owned(), vec![filter])])
}

/// The architecture as Rust names it. Docker uses Go's names for images and the kernel's for the machine.
fn rust_arch(name: &str) -> String {
    match name {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        other => other,
    }
    .to_owned()
}

/// The limits that the engine reports as unsupported.
fn missing_limits(info: &SystemInfo) -> Vec<String> {
    let limits = [
        ("memory", info.memory_limit),
        ("swap", info.swap_limit),
        ("cpu", info.cpu_cfs_quota),
        ("processes", info.pids_limit),
    ];
    limits.into_iter().filter(|(_, has)| *has == Some(false)).map(|(name, _)| name.to_owned()).collect()
}
