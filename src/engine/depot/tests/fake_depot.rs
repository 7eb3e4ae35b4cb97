//! A depot for the tests of `coordinator/`: it serves the frames over the fake engine and keeps its volumes in memory, so that
//! they outlive its container. It runs no git: scripts of sandboxes provide their results.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::io::AsyncReadExt;

use super::super::frame_decoder::{DepotFrame, FrameDecoder};
use crate::engine::fake::FakeProcess;
use crate::handoff::depot::frames::{DATA_CHUNK_LEN, FrameKind, encode_frame};
use crate::handoff::depot::{DepotError, DepotErrorKind, DepotRequest, DepotResponse, ObjectTip, TextFile};
use crate::ids::CommitId;

/// The volumes. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct FakeVolumes {
    inner: Arc<Mutex<VolumeContents>>,
}

#[derive(Default)]
struct VolumeContents {
    tips: Vec<ObjectTip>,
    dirs: BTreeMap<String, FakeAttemptDir>,
}

/// An attempt's directories.
#[derive(Clone, Default)]
pub(crate) struct FakeAttemptDir {
    /// The assignment.
    pub files: Vec<TextFile>,
    /// `result.json`.
    pub result: Option<Vec<u8>>,
    pub bundle: Option<Vec<u8>>,
    /// The commit and the bundle of a salvage.
    pub salvage: Option<(CommitId, Vec<u8>)>,
    /// The paths that a salvage leaves out.
    pub left_out: Vec<String>,
}

impl FakeVolumes {
    pub(crate) fn attempt_dir(&self, name: &str) -> Option<FakeAttemptDir> {
        self.lock().dirs.get(name).cloned()
    }

    /// Changes an attempt's directories, if they exist.
    pub(crate) fn update_attempt_dir(&self, name: &str, change: impl FnOnce(&mut FakeAttemptDir)) {
        if let Some(dir) = self.lock().dirs.get_mut(name) {
            change(dir);
        }
    }

    pub(crate) fn attempt_dir_names(&self) -> Vec<String> {
        self.lock().dirs.keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VolumeContents> {
        self.inner.lock().expect("no test panics while it holds this")
    }

    /// Runs a depot on these volumes until its input ends.
    pub(crate) async fn serve(self, mut process: FakeProcess) -> i64 {
        let mut decoder = FrameDecoder::default();
        let mut chunk = vec![0; DATA_CHUNK_LEN];
        // Requests whose body is incomplete.
        let mut open: BTreeMap<u32, Vec<ObjectTip>> = BTreeMap::new();
        send(&process, 0, FrameKind::Ready, &[]);
        loop {
            match decoder.next_frame() {
                Ok(Some(DepotFrame { id, kind: FrameKind::Request, payload })) => {
                    match serde_json::from_slice(&payload).expect("a request") {
                        DepotRequest::StorePack { tips, .. } => drop(open.insert(id, tips)),
                        request => self.answer_request(&process, id, request),
                    }
                }
                Ok(Some(DepotFrame { id, kind: FrameKind::End, .. })) => {
                    let tips = open.remove(&id).expect("the end of a body that began");
                    let mut inner = self.lock();
                    inner.tips.retain(|tip| tips.iter().all(|new| new.name != tip.name));
                    inner.tips.extend(tips);
                    send_json(&process, id, FrameKind::Done, &DepotResponse::Empty);
                }
                Ok(Some(DepotFrame { kind: FrameKind::Data, .. })) => {}
                Ok(Some(other)) => panic!("a depot is not sent {other:?}"),
                Ok(None) => match process.stdin.read(&mut chunk).await {
                    Ok(0) | Err(_) => return 0,
                    Ok(count) => decoder.push(&chunk[..count]),
                },
                Err(problem) => panic!("{problem}"),
            }
        }
    }

    fn answer_request(&self, process: &FakeProcess, id: u32, request: DepotRequest) {
        let missing =
            |dir: &str| DepotError { kind: DepotErrorKind::NotFound, message: format!("there is no directory {dir}") };
        let answer = match request.clone() {
            DepotRequest::OpenObjects { .. } => Ok(DepotResponse::Objects { tips: self.lock().tips.clone() }),
            DepotRequest::StorePack { .. } => unreachable!("it waits for its body"),
            DepotRequest::Prepare { attempt_dir: dir, files, .. } => {
                // A repeated request keeps what exists.
                self.lock().dirs.entry(dir).or_default().files = files;
                Ok(DepotResponse::Empty)
            }
            DepotRequest::Collect { attempt_dir: dir, .. } => match self.attempt_dir(&dir) {
                None => Err(missing(&dir)),
                Some(found) => {
                    let result = found.result.unwrap_or_default();
                    let bundle = found.bundle.unwrap_or_default();
                    send_data(process, id, &[&result[..], &bundle[..]].concat());
                    Ok(DepotResponse::Collected { result_bytes: result.len() as u64, bundle: !bundle.is_empty() })
                }
            },
            DepotRequest::Salvage { attempt_dir: dir, .. } => match self.attempt_dir(&dir) {
                None => Err(missing(&dir)),
                Some(found) => {
                    let commit = found.salvage.map(|(commit, bundle)| {
                        send_data(process, id, &bundle);
                        commit
                    });
                    Ok(DepotResponse::Salvaged { commit, left_out: found.left_out })
                }
            },
            DepotRequest::Discard { attempt_dir: dir, .. } => {
                self.lock().dirs.remove(&dir);
                Ok(DepotResponse::Empty)
            }
            DepotRequest::OpenMailbox
            | DepotRequest::AssignOutbox { .. }
            | DepotRequest::WaitForMail(_)
            | DepotRequest::PutMail { .. } => {
                panic!("this depot has no mailbox: {request:?}")
            }
            DepotRequest::MeasureSpace => {
                Ok(DepotResponse::Space { free: 1 << 40, total: 1 << 40, memory_available: 1 << 40 })
            }
        };
        match answer {
            Ok(answer) => send_json(process, id, FrameKind::Done, &answer),
            Err(error) => send_json(process, id, FrameKind::Failed, &error),
        }
    }
}

fn send(process: &FakeProcess, id: u32, kind: FrameKind, payload: &[u8]) {
    process.output.write_stdout(encode_frame(id, kind, payload).expect("the payload fits a frame"));
}

fn send_json(process: &FakeProcess, id: u32, kind: FrameKind, answer: &impl serde::Serialize) {
    send(process, id, kind, &serde_json::to_vec(answer).expect("an answer is JSON"));
}

fn send_data(process: &FakeProcess, id: u32, bytes: &[u8]) {
    for chunk in bytes.chunks(DATA_CHUNK_LEN) {
        send(process, id, FrameKind::Data, chunk);
    }
}
