//! The depot over pipes, as the current user.

use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Stdio;

use super::super::depot::{DepotServer, SandboxUserHelper};
use super::*;
use crate::handoff::depot::frames::{FRAME_HEADER_LEN, FrameKind};
use crate::handoff::depot::{DepotError, DepotErrorKind, DepotRequest, DepotResponse, ObjectTip, TextFile};

/// The host's end of a depot.
pub(super) struct DepotClient {
    to: PipeWriter,
    from: PipeReader,
    next: u32,
    serving: Option<std::thread::JoinHandle<std::io::Result<()>>>,
}

/// The outcome of a request, and its data.
pub(super) type DepotReply = (Result<DepotResponse, DepotError>, Vec<u8>);

impl DepotClient {
    pub(super) fn new(layout: &Layout) -> Self {
        let (input, to) = std::io::pipe().unwrap();
        let (from, output) = std::io::pipe().unwrap();
        let depot = DepotServer::new(layout.clone(), SandboxUserHelper::InProcess(layout.clone()));
        let serving = std::thread::spawn(move || depot.serve(input, Box::new(output)));
        let mut host = Self { to, from, next: 1, serving: Some(serving) };
        assert_eq!(host.read_frame(), (0, FrameKind::Ready as u8, Vec::new()));
        host
    }

    fn send(&mut self, id: u32, kind: FrameKind, payload: &[u8]) {
        let mut frame = id.to_le_bytes().to_vec();
        frame.push(kind as u8);
        frame.extend(u32::try_from(payload.len()).unwrap().to_le_bytes());
        frame.extend(payload);
        self.to.write_all(&frame).unwrap();
    }

    fn read_frame(&mut self) -> (u32, u8, Vec<u8>) {
        let mut header = [0; FRAME_HEADER_LEN];
        self.from.read_exact(&mut header).unwrap();
        let mut payload = vec![0; u32::from_le_bytes(header[5..9].try_into().unwrap()) as usize];
        self.from.read_exact(&mut payload).unwrap();
        (u32::from_le_bytes(header[..4].try_into().unwrap()), header[4], payload)
    }

    pub(super) fn send_request(&mut self, request: &DepotRequest) -> u32 {
        let id = self.next;
        self.next += 1;
        self.send(id, FrameKind::Request, &serde_json::to_vec(request).unwrap());
        id
    }

    pub(super) fn read_response(&mut self, id: u32) -> DepotReply {
        let mut data = Vec::new();
        loop {
            match self.read_frame() {
                (found, kind, payload) if found == id && kind == FrameKind::Data as u8 => data.extend(payload),
                (found, kind, payload) if found == id && kind == FrameKind::Done as u8 => {
                    return (Ok(serde_json::from_slice(&payload).unwrap()), data);
                }
                (found, kind, payload) if found == id && kind == FrameKind::Failed as u8 => {
                    return (Err(serde_json::from_slice(&payload).unwrap()), data);
                }
                other => panic!("not expected: {other:?}"),
            }
        }
    }

    pub(super) fn request(&mut self, request: &DepotRequest) -> DepotReply {
        let id = self.send_request(request);
        self.read_response(id)
    }

    pub(super) fn request_refused(&mut self, request: &DepotRequest) -> DepotErrorKind {
        self.request(request).0.expect_err("it is refused").kind
    }

    fn store(&mut self, pack: &[u8], tips: &[ObjectTip]) -> Result<DepotResponse, DepotError> {
        let id = self.send_request(&DepotRequest::StorePack { tips: tips.to_vec(), shallow: String::new() });
        for piece in pack.chunks(1000) {
            self.send(id, FrameKind::Data, piece);
        }
        self.send(id, FrameKind::End, &[]);
        self.read_response(id).0
    }
}

impl Drop for DepotClient {
    fn drop(&mut self) {
        let (_, closed) = std::io::pipe().unwrap();
        drop(std::mem::replace(&mut self.to, closed));
        let served = self.serving.take().unwrap().join();
        if !std::thread::panicking() {
            served.unwrap().expect("the end of the input is the end");
        }
    }
}

fn pack_of(host: &Path, commit: &str) -> Vec<u8> {
    let mut child = Command::new("git")
        .current_dir(host)
        .args(["pack-objects", "--revs", "--stdout", "-q"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(format!("{commit}\n").as_bytes()).unwrap();
    child.wait_with_output().unwrap().stdout
}

fn uid() -> u32 {
    rustix::process::getuid().as_raw()
}

fn collect_request(max_bytes: u64) -> DepotRequest {
    DepotRequest::Collect { attempt_dir: ATTEMPT_DIR.into(), uid: uid(), max_bytes }
}

#[test]
fn store_pack_accepts_small_and_large_packs_and_records_tips() {
    let fixture = SandboxFixture::new();
    let host_repo = fixture.dir.path().join("host");
    let layout = Layout::with_root(fixture.dir.path().join("volumes"));
    let mut host = DepotClient::new(&layout);
    let objects = DepotRequest::OpenObjects { format: "sha1".into() };
    assert_eq!(host.request(&objects).0, Ok(DepotResponse::Objects { tips: Vec::new() }));

    let small = ObjectTip { name: "refs/longshore/objects/small".into(), commit: fixture.base.clone() };
    assert_eq!(
        host.store(&pack_of(&host_repo, fixture.base.as_str()), std::slice::from_ref(&small)),
        Ok(DepotResponse::Empty)
    );
    assert_eq!(host.request(&objects).0, Ok(DepotResponse::Objects { tips: vec![small.clone()] }));

    for number in 0..200 {
        fs::write(host_repo.join(format!("{number}.txt")), format!("{number}\n")).unwrap();
    }
    git(&host_repo, &["add", "-A"]);
    git(&host_repo, &["commit", "-qm", "large"]);
    let commit: CommitId = git(&host_repo, &["rev-parse", "HEAD"]).parse().unwrap();
    let large = ObjectTip { name: "refs/longshore/objects/large".into(), commit: commit.clone() };
    assert_eq!(
        host.store(&pack_of(&host_repo, commit.as_str()), std::slice::from_ref(&large)),
        Ok(DepotResponse::Empty)
    );
    assert_eq!(host.request(&objects).0, Ok(DepotResponse::Objects { tips: vec![large, small.clone()] }));
    git(&layout.objects_repo(), &["fsck", "--strict"]);

    // Tips alone, and then what cannot be.
    let again = ObjectTip { name: "refs/longshore/objects/again".into(), commit };
    assert_eq!(host.store(&[], std::slice::from_ref(&again)), Ok(DepotResponse::Empty));
    let missing = ObjectTip { commit: "1234567890123456789012345678901234567890".parse().unwrap(), ..small };
    assert_eq!(host.store(&[], &[missing]).expect_err("no such commit").kind, DepotErrorKind::Failed);
    assert_eq!(host.store(b"PACK but not one", &[]).expect_err("no pack").kind, DepotErrorKind::Failed);
    let mut torn = pack_of(&host_repo, fixture.base.as_str());
    torn.truncate(torn.len() - 5);
    assert_eq!(host.store(&torn, &[]).expect_err("a torn pack").kind, DepotErrorKind::Failed);
    assert_eq!(host.request_refused(&DepotRequest::OpenObjects { format: "sha256".into() }), DepotErrorKind::Failed);
}

#[test]
fn lock_files_that_nobody_holds_are_removed() {
    let fixture = SandboxFixture::new();
    let host_repo = fixture.dir.path().join("host");
    let layout = Layout::with_root(fixture.dir.path().join("volumes"));
    let mut host = DepotClient::new(&layout);
    let objects = DepotRequest::OpenObjects { format: "sha1".into() };
    assert!(host.request(&objects).0.is_ok());
    let tip = ObjectTip { name: "refs/longshore/tips/main".into(), commit: fixture.base.clone() };
    let pack = pack_of(&host_repo, fixture.base.as_str());
    let repo = layout.objects_repo();
    let leave_locks = || {
        fs::create_dir_all(repo.join("refs/longshore/tips")).unwrap();
        ["HEAD.lock", "packed-refs.lock", "refs/longshore/tips/main.lock"].map(|name| {
            fs::write(repo.join(name), "").unwrap();
            repo.join(name)
        })
    };

    // As another depot that is writing refs.
    let writer = fs::File::options().write(true).open(layout.objects_volume().join("writer")).unwrap();
    writer.lock().unwrap();
    let held = leave_locks();
    let id = host.send_request(&DepotRequest::StorePack { tips: vec![tip.clone()], shallow: String::new() });
    host.send(id, FrameKind::Data, &pack);
    host.send(id, FrameKind::End, &[]);
    // Other requests are answered meanwhile.
    assert!(host.request(&DepotRequest::MeasureSpace).0.is_ok());
    assert!(held.iter().all(|path| path.exists()), "they are somebody's");
    drop(writer);
    assert_eq!(host.read_response(id).0, Ok(DepotResponse::Empty));
    assert!(!held.iter().any(|path| path.exists()));

    leave_locks();
    assert_eq!(host.request(&objects).0, Ok(DepotResponse::Objects { tips: vec![tip.clone()] }));
    leave_locks();
    assert_eq!(host.store(&[], &[tip]), Ok(DepotResponse::Empty));
}

#[test]
fn an_unread_body_does_not_block_other_requests() {
    let fixture = SandboxFixture::new();
    let mut host = DepotClient::new(&fixture.layout());
    let id = host.send_request(&DepotRequest::StorePack { tips: Vec::new(), shallow: String::new() });
    for _ in 0..200 {
        host.send(id, FrameKind::Data, &[b'x'; 60_000]);
    }
    assert!(matches!(host.read_response(id).0, Err(DepotError { kind: DepotErrorKind::Failed, .. })));
    let Ok(DepotResponse::Space { free, total, memory_available }) = host.request(&DepotRequest::MeasureSpace).0 else {
        panic!("no space")
    };
    assert!(free <= total && total > 0 && memory_available > 1 << 20, "{free} {total} {memory_available}");
}

#[test]
fn prepare_creates_dirs_once_and_rejects_unsafe_names() {
    let fixture = SandboxFixture::new();
    let layout = Layout::with_root(fixture.dir.path().join("volumes"));
    let mut host = DepotClient::new(&layout);
    let file = |path: &str| TextFile { path: path.into(), text: format!("content of {path}") };
    let prepare = |folder: &str, files: &[&str]| DepotRequest::Prepare {
        attempt_dir: folder.into(),
        uid: uid(),
        shim_uid: uid(),
        files: files.iter().map(|path| file(path)).collect(),
    };
    let good = prepare(ATTEMPT_DIR, &["assignment.json", "tasks/a/b.json", "tasks/a/c.json"]);
    assert_eq!(host.request(&good).0, Ok(DepotResponse::Empty));
    let inbox = layout.in_volume().join(ATTEMPT_DIR);
    assert_eq!(fs::read_to_string(inbox.join("tasks/a/b.json")).unwrap(), "content of tasks/a/b.json");
    let mode = |path: PathBuf| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        [mode(inbox.join("tasks")), mode(inbox.join("tasks/a/b.json")), mode(inbox.clone())],
        [0o500, 0o400, 0o500]
    );
    for (folder, wanted) in [
        (layout.repo_dir(ATTEMPT_DIR), 0o700),
        (layout.run_dir(ATTEMPT_DIR), 0o700),
        (layout.memory_dir(ATTEMPT_DIR), 0o700),
        (layout.out_dir(ATTEMPT_DIR), 0o700),
        (layout.work_volume().join(ATTEMPT_DIR), 0o711),
    ] {
        assert_eq!(mode(folder.clone()), wanted, "{folder:?}");
        assert_eq!(fs::metadata(folder).unwrap().uid(), uid());
    }
    assert_eq!(host.request_refused(&good), DepotErrorKind::Failed, "it is there already");
    for bad in ["../x", "T-1/..", "/etc", "", "in"] {
        assert_eq!(host.request_refused(&prepare(bad, &[])), DepotErrorKind::Refused, "{bad}");
    }
    for bad in ["../x", "/etc/passwd", "a/../../b", ""] {
        assert_eq!(host.request_refused(&prepare("T-2026-002-1", &[bad])), DepotErrorKind::Refused, "{bad}");
        assert!(!layout.in_volume().join("T-2026-002-1").exists(), "what was begun is removed");
    }

    fs::create_dir_all(layout.repo_dir(ATTEMPT_DIR).join("deep/closed")).unwrap();
    fs::set_permissions(layout.repo_dir(ATTEMPT_DIR).join("deep/closed"), fs::Permissions::from_mode(0o000)).unwrap();
    let outside = fixture.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), "").unwrap();
    std::os::unix::fs::symlink(&outside, layout.repo_dir(ATTEMPT_DIR).join("link")).unwrap();
    let discard = DepotRequest::Discard { attempt_dir: ATTEMPT_DIR.into(), uid: uid() };
    assert_eq!(host.request(&discard).0, Ok(DepotResponse::Empty));
    assert!(!inbox.exists() && !layout.work_volume().join(ATTEMPT_DIR).exists());
    assert!(outside.join("kept").exists(), "it went through a link");
    assert_eq!(host.request(&discard).0, Ok(DepotResponse::Empty), "what is gone is discarded");
}

#[test]
fn collect_reads_regular_files_only() {
    let fixture = SandboxFixture::new();
    let mut host = DepotClient::new(&fixture.layout());
    let none = DepotResponse::Collected { result_bytes: 0, bundle: false };
    assert_eq!(host.request(&collect_request(100)), (Ok(none), Vec::new()));

    let (result, bundle) = (fixture.out().join("result.json"), fixture.out().join("result.bundle"));
    fs::write(&result, "{}").unwrap();
    fs::write(&bundle, [7; 70_000]).unwrap();
    let (answer, data) = host.request(&collect_request(100_000));
    assert_eq!(answer, Ok(DepotResponse::Collected { result_bytes: 2, bundle: true }));
    assert_eq!((data.len(), &data[..3]), (70_002, &[b'{', b'}', 7][..]));
    assert_eq!(host.request_refused(&collect_request(69_999)), DepotErrorKind::Refused, "too large");

    fs::remove_file(&bundle).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &bundle).unwrap();
    assert_eq!(host.request_refused(&collect_request(100_000)), DepotErrorKind::Refused, "a link");
    fs::remove_file(&bundle).unwrap();
    assert!(Command::new("mkfifo").arg(&bundle).status().unwrap().success());
    assert_eq!(host.request_refused(&collect_request(100_000)), DepotErrorKind::Refused, "a FIFO");
    fs::remove_file(&bundle).unwrap();
    fs::create_dir(&bundle).unwrap();
    assert_eq!(host.request_refused(&collect_request(100_000)), DepotErrorKind::Refused, "a folder");

    fs::remove_dir_all(fixture.out()).unwrap();
    assert_eq!(host.request_refused(&collect_request(100_000)), DepotErrorKind::NotFound);
    std::os::unix::fs::symlink("/etc", fixture.out()).unwrap();
    assert_eq!(host.request_refused(&collect_request(100_000)), DepotErrorKind::Refused, "a folder that is a link");
}

#[test]
fn collect_opens_closed_dirs_and_follows_no_links() {
    let fixture = SandboxFixture::new();
    let mut host = DepotClient::new(&fixture.layout());
    let outside = fixture.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::remove_dir(fixture.layout().run_dir(ATTEMPT_DIR)).unwrap();
    std::os::unix::fs::symlink(&outside, fixture.layout().run_dir(ATTEMPT_DIR)).unwrap();
    fs::write(fixture.out().join("result.json"), "{}").unwrap();
    let top = fixture.layout().work_volume().join(ATTEMPT_DIR);
    for folder in [&outside, &fixture.out(), &fixture.repo(), &top] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o000)).unwrap();
    }
    let (answer, _) = host.request(&collect_request(100));
    assert_eq!(answer, Ok(DepotResponse::Collected { result_bytes: 2, bundle: false }));
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!([mode(&top), mode(&fixture.out()), mode(&fixture.repo()), mode(&outside)], [0o700, 0o700, 0o700, 0]);
}

#[test]
fn salvage_works_after_the_shim_died() {
    let mut fixture = SandboxFixture::new();
    let reference = "refs/longshore/salvage/all";
    let salvage = |fixture: &SandboxFixture| DepotRequest::Salvage {
        attempt_dir: ATTEMPT_DIR.into(),
        uid: uid(),
        base: fixture.base.clone(),
        reference: reference.into(),
        max_bytes: 1_000_000,
    };
    let mut host = DepotClient::new(&fixture.layout());
    // Before the clone, there is nothing: not a deletion of all files.
    assert_eq!(
        host.request(&salvage(&fixture)),
        (Ok(DepotResponse::Salvaged { commit: None, left_out: Vec::new() }), Vec::new())
    );

    fixture.run_command("echo one > one.txt");
    fs::write(fixture.repo().join("two.txt"), "two").unwrap();
    fs::write(fixture.repo().join(".git/index.lock"), "").unwrap();
    fs::write(fixture.repo().join(".git/config"), "[core]\n\tfsmonitor = touch /tmp/should-not-run\n\tbroken").unwrap();
    for without_git in [false, true] {
        if without_git {
            fs::remove_dir_all(fixture.repo().join(".git")).unwrap();
        }
        let (answer, data) = host.request(&salvage(&fixture));
        let Ok(DepotResponse::Salvaged { commit: Some(commit), .. }) = answer else { panic!("{answer:?}") };
        let bundle = fixture.dir.path().join("salvage.bundle");
        fs::write(&bundle, data).unwrap();
        let host_repo = fixture.dir.path().join("host");
        git(&host_repo, &["fetch", "-q", bundle.to_str().unwrap(), &format!("+{reference}:{reference}")]);
        assert_eq!(git(&host_repo, &["rev-parse", reference]), commit.as_str());
        let files = git(&host_repo, &["ls-tree", "--name-only", commit.as_str()]);
        assert!(files.contains("one.txt") && files.contains("two.txt") && files.contains("README"), "{files}");
        git(&host_repo, &["merge-base", "--is-ancestor", fixture.base.as_str(), commit.as_str()]);
    }
}

#[test]
fn salvage_lists_left_out_files_but_no_special_files() {
    for (leave, wanted) in [("true", false), ("mkdir -p a/.GIT; echo work > a/.GIT/config", true)] {
        let mut fixture = SandboxFixture::new();
        fixture.run_command("echo one > one.txt");
        let left = format!("rm -f .gitignore; mkfifo .gitignore pipe; echo two > two.txt; {leave}");
        assert!(Command::new("sh").args(["-c", &left]).current_dir(fixture.repo()).status().unwrap().success());
        let request = DepotRequest::Salvage {
            attempt_dir: ATTEMPT_DIR.into(),
            uid: uid(),
            base: fixture.base.clone(),
            reference: "refs/longshore/salvage/all".into(),
            max_bytes: 1_000_000,
        };
        let (answer, _) = DepotClient::new(&fixture.layout()).request(&request);
        let Ok(DepotResponse::Salvaged { commit: Some(_), left_out }) = answer else { panic!("{answer:?}") };
        assert_eq!(left_out.iter().any(|path| path.contains(".GIT")), wanted, "{left_out:?}");
        assert!(left_out.iter().all(|path| path.contains(".GIT")), "{left_out:?}");
    }
}
