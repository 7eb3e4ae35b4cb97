//! The depot's client against a depot that the test scripts frame by frame, over the fake engine.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::{mpsc, oneshot};

use super::client::PROGRESS_TIMEOUT;
use super::frame_decoder::{DepotFrame, FrameDecoder};
use super::start::depot_container_spec;
use super::*;
use crate::engine::fake::{FakeEngine, FakeOutput, FakeProcess};
use crate::engine::{Engine, EngineError, label};
use crate::handoff::depot::frames::{DATA_CHUNK_LEN, FrameKind, encode_frame};
use crate::handoff::depot::{
    DepotError, DepotErrorKind, DepotRequest, DepotResponse, MAX_LEFT_OUT_PATH_CHARS, MAX_LEFT_OUT_PATHS, ObjectTip,
    TextFile,
};
use crate::handoff::layout;
use crate::handoff::sandbox_users::SandboxUsers;

pub(crate) mod fake_depot;
mod restart;

const USERS: SandboxUsers = SandboxUsers { agent: 1, shim: 2 };
const DEPOT_NAME: &str = "longshore-a1b2c3d4-depot";

/// The depot's end of the stream.
struct ScriptedDepot {
    input: DuplexStream,
    output: FakeOutput,
    decoder: FrameDecoder,
    exit_sender: Option<oneshot::Sender<i64>>,
}

impl ScriptedDepot {
    async fn read_frame(&mut self) -> DepotFrame {
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                return frame;
            }
            let mut chunk = vec![0; 4096];
            let count = self.input.read(&mut chunk).await.unwrap();
            assert!(count > 0, "the host closed the depot's input");
            self.decoder.push(&chunk[..count]);
        }
    }

    async fn next_request(&mut self) -> (u32, DepotRequest) {
        let frame = self.read_frame().await;
        assert_eq!(frame.kind, FrameKind::Request, "{frame:?}");
        (frame.id, serde_json::from_slice(&frame.payload).unwrap())
    }

    /// Reads a body to its end.
    async fn read_body(&mut self, id: u32) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let frame = self.read_frame().await;
            assert_eq!(frame.id, id);
            match frame.kind {
                FrameKind::Data => body.extend_from_slice(&frame.payload),
                FrameKind::End => return body,
                other => panic!("{other:?} within a body"),
            }
        }
    }

    fn send(&self, id: u32, kind: FrameKind, payload: &[u8]) {
        self.output.write_stdout(encode_frame(id, kind, payload).unwrap());
    }

    fn send_answer(&self, id: u32, answer: &DepotResponse) {
        self.send(id, FrameKind::Done, &serde_json::to_vec(answer).unwrap());
    }

    fn exit(&mut self, code: i64) {
        self.exit_sender.take().unwrap().send(code).unwrap();
    }
}

/// An engine whose containers the test scripts through the receiver.
fn scripted_engine() -> (FakeEngine, mpsc::UnboundedReceiver<ScriptedDepot>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let engine = FakeEngine::new(move |run: FakeProcess| {
        let (end, ended) = oneshot::channel();
        let scripted = ScriptedDepot {
            input: run.stdin,
            output: run.output,
            decoder: FrameDecoder::default(),
            exit_sender: Some(end),
        };
        assert!(sender.send(scripted).is_ok());
        async move { ended.await.unwrap_or(0) }
    });
    (engine, receiver)
}

fn depot_spec() -> DepotSpec {
    DepotSpec {
        reuse_shim: false,
        swarm: "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d".parse().unwrap(),
        repo: "0123456789ab".to_owned(),
        image: "image".to_owned(),
        name: DEPOT_NAME.to_owned(),
        volumes: DepotVolumes { objects: "o".to_owned(), inbox: "i".to_owned(), work: "w".to_owned(), mailbox: None },
        shim_binary: Bytes::from_static(b"the shim"),
        memory_limit: 0,
    }
}

/// Takes the next container and reports it as ready.
async fn next_ready(containers: &mut mpsc::UnboundedReceiver<ScriptedDepot>) -> ScriptedDepot {
    let scripted = containers.recv().await.unwrap();
    scripted.send(0, FrameKind::Ready, &[]);
    scripted
}

/// A running depot, its scripted end, and the ends of its successors.
async fn start_restartable_depot() -> (DepotClient, ScriptedDepot, FakeEngine, mpsc::UnboundedReceiver<ScriptedDepot>) {
    let (engine, mut containers) = scripted_engine();
    let spec = depot_spec();
    let starting = DepotClient::start(Arc::new(engine.clone()), &spec);
    let (depot, scripted) = tokio::join!(starting, next_ready(&mut containers));
    (depot.unwrap(), scripted, engine, containers)
}

async fn start_depot() -> (DepotClient, ScriptedDepot, FakeEngine) {
    let (depot, scripted, engine, _) = start_restartable_depot().await;
    (depot, scripted, engine)
}

fn depot_message(error: &EngineError) -> String {
    assert!(matches!(error, EngineError::Depot { .. }), "{error:?}");
    error.to_string()
}

#[tokio::test(start_paused = true)]
async fn start_creates_volumes_and_uploads_the_shim() {
    let (depot, _played, engine) = start_depot().await;
    let calls = engine.calls();
    let order = ["create", "upload", "attach", "start"].map(|call| format!("{call} {DEPOT_NAME}"));
    assert_eq!(calls[3..], order, "{calls:?}");
    let volumes = engine.volumes();
    assert_eq!(volumes["o"][label::REPO], "0123456789ab");
    assert!(!volumes["o"].contains_key(label::SWARM), "the objects are no swarm's own");
    assert_eq!(volumes["w"][label::ROLE], "work");
    let (path, tar) = engine.uploads(DEPOT_NAME).remove(0);
    assert_eq!(path, layout::IN);
    let mut archive = tar::Archive::new(&tar[..]);
    let entries: Vec<_> = archive
        .entries()
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.path().unwrap().display().to_string(), entry.header().mode().unwrap(), entry.size())
        })
        .collect();
    assert_eq!(entries, [("bin/".to_owned(), 0o755, 0), ("bin/acp-shim".to_owned(), 0o755, 8)]);
    depot.close().await.unwrap();
    assert!(engine.containers().is_empty());
    assert!(depot_message(&depot.free_space().await.unwrap_err()).ends_with("it was closed"));
}

#[tokio::test(start_paused = true)]
async fn start_replaces_a_stale_depot() {
    let (engine, mut containers) = scripted_engine();
    let left = depot_container_spec(
        &depot_spec(),
        BTreeMap::from([
            (label::SWARM.to_owned(), depot_spec().swarm.to_string()),
            (label::ROLE.to_owned(), "depot".to_owned()),
        ]),
    );
    engine.create(&left).await.unwrap();
    let spec = depot_spec();
    let starting = DepotClient::start(Arc::new(engine.clone()), &spec);
    let (depot, _scripted) = tokio::join!(starting, next_ready(&mut containers));
    depot.unwrap();
    assert_eq!(engine.containers(), [DEPOT_NAME]);
}

#[tokio::test(start_paused = true)]
async fn a_depot_that_exits_at_start_reports_why_and_is_removed() {
    let (engine, mut containers) = scripted_engine();
    let spec = depot_spec();
    let starting = DepotClient::start(Arc::new(engine.clone()), &spec);
    let script = async {
        let mut scripted = containers.recv().await.unwrap();
        scripted.output.write_stderr("exec format error\n");
        scripted.exit(126);
    };
    let (depot, ()) = tokio::join!(starting, script);
    let text = depot_message(&depot.err().unwrap());
    assert!(text.contains("its container ended with code 126; stderr: exec format error"), "{text}");
    assert!(engine.containers().is_empty());
}

#[tokio::test(start_paused = true)]
async fn start_times_out_without_a_ready_frame() {
    let (engine, mut containers) = scripted_engine();
    let error = DepotClient::start(Arc::new(engine.clone()), &depot_spec()).await.err().unwrap();
    assert!(matches!(error, EngineError::TimedOut { .. }), "{error:?}");
    assert!(engine.containers().is_empty());
    containers.recv().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn answers_may_arrive_in_any_order() {
    let (depot, mut scripted, _engine) = start_depot().await;
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    let script = async {
        let mut ids = BTreeMap::new();
        for _ in 0..3 {
            let (id, request) = scripted.next_request().await;
            let name = match request {
                DepotRequest::Collect { attempt_dir, .. } => attempt_dir,
                DepotRequest::MeasureSpace => "space".to_owned(),
                other => panic!("{other:?}"),
            };
            ids.insert(name, id);
        }
        // The pieces alternate, and the last request is answered first.
        scripted.send(ids["b"], FrameKind::Data, b"{}");
        scripted.send(ids["a"], FrameKind::Data, b"[1,2]bun");
        scripted.send_answer(ids["space"], &DepotResponse::Space { free: 1, total: 2, memory_available: 7 });
        scripted.send(ids["a"], FrameKind::Data, b"dle");
        scripted.send_answer(ids["b"], &DepotResponse::Collected { result_bytes: 2, bundle: false });
        scripted.send_answer(ids["a"], &DepotResponse::Collected { result_bytes: 5, bundle: true });
    };
    let (a, b, space, ()) = tokio::join!(
        depot.collect("a", 20_000, 100, &one),
        depot.collect("b", 20_001, 100, &two),
        depot.free_space(),
        script
    );
    assert_eq!(a.unwrap(), CollectedFiles { result: Some(b"[1,2]".to_vec()), has_bundle: true });
    assert_eq!(b.unwrap(), CollectedFiles { result: Some(b"{}".to_vec()), has_bundle: false });
    assert_eq!(space.unwrap(), EngineSpace { free: 1, total: 2, memory_available: 7 });
    assert_eq!(std::fs::read(&one).unwrap(), b"bundle");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing but the one bundle");
}

#[tokio::test]
async fn large_bundles_are_spooled_to_a_file() {
    let (depot, mut scripted, _engine) = start_depot().await;
    let dir = tempfile::tempdir().unwrap();
    let bundle: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
    let to = dir.path().join("bundle");
    let script = async {
        let (id, _) = scripted.next_request().await;
        scripted.send(id, FrameKind::Data, b"{\"a\":1}");
        bundle.chunks(DATA_CHUNK_LEN).for_each(|chunk| scripted.send(id, FrameKind::Data, chunk));
        scripted.send_answer(id, &DepotResponse::Collected { result_bytes: 7, bundle: true });
        let (id, request) = scripted.next_request().await;
        assert!(matches!(request, DepotRequest::Salvage { .. }));
        bundle.chunks(DATA_CHUNK_LEN).for_each(|chunk| scripted.send(id, FrameKind::Data, chunk));
        let left_out = vec!["é".repeat(MAX_LEFT_OUT_PATH_CHARS + 1); MAX_LEFT_OUT_PATHS + 1];
        scripted.send_answer(id, &DepotResponse::Salvaged { commit: Some("0".repeat(40).parse().unwrap()), left_out });
    };
    let asking = async {
        let collected = depot.collect("a", 20_000, 2_000_000, &to).await.unwrap();
        assert_eq!(collected, CollectedFiles { result: Some(b"{\"a\":1}".to_vec()), has_bundle: true });
        assert!(std::fs::read(&to).unwrap() == bundle);
        let base = "1".repeat(40).parse().unwrap();
        let to = dir.path().join("salvage");
        let salvaged = depot.salvage("a", 20_000, &base, "refs/x", 2_000_000, &to).await.unwrap();
        assert_eq!(salvaged.commit.unwrap().as_str(), "0".repeat(40));
        assert_eq!(salvaged.left_out.len(), MAX_LEFT_OUT_PATHS, "it is the sandbox's word, and bounded here too");
        assert!(salvaged.left_out.iter().all(|path| path.chars().count() == MAX_LEFT_OUT_PATH_CHARS));
        assert!(std::fs::read(&to).unwrap() == bundle);
    };
    tokio::join!(script, asking);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "no part is left");
}

#[tokio::test]
async fn oversized_data_is_refused_and_leaves_no_file() {
    let (depot, mut scripted, _engine) = start_depot().await;
    let dir = tempfile::tempdir().unwrap();
    let base = "1".repeat(40).parse().unwrap();
    let to = dir.path().join("bundle");
    let script = async {
        let (id, _) = scripted.next_request().await;
        for _ in 0..8 {
            scripted.send(id, FrameKind::Data, &[7; DATA_CHUNK_LEN]);
        }
        // It ends late: the host has stopped listening, and goes on with the next request.
        scripted.send_answer(
            id,
            &DepotResponse::Salvaged { commit: Some("0".repeat(40).parse().unwrap()), left_out: Vec::new() },
        );
        let (id, _) = scripted.next_request().await;
        scripted.send_answer(id, &DepotResponse::Space { free: 3, total: 4, memory_available: 7 });
    };
    let asking = async {
        let error = depot.salvage("a", 20_000, &base, "refs/x", 400_000, &to).await.unwrap_err();
        assert!(matches!(error, EngineError::Depot { kind: Some(DepotErrorKind::Refused), .. }), "{error:?}");
        assert_eq!(depot.free_space().await.unwrap(), EngineSpace { free: 3, total: 4, memory_available: 7 });
    };
    tokio::join!(script, asking);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn answers_that_contradict_their_data_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("bundle");
    for (data, result_bytes, bundle) in [("abc", 4, false), ("abc", 2, false), ("abc", 3, true), ("", 0, true)] {
        let (depot, mut scripted, _engine) = start_depot().await;
        let script = async {
            let (id, _) = scripted.next_request().await;
            scripted.send(id, FrameKind::Data, data.as_bytes());
            scripted.send_answer(id, &DepotResponse::Collected { result_bytes, bundle });
        };
        let (collected, ()) = tokio::join!(depot.collect("a", 1, 10, &to), script);
        let text = depot_message(&collected.unwrap_err());
        assert!(text.contains("are not a result of"), "{text}");
        assert!(!to.exists());
    }
}

#[tokio::test(start_paused = true)]
async fn collect_without_result_returns_none() {
    let (depot, mut scripted, _engine) = start_depot().await;
    let script = async {
        let (id, _) = scripted.next_request().await;
        scripted.send_answer(id, &DepotResponse::Collected { result_bytes: 0, bundle: false });
    };
    let (collected, ()) = tokio::join!(depot.collect("a", 1, 10, Path::new("/nowhere/bundle")), script);
    assert_eq!(collected.unwrap(), CollectedFiles { result: None, has_bundle: false });
}

#[tokio::test(start_paused = true)]
async fn packs_are_streamed_without_blocking_other_requests() {
    let (depot, mut scripted, _engine) = start_depot().await;
    let pack: Vec<u8> = (0..300_000_u32).map(|n| (n % 253) as u8).collect();
    let (mut source, body) = tokio::io::duplex(1024);
    let tips = vec![ObjectTip { name: "longshore/base".to_owned(), commit: "0".repeat(40).parse().unwrap() }];
    let storing = tokio::spawn({
        let (depot, tips) = (depot.clone(), tips.clone());
        async move { depot.store_pack(body, tips, "shallow\n".to_owned()).await }
    });
    let (pack_id, request) = scripted.next_request().await;
    assert_eq!(request, DepotRequest::StorePack { tips, shallow: "shallow\n".to_owned() });
    // The pack waits for its source, and another request does not wait for the pack.
    let (space, ()) = tokio::join!(depot.free_space(), async {
        let (id, _) = scripted.next_request().await;
        scripted.send_answer(id, &DepotResponse::Space { free: 1, total: 1, memory_available: 7 });
    });
    space.unwrap();
    let feeding = async {
        source.write_all(&pack).await.unwrap();
        drop(source);
    };
    let (body, ()) = tokio::join!(scripted.read_body(pack_id), feeding);
    assert!(body == pack);
    assert!(!storing.is_finished());
    scripted.send_answer(pack_id, &DepotResponse::Empty);
    storing.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_ends_a_pack_early() {
    let (depot, mut scripted, _engine) = start_depot().await;
    // A pack that never ends.
    let storing = tokio::spawn({
        let depot = depot.clone();
        async move { depot.store_pack(tokio::io::repeat(7), Vec::new(), String::new()).await }
    });
    let (id, _) = scripted.next_request().await;
    let fault = DepotError { kind: DepotErrorKind::DiskFull, message: "no space".to_owned() };
    scripted.send(id, FrameKind::Failed, &serde_json::to_vec(&fault).unwrap());
    scripted.read_body(id).await;
    let error = storing.await.unwrap().unwrap_err();
    assert!(matches!(error, EngineError::Depot { kind: Some(DepotErrorKind::DiskFull), .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_pack_is_terminated_for_the_depot() {
    let (depot, mut scripted, _engine) = start_depot().await;
    let (_source, body) = tokio::io::duplex(1024);
    let storing = tokio::spawn({
        let depot = depot.clone();
        async move { depot.store_pack(body, Vec::new(), String::new()).await }
    });
    let (id, _) = scripted.next_request().await;
    storing.abort();
    // Not an empty body, which the depot would take for an order to believe the tips.
    assert_eq!(scripted.read_body(id).await, b"broken off");
    // Its late answer is nobody's.
    scripted.send_answer(id, &DepotResponse::Empty);
    let (space, ()) = tokio::join!(depot.free_space(), async {
        let (id, _) = scripted.next_request().await;
        scripted.send_answer(id, &DepotResponse::Space { free: 1, total: 1, memory_available: 7 });
    });
    space.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_pack_is_an_error() {
    struct Broken;
    impl AsyncRead for Broken {
        fn poll_read(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            _: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            std::task::Poll::Ready(Err(std::io::Error::other("git died")))
        }
    }
    let (depot, mut scripted, _engine) = start_depot().await;
    let script = async {
        let (id, _) = scripted.next_request().await;
        assert_eq!(scripted.read_body(id).await, b"broken off");
    };
    let (stored, ()) = tokio::join!(depot.store_pack(Broken, Vec::new(), String::new()), script);
    assert!(matches!(stored, Err(EngineError::Failed { .. })), "{stored:?}");
}

#[tokio::test(start_paused = true)]
async fn an_empty_pack_is_an_error() {
    let (depot, mut scripted, _engine) = start_depot().await;
    let script = async {
        let (id, _) = scripted.next_request().await;
        assert_eq!(scripted.read_body(id).await, b"broken off");
    };
    let (stored, ()) = tokio::join!(depot.store_pack(tokio::io::empty(), Vec::new(), String::new()), script);
    assert!(matches!(stored, Err(EngineError::Failed { .. })), "{stored:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_restart_fails_every_pending_request() {
    let (depot, mut scripted, engine) = start_depot().await;
    let requests: Vec<_> = (0..40)
        .map(|number| {
            let depot = depot.clone();
            tokio::spawn(async move { depot.remove_sandbox_dirs(&format!("T-2026-{number:03}-1"), 20_000).await })
        })
        .collect();
    for _ in 0..requests.len() {
        scripted.next_request().await;
    }
    let refused = EngineError::Refused { operation: "create", status: 400, message: "no more".to_owned() };
    engine.fail_next("create", refused);
    scripted.output.write_stderr("fatal: x\n");
    scripted.exit(137);
    for request in requests {
        let text = depot_message(&request.await.unwrap().unwrap_err());
        assert!(text.contains("ended with code 137; stderr: fatal: x"), "{text}");
        assert!(text.contains("cannot be started again") && text.contains("no more"), "{text}");
    }
    let creations = engine.calls().iter().filter(|call| call.starts_with("create ")).count();
    assert_eq!(creations, 2, "all of them wait for one try");
}

#[tokio::test(start_paused = true)]
async fn invalid_frames_close_the_connection() {
    let rules: [(&str, Bytes); 5] = [
        ("unknown kind 77", Bytes::from_static(b"\x01\x00\x00\x00\x4d\x00\x00\x00\x00")),
        ("a frame of 4294967295 bytes", Bytes::from_static(b"\x01\x00\x00\x00\x02\xff\xff\xff\xff")),
        ("request 99, which was never made", encode_frame(99, FrameKind::Data, b"x").unwrap().into()),
        ("twice", encode_frame(0, FrameKind::Ready, b"").unwrap().into()),
        ("cannot be read", encode_frame(1, FrameKind::Done, b"{\"answer\":\"lies\"}").unwrap().into()),
    ];
    for (rule, bytes) in rules {
        let (depot, mut scripted, engine) = start_depot().await;
        let refused = EngineError::Refused { operation: "create", status: 400, message: "no more".to_owned() };
        engine.fail_next("create", refused);
        let (space, ()) = tokio::join!(depot.free_space(), async {
            scripted.next_request().await;
            scripted.output.write_stdout(bytes);
        });
        let text = depot_message(&space.unwrap_err());
        assert!(text.contains(rule), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_fails_only_its_own_request() {
    let (depot, mut scripted, engine) = start_depot().await;
    let asked = Mutex::new(0);
    let answer_probes = async {
        *asked.lock().unwrap() = scripted.next_request().await.0;
        loop {
            let (id, request) = scripted.next_request().await;
            assert_eq!(request, DepotRequest::MeasureSpace);
            scripted.send_answer(id, &DepotResponse::Space { free: 8, total: 8, memory_available: 8 });
        }
    };
    let removed = tokio::select! {
        removed = depot.remove_sandbox_dirs("a", 1) => removed,
        () = answer_probes => unreachable!("it answers for ever"),
    };
    assert!(matches!(removed, Err(EngineError::TimedOut { after: PROGRESS_TIMEOUT, .. })), "{removed:?}");
    assert_eq!(engine.calls().iter().filter(|call| call.starts_with("start ")).count(), 1, "it is alive");
    // It answers in the end; the next request is not confused by it.
    scripted.send_answer(*asked.lock().unwrap(), &DepotResponse::Empty);
    let (space, ()) = tokio::join!(depot.free_space(), async {
        let (id, _) = scripted.next_request().await;
        scripted.send_answer(id, &DepotResponse::Space { free: 1, total: 2, memory_available: 7 });
    });
    assert_eq!(space.unwrap(), EngineSpace { free: 1, total: 2, memory_available: 7 });
}

#[tokio::test(start_paused = true)]
async fn a_stalled_request_does_not_block_others() {
    let (depot, mut scripted, _engine) = start_depot().await;
    let request = DepotRequest::Collect { attempt_dir: "a".to_owned(), uid: 1, max_bytes: 1 };
    let mut idle = depot
        .supervisor
        .running_depot()
        .connection
        .send_request("collecting", &request, PROGRESS_TIMEOUT)
        .await
        .unwrap();
    let (id, _) = scripted.next_request().await;
    for _ in 0..100 {
        scripted.send(id, FrameKind::Data, b"x");
    }
    let (space, ()) = tokio::join!(depot.free_space(), async {
        let (id, _) = scripted.next_request().await;
        scripted.send_answer(id, &DepotResponse::Space { free: 1, total: 2, memory_available: 7 });
    });
    space.unwrap();
    // What it did not take is lost to it, and it is told.
    let error = loop {
        if let Err(error) = idle.next_part().await {
            break error;
        }
    };
    assert!(depot_message(&error).contains("was not read in time"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_oversized_request_is_refused_before_sending() {
    let (depot, _played, _engine) = start_depot().await;
    let files = vec![TextFile { path: "tasks.json".to_owned(), text: "x".repeat(2 << 20) }];
    let error = depot.prepare_sandbox_dirs("a", USERS, files).await.unwrap_err();
    assert!(matches!(error, EngineError::Depot { kind: Some(DepotErrorKind::Refused), .. }), "{error:?}");
}
