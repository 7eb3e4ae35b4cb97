//! A repo in a temporary folder, for the tests of this module.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::repo::Repo;
use crate::handoff::assignment::GitIdentity;
use crate::ids::CommitId;

/// A repo on branch `main`, without commits, with an identity of its own.
pub(super) struct ScratchRepo {
    dir: tempfile::TempDir,
    /// The root of its working tree.
    pub(super) root: PathBuf,
}

impl ScratchRepo {
    pub(super) fn new() -> Self {
        Self::with_init_args(&[])
    }

    /// With more arguments for `git init`.
    pub(super) fn with_init_args(init: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path().join("a repo: \"odd\"");
        fs::create_dir(&root).expect("made");
        let scratch = Self { root: root.canonicalize().expect("there"), dir: folder };
        scratch.git(&[&["init", "-q", "-b", "main"], init].concat());
        scratch.git(&["config", "user.name", "Ann O'Test"]);
        scratch.git(&["config", "user.email", "ann@example.com"]);
        scratch
    }

    /// The folder around it.
    pub(super) fn parent_dir(&self) -> &Path {
        self.dir.path()
    }

    /// Runs git in its root; it must succeed.
    pub(super) fn git(&self, args: &[&str]) -> String {
        git_in(&self.root, args)
    }

    /// Writes a file of the working tree.
    pub(super) fn write(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("made");
        fs::write(path, text).expect("written");
    }

    /// Commits one changed file on the current branch.
    pub(super) fn commit(&self, path: &str, text: &str) -> CommitId {
        self.commit_with_message(path, text, &format!("change {path}"))
    }

    /// The same with a message.
    pub(super) fn commit_with_message(&self, path: &str, text: &str, message: &str) -> CommitId {
        self.write(path, text);
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", message]);
        self.head()
    }

    pub(super) fn head(&self) -> CommitId {
        self.git(&["rev-parse", "HEAD"]).parse().expect("a commit")
    }

    pub(super) async fn repo(&self) -> Repo {
        Repo::discover(&self.root).await.expect("a repo")
    }

    /// A clone beside it, standing for a sandbox.
    pub(super) fn clone_as_sandbox(&self) -> ScratchRepo {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path().join("clone");
        git_in(folder.path(), &["clone", "-q", "--no-local", self.root.to_str().expect("UTF-8"), "clone"]);
        let sandbox = ScratchRepo { root, dir: folder };
        sandbox.git(&["config", "user.name", "agent"]);
        sandbox.git(&["config", "user.email", "agent@example.com"]);
        sandbox
    }

    /// Bundles what `revisions` name into a file beside it.
    pub(super) fn bundle(&self, revisions: &[&str]) -> PathBuf {
        let path = self.dir.path().join("result.bundle");
        self.git(&[&["bundle", "create", "-q", path.to_str().expect("UTF-8")], revisions].concat());
        path
    }

    /// What of the repo must stay as it is: refs, status, index, and the names of loose objects and packs.
    pub(super) fn object_files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut open = vec![self.root.join(".git/objects")];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() { open.push(path) } else { files.push(path) }
            }
        }
        files.sort();
        files
    }
}

/// Runs git in a folder, away from the user's config; it must succeed.
pub(super) fn git_in(folder: &Path, args: &[&str]) -> String {
    let output = git_command(folder).args(args).output().expect("git runs");
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8").trim_end().to_owned()
}

/// Git in a folder, away from the user's config.
pub(super) fn git_command(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(folder).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    command.env("GIT_OPTIONAL_LOCKS", "0");
    command
}

/// Who merges.
pub(super) fn identity() -> GitIdentity {
    GitIdentity { name: "Long Shore".into(), email: "longshore@example.com".into() }
}
