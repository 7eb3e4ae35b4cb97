//! Stages everything in a clone's work tree and commits it, whatever an agent left behind.
//!
//! Used by `examination.rs` for finished stories and by `salvage.rs` for the others. Must not: judge a story.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::clone_dir::CloneDir;
use super::git::{self, GitError, GitOutput, HardenedGit};
use super::safe_fs;
use crate::ids::CommitId;
use crate::json::text;

/// The most processes for a work tree that git does not add as a whole.
const MAX_ADD_TRIES: usize = 200;
/// Printed after git added what it could.
const ADDING_FAILED: &str = "fatal: adding files failed";

/// What to do about nested git repositories, whose files git does not add.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmbeddedRepos {
    /// Report them, because their files would be lost.
    Report,
    /// Remove their git directories, so that their files are added.
    RemoveGitDirs,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct StagedChanges {
    /// Whether the index differs from the start.
    pub changed: bool,
    /// New nested repositories, relative to the work tree.
    pub embedded: Vec<String>,
    /// New and changed files and links, relative to the work tree.
    pub files: Vec<PathBuf>,
    /// Paths that git refuses to add.
    pub refused: Vec<String>,
}

/// Stages everything. If the clone's index is broken, the one of `start` replaces it.
pub fn stage_all(
    clone: &CloneDir,
    git: &HardenedGit,
    start: &CommitId,
    embedded: EmbeddedRepos,
) -> Result<StagedChanges, GitError> {
    if std::fs::symlink_metadata(clone.git_dir().join("index")).is_err() {
        // Without an index, files that are both tracked and ignored would count as deleted.
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
            if error.is_lack_of_resources() {
                return Err(error);
            }
            // A nested repository without a commit makes git refuse the whole work tree.
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

/// Adds what git accepts, entry by entry if it gives up. Returns the refused paths.
fn add_each_path(clone: &CloneDir, git: &HardenedGit) -> Result<Vec<String>, GitError> {
    let mut refused = Vec::new();
    let mut pending = vec![PathBuf::new()];
    let mut tries = 0;
    while let Some(path) = pending.pop() {
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
            // Something below the path makes git wait.
            Err(GitError::TimedOut { .. }) => GitOutput { success: false, stdout: Vec::new(), stderr: "fatal:".into() },
            Err(error) => return Err(error),
        };
        if added.success {
            continue;
        }
        let error = git::error_from_stderr(&args, &added.stderr);
        if error.is_lack_of_resources() {
            return Err(error);
        }
        let gave_up = added.stderr.lines().any(|line| line.starts_with("fatal:") && line != ADDING_FAILED);
        if !gave_up {
            refused.extend(added.stderr.lines().filter_map(quoted_path).map(str::to_owned));
            continue;
        }
        clone.remove_git_file("index.lock")?;
        let full_path = clone.repo.join(&path);
        match std::fs::read_dir(&full_path) {
            Ok(entries) if std::fs::symlink_metadata(&full_path).is_ok_and(|meta| meta.is_dir()) => {
                let names = entries.flatten().map(|entry| entry.file_name()).filter(|name| name != ".git");
                pending.extend(names.map(|name| path.join(name)));
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

/// An unreadable directory is only a warning to git, and its files would count as deleted.
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

/// Compares the index with `start`.
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
    let _ = safe_fs::remove_any(nested);
}

fn nested_repo_path(clone: &CloneDir, nested: &Path) -> String {
    clone.relative_path(nested.parent().unwrap_or(nested))
}

/// Parses an object id that git printed.
pub fn parse_commit_id(what: &str, output: &GitOutput) -> Result<CommitId, GitError> {
    let printed = output.text();
    printed
        .parse()
        .map_err(|_| GitError::UnexpectedOutput { what: what.into(), answer: text::take_chars(&printed, 80).into() })
}

/// How the index compares with the first parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexState {
    Changed,
    Unchanged,
    Unknown,
}

/// Commits the index on top of `parents` without updating a ref. Returns `None` if there is one parent and the index is unchanged.
pub fn commit_index(
    git: &HardenedGit,
    parents: &[CommitId],
    message: &str,
    state: IndexState,
) -> Result<Option<CommitId>, GitError> {
    let first = parents.first().expect("every caller names a parent");
    if state == IndexState::Unchanged && parents.len() == 1 {
        return Ok(None);
    }
    let tree = git.run(&["write-tree"])?.text();
    if state == IndexState::Unknown && parents.len() == 1 {
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
