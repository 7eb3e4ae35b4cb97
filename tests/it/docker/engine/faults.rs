//! What Docker says of its own accord, and what it makes of containers that are frozen, cut off, or dead.

use longshore::engine::{EngineEvent, EngineEventKind, EngineStream};

use super::*;

/// The kinds of what is told of a container, until this one.
async fn events_until(
    events: &mut EngineStream<EngineEvent>,
    id: &ContainerId,
    last: impl Fn(&EngineEventKind) -> bool,
) -> Vec<EngineEventKind> {
    let mut kinds = Vec::new();
    loop {
        let event = with_timeout(events.next()).await.expect("the stream goes on").expect("an event");
        if event.container == id.as_str() {
            kinds.push(event.kind.clone());
            if last(&event.kind) {
                return kinds;
            }
        }
    }
}

#[tokio::test]
async fn events_report_oom_and_exit_of_own_containers_only() {
    let scene = EngineFixture::new().await;
    with_timeout(scene.docker.ping()).await.unwrap();
    let since = jiff::Timestamp::now();
    let mut events = scene.docker.events(label::SWARM, &scene.label, since).await.unwrap();
    let other = EngineFixture::new().await;
    other.finish(&other.spec("other", "exit 0")).await;
    let (id, attachment) = scene.run(&scene.spec("hungry", "exec tail /dev/zero")).await;
    assert_eq!(with_timeout(scene.docker.wait(&id)).await.unwrap(), 137);
    drop(attachment);
    let kinds = events_until(&mut events, &id, |kind| matches!(kind, EngineEventKind::Died { .. })).await;
    assert!(kinds.contains(&EngineEventKind::Started), "{kinds:?}");
    assert!(kinds.contains(&EngineEventKind::OutOfMemory), "{kinds:?}");
    assert_eq!(kinds.last(), Some(&EngineEventKind::Died { code: 137 }));
    scene.docker.remove(&id).await.unwrap();
    events_until(&mut events, &id, |kind| *kind == EngineEventKind::Removed).await;
    // Past events come again with `since`, and only those since then.
    let mut again = scene.docker.events(label::SWARM, &scene.label, since).await.unwrap();
    let all = events_until(&mut again, &id, |kind| *kind == EngineEventKind::Removed).await;
    assert!(all.starts_with(&kinds), "{all:?}");
    let now = jiff::Timestamp::now();
    let mut none = scene.docker.events(label::SWARM, &scene.label, now).await.unwrap();
    let silence = tokio::time::timeout(Duration::from_millis(500), none.next()).await;
    assert!(silence.is_err(), "{silence:?}");
}

#[tokio::test]
async fn a_frozen_container_can_be_killed_and_removed() {
    let scene = EngineFixture::new().await;
    let script = "trap '' TERM; echo ready; while :; do sleep 0.1; done";
    let (id, mut attachment) = scene.run(&scene.spec("frozen", script)).await;
    read_until(&mut attachment, "ready\n").await;
    scene.docker.pause(&id).await.unwrap();
    with_timeout(scene.docker.signal(&id, Signal::Term)).await.unwrap();
    with_timeout(scene.docker.signal(&id, Signal::Kill)).await.unwrap();
    assert_eq!(with_timeout(scene.docker.wait(&id)).await.unwrap(), 137);
    let seen = scene.docker.inspect(&id).await.unwrap().unwrap();
    assert!(!seen.running && !seen.paused, "{seen:?}");

    let (id, mut attachment) = scene.run(&scene.spec("kept", script)).await;
    read_until(&mut attachment, "ready\n").await;
    scene.docker.pause(&id).await.unwrap();
    with_timeout(scene.docker.remove(&id)).await.unwrap();
    assert!(scene.docker.inspect(&id).await.unwrap().is_none());
}

#[tokio::test]
async fn the_log_has_all_output_after_a_lost_attach() {
    let scene = EngineFixture::new().await;
    let script = "n=0; while [ $n -lt 300 ]; do n=$((n + 1)); echo record $n; [ $n = 100 ] && read line; done; exit 4";
    let (id, mut attachment) = scene.run(&scene.spec("records", script)).await;
    let seen = read_until(&mut attachment, "record 100\n").await;
    // What follows is read from the log: the container goes on while nobody is attached.
    let mut input = attachment.stdin;
    drop(attachment.output);
    input.write_all(b"go on\n").await.unwrap();
    input.flush().await.unwrap();
    let log = scene.docker.logs(&id, true).await.unwrap();
    let (out, err) = with_timeout(collect(log)).await;
    let all: String = (1..=300).map(|n| format!("record {n}\n")).collect();
    assert_eq!((out.as_str(), err.as_str()), (all.as_str(), ""));
    assert!(all.starts_with(&seen));
    assert_eq!(with_timeout(scene.docker.wait(&id)).await.unwrap(), 4);
}

#[tokio::test]
async fn files_can_be_downloaded_from_a_stopped_container() {
    let scene = EngineFixture::new().await;
    let volume = format!("{}-files", scene.label);
    scene.docker.ensure_volume(&volume, &scene.labels()).await.unwrap();
    let script = "mkdir /data/out; head -c 300000 /dev/zero > /data/out/large; echo hello > /data/out/small; ln -s /etc/passwd /data/out/link";
    let mut spec = scene.spec("files", script);
    spec.user = (0, 0);
    spec.mounts = vec![VolumeMount { volume, target: "/data".to_owned(), read_only: false, subpath: None }];
    let (id, attachment) = scene.run(&spec).await;
    assert_eq!(with_timeout(scene.docker.wait(&id)).await.unwrap(), 0);
    drop(attachment);
    let mut pieces = scene.docker.download(&id, "/data/out").await.unwrap();
    let mut tar = Vec::new();
    while let Some(piece) = with_timeout(pieces.next()).await {
        tar.extend_from_slice(&piece.unwrap());
    }
    let mut archive = tar::Archive::new(&tar[..]);
    let entries: Vec<_> = archive
        .entries()
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.path().unwrap().display().to_string(), entry.header().entry_type(), entry.size()))
        .collect();
    let (file, link) = (tar::EntryType::Regular, tar::EntryType::Symlink);
    let names = [("out/large", file, 300_000), ("out/link", link, 0), ("out/small", file, 6)];
    assert_eq!(entries[1..], names.map(|(name, kind, size)| (name.to_owned(), kind, size)));
    let missing = scene.docker.download(&id, "/data/nothing").await.err();
    assert!(matches!(missing, Some(EngineError::NotFound { .. })), "{missing:?}");
    scene.docker.remove(&id).await.unwrap();
    let refused = scene.docker.download(&id, "/data/out").await.err();
    assert!(matches!(refused, Some(EngineError::NotFound { .. })), "{refused:?}");
}
