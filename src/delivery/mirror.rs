//! Commits the files of a directory to a branch of its own, so that they can be pushed: the SSOT on `longshore/ssot`.
//!
//! Called by `cli/`. One `fast-import` writes blobs, tree and commit and moves the branch. It touches no checkout, index or head,
//! and runs no filter or hook. Unchanged files are neither read nor written again.
//! Must not: move a branch that is checked out, or know the content of the files.

use std::collections::HashMap;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;

use super::error::DeliveryError;
use super::git_runner::unexpected_output;
use super::repo::Repo;
use crate::handoff::assignment::GitIdentity;
use crate::ids::CommitId;

pub(crate) const MIRROR_BRANCH: &str = "longshore/ssot";
/// The first mirror may have to read many files.
const TIME_LIMIT: Duration = Duration::from_secs(1800);

/// A file to mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MirrorFile {
    /// Relative to the directory, with `/`.
    pub path: String,
    /// Whether the file never changes after it was written. The branch has it if the sizes are equal.
    pub write_once: bool,
}

impl Repo {
    /// Commits these files of a directory, and no others, to [`MIRROR_BRANCH`]. `None` if the branch has them already.
    pub(crate) async fn mirror(
        &self,
        dir: &Path,
        files: &[MirrorFile],
        identity: &GitIdentity,
        at: Timestamp,
    ) -> Result<Option<CommitId>, DeliveryError> {
        let operation = "mirror the directory";
        if let Some(at) = self.checked_out_at(MIRROR_BRANCH).await? {
            return Err(DeliveryError::BranchCheckedOut { branch: MIRROR_BRANCH.to_owned(), at });
        }
        let head = self.branch_head(MIRROR_BRANCH).await?;
        if head.is_none()
            && let Some(with) = self.conflicting_branch(MIRROR_BRANCH).await?
        {
            return Err(DeliveryError::BranchNameConflict { branch: MIRROR_BRANCH.to_owned(), with });
        }
        let mut existing = match &head {
            Some(head) => self.list_files(head).await?,
            None => HashMap::new(),
        };
        let failed = |source| DeliveryError::from_io(operation, dir, source);
        let mut stream = unlinked_tempfile_in(dir).map_err(failed)?;
        let mut write = |bytes: &[u8]| stream.write_all(bytes).map_err(failed);
        let GitIdentity { name, email } = identity;
        let subject = "longshore: mirror of the SSOT\n";
        let (seconds, length) = (at.as_second(), subject.len());
        write(format!("feature done\ncommit refs/heads/{MIRROR_BRANCH}\n").as_bytes())?;
        write(format!("committer {name} <{email}> {seconds} +0000\ndata {length}\n{subject}\n").as_bytes())?;
        if let Some(head) = &head {
            write(format!("from {head}\n").as_bytes())?;
        }
        let mut changed = false;
        let hashes = self.hash_mutable_files(dir, files, &existing).await?;
        for file in files.iter().filter(|file| is_plain_path(&file.path)) {
            let there = existing.remove(&file.path);
            let path = dir.join(&file.path);
            let size = match fs::metadata(&path) {
                Ok(meta) => meta.len(),
                // Removed meanwhile.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(source) => return Err(DeliveryError::from_io(operation, &path, source)),
            };
            if there
                .is_some_and(|(hash, had)| had == size && (file.write_once || hashes.get(&file.path) == Some(&hash)))
            {
                continue;
            }
            let bytes = fs::read(&path).map_err(|source| DeliveryError::from_io(operation, &path, source))?;
            write(format!("M 100644 inline {}\ndata {}\n", file.path, bytes.len()).as_bytes())?;
            write(&bytes)?;
            write(b"\n")?;
            changed = true;
        }
        for path in existing.keys().filter(|path| is_plain_path(path)) {
            write(format!("D {path}\n").as_bytes())?;
            changed = true;
        }
        write(b"done\n")?;
        if !changed {
            return Ok(None);
        }
        stream.seek(SeekFrom::Start(0)).map_err(failed)?;
        // `fast-import` refuses to move a branch that moved meanwhile to a commit that is not an ancestor of the new one.
        let command = self.git(operation, ["fast-import", "--quiet", "--done", "--date-format=raw"]);
        command.input_file(stream).time_limit(TIME_LIMIT).run().await?;
        self.branch_head(MIRROR_BRANCH).await
    }

    /// The files of a commit: path -> hash and size.
    async fn list_files(&self, commit: &CommitId) -> Result<HashMap<String, (String, u64)>, DeliveryError> {
        let operation = "read the mirror";
        let args = ["ls-tree", "-r", "-z", "--format=%(objectname) %(objectsize) %(path)"];
        let output = self.git(operation, args).arg(commit.as_str()).run().await?;
        let parse = |entry: &[u8]| {
            let entry = String::from_utf8_lossy(entry);
            let mut parts = entry.splitn(3, ' ');
            let (hash, size, path) = (parts.next(), parts.next().and_then(|size| size.parse().ok()), parts.next());
            let (Some(hash), Some(size), Some(path)) = (hash, size, path) else {
                return Err(unexpected_output(operation, &entry));
            };
            Ok((path.to_owned(), (hash.to_owned(), size)))
        };
        output.nul_fields().map(parse).collect()
    }

    /// The hashes of the files that can change and that the branch has.
    async fn hash_mutable_files(
        &self,
        dir: &Path,
        files: &[MirrorFile],
        existing: &HashMap<String, (String, u64)>,
    ) -> Result<HashMap<String, String>, DeliveryError> {
        let asked: Vec<&MirrorFile> = files
            .iter()
            .filter(|file| !file.write_once && is_plain_path(&file.path) && existing.contains_key(&file.path))
            .collect();
        if asked.is_empty() {
            return Ok(HashMap::new());
        }
        let operation = "look for changes since the last mirror";
        // Absolute paths: git runs in the git directory.
        let mut input = Vec::new();
        for file in &asked {
            input.extend_from_slice(dir.join(&file.path).as_os_str().as_encoded_bytes());
            input.push(b'\n');
        }
        let command = self.git(operation, ["hash-object", "--no-filters", "--stdin-paths"]);
        let text = command.input(input).run().await?.trimmed_stdout();
        if text.lines().count() != asked.len() {
            return Err(unexpected_output(operation, &text));
        }
        Ok(asked.into_iter().map(|file| file.path.clone()).zip(text.lines().map(str::to_owned)).collect())
    }
}

/// Whether the `fast-import` stream can carry the path without quotes.
fn is_plain_path(path: &str) -> bool {
    let part = |part: &str| !part.is_empty() && !matches!(part, "." | "..");
    path.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'/'))
        && path.split('/').all(part)
}

/// A temporary file without a name, which disappears when it is closed.
fn unlinked_tempfile_in(dir: &Path) -> std::io::Result<fs::File> {
    let path = dir.join(format!("tmp/mirror-{}", uuid::Uuid::new_v4()));
    let file = fs::OpenOptions::new().create_new(true).read(true).write(true).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests;
