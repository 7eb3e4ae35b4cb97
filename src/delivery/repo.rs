//! The user's repository: its location, state and config.
//!
//! Called by `cli/` and `coordinator/` before a swarm starts. Must not: change the repository.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::DeliveryError;
use super::git_runner::{GitCommand, GitRunner, unexpected_output};
use super::worktrees;
use crate::handoff::assignment::GitIdentity;
use crate::ids::CommitId;

/// A repository with a working tree. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Repo {
    inner: Arc<RepoInner>,
}

#[derive(Debug)]
struct RepoInner {
    root: PathBuf,
    git_dir: PathBuf,
    common_dir: PathBuf,
    objects_dir: PathBuf,
    object_format: String,
    hash: String,
    /// The effective config: the last value of each key. Section and variable names are in lower case.
    config: HashMap<String, String>,
    git: GitRunner,
    /// Commits known to exist. Git does not prune what the refs of a swarm reach.
    known_commits: Mutex<HashSet<CommitId>>,
}

/// The `HEAD` of the user's checkout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RepoHead {
    pub commit: CommitId,
    /// `None` if `HEAD` is detached.
    pub branch: Option<String>,
}

impl Repo {
    /// Finds the repository that contains `dir`. It may have no commits yet; [`Repo::head`] checks that.
    pub async fn discover(dir: &Path) -> Result<Repo, DeliveryError> {
        let git = GitRunner::in_dir(dir);
        check_version(&git.command("find git", ["version"]).run().await?.trimmed_stdout())?;
        let operation = "find the repository";
        let fields = [
            "rev-parse",
            "--path-format=absolute",
            "--show-object-format",
            "--absolute-git-dir",
            "--git-common-dir",
            "--git-path",
            "objects",
            "--show-toplevel",
        ];
        let output = git.command(operation, fields).run().await.map_err(|error| discover_error(error, dir))?;
        let lines: Vec<&[u8]> = output.stdout.split(|&byte| byte == b'\n').collect();
        let [format, git_dir, common_dir, objects, root, b""] = lines[..] else {
            return Err(DeliveryError::PathWithNewline { path: dir.to_owned() });
        };
        let format = String::from_utf8_lossy(format);
        let [git_dir, common_dir, objects, root] =
            [git_dir, common_dir, objects, root].map(|path| PathBuf::from(OsStr::from_bytes(path)));
        let common_dir =
            common_dir.canonicalize().map_err(|source| DeliveryError::from_io(operation, &common_dir, source))?;
        let config = git.command("read the config", ["config", "--null", "--list"]).run().await?.stdout;
        let config = parse_config(&config);
        // Merge drivers are the user's programs. With `false` as its driver, a file that needs one conflicts.
        let overrides = config
            .keys()
            .filter(|key| key.starts_with("merge.") && key.ends_with(".driver") && key.len() > "merge..driver".len())
            .map(|key| (key.clone(), "false".to_owned()))
            .collect();
        let inner = RepoInner {
            root,
            objects_dir: objects,
            hash: hash_repo(&common_dir, &format),
            object_format: format.into_owned(),
            git: git.with_git_dir(&git_dir, overrides),
            git_dir,
            common_dir,
            config,
            known_commits: Mutex::default(),
        };
        Ok(Repo { inner: Arc::new(inner) })
    }

    /// The root of the working tree.
    pub(crate) fn root(&self) -> &Path {
        &self.inner.root
    }

    /// `sha1` or `sha256`.
    pub(crate) fn object_format(&self) -> &str {
        &self.inner.object_format
    }

    /// 12 hexadecimal digits that identify the repository: stable across its working trees and across runs, different for
    /// another path or object format. FNV-1a of the common git directory's path and the format; not a secret.
    pub fn hash(&self) -> String {
        self.inner.hash.clone()
    }

    /// A git command in the git directory; see [`GitRunner::command`].
    pub(super) fn git<S: AsRef<OsStr>>(
        &self,
        operation: &'static str,
        args: impl IntoIterator<Item = S>,
    ) -> GitCommand<'_> {
        self.inner.git.command(operation, args)
    }

    /// How many processes of git were started so far.
    #[cfg(test)]
    pub(super) fn started_processes(&self) -> usize {
        self.inner.git.started.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// A git command in the user's working tree.
    pub(super) fn git_in_work_tree<S: AsRef<OsStr>>(
        &self,
        operation: &'static str,
        args: impl IntoIterator<Item = S>,
    ) -> GitCommand<'_> {
        self.git(operation, args).cwd(self.root()).env("GIT_WORK_TREE", self.root())
    }

    pub(super) fn git_dir(&self) -> &Path {
        &self.inner.git_dir
    }

    pub(super) fn common_dir(&self) -> &Path {
        &self.inner.common_dir
    }

    pub(super) fn objects_dir(&self) -> &Path {
        &self.inner.objects_dir
    }

    pub(super) fn known_commits(&self) -> MutexGuard<'_, HashSet<CommitId>> {
        self.inner.known_commits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn ignores_case(&self) -> bool {
        self.inner.config.get("core.ignorecase").is_some_and(|value| value == "true")
    }

    /// Whether refs are files. Otherwise they are in the reftable format.
    pub(super) fn has_ref_files(&self) -> bool {
        self.inner.config.get("extensions.refstorage").is_none_or(|format| format == "files")
    }

    /// Whether objects may be missing that git fetches from a remote on demand.
    pub(super) fn is_partial_clone(&self) -> bool {
        self.inner
            .config
            .keys()
            .any(|key| key == "extensions.partialclone" || (key.starts_with("remote.") && key.ends_with(".promisor")))
    }

    /// Reads `HEAD`.
    ///
    /// # Errors
    /// [`DeliveryError::NoCommits`] if there is no commit yet.
    pub(crate) async fn head(&self) -> Result<RepoHead, DeliveryError> {
        let operation = "read the head";
        // `--`: the directory that git runs in has a file of that name.
        let command = self.git(operation, ["rev-parse", "HEAD", "--symbolic-full-name", "HEAD", "--"]);
        let output = command.run().await.map_err(|error| match error {
            DeliveryError::CommandFailed { tail, .. } if tail.contains("bad revision 'HEAD'") => {
                DeliveryError::NoCommits { path: self.root().to_owned() }
            }
            _ => error,
        })?;
        let text = output.trimmed_stdout();
        let mut lines = text.lines();
        let commit =
            lines.next().and_then(|line| line.parse().ok()).ok_or_else(|| unexpected_output(operation, &text))?;
        let branch = lines.next().and_then(|name| name.strip_prefix("refs/heads/")).map(str::to_owned);
        Ok(RepoHead { commit, branch })
    }

    /// Whether the working tree or the index differs from the head, or there are files that git neither tracks nor ignores.
    /// Sandboxes do not see any of it.
    pub(crate) async fn is_dirty(&self) -> Result<bool, DeliveryError> {
        let args = ["status", "--porcelain", "-z", "--ignore-submodules=dirty", "--no-renames"];
        let mut dirty = false;
        let status = self.git_in_work_tree("look for changes", args).run_streaming(|chunk| {
            dirty = !chunk.is_empty();
            !dirty
        });
        status.await?;
        Ok(dirty)
    }

    /// The working tree, main or linked, that has the branch checked out or is rebasing or bisecting it.
    pub(crate) async fn checked_out_at(&self, branch: &str) -> Result<Option<PathBuf>, DeliveryError> {
        let operation = "look for the branch in working trees";
        let inner = &self.inner;
        if !self.has_ref_files() {
            let list = self.git(operation, ["worktree", "list", "--porcelain", "-z"]).run().await?;
            return Ok(worktrees::find_checkout_in_list(&list.stdout, branch));
        }
        let main = if inner.git_dir.canonicalize().is_ok_and(|git_dir| git_dir == inner.common_dir) {
            &inner.root
        } else if inner.common_dir.ends_with(".git") {
            inner.common_dir.parent().unwrap_or(&inner.common_dir)
        } else {
            &inner.common_dir
        };
        worktrees::find_checkout(&inner.common_dir, main, branch)
            .map_err(|source| DeliveryError::from_io(operation, &inner.common_dir, source))
    }

    /// The URL of `origin`, else of the only remote, with the config's `insteadOf` applied.
    pub(crate) async fn remote_url(&self) -> Option<String> {
        let names = self.inner.config.keys().filter_map(|key| key.strip_prefix("remote.")?.strip_suffix(".url"));
        let names: Vec<&str> = names.collect();
        let name = match names[..] {
            [only] => only,
            _ => names.into_iter().find(|name| *name == "origin")?,
        };
        let command = self.git("read the remote", ["remote", "get-url", "--", name]);
        let url = command.run().await.ok()?.trimmed_stdout();
        (!url.is_empty()).then_some(url)
    }

    /// The configured committer, or `None`. Git's guess from the host name is not used.
    pub(crate) async fn identity(&self) -> Option<GitIdentity> {
        let args = ["-c", "user.useConfigOnly=true", "var", "GIT_COMMITTER_IDENT"];
        let text = self.git("read the identity", args).run().await.ok()?.trimmed_stdout();
        let (name, rest) = text.split_once(" <")?;
        let (email, _) = rest.rsplit_once("> ")?;
        (!name.is_empty() && !email.is_empty()).then(|| GitIdentity { name: name.to_owned(), email: email.to_owned() })
    }

    /// The content of the `shallow` file; empty if the repository has its full history.
    pub(crate) async fn read_shallow_file(&self) -> Result<String, DeliveryError> {
        let path = self.inner.common_dir.join("shallow");
        match tokio::fs::read_to_string(&path).await {
            Ok(text) => Ok(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
            Err(source) => Err(DeliveryError::from_io("read the shallow commits", path, source)),
        }
    }
}

fn check_version(line: &str) -> Result<(), DeliveryError> {
    let wrong = || DeliveryError::GitTooOld { found: line.chars().take(80).collect() };
    let version = line.strip_prefix("git version ").ok_or_else(wrong)?;
    let mut numbers = version.split(['.', ' ', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found >= (2, 38) { Ok(()) } else { Err(wrong()) }
}

fn discover_error(error: DeliveryError, dir: &Path) -> DeliveryError {
    let path = dir.to_owned();
    match &error {
        DeliveryError::CommandFailed { tail, .. } if tail.contains("dubious ownership") => {
            DeliveryError::DubiousOwnership { path }
        }
        DeliveryError::CommandFailed { tail, .. } if tail.contains("not a git repository") => {
            DeliveryError::NotARepo { path }
        }
        DeliveryError::CommandFailed { tail, .. } if tail.contains("must be run in a work tree") => {
            DeliveryError::NoWorkTree { path }
        }
        _ => error,
    }
}

/// Parses `key LF value NUL`, or `key NUL` for a key without a value, which means `true`.
fn parse_config(bytes: &[u8]) -> HashMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let entries = bytes.split(|&byte| byte == 0).filter(|entry| !entry.is_empty());
    entries
        .map(|entry| match entry.iter().position(|&byte| byte == b'\n') {
            Some(end) => (text(&entry[..end]), text(&entry[end + 1..])),
            None => (text(entry), "true".to_owned()),
        })
        .collect()
}

fn hash_repo(common_dir: &Path, format: &str) -> String {
    let named = [common_dir.as_os_str().as_encoded_bytes(), b"\0", format.as_bytes()].concat();
    format!("{:016x}", crate::fnv::fnv1a(0, &named))[..12].to_owned()
}

#[cfg(test)]
mod tests;
