//! The Docker engine against a real daemon: the hardened container's life, its streams, and every kind of failure.
//!
//! Everything made here carries a label of the test that made it, and is removed by that label, also after a failure.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::StreamExt;
use longshore::engine::docker::{DockerEngine, DockerOptions};
use longshore::engine::resolve::{self, Endpoint, EngineAddress};
use longshore::engine::{
    AttachedStreams, ContainerSpec, Engine, EngineError, EngineResource, EngineResourceKind, EngineResult, OutputChunk,
    Signal, VolumeMount, label,
};
use longshore::ids::ContainerId;
use tokio::io::AsyncWriteExt;

mod faults;

const IMAGE: &str = "longshore/sandbox:latest";
/// Bounds every test: a test that hangs must say where.
const TIMEOUT: Duration = Duration::from_secs(120);

/// An engine, and a label that nothing else has.
struct EngineFixture {
    docker: DockerEngine,
    label: String,
}

impl EngineFixture {
    async fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let endpoint = resolve::resolve_endpoint(&|name| std::env::var(name).ok()).expect("the engine's settings");
        let docker = DockerEngine::connect(&endpoint, DockerOptions::default()).await.unwrap_or_else(|error| {
            panic!("these tests need a Docker daemon (start one: `service docker start`, or `dockerd &`): {error}")
        });
        let image = docker.image(IMAGE).await.expect("asking for the image");
        assert!(image.is_some(), "these tests need the image `{IMAGE}` (build it: `longshore images build`)");
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { docker, label: format!("longshore-test-{}-{number}", std::process::id()) }
    }

    fn labels(&self) -> BTreeMap<String, String> {
        BTreeMap::from([(label::SWARM.to_owned(), self.label.clone()), ("test".to_owned(), self.label.clone())])
    }

    fn spec(&self, name: &str, script: &str) -> ContainerSpec {
        ContainerSpec {
            name: format!("{}-{name}", self.label),
            image: IMAGE.to_owned(),
            argv: vec!["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned()],
            env: vec![("GREETING".to_owned(), "a=b c".to_owned())],
            user: (20_001, 20_002),
            workdir: "/".to_owned(),
            labels: self.labels(),
            mounts: Vec::new(),
            tmpfs: vec![("/tmp".to_owned(), "size=16m,mode=1777".to_owned())],
            memory_limit: 64 << 20,
            milli_cpus: 500,
            pids_limit: 64,
            network: "none".to_owned(),
            added_capabilities: Vec::new(),
        }
    }

    /// Creates, attaches and starts.
    async fn run(&self, spec: &ContainerSpec) -> (ContainerId, AttachedStreams) {
        let id = self.docker.create(spec).await.expect("create");
        let attachment = self.docker.attach(&id).await.expect("attach");
        self.docker.start(&id).await.expect("start");
        (id, attachment)
    }

    /// Runs to the end: exit code and what was printed to both streams.
    async fn finish(&self, spec: &ContainerSpec) -> (i64, String, String) {
        let (id, attachment) = self.run(spec).await;
        let code = with_timeout(self.docker.wait(&id)).await.expect("wait");
        let (out, err) = with_timeout(collect(attachment.output)).await;
        self.docker.remove(&id).await.expect("remove");
        (code, out, err)
    }
}

impl Drop for EngineFixture {
    fn drop(&mut self) {
        let ours = format!("label=test={}", self.label);
        let kinds: [(&[&str], &[&str]); 3] = [
            (&["ps", "-aq"], &["rm", "-fv"]),
            (&["volume", "ls", "-q"], &["volume", "rm"]),
            (&["images", "-q"], &["rmi", "-f"]),
        ];
        for (list, remove) in kinds {
            let Ok(found) = Command::new("docker").args(list).args(["--filter", &ours]).output() else { return };
            let found = String::from_utf8_lossy(&found.stdout).into_owned();
            let ids: Vec<&str> = found.split_whitespace().collect();
            if !ids.is_empty() {
                let _ = Command::new("docker").args(remove).args(ids).stdout(Stdio::null()).status();
            }
        }
    }
}

async fn with_timeout<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future).await.expect("done within the bound")
}

async fn collect(mut output: futures::stream::BoxStream<'static, EngineResult<OutputChunk>>) -> (String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    while let Some(chunk) = output.next().await {
        match chunk.expect("a chunk") {
            OutputChunk::Stdout(bytes) => out.extend_from_slice(&bytes),
            OutputChunk::Stderr(bytes) => err.extend_from_slice(&bytes),
        }
    }
    (String::from_utf8_lossy(&out).into_owned(), String::from_utf8_lossy(&err).into_owned())
}

/// Reads standard output until it ends with `until`.
async fn read_until(attachment: &mut AttachedStreams, until: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(until) {
        match with_timeout(attachment.output.next()).await {
            Some(Ok(OutputChunk::Stdout(bytes))) => text.push_str(&String::from_utf8_lossy(&bytes)),
            Some(Ok(OutputChunk::Stderr(_))) => {}
            other => panic!("the output ended with {other:?} after {text:?}"),
        }
    }
    text
}

#[tokio::test]
async fn a_container_lives_from_create_to_remove() {
    let scene = EngineFixture::new().await;
    let spec = scene.spec("life", r#"echo "out $GREETING"; echo err >&2; read line; echo "got $line"; exit 3"#);
    let id = scene.docker.create(&spec).await.unwrap();
    let fresh = scene.docker.inspect(&id).await.unwrap().unwrap();
    assert!(fresh.never_started && !fresh.running && fresh.exit_code.is_none(), "{fresh:?}");
    let mut attachment = scene.docker.attach(&id).await.unwrap();
    scene.docker.start(&id).await.unwrap();

    // The very first byte is there, because the attach came first.
    assert_eq!(read_until(&mut attachment, "\n").await, "out a=b c\n");
    let running = scene.docker.inspect(&id).await.unwrap().unwrap();
    assert!(running.running && !running.paused && running.exit_code.is_none(), "{running:?}");
    let processes = scene.docker.top(&id).await.unwrap();
    assert!(processes.iter().any(|line| line.contains("/bin/sh")), "{processes:?}");
    let waiting = tokio::spawn({
        let (docker, id) = (scene.docker.clone(), id.clone());
        async move { docker.wait(&id).await }
    });
    attachment.stdin.write_all(b"hello\n").await.unwrap();
    attachment.stdin.flush().await.unwrap();
    assert_eq!(read_until(&mut attachment, "hello\n").await, "got hello\n");
    assert_eq!(with_timeout(waiting).await.unwrap().unwrap(), 3);

    let ended = scene.docker.inspect(&id).await.unwrap().unwrap();
    assert_eq!((ended.running, ended.exit_code, ended.oom_killed), (false, Some(3), false));
    // Waiting for what has ended answers at once, and the log has both streams from the start.
    assert_eq!(with_timeout(scene.docker.wait(&id)).await.unwrap(), 3);
    let log = scene.docker.logs(&id, true).await.unwrap();
    assert_eq!(with_timeout(collect(log)).await, ("out a=b c\ngot hello\n".to_owned(), "err\n".to_owned()));

    scene.docker.remove(&id).await.unwrap();
    scene.docker.remove(&id).await.unwrap();
    assert_eq!(scene.docker.inspect(&id).await.unwrap(), None);
    scene.docker.signal(&id, Signal::Kill).await.unwrap();
    for gone in [scene.docker.wait(&id).await.map(|_| ()), scene.docker.attach(&id).await.map(|_| ())] {
        assert!(matches!(gone, Err(EngineError::NotFound { .. })), "{gone:?}");
    }
    let mut log = scene.docker.logs(&id, false).await.unwrap();
    assert!(matches!(log.next().await, Some(Err(EngineError::NotFound { .. }))));
}

#[tokio::test]
async fn inspect_shows_the_hardening() {
    let scene = EngineFixture::new().await;
    let volume = format!("{}-v", scene.label);
    scene.docker.ensure_volume(&volume, &scene.labels()).await.unwrap();
    let mut spec = scene.spec("closed", "read line");
    spec.mounts =
        vec![VolumeMount { volume: volume.clone(), target: "/vol".to_owned(), read_only: true, subpath: None }];
    let (id, _attachment) = scene.run(&spec).await;
    let shown = Command::new("docker").args(["inspect", id.as_str()]).output().expect("the docker command");
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let (config, host) = (&shown[0]["Config"], &shown[0]["HostConfig"]);
    let list = |words: &[&str]| serde_json::json!(words);
    assert_eq!(config["User"], "20001:20002");
    assert_eq!(host["CapDrop"], list(&["ALL"]));
    assert!(host["CapAdd"].is_null() || host["CapAdd"] == list(&[]), "{}", host["CapAdd"]);
    assert_eq!(host["SecurityOpt"], list(&["no-new-privileges"]));
    assert_eq!(host["Privileged"], false);
    assert_eq!(host["ReadonlyRootfs"], true);
    assert_eq!(host["Init"], false);
    assert_eq!(host["AutoRemove"], false);
    assert_eq!(host["PidsLimit"], 64);
    assert_eq!(host["Memory"], 64 << 20);
    assert_eq!(host["MemorySwap"], 64 << 20);
    assert_eq!(host["NanoCpus"], 500_000_000);
    assert_eq!(host["NetworkMode"], "none");
    assert_eq!(host["RestartPolicy"]["Name"], "no");
    assert_eq!(host["LogConfig"]["Type"], "json-file");
    assert!(host["Binds"].is_null(), "{}", host["Binds"]);
    for mount in shown[0]["Mounts"].as_array().unwrap() {
        assert_eq!(mount["Type"], "volume", "{mount}");
    }
    assert_eq!(host["Mounts"][0]["VolumeOptions"]["NoCopy"], true);
    assert_eq!((&config["Tty"], &config["OpenStdin"]), (&false.into(), &true.into()));
    assert_eq!(config["StdinOnce"], false);
}

#[tokio::test]
async fn the_hardening_holds_inside_the_sandbox() {
    let scene = EngineFixture::new().await;
    let volume = format!("{}-v", scene.label);
    scene.docker.ensure_volume(&volume, &scene.labels()).await.unwrap();
    let script = r#"
        echo "id $(id -u):$(id -g) groups $(id -G)"
        grep -E '^(CapEff|CapBnd|CapPrm|NoNewPrivs|Seccomp):' /proc/self/status | tr -s '\t ' ' '
        touch /x 2>/dev/null && echo root-writable
        touch /vol/x 2>/dev/null && echo volume-writable
        touch /tmp/x && echo tmp-writable
        echo "links $(ls /sys/class/net | tr '\n' ' ')"
        echo "first $(cat /proc/1/comm)"
    "#;
    let mut spec = scene.spec("inside", script);
    spec.mounts = vec![VolumeMount { volume, target: "/vol".to_owned(), read_only: true, subpath: None }];
    let (code, out, err) = scene.finish(&spec).await;
    let expected = [
        "id 20001:20002 groups 20002",
        "CapPrm: 0000000000000000",
        "CapEff: 0000000000000000",
        "CapBnd: 0000000000000000",
        "NoNewPrivs: 1",
        "Seccomp: 2",
        "tmp-writable",
        "links lo ",
        "first sh",
    ];
    assert_eq!(out.lines().collect::<Vec<_>>(), expected, "stderr: {err}");
    assert_eq!(code, 0);
}

#[tokio::test]
async fn root_keeps_only_the_named_capabilities() {
    let scene = EngineFixture::new().await;
    let mut spec = scene.spec("caps", "grep CapEff /proc/self/status");
    spec.user = (0, 0);
    spec.added_capabilities = ["CHOWN", "DAC_OVERRIDE", "SETGID", "SETUID"].map(str::to_owned).to_vec();
    // Bits 0, 1, 6 and 7.
    assert_eq!(scene.finish(&spec).await.1, "CapEff:\t00000000000000c3\n");
}

#[tokio::test]
async fn a_kill_is_137_and_an_oom_is_flagged() {
    let scene = EngineFixture::new().await;
    let (id, mut attachment) = scene.run(&scene.spec("kill", "echo up; read line")).await;
    read_until(&mut attachment, "up\n").await;
    scene.docker.signal(&id, Signal::Kill).await.unwrap();
    assert_eq!(with_timeout(scene.docker.wait(&id)).await.unwrap(), 137);
    assert!(!scene.docker.inspect(&id).await.unwrap().unwrap().oom_killed);
    // It does not run any more, which is not an error.
    scene.docker.signal(&id, Signal::Term).await.unwrap();

    let mut spec = scene.spec("oom", "exec tail /dev/zero");
    spec.memory_limit = 32 << 20;
    let (id, _attachment) = scene.run(&spec).await;
    assert_eq!(with_timeout(scene.docker.wait(&id)).await.unwrap(), 137);
    let ended = scene.docker.inspect(&id).await.unwrap().unwrap();
    assert!(ended.oom_killed, "{ended:?}");
}

#[tokio::test]
async fn sigterm_reaches_the_first_process() {
    let scene = EngineFixture::new().await;
    let (id, mut attachment) =
        scene.run(&scene.spec("term", "trap 'echo bye; exit 9' TERM; echo up; read line; echo no")).await;
    read_until(&mut attachment, "up\n").await;
    scene.docker.signal(&id, Signal::Term).await.unwrap();
    assert_eq!(read_until(&mut attachment, "\n").await, "bye\n");
    assert_eq!(with_timeout(scene.docker.wait(&id)).await.unwrap(), 9);
}

#[tokio::test]
async fn a_paused_container_reports_it_and_can_be_removed() {
    let scene = EngineFixture::new().await;
    let (id, mut attachment) = scene.run(&scene.spec("pause", "echo up; read line; echo on; read line")).await;
    read_until(&mut attachment, "up\n").await;
    scene.docker.pause(&id).await.unwrap();
    let paused = scene.docker.inspect(&id).await.unwrap().unwrap();
    assert!(paused.paused && paused.running && paused.exit_code.is_none(), "{paused:?}");
    scene.docker.unpause(&id).await.unwrap();
    attachment.stdin.write_all(b"\n").await.unwrap();
    attachment.stdin.flush().await.unwrap();
    assert_eq!(read_until(&mut attachment, "on\n").await, "on\n");
    scene.docker.pause(&id).await.unwrap();
    drop(attachment);
    with_timeout(scene.docker.remove(&id)).await.unwrap();
    assert_eq!(scene.docker.inspect(&id).await.unwrap(), None);
}

#[tokio::test]
async fn pause_is_idempotent_and_fails_for_a_stopped_container() {
    let scene = EngineFixture::new().await;
    let refused = |answer: EngineResult<()>| match answer {
        Err(error @ EngineError::Refused { status: 409, .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let (id, mut attachment) = scene.run(&scene.spec("twice", "echo up; read line; exit 4")).await;
    read_until(&mut attachment, "up\n").await;
    scene.docker.unpause(&id).await.expect("it is not paused");
    for _ in 0..2 {
        scene.docker.pause(&id).await.expect("paused");
        assert!(scene.docker.inspect(&id).await.unwrap().unwrap().paused);
    }
    for _ in 0..2 {
        scene.docker.unpause(&id).await.expect("unpaused");
        assert!(!scene.docker.inspect(&id).await.unwrap().unwrap().paused);
    }
    attachment.stdin.write_all(b"\n").await.unwrap();
    attachment.stdin.flush().await.unwrap();
    assert_eq!(with_timeout(scene.docker.wait(&id)).await.unwrap(), 4);
    // One that has ended, one that was never started, one that is gone.
    let fresh = scene.docker.create(&scene.spec("fresh", "true")).await.unwrap();
    for still in [&id, &fresh] {
        assert!(refused(scene.docker.pause(still).await).starts_with("pausing a container"));
        assert!(refused(scene.docker.unpause(still).await).starts_with("unpausing a container"));
    }
    scene.docker.remove(&id).await.unwrap();
    for answer in [scene.docker.pause(&id).await, scene.docker.unpause(&id).await] {
        assert!(matches!(answer, Err(EngineError::NotFound { .. })), "{answer:?}");
    }
}

#[tokio::test]
async fn long_output_arrives_whole() {
    let scene = EngineFixture::new().await;
    let mut spec = scene.spec("long", "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end");
    spec.milli_cpus = 0;
    let (id, attachment) = scene.run(&spec).await;
    let (out, _) = with_timeout(collect(attachment.output)).await;
    assert_eq!(out.len(), 3_000_005);
    assert!(out.ends_with("x\nend\n"));
    let log = scene.docker.logs(&id, false).await.unwrap();
    assert!(with_timeout(collect(log)).await.0 == out, "the log differs from what was attached");
}

#[tokio::test]
async fn a_dropped_attach_leaves_stdin_open() {
    let scene = EngineFixture::new().await;
    let (id, mut first) = scene.run(&scene.spec("again", "echo up; read line; echo got $line")).await;
    read_until(&mut first, "up\n").await;
    drop(first);
    let mut second = scene.docker.attach(&id).await.unwrap();
    second.stdin.write_all(b"me\n").await.unwrap();
    second.stdin.flush().await.unwrap();
    assert_eq!(read_until(&mut second, "me\n").await, "got me\n");
    assert_eq!(with_timeout(scene.docker.wait(&id)).await.unwrap(), 0);
}

#[tokio::test]
async fn a_volume_keeps_uploads_and_is_found_by_label() {
    let scene = EngineFixture::new().await;
    let volume = format!("{}-v", scene.label);
    scene.docker.ensure_volume(&volume, &scene.labels()).await.unwrap();
    // Making it again finds it.
    scene.docker.ensure_volume(&volume, &scene.labels()).await.unwrap();
    let mut spec = scene.spec("upload", "cat /vol/dir/file; stat -c '%a %u' /vol/dir/file");
    spec.mounts =
        vec![VolumeMount { volume: volume.clone(), target: "/vol".to_owned(), read_only: false, subpath: None }];
    let id = scene.docker.create(&spec).await.unwrap();
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(5);
    header.set_mode(0o750);
    header.set_uid(20_001);
    tar.append_data(&mut header, "dir/file", &b"text\n"[..]).unwrap();
    scene.docker.upload(&id, "/vol", tar.into_inner().unwrap().into()).await.unwrap();
    let attachment = scene.docker.attach(&id).await.unwrap();
    scene.docker.start(&id).await.unwrap();
    assert_eq!(with_timeout(collect(attachment.output)).await.0, "text\n750 20001\n");

    let found = scene.docker.find_resources("test", Some(&scene.label)).await.unwrap();
    let mut seen: Vec<_> = found.iter().map(|it| (it.kind, it.name.as_str())).collect();
    seen.sort();
    assert_eq!(
        seen,
        [(EngineResourceKind::Container, spec.name.as_str()), (EngineResourceKind::Volume, volume.as_str())]
    );
    // A container has its image's labels too.
    let ours = |it: &EngineResource| scene.labels().iter().all(|(key, value)| it.labels.get(key) == Some(value));
    assert!(found.iter().all(ours), "{found:?}");
    assert!(scene.docker.find_resources("test", Some("no such value")).await.unwrap().is_empty());

    let in_use = scene.docker.remove_volume(&volume).await;
    assert!(matches!(in_use, Err(EngineError::Refused { status: 409, .. })), "{in_use:?}");
    scene.docker.remove(&id).await.unwrap();
    scene.docker.remove_volume(&volume).await.unwrap();
    scene.docker.remove_volume(&volume).await.unwrap();
    scene.docker.remove_network("longshore-test-no-such-network").await.unwrap();
    assert!(scene.docker.find_resources("test", Some(&scene.label)).await.unwrap().is_empty());
}

#[tokio::test]
async fn missing_resources_are_not_found_errors() {
    let scene = EngineFixture::new().await;
    assert_eq!(scene.docker.image("longshore/no-such-image:1").await.unwrap(), None);
    let odd = scene.docker.image("../containers/json").await;
    assert!(matches!(odd, Err(EngineError::Refused { .. })), "{odd:?}");
    let mut spec = scene.spec("missing", "true");
    spec.image = "longshore/no-such-image:1".to_owned();
    let error = scene.docker.create(&spec).await.unwrap_err();
    assert_eq!(error.to_string(), "creating a container: `longshore/no-such-image:1` is not there");

    // A program that is not in the image: refused at once, not tried again and again.
    let mut spec = scene.spec("program", "true");
    spec.argv = vec!["/no/such/program".to_owned()];
    let id = scene.docker.create(&spec).await.unwrap();
    let error = scene.docker.start(&id).await.unwrap_err();
    assert!(matches!(error, EngineError::Refused { .. }), "{error:?}");
    let error = scene.docker.pause(&id).await.unwrap_err();
    assert!(matches!(error, EngineError::Refused { status: 409, .. }), "{error:?}");

    let mut spec = scene.spec("network", "true");
    spec.network = "longshore-test-no-such-network".to_owned();
    let error = match scene.docker.create(&spec).await {
        Ok(id) => scene.docker.start(&id).await.unwrap_err(),
        Err(error) => error,
    };
    assert!(error.to_string().contains("longshore-test-no-such-network"), "{error:?}");
}

#[tokio::test]
async fn a_name_in_use_is_refused() {
    let scene = EngineFixture::new().await;
    let spec = scene.spec("twice", "true");
    scene.docker.create(&spec).await.unwrap();
    let error = scene.docker.create(&spec).await.unwrap_err();
    assert!(matches!(error, EngineError::Refused { status: 409, .. }), "{error:?}");
}

#[tokio::test]
async fn an_absent_socket_is_unreachable() {
    let at = |path: PathBuf| Endpoint { address: EngineAddress::Unix(path), reason: "test".to_owned() };
    let dir = tempfile::tempdir().unwrap();
    let absent = at(dir.path().join("absent.sock"));
    // A socket file that nobody listens on any more.
    let refusing = at(dir.path().join("refusing.sock"));
    drop(std::os::unix::net::UnixListener::bind(dir.path().join("refusing.sock")).unwrap());
    for endpoint in [absent, refusing] {
        let error = DockerEngine::connect(&endpoint, DockerOptions::default()).await.err().expect("an error");
        assert!(matches!(&error, EngineError::Unreachable { .. }), "{error:?}");
        assert!(error.to_string().contains(".sock (test)"), "{error}");
    }
}

#[test]
fn a_forbidden_socket_is_permission_denied() {
    use std::os::unix::fs::PermissionsExt;

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("closed.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o000)).unwrap();
    let endpoint = Endpoint { address: EngineAddress::Unix(path), reason: "test".to_owned() };
    // Modes do not bind root: a thread of its own becomes nobody, and stays that until it ends.
    let connecting = std::thread::spawn(move || {
        if rustix::process::geteuid().is_root() {
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65_534)).unwrap();
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(DockerEngine::connect(&endpoint, DockerOptions::default())).err()
    });
    let error = connecting.join().unwrap().expect("an error");
    assert!(matches!(&error, EngineError::PermissionDenied { .. }), "{error:?}");
}

#[tokio::test]
async fn a_socket_that_is_no_engine_is_unreachable() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let server = tokio::spawn(async move {
        // The first only tries whether somebody listens, and goes away.
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await;
            let _ = stream.shutdown().await;
        }
    });
    let endpoint = Endpoint { address: EngineAddress::Unix(path), reason: "test".to_owned() };
    let error = DockerEngine::connect(&endpoint, DockerOptions::default()).await.err().expect("an error");
    assert!(matches!(error, EngineError::Unreachable { .. }), "{error:?}");
    server.abort();
}

#[tokio::test]
async fn the_engine_describes_itself() {
    let scene = EngineFixture::new().await;
    let info = scene.docker.info().await.unwrap();
    assert!(info.name.starts_with("Docker ") || info.name.starts_with("Podman "), "{info:?}");
    assert_eq!(info.arch, std::env::consts::ARCH);
    assert!(info.cpus >= 1 && info.memory > 0 && info.api_version.starts_with("1."), "{info:?}");
    assert!(matches!(info.cgroup_version, 1 | 2));
    let image = scene.docker.image(IMAGE).await.unwrap().unwrap();
    assert_eq!(image.arch, info.arch);
    assert!(image.id.starts_with("sha256:") && image.tags.contains(&IMAGE.to_owned()), "{image:?}");
}

#[tokio::test]
async fn images_are_built_and_build_failures_reported() {
    let scene = EngineFixture::new().await;
    let context = |dockerfile: &str| {
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(dockerfile.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, "Dockerfile", dockerfile.as_bytes()).unwrap();
        bytes::Bytes::from(tar.into_inner().unwrap())
    };
    let tag = format!("longshore/test-{}:1", std::process::id());
    let mut lines = Vec::new();
    let dockerfile = format!("FROM {IMAGE}\nARG WORD\nLABEL test={} word=$WORD\nENV PATH=/bin:/x\n", scene.label);
    let args = [("WORD".to_owned(), "yes".to_owned())];
    let mut note = |line: &str| lines.push(line.to_owned());
    scene.docker.build_image(&tag, context(&dockerfile), &args, &mut note).await.unwrap();
    let image = scene.docker.image(&tag).await.unwrap().unwrap();
    let labelled = scene.docker.images("word").await.unwrap();
    assert!(lines.iter().any(|line| line.starts_with("Step 1/4")), "{lines:?}");
    assert_eq!(image.path.as_deref(), Some("/bin:/x"));
    assert_eq!(image.labels["word"], "yes");
    assert!(labelled.iter().any(|it| it.id == image.id));

    let broken = context(&format!("FROM {IMAGE}\nNOSUCH thing\n"));
    let error = scene.docker.build_image(&tag, broken, &[], &mut |_| {}).await.unwrap_err();
    assert!(error.to_string().contains("NOSUCH"), "{error}");
    let failing = context(&format!("FROM {IMAGE}\nRUN echo seen; exit 7\n"));
    let mut seen = false;
    let error = scene.docker.build_image(&tag, failing, &[], &mut |line| seen |= line == "seen").await.unwrap_err();
    assert!(seen && error.to_string().contains("non-zero code: 7"), "{seen} {error:?}");
}
