//! A container spec for tests that do not care about its details.

use crate::engine::ContainerSpec;

/// A container with this name and these labels.
pub fn container_spec(name: &str, labels: &[(&str, &str)]) -> ContainerSpec {
    ContainerSpec {
        name: name.to_owned(),
        image: "image".to_owned(),
        argv: Vec::new(),
        env: Vec::new(),
        user: (1, 1),
        workdir: "/".to_owned(),
        labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        mounts: Vec::new(),
        tmpfs: Vec::new(),
        memory_limit: 0,
        milli_cpus: 0,
        pids_limit: 1,
        network: "none".to_owned(),
        added_capabilities: Vec::new(),
    }
}
