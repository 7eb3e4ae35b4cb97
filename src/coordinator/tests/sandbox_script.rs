//! What runs in the fake engine's containers: the depot, and sandboxes whose shim is played by a script. A script speaks ACP,
//! makes a real commit on the base that it is given, and lays result and bundle down where the depot finds them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tokio::io::AsyncReadExt;

use crate::engine::depot::fake::FakeVolumes;
use crate::engine::fake::FakeProcess;
use crate::handoff::assignment::AssignmentFile;
use crate::handoff::layout;
use crate::handoff::result::{RESULT_VERSION, ResultFile, StoryResult};
use crate::ids::{CommitId, StoryId};
use crate::protocol::acp::message::{
    Completion, CompletionStatus, ContainerMessage, Envelope, ProgressUpdate, StoryStatus, encode_container,
};
use crate::test_rng::SeededRng;
use crate::verdict::{Cause, Failure, StoryOutcome};

/// What containers share.
#[derive(Clone)]
pub(super) struct SandboxScript {
    pub seed: u64,
    pub volumes: FakeVolumes,
    pub repo: PathBuf,
    /// Commits that must not be lost, with their folders: what was finished, and what the depot alone can save.
    pub finished_commits: Arc<Mutex<Vec<(String, CommitId)>>>,
    /// Folders that have what no salvage takes: they must stay.
    pub unsalvageable_dirs: Arc<Mutex<Vec<String>>>,
    /// In percent.
    pub bad_agent_percent: u64,
    pub noise_percent: u64,
}

impl SandboxScript {
    /// The script of every container.
    pub async fn run(self, run: FakeProcess) -> i64 {
        match run.spec.argv.get(1).map(String::as_str) {
            Some("depot") => self.volumes.clone().serve(run).await,
            _ => self.run_sandbox(run).await,
        }
    }

    async fn run_sandbox(self, mut run: FakeProcess) -> i64 {
        let attempt_dir = run.spec.argv[2].clone();
        let Some(found) = self.volumes.attempt_dir(&attempt_dir) else { return 70 };
        let file = found.files.iter().find(|file| file.path == layout::ASSIGNMENT_FILE).expect("an assignment file");
        let work: AssignmentFile = serde_json::from_str(&file.text).expect("an assignment");
        let mut byte = [0];
        loop {
            match run.stdin.read(&mut byte).await {
                Ok(1) if byte[0] == b'\n' => break,
                Ok(1) => {}
                _ => return 71,
            }
        }
        let seed = attempt_dir.bytes().fold(self.seed, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
        let mut random = SeededRng(seed);
        let mut terms = std::mem::replace(&mut run.sigterms, tokio::sync::mpsc::unbounded_channel().1);
        tokio::select! {
            code = self.run_story(&run, &attempt_dir, &work, &mut random) => code,
            // Like a shim that is told to stop and has nothing to save.
            Some(()) = terms.recv() => 143,
        }
    }

    async fn run_story(
        &self,
        run: &FakeProcess,
        attempt_dir: &str,
        work: &AssignmentFile,
        random: &mut SeededRng,
    ) -> i64 {
        let story = work.stories[0].id.clone();
        let say = |message: ContainerMessage| {
            let envelope =
                Envelope { timestamp: Timestamp::UNIX_EPOCH, swarm_id: work.swarm_id, container_id: run.id.clone() };
            let mut line = encode_container(&envelope, &message);
            line.push(b'\n');
            run.output.write_stdout(line);
        };
        let progress = |status: StoryStatus, output: &str| {
            let (story_id, output) = (story.clone(), output.to_owned());
            say(ContainerMessage::Progress(ProgressUpdate { story_id, status, output }));
        };
        progress(StoryStatus::InProgress, "begun");
        for _ in 0..random.below(4) {
            if random.chance(self.noise_percent) {
                print_noise(run, random);
            }
            tokio::time::sleep(Duration::from_millis(random.below(40_000))).await;
        }
        let bad = random.chance(self.bad_agent_percent);
        let sealed = bad && random.chance(25);
        if sealed {
            self.volumes.update_attempt_dir(attempt_dir, |dir| dir.left_out = vec![".GIT/config".to_owned()]);
            self.unsalvageable_dirs.lock().expect("no panic holds it").push(attempt_dir.to_owned());
        }
        if bad && random.chance(40) {
            // It ends without a record, and with work in its directory.
            let (commit, bundle) = self.commit(work, &story, &layout::salvage_ref(&story)).await;
            self.volumes.update_attempt_dir(attempt_dir, |dir| dir.salvage = Some((commit, bundle)));
            return random.choose(&[1, 101, 139]);
        }
        let reference = if bad { layout::salvage_ref(&story) } else { format!("refs/heads/{}", work.branch) };
        let (commit, bundle) = self.commit(work, &story, &reference).await;
        // Its own git may have been killed: then only the depot can save what is there.
        let unsaved = bad && random.chance(40);
        let outcome = match bad {
            true => StoryOutcome::Failed {
                failure: Failure::new(Cause::AgentFailed, "the agent exited 1"),
                salvage: (!unsaved).then(|| commit.clone()),
                unsaved: unsaved || sealed,
            },
            false => StoryOutcome::Finished { commit: commit.clone() },
        };
        let result = ResultFile {
            schema_version: RESULT_VERSION,
            swarm_id: work.swarm_id,
            attempt: work.attempt.clone(),
            base: work.base.clone(),
            tip: if bad { work.base.clone() } else { commit.clone() },
            bundle: !unsaved,
            stories: vec![StoryResult {
                id: story.clone(),
                outcome,
                criteria: Vec::new(),
                work_log: Vec::new(),
                commits: Vec::new(),
                duration_ms: 1,
                agent_notes: Default::default(),
            }],
        };
        if !bad || unsaved {
            let commit = commit.clone();
            self.finished_commits.lock().expect("no panic holds it").push((attempt_dir.to_owned(), commit));
        }
        self.volumes.update_attempt_dir(attempt_dir, |dir| {
            let saved = rename_bundle_ref(&bundle, &reference, &layout::salvage_ref(&story));
            dir.salvage = Some((commit.clone(), saved));
            dir.result = Some(serde_json::to_vec(&result).expect("a result is JSON"));
            dir.bundle = (!unsaved).then_some(bundle);
        });
        progress(if bad { StoryStatus::Failed } else { StoryStatus::Completed }, "done");
        say(ContainerMessage::Completion(Completion {
            status: CompletionStatus::Completed,
            pr_url: None,
            errors: Vec::new(),
        }));
        tokio::time::sleep(Duration::from_millis(random.below(3000))).await;
        0
    }

    /// A commit on the base, and a bundle of it under this name.
    async fn commit(&self, work: &AssignmentFile, story: &StoryId, reference: &str) -> (CommitId, Vec<u8>) {
        let (repo, base, story) = (self.repo.clone(), work.base.to_string(), story.to_string());
        let (number, reference) = (work.attempt.number, reference.to_owned());
        // On a thread of its own: the clock stands still meanwhile.
        let made = tokio::task::spawn_blocking(move || commit_and_bundle(&repo, &base, &reference, &story, number));
        made.await.expect("a commit is made")
    }
}

fn print_noise(run: &FakeProcess, random: &mut SeededRng) {
    match random.below(5) {
        0 => run.output.write_stdout("this is no record\n"),
        1 => run.output.write_stdout(vec![0xff, 0xfe, b'\n', 0, b'\n']),
        2 => run.output.write_stdout("{\"type\":\"completion\"}\n"),
        3 => run.output.write_stderr("words on stderr\n"),
        // One in a hundred: they take real time.
        _ if random.chance(5) => {
            run.output.write_stdout(vec![b'x'; 10_000_000]);
            run.output.write_stdout("\n");
        }
        _ => run.output.write_stdout("x".repeat(70_000) + "\n"),
    }
}

fn commit_and_bundle(repo: &Path, base: &str, reference: &str, story: &str, number: u32) -> (CommitId, Vec<u8>) {
    let scratch = tempfile::tempdir().expect("a directory");
    let git_dir = scratch.path();
    for dir in ["refs/heads", "objects/info"] {
        std::fs::create_dir_all(git_dir.join(dir)).expect("made");
    }
    std::fs::write(git_dir.join("HEAD"), "ref: refs/heads/none\n").expect("written");
    let borrowed = format!("{}\n", repo.join(".git/objects").display());
    std::fs::write(git_dir.join("objects/info/alternates"), borrowed).expect("written");
    let git = |args: &[&str], input: &str| {
        let mut command = Command::new("git");
        command.args(["--git-dir", git_dir.to_str().expect("UTF-8")]).args(args).env("GIT_CONFIG_NOSYSTEM", "1");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("git runs");
        child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("written");
        let output = child.wait_with_output().expect("git ends");
        assert!(output.status.success(), "git {args:?}");
        output.stdout
    };
    let (subject, text) = (format!("{story}: Story"), format!("attempt {number}\n"));
    let who = "Ada <ada@example.org> 1700000000 +0000";
    let stream = format!(
        "commit {reference}\nmark :1\nauthor {who}\ncommitter {who}\ndata {}\n{subject}\nfrom {base}\n\
         M 644 inline {story}.txt\ndata {}\n{text}\nget-mark :1\n",
        subject.len(),
        text.len()
    );
    let id = git(&["fast-import", "--quiet", "--cat-blob-fd=1"], &stream);
    let id = String::from_utf8(id).expect("an id").trim().parse().expect("an id");
    let bundle = git(&["bundle", "create", "--quiet", "-", reference, &format!("^{base}")], "");
    (id, bundle)
}

/// The bundle with another name for its ref, which stands in its header's text.
fn rename_bundle_ref(bundle: &[u8], from: &str, to: &str) -> Vec<u8> {
    let end = bundle.windows(2).position(|pair| pair == b"\n\n").expect("a header ends with an empty line");
    let header = std::str::from_utf8(&bundle[..end]).expect("a header is text").replace(from, to);
    [header.as_bytes(), &bundle[end..]].concat()
}
