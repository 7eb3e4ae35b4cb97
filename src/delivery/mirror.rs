//! A folder's files as commits of a branch of its own, so that it can be pushed: the SSOT on `longshore/ssot`.
//!
//! Called by `cli/`. One `fast-import` makes blobs, tree and commit and moves the branch: no checkout, no index and no head is
//! touched, no filter and no hook runs. What the branch has already is neither read nor written again.
//! Must not: move a branch that is checked out, or know what is in the files.

use std::collections::HashMap;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;

use super::error::DeliveryError;
use super::git::unexpected_output;
use super::repo::Repo;
use crate::handoff::assignment::GitIdentity;
use crate::ids::CommitId;

/// The branch.
pub const MIRROR_BRANCH: &str = "longshore/ssot";
/// The first time may have much to read.
const TIME_LIMIT: Duration = Duration::from_secs(1800);

/// A file to be mirrored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorFile {
    /// Its path below the folder, with `/`.
    pub path: String,
    /// Whether it is written once: then its size tells whether the branch has it.
    pub write_once: bool,
}

impl Repo {
    /// Makes [`MIRROR_BRANCH`] have these files of a folder, and no others, by one more commit. None where it has them already.
    pub async fn mirror(
        &self,
        folder: &Path,
        files: &[MirrorFile],
        identity: &GitIdentity,
        at: Timestamp,
    ) -> Result<Option<CommitId>, DeliveryError> {
        let operation = "mirror the folder";
        if let Some(at) = self.checked_out_at(MIRROR_BRANCH).await? {
            return Err(DeliveryError::BranchCheckedOut { branch: MIRROR_BRANCH.to_owned(), at });
        }
        let head = self.branch_head(MIRROR_BRANCH).await?;
        if head.is_none()
            && let Some(with) = self.conflicting_branch(MIRROR_BRANCH).await?
        {
            return Err(DeliveryError::BranchNameConflict { branch: MIRROR_BRANCH.to_owned(), with });
        }
        let mut has = match &head {
            Some(head) => self.list_files(head).await?,
            None => HashMap::new(),
        };
        let mut stream =
            unlinked_tempfile_in(folder).map_err(|source| DeliveryError::from_io(operation, folder, source))?;
        let mut write =
            |bytes: &[u8]| stream.write_all(bytes).map_err(|e| DeliveryError::from_io(operation, folder, e));
        let GitIdentity { name, email } = identity;
        let subject = "longshore: what was said so far\n";
        write(
            format!(
                "feature done\ncommit refs/heads/{MIRROR_BRANCH}\ncommitter {name} <{email}> {} +0000\n",
                at.as_second()
            )
            .as_bytes(),
        )?;
        write(format!("data {}\n{subject}\n", subject.len()).as_bytes())?;
        if let Some(head) = &head {
            write(format!("from {head}\n").as_bytes())?;
        }
        let mut changed = false;
        let hashes = self.hash_mutable_files(folder, files, &has).await?;
        for file in files.iter().filter(|file| is_plain_path(&file.path)) {
            let there = has.remove(&file.path);
            let path = folder.join(&file.path);
            let size = match fs::metadata(&path) {
                Ok(meta) => meta.len(),
                // Gone meanwhile.
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
        for path in has.keys().filter(|path| is_plain_path(path)) {
            write(format!("D {path}\n").as_bytes())?;
            changed = true;
        }
        write(b"done\n")?;
        if !changed {
            return Ok(None);
        }
        stream.seek(SeekFrom::Start(0)).map_err(|source| DeliveryError::from_io(operation, folder, source))?;
        // It refuses a branch that was moved meanwhile to where the new commit does not come from.
        let call = self.git().new_command(operation, ["fast-import", "--quiet", "--done", "--date-format=raw"]);
        call.input_file(stream).time_limit(TIME_LIMIT).run().await?;
        self.branch_head(MIRROR_BRANCH).await
    }

    /// Path -> hash and size.
    async fn list_files(&self, commit: &CommitId) -> Result<HashMap<String, (String, u64)>, DeliveryError> {
        let operation = "read the mirror";
        let args = ["ls-tree", "-r", "-z", "--format=%(objectname) %(objectsize) %(path)"];
        let output = self.git().new_command(operation, args).arg(commit.as_str()).run().await?;
        let text = String::from_utf8_lossy(&output.stdout);
        let entries = text.split('\0').filter(|entry| !entry.is_empty());
        entries
            .map(|entry| {
                let mut parts = entry.splitn(3, ' ');
                let (hash, size, path) = (parts.next(), parts.next().and_then(|size| size.parse().ok()), parts.next());
                let wrong = || unexpected_output(operation, entry);
                let hash = hash.ok_or_else(wrong)?.to_owned();
                Ok((path.ok_or_else(wrong)?.to_owned(), (hash, size.ok_or_else(wrong)?)))
            })
            .collect()
    }

    /// The hashes of the files that change, where the branch has them.
    async fn hash_mutable_files(
        &self,
        folder: &Path,
        files: &[MirrorFile],
        has: &HashMap<String, (String, u64)>,
    ) -> Result<HashMap<String, String>, DeliveryError> {
        let asked: Vec<&MirrorFile> = files
            .iter()
            .filter(|file| !file.write_once && is_plain_path(&file.path) && has.contains_key(&file.path))
            .collect();
        if asked.is_empty() {
            return Ok(HashMap::new());
        }
        let operation = "look for changes since the last mirror";
        // Absolute ones: git runs in a folder of its own.
        let mut input = Vec::new();
        for file in &asked {
            input.extend_from_slice(folder.join(&file.path).as_os_str().as_encoded_bytes());
            input.push(b'\n');
        }
        let call = self.git().new_command(operation, ["hash-object", "--no-filters", "--stdin-paths"]);
        let text = call.input(input).run().await?.trimmed_stdout();
        if text.lines().count() != asked.len() {
            return Err(unexpected_output(operation, &text));
        }
        Ok(asked.into_iter().map(|file| file.path.clone()).zip(text.lines().map(str::to_owned)).collect())
    }
}

/// A path that the stream can carry as it is.
fn is_plain_path(path: &str) -> bool {
    let part = |part: &str| !part.is_empty() && !matches!(part, "." | "..");
    path.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'/'))
        && path.split('/').all(part)
}

/// A file that has no name any more: gone with whoever has it open.
fn unlinked_tempfile_in(folder: &Path) -> std::io::Result<fs::File> {
    let path = folder.join(format!("tmp/mirror-{}", uuid::Uuid::new_v4()));
    let file = fs::OpenOptions::new().create_new(true).read(true).write(true).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::super::scratch_repo::{ScratchRepo, identity};
    use super::*;

    fn files(of: &[(&str, bool)]) -> Vec<MirrorFile> {
        of.iter().map(|(path, once)| MirrorFile { path: (*path).to_owned(), write_once: *once }).collect()
    }

    #[tokio::test]
    async fn mirror_commits_a_directory_to_its_own_branch() {
        let scratch = ScratchRepo::new();
        let base = scratch.commit("a", "1");
        scratch.write("a", "changed");
        scratch.write("staged", "x");
        scratch.git(&["add", "staged"]);
        let folder = scratch.parent_dir().join("ssot folder");
        for path in ["tmp", "messages/T-1", "tasks"] {
            fs::create_dir_all(folder.join(path)).expect("made");
        }
        let write = |path: &str, text: &str| fs::write(folder.join(path), text).expect("written");
        write("messages/T-1/m.json", "{\"é\":\r\n1}\n");
        write("tasks/T-1.json", "{\"n\": 1}\n");
        // A filter of the user's would change what is mirrored.
        scratch.git(&["config", "filter.x.clean", "tr a-z A-Z"]);
        scratch.write(".git/info/attributes", "* filter=x\n");
        let status = scratch.git(&["status", "--porcelain"]);
        let repo = scratch.repo().await;
        let at = Timestamp::from_second(1_795_348_800).expect("a time");
        let both = files(&[("messages/T-1/m.json", true), ("tasks/T-1.json", false), ("a b", true)]);
        let first = repo.mirror(&folder, &both, &identity(), at).await.expect("mirrored").expect("a commit");
        let show = |path: &str| scratch.git(&["cat-file", "blob", &format!("longshore/ssot:{path}")]);
        assert_eq!(
            (show("messages/T-1/m.json").as_str(), show("tasks/T-1.json").as_str()),
            ("{\"é\":\r\n1}", "{\"n\": 1}")
        );
        assert_eq!(
            scratch.git(&["log", "--format=%cn <%ce> %ct %P", "longshore/ssot"]),
            "Long Shore <longshore@example.com> 1795348800"
        );

        // Nothing is new: no commit. The same size, and written again: one.
        assert_eq!(repo.mirror(&folder, &both, &identity(), at).await.expect("mirrored"), None);
        write("tasks/T-1.json", "{\"n\": 2}\n");
        let second = repo.mirror(&folder, &both, &identity(), at).await.expect("mirrored").expect("a commit");
        assert_eq!(show("tasks/T-1.json"), "{\"n\": 2}");
        assert_eq!(scratch.git(&["rev-parse", "longshore/ssot", "longshore/ssot^"]), format!("{second}\n{first}"));
        // What was torn when it was mirrored, and is gone from the folder.
        write("messages/T-1/m.json", "{}\n");
        repo.mirror(&folder, &both[..1], &identity(), at).await.expect("mirrored").expect("a commit");
        assert_eq!(scratch.git(&["ls-tree", "-r", "--name-only", "longshore/ssot"]), "messages/T-1/m.json");
        assert_eq!(show("messages/T-1/m.json"), "{}");

        assert_eq!((scratch.head(), scratch.git(&["status", "--porcelain"])), (base, status));
        assert_eq!(fs::read_dir(folder.join("tmp")).expect("a folder").count(), 0);
        scratch.git(&["stash", "-q"]);
        scratch.git(&["switch", "-q", "longshore/ssot"]);
        let refused = repo.mirror(&folder, &both, &identity(), at).await;
        assert!(matches!(refused, Err(DeliveryError::BranchCheckedOut { .. })), "{refused:?}");
    }

    #[test]
    fn only_plain_paths_are_mirrored() {
        assert!(is_plain_path("messages/T-2026-001/escalation-T-2026-001-5.json"));
        for wrong in ["a b", "a\nb", "../x", "a//b", "\"a\"", "é", "", "a/./b"] {
            assert!(!is_plain_path(wrong), "{wrong}");
        }
    }
}
