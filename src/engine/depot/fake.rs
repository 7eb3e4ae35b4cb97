//! A depot for the tests of `coordinator/`: it speaks the frames over the fake engine and keeps its volumes in memory, so that
//! they outlive its container, as volumes do. Git never runs in it: what sandboxes leave is laid down by their scripts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::io::AsyncReadExt;

use super::frames::{DepotFrame, FrameDecoder, encode_frame};
use crate::engine::fake::FakeProcess;
use crate::handoff::depot::{
    DATA_CHUNK_LEN, DepotError, DepotErrorKind, DepotRequest, DepotResponse, FrameKind, ObjectTip, TextFile,
};
use crate::ids::CommitId;

/// The volumes. Clones are the same ones.
#[derive(Clone, Default)]
pub(crate) struct FakeVolumes {
    inner: Arc<Mutex<VolumeContents>>,
}

#[derive(Default)]
struct VolumeContents {
    tips: Vec<ObjectTip>,
    dirs: BTreeMap<String, FakeAttemptDir>,
}

/// An attempt's folders.
#[derive(Clone, Default)]
pub(crate) struct FakeAttemptDir {
    /// What it is asked to do.
    pub files: Vec<TextFile>,
    /// `result.json`.
    pub result: Option<Vec<u8>>,
    /// The bundle.
    pub bundle: Option<Vec<u8>>,
    /// What a salvage finds.
    pub salvage: Option<(CommitId, Vec<u8>)>,
    /// What a salvage has to leave out.
    pub left_out: Vec<String>,
}

impl FakeVolumes {
    /// What is in an attempt's folders.
    pub(crate) fn attempt_dir(&self, name: &str) -> Option<FakeAttemptDir> {
        self.lock().dirs.get(name).cloned()
    }

    /// Changes an attempt's folders, where they are there.
    pub(crate) fn update_attempt_dir(&self, name: &str, change: impl FnOnce(&mut FakeAttemptDir)) {
        if let Some(folder) = self.lock().dirs.get_mut(name) {
            change(folder);
        }
    }

    /// The names of the folders that are there.
    pub(crate) fn attempt_dir_names(&self) -> Vec<String> {
        self.lock().dirs.keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VolumeContents> {
        self.inner.lock().expect("no test panics while it holds this")
    }

    /// Runs a depot on these volumes until its input ends.
    pub(crate) async fn serve(self, mut run: FakeProcess) -> i64 {
        let mut reader = FrameDecoder::default();
        let mut chunk = vec![0; DATA_CHUNK_LEN];
        // Requests with a body, until that is whole.
        let mut open: BTreeMap<u32, Vec<ObjectTip>> = BTreeMap::new();
        run.output.write_stdout(encode_frame(0, FrameKind::Ready, &[]));
        loop {
            match reader.next_frame() {
                Ok(Some(DepotFrame { id, kind: FrameKind::Request, payload })) => {
                    match serde_json::from_slice(&payload).expect("a request") {
                        DepotRequest::StorePack { tips, .. } => drop(open.insert(id, tips)),
                        request => self.answer_request(&run, id, request),
                    }
                }
                Ok(Some(DepotFrame { id, kind: FrameKind::End, .. })) => {
                    let tips = open.remove(&id).expect("the end of a body that began");
                    let mut inner = self.lock();
                    inner.tips.retain(|tip| tips.iter().all(|new| new.name != tip.name));
                    inner.tips.extend(tips);
                    run.output.write_stdout(encode_done(id, &DepotResponse::Empty));
                }
                Ok(Some(DepotFrame { kind: FrameKind::Data, .. })) => {}
                Ok(Some(other)) => panic!("a depot is not sent {other:?}"),
                Ok(None) => match run.stdin.read(&mut chunk).await {
                    Ok(0) | Err(_) => return 0,
                    Ok(count) => reader.push(&chunk[..count]),
                },
                Err(problem) => panic!("{problem}"),
            }
        }
    }

    fn answer_request(&self, run: &FakeProcess, id: u32, request: DepotRequest) {
        let missing = |folder: &str| DepotError {
            kind: DepotErrorKind::NotFound,
            message: format!("there is no folder {folder}"),
        };
        let answer = match request.clone() {
            DepotRequest::OpenObjects { .. } => Ok(DepotResponse::Objects { tips: self.lock().tips.clone() }),
            DepotRequest::StorePack { .. } => unreachable!("it waits for its body"),
            DepotRequest::Prepare { attempt_dir: folder, files, .. } => {
                // As often as it is asked: what is there already stays.
                self.lock().dirs.entry(folder).or_default().files = files;
                Ok(DepotResponse::Empty)
            }
            DepotRequest::Collect { attempt_dir: folder, .. } => match self.attempt_dir(&folder) {
                None => Err(missing(&folder)),
                Some(found) => {
                    let result = found.result.unwrap_or_default();
                    let bundle = found.bundle.unwrap_or_default();
                    send_data(run, id, &[&result[..], &bundle[..]].concat());
                    Ok(DepotResponse::Collected { result_bytes: result.len() as u64, bundle: !bundle.is_empty() })
                }
            },
            DepotRequest::Salvage { attempt_dir: folder, .. } => match self.attempt_dir(&folder) {
                None => Err(missing(&folder)),
                Some(found) => {
                    let commit = found.salvage.map(|(commit, bundle)| {
                        send_data(run, id, &bundle);
                        commit
                    });
                    Ok(DepotResponse::Salvaged { commit, left_out: found.left_out })
                }
            },
            DepotRequest::Discard { attempt_dir: folder, .. } => {
                self.lock().dirs.remove(&folder);
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
            Ok(answer) => run.output.write_stdout(encode_done(id, &answer)),
            Err(fault) => {
                run.output.write_stdout(encode_frame(
                    id,
                    FrameKind::Failed,
                    &serde_json::to_vec(&fault).expect("a fault is JSON"),
                ));
            }
        }
    }
}

fn encode_done(id: u32, answer: &DepotResponse) -> bytes::Bytes {
    encode_frame(id, FrameKind::Done, &serde_json::to_vec(answer).expect("an answer is JSON"))
}

fn send_data(run: &FakeProcess, id: u32, bytes: &[u8]) {
    for piece in bytes.chunks(DATA_CHUNK_LEN) {
        run.output.write_stdout(encode_frame(id, FrameKind::Data, piece));
    }
}
