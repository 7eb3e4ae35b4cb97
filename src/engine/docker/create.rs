//! The container that a [`ContainerSpec`] becomes: everything the spec does not say is fixed here, and closed.
//!
//! Must not: talk to the daemon. Whatever is relaxed must stand in the spec by name.

use std::collections::HashMap;

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigLogConfig, Mount, MountType, MountVolumeOptions,
    RestartPolicy, RestartPolicyNameEnum,
};

use super::super::{ContainerSpec, VolumeMount};

/// The log that the engine keeps of one container, twice this size at most: what was printed while nobody was attached is
/// read from it. Said here so that the daemon's own settings, which may rotate it after a few megabytes, do not apply.
const LOG_MAX_SIZE: &str = "512m";

/// The body of the create call.
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
        // With `StdinOnce` the first attach that goes away would end the container's stdin.
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
        // The shim is the first process, and reaps.
        init: Some(false),
        pids_limit: Some(spec.pids_limit),
        memory: Some(memory),
        // A total, not an addition: equal means no swap.
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
        // Its end is evidence: we remove it ourselves.
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
            // An image with files at the mount point must not fill our volume.
            no_copy: Some(true),
            subpath: volume.subpath.clone().filter(|_| subpaths),
            ..MountVolumeOptions::default()
        }),
        ..Mount::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> ContainerSpec {
        ContainerSpec {
            name: "n".to_owned(),
            image: "i".to_owned(),
            argv: vec!["/a".to_owned(), "b".to_owned(), "c".to_owned()],
            env: vec![("K".to_owned(), "v=w".to_owned())],
            user: (20_000, 20_001),
            workdir: "/w".to_owned(),
            labels: [("l".to_owned(), "1".to_owned())].into(),
            mounts: vec![VolumeMount {
                volume: "v".to_owned(),
                target: "/t".to_owned(),
                read_only: true,
                subpath: Some("sub".to_owned()),
            }],
            tmpfs: vec![("/tmp".to_owned(), "size=64m".to_owned())],
            memory_limit: 5,
            milli_cpus: 1_500,
            pids_limit: 7,
            network: "none".to_owned(),
            added_capabilities: Vec::new(),
        }
    }

    #[test]
    fn create_body_serializes_the_hardening() {
        let json = serde_json::to_value(create_body(&spec(), true)).unwrap();
        let host = &json["HostConfig"];
        assert_eq!(json["Entrypoint"], serde_json::json!(["/a"]));
        assert_eq!(json["Cmd"], serde_json::json!(["b", "c"]));
        assert_eq!(json["Env"], serde_json::json!(["K=v=w"]));
        assert_eq!(json["User"], "20000:20001");
        assert_eq!(json["Healthcheck"]["Test"], serde_json::json!(["NONE"]));
        assert_eq!(host["CapDrop"], serde_json::json!(["ALL"]));
        assert_eq!(host["SecurityOpt"], serde_json::json!(["no-new-privileges"]));
        assert_eq!((&host["Memory"], &host["MemorySwap"]), (&5.into(), &5.into()));
        assert_eq!(host["NanoCpus"], 1_500_000_000_i64);
        assert_eq!(host["RestartPolicy"]["Name"], "no");
        assert_eq!(host["Mounts"][0]["VolumeOptions"], serde_json::json!({"NoCopy": true, "Subpath": "sub"}));
        assert!(host.get("Binds").is_none());
    }

    #[test]
    fn subpath_is_omitted_without_engine_support() {
        let json = serde_json::to_value(create_body(&spec(), false)).unwrap();
        assert_eq!(json["HostConfig"]["Mounts"][0]["VolumeOptions"], serde_json::json!({"NoCopy": true}));
    }
}
