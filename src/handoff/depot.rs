//! The depot's protocol: how files travel between the host and a swarm's volumes over one attached stream of [`frames`].
//!
//! A request is one `Request` frame (JSON [`DepotRequest`]). A request with a body continues with `Data` frames and an `End`. The
//! response is any number of `Data` frames, then one `Done` (JSON [`DepotResponse`]) or one `Failed` (JSON [`DepotError`]). Requests
//! run concurrently; responses are sent as they are ready, and the frames of different ids may alternate. The host chooses ids and
//! uses none twice.

pub mod frames;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::mailbox::{MailFileWrite, MailQuery, MessageNumbers, NewMailFile, RefusedMailFile};
use crate::ids::CommitId;

/// The most paths that a salvage lists as left out.
pub const MAX_LEFT_OUT_PATHS: usize = 50;
/// The most characters of each.
pub const MAX_LEFT_OUT_PATH_CHARS: usize = 300;

/// A request of the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum DepotRequest {
    /// Creates the bare repository in the objects volume if it does not exist. Response: [`DepotResponse::Objects`].
    #[serde(rename = "objects")]
    OpenObjects {
        /// `sha1` or `sha256`.
        format: String,
    },
    /// Stores the pack in the body (not thin), and records `tips` as complete. Response: [`DepotResponse::Empty`].
    StorePack {
        /// The commits that are then complete in the volume, each with a ref.
        tips: Vec<ObjectTip>,
        /// The content of the host repo's `shallow` file; empty without one.
        shallow: String,
    },
    /// Creates an attempt's directories. Response: [`DepotResponse::Empty`].
    Prepare {
        /// The attempt's directory name.
        #[serde(rename = "folder")]
        attempt_dir: String,
        /// The agent's user: the owner of the directories but the work directory itself and `out`.
        uid: u32,
        /// The shim's user: the owner of those two.
        shim_uid: u32,
        /// Files below `IN/<attempt>/`, made read-only with their parent directories.
        files: Vec<TextFile>,
    },
    /// Sends `result.json`, then the bundle, as `Data`. Response: [`DepotResponse::Collected`].
    Collect {
        /// The attempt's directory name.
        #[serde(rename = "folder")]
        attempt_dir: String,
        /// The agent's user. The owner of the work directory reads; in those of older versions, that is the agent's user.
        uid: u32,
        /// The largest bundle to accept, in bytes.
        max_bytes: u64,
    },
    /// Commits the content of the clone to a salvage ref, and sends a bundle of it as `Data`. For sandboxes whose shim is dead.
    /// Response: [`DepotResponse::Salvaged`].
    Salvage {
        /// The attempt's directory name.
        #[serde(rename = "folder")]
        attempt_dir: String,
        /// The user that commits.
        uid: u32,
        /// The commit at which the branch started.
        base: CommitId,
        /// The salvage ref.
        reference: String,
        /// The largest bundle to accept, in bytes.
        max_bytes: u64,
    },
    /// Removes an attempt's directories in *in* and *work*. Response: [`DepotResponse::Empty`].
    Discard {
        /// The attempt's directory name.
        #[serde(rename = "folder")]
        attempt_dir: String,
        /// The agent's user.
        uid: u32,
    },
    /// Measures free space and memory. Response: [`DepotResponse::Space`].
    #[serde(rename = "space")]
    MeasureSpace,
    /// Creates the layout of the mailbox if it does not exist. Response: [`DepotResponse::MailboxState`].
    #[serde(rename = "mail_open")]
    OpenMailbox,
    /// Gives an agent's outbox and its content to a sandbox's user. Response: [`DepotResponse::Empty`].
    #[serde(rename = "mail_seat")]
    AssignOutbox {
        /// The owner of the outbox.
        agent: String,
        /// The sandbox's user.
        uid: u32,
    },
    /// Waits until the mailbox has something new for the host. The contents are the data, in the order of the response's files.
    /// Response: [`DepotResponse::NewMail`].
    #[serde(rename = "mail_wait")]
    WaitForMail(MailQuery),
    /// Writes files of the host. Response: [`DepotResponse::MailWritten`].
    #[serde(rename = "mail_put")]
    PutMail {
        /// The files to write.
        files: Vec<MailFileWrite>,
    },
}

/// A ref in the objects volume and the commit it names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObjectTip {
    /// Full ref name below `refs/`.
    pub name: String,
    /// The commit.
    pub commit: CommitId,
}

/// A small UTF-8 file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TextFile {
    /// Relative path, no `..`.
    pub path: String,
    /// Content.
    pub text: String,
}

/// The response to a request that succeeded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum DepotResponse {
    /// Done, without a result.
    #[serde(rename = "nothing")]
    Empty,
    /// The content of the objects volume.
    Objects {
        /// Complete commits.
        tips: Vec<ObjectTip>,
    },
    /// The first `result_bytes` of the data are `result.json`, the rest is the bundle, if there is one.
    Collected {
        /// The length of `result.json`; 0 if it does not exist.
        result_bytes: u64,
        /// Whether a bundle follows.
        bundle: bool,
    },
    /// The data is a bundle with one ref.
    Salvaged {
        /// The salvaged commit. `None`, without data, if there was nothing beyond `base`.
        commit: Option<CommitId>,
        /// Paths in the work tree that are not in the commit, because git refuses them or they are unreadable. FIFOs, sockets and
        /// devices hold no work and are not listed. At most [`MAX_LEFT_OUT_PATHS`].
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        left_out: Vec<String>,
    },
    /// Free space and memory, in bytes.
    Space {
        /// Free for the volumes.
        free: u64,
        /// The size of the file system.
        total: u64,
        /// Memory that the engine's machine has for new processes; 0 if unknown.
        #[serde(default)]
        memory_available: u64,
    },
    /// The content of the mailbox.
    #[serde(rename = "mail_has")]
    MailboxState {
        /// Whether the mailbox did not exist before.
        #[serde(rename = "fresh")]
        created: bool,
        /// The messages of each outbox.
        messages: BTreeMap<String, MessageNumbers>,
    },
    /// Messages and files that are new to the host.
    #[serde(rename = "mail")]
    NewMail {
        /// Messages and shared files. Their contents are the data.
        files: Vec<NewMailFile>,
        /// Names in `shared` that were removed.
        #[serde(rename = "gone")]
        removed: Vec<String>,
        /// Files that are not transferred, and why.
        refused: Vec<RefusedMailFile>,
        /// Whether there is more than fits one response.
        #[serde(rename = "more")]
        has_more: bool,
    },
    /// The result of [`DepotRequest::PutMail`].
    #[serde(rename = "mail_put")]
    MailWritten {
        /// The stamps of the written shared files.
        stamps: BTreeMap<String, String>,
        /// Paths that were not written because another file exists there.
        #[serde(rename = "kept")]
        conflicts: Vec<String>,
    },
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DepotError {
    /// The kind of error.
    pub kind: DepotErrorKind,
    /// The message.
    pub message: String,
}

/// Kinds of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DepotErrorKind {
    /// No space left.
    DiskFull,
    /// A file or directory does not exist.
    NotFound,
    /// A sandbox's directory contains something that is refused: a link, a FIFO, a file over the limit.
    Refused,
    /// Any other error of git or the system.
    Failed,
}
