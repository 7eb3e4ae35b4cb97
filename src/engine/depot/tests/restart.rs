//! Depots that die, and what callers see.

use std::time::Duration;

use futures::FutureExt;

use super::super::supervisor::{PROBE_AFTER, PROBE_TIMEOUT};
use super::*;
use crate::ids::CommitId;

fn start_count(engine: &FakeEngine) -> usize {
    engine.calls().iter().filter(|call| call.starts_with("start ")).count()
}

const SPACE_ANSWER: DepotResponse = DepotResponse::Space { free: 1, total: 2, memory_available: 3 };

fn zero_commit() -> CommitId {
    "0".repeat(40).parse().unwrap()
}

/// Makes each request that can be repeated, and checks its answer.
async fn make_request(depot: &DepotClient, request: &str, to: &Path) {
    match request {
        "objects" => assert_eq!(depot.prepare_objects_volume("sha1").await.unwrap(), []),
        "prepare" => depot.prepare_sandbox_dirs("a", USERS, Vec::new()).await.unwrap(),
        "collect" => {
            let collected = depot.collect("a", 1, 1_000_000, to).await.unwrap();
            assert_eq!(collected, CollectedFiles { result: Some(b"{}".to_vec()), has_bundle: true });
        }
        "salvage" => {
            let salvaged = depot.salvage("a", 1, &zero_commit(), "refs/x", 1_000_000, to).await.unwrap();
            assert_eq!(salvaged.commit, Some(zero_commit()));
        }
        "discard" => depot.remove_sandbox_dirs("a", 1).await.unwrap(),
        _ => drop(depot.free_space().await.unwrap()),
    }
}

/// Answers a request that a replaced depot gets again.
async fn answer_repeated_request(scripted: &mut ScriptedDepot, request: &str) {
    if request == "prepare" {
        // What the old depot made of it is taken away first.
        let (id, asked) = scripted.next_request().await;
        assert!(matches!(asked, DepotRequest::Discard { .. }), "{asked:?}");
        scripted.send_answer(id, &DepotResponse::Empty);
    }
    answer_request(scripted, request).await;
}

/// Answers it.
async fn answer_request(scripted: &mut ScriptedDepot, request: &str) {
    let (id, asked) = scripted.next_request().await;
    match asked {
        DepotRequest::OpenObjects { .. } => scripted.send_answer(id, &DepotResponse::Objects { tips: Vec::new() }),
        DepotRequest::Prepare { .. } | DepotRequest::Discard { .. } => scripted.send_answer(id, &DepotResponse::Empty),
        DepotRequest::Collect { .. } => {
            scripted.send(id, FrameKind::Data, b"{}whole");
            scripted.send_answer(id, &DepotResponse::Collected { result_bytes: 2, bundle: true });
        }
        DepotRequest::Salvage { .. } => {
            scripted.send(id, FrameKind::Data, b"whole");
            scripted.send_answer(id, &DepotResponse::Salvaged { commit: Some(zero_commit()), left_out: Vec::new() });
        }
        DepotRequest::MeasureSpace => scripted.send_answer(id, &SPACE_ANSWER),
        other => panic!("{other:?} for {request}"),
    }
}

const REPEATABLE_REQUESTS: [&str; 6] = ["objects", "prepare", "collect", "salvage", "discard", "space"];

#[tokio::test(start_paused = true)]
async fn a_depot_that_died_between_requests_is_restarted_silently() {
    for request in REPEATABLE_REQUESTS {
        let (depot, mut scripted, engine, mut containers) = start_restartable_depot().await;
        let dir = tempfile::tempdir().unwrap();
        let first = depot.container_id();
        scripted.exit(137);
        while !depot.supervisor.running_depot().connection.is_closed() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let to = dir.path().join("bundle");
        let script = async {
            let mut scripted = next_ready(&mut containers).await;
            answer_request(&mut scripted, request).await;
            scripted
        };
        let ((), _played) = tokio::join!(make_request(&depot, request, &to), script);
        assert_eq!(start_count(&engine), 2, "{request}");
        assert_ne!(depot.container_id(), first);
        assert_eq!(engine.containers(), [DEPOT_NAME], "the dead one is removed");
        let volumes = engine.calls().iter().filter(|call| call.starts_with("remove_volume")).count();
        assert_eq!(volumes, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_during_which_the_depot_dies_is_repeated() {
    for request in REPEATABLE_REQUESTS {
        let (depot, mut scripted, engine, mut containers) = start_restartable_depot().await;
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("bundle");
        let script = async {
            let (id, _) = scripted.next_request().await;
            if matches!(request, "collect" | "salvage") {
                // More than is kept in memory: half a file is there already.
                (0..8).for_each(|_| scripted.send(id, FrameKind::Data, &[7; DATA_CHUNK_LEN]));
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            scripted.exit(137);
            let mut scripted = next_ready(&mut containers).await;
            answer_repeated_request(&mut scripted, request).await;
            scripted
        };
        let ((), _played) = tokio::join!(make_request(&depot, request, &to), script);
        assert_eq!(start_count(&engine), 2, "{request}");
        let wants_file = matches!(request, "collect" | "salvage");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), usize::from(wants_file), "{request}");
        if wants_file {
            assert_eq!(std::fs::read(&to).unwrap(), b"whole");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_callers_share_one_restart() {
    let (depot, mut scripted, engine, mut containers) = start_restartable_depot().await;
    let requests: Vec<_> = (0..40)
        .map(|_| {
            let depot = depot.clone();
            tokio::spawn(async move { depot.free_space().await })
        })
        .collect();
    for _ in 0..requests.len() {
        scripted.next_request().await;
    }
    scripted.exit(137);
    let mut scripted = next_ready(&mut containers).await;
    for _ in 0..requests.len() {
        answer_request(&mut scripted, "space").await;
    }
    for request in requests {
        request.await.unwrap().unwrap();
    }
    assert_eq!(start_count(&engine), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pack_is_not_repeated_but_the_depot_is_restarted() {
    let (depot, mut scripted, engine, mut containers) = start_restartable_depot().await;
    let storing = tokio::spawn({
        let depot = depot.clone();
        async move { depot.store_pack(tokio::io::repeat(7), Vec::new(), String::new()).await }
    });
    scripted.next_request().await;
    scripted.exit(137);
    let mut scripted = next_ready(&mut containers).await;
    let error = storing.await.unwrap().unwrap_err();
    assert!(matches!(error, EngineError::Depot { kind: None, .. }), "{error:?}");
    assert!(error.to_string().contains("ended with code 137"), "{error}");
    let (space, ()) = tokio::join!(depot.free_space(), answer_request(&mut scripted, "space"));
    space.unwrap();
    assert_eq!(start_count(&engine), 2);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_kills_two_depots_fails() {
    let (depot, mut scripted, engine, mut containers) = start_restartable_depot().await;
    let script = async {
        scripted.next_request().await;
        scripted.exit(1);
        let mut scripted = next_ready(&mut containers).await;
        scripted.next_request().await;
        scripted.output.write_stderr("out of luck\n");
        scripted.exit(2);
    };
    let (space, ()) = tokio::join!(depot.free_space(), script);
    let text = depot_message(&space.unwrap_err());
    assert!(text.contains("ended with code 2; stderr: out of luck"), "{text}");
    assert_eq!(start_count(&engine), 2, "nobody has asked a third");
    let (alive, _played) = tokio::join!(depot.ensure_alive(), next_ready(&mut containers));
    alive.unwrap();
    assert_eq!(start_count(&engine), 3);
}

#[tokio::test(start_paused = true)]
async fn restarts_are_limited_and_an_answer_resets_the_count() {
    let (depot, mut scripted, engine, mut containers) = start_restartable_depot().await;
    // Twice as many deaths as are allowed, with answers in between.
    for _ in 0..10 {
        scripted.exit(1);
        let script = async {
            let mut scripted = next_ready(&mut containers).await;
            answer_request(&mut scripted, "space").await;
            scripted
        };
        let (space, next) = tokio::join!(depot.free_space(), script);
        space.unwrap();
        scripted = next;
    }
    let before = start_count(&engine);
    tokio::spawn(async move {
        scripted.next_request().await;
        scripted.exit(1);
        while let Some(mut scripted) = containers.recv().await {
            scripted.send(0, FrameKind::Ready, &[]);
            scripted.next_request().await;
            scripted.output.write_stderr("no disk in the drive\n");
            scripted.exit(1);
        }
    });
    let began = tokio::time::Instant::now();
    let last = loop {
        let text = depot_message(&depot.free_space().await.unwrap_err());
        if text.contains("never answered") {
            break text;
        }
        assert!(start_count(&engine) - before <= 5, "{text}");
    };
    assert!(last.contains("5 times") && last.contains("no disk in the drive"), "{last}");
    assert_eq!(start_count(&engine) - before, 5);
    let spent = began.elapsed();
    assert!(spent > Duration::from_secs(1) && spent < Duration::from_secs(60), "with pauses: {spent:?}");
    assert!(depot_message(&depot.ensure_alive().await.unwrap_err()).contains("never answered"));
    assert_eq!(start_count(&engine) - before, 5);
}

#[tokio::test(start_paused = true)]
async fn a_depot_that_cannot_start_is_given_up_with_the_reason() {
    let (depot, mut scripted, engine, _containers) = start_restartable_depot().await;
    for _ in 0..100 {
        let refused = EngineError::Refused { operation: "create", status: 400, message: "no such image".to_owned() };
        engine.fail_next("create", refused);
    }
    scripted.output.write_stderr("no space on the drive\n");
    scripted.exit(9);
    let mut texts = Vec::new();
    for _ in 0..8 {
        texts.push(depot_message(&depot.free_space().await.unwrap_err()));
    }
    for text in &texts {
        let all = ["ended with code 9", "stderr: no space on the drive", "cannot be started again", "no such image"];
        assert!(all.iter().all(|words| text.contains(words)), "{text}");
    }
    assert!(texts[5].contains("restarted 5 times"), "{}", texts[5]);
    assert_eq!(texts[5], texts[7]);
    let creations = engine.calls().iter().filter(|call| call.starts_with("create ")).count();
    assert_eq!(creations, 1 + 5);
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_engine_does_not_count_as_a_restart() {
    let (depot, _played, engine, mut containers) = start_restartable_depot().await;
    engine.go_down();
    for _ in 0..20 {
        let error = depot.free_space().await.unwrap_err();
        assert!(error.is_unreachable() && error.is_retryable(), "{error:?}");
        assert!(depot.ensure_alive().await.unwrap_err().is_unreachable());
    }
    engine.kill_all(255);
    engine.come_back();
    let script = async {
        let mut scripted = next_ready(&mut containers).await;
        answer_request(&mut scripted, "space").await;
    };
    let (space, ()) = tokio::join!(depot.free_space(), script);
    space.unwrap();
    assert_eq!(start_count(&engine), 2);
    assert_eq!(engine.containers(), [DEPOT_NAME]);
}

#[tokio::test(start_paused = true)]
async fn a_pending_request_reports_an_unreachable_engine() {
    let (depot, mut scripted, engine, _containers) = start_restartable_depot().await;
    let (storing, asking) = (depot.clone(), depot.clone());
    let storing =
        tokio::spawn(async move { storing.store_pack(tokio::io::repeat(7), Vec::new(), String::new()).await });
    scripted.next_request().await;
    let asking = tokio::spawn(async move { asking.remove_sandbox_dirs("a", 1).await });
    tokio::time::sleep(Duration::from_millis(1)).await;
    engine.go_down();
    assert!(storing.await.unwrap().unwrap_err().is_unreachable());
    assert!(asking.await.unwrap().unwrap_err().is_unreachable());
}

#[tokio::test(start_paused = true)]
async fn close_cancels_a_restart_and_leaves_no_container() {
    let (depot, mut scripted, engine, mut containers) = start_restartable_depot().await;
    scripted.exit(1);
    let asking = tokio::spawn({
        let depot = depot.clone();
        async move { depot.free_space().await }
    });
    // The next one is there, and not ready.
    let _starting = containers.recv().await.unwrap();
    depot.close().await.unwrap();
    assert!(depot_message(&asking.await.unwrap().unwrap_err()).ends_with("it was closed"));
    assert!(engine.containers().is_empty(), "{:?}", engine.containers());
    for _ in 0..3 {
        assert!(depot_message(&depot.free_space().await.unwrap_err()).ends_with("it was closed"));
        assert!(depot_message(&depot.ensure_alive().await.unwrap_err()).ends_with("it was closed"));
    }
    assert_eq!(start_count(&engine), 2);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_caller_leaves_the_restart_to_the_next() {
    let (depot, mut scripted, engine, mut containers) = start_restartable_depot().await;
    scripted.exit(1);
    while !depot.supervisor.running_depot().connection.is_closed() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let asking = tokio::spawn({
        let depot = depot.clone();
        async move { depot.free_space().await }
    });
    let _starting = containers.recv().await.unwrap();
    asking.abort();
    assert!(asking.await.unwrap_err().is_cancelled());
    assert!(depot.free_space().now_or_never().is_none());
    let script = async {
        // The one of the question that was dropped just now, and then ours.
        let mut scripted = containers.recv().await.unwrap();
        while let Ok(later) = containers.try_recv() {
            scripted = later;
        }
        scripted.send(0, FrameKind::Ready, &[]);
        scripted
    };
    let (alive, mut scripted) = tokio::join!(depot.ensure_alive(), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        script.await
    });
    alive.unwrap();
    let (space, ()) = tokio::join!(depot.free_space(), answer_request(&mut scripted, "space"));
    space.unwrap();
    assert_eq!(engine.containers(), [DEPOT_NAME]);
}

#[tokio::test(start_paused = true)]
async fn a_frozen_depot_is_replaced_and_its_requests_are_repeated() {
    for request in REPEATABLE_REQUESTS {
        let (depot, _frozen, engine, mut containers) = start_restartable_depot().await;
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("bundle");
        let begun = tokio::time::Instant::now();
        let script = async {
            let mut scripted = next_ready(&mut containers).await;
            answer_repeated_request(&mut scripted, request).await;
            scripted
        };
        let ((), _played) = tokio::join!(make_request(&depot, request, &to), script);
        assert!(begun.elapsed() <= PROBE_AFTER + PROBE_TIMEOUT + Duration::from_secs(1), "{:?}", begun.elapsed());
        assert_eq!(start_count(&engine), 2, "{request}");
        assert_eq!(engine.containers(), [DEPOT_NAME], "the frozen one is removed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_depot_is_not_replaced_while_the_engine_does_not_answer() {
    let (depot, _frozen, engine, mut containers) = start_restartable_depot().await;
    let silent = || EngineError::TimedOut { operation: "pinging", after: Duration::from_secs(60) };
    let begun = tokio::time::Instant::now();
    engine.fail_next("ping", silent());
    let script = async {
        let mut scripted = next_ready(&mut containers).await;
        answer_request(&mut scripted, "discard").await;
        scripted
    };
    let (removed, _played) = tokio::join!(depot.remove_sandbox_dirs("a", 1), script);
    removed.unwrap();
    assert!(begun.elapsed() >= PROBE_AFTER + PROBE_TIMEOUT * 2, "the first probe proves nothing");

    for _ in 0..100 {
        engine.fail_next("ping", silent());
    }
    let space = depot.free_space().await;
    assert!(space.as_ref().is_err_and(EngineError::is_unreachable), "{space:?}");
    assert_eq!(start_count(&engine), 2);
}
