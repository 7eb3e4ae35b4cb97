//! A Docker daemon of a test's own, which may be killed and started again without harm to the machine's.
//!
//! It has its own network and mount namespaces, folders and socket, no network for its containers, and the sandbox image. A
//! keeper (`keeper.sh`) holds the namespaces, so that a daemon that is started again finds the mounts of the one before; it
//! ends everything when the test is over, also one that was killed. Needs root and `dockerd`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longshore::engine::docker::{DockerEngine, DockerOptions};
use longshore::engine::resolve::{Endpoint, EngineAddress};

mod tests;

/// The image that it gets from the machine's daemon.
pub const IMAGE: &str = "longshore/sandbox:latest";
/// How long it may take to start, to end, or to clean up after itself.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The daemon. Ends, with its containers and files, when it is dropped. Its methods block.
pub struct SecondDaemon {
    folder: PathBuf,
    keeper: Child,
    daemon: Mutex<Option<Child>>,
}

impl SecondDaemon {
    /// Starts it, and brings it the sandbox image.
    pub fn start() -> Self {
        Self::start_after(|_| {})
    }

    /// Starts it with all that it keeps on a file system of its own, which has so much room beside the image; in megabytes.
    pub fn start_on_a_small_disk(room: u64) -> Self {
        let this = Self::start_after(|this| {
            std::fs::create_dir(this.data()).expect("made");
            this.run_on_data_disk(&["mount", "-t", "tmpfs", "-o", "size=4g", "tmpfs"]);
        });
        this.leave_free_space(room);
        this
    }

    /// Makes that file system so large that it has this room left; in megabytes.
    pub fn leave_free_space(&self, room: u64) {
        let used = self.run_on_data_disk(&["df", "--output=used", "-B1M"]);
        let used: u64 = used.split_whitespace().last().and_then(|word| word.parse().ok()).expect("a number");
        self.run_on_data_disk(&["mount", "-o", &format!("remount,size={}m", used + room)]);
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Runs a command on the folder that the daemon keeps everything in, as it is to be seen in its own namespace.
    fn run_on_data_disk(&self, command: &[&str]) -> String {
        let mut nsenter = Command::new("nsenter");
        nsenter.args(["--target", &self.keeper.id().to_string(), "--mount", "--"]).args(command).arg(self.data());
        let output = nsenter.output().expect("nsenter");
        assert!(output.status.success(), "{command:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn start_after(prepare: impl FnOnce(&Self)) -> Self {
        let folder = tempfile::Builder::new().prefix("longshore-dockerd-").tempdir().expect("a folder").keep();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/docker/second_daemon/keeper.sh");
        let keeper = std::os::unix::process::CommandExt::process_group(&mut Command::new("unshare"), 0)
            .args(["--net", "--mount", "--", "sh"])
            .args([&script, &folder])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("these tests need `unshare` and root");
        let this = Self { folder, keeper, daemon: Mutex::default() };
        this.wait_for("namespaces of its own", || {
            let ours = std::fs::read_link("/proc/self/ns/mnt").ok();
            std::fs::read_link(format!("/proc/{}/ns/mnt", this.keeper.id())).is_ok_and(|its| Some(its) != ours)
        });
        prepare(&this);
        this.restart();
        let save = Command::new("docker").args(["save", IMAGE]).stdout(Stdio::piped()).spawn();
        let mut save = save.expect("docker save");
        let image = save.stdout.take().expect("a pipe");
        let loaded = this.command().arg("load").stdin(image).output().expect("docker load");
        assert!(loaded.status.success(), "{IMAGE} (build it: `longshore images build`): {loaded:?}");
        assert!(save.wait().expect("docker save").success());
        this
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("sock")
    }

    /// The value of `DOCKER_HOST` that leads to it.
    pub fn host(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// A client of it.
    pub async fn connect(&self) -> DockerEngine {
        let endpoint = Endpoint { address: EngineAddress::Unix(self.socket()), reason: "the test's own".to_owned() };
        DockerEngine::connect(&endpoint, DockerOptions::default()).await.expect("the second daemon answers")
    }

    /// Runs `docker` against it.
    pub fn docker(&self, args: &[&str]) -> Output {
        self.command().args(args).output().expect("docker")
    }

    /// SIGKILL to the daemon, which takes its containerd with it. What runs in the containers runs on.
    pub fn kill(&self) {
        self.stop_with("-KILL");
    }

    /// SIGTERM to the daemon, which stops its containers first.
    pub fn terminate(&self) {
        self.stop_with("-TERM");
    }

    /// Starts it again after [`kill`](Self::kill) or [`terminate`](Self::terminate), and waits until it answers.
    pub fn restart(&self) {
        let mut daemon = self.daemon();
        assert!(daemon.is_none(), "it runs");
        let log = File::options().create(true).append(true).open(self.folder.join("log")).expect("a log");
        let at = |name: &str| self.folder.join(name);
        let child = Command::new("nsenter")
            .args(["--target", &self.keeper.id().to_string(), "--net", "--mount", "--", "dockerd"])
            .arg("--data-root")
            .arg(at("data"))
            .arg("--exec-root")
            .arg(at("exec"))
            .arg("--pidfile")
            .arg(at("pid"))
            .args(["--host", &self.host(), "--bridge=none", "--iptables=false"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("nsenter and dockerd");
        *daemon = Some(child);
        drop(daemon);
        self.wait_for("an answer", || self.docker(&["version"]).status.success());
    }

    fn stop_with(&self, signal: &str) {
        let mut daemon = self.daemon().take().expect("it runs");
        let pid = std::fs::read_to_string(self.folder.join("pid")).expect("a pid file");
        // `nsenter` became the daemon.
        assert_eq!(pid.trim(), daemon.id().to_string());
        let sent = Command::new("kill").args([signal, pid.trim()]).status().expect("kill");
        assert!(sent.success());
        self.wait_for("the daemon's end", || daemon.try_wait().expect("its status").is_some());
        // Its containerd is told by the kernel, and must not be met by the next one.
        let containerd = self.folder.join("exec/containerd/containerd.pid");
        let pid = std::fs::read_to_string(&containerd).unwrap_or_default();
        self.wait_for("containerd's end", || {
            let line = std::fs::read(format!("/proc/{}/cmdline", pid.trim())).unwrap_or_default();
            pid.is_empty() || !String::from_utf8_lossy(&line).contains("containerd")
        });
        // Where nobody reaps it, the next daemon would take it to be alive.
        let _ = std::fs::remove_file(containerd);
    }

    fn command(&self) -> Command {
        let mut command = Command::new("docker");
        command.env_remove("DOCKER_CONTEXT").env("DOCKER_HOST", self.host());
        command
    }

    fn daemon(&self) -> MutexGuard<'_, Option<Child>> {
        self.daemon.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for(&self, what: &str, mut is_there: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_there() {
            let log = || std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(began.elapsed() < TIMEOUT, "the second daemon: waited in vain for {what}; its log:\n{}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for SecondDaemon {
    fn drop(&mut self) {
        // The end of its input is the keeper's sign.
        drop(self.keeper.stdin.take());
        let began = Instant::now();
        while matches!(self.keeper.try_wait(), Ok(None)) && began.elapsed() < TIMEOUT {
            std::thread::sleep(Duration::from_millis(20));
        }
        if let Some(mut daemon) = self.daemon().take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        if self.folder.exists() && !std::thread::panicking() {
            panic!("the second daemon left `{}`", self.folder.display());
        }
    }
}
