//! The depot's frames: how files travel between the host and a swarm's volumes over one attached stream.
//!
//! A frame is `id: u32 LE, kind: u8, length: u32 LE, payload`; both directions have the same form. A request is one
//! `Request` frame (JSON [`Request`]), then, for requests that have a body, `Data` frames and an `End`. The answer is any
//! number of `Data` frames, then one `Done` (JSON [`Answer`]) or one `Failed` (JSON [`DepotFault`]). Requests run side by
//! side; answers come as they are ready, and the frames of different ids may alternate. Ids are chosen by the host and not
//! used twice.

use serde::{Deserialize, Serialize};

use std::collections::BTreeMap;

use super::mailbox::{Arrived, MailAsk, MailFile, Numbers, Refused};
use crate::ids::CommitId;

/// The largest payload of one frame, in bytes. A longer one is a fault of the stream and ends it.
pub const MAX_PAYLOAD: usize = 1024 * 1024;
/// The size of the `Data` frames that are written, in bytes.
pub const DATA_CHUNK: usize = 64 * 1024;
/// The most paths that a salvage says were left out.
pub const LEFT_OUT_MAX: usize = 50;
/// The most characters of each.
pub const LEFT_OUT_CHARS: usize = 300;
/// Bytes before the payload.
pub const HEADER: usize = 9;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Host to depot: JSON [`Request`].
    Request = 1,
    /// Either way: a piece of the body.
    Data = 2,
    /// Host to depot: the body is complete.
    End = 3,
    /// Depot to host: JSON [`Answer`]; the request is over.
    Done = 4,
    /// Depot to host: JSON [`DepotFault`]; the request is over.
    Failed = 5,
    /// Depot to host, once, with id 0 and no payload: the depot is ready.
    Ready = 6,
}

/// What the host can ask.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Makes the bare repository in the objects volume if it is not there. Answer: [`Answer::Objects`].
    Objects {
        /// `sha1` or `sha256`.
        format: String,
    },
    /// The body is a pack (not thin). It is stored, and `tips` are remembered as present. Answer: [`Answer::Nothing`].
    StorePack {
        /// The commits that are complete in the volume once the pack is stored, each under a ref of its own.
        tips: Vec<Tip>,
        /// The host repo's `shallow` file, whole; empty where it has none.
        shallow: String,
    },
    /// Makes a sandbox's folders for its uid. Answer: [`Answer::Nothing`].
    Prepare {
        /// The attempt's folder name.
        folder: String,
        /// Owner of all of it.
        uid: u32,
        /// Files below `IN/<folder>/`, made read-only with their parent folders.
        files: Vec<TextFile>,
    },
    /// Answers with `result.json` (its length in the answer), then the bundle, as `Data`. Answer: [`Answer::CollectedFiles`].
    Collect {
        /// The attempt's folder name.
        folder: String,
        /// Read as this uid.
        uid: u32,
        /// Refuse a bundle larger than this, in bytes.
        max_bytes: u64,
    },
    /// Commits what is in the clone to a salvage ref and answers with a bundle of it as `Data`; for sandboxes whose shim is
    /// dead. Answer: [`Answer::SalvagedWork`].
    Salvage {
        /// The attempt's folder name.
        folder: String,
        /// Run as this uid.
        uid: u32,
        /// Where the branch started.
        base: CommitId,
        /// The ref to commit to.
        reference: String,
        /// Refuse a bundle larger than this, in bytes.
        max_bytes: u64,
    },
    /// Removes an attempt's folders in *in* and *work*. Answer: [`Answer::Nothing`].
    Discard {
        /// The attempt's folder name.
        folder: String,
        /// Whose they are.
        uid: u32,
    },
    /// Free space and memory. Answer: [`Answer::Space`].
    Space,
    /// Makes the layout of the mailbox where it is not there. Answer: [`Answer::MailHas`].
    MailOpen,
    /// Gives an agent's outbox to a sandbox's user, with what is in it. Answer: [`Answer::Nothing`].
    MailSeat {
        /// The agent.
        agent: String,
        /// The user.
        uid: u32,
    },
    /// Waits until the mailbox has what the host has not. The contents are the data, in the order of the answer's files.
    /// Answer: [`Answer::Mail`].
    MailWait(MailAsk),
    /// Writes files of the host's. Answer: [`Answer::MailPut`].
    MailPut {
        /// Which.
        files: Vec<MailFile>,
    },
}

/// A ref in the objects volume and the commit it names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tip {
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
pub enum Answer {
    /// Nothing to say.
    Nothing,
    /// What the volume has.
    Objects {
        /// Complete commits.
        tips: Vec<Tip>,
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
        /// files (FIFOs, sockets, devices) hold no work and are not named. At most [`LEFT_OUT_MAX`].
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
    MailHas {
        /// It was not there before.
        fresh: bool,
        /// The messages of each outbox.
        messages: BTreeMap<String, Numbers>,
    },
    /// What the host has not.
    Mail {
        /// Messages and shared files; their contents are the data.
        files: Vec<Arrived>,
        /// Names in `shared` that the host knows and that are gone.
        gone: Vec<String>,
        /// What is not carried, and why.
        refused: Vec<Refused>,
        /// There is more than one answer takes: ask again.
        more: bool,
    },
    /// What was written.
    MailPut {
        /// The stamps of the shared files that were written.
        stamps: BTreeMap<String, String>,
        /// Paths where something else is, which stays.
        kept: Vec<String>,
    },
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DepotFault {
    /// What kind.
    pub kind: DepotFaultKind,
    /// The sentence.
    pub message: String,
}

/// Kinds of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DepotFaultKind {
    /// No space left.
    DiskFull,
    /// What was asked for is not there.
    NotFound,
    /// The sandbox's folder holds something that is refused: a link, a FIFO, a file over the limit.
    Refused,
    /// Git or the system said no.
    Failed,
}
