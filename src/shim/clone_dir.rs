//! The sandbox's clone: made by hand around the objects volume, put in order again after an agent had it, and made anew
//! where the agent destroyed it.
//!
//! A clone is a git folder whose `objects/info/alternates` names the objects volume, with the assigned branch and one
//! remote-tracking ref at the base: writing those few files takes no process, and a checkout takes one.
//! Used by `serve.rs`, `examination.rs` and `salvage.rs`. Must not: believe anything that is in the git folder after an agent
//! ran. What git reads before it does as it is told (configuration, alternates, locks) is written again from memory.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::git::{GitError, HardenedGit};
use super::safe_fs;
use super::stop_budget::StopDeadline;
use crate::handoff::assignment::GitIdentity;
use crate::ids::CommitId;

/// What HEAD is to say in a new git folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeadTarget {
    /// A branch, by its full ref name.
    Branch(String),
    /// A commit, with no branch.
    Commit(CommitId),
}

/// The clone and all that is needed to write its git folder again.
#[derive(Debug, Clone)]
pub struct CloneDir {
    /// The work tree, whose `.git` is the git folder.
    pub repo: PathBuf,
    /// The bare repository whose objects it borrows.
    pub objects_repo: PathBuf,
    /// What HEAD says.
    pub head: HeadTarget,
    /// The refs that a new git folder has: full names and commits.
    pub refs: Vec<(String, CommitId)>,
    /// `.git/config`, whole.
    pub config: String,
    /// Who commits.
    pub identity: GitIdentity,
    /// When git is cut off, should the sandbox be stopped.
    pub stop_deadline: Option<StopDeadline>,
}

/// The most that is read of a file in the git folder.
pub const MAX_GIT_FILE_BYTES: u64 = 64 * 1024;
/// How long git may take over writing a work tree.
pub const CHECKOUT_TIMEOUT: Duration = Duration::from_secs(600);

/// Files and folders in a git folder that would make git do something else than is meant, or that an interrupted operation
/// leaves behind.
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
    /// `repo/.git`.
    pub fn git_dir(&self) -> PathBuf {
        self.repo.join(".git")
    }

    /// Git for this clone.
    pub fn git(&self) -> HardenedGit {
        HardenedGit::for_clone(&self.repo, self.identity.clone()).with_stop_deadline(self.stop_deadline.clone())
    }

    /// The same, with git cut off at another time of a stop.
    pub fn with_stop_deadline(&self, halt: StopDeadline) -> Self {
        Self { stop_deadline: Some(halt), ..self.clone() }
    }

    /// Writes a new git folder. There must be none.
    pub fn write_git_dir(&self) -> Result<(), GitError> {
        let git_dir = self.git_dir();
        for folder in ["objects/info", "objects/pack", "refs/heads", "refs/tags", "info"] {
            let path = git_dir.join(folder);
            fs::create_dir_all(&path).map_err(|e| GitError::file("make", &path, e))?;
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

    /// Writes again what git obeys, and removes what an interrupted or a hostile agent may have left in the git folder.
    pub fn restore_git_files(&self) -> Result<(), GitError> {
        self.write_git_file("config", &self.config)?;
        self.write_git_file("objects/info/alternates", &format!("{}\n", self.objects_repo.join("objects").display()))?;
        match fs::read_to_string(self.objects_repo.join("shallow")) {
            Ok(shallow) => self.write_git_file("shallow", &shallow)?,
            Err(_) => self.remove_git_file("shallow")?,
        }
        for stray in STALE_GIT_FILES {
            self.remove_git_file(stray)?;
        }
        if let HeadTarget::Branch(name) = &self.head {
            self.remove_git_file(&format!("{name}.lock"))?;
        }
        Ok(())
    }

    /// Says what is broken about the git folder, as far as it shows without running git; none where it looks whole.
    pub fn find_damage(&self) -> Option<String> {
        let is_folder = |path: &Path| fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
        let git_dir = self.git_dir();
        match fs::symlink_metadata(&git_dir) {
            Err(_) => return Some("`.git` is gone".into()),
            Ok(meta) if !meta.is_dir() => return Some("`.git` is not a folder any more".into()),
            Ok(_) => {}
        }
        for folder in ["objects", "refs"] {
            if !is_folder(&git_dir.join(folder)) {
                return Some(format!("`.git/{folder}` is gone"));
            }
        }
        if !fs::symlink_metadata(git_dir.join("HEAD")).is_ok_and(|meta| meta.is_file()) {
            return Some("`.git/HEAD` is gone".into());
        }
        if let Some(path) = safe_fs::find_special_in_git_dir(&git_dir).first() {
            return Some(format!("`{}` is no regular file or folder any more", self.relative_path(path)));
        }
        let alternates =
            safe_fs::read_text(&git_dir.join("objects/info/alternates"), MAX_GIT_FILE_BYTES).unwrap_or_default();
        if !alternates.contains(&*self.objects_repo.to_string_lossy()) {
            return Some("the objects that the clone borrows are not named in `.git/objects/info/alternates`".into());
        }
        None
    }

    /// Puts a new git folder in the place of a damaged one, and takes the objects in from the bundle of what was finished
    /// before, where there is one. The work tree stays as it is.
    pub fn rebuild_git_dir(&self, finished: Option<&Path>) -> Result<(), GitError> {
        self.remove_path(&self.git_dir())?;
        self.write_git_dir()?;
        if let Some(bundle) = finished.filter(|bundle| bundle.is_file()) {
            self.git().run(&["bundle".as_ref(), "unbundle".as_ref(), bundle.as_os_str()])?;
        }
        Ok(())
    }

    /// The clone's refs: full names and what they name, as git says it.
    pub fn list_refs(&self) -> Result<BTreeMap<String, String>, GitError> {
        let listed = self.git().run(&["for-each-ref", "--format=%(objectname) %(refname)"])?.text();
        let pair = |line: &str| line.split_once(' ').map(|(id, name)| (name.to_owned(), id.to_owned()));
        Ok(listed.lines().filter_map(pair).collect())
    }

    /// Makes HEAD and the refs what they are to be, whatever an agent or a check made of them: broken refs, names that are
    /// in each other's way, refs that are links.
    pub fn restore_refs(&self, wanted: &BTreeMap<String, CommitId>) -> Result<(), GitError> {
        self.restore_git_files()?;
        if let HeadTarget::Branch(name) = &self.head {
            self.write_git_file("HEAD", &format!("ref: {name}\n"))?;
        }
        for all in ["refs", "packed-refs", "logs"] {
            self.remove_git_file(all)?;
        }
        let heads = self.git_dir().join("refs/heads");
        fs::create_dir_all(&heads).map_err(|e| GitError::file("make", &heads, e))?;
        for (name, commit) in wanted {
            self.write_git_file(name, &format!("{commit}\n"))?;
        }
        Ok(())
    }

    /// Makes the work tree and the index equal to a commit, whatever state they are in; untracked files are removed,
    /// ignored ones too where `ignored` says so.
    pub fn reset_to(&self, commit: &CommitId, ignored: bool) -> Result<(), GitError> {
        self.remove_special_files();
        let git = self.git().with_timeout(CHECKOUT_TIMEOUT);
        let clean = if ignored { "-ffdxq" } else { "-ffdq" };
        let once = || {
            git.run(&["reset", "--hard", "-q", commit.as_str()])?;
            git.run(&["clean", clean])
        };
        match once() {
            Ok(_) => Ok(()),
            Err(error) if error.is_disk_full() => Err(error),
            Err(_) => {
                // A broken index, or files that may not be read: mended, it works or is a fault.
                self.remove_git_file("index")?;
                self.make_accessible();
                once().map(|_| ())
            }
        }
    }

    /// Removes the special files for which git would wait, in the git folder and in the work tree. Gives their paths.
    pub fn remove_special_files(&self) -> Vec<String> {
        let mut found = safe_fs::find_special_in_git_dir(&self.git_dir());
        found.extend(safe_fs::scan_work_tree(&self.repo).special);
        // What cannot be removed is met by git's time limit.
        found.retain(|path| safe_fs::remove_any(path).is_ok());
        found.iter().map(|path| self.relative_path(path)).collect()
    }

    /// A path in the work tree, relative to it.
    pub fn relative_path(&self, path: &Path) -> String {
        path.strip_prefix(&self.repo).unwrap_or(path).to_string_lossy().into_owned()
    }

    /// Gives the owner back the right to read and enter all of the work tree, and lists the git repositories inside it.
    pub fn make_accessible(&self) -> Vec<PathBuf> {
        let mut nested = Vec::new();
        let mut folders = vec![self.repo.clone()];
        while let Some(folder) = folders.pop() {
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            for entry in entries.flatten() {
                let path = entry.path();
                let Ok(meta) = fs::symlink_metadata(&path) else { continue };
                if entry.file_name() == ".git" {
                    if folder != self.repo {
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
                    folders.push(path);
                }
            }
        }
        nested
    }

    /// Writes a file in the git folder, in the place of whatever is there.
    pub fn write_git_file(&self, relative: &str, text: &str) -> Result<(), GitError> {
        let path = self.git_dir().join(relative);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|e| GitError::file("make", parent, e))?;
        }
        safe_fs::write_replacing(&path, text.as_bytes()).map_err(|e| GitError::file("write", &path, e))
    }

    /// Removes a file or folder in the git folder, if it is there.
    pub fn remove_git_file(&self, relative: &str) -> Result<(), GitError> {
        self.remove_path(&self.git_dir().join(relative))
    }

    fn remove_path(&self, path: &Path) -> Result<(), GitError> {
        safe_fs::remove_any(path).map_err(|error| GitError::file("remove", path, error))
    }
}

/// Removes a folder whose subfolders may lack the owner's rights.
pub fn remove_dir(path: &Path) -> io::Result<()> {
    if fs::remove_dir_all(path).is_ok() {
        return Ok(());
    }
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        let _ = fs::set_permissions(&folder, fs::Permissions::from_mode(0o700));
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
    }
    fs::remove_dir_all(path)
}

/// The clone's `.git/config`: who commits, where `origin` is, and that its address means the objects volume.
pub fn render_git_config(
    object_format: &str,
    identity: &GitIdentity,
    remote: Option<(&str, &Path)>,
    branch: Option<(&str, &str)>,
) -> String {
    let mut text = String::from("[core]\n");
    let version = if object_format == "sha256" { 1 } else { 0 };
    text.push_str(&format!("\trepositoryformatversion = {version}\n\tfilemode = true\n\tbare = false\n"));
    text.push_str("\tlogallrefupdates = true\n\tfsync = none\n[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n");
    if version == 1 {
        text.push_str("[extensions]\n\tobjectformat = sha256\n");
    }
    text.push_str(&format!("[user]\n\tname = {}\n\temail = {}\n", quote(&identity.name), quote(&identity.email)));
    if let Some((url, objects_repo)) = remote {
        let objects_repo = quote(&objects_repo.to_string_lossy());
        text.push_str(&format!("[remote \"origin\"]\n\turl = {}\n", quote(url)));
        text.push_str("\tfetch = +refs/heads/*:refs/remotes/origin/*\n");
        text.push_str(&format!("[url {objects_repo}]\n\tinsteadOf = {}\n", quote(url)));
    }
    if let Some((local, upstream)) = branch {
        text.push_str(&format!("[branch {}]\n\tremote = origin\n", quote(local)));
        text.push_str(&format!("\tmerge = {}\n", quote(&format!("refs/heads/{upstream}"))));
    }
    text
}

/// A value as git's configuration reads it back; what it cannot say on one line is left out.
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
