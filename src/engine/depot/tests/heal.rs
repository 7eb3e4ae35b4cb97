//! A depot that dies, and what callers see of it.

use std::time::Duration;

use futures::FutureExt;

use super::*;

const NAME: &str = "longshore-a1b2c3d4-depot";

/// A depot that is ready, the one who plays it, and those who will.
async fn scene() -> (Depot, Played, FakeEngine, mpsc::UnboundedReceiver<Played>) {
    let (engine, mut containers) = stage();
    let spec = spec();
    let (depot, played) = tokio::join!(Depot::start(Arc::new(engine.clone()), &spec), next(&mut containers));
    (depot.unwrap(), played, engine, containers)
}

/// The next container, ready.
async fn next(containers: &mut mpsc::UnboundedReceiver<Played>) -> Played {
    let played = containers.recv().await.unwrap();
    played.send(0, FrameKind::Ready, &[]);
    played
}

fn started(engine: &FakeEngine) -> usize {
    engine.calls().iter().filter(|call| call.starts_with("start ")).count()
}

const FREE: Answer = Answer::Space { free: 1, total: 2, memory_available: 3 };

fn commit() -> CommitId {
    "0".repeat(40).parse().unwrap()
}

/// Makes each request that can be repeated, and checks its answer.
async fn make(depot: &Depot, request: &str, to: &Path) {
    match request {
        "objects" => assert_eq!(depot.objects("sha1").await.unwrap(), []),
        "prepare" => depot.prepare("a", 1, Vec::new()).await.unwrap(),
        "collect" => {
            let collected = depot.collect("a", 1, 1_000_000, to).await.unwrap();
            assert_eq!(collected, Collected { result: Some(b"{}".to_vec()), bundle: true });
        }
        "salvage" => {
            let salvaged = depot.salvage("a", 1, &commit(), "refs/x", 1_000_000, to).await.unwrap();
            assert_eq!(salvaged.commit, Some(commit()));
        }
        "discard" => depot.discard("a", 1).await.unwrap(),
        _ => drop(depot.space().await.unwrap()),
    }
}

/// Answers it.
async fn answer(played: &mut Played, request: &str) {
    let (id, asked) = played.request().await;
    match asked {
        Request::Objects { .. } => played.answer(id, &Answer::Objects { tips: Vec::new() }),
        Request::Prepare { .. } | Request::Discard { .. } => played.answer(id, &Answer::Nothing),
        Request::Collect { .. } => {
            played.send(id, FrameKind::Data, b"{}whole");
            played.answer(id, &Answer::Collected { result_bytes: 2, bundle: true });
        }
        Request::Salvage { .. } => {
            played.send(id, FrameKind::Data, b"whole");
            played.answer(id, &Answer::Salvaged { commit: Some(commit()), left_out: Vec::new() });
        }
        Request::Space => played.answer(id, &FREE),
        other => panic!("{other:?} for {request}"),
    }
}

const REPEATED: [&str; 6] = ["objects", "prepare", "collect", "salvage", "discard", "space"];

#[tokio::test(start_paused = true)]
async fn a_depot_that_died_between_requests_is_not_noticed() {
    for request in REPEATED {
        let (depot, mut played, engine, mut containers) = scene().await;
        let dir = tempfile::tempdir().unwrap();
        let first = depot.container();
        played.exit(137);
        while !depot.keeper.running().link.is_dead() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let to = dir.path().join("bundle");
        let playing = async {
            let mut played = next(&mut containers).await;
            answer(&mut played, request).await;
            played
        };
        let ((), _played) = tokio::join!(make(&depot, request, &to), playing);
        assert_eq!(started(&engine), 2, "{request}");
        assert_ne!(depot.container(), first);
        assert_eq!(engine.containers(), [NAME], "the dead one is removed");
        let volumes = engine.calls().iter().filter(|call| call.starts_with("remove_volume")).count();
        assert_eq!(volumes, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_under_which_the_depot_dies_is_repeated() {
    for request in REPEATED {
        let (depot, mut played, engine, mut containers) = scene().await;
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("bundle");
        let playing = async {
            let (id, _) = played.request().await;
            if matches!(request, "collect" | "salvage") {
                // More than is kept in memory: half a file is there already.
                (0..8).for_each(|_| played.send(id, FrameKind::Data, &[7; DATA_CHUNK]));
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            played.exit(137);
            let mut played = next(&mut containers).await;
            if request == "prepare" {
                // What the dead one made of it is taken away first.
                let (id, asked) = played.request().await;
                assert!(matches!(asked, Request::Discard { .. }), "{asked:?}");
                played.answer(id, &Answer::Nothing);
            }
            answer(&mut played, request).await;
            played
        };
        let ((), _played) = tokio::join!(make(&depot, request, &to), playing);
        assert_eq!(started(&engine), 2, "{request}");
        let wants_file = matches!(request, "collect" | "salvage");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), usize::from(wants_file), "{request}");
        if wants_file {
            assert_eq!(std::fs::read(&to).unwrap(), b"whole");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn many_callers_share_one_start() {
    let (depot, mut played, engine, mut containers) = scene().await;
    let requests: Vec<_> = (0..40)
        .map(|_| {
            let depot = depot.clone();
            tokio::spawn(async move { depot.space().await })
        })
        .collect();
    for _ in 0..requests.len() {
        played.request().await;
    }
    played.exit(137);
    let mut played = next(&mut containers).await;
    for _ in 0..requests.len() {
        answer(&mut played, "space").await;
    }
    for request in requests {
        request.await.unwrap().unwrap();
    }
    assert_eq!(started(&engine), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pack_is_not_repeated_and_the_next_depot_is_there() {
    let (depot, mut played, engine, mut containers) = scene().await;
    let storing = tokio::spawn({
        let depot = depot.clone();
        async move { depot.store_pack(tokio::io::repeat(7), Vec::new(), String::new()).await }
    });
    played.request().await;
    played.exit(137);
    let mut played = next(&mut containers).await;
    let error = storing.await.unwrap().unwrap_err();
    assert!(matches!(error, EngineError::Depot { kind: None, .. }), "{error:?}");
    assert!(error.to_string().contains("ended with code 137"), "{error}");
    let (space, ()) = tokio::join!(depot.space(), answer(&mut played, "space"));
    space.unwrap();
    assert_eq!(started(&engine), 2);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_kills_two_depots_fails() {
    let (depot, mut played, engine, mut containers) = scene().await;
    let playing = async {
        played.request().await;
        played.exit(1);
        let mut played = next(&mut containers).await;
        played.request().await;
        played.output.err("out of luck\n");
        played.exit(2);
    };
    let (space, ()) = tokio::join!(depot.space(), playing);
    let text = message(&space.unwrap_err());
    assert!(text.contains("ended with code 2; its last words: out of luck"), "{text}");
    assert_eq!(started(&engine), 2, "nobody has asked a third");
    let (alive, _played) = tokio::join!(depot.ensure_alive(), next(&mut containers));
    alive.unwrap();
    assert_eq!(started(&engine), 3);
}

#[tokio::test(start_paused = true)]
async fn one_that_never_answers_is_given_up_and_an_answer_counts_anew() {
    let (depot, mut played, engine, mut containers) = scene().await;
    // Twice as many deaths as are allowed, with answers in between.
    for _ in 0..10 {
        played.exit(1);
        let playing = async {
            let mut played = next(&mut containers).await;
            answer(&mut played, "space").await;
            played
        };
        let (space, next) = tokio::join!(depot.space(), playing);
        space.unwrap();
        played = next;
    }
    let before = started(&engine);
    tokio::spawn(async move {
        played.request().await;
        played.exit(1);
        while let Some(mut played) = containers.recv().await {
            played.send(0, FrameKind::Ready, &[]);
            played.request().await;
            played.output.err("no disk in the drive\n");
            played.exit(1);
        }
    });
    let began = tokio::time::Instant::now();
    let last = loop {
        let text = message(&depot.space().await.unwrap_err());
        if text.contains("never answered") {
            break text;
        }
        assert!(started(&engine) - before <= 5, "{text}");
    };
    assert!(last.contains("5 times") && last.contains("no disk in the drive"), "{last}");
    assert_eq!(started(&engine) - before, 5);
    let spent = began.elapsed();
    assert!(spent > Duration::from_secs(1) && spent < Duration::from_secs(60), "with pauses: {spent:?}");
    assert!(message(&depot.ensure_alive().await.unwrap_err()).contains("never answered"));
    assert_eq!(started(&engine) - before, 5);
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_be_started_is_given_up_with_the_reason() {
    let (depot, mut played, engine, _containers) = scene().await;
    for _ in 0..100 {
        let refused = EngineError::Refused { operation: "create", status: 400, message: "no such image".to_owned() };
        engine.fail_next("create", refused);
    }
    played.output.err("its last words\n");
    played.exit(9);
    let mut texts = Vec::new();
    for _ in 0..8 {
        texts.push(message(&depot.space().await.unwrap_err()));
    }
    for text in &texts {
        let all = ["ended with code 9", "its last words", "cannot be started again", "no such image"];
        assert!(all.iter().all(|words| text.contains(words)), "{text}");
    }
    assert!(texts[5].contains("started again 5 times"), "{}", texts[5]);
    assert_eq!(texts[5], texts[7]);
    let creations = engine.calls().iter().filter(|call| call.starts_with("create ")).count();
    assert_eq!(creations, 1 + 5);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_is_away_costs_no_start() {
    let (depot, _played, engine, mut containers) = scene().await;
    engine.go_down();
    for _ in 0..20 {
        let error = depot.space().await.unwrap_err();
        assert!(error.unreachable() && error.retryable(), "{error:?}");
        assert!(depot.ensure_alive().await.unwrap_err().unreachable());
    }
    engine.kill_all(255);
    engine.come_back();
    let playing = async {
        let mut played = next(&mut containers).await;
        answer(&mut played, "space").await;
    };
    let (space, ()) = tokio::join!(depot.space(), playing);
    space.unwrap();
    assert_eq!(started(&engine), 2);
    assert_eq!(engine.containers(), [NAME]);
}

#[tokio::test(start_paused = true)]
async fn a_request_under_way_when_the_engine_goes_is_told_that() {
    let (depot, mut played, engine, _containers) = scene().await;
    let (storing, asking) = (depot.clone(), depot.clone());
    let storing =
        tokio::spawn(async move { storing.store_pack(tokio::io::repeat(7), Vec::new(), String::new()).await });
    played.request().await;
    let asking = tokio::spawn(async move { asking.discard("a", 1).await });
    tokio::time::sleep(Duration::from_millis(1)).await;
    engine.go_down();
    assert!(storing.await.unwrap().unwrap_err().unreachable());
    assert!(asking.await.unwrap().unwrap_err().unreachable());
}

#[tokio::test(start_paused = true)]
async fn closing_ends_a_start_and_leaves_nothing() {
    let (depot, mut played, engine, mut containers) = scene().await;
    played.exit(1);
    let asking = tokio::spawn({
        let depot = depot.clone();
        async move { depot.space().await }
    });
    // The next one is there, and not ready.
    let _starting = containers.recv().await.unwrap();
    depot.close().await.unwrap();
    assert!(message(&asking.await.unwrap().unwrap_err()).ends_with("it was closed"));
    assert!(engine.containers().is_empty(), "{:?}", engine.containers());
    for _ in 0..3 {
        assert!(message(&depot.space().await.unwrap_err()).ends_with("it was closed"));
        assert!(message(&depot.ensure_alive().await.unwrap_err()).ends_with("it was closed"));
    }
    assert_eq!(started(&engine), 2);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_while_it_starts_one_leaves_it_to_the_next() {
    let (depot, mut played, engine, mut containers) = scene().await;
    played.exit(1);
    while !depot.keeper.running().link.is_dead() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let asking = tokio::spawn({
        let depot = depot.clone();
        async move { depot.space().await }
    });
    let _starting = containers.recv().await.unwrap();
    asking.abort();
    assert!(asking.await.unwrap_err().is_cancelled());
    assert!(depot.space().now_or_never().is_none());
    let playing = async {
        // The one of the question that was dropped just now, and then ours.
        let mut played = containers.recv().await.unwrap();
        while let Ok(later) = containers.try_recv() {
            played = later;
        }
        played.send(0, FrameKind::Ready, &[]);
        played
    };
    let (alive, mut played) = tokio::join!(depot.ensure_alive(), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        playing.await
    });
    alive.unwrap();
    let (space, ()) = tokio::join!(depot.space(), answer(&mut played, "space"));
    space.unwrap();
    assert_eq!(engine.containers(), [NAME]);
}
