//! The depot's frames: how files travel between the host and a swarm's volumes over one attached stream.
//!
//! A frame is `id: u32 LE, kind: u8, length: u32 LE, payload`; both directions have the same form. A request is one
//! `DepotRequest` frame (JSON [`DepotRequest`]), then, for requests that have a body, `Data` frames and an `End`. The answer is any
//! number of `Data` frames, then one `Done` (JSON [`DepotResponse`]) or one `Failed` (JSON [`DepotError`]). Requests run side by
//! side; answers come as they are ready, and the frames of different ids may alternate. Ids are chosen by the host and not
//! used twice.

use serde::{Deserialize, Serialize};

use std::collections::BTreeMap;

pub mod frames;

use super::mailbox::{MailFileWrite, MailQuery, MessageNumbers, NewMailFile, RefusedMailFile};
use crate::ids::CommitId;

/// The most paths that a salvage says were left out.
pub const MAX_LEFT_OUT_PATHS: usize = 50;
/// The most characters of each.
pub const MAX_LEFT_OUT_PATH_CHARS: usize = 300;
/// What the host can ask.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum DepotRequest {
    /// Makes the bare repository in the objects volume if it is not there. DepotResponse: [`DepotResponse::OpenObjects`].
    #[serde(rename = "objects")]
    OpenObjects {
        /// `sha1` or `sha256`.
        format: String,
    },
    /// The body is a pack (not thin). It is stored, and `tips` are remembered as present. DepotResponse: [`DepotResponse::Empty`].
    StorePack {
        /// The commits that are complete in the volume once the pack is stored, each under a ref of its own.
        tips: Vec<ObjectTip>,
        /// The host repo's `shallow` file, whole; empty where it has none.
        shallow: String,
    },
    /// Makes a sandbox's folders for its uid. DepotResponse: [`DepotResponse::Empty`].
    Prepare {
        /// The attempt's folder name.
        #[serde(rename = "folder")]
        attempt_dir: String,
        /// Owner of all of it.
        uid: u32,
        /// Files below `IN/<folder>/`, made read-only with their parent folders.
        files: Vec<TextFile>,
    },
    /// Answers with `result.json` (its length in the answer), then the bundle, as `Data`. DepotResponse: [`DepotResponse::CollectedFiles`].
    Collect {
        /// The attempt's folder name.
        #[serde(rename = "folder")]
        attempt_dir: String,
        /// Read as this uid.
        uid: u32,
        /// Refuse a bundle larger than this, in bytes.
        max_bytes: u64,
    },
    /// Commits what is in the clone to a salvage ref and answers with a bundle of it as `Data`; for sandboxes whose shim is
    /// dead. DepotResponse: [`DepotResponse::SalvagedWork`].
    Salvage {
        /// The attempt's folder name.
        #[serde(rename = "folder")]
        attempt_dir: String,
        /// Run as this uid.
        uid: u32,
        /// Where the branch started.
        base: CommitId,
        /// The ref to commit to.
        reference: String,
        /// Refuse a bundle larger than this, in bytes.
        max_bytes: u64,
    },
    /// Removes an attempt's folders in *in* and *work*. DepotResponse: [`DepotResponse::Empty`].
    Discard {
        /// The attempt's folder name.
        #[serde(rename = "folder")]
        attempt_dir: String,
        /// Whose they are.
        uid: u32,
    },
    /// Free space and memory. DepotResponse: [`DepotResponse::MeasureSpace`].
    #[serde(rename = "space")]
    MeasureSpace,
    /// Makes the layout of the mailbox where it is not there. DepotResponse: [`DepotResponse::MailboxState`].
    #[serde(rename = "mail_open")]
    OpenMailbox,
    /// Gives an agent's outbox to a sandbox's user, with what is in it. DepotResponse: [`DepotResponse::Empty`].
    #[serde(rename = "mail_seat")]
    AssignOutbox {
        /// The agent.
        agent: String,
        /// The user.
        uid: u32,
    },
    /// Waits until the mailbox has what the host has not. The contents are the data, in the order of the answer's files.
    /// DepotResponse: [`DepotResponse::NewMail`].
    #[serde(rename = "mail_wait")]
    WaitForMail(MailQuery),
    /// Writes files of the host's. DepotResponse: [`DepotResponse::MailPut`].
    #[serde(rename = "mail_put")]
    PutMail {
        /// Which.
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

/// How a request ended well.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum DepotResponse {
    /// Nothing to say.
    #[serde(rename = "nothing")]
    Empty,
    /// What the volume has.
    Objects {
        /// Complete commits.
        tips: Vec<ObjectTip>,
    },
    /// The first `result_bytes` of the data are `result.json`, the rest is the bundle (none where `bundle` is false).
    Collected {
        /// Length of `result.json`; 0 where there is none.
        result_bytes: u64,
        /// Whether a bundle follows.
        bundle: bool,
    },
    /// The data is a bundle with one ref, unless `commit` is none: then there was nothing beyond `base`.
    Salvaged {
        /// The commit.
        commit: Option<CommitId>,
        /// Paths that are not in it, though they were there: what git does not take, or nobody may read. Special
        /// files (FIFOs, sockets, devices) hold no work and are not named. At most [`MAX_LEFT_OUT_PATHS`].
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        left_out: Vec<String>,
    },
    /// Bytes.
    Space {
        /// Free for the volumes.
        free: u64,
        /// In all.
        total: u64,
        /// Memory that the engine's machine could give to new processes; 0 where that is not known.
        #[serde(default)]
        memory_available: u64,
    },
    /// What the mailbox has already.
    #[serde(rename = "mail_has")]
    MailboxState {
        /// It was not there before.
        #[serde(rename = "fresh")]
        created: bool,
        /// The messages of each outbox.
        messages: BTreeMap<String, MessageNumbers>,
    },
    /// What the host has not.
    #[serde(rename = "mail")]
    NewMail {
        /// Messages and shared files; their contents are the data.
        files: Vec<NewMailFile>,
        /// Names in `shared` that the host knows and that are gone.
        #[serde(rename = "gone")]
        removed: Vec<String>,
        /// What is not carried, and why.
        refused: Vec<RefusedMailFile>,
        /// There is more than one answer takes: ask again.
        #[serde(rename = "more")]
        has_more: bool,
    },
    /// What was written.
    #[serde(rename = "mail_put")]
    MailWritten {
        /// The stamps of the shared files that were written.
        stamps: BTreeMap<String, String>,
        /// Paths where something else is, which stays.
        #[serde(rename = "kept")]
        conflicts: Vec<String>,
    },
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DepotError {
    /// What kind.
    pub kind: DepotErrorKind,
    /// The sentence.
    pub message: String,
}

/// Kinds of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DepotErrorKind {
    /// No space left.
    DiskFull,
    /// What was asked for is not there.
    NotFound,
    /// The sandbox's folder holds something that is refused: a link, a FIFO, a file over the limit.
    Refused,
    /// Git or the system said no.
    Failed,
}
