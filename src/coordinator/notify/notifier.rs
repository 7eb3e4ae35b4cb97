//! Notifies of escalations. Each job runs beside the loop and beside the SSOT's writer.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinError, JoinSet};
use tokio_util::task::AbortOnDropHandle;

use crate::coordinator::amp::escalation_listener::EscalationListener;
use crate::protocol::amp::message::{AmpMessage, AmpMessageType, MsgId};
use crate::protocol::amp::store::{Ssot, SsotResult};
use crate::state::SwarmDir;
use crate::swarm::SwarmSpec;

use super::command;
use super::policy::NotifyPolicy;
use super::post::{self, NotifyUrl};

/// The directory of the markers, in the swarm's directory.
pub(super) const MARKERS_DIR: &str = "notified";
/// The most concurrent notifications.
const MAX_CONCURRENT: usize = 4;

#[derive(Debug, Clone, Default)]
pub struct NotifyTargets {
    /// A shell command.
    pub command: Option<String>,
    /// A URL.
    pub url: Option<NotifyUrl>,
}

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

/// What all notifications share.
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

/// Runs the user's command and posts to the user's URL for each escalation.
pub struct EscalationNotifier {
    inner: Arc<NotifierInner>,
    seen: BTreeSet<MsgId>,
    jobs: mpsc::UnboundedSender<(NotifyChannel, AmpMessage)>,
    dispatcher: AbortOnDropHandle<()>,
}

impl EscalationNotifier {
    /// Must be called inside a runtime, which has to run as long as the swarm.
    pub fn new(targets: NotifyTargets, repo_root: &Path, dir: &SwarmDir, policy: NotifyPolicy) -> Self {
        let inner = Arc::new(NotifierInner {
            targets,
            repo_root: repo_root.to_owned(),
            markers_dir: dir.path().join(MARKERS_DIR),
            policy,
            permits: Semaphore::new(MAX_CONCURRENT),
            warned: AtomicBool::new(false),
            warnings: std::sync::OnceLock::new(),
        });
        let (jobs, queue) = mpsc::unbounded_channel();
        let dispatcher = AbortOnDropHandle::new(tokio::spawn(run_dispatcher(Arc::clone(&inner), queue)));
        Self { inner, seen: BTreeSet::new(), jobs, dispatcher }
    }

    /// Notifies of escalations that an earlier orchestrator wrote and did not notify of.
    pub fn notify_missed(&mut self, ssot: &Ssot, spec: &SwarmSpec) -> SsotResult<()> {
        for assignment in &spec.assignments {
            for id in ssot.task_message_ids(&assignment.id)? {
                if id.message_type() == AmpMessageType::Escalation
                    && self.channels().any(|channel| !self.inner.was_notified(channel, &id))
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
            for channel in self.channels().filter(|channel| !self.inner.was_notified(*channel, message.id())) {
                // The dispatcher ends only after this sender.
                let _ = self.jobs.send((channel, message.clone()));
            }
        }
    }

    fn set_warning_sender(&mut self, warnings: mpsc::UnboundedSender<String>) {
        let _ = self.inner.warnings.set(warnings);
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        let Self { inner, jobs, dispatcher, .. } = *self;
        drop(jobs);
        Box::pin(async move {
            if tokio::time::timeout(inner.policy.close_timeout, dispatcher).await.is_err() {
                inner.report_failure(
                    "not all notifications were sent in time; `longshore resume` of this swarm sends the rest"
                        .to_owned(),
                );
            }
        })
    }
}

/// Runs each job in a task of its own. Ends when the queue is closed and all jobs are done.
async fn run_dispatcher(inner: Arc<NotifierInner>, mut queue: mpsc::UnboundedReceiver<(NotifyChannel, AmpMessage)>) {
    let mut jobs = JoinSet::new();
    while let Some((channel, message)) = queue.recv().await {
        while let Some(ended) = jobs.try_join_next() {
            inner.report_panic(ended);
        }
        let inner = Arc::clone(&inner);
        jobs.spawn(async move { inner.notify(channel, &message).await });
    }
    while let Some(ended) = jobs.join_next().await {
        inner.report_panic(ended);
    }
}

impl NotifierInner {
    async fn notify(&self, channel: NotifyChannel, message: &AmpMessage) {
        // The semaphore is fair, so notifications start in order.
        let Ok(_permit) = self.permits.acquire().await else { return };
        let NotifyTargets { command, url } = &self.targets;
        let notified = match (channel, command, url) {
            (NotifyChannel::Command, Some(command), _) => {
                command::run(command, &self.repo_root, message, self.policy.command_timeout).await
            }
            (NotifyChannel::Url, _, Some(url)) => post::post(url, message, &self.policy).await,
            _ => Ok(()),
        };
        let marked = notified.and_then(|()| {
            std::fs::create_dir_all(&self.markers_dir)
                .and_then(|()| std::fs::write(self.marker_path(channel, message.id()), b""))
                .map_err(|error| format!("the notification was sent, but its marker cannot be written: {error}"))
        });
        if let Err(problem) = marked {
            self.report_failure(format!("cannot send {} to the {}: {problem}", message.id(), channel.as_str()));
        }
    }

    fn marker_path(&self, channel: NotifyChannel, id: &MsgId) -> PathBuf {
        self.markers_dir.join(format!("{id}.{}", channel.as_str()))
    }

    fn was_notified(&self, channel: NotifyChannel, id: &MsgId) -> bool {
        self.marker_path(channel, id).exists()
    }

    fn report_panic(&self, ended: Result<(), JoinError>) {
        if ended.is_err() {
            self.report_failure("a notification panicked: see longshore.log".to_owned());
        }
    }

    /// Logs every failure, and shows the first to the user.
    fn report_failure(&self, problem: String) {
        tracing::warn!(problem, "a notification failed");
        if !self.warned.swap(true, Ordering::Relaxed)
            && let Some(warnings) = self.warnings.get()
        {
            let _ = warnings.send(problem);
        }
    }
}
