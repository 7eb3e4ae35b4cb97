//! Why a swarm cannot start or continue.

use std::path::PathBuf;

use thiserror::Error;

use crate::delivery::DeliveryError;
use crate::engine::EngineError;
use crate::protocol::mailbox::store::MailboxError;
use crate::state::StateError;

/// Why a swarm could not continue. Everything decided before the error is in the journal.
#[derive(Debug, Error)]
pub enum CoordinatorError {
    /// The engine or the depot failed.
    #[error("the engine cannot run this swarm")]
    Engine(#[from] EngineError),
    /// Git on the host failed.
    #[error("the repository cannot be used")]
    Delivery(#[from] DeliveryError),
    /// The journal or the state file could not be written: nothing more is started, because it could not be accounted for.
    #[error("the swarm's record cannot be written")]
    State(#[from] StateError),
    /// The host's copy of the agents' mailbox failed.
    #[error("the mailbox cannot be kept")]
    Mailbox(#[from] MailboxError),
    /// The control socket could not be opened.
    #[error("cannot listen on `{path}`")]
    ControlSocket {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The directory for bundles that are being checked could not be created.
    #[error("cannot create the directory `{path}`")]
    IncomingDir {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}
