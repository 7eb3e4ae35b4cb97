//! What an engine that dies and comes back looks like from outside, and what has become of its containers.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use longshore::engine::docker::DockerEngine;
use longshore::engine::{
    ContainerSpec, Engine, EngineEvent, EngineEventKind, EngineResult, EngineStream, OutputChunk, label,
};
use longshore::ids::ContainerId;
use tokio::task::{JoinHandle, block_in_place};

use super::{IMAGE, SecondDaemon};

const SWARM: &str = "of-the-second-daemon";

fn spec(name: &str, script: &str) -> ContainerSpec {
    ContainerSpec {
        name: name.to_owned(),
        image: IMAGE.to_owned(),
        argv: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        env: Vec::new(),
        user: (20_001, 20_001),
        workdir: "/".to_owned(),
        labels: BTreeMap::from([(label::SWARM.to_owned(), SWARM.to_owned())]),
        mounts: Vec::new(),
        tmpfs: Vec::new(),
        memory_limit: 64 << 20,
        milli_cpus: 0,
        pids_limit: 64,
        network: "none".to_owned(),
        added_capabilities: Vec::new(),
    }
}

async fn with_timeout<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("done within the bound")
}

/// What a test of these sets up: containers in every state, and everything that can be waited for under way.
struct DaemonFixture {
    engine: DockerEngine,
    ids: BTreeMap<&'static str, ContainerId>,
    since: Timestamp,
}

impl DaemonFixture {
    async fn new(daemon: &SecondDaemon) -> Self {
        let engine = daemon.connect().await;
        let since = Timestamp::now();
        let mut ids = BTreeMap::new();
        let scripts = [
            ("fresh", "exit 1"),
            ("ended", "exit 3"),
            ("listens", "echo ready; trap 'exit 7' TERM; while :; do sleep 0.1; done"),
            ("paused", "trap 'exit 8' TERM; while :; do sleep 0.1; done"),
            ("ends", "trap '' TERM; sleep 3; exit 5"),
        ];
        for (name, script) in scripts {
            let id = engine.create(&spec(name, script)).await.expect("create");
            if name != "fresh" {
                engine.start(&id).await.expect("start");
            }
            ids.insert(name, id);
        }
        engine.pause(&ids["paused"]).await.expect("pause");
        with_timeout(engine.wait(&ids["ended"])).await.expect("wait");
        Self { engine, ids, since }
    }

    fn wait(&self, name: &str) -> JoinHandle<EngineResult<i64>> {
        let (engine, id) = (self.engine.clone(), self.ids[name].clone());
        tokio::spawn(async move { engine.wait(&id).await })
    }

    async fn exit_codes(&self) -> BTreeMap<&'static str, Option<i64>> {
        let mut codes = BTreeMap::new();
        for (name, id) in &self.ids {
            let seen = self.engine.inspect(id).await.expect("inspect").expect("still there");
            assert!(!seen.running && !seen.paused && !seen.oom_killed && seen.error.is_empty(), "{name}: {seen:?}");
            assert_eq!(seen.never_started, *name == "fresh");
            codes.insert(*name, seen.exit_code);
        }
        codes
    }

    async fn remove_all(self) {
        for id in self.ids.values() {
            self.engine.remove(id).await.expect("remove");
        }
    }
}

/// The next item, which must be there.
async fn next<T>(stream: &mut EngineStream<T>) -> EngineResult<T> {
    with_timeout(stream.next()).await.expect("the stream goes on")
}

async fn wait_for_event(events: &mut EngineStream<EngineEvent>, id: &ContainerId, kind: EngineEventKind) {
    loop {
        let event = next(events).await.expect("an event");
        if event.container == id.as_str() && event.kind == kind {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_and_events_across_a_daemon_restart() {
    let daemon = block_in_place(SecondDaemon::start);

    // Killed: whatever is asked breaks, as unreachable, and the containers live on.
    let scene = DaemonFixture::new(&daemon).await;
    let engine = &scene.engine;
    let mut events = engine.events(label::SWARM, SWARM, scene.since).await.unwrap();
    wait_for_event(&mut events, &scene.ids["paused"], EngineEventKind::Paused).await;
    let waits = ["listens", "paused"].map(|name| scene.wait(name));
    let mut logs = engine.logs(&scene.ids["listens"], true).await.unwrap();
    assert_eq!(next(&mut logs).await.unwrap(), OutputChunk::Stdout("ready\n".into()));
    let mut attached = engine.attach(&scene.ids["listens"]).await.unwrap().output;
    tokio::time::sleep(Duration::from_millis(300)).await;
    block_in_place(|| daemon.kill());
    for wait in waits {
        let error = with_timeout(wait).await.unwrap().unwrap_err();
        assert!(error.is_unreachable() && error.is_retryable(), "{error:?}");
    }
    assert!(next(&mut logs).await.unwrap_err().is_unreachable());
    assert!(with_timeout(attached.next()).await.is_none(), "an attached stream has no other end than its end");
    let broken = loop {
        if let Err(error) = next(&mut events).await {
            break error;
        }
    };
    assert!(broken.is_unreachable(), "{broken:?}");
    assert!(engine.ping().await.unwrap_err().is_unreachable());
    assert!(engine.inspect(&scene.ids["ends"]).await.unwrap_err().is_unreachable());
    assert!(engine.create(&spec("never", "")).await.unwrap_err().is_unreachable());
    assert!(engine.start(&scene.ids["fresh"]).await.unwrap_err().is_unreachable());
    let asked = engine.events(label::SWARM, SWARM, scene.since).await;
    assert!(asked.err().is_some_and(|error| error.is_unreachable()));
    // One ends meanwhile, and its code is not lost. The others are ended by the daemon when it starts.
    tokio::time::sleep(Duration::from_secs(3)).await;
    block_in_place(|| daemon.restart());
    engine.ping().await.unwrap();
    let codes = BTreeMap::from([
        ("ended", Some(3)),
        ("ends", Some(5)),
        ("fresh", None),
        ("listens", Some(7)),
        ("paused", Some(8)),
    ]);
    assert_eq!(scene.exit_codes().await, codes);
    assert_eq!(with_timeout(engine.wait(&scene.ids["listens"])).await.unwrap(), 7);
    // Of the time before the restart nothing is told; what the daemon did when it started is.
    let mut events = engine.events(label::SWARM, SWARM, scene.since).await.unwrap();
    let first = next(&mut events).await.unwrap();
    assert_eq!(first.kind, EngineEventKind::Killed { signal: 15 }, "{first:?}");
    scene.remove_all().await;

    // Asked to end: it ends the containers first, and says so, like anyone who stops them.
    let scene = DaemonFixture::new(&daemon).await;
    let mut events = scene.engine.events(label::SWARM, SWARM, scene.since).await.unwrap();
    let waits = ["listens", "paused", "ends"].map(|name| scene.wait(name));
    tokio::time::sleep(Duration::from_millis(300)).await;
    block_in_place(|| daemon.terminate());
    let mut ended = Vec::new();
    for wait in waits {
        ended.push(with_timeout(wait).await.unwrap().unwrap());
    }
    assert_eq!(ended, [7, 8, 5]);
    wait_for_event(&mut events, &scene.ids["listens"], EngineEventKind::Killed { signal: 15 }).await;
    wait_for_event(&mut events, &scene.ids["listens"], EngineEventKind::Other("stop".to_owned())).await;
    assert!(scene.engine.ping().await.unwrap_err().is_unreachable());
    block_in_place(|| daemon.restart());
    assert_eq!(scene.exit_codes().await, codes);
    let folder = daemon.socket().parent().unwrap().to_owned();
    block_in_place(|| drop(daemon));
    assert!(!folder.exists());
    let left = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!left.contains(folder.to_str().unwrap()), "{left}");
}
