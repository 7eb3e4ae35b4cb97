//! A repository in a temporary directory.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::delivery::Repo;
use crate::handoff::assignment::GitIdentity;
use crate::ids::CommitId;

/// A repository on branch `main` without commits, with an identity of its own.
pub(in crate::delivery) struct ScratchRepo {
    dir: tempfile::TempDir,
    /// The root of the working tree.
    pub(in crate::delivery) root: PathBuf,
}

impl ScratchRepo {
    pub(in crate::delivery) fn new() -> Self {
        Self::with_init_args(&[])
    }

    /// With more arguments for `git init`.
    pub(in crate::delivery) fn with_init_args(init: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let root = dir.path().join("a repo: \"odd\"");
        fs::create_dir(&root).expect("made");
        let scratch = Self { root: root.canonicalize().expect("there"), dir };
        scratch.git(&[&["init", "-q", "-b", "main"], init].concat());
        scratch.git(&["config", "user.name", "Ann O'Test"]);
        scratch.git(&["config", "user.email", "ann@example.com"]);
        scratch
    }

    /// The directory that contains the working tree.
    pub(in crate::delivery) fn parent_dir(&self) -> &Path {
        self.dir.path()
    }

    /// Runs git in the root; it must succeed.
    pub(in crate::delivery) fn git(&self, args: &[&str]) -> String {
        git_in(&self.root, args)
    }

    /// Writes a file of the working tree.
    pub(in crate::delivery) fn write(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("made");
        fs::write(path, text).expect("written");
    }

    /// Commits one changed file on the current branch.
    pub(in crate::delivery) fn commit(&self, path: &str, text: &str) -> CommitId {
        self.commit_with_message(path, text, &format!("change {path}"))
    }

    pub(in crate::delivery) fn commit_with_message(&self, path: &str, text: &str, message: &str) -> CommitId {
        self.write(path, text);
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", message]);
        self.head()
    }

    pub(in crate::delivery) fn head(&self) -> CommitId {
        self.git(&["rev-parse", "HEAD"]).parse().expect("a commit")
    }

    pub(in crate::delivery) async fn repo(&self) -> Repo {
        Repo::discover(&self.root).await.expect("a repo")
    }

    /// A clone with another identity, standing for a sandbox.
    pub(in crate::delivery) fn clone_as_sandbox(&self) -> ScratchRepo {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let root = dir.path().join("clone");
        git_in(dir.path(), &["clone", "-q", "--no-local", self.root.to_str().expect("UTF-8"), "clone"]);
        let sandbox = ScratchRepo { root, dir };
        sandbox.git(&["config", "user.name", "agent"]);
        sandbox.git(&["config", "user.email", "agent@example.com"]);
        sandbox
    }

    /// Writes a bundle of `revisions`.
    pub(in crate::delivery) fn bundle(&self, revisions: &[&str]) -> PathBuf {
        let path = self.dir.path().join("result.bundle");
        self.git(&[&["bundle", "create", "-q", path.to_str().expect("UTF-8")], revisions].concat());
        path
    }

    /// The paths of all loose objects and packs, sorted.
    pub(in crate::delivery) fn object_files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut open = vec![self.root.join(".git/objects")];
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(dir).expect("a directory") {
                let path = entry.expect("an entry").path();
                if path.is_dir() { open.push(path) } else { files.push(path) }
            }
        }
        files.sort();
        files
    }
}

/// Runs git in a directory, without the user's config; it must succeed.
pub(in crate::delivery) fn git_in(dir: &Path, args: &[&str]) -> String {
    String::from_utf8(git_with_input(dir, args, b"")).expect("UTF-8").trim_end().to_owned()
}

/// [`git_in`] with standard input. Returns the raw output.
pub(in crate::delivery) fn git_with_input(dir: &Path, args: &[&str], input: &[u8]) -> Vec<u8> {
    let pipe = Stdio::piped;
    let mut command = git_command(dir);
    let mut child = command.args(args).stdin(pipe()).stdout(pipe()).stderr(pipe()).spawn().expect("git runs");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let output = std::thread::scope(|scope| {
        // A command that reads no input may exit before it is written.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().expect("git ends")
    });
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// A git command in a directory, without the user's config.
pub(in crate::delivery) fn git_command(dir: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(dir).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    command.env("GIT_OPTIONAL_LOCKS", "0");
    command
}

/// The identity for merges.
pub(in crate::delivery) fn identity() -> GitIdentity {
    GitIdentity { name: "Long Shore".into(), email: "longshore@example.com".into() }
}
