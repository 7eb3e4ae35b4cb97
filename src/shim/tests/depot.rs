//! The depot over pipes, as the current user.

use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Stdio;

use super::super::depot::{Depot, Helper};
use super::*;
use crate::handoff::depot::{Answer, DepotFault, DepotFaultKind, FrameKind, HEADER, Request, TextFile, Tip};

/// The host's end of a depot.
pub(super) struct Host {
    to: PipeWriter,
    from: PipeReader,
    next: u32,
    serving: Option<std::thread::JoinHandle<std::io::Result<()>>>,
}

/// An answered request: what it ended with, and its data.
pub(super) type Answered = (Result<Answer, DepotFault>, Vec<u8>);

impl Host {
    pub(super) fn new(layout: &Layout) -> Self {
        let (input, to) = std::io::pipe().unwrap();
        let (from, output) = std::io::pipe().unwrap();
        let depot = Depot::new(layout.clone(), Helper::Here);
        let serving = std::thread::spawn(move || depot.serve(input, Box::new(output)));
        let mut host = Self { to, from, next: 1, serving: Some(serving) };
        assert_eq!(host.frame(), (0, FrameKind::Ready as u8, Vec::new()));
        host
    }

    fn send(&mut self, id: u32, kind: FrameKind, payload: &[u8]) {
        let mut frame = id.to_le_bytes().to_vec();
        frame.push(kind as u8);
        frame.extend(u32::try_from(payload.len()).unwrap().to_le_bytes());
        frame.extend(payload);
        self.to.write_all(&frame).unwrap();
    }

    fn frame(&mut self) -> (u32, u8, Vec<u8>) {
        let mut header = [0; HEADER];
        self.from.read_exact(&mut header).unwrap();
        let mut payload = vec![0; u32::from_le_bytes(header[5..9].try_into().unwrap()) as usize];
        self.from.read_exact(&mut payload).unwrap();
        (u32::from_le_bytes(header[..4].try_into().unwrap()), header[4], payload)
    }

    pub(super) fn begin(&mut self, request: &Request) -> u32 {
        let id = self.next;
        self.next += 1;
        self.send(id, FrameKind::Request, &serde_json::to_vec(request).unwrap());
        id
    }

    pub(super) fn end(&mut self, id: u32) -> Answered {
        let mut data = Vec::new();
        loop {
            match self.frame() {
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

    pub(super) fn ask(&mut self, request: &Request) -> Answered {
        let id = self.begin(request);
        self.end(id)
    }

    pub(super) fn refused(&mut self, request: &Request) -> DepotFaultKind {
        self.ask(request).0.expect_err("it is refused").kind
    }

    fn store(&mut self, pack: &[u8], tips: &[Tip]) -> Result<Answer, DepotFault> {
        let id = self.begin(&Request::StorePack { tips: tips.to_vec(), shallow: String::new() });
        for piece in pack.chunks(1000) {
            self.send(id, FrameKind::Data, piece);
        }
        self.send(id, FrameKind::End, &[]);
        self.end(id).0
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let (_, closed) = std::io::pipe().unwrap();
        drop(std::mem::replace(&mut self.to, closed));
        let served = self.serving.take().unwrap().join();
        if !std::thread::panicking() {
            served.unwrap().expect("the end of the input is the end");
        }
    }
}

fn pack(host: &Path, commit: &str) -> Vec<u8> {
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

fn collect(max_bytes: u64) -> Request {
    Request::Collect { folder: FOLDER.into(), uid: uid(), max_bytes }
}

#[test]
fn packs_go_in_small_and_large_and_their_tips_are_remembered() {
    let world = World::new();
    let host_repo = world.dir.path().join("host");
    let layout = Layout::at(world.dir.path().join("volumes"));
    let mut host = Host::new(&layout);
    let objects = Request::Objects { format: "sha1".into() };
    assert_eq!(host.ask(&objects).0, Ok(Answer::Objects { tips: Vec::new() }));

    let small = Tip { name: "refs/longshore/objects/small".into(), commit: world.base.clone() };
    assert_eq!(host.store(&pack(&host_repo, world.base.as_str()), std::slice::from_ref(&small)), Ok(Answer::Nothing));
    assert_eq!(host.ask(&objects).0, Ok(Answer::Objects { tips: vec![small.clone()] }));

    for number in 0..200 {
        fs::write(host_repo.join(format!("{number}.txt")), format!("{number}\n")).unwrap();
    }
    git(&host_repo, &["add", "-A"]);
    git(&host_repo, &["commit", "-qm", "large"]);
    let commit: CommitId = git(&host_repo, &["rev-parse", "HEAD"]).parse().unwrap();
    let large = Tip { name: "refs/longshore/objects/large".into(), commit: commit.clone() };
    assert_eq!(host.store(&pack(&host_repo, commit.as_str()), std::slice::from_ref(&large)), Ok(Answer::Nothing));
    assert_eq!(host.ask(&objects).0, Ok(Answer::Objects { tips: vec![large, small.clone()] }));
    git(&layout.objects_repo(), &["fsck", "--strict"]);

    // Tips alone, and then what cannot be.
    let again = Tip { name: "refs/longshore/objects/again".into(), commit };
    assert_eq!(host.store(&[], std::slice::from_ref(&again)), Ok(Answer::Nothing));
    let missing = Tip { commit: "1234567890123456789012345678901234567890".parse().unwrap(), ..small };
    assert_eq!(host.store(&[], &[missing]).expect_err("no such commit").kind, DepotFaultKind::Failed);
    assert_eq!(host.store(b"PACK but not one", &[]).expect_err("no pack").kind, DepotFaultKind::Failed);
    let mut torn = pack(&host_repo, world.base.as_str());
    torn.truncate(torn.len() - 5);
    assert_eq!(host.store(&torn, &[]).expect_err("a torn pack").kind, DepotFaultKind::Failed);
    assert_eq!(host.refused(&Request::Objects { format: "sha256".into() }), DepotFaultKind::Failed);
}

#[test]
fn a_large_body_that_nobody_takes_holds_no_other_request_up() {
    let world = World::new();
    let mut host = Host::new(&world.layout());
    let id = host.begin(&Request::StorePack { tips: Vec::new(), shallow: String::new() });
    for _ in 0..200 {
        host.send(id, FrameKind::Data, &[b'x'; 60_000]);
    }
    assert!(matches!(host.end(id).0, Err(DepotFault { kind: DepotFaultKind::Failed, .. })));
    let Ok(Answer::Space { free, total, memory_available }) = host.ask(&Request::Space).0 else { panic!("no space") };
    assert!(free <= total && total > 0 && memory_available > 1 << 20, "{free} {total} {memory_available}");
}

#[test]
fn folders_are_made_for_their_user_once_and_only_with_plain_names() {
    let world = World::new();
    let layout = Layout::at(world.dir.path().join("volumes"));
    let mut host = Host::new(&layout);
    let file = |path: &str| TextFile { path: path.into(), text: format!("content of {path}") };
    let prepare = |folder: &str, files: &[&str]| Request::Prepare {
        folder: folder.into(),
        uid: uid(),
        files: files.iter().map(|path| file(path)).collect(),
    };
    let good = prepare(FOLDER, &["assignment.json", "tasks/a/b.json", "tasks/a/c.json"]);
    assert_eq!(host.ask(&good).0, Ok(Answer::Nothing));
    let inbox = layout.inbox().join(FOLDER);
    assert_eq!(fs::read_to_string(inbox.join("tasks/a/b.json")).unwrap(), "content of tasks/a/b.json");
    let mode = |path: PathBuf| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        [mode(inbox.join("tasks")), mode(inbox.join("tasks/a/b.json")), mode(inbox.clone())],
        [0o500, 0o400, 0o500]
    );
    for folder in [layout.repo(FOLDER), layout.run(FOLDER), layout.out(FOLDER), layout.work().join(FOLDER)] {
        assert_eq!(mode(folder.clone()), 0o700, "{folder:?}");
        assert_eq!(fs::metadata(folder).unwrap().uid(), uid());
    }
    assert_eq!(host.refused(&good), DepotFaultKind::Failed, "it is there already");
    for bad in ["../x", "T-1/..", "/etc", "", "in"] {
        assert_eq!(host.refused(&prepare(bad, &[])), DepotFaultKind::Refused, "{bad}");
    }
    for bad in ["../x", "/etc/passwd", "a/../../b", ""] {
        assert_eq!(host.refused(&prepare("T-2026-002-1", &[bad])), DepotFaultKind::Refused, "{bad}");
        assert!(!layout.inbox().join("T-2026-002-1").exists(), "what was begun is removed");
    }

    fs::create_dir_all(layout.repo(FOLDER).join("deep/closed")).unwrap();
    fs::set_permissions(layout.repo(FOLDER).join("deep/closed"), fs::Permissions::from_mode(0o000)).unwrap();
    let outside = world.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), "").unwrap();
    std::os::unix::fs::symlink(&outside, layout.repo(FOLDER).join("link")).unwrap();
    let discard = Request::Discard { folder: FOLDER.into(), uid: uid() };
    assert_eq!(host.ask(&discard).0, Ok(Answer::Nothing));
    assert!(!inbox.exists() && !layout.work().join(FOLDER).exists());
    assert!(outside.join("kept").exists(), "it went through a link");
    assert_eq!(host.ask(&discard).0, Ok(Answer::Nothing), "what is gone is discarded");
}

#[test]
fn what_came_out_is_read_and_nothing_else_is() {
    let world = World::new();
    let mut host = Host::new(&world.layout());
    let none = Answer::Collected { result_bytes: 0, bundle: false };
    assert_eq!(host.ask(&collect(100)), (Ok(none), Vec::new()));

    let (result, bundle) = (world.out().join("result.json"), world.out().join("result.bundle"));
    fs::write(&result, "{}").unwrap();
    fs::write(&bundle, [7; 70_000]).unwrap();
    let (answer, data) = host.ask(&collect(100_000));
    assert_eq!(answer, Ok(Answer::Collected { result_bytes: 2, bundle: true }));
    assert_eq!((data.len(), &data[..3]), (70_002, &[b'{', b'}', 7][..]));
    assert_eq!(host.refused(&collect(69_999)), DepotFaultKind::Refused, "too large");

    fs::remove_file(&bundle).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &bundle).unwrap();
    assert_eq!(host.refused(&collect(100_000)), DepotFaultKind::Refused, "a link");
    fs::remove_file(&bundle).unwrap();
    assert!(Command::new("mkfifo").arg(&bundle).status().unwrap().success());
    assert_eq!(host.refused(&collect(100_000)), DepotFaultKind::Refused, "a FIFO");
    fs::remove_file(&bundle).unwrap();
    fs::create_dir(&bundle).unwrap();
    assert_eq!(host.refused(&collect(100_000)), DepotFaultKind::Refused, "a folder");

    fs::remove_dir_all(world.out()).unwrap();
    assert_eq!(host.refused(&collect(100_000)), DepotFaultKind::NotFound);
    std::os::unix::fs::symlink("/etc", world.out()).unwrap();
    assert_eq!(host.refused(&collect(100_000)), DepotFaultKind::Refused, "a folder that is a link");
}

#[test]
fn folders_that_their_user_closed_are_opened_up_and_links_are_not_followed() {
    let world = World::new();
    let mut host = Host::new(&world.layout());
    let outside = world.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::remove_dir(world.layout().run(FOLDER)).unwrap();
    std::os::unix::fs::symlink(&outside, world.layout().run(FOLDER)).unwrap();
    fs::write(world.out().join("result.json"), "{}").unwrap();
    let top = world.layout().work().join(FOLDER);
    for folder in [&outside, &world.out(), &world.repo(), &top] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o000)).unwrap();
    }
    let (answer, _) = host.ask(&collect(100));
    assert_eq!(answer, Ok(Answer::Collected { result_bytes: 2, bundle: false }));
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!([mode(&top), mode(&world.out()), mode(&world.repo()), mode(&outside)], [0o700, 0o700, 0o700, 0]);
}

#[test]
fn a_sandbox_whose_shim_died_is_salvaged() {
    let mut world = World::new();
    let reference = "refs/longshore/salvage/all";
    let salvage = |world: &World| Request::Salvage {
        folder: FOLDER.into(),
        uid: uid(),
        base: world.base.clone(),
        reference: reference.into(),
        max_bytes: 1_000_000,
    };
    let mut host = Host::new(&world.layout());
    // Before the clone, there is nothing: not a deletion of all files.
    assert_eq!(host.ask(&salvage(&world)), (Ok(Answer::Salvaged { commit: None, left_out: Vec::new() }), Vec::new()));

    world.run_command("echo one > one.txt");
    fs::write(world.repo().join("two.txt"), "two").unwrap();
    fs::write(world.repo().join(".git/index.lock"), "").unwrap();
    fs::write(world.repo().join(".git/config"), "[core]\n\tfsmonitor = touch /tmp/should-not-run\n\tbroken").unwrap();
    for without_git in [false, true] {
        if without_git {
            fs::remove_dir_all(world.repo().join(".git")).unwrap();
        }
        let (answer, data) = host.ask(&salvage(&world));
        let Ok(Answer::Salvaged { commit: Some(commit), .. }) = answer else { panic!("{answer:?}") };
        let bundle = world.dir.path().join("salvage.bundle");
        fs::write(&bundle, data).unwrap();
        let host_repo = world.dir.path().join("host");
        git(&host_repo, &["fetch", "-q", bundle.to_str().unwrap(), &format!("+{reference}:{reference}")]);
        assert_eq!(git(&host_repo, &["rev-parse", reference]), commit.as_str());
        let files = git(&host_repo, &["ls-tree", "--name-only", commit.as_str()]);
        assert!(files.contains("one.txt") && files.contains("two.txt") && files.contains("README"), "{files}");
        git(&host_repo, &["merge-base", "--is-ancestor", world.base.as_str(), commit.as_str()]);
    }
}

#[test]
fn a_salvage_names_the_files_that_it_leaves_out_and_no_special_ones() {
    for (leave, wanted) in [("true", false), ("mkdir -p a/.GIT; echo work > a/.GIT/config", true)] {
        let mut world = World::new();
        world.run_command("echo one > one.txt");
        let left = format!("rm -f .gitignore; mkfifo .gitignore pipe; echo two > two.txt; {leave}");
        assert!(Command::new("sh").args(["-c", &left]).current_dir(world.repo()).status().unwrap().success());
        let request = Request::Salvage {
            folder: FOLDER.into(),
            uid: uid(),
            base: world.base.clone(),
            reference: "refs/longshore/salvage/all".into(),
            max_bytes: 1_000_000,
        };
        let (answer, _) = Host::new(&world.layout()).ask(&request);
        let Ok(Answer::Salvaged { commit: Some(_), left_out }) = answer else { panic!("{answer:?}") };
        assert_eq!(left_out.iter().any(|path| path.contains(".GIT")), wanted, "{left_out:?}");
        assert!(left_out.iter().all(|path| path.contains(".GIT")), "{left_out:?}");
    }
}
