//! The user's repository: where it is, what state it is in, who commits.
//!
//! Called by `cli/` and `coordinator/` before a swarm begins. Must not: change anything.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::error::DeliveryError;
use super::git::{GitRunner, unexpected_output};
use super::import::Lineage;
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
    /// The effective config, keys as git prints them (section and variable in lower case), the last value of each.
    config: HashMap<String, String>,
    git: GitRunner,
    /// What imports learned of their tips, for the merges that follow.
    lineages: Mutex<HashMap<CommitId, Lineage>>,
    /// Commits that were seen to be here; git prunes nothing that a swarm's refs reach.
    known_commits: Mutex<HashSet<CommitId>>,
}

/// Where the user's checkout is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoHead {
    /// The commit.
    pub commit: CommitId,
    /// The branch; none where the head is detached.
    pub branch: Option<String>,
}

impl Repo {
    /// The repository that `dir` is in. A repository without commits is found; [`Repo::head`] tells.
    pub async fn discover(dir: &Path) -> Result<Repo, DeliveryError> {
        let git = GitRunner::in_dir(dir);
        check_version(&git.new_command("find git", ["version"]).run().await?.trimmed_stdout())?;
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
        let output = git.new_command(operation, fields).run().await.map_err(|error| discover_error(error, dir))?;
        let lines: Vec<&[u8]> = output.stdout.split(|&byte| byte == b'\n').collect();
        let [format, git_dir, common_dir, objects, root, b""] = lines[..] else {
            return Err(DeliveryError::PathWithNewline { path: dir.to_owned() });
        };
        let format = String::from_utf8_lossy(format);
        let [git_dir, common_dir, objects, root] =
            [git_dir, common_dir, objects, root].map(|path| PathBuf::from(OsStr::from_bytes(path)));
        let common_dir =
            common_dir.canonicalize().map_err(|source| DeliveryError::from_io(operation, &common_dir, source))?;
        let config = git.new_command("read the config", ["config", "--null", "--list"]).run().await?.stdout;
        let config = parse_config(&config);
        // Merge drivers are the user's programs. One that runs `false` ends in a conflict on that file.
        let settings = config
            .keys()
            .filter(|key| key.starts_with("merge.") && key.ends_with(".driver") && key.len() > "merge..driver".len())
            .map(|key| (key.clone(), "false".to_owned()))
            .collect();
        let inner = RepoInner {
            root,
            objects_dir: objects,
            hash: hash_repo(&common_dir, &format),
            object_format: format.into_owned(),
            git: git.with_git_dir(&git_dir, settings),
            git_dir,
            common_dir,
            config,
            lineages: Mutex::default(),
            known_commits: Mutex::default(),
        };
        Ok(Repo { inner: Arc::new(inner) })
    }

    /// The root of the working tree that was discovered.
    pub fn root(&self) -> &Path {
        &self.inner.root
    }

    /// `sha1` or `sha256`.
    pub fn object_format(&self) -> &str {
        &self.inner.object_format
    }

    /// 12 hexadecimal digits that name the repository: the same for all its working trees and from run to run, different
    /// for another path or object format. FNV-1a of the common git folder's path and the format; not a secret.
    pub fn hash(&self) -> String {
        self.inner.hash.clone()
    }

    pub(super) fn git(&self) -> &GitRunner {
        &self.inner.git
    }

    pub(super) fn objects_dir(&self) -> &Path {
        &self.inner.objects_dir
    }

    pub(super) fn known_commits(&self) -> &Mutex<HashSet<CommitId>> {
        &self.inner.known_commits
    }

    pub(super) fn lineages(&self) -> &Mutex<HashMap<CommitId, Lineage>> {
        &self.inner.lineages
    }

    pub(super) fn ignores_case(&self) -> bool {
        self.inner.config.get("core.ignorecase").is_some_and(|value| value == "true")
    }

    /// Whether objects may be missing here, to be fetched from a remote when they are wanted.
    pub(super) fn is_partial_clone(&self) -> bool {
        self.inner
            .config
            .keys()
            .any(|key| key == "extensions.partialclone" || (key.starts_with("remote.") && key.ends_with(".promisor")))
    }

    /// Where the checkout is. An error where there is no commit yet.
    pub async fn head(&self) -> Result<RepoHead, DeliveryError> {
        let operation = "read the head";
        // `--`: the folder that it runs in has a file of that name.
        let call = self.git().new_command(operation, ["rev-parse", "HEAD", "--symbolic-full-name", "HEAD", "--"]);
        let output = call.run().await.map_err(|error| match error {
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

    /// Whether the working tree or the index differs from the head, or there are files that git neither tracks nor ignores:
    /// what sandboxes will not see.
    pub async fn is_dirty(&self) -> Result<bool, DeliveryError> {
        let mut dirty = false;
        self.git()
            .new_command(
                "look for changes",
                ["status", "--porcelain", "-z", "--ignore-submodules=dirty", "--no-renames"],
            )
            .cwd(self.root())
            .env("GIT_WORK_TREE", self.root())
            .run_streaming(|chunk| {
                dirty = !chunk.is_empty();
                !dirty
            })
            .await?;
        Ok(dirty)
    }

    /// The branch's commit; none where there is no such branch.
    pub async fn branch_head(&self, branch: &str) -> Result<Option<CommitId>, DeliveryError> {
        let operation = "read a branch";
        let name = format!("refs/heads/{branch}");
        let call =
            self.git().new_command(operation, ["for-each-ref", "--format=%(objectname) %(refname)", "--", &name]);
        let output = call.run().await?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        for line in text.lines() {
            if let Some((commit, found)) = line.split_once(' ')
                && found == name
            {
                return commit.parse().map(Some).map_err(|_| unexpected_output(operation, line));
            }
        }
        Ok(None)
    }

    /// The working tree, main or linked, that has the branch checked out, or is rebasing or bisecting it.
    pub async fn checked_out_at(&self, branch: &str) -> Result<Option<PathBuf>, DeliveryError> {
        let operation = "look for the branch in working trees";
        let inner = &self.inner;
        if inner.config.get("extensions.refstorage").is_some_and(|format| format != "files") {
            let list = self.git().new_command(operation, ["worktree", "list", "--porcelain", "-z"]).run().await?;
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
    pub async fn remote_url(&self) -> Option<String> {
        let names = self.inner.config.keys().filter_map(|key| key.strip_prefix("remote.")?.strip_suffix(".url"));
        let names: Vec<&str> = names.collect();
        let name = match names[..] {
            [only] => only,
            _ => names.into_iter().find(|name| *name == "origin")?,
        };
        let url = self
            .git()
            .new_command("read the remote", ["remote", "get-url", "--", name])
            .run()
            .await
            .ok()?
            .trimmed_stdout();
        (!url.is_empty()).then_some(url)
    }

    /// Who commits, as the user has set it; none where nothing is set (git's guess from the host's name is not used).
    pub async fn identity(&self) -> Option<GitIdentity> {
        let args = ["-c", "user.useConfigOnly=true", "var", "GIT_COMMITTER_IDENT"];
        let text = self.git().new_command("read the identity", args).run().await.ok()?.trimmed_stdout();
        let (name, rest) = text.split_once(" <")?;
        let (email, _) = rest.rsplit_once("> ")?;
        (!name.is_empty() && !email.is_empty()).then(|| GitIdentity { name: name.to_owned(), email: email.to_owned() })
    }

    /// The `shallow` file, whole; empty where the repository has its full history.
    pub async fn read_shallow_file(&self) -> Result<String, DeliveryError> {
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

/// `key LF value NUL`, or `key NUL` for a key without a value, which stands for `true`.
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
