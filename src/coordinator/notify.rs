//! Tells people who are elsewhere of each escalation: a command_timeout of theirs ([`command_timeout`]), a URL ([`send`]), or both.
//!
//! A message that was told leaves a marker in the swarm's folder, `notified/<msg_id>.<command|url>`: told once, as far as a
//! crash between the telling and the marker lets that be. What has none is told when the swarm is taken up again. All of it
//! is done beside the loop and beside the SSOT's writer; a failure is logged, shown once, and changes nothing.
//!
//! Made by `cli/`, given to the coordinator as its [`Heard`]. Must not: hold anything up, or show a URL whole.

mod command;
mod post;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use super::telling::EscalationListener;
use crate::protocol::amp::message::{AmpMessage, AmpMessageType, MsgId};
use crate::protocol::amp::store::{Ssot, SsotResult};
use crate::state::SwarmDir;
use crate::swarm::SwarmSpec;

pub use post::NotifyUrl;

/// The markers' folder in the swarm's.
const MARKERS_DIR: &str = "notified";
/// How many are told at once.
const MAX_CONCURRENT: usize = 4;

/// How long telling may take.
#[derive(Debug, Clone, Copy)]
pub struct NotifyPolicy {
    /// One run of the command.
    pub command_timeout: Duration,
    /// One request.
    pub request_timeout: Duration,
    /// The pause before the second request; it doubles from one to the next.
    pub retry_delay: Duration,
    /// Requests after the first.
    pub retries: usize,
    /// At the end of the swarm, for all that is still to be told.
    pub close_timeout: Duration,
}

impl Default for NotifyPolicy {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            command_timeout: seconds(30),
            request_timeout: seconds(10),
            retry_delay: seconds(1),
            retries: 6,
            close_timeout: seconds(10),
        }
    }
}

/// Who is to hear.
#[derive(Debug, Clone, Default)]
pub struct NotifyTargets {
    /// A shell command.
    pub command: Option<String>,
    /// A URL.
    pub url: Option<NotifyUrl>,
}

/// A way to somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NotifyChannel {
    Command,
    Url,
}

impl NotifyChannel {
    fn as_str(self) -> &'static str {
        match self {
            NotifyChannel::Command => "command",
            NotifyChannel::Url => "url",
        }
    }
}

/// What the tellers share.
struct NotifierInner {
    targets: NotifyTargets,
    /// The command's working directory.
    repo_root: PathBuf,
    markers_dir: PathBuf,
    policy: NotifyPolicy,
    permits: Semaphore,
    warned: AtomicBool,
    warnings: std::sync::OnceLock<mpsc::UnboundedSender<String>>,
}

/// Tells the listeners.
pub struct EscalationNotifier {
    inner: Arc<NotifierInner>,
    seen: BTreeSet<MsgId>,
    jobs: mpsc::UnboundedSender<(NotifyChannel, AmpMessage)>,
    dispatcher: AbortOnDropHandle<()>,
}

impl EscalationNotifier {
    /// Begins. Wants a runtime that goes on turning while the swarm runs.
    pub fn new(listeners: NotifyTargets, repo_root: &Path, dir: &SwarmDir, patience: NotifyPolicy) -> Self {
        let markers = dir.path().join(MARKERS_DIR);
        let shared = Arc::new(NotifierInner {
            targets: listeners,
            repo_root: repo_root.to_owned(),
            markers_dir: markers,
            policy: patience,
            permits: Semaphore::new(MAX_CONCURRENT),
            warned: AtomicBool::new(false),
            warnings: std::sync::OnceLock::new(),
        });
        let (jobs, wanted) = mpsc::unbounded_channel();
        let hub = AbortOnDropHandle::new(tokio::spawn(run_dispatcher(Arc::clone(&shared), wanted)));
        Self { inner: shared, seen: BTreeSet::new(), jobs, dispatcher: hub }
    }

    /// Tells what an orchestrator that is gone wrote, and did not get to tell.
    pub fn notify_missed(&mut self, ssot: &Ssot, spec: &SwarmSpec) -> SsotResult<()> {
        for assignment in &spec.assignments {
            for id in ssot.task_message_ids(&assignment.id)? {
                if id.message_type() == AmpMessageType::Escalation
                    && self.channels().any(|way| !self.inner.was_notified(way, &id))
                    && let Some(message) = ssot.message(&id)?
                {
                    self.on_escalation(&message);
                }
            }
        }
        Ok(())
    }

    fn channels(&self) -> impl Iterator<Item = NotifyChannel> + use<> {
        let NotifyTargets { command, url } = &self.inner.targets;
        let command = command.as_ref().map(|_| NotifyChannel::Command);
        command.into_iter().chain(url.as_ref().map(|_| NotifyChannel::Url))
    }
}

impl EscalationListener for EscalationNotifier {
    fn on_escalation(&mut self, message: &AmpMessage) {
        if self.seen.insert(message.id().clone()) {
            for way in self.channels().filter(|way| !self.inner.was_notified(*way, message.id())) {
                // The hub ends when this is closed.
                let _ = self.jobs.send((way, message.clone()));
            }
        }
    }

    fn set_warning_sender(&mut self, warnings: mpsc::UnboundedSender<String>) {
        let _ = self.inner.warnings.set(warnings);
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        let Self { inner: shared, jobs, dispatcher: hub, .. } = *self;
        drop(jobs);
        Box::pin(async move {
            if tokio::time::timeout(shared.policy.close_timeout, hub).await.is_err() {
                shared.report_failure(
                    "not all was told in time; `longshore resume` of this swarm tells the rest".to_owned(),
                );
            }
        })
    }
}

/// Starts a teller for each job; ends when there are no more jobs, and all are done.
async fn run_dispatcher(shared: Arc<NotifierInner>, mut wanted: mpsc::UnboundedReceiver<(NotifyChannel, AmpMessage)>) {
    let mut tellers = JoinSet::new();
    while let Some((way, message)) = wanted.recv().await {
        while let Some(told) = tellers.try_join_next() {
            report_panic(&shared, told);
        }
        let shared = Arc::clone(&shared);
        tellers.spawn(async move { shared.notify(way, &message).await });
    }
    while let Some(told) = tellers.join_next().await {
        report_panic(&shared, told);
    }
}

fn report_panic(shared: &NotifierInner, told: Result<(), tokio::task::JoinError>) {
    if told.is_err() {
        shared.report_failure("a part of longshore failed: see longshore.log".to_owned());
    }
}

impl NotifierInner {
    async fn notify(&self, way: NotifyChannel, message: &AmpMessage) {
        // Fair, so that they start in order.
        let Ok(_place) = self.permits.acquire().await else { return };
        let told = match (way, &self.targets) {
            (NotifyChannel::Command, NotifyTargets { command: Some(command), .. }) => {
                command::run(command, &self.repo_root, message, self.policy.command_timeout).await
            }
            (NotifyChannel::Url, NotifyTargets { url: Some(url), .. }) => post::post(url, message, &self.policy).await,
            _ => Ok(()),
        };
        let told = told.and_then(|()| {
            std::fs::create_dir_all(&self.markers_dir)
                .and_then(|()| std::fs::write(self.marker_path(way, message.id()), b""))
                .map_err(|error| format!("it was told, and that cannot be noted: {error}"))
        });
        if let Err(problem) = told {
            self.report_failure(format!("{} was not told to the {}: {problem}", message.id(), way.as_str()));
        }
    }

    fn marker_path(&self, way: NotifyChannel, id: &MsgId) -> PathBuf {
        self.markers_dir.join(format!("{id}.{}", way.as_str()))
    }

    fn was_notified(&self, way: NotifyChannel, id: &MsgId) -> bool {
        self.marker_path(way, id).exists()
    }

    /// All are logged, the first is shown.
    fn report_failure(&self, problem: String) {
        tracing::warn!(problem, "a notification failed");
        if !self.warned.swap(true, Ordering::Relaxed)
            && let Some(warnings) = self.warnings.get()
        {
            let _ = warnings.send(problem);
        }
    }
}
