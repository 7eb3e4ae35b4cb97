//! Docker through bollard: the [`Engine`] of a Docker daemon, or of one with the same API.
//!
//! Only this module and its children use bollard: `client.rs` (the connection and the limits of calls), `containers.rs`, `create.rs`
//! (the hardened container), `lifecycle.rs` (start and removal), `streams.rs` (attach, logs, archives), `events.rs`,
//! `resources.rs` (images, volumes, networks, search), `error_mapping.rs`.
//!
//! - The client has no timeout of its own: every call is limited here, from connecting to the last byte. Only `wait`, `attach`,
//!   `logs` and `events` have no end by design; dropping them closes their connection.
//! - The client opens a connection per request, so the number of calls in flight is limited. Those four, `download` and `ping`
//!   do not count.
//! - A sandbox costs five calls: create, attach, start, wait and remove.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::future::BoxFuture;
use jiff::Timestamp;

use super::{
    AttachedStreams, ContainerInspection, ContainerSpec, Engine, EngineEvent, EngineInfo, EngineResource, EngineResult,
    EngineStream, ImageInfo, OutputChunk, Signal,
};
use crate::ids::ContainerId;

mod client;
mod containers;
mod create;
mod error_mapping;
mod events;
mod lifecycle;
mod resources;
mod streams;

pub use client::{DockerEngine, DockerOptions};

/// Implements each trait method by boxing an async method of [`DockerEngine`].
macro_rules! boxed {
    ($($method:ident($($arg:ident: $type:ty),*) -> $output:ty = $inherent:ident;)*) => {
        $(fn $method<'a>(&'a self, $($arg: $type),*) -> BoxFuture<'a, EngineResult<$output>> {
            Box::pin(self.$inherent($($arg),*))
        })*
    };
}

impl Engine for DockerEngine {
    boxed! {
        info() -> EngineInfo = engine_info;
        ping() -> () = ping_daemon;
        events(label: &'a str, value: &'a str, since: Timestamp) -> EngineStream<EngineEvent> = event_stream;
        image(name: &'a str) -> Option<ImageInfo> = inspect_image;
        images(label: &'a str) -> Vec<ImageInfo> = list_images;
        ensure_volume(name: &'a str, labels: &'a BTreeMap<String, String>) -> () = create_volume;
        create(spec: &'a ContainerSpec) -> ContainerId = create_container;
        upload(id: &'a ContainerId, path: &'a str, tar: Bytes) -> () = upload_archive;
        download(id: &'a ContainerId, path: &'a str) -> EngineStream<Bytes> = download_archive;
        attach(id: &'a ContainerId) -> AttachedStreams = attach_streams;
        start(id: &'a ContainerId) -> () = start_container;
        logs(id: &'a ContainerId, follow: bool) -> EngineStream<OutputChunk> = log_stream;
        wait(id: &'a ContainerId) -> i64 = wait_for_exit;
        inspect(id: &'a ContainerId) -> Option<ContainerInspection> = inspect_container;
        signal(id: &'a ContainerId, signal: Signal) -> () = signal_container;
        pause(id: &'a ContainerId) -> () = pause_container;
        unpause(id: &'a ContainerId) -> () = unpause_container;
        remove(id: &'a ContainerId) -> () = remove_container;
        remove_volume(name: &'a str) -> () = delete_volume;
        network_exists(name: &'a str) -> bool = has_network;
        remove_network(name: &'a str) -> () = delete_network;
        find_resources(label: &'a str, value: Option<&'a str>) -> Vec<EngineResource> = search_resources;
        top(id: &'a ContainerId) -> Vec<String> = list_processes;
    }

    fn build_image<'a>(
        &'a self,
        tag: &'a str,
        context: Bytes,
        args: &'a [(String, String)],
        progress: &'a mut (dyn FnMut(&str) + Send),
    ) -> BoxFuture<'a, EngineResult<()>> {
        Box::pin(self.build(tag, context, args, progress))
    }
}
