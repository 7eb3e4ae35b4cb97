//! Tells people who are elsewhere of each escalation: a command of theirs ([`command`]), a URL ([`post`]), or both.
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

use super::telling::Heard;
use crate::protocol::amp::message::{Kind, Message, MsgId};
use crate::protocol::amp::store::{Ssot, SsotResult};
use crate::state::SwarmDir;
use crate::swarm::SwarmSpec;

pub use post::NotifyUrl;

/// The markers' folder in the swarm's.
const MARKERS: &str = "notified";
/// How many are told at once.
const AT_ONCE: usize = 4;

/// How long telling may take.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// One run of the command.
    pub command: Duration,
    /// One request.
    pub request: Duration,
    /// The pause before the second request; it doubles from one to the next.
    pub pause: Duration,
    /// Requests after the first.
    pub retries: usize,
    /// At the end of the swarm, for all that is still to be told.
    pub closing: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { command: seconds(30), request: seconds(10), pause: seconds(1), retries: 6, closing: seconds(10) }
    }
}

/// Who is to hear.
#[derive(Debug, Clone, Default)]
pub struct Listeners {
    /// A shell command.
    pub command: Option<String>,
    /// A URL.
    pub url: Option<NotifyUrl>,
}

/// A way to somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Command,
    Url,
}

impl Way {
    fn word(self) -> &'static str {
        match self {
            Way::Command => "command",
            Way::Url => "url",
        }
    }
}

/// What the tellers share.
struct Shared {
    listeners: Listeners,
    /// The command's working directory.
    root: PathBuf,
    markers: PathBuf,
    patience: Patience,
    places: Semaphore,
    warned: AtomicBool,
    warnings: std::sync::OnceLock<mpsc::UnboundedSender<String>>,
}

/// Tells the listeners.
pub struct Notify {
    shared: Arc<Shared>,
    known: BTreeSet<MsgId>,
    jobs: mpsc::UnboundedSender<(Way, Message)>,
    hub: AbortOnDropHandle<()>,
}

impl Notify {
    /// Begins. Wants a runtime that goes on turning while the swarm runs.
    pub fn new(listeners: Listeners, repo_root: &Path, dir: &SwarmDir, patience: Patience) -> Self {
        let markers = dir.path().join(MARKERS);
        let shared = Arc::new(Shared {
            listeners,
            root: repo_root.to_owned(),
            markers,
            patience,
            places: Semaphore::new(AT_ONCE),
            warned: AtomicBool::new(false),
            warnings: std::sync::OnceLock::new(),
        });
        let (jobs, wanted) = mpsc::unbounded_channel();
        let hub = AbortOnDropHandle::new(tokio::spawn(hub(Arc::clone(&shared), wanted)));
        Self { shared, known: BTreeSet::new(), jobs, hub }
    }

    /// Tells what an orchestrator that is gone wrote, and did not get to tell.
    pub fn catch_up(&mut self, ssot: &Ssot, spec: &SwarmSpec) -> SsotResult<()> {
        for assignment in &spec.assignments {
            for id in ssot.ids_of(&assignment.id)? {
                if id.kind() == Kind::Escalation
                    && self.ways().any(|way| !self.shared.was_told(way, &id))
                    && let Some(message) = ssot.message(&id)?
                {
                    self.escalation(&message);
                }
            }
        }
        Ok(())
    }

    fn ways(&self) -> impl Iterator<Item = Way> + use<> {
        let Listeners { command, url } = &self.shared.listeners;
        let command = command.as_ref().map(|_| Way::Command);
        command.into_iter().chain(url.as_ref().map(|_| Way::Url))
    }
}

impl Heard for Notify {
    fn escalation(&mut self, message: &Message) {
        if self.known.insert(message.id().clone()) {
            for way in self.ways().filter(|way| !self.shared.was_told(*way, message.id())) {
                // The hub ends when this is closed.
                let _ = self.jobs.send((way, message.clone()));
            }
        }
    }

    fn warn(&mut self, warnings: mpsc::UnboundedSender<String>) {
        let _ = self.shared.warnings.set(warnings);
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        let Self { shared, jobs, hub, .. } = *self;
        drop(jobs);
        Box::pin(async move {
            if tokio::time::timeout(shared.patience.closing, hub).await.is_err() {
                shared.trouble("not all was told in time; `longshore resume` of this swarm tells the rest".to_owned());
            }
        })
    }
}

/// Starts a teller for each job; ends when there are no more jobs, and all are done.
async fn hub(shared: Arc<Shared>, mut wanted: mpsc::UnboundedReceiver<(Way, Message)>) {
    let mut tellers = JoinSet::new();
    while let Some((way, message)) = wanted.recv().await {
        while let Some(told) = tellers.try_join_next() {
            broken(&shared, told);
        }
        let shared = Arc::clone(&shared);
        tellers.spawn(async move { shared.tell(way, &message).await });
    }
    while let Some(told) = tellers.join_next().await {
        broken(&shared, told);
    }
}

fn broken(shared: &Shared, told: Result<(), tokio::task::JoinError>) {
    if told.is_err() {
        shared.trouble("a part of longshore failed: see longshore.log".to_owned());
    }
}

impl Shared {
    async fn tell(&self, way: Way, message: &Message) {
        // Fair, so that they start in order.
        let Ok(_place) = self.places.acquire().await else { return };
        let told = match (way, &self.listeners) {
            (Way::Command, Listeners { command: Some(command), .. }) => {
                command::run(command, &self.root, message, self.patience.command).await
            }
            (Way::Url, Listeners { url: Some(url), .. }) => post::post(url, message, &self.patience).await,
            _ => Ok(()),
        };
        let told = told.and_then(|()| {
            std::fs::create_dir_all(&self.markers)
                .and_then(|()| std::fs::write(self.marker(way, message.id()), b""))
                .map_err(|error| format!("it was told, and that cannot be noted: {error}"))
        });
        if let Err(problem) = told {
            self.trouble(format!("{} was not told to the {}: {problem}", message.id(), way.word()));
        }
    }

    fn marker(&self, way: Way, id: &MsgId) -> PathBuf {
        self.markers.join(format!("{id}.{}", way.word()))
    }

    fn was_told(&self, way: Way, id: &MsgId) -> bool {
        self.marker(way, id).exists()
    }

    /// All are logged, the first is shown.
    fn trouble(&self, problem: String) {
        tracing::warn!(problem, "a notification failed");
        if !self.warned.swap(true, Ordering::Relaxed)
            && let Some(warnings) = self.warnings.get()
        {
            let _ = warnings.send(problem);
        }
    }
}
