//! The clients and services that all sessions share. Made by `event_loop.rs`, cloned for each session by `effects.rs`.

use std::sync::Arc;

use crate::delivery::Repo;
use crate::engine::Engine;
use crate::engine::depot::DepotClient;

use super::engine_monitor::EngineMonitor;
use super::event_queue::EventSender;
use super::mailbox::{MailboxHandle, SandboxExit};
use super::start::admission::Admission;
use super::start::objects_volume::ObjectsVolume;
use super::start::sandbox_spec::SandboxSpec;

/// The clients and services that all sessions share.
#[derive(Clone)]
pub(super) struct SessionContext {
    pub engine: Arc<dyn Engine>,
    pub depot: DepotClient,
    pub repo: Repo,
    pub objects: Arc<ObjectsVolume>,
    pub events: EventSender,
    pub engine_monitor: EngineMonitor,
    pub admission: Arc<Admission>,
    pub mailbox: Option<MailboxHandle>,
}

impl SessionContext {
    /// Reports the sandbox's end to the mailbox.
    pub fn report_exit(&self, spec: &SandboxSpec, exit: SandboxExit) {
        if let (Some(mailbox), Some(seat)) = (&self.mailbox, &spec.seat) {
            mailbox.report_exit(&seat.seat.agent, exit);
        }
    }
}
