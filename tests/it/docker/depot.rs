//! The depot over a real daemon: the client here, the shim there, git and volumes between them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

use longshore::engine::depot::{CollectedFiles, DepotClient, DepotSpec, DepotVolumes, EngineSpace};
use longshore::engine::docker::{DockerEngine, DockerOptions};
use longshore::engine::{ContainerSpec, Engine, EngineError, VolumeMount, label, resolve};
use longshore::handoff::depot::{DepotErrorKind, ObjectTip, TextFile};
use longshore::handoff::layout;
use longshore::handoff::sandbox_users::SandboxUsers;
use longshore::ids::{CommitId, SwarmId};

const IMAGE: &str = "longshore/sandbox:latest";
const UID: u32 = 20_123;
const USERS: SandboxUsers = SandboxUsers { agent: UID, shim: UID + 20_000 };
const ATTEMPT_DIR: &str = "T-2026-001-1";

/// The static shim: the one that is named, or one as fresh as the sources, for which cargo has nothing to do where it is.
pub fn shim() -> PathBuf {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| std::env::var_os("LONGSHORE_SHIM").map_or_else(build_shim, PathBuf::from)).clone()
}

fn build_shim() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let lock = std::fs::File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join("shim.lock")).expect("a lock file");
    lock.lock().expect("one build at a time");
    let built = Command::new(root.join("scripts/build.sh")).arg("--shim-only").stdout(Stdio::null()).status();
    assert!(built.expect("scripts/build.sh can be run").success(), "the shim cannot be built");
    root.join("target/dist/acp-shim")
}

/// A swarm's volumes and containers, removed in the end.
struct DepotFixture {
    docker: DockerEngine,
    spec: DepotSpec,
}

impl DepotFixture {
    async fn new() -> Self {
        let endpoint = resolve::resolve_endpoint(&|name| std::env::var(name).ok()).expect("the engine's settings");
        let docker = DockerEngine::connect(&endpoint, DockerOptions::default()).await.unwrap_or_else(|error| {
            panic!("this test needs a Docker daemon (start one: `service docker start`, or `dockerd &`): {error}")
        });
        let swarm = SwarmId::random();
        let name = |what: &str| format!("longshore-test-{}-{what}", swarm.short());
        let volumes = DepotVolumes {
            objects: name("objects"),
            inbox: name("in"),
            work: name("work"),
            mailbox: Some(name("mailbox")),
        };
        let shim = std::fs::read(shim()).expect("the shim").into();
        let (repo, image, name) = ("0123456789ab".to_owned(), IMAGE.to_owned(), name("depot"));
        Self {
            docker,
            spec: DepotSpec {
                swarm,
                repo,
                image,
                name,
                volumes,
                shim_binary: shim,
                reuse_shim: false,
                memory_limit: 512 << 20,
            },
        }
    }

    async fn depot(&self) -> DepotClient {
        DepotClient::start(Arc::new(self.docker.clone()), &self.spec).await.expect("the depot starts")
    }

    /// Runs a script in the agent's place.
    async fn sandbox(&self, script: &str) -> String {
        self.sandbox_as(UID, script).await
    }

    /// Runs a script as a user, with the volumes as a sandbox has them.
    async fn sandbox_as(&self, uid: u32, script: &str) -> String {
        let mount = |volume: &str, target: &str, read_only| VolumeMount {
            volume: volume.to_owned(),
            target: target.to_owned(),
            read_only,
            subpath: None,
        };
        let volumes = &self.spec.volumes;
        let spec = ContainerSpec {
            name: format!("{}-sandbox", self.spec.name),
            image: IMAGE.to_owned(),
            argv: ["/bin/sh", "-ec", script].map(str::to_owned).to_vec(),
            env: vec![("GIT_CONFIG_GLOBAL".to_owned(), "/dev/null".to_owned())],
            user: (uid, uid),
            workdir: "/".to_owned(),
            labels: [(label::SWARM.to_owned(), self.spec.swarm.to_string())].into(),
            mounts: vec![
                mount(&volumes.objects, layout::OBJECTS, true),
                mount(&volumes.inbox, layout::IN, true),
                mount(&volumes.work, layout::WORK, false),
            ],
            tmpfs: Vec::new(),
            memory_limit: 256 << 20,
            milli_cpus: 0,
            pids_limit: 64,
            network: "none".to_owned(),
            added_capabilities: Vec::new(),
        };
        let id = self.docker.create(&spec).await.expect("create");
        self.docker.start(&id).await.expect("start");
        let code = self.docker.wait(&id).await.expect("wait");
        let log = Command::new("docker").args(["logs", id.as_str()]).output().expect("docker logs");
        self.docker.remove(&id).await.expect("remove");
        assert_eq!(code, 0, "{}", String::from_utf8_lossy(&log.stderr));
        String::from_utf8(log.stdout).expect("text")
    }
}

impl Drop for DepotFixture {
    fn drop(&mut self) {
        let ours = format!("label={}={}", label::SWARM, self.spec.swarm);
        if let Ok(found) = Command::new("docker").args(["ps", "-aq", "--filter", &ours]).output() {
            let found = String::from_utf8_lossy(&found.stdout).into_owned();
            let _ = Command::new("docker").args(["rm", "-fv"]).args(found.split_whitespace()).output();
        }
        let DepotVolumes { objects, inbox, work, mailbox } = &self.spec.volumes;
        let volumes = [objects, inbox, work].into_iter().chain(mailbox);
        let _ = Command::new("docker").args(["volume", "rm", "-f"]).args(volumes).output();
    }
}

fn git(dir: &Path, args: &[&str]) -> String {
    let identity = ["-c", "user.name=Test", "-c", "user.email=test@example.com"];
    let output = Command::new("git").current_dir(dir).args(identity).args(args).output().expect("git");
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

fn pack(dir: &Path, commit: &str) -> Vec<u8> {
    use std::io::Write;
    let mut child = Command::new("git")
        .current_dir(dir)
        .args(["pack-objects", "--revs", "--stdout", "-q"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("git");
    child.stdin.take().expect("a pipe").write_all(commit.as_bytes()).expect("git reads");
    child.wait_with_output().expect("git ends").stdout
}

#[tokio::test]
async fn a_repository_goes_in_and_a_bundle_comes_out() {
    let swarm = DepotFixture::new().await;
    let depot = swarm.depot().await;
    let dir = tempfile::tempdir().unwrap();
    let repo = dir.path().join("repo");
    std::fs::create_dir(&repo).unwrap();
    git(&repo, &["init", "-q", "-b", "main"]);
    std::fs::write(repo.join("file"), "one\n").unwrap();
    // Larger than a frame, and more objects than are unpacked one by one.
    let noise: String = (0..200_000_u64).map(|n| format!("{}\n", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    std::fs::write(repo.join("large"), noise).unwrap();
    git(&repo, &["add", "."]);
    git(&repo, &["commit", "-q", "-m", "one"]);
    let base: CommitId = git(&repo, &["rev-parse", "HEAD"]).parse().unwrap();

    assert_eq!(depot.prepare_objects_volume("sha1").await.unwrap(), []);
    let bytes = pack(&repo, base.as_str());
    let tips = vec![ObjectTip { name: format!("refs/longshore/base/{base}"), commit: base.clone() }];
    // A pack that breaks off is refused, and its tips are not believed.
    let broken = depot.store_pack(&bytes[..bytes.len() / 2], tips.clone(), String::new()).await;
    assert!(matches!(broken, Err(EngineError::Depot { kind: Some(_), .. })), "{broken:?}");
    assert_eq!(depot.prepare_objects_volume("sha1").await.unwrap(), []);
    depot.store_pack(&bytes[..], tips.clone(), String::new()).await.unwrap();
    assert_eq!(depot.prepare_objects_volume("sha1").await.unwrap(), tips);

    let files = vec![TextFile { path: "tasks/a/b.json".to_owned(), text: "{}".to_owned() }];
    let (prepared, space) = tokio::join!(depot.prepare_sandbox_dirs(ATTEMPT_DIR, USERS, files), depot.free_space());
    prepared.unwrap();
    let EngineSpace { free, total, memory_available } = space.unwrap();
    assert!(memory_available > 1 << 20, "{memory_available}");
    assert!(0 < free && free <= total, "{free} of {total}");
    let script = format!(
        r#"
        cd /longshore/in/{ATTEMPT_DIR}; stat -c '%a %u %g %n' . tasks tasks/a tasks/a/b.json
        cd /longshore/work/{ATTEMPT_DIR}; stat -c '%a %u %g %n' . repo run in out
        ! ls . 2>/dev/null; ! ls out 2>/dev/null; ! mv out gone 2>/dev/null; ! rmdir run 2>/dev/null
        cd repo; git init -q -b work .; echo /longshore/objects/repo.git/objects > .git/objects/info/alternates
        git reset -q --hard {base}; wc -l < large
        echo two > file
        git -c user.name=x -c user.email=x@y commit -q -a -m two
        chmod 755 ../run; git bundle create -q ../run/bundle work ^{base}
        git rev-parse HEAD; echo three > file"#
    );
    let seen = swarm.sandbox(&script).await;
    let script = r#"cp run/bundle out/result.bundle; printf '{"a": 1}' > out/result.json; ! ls repo 2>/dev/null"#;
    swarm.sandbox_as(USERS.shim, &format!("cd /longshore/work/{ATTEMPT_DIR}; {script}")).await;
    let lines: Vec<&str> = seen.lines().collect();
    let modes = |mode: &str, names: &[&str]| -> Vec<String> {
        names.iter().map(|name| format!("{mode} {UID} {UID} {name}")).collect()
    };
    assert_eq!(lines[..3], modes("500", &[".", "tasks", "tasks/a"]));
    assert_eq!(lines[3], modes("400", &["tasks/a/b.json"])[0]);
    assert_eq!(lines[4], format!("711 {0} {0} .", USERS.shim));
    assert_eq!(lines[5..8], modes("700", &["repo", "run", "in"]));
    assert_eq!(lines[8], format!("700 {0} {0} out", USERS.shim));
    assert_eq!(lines[9], "200000");

    let bundle = dir.path().join("bundle");
    let collected = depot.collect(ATTEMPT_DIR, UID, 1 << 20, &bundle).await.unwrap();
    assert_eq!(collected, CollectedFiles { result: Some(b"{\"a\": 1}".to_vec()), has_bundle: true });
    git(&repo, &["fetch", "-q", bundle.to_str().unwrap(), "work:work"]);
    assert_eq!(git(&repo, &["rev-parse", "work"]), lines[10]);

    // The shim is dead, and "three" was never committed.
    let salvaged = dir.path().join("salvaged");
    let reference = "refs/longshore/salvage/US-001";
    let salvage = depot.salvage(ATTEMPT_DIR, UID, &base, reference, 1 << 20, &salvaged).await.unwrap();
    let commit = salvage.commit.expect("there is something");
    assert_eq!(salvage.left_out, [""; 0]);
    git(&repo, &["fetch", "-q", salvaged.to_str().unwrap(), reference]);
    assert_eq!(git(&repo, &["show", &format!("{commit}:file")]), "three");

    let too_large = depot.collect(ATTEMPT_DIR, UID, 10, &dir.path().join("none")).await;
    let refused = matches!(too_large, Err(EngineError::Depot { kind: Some(DepotErrorKind::Refused), .. }));
    assert!(refused, "{too_large:?}");
    depot.remove_sandbox_dirs(ATTEMPT_DIR, UID).await.unwrap();
    assert_eq!(swarm.sandbox("ls /longshore/work /longshore/in").await, "/longshore/in:\nbin\n\n/longshore/work:\n");
    depot.close().await.unwrap();
}

fn docker_kill(depot: &DepotClient) {
    let killed = Command::new("docker").args(["kill", depot.container_id().as_str()]).output().expect("docker");
    assert!(killed.status.success(), "{killed:?}");
}

/// A repository with one commit, in the objects volume.
async fn push_base_commit(depot: &DepotClient, dir: &Path) -> (CommitId, Vec<ObjectTip>) {
    git(dir, &["init", "-q", "-b", "main"]);
    std::fs::write(dir.join("file"), "one\n").expect("done");
    git(dir, &["add", "."]);
    git(dir, &["commit", "-q", "-m", "one"]);
    let base: CommitId = git(dir, &["rev-parse", "HEAD"]).parse().expect("done");
    assert_eq!(depot.prepare_objects_volume("sha1").await.expect("done"), []);
    let tips = vec![ObjectTip { name: format!("refs/longshore/base/{base}"), commit: base.clone() }];
    depot.store_pack(&pack(dir, base.as_str())[..], tips.clone(), String::new()).await.expect("done");
    (base, tips)
}

#[tokio::test]
async fn a_depot_killed_between_requests_comes_back_with_everything() {
    let swarm = DepotFixture::new().await;
    let depot = swarm.depot().await;
    let dir = tempfile::tempdir().unwrap();
    let (base, tips) = push_base_commit(&depot, dir.path()).await;
    let first = depot.container_id();
    let shim = swarm.sandbox("stat -c %i /longshore/in/bin/acp-shim").await;

    docker_kill(&depot);
    assert_eq!(depot.prepare_objects_volume("sha1").await.unwrap(), tips);
    assert_ne!(depot.container_id(), first);
    assert!(swarm.docker.inspect(&first).await.unwrap().is_none(), "the dead one is removed");
    assert_eq!(swarm.sandbox("stat -c %i /longshore/in/bin/acp-shim").await, shim, "sandboxes may be starting with it");

    docker_kill(&depot);
    let files = vec![TextFile { path: "a.json".to_owned(), text: "{}".to_owned() }];
    depot.prepare_sandbox_dirs(ATTEMPT_DIR, USERS, files).await.unwrap();
    docker_kill(&depot);
    let script = format!(
        r#"
        cd /longshore/work/{ATTEMPT_DIR}/repo; git init -q -b work .
        echo /longshore/objects/repo.git/objects > .git/objects/info/alternates
        git reset -q --hard {base}; echo two > file; cat /longshore/in/{ATTEMPT_DIR}/a.json"#
    );
    assert_eq!(swarm.sandbox(&script).await, "{}");
    let script = format!(r#"printf '{{"a": 1}}' > /longshore/work/{ATTEMPT_DIR}/out/result.json"#);
    swarm.sandbox_as(USERS.shim, &script).await;
    let to = dir.path().join("bundle");
    let collected = depot.collect(ATTEMPT_DIR, UID, 1 << 20, &to).await.unwrap();
    assert_eq!(collected, CollectedFiles { result: Some(b"{\"a\": 1}".to_vec()), has_bundle: false });
    docker_kill(&depot);
    let commit =
        depot.salvage(ATTEMPT_DIR, UID, &base, "refs/longshore/salvage/x", 1 << 20, &to).await.unwrap().commit.unwrap();
    git(dir.path(), &["fetch", "-q", to.to_str().unwrap(), "refs/longshore/salvage/x"]);
    assert_eq!(git(dir.path(), &["show", &format!("{commit}:file")]), "two");
    docker_kill(&depot);
    depot.remove_sandbox_dirs(ATTEMPT_DIR, UID).await.unwrap();
    assert_eq!(swarm.sandbox("ls /longshore/work /longshore/in").await, "/longshore/in:\nbin\n\n/longshore/work:\n");
    docker_kill(&depot);
    depot.close().await.unwrap();
    assert!(depot.free_space().await.is_err());
    assert!(swarm.docker.inspect(&depot.container_id()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_depot_killed_during_requests_loses_none() {
    let swarm = DepotFixture::new().await;
    let depot = swarm.depot().await;
    let dir = tempfile::tempdir().unwrap();
    let (_, tips) = push_base_commit(&depot, dir.path()).await;
    let first = depot.container_id();
    // A pack under way, which nobody ends, and many requests beside it.
    let (mut source, body) = tokio::io::duplex(1024);
    let storing = tokio::spawn({
        let (depot, tips) = (depot.clone(), tips.clone());
        async move { depot.store_pack(body, tips, String::new()).await }
    });
    tokio::io::AsyncWriteExt::write_all(&mut source, b"PACK").await.unwrap();
    let requests: Vec<_> = (0..30)
        .map(|number| {
            let (depot, folder) = (depot.clone(), format!("T-2026-{number:03}-1"));
            let file = TextFile { path: "a.json".to_owned(), text: folder.clone() };
            let users = SandboxUsers { agent: UID + number, shim: USERS.shim + number };
            tokio::spawn(async move { depot.prepare_sandbox_dirs(&folder, users, vec![file]).await })
        })
        .collect();
    let killing = depot.clone();
    tokio::task::spawn_blocking(move || docker_kill(&killing)).await.unwrap();
    let error = storing.await.unwrap().unwrap_err();
    assert!(matches!(error, EngineError::Depot { kind: None, .. }), "{error:?}");
    for request in requests {
        request.await.unwrap().unwrap();
    }
    assert_ne!(depot.container_id(), first);
    assert_eq!(depot.prepare_objects_volume("sha1").await.unwrap(), tips);
    let seen = swarm.sandbox("ls /longshore/in | grep -c ^T; ls /longshore/work | wc -l").await;
    assert_eq!(seen, "30\n30\n");
    // What is in a work folder is whole: one of each, owned by its user.
    depot.remove_sandbox_dirs(ATTEMPT_DIR, UID + 1).await.unwrap();
    depot
        .prepare_sandbox_dirs(ATTEMPT_DIR, USERS, vec![TextFile { path: "a.json".to_owned(), text: "x".to_owned() }])
        .await
        .unwrap();
    assert_eq!(swarm.sandbox(&format!("cat /longshore/in/{ATTEMPT_DIR}/a.json")).await, "x");

    depot.close().await.unwrap();
}

#[tokio::test]
async fn a_new_depot_remakes_or_removes_half_made_directories() {
    let swarm = DepotFixture::new().await;
    let depot = swarm.depot().await;
    let DepotVolumes { inbox, work, .. } = &swarm.spec.volumes;
    // As far as a depot gets: the files, the work folder, some of its folders, none of them given away or some.
    let steps = [
        "mkdir -m 700 /in/T-1 /in/T-1/tasks; echo x > /in/T-1/tasks/a.json",
        "chmod 500 /in/T-1; chown -R UID:UID /in/T-1",
        "mkdir -m 700 /work/T-1",
        "mkdir -m 700 /work/T-1/repo; chown UID:UID /work/T-1/repo; mkdir -m 700 /work/T-1/run",
    ];
    for last in 0..steps.len() {
        let script = steps[..=last].join("; ").replace("UID", &UID.to_string());
        let half_make = || {
            let mounts = [format!("{inbox}:/in"), format!("{work}:/work")];
            let made = Command::new("docker")
                .args(["run", "--rm", "--network=none", "--user=0", "--entrypoint=/bin/sh"])
                .args(["-v", &mounts[0], "-v", &mounts[1], IMAGE, "-ec", &script])
                .output()
                .expect("docker run");
            assert!(made.status.success(), "{made:?}");
        };
        half_make();
        depot
            .prepare_sandbox_dirs("T-1", USERS, vec![TextFile { path: "b.json".to_owned(), text: "b".to_owned() }])
            .await
            .unwrap();
        let seen = swarm.sandbox("ls /longshore/in/T-1; echo ours > /longshore/work/T-1/repo/x").await;
        let listed = swarm.sandbox_as(USERS.shim, "ls /longshore/work/T-1").await;
        assert_eq!(seen + &listed, "b.json\nin\nout\nrepo\nrun\n");
        let again = depot.prepare_sandbox_dirs("T-1", USERS, Vec::new()).await;
        assert!(matches!(again, Err(EngineError::Depot { kind: Some(_), .. })), "one that is whole stays: {again:?}");
        assert_eq!(swarm.sandbox("cat /longshore/work/T-1/repo/x").await, "ours\n");
        depot.remove_sandbox_dirs("T-1", UID).await.unwrap();
        half_make();
        depot.remove_sandbox_dirs("T-1", UID).await.unwrap();
        assert_eq!(swarm.sandbox("ls /longshore/work /longshore/in | grep -c T- || true").await, "0\n");
    }
    depot.close().await.unwrap();
}

/// A sandbox of a version that had one user for the shim and the agent may still run when this one resumes its swarm.
#[tokio::test]
async fn directories_of_an_older_version_are_collected_and_removed() {
    let swarm = DepotFixture::new().await;
    let depot = swarm.depot().await;
    let DepotVolumes { inbox, work, .. } = &swarm.spec.volumes;
    let script = r#"mkdir -m 700 /in/T-1 /work/T-1; cd /work/T-1; mkdir -m 700 repo run out; mkdir repo/x
        printf '{"a": 1}' > out/result.json; chmod 000 out; ln -s /etc in"#;
    let script = format!("{script}; chown -R -h {UID}:{UID} /in/T-1 /work/T-1");
    let made = Command::new("docker")
        .args(["run", "--rm", "--network=none", "--user=0", "--entrypoint=/bin/sh"])
        .args(["-v", &format!("{inbox}:/in"), "-v", &format!("{work}:/work"), IMAGE, "-ec", &script])
        .output()
        .expect("docker run");
    assert!(made.status.success(), "{made:?}");
    let dir = tempfile::tempdir().unwrap();
    let collected = depot.collect("T-1", UID, 1 << 20, &dir.path().join("bundle")).await.unwrap();
    assert_eq!(collected, CollectedFiles { result: Some(b"{\"a\": 1}".to_vec()), has_bundle: false });
    depot.remove_sandbox_dirs("T-1", UID).await.unwrap();
    assert_eq!(swarm.sandbox("ls /longshore/work /longshore/in | grep -c T- || true").await, "0\n");
    depot.close().await.unwrap();
}

#[tokio::test]
async fn a_leftover_depot_is_replaced() {
    let swarm = DepotFixture::new().await;
    let left = swarm.depot().await;
    let next = swarm.depot().await;
    assert_eq!(next.prepare_objects_volume("sha1").await.unwrap(), []);
    assert!(swarm.docker.inspect(&left.container_id()).await.unwrap().is_none());
    next.close().await.unwrap();
    assert!(swarm.docker.inspect(&next.container_id()).await.unwrap().is_none());
}
