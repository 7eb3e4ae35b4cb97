//! The sandbox's clone: created around the objects volume, reset after an agent used it, and rebuilt if the agent destroyed it.
//!
//! A clone is a git directory whose `objects/info/alternates` names the objects volume, with the assigned branch and one
//! remote-tracking ref at the base: writing those few files takes no process, and a checkout takes one.
//! Used by `setup.rs`, `examination.rs` and `salvage.rs`. Must not: trust anything in the git directory after an agent ran. Config,
//! alternates and locks, which git obeys, are written again from memory.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use super::git::{GitError, HardenedGit};
use super::safe_fs;
use super::special_files;
use super::stop_budget::StopDeadline;
use super::users::as_shim;
use crate::handoff::assignment::GitIdentity;
use crate::ids::CommitId;

/// The content of HEAD in a new git directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeadTarget {
    /// A full ref name.
    Branch(String),
    /// A detached HEAD.
    Commit(CommitId),
}

/// Which untracked files a reset removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CleanMode {
    KeepIgnored,
    RemoveIgnored,
}

/// The clone, and everything needed to write its git directory again.
#[derive(Debug, Clone)]
pub struct CloneDir {
    /// The work tree. Its `.git` is the git directory.
    pub repo: PathBuf,
    /// The bare repository whose objects the clone borrows.
    pub objects_repo: PathBuf,
    pub head: HeadTarget,
    /// The refs of a new git directory: full names and commits.
    pub refs: Vec<(String, CommitId)>,
    /// The content of `.git/config`.
    pub config: String,
    pub identity: GitIdentity,
    /// When git is killed if the sandbox is stopped.
    pub stop_deadline: Option<StopDeadline>,
}

/// How much of a file in the git directory is read.
pub const MAX_GIT_FILE_BYTES: u64 = 64 * 1024;
/// How long git may take to write a work tree.
pub const CHECKOUT_TIMEOUT: Duration = Duration::from_secs(600);

/// Files and directories in a git directory that redirect git, or that an interrupted operation leaves behind.
const STALE_GIT_FILES: &[&str] = &[
    "commondir",
    "config.worktree",
    "index.lock",
    "HEAD.lock",
    "config.lock",
    "packed-refs.lock",
    "shallow.lock",
    "info/grafts",
    "info/sparse-checkout",
    "objects/info/http-alternates",
    "MERGE_HEAD",
    "MERGE_MODE",
    "MERGE_MSG",
    "MERGE_RR",
    "AUTO_MERGE",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
    "BISECT_START",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
];

impl CloneDir {
    pub fn git_dir(&self) -> PathBuf {
        self.repo.join(".git")
    }

    pub fn git(&self) -> HardenedGit {
        HardenedGit::for_clone(&self.repo, self.identity.clone()).with_stop_deadline(self.stop_deadline.clone())
    }

    pub fn with_stop_deadline(&self, deadline: StopDeadline) -> Self {
        Self { stop_deadline: Some(deadline), ..self.clone() }
    }

    /// Writes a new git directory. It must not exist.
    pub fn write_git_dir(&self) -> Result<(), GitError> {
        let git_dir = self.git_dir();
        for dir in ["objects/info", "objects/pack", "refs/heads", "refs/tags", "info"] {
            create_dir_all(&git_dir.join(dir))?;
        }
        let head = match &self.head {
            HeadTarget::Branch(name) => format!("ref: {name}\n"),
            HeadTarget::Commit(commit) => format!("{commit}\n"),
        };
        self.write_git_file("HEAD", &head)?;
        for (name, commit) in &self.refs {
            self.write_git_file(name, &format!("{commit}\n"))?;
        }
        self.restore_git_files()
    }

    /// Restores the files that git obeys, and removes what an interrupted or hostile agent may have left in the git directory.
    pub fn restore_git_files(&self) -> Result<(), GitError> {
        self.write_git_file("config", &self.config)?;
        self.write_git_file("objects/info/alternates", &format!("{}\n", self.objects_repo.join("objects").display()))?;
        match fs::read_to_string(self.objects_repo.join("shallow")) {
            Ok(shallow) => self.write_git_file("shallow", &shallow)?,
            Err(_) => self.remove_git_file("shallow")?,
        }
        for stale in STALE_GIT_FILES {
            self.remove_git_file(stale)?;
        }
        if let HeadTarget::Branch(name) = &self.head {
            self.remove_git_file(&format!("{name}.lock"))?;
        }
        Ok(())
    }

    /// Describes visible damage to the git directory, without running git.
    pub fn find_damage(&self) -> Option<String> {
        let is_dir = |path: &Path| fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
        let git_dir = self.git_dir();
        match fs::symlink_metadata(&git_dir) {
            Err(_) => return Some("`.git` is missing".into()),
            Ok(meta) if !meta.is_dir() => return Some("`.git` is not a directory".into()),
            Ok(_) => {}
        }
        for dir in ["objects", "refs"] {
            if !is_dir(&git_dir.join(dir)) {
                return Some(format!("`.git/{dir}` is missing or not a directory"));
            }
        }
        if !fs::symlink_metadata(git_dir.join("HEAD")).is_ok_and(|meta| meta.is_file()) {
            return Some("`.git/HEAD` is missing".into());
        }
        if let Some(path) = special_files::find_in_git_dir(&git_dir).first() {
            return Some(format!("`{}` is not a regular file or directory", self.relative_path(path)));
        }
        let alternates =
            safe_fs::read_text(&git_dir.join("objects/info/alternates"), MAX_GIT_FILE_BYTES).unwrap_or_default();
        if !alternates.contains(&*self.objects_repo.to_string_lossy()) {
            return Some("`.git/objects/info/alternates` does not name the shared objects".into());
        }
        None
    }

    /// Replaces a damaged git directory by a new one, and imports the objects of the bundle of earlier stories. The work tree stays
    /// as it is.
    pub fn rebuild_git_dir(&self, finished: Option<&Path>) -> Result<(), GitError> {
        self.remove_path(&self.git_dir())?;
        self.write_git_dir()?;
        if let Some(bundle) = finished.and_then(|bundle| as_shim(|| safe_fs::open_regular(bundle)).ok()) {
            // Git cannot open it by its path.
            self.git().run_with_files(&["bundle", "unbundle", "/dev/stdin"], bundle.into(), Stdio::null())?;
        }
        Ok(())
    }

    /// The clone's refs: full names and object ids.
    pub fn list_refs(&self) -> Result<BTreeMap<String, String>, GitError> {
        let listed = self.git().run(&["for-each-ref", "--format=%(objectname) %(refname)"])?.text();
        let pair = |line: &str| line.split_once(' ').map(|(id, name)| (name.to_owned(), id.to_owned()));
        Ok(listed.lines().filter_map(pair).collect())
    }

    /// Restores HEAD and the refs, whatever an agent or a check did to them: broken refs, conflicting names, links.
    pub fn restore_refs(&self, wanted: &BTreeMap<String, CommitId>) -> Result<(), GitError> {
        self.restore_git_files()?;
        if let HeadTarget::Branch(name) = &self.head {
            self.write_git_file("HEAD", &format!("ref: {name}\n"))?;
        }
        for name in ["refs", "packed-refs", "logs"] {
            self.remove_git_file(name)?;
        }
        create_dir_all(&self.git_dir().join("refs/heads"))?;
        for (name, commit) in wanted {
            self.write_git_file(name, &format!("{commit}\n"))?;
        }
        Ok(())
    }

    /// Resets the work tree and the index to a commit, whatever state they are in, and removes untracked files.
    pub fn reset_to(&self, commit: &CommitId, clean: CleanMode) -> Result<(), GitError> {
        self.remove_special_files();
        let git = self.git().with_timeout(CHECKOUT_TIMEOUT);
        let flags = if clean == CleanMode::RemoveIgnored { "-ffdxq" } else { "-ffdq" };
        let reset = || {
            git.run(&["reset", "--hard", "-q", commit.as_str()])?;
            git.run(&["clean", flags])
        };
        match reset() {
            Ok(_) => Ok(()),
            Err(error) if error.is_disk_full() => Err(error),
            Err(_) => {
                // Repair a broken index or unreadable files, and try once more.
                self.remove_git_file("index")?;
                self.make_accessible();
                reset().map(|_| ())
            }
        }
    }

    /// Removes the special files for which git would wait, in the git directory and in the work tree. Returns their paths.
    pub fn remove_special_files(&self) -> Vec<String> {
        let mut found = special_files::find_in_git_dir(&self.git_dir());
        found.extend(special_files::scan_work_tree(&self.repo).special);
        // Git's time limit covers those that cannot be removed.
        found.retain(|path| safe_fs::remove_any(path).is_ok());
        found.iter().map(|path| self.relative_path(path)).collect()
    }

    /// The path relative to the work tree.
    pub fn relative_path(&self, path: &Path) -> String {
        path.strip_prefix(&self.repo).unwrap_or(path).to_string_lossy().into_owned()
    }

    /// Restores the owner's permissions in the work tree. Returns the git directories of nested repositories.
    pub fn make_accessible(&self) -> Vec<PathBuf> {
        let mut nested = Vec::new();
        let mut dirs = vec![self.repo.clone()];
        while let Some(dir) = dirs.pop() {
            let Ok(entries) = fs::read_dir(&dir) else { continue };
            for entry in entries.flatten() {
                let path = entry.path();
                let Ok(meta) = fs::symlink_metadata(&path) else { continue };
                if entry.file_name() == ".git" {
                    if dir != self.repo {
                        nested.push(path);
                    }
                    continue;
                }
                let mode = meta.permissions().mode();
                let wanted = if meta.is_dir() { 0o700 } else { 0o400 };
                if (meta.is_dir() || meta.is_file()) && mode & wanted != wanted {
                    let _ = fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o7777 | 0o600 | wanted));
                }
                if meta.is_dir() {
                    dirs.push(path);
                }
            }
        }
        nested
    }

    /// Writes a file in the git directory, replacing whatever is there.
    pub fn write_git_file(&self, relative: &str, text: &str) -> Result<(), GitError> {
        let path = self.git_dir().join(relative);
        if let Some(parent) = path.parent() {
            create_dir_all(parent)?;
        }
        safe_fs::write_replacing(&path, text.as_bytes()).map_err(|e| GitError::file("write", &path, e))
    }

    /// Removes a file or directory in the git directory, if it exists.
    pub fn remove_git_file(&self, relative: &str) -> Result<(), GitError> {
        self.remove_path(&self.git_dir().join(relative))
    }

    fn remove_path(&self, path: &Path) -> Result<(), GitError> {
        safe_fs::remove_any(path).map_err(|error| GitError::file("remove", path, error))
    }
}

fn create_dir_all(path: &Path) -> Result<(), GitError> {
    fs::create_dir_all(path).map_err(|error| GitError::file("create", path, error))
}

/// How `origin` and the assigned branch are configured.
pub struct OriginConfig<'a> {
    /// The remote's address, which is rewritten to `objects_repo`.
    pub url: &'a str,
    pub objects_repo: &'a Path,
    pub branch: &'a str,
    pub upstream: &'a str,
}

/// Renders `.git/config`.
pub fn render_git_config(object_format: &str, identity: &GitIdentity, origin: Option<OriginConfig<'_>>) -> String {
    let mut text = String::from("[core]\n");
    let version = if object_format == "sha256" { 1 } else { 0 };
    text.push_str(&format!("\trepositoryformatversion = {version}\n\tfilemode = true\n\tbare = false\n"));
    text.push_str("\tlogallrefupdates = true\n\tfsync = none\n[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n");
    if version == 1 {
        text.push_str("[extensions]\n\tobjectformat = sha256\n");
    }
    text.push_str(&format!("[user]\n\tname = {}\n\temail = {}\n", quote(&identity.name), quote(&identity.email)));
    if let Some(OriginConfig { url, objects_repo, branch, upstream }) = origin {
        let (url, objects_repo) = (quote(url), quote(&objects_repo.to_string_lossy()));
        text.push_str(&format!(
            "[remote \"origin\"]
	url = {url}
"
        ));
        text.push_str(
            "	fetch = +refs/heads/*:refs/remotes/origin/*
",
        );
        text.push_str(&format!(
            "[url {objects_repo}]
	insteadOf = {url}
"
        ));
        text.push_str(&format!(
            "[branch {}]
	remote = origin
",
            quote(branch)
        ));
        text.push_str(&format!(
            "	merge = {}
",
            quote(&format!("refs/heads/{upstream}"))
        ));
    }
    text
}

/// Quotes a value for git's config. Control characters are left out.
fn quote(value: &str) -> String {
    let mut text = String::from("\"");
    for c in value.chars().filter(|c| !c.is_control()) {
        if matches!(c, '"' | '\\') {
            text.push('\\');
        }
        text.push(c);
    }
    text.push('"');
    text
}

/// Lets git in the sandbox fetch from the objects volume, which root owns: git accepts that setting from the home directory only. A
/// home that has settings already or is not writable stays as it is.
pub fn trust_objects_repo(home: &Path, objects_repo: &Path) {
    let text = format!("[safe]\n\tdirectory = {}\n", objects_repo.display());
    if let Ok(mut file) = fs::File::create_new(home.join(".gitconfig")) {
        let _ = file.write_all(text.as_bytes());
    }
}
