//! The request body that creates a container from a [`ContainerSpec`]. It fixes the hardening that the spec cannot change.
//!
//! Must not: call the daemon. The spec must name whatever is relaxed.

use std::collections::HashMap;

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigLogConfig, Mount, MountType, MountVolumeOptions,
    RestartPolicy, RestartPolicyNameEnum,
};

use crate::engine::{ContainerSpec, VolumeMount};

/// The size at which a container's log rotates; the engine keeps two files. Output without an attached reader is read from the log,
/// so the daemon's own settings, which may keep only a few megabytes, must not apply.
const LOG_MAX_SIZE: &str = "512m";

pub(super) fn create_body(spec: &ContainerSpec, subpaths: bool) -> ContainerCreateBody {
    let (program, arguments) = spec.argv.split_at(spec.argv.len().min(1));
    ContainerCreateBody {
        image: Some(spec.image.clone()),
        entrypoint: Some(program.to_vec()),
        cmd: Some(arguments.to_vec()),
        env: Some(spec.env.iter().map(|(key, value)| format!("{key}={value}")).collect()),
        user: Some(format!("{}:{}", spec.user.0, spec.user.1)),
        working_dir: Some(spec.workdir.clone()),
        labels: Some(spec.labels.clone().into_iter().collect()),
        tty: Some(false),
        open_stdin: Some(true),
        // With `StdinOnce`, the end of the first attachment would close the container's stdin.
        stdin_once: Some(false),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        stop_signal: Some("SIGTERM".to_owned()),
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".to_owned()]), ..HealthConfig::default() }),
        host_config: Some(host_config(spec, subpaths)),
        ..ContainerCreateBody::default()
    }
}

fn host_config(spec: &ContainerSpec, subpaths: bool) -> HostConfig {
    let memory = i64::try_from(spec.memory_limit).unwrap_or(i64::MAX);
    HostConfig {
        cap_drop: Some(vec!["ALL".to_owned()]),
        cap_add: Some(spec.added_capabilities.clone()),
        privileged: Some(false),
        security_opt: Some(vec!["no-new-privileges".to_owned()]),
        readonly_rootfs: Some(true),
        // The shim is the first process and reaps.
        init: Some(false),
        pids_limit: Some(spec.pids_limit),
        memory: Some(memory),
        // The sum of memory and swap: no swap.
        memory_swap: Some(memory),
        nano_cpus: Some(i64::try_from(spec.milli_cpus).unwrap_or(i64::MAX).saturating_mul(1_000_000)),
        network_mode: Some(spec.network.clone()),
        mounts: Some(spec.mounts.iter().map(|volume| mount(volume, subpaths)).collect()),
        tmpfs: Some(spec.tmpfs.iter().cloned().collect()),
        log_config: Some(HostConfigLogConfig {
            typ: Some("json-file".to_owned()),
            config: Some(HashMap::from([
                ("max-size".to_owned(), LOG_MAX_SIZE.to_owned()),
                ("max-file".to_owned(), "2".to_owned()),
            ])),
        }),
        restart_policy: Some(RestartPolicy { name: Some(RestartPolicyNameEnum::NO), maximum_retry_count: None }),
        // The exit state is evidence; longshore removes the container.
        auto_remove: Some(false),
        ..HostConfig::default()
    }
}

fn mount(volume: &VolumeMount, subpaths: bool) -> Mount {
    Mount {
        typ: Some(MountType::VOLUME),
        source: Some(volume.volume.clone()),
        target: Some(volume.target.clone()),
        read_only: Some(volume.read_only),
        volume_options: Some(MountVolumeOptions {
            // Files of the image at the mount point must not be copied to the volume.
            no_copy: Some(true),
            subpath: volume.subpath.clone().filter(|_| subpaths),
            ..MountVolumeOptions::default()
        }),
        ..Mount::default()
    }
}

#[cfg(test)]
mod tests;
