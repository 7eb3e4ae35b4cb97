//! Everything that is in a clone's work tree into its index, and from there into commits, whatever an agent left behind.
//!
//! Used by `examination.rs` for finished stories and by `salvage.rs` for the others. Must not: decide what becomes of a story.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::clone_dir::{CloneDir, remove_dir};
use super::git::{self, GitError, GitOutput, HardenedGit};
use crate::ids::CommitId;

/// The most processes that are spent on a work tree that git does not take in as a whole.
const MAX_ADD_TRIES: usize = 200;
/// What git says after it added what it could, where it was not told to ignore errors.
const ADDING_FAILED: &str = "fatal: adding files failed";

/// What to do about git repositories inside the work tree, whose files git would not take in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmbeddedRepos {
    /// Report them: they would be lost.
    Report,
    /// Remove their git folders, so that at least their files are taken in.
    RemoveGitDirs,
}

/// What staging met.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct StagedChanges {
    /// Whether the index differs from the start.
    pub changed: bool,
    /// Repositories inside the work tree that were not there at the start, relative to it.
    pub embedded: Vec<String>,
    /// Files and links that are new or changed, relative to the work tree.
    pub files: Vec<PathBuf>,
    /// Paths that git does not take in.
    pub refused: Vec<String>,
}

/// Stages everything. `start` is the commit whose index is taken where the clone's own is broken.
pub fn stage_all(
    clone: &CloneDir,
    git: &HardenedGit,
    start: &CommitId,
    embedded: EmbeddedRepos,
) -> Result<StagedChanges, GitError> {
    if std::fs::symlink_metadata(clone.git_dir().join("index")).is_err() {
        // Without it, files that are both tracked and ignored would count as deleted.
        git.run(&["read-tree", start.as_str()])?;
    }
    let mut refused = Vec::new();
    let added = git.output(&["add", "-A"], None)?;
    if !is_clean_add(&added) {
        let nested = clone.make_accessible();
        if embedded == EmbeddedRepos::RemoveGitDirs {
            nested.iter().for_each(|path| remove_nested_git_dir(path));
        }
        if let Err(error) = retry_add(clone, git, start) {
            if error.is_disk_full() {
                return Err(error);
            }
            // A repository without a commit makes git refuse the whole work tree.
            if embedded == EmbeddedRepos::Report && !nested.is_empty() {
                let embedded = nested.iter().map(|path| nested_repo_path(clone, path)).collect();
                return Ok(StagedChanges { changed: true, embedded, ..StagedChanges::default() });
            }
            refused = add_each_path(clone, git)?;
        }
    }
    let staged = diff_index(git, start)?;
    if embedded == EmbeddedRepos::Report || staged.embedded.is_empty() {
        return Ok(StagedChanges { refused, ..staged });
    }
    clone.make_accessible().iter().for_each(|path| remove_nested_git_dir(path));
    for path in &staged.embedded {
        git.run(&["rm", "-q", "--cached", "--", path])?;
    }
    refused.extend(add_each_path(clone, git)?);
    Ok(StagedChanges { refused, ..diff_index(git, start)? })
}

/// Adds all that git takes, and gives the paths that it does not. Where it gives up altogether, entry after entry.
fn add_each_path(clone: &CloneDir, git: &HardenedGit) -> Result<Vec<String>, GitError> {
    let mut refused = Vec::new();
    let mut waiting = vec![PathBuf::new()];
    let mut tries = 0;
    while let Some(path) = waiting.pop() {
        tries += 1;
        let shown = path.to_string_lossy().into_owned();
        if tries > MAX_ADD_TRIES {
            refused.push(shown);
            continue;
        }
        let mut args: Vec<OsString> = ["add", "-A", "--ignore-errors"].map(OsString::from).to_vec();
        if tries > 1 {
            let mut literal = OsString::from(":(top,literal)");
            literal.push(&path);
            args.extend(["--".into(), literal]);
        }
        let added = match git.output(&args, None) {
            Ok(added) => added,
            // What makes it wait is somewhere in there.
            Err(GitError::TimedOut { .. }) => GitOutput { success: false, stdout: Vec::new(), stderr: "fatal:".into() },
            Err(error) => return Err(error),
        };
        if added.success {
            continue;
        }
        let error = git::error_from_stderr(&args, &added.stderr);
        if error.is_disk_full() {
            return Err(error);
        }
        let gave_up = added.stderr.lines().any(|line| line.starts_with("fatal:") && line != ADDING_FAILED);
        if !gave_up {
            refused.extend(added.stderr.lines().filter_map(quoted_path).map(str::to_owned));
            continue;
        }
        clone.remove_git_file("index.lock")?;
        let folder = clone.repo.join(&path);
        match std::fs::read_dir(&folder) {
            Ok(entries) if std::fs::symlink_metadata(&folder).is_ok_and(|meta| meta.is_dir()) => {
                let names = entries.flatten().map(|entry| entry.file_name()).filter(|name| name != ".git");
                waiting.extend(names.map(|name| path.join(name)));
            }
            _ => refused.push(shown),
        }
    }
    refused.sort();
    refused.dedup();
    Ok(refused)
}

/// The path that an error of `git add` names in quotes.
fn quoted_path(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("error: ")?;
    let start = rest.find(['\'', '"'])?;
    let quote = &rest[start..=start];
    let end = rest.rfind(quote)?;
    rest.get(start + 1..end).filter(|path| !path.is_empty())
}

/// A folder that may not be read is a warning to git, and its files would count as deleted.
fn is_clean_add(added: &GitOutput) -> bool {
    added.success && !added.stderr.contains("ermission denied")
}

fn retry_add(clone: &CloneDir, git: &HardenedGit, start: &CommitId) -> Result<(), GitError> {
    if git.output(&["ls-files", "-s"], None)?.success
        && let Ok(added) = git.run(&["add", "-A"])
        && is_clean_add(&added)
    {
        return Ok(());
    }
    clone.remove_git_file("index")?;
    git.run(&["read-tree", start.as_str()])?;
    git.run(&["add", "-A"]).map(|_| ())
}

/// What the index has that `start` has not.
fn diff_index(git: &HardenedGit, start: &CommitId) -> Result<StagedChanges, GitError> {
    let raw = git.run(&["diff-index", "--cached", "--raw", "-z", "--no-renames", start.as_str()])?.stdout;
    let mut staged = StagedChanges { changed: !raw.is_empty(), ..StagedChanges::default() };
    let mut fields = raw.split(|b| *b == 0);
    while let (Some(entry), Some(path)) = (fields.next(), fields.next()) {
        // `:<old mode> <new mode> ...`
        let entry = String::from_utf8_lossy(entry);
        let mut modes = entry.trim_start_matches(':').split(' ');
        match (modes.next(), modes.next()) {
            (Some("160000"), Some("160000")) | (_, Some("000000")) => {}
            (_, Some("160000")) => staged.embedded.push(String::from_utf8_lossy(path).into_owned()),
            _ => staged.files.push(OsStr::from_bytes(path).into()),
        }
    }
    Ok(staged)
}

fn remove_nested_git_dir(nested: &Path) {
    let _ = if nested.is_dir() { remove_dir(nested) } else { std::fs::remove_file(nested) };
}

fn nested_repo_path(clone: &CloneDir, nested: &Path) -> String {
    let folder: PathBuf = nested.parent().unwrap_or(nested).to_owned();
    folder.strip_prefix(&clone.repo).unwrap_or(&folder).to_string_lossy().into_owned()
}

/// Reads an object's id from git's answer.
pub fn parse_commit_id(what: &str, output: &GitOutput) -> Result<CommitId, GitError> {
    let text = output.text();
    text.parse().map_err(|_| GitError::UnexpectedOutput { what: what.into(), answer: text.chars().take(80).collect() })
}

/// Commits the index on top of `parents`, and names no ref. None where the tree is the first parent's and there is no
/// other parent. `differs`: whether it is another than the first parent's, where the caller knows.
pub fn commit_index(
    git: &HardenedGit,
    parents: &[CommitId],
    message: &str,
    differs: Option<bool>,
) -> Result<Option<CommitId>, GitError> {
    let first = parents.first().expect("every caller names a parent");
    if differs == Some(false) && parents.len() == 1 {
        return Ok(None);
    }
    let tree = git.run(&["write-tree"])?.text();
    if differs.is_none() && parents.len() == 1 {
        let before = git.run(&["rev-parse", "--verify", "-q", &format!("{first}^{{tree}}")])?.text();
        if tree == before {
            return Ok(None);
        }
    }
    let mut args = vec!["commit-tree".to_owned(), tree, "-F".into(), "-".into()];
    for parent in parents {
        args.extend(["-p".to_owned(), parent.to_string()]);
    }
    parse_commit_id("commit-tree", &git.run_with_stdin(&args, Some(message.as_bytes()))?).map(Some)
}
