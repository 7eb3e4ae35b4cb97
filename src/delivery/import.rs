//! Imports a result bundle, which is hostile until git has checked every object of it.
//!
//! Called by `coordinator/` after the depot handed a bundle over. The objects go to a quarantine directory first, where git checks
//! their form (`index-pack --strict` refuses what `fsck` reports as an error or a warning, such as `.git` or `..` in a tree)
//! and that none is missing (`rev-list --objects`). Then the pack moves into the repository and one transaction creates the
//! refs. After a failure the quarantine directory is removed, and neither an object nor a ref of the bundle stays.
//!
//! Must not: take a ref name from the bundle. The caller names the refs to create, all below `refs/longshore/`.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::bundle::{BundleHeader, read_header};
use super::error::{BundleError, DeliveryError};
use super::git_runner::{GitCommand, sanitize, unexpected_output};
use super::refs::check_longshore_ref;
use super::repo::Repo;
use crate::handoff::layout;
use crate::ids::{BranchName, CommitId, StoryId};

/// The time limit for checking a bundle.
const TIME_LIMIT: Duration = Duration::from_secs(15 * 60);
/// The memory limit for unpacking a bundle: a pack of a few kilobytes can claim gigabytes.
const MEMORY_LIMIT: u64 = 2 * 1024 * 1024 * 1024;
/// The most new commits in one bundle.
const MAX_COMMITS: usize = 100_000;
/// The refs that a bundle must hold, and where they go. Anything else in it is refused.
#[derive(Debug, Clone)]
pub(crate) struct ExpectedBundle {
    /// The assigned branch.
    pub branch: BranchName,
    /// The commit where the branch started.
    pub base: CommitId,
    /// The commit of the integration branch that the work merges, which is on the host too.
    pub merged: Option<CommitId>,
    /// The branch's commit, or `None` if the branch did not move: then the bundle must not have it.
    pub tip: Option<CommitId>,
    /// The host's ref for the tip, below `refs/longshore/`.
    pub result_ref: String,
    /// The leftovers of failed stories: the story, its commit, and the host's ref for it. In the bundle the ref is
    /// [`layout::salvage_ref`].
    pub salvage: Vec<(StoryId, CommitId, String)>,
}

/// A ref that the bundle must hold.
struct ExpectedRef<'a> {
    bundle_ref: String,
    commit: &'a CommitId,
    host_ref: &'a str,
}

/// New commits with their parents.
type CommitGraph = HashMap<CommitId, Vec<CommitId>>;

impl Repo {
    /// Imports a result bundle. The caller has limited its size. Importing the same bundle again is not an error.
    pub(crate) async fn import_bundle(&self, bundle: &Path, expected: &ExpectedBundle) -> Result<(), DeliveryError> {
        let mut wanted = Vec::new();
        if let Some(tip) = &expected.tip {
            let in_bundle = format!("refs/heads/{}", expected.branch);
            wanted.push(ExpectedRef { bundle_ref: in_bundle, commit: tip, host_ref: &expected.result_ref });
        }
        for (story, commit, on_host) in &expected.salvage {
            wanted.push(ExpectedRef { bundle_ref: layout::salvage_ref(story), commit, host_ref: on_host });
        }
        let known: Vec<&CommitId> = [&expected.base].into_iter().chain(&expected.merged).collect();
        let check = |graph: &CommitGraph| {
            let Some(tip) = &expected.tip else { return Ok(()) };
            match known.iter().find(|base| !is_descendant(graph, tip, base)) {
                Some(base) => Err(BundleError::NotDescendedFromBase { tip: tip.clone(), base: (*base).clone() }),
                None => Ok(()),
            }
        };
        self.import_refs(bundle, &wanted, &known, check).await
    }

    /// Imports a bundle of one ref, which the depot salvaged from the work directory of a dead sandbox. It need not descend from
    /// anything, but none of its objects may be missing. Importing the same bundle again is not an error.
    pub(crate) async fn import_salvage(
        &self,
        bundle: &Path,
        from_ref: &str,
        commit: &CommitId,
        to_ref: &str,
    ) -> Result<(), DeliveryError> {
        let wanted = [ExpectedRef { bundle_ref: from_ref.to_owned(), commit, host_ref: to_ref }];
        self.import_refs(bundle, &wanted, &[], |_| Ok(())).await
    }

    /// Verifies the bundle, moves its pack into the repository and creates the refs. `known` are commits whose history the
    /// repository has. Without any, the history of its refs counts as complete.
    async fn import_refs(
        &self,
        bundle: &Path,
        wanted: &[ExpectedRef<'_>],
        known: &[&CommitId],
        check: impl FnOnce(&CommitGraph) -> Result<(), BundleError>,
    ) -> Result<(), DeliveryError> {
        for wanted in wanted {
            check_longshore_ref(wanted.host_ref)?;
        }
        let (path, objects, format) =
            (bundle.to_owned(), self.objects_dir().to_owned(), self.object_format().to_owned());
        let opened = tokio::task::spawn_blocking(move || open_bundle(&path, &objects, &format));
        let (file, header, quarantine) = opened.await.expect("opening a bundle does not panic")?;
        check_expected_refs(&header, wanted)?;

        let pack = if header.object_count == 0 { None } else { Some(self.index_pack(file, &quarantine).await?) };
        let graph = self.walk_new_commits(&quarantine, &header, wanted, known).await?;
        if let Some(commit) = header.prerequisites.into_iter().find(|commit| graph.contains_key(commit)) {
            return Err(BundleError::ForeignPrerequisite { commit }.into());
        }
        let unseen: Vec<&CommitId> = (wanted.iter().map(|wanted| wanted.commit))
            .filter(|commit| !graph.contains_key(*commit) && !known.contains(commit))
            .collect();
        // Without known commits, the walk skips what the repository's refs reach: an earlier import may have come this far.
        let existing = match known {
            [] if !unseen.is_empty() => self.existing_commits(unseen.iter().copied()).await?,
            _ => Vec::new(),
        };
        if let Some(commit) = unseen.into_iter().find(|commit| !existing.contains(commit)) {
            return Err(BundleError::NotACommit { tip: commit.clone() }.into());
        }
        check(&graph)?;

        let objects = self.objects_dir().to_owned();
        let moved = tokio::task::spawn_blocking(move || {
            pack.map(|name| quarantine.move_pack_into(&name, &objects)).transpose()
        });
        // Held until the refs exist: it keeps a `git repack -d` from dropping the pack in between.
        let _keep = moved.await.expect("moving a pack does not panic")?;
        let refs: Vec<_> = wanted.iter().map(|wanted| (wanted.host_ref, wanted.commit)).collect();
        self.create_refs(&refs).await
    }

    /// Checks the form of the objects and indexes them in the quarantine directory. Returns the pack's name.
    async fn index_pack(&self, pack: File, quarantine: &Quarantine) -> Result<String, DeliveryError> {
        let operation = "check the result's objects";
        // Large files are checked in chunks, not in memory.
        let args =
            ["-c", "core.bigFileThreshold=16m", "index-pack", "--stdin", "--fix-thin", "--strict", "--threads=1"];
        let command = quarantine.confine(self.git(operation, args), self.objects_dir());
        let command = command.input_file(pack).time_limit(TIME_LIMIT).memory_limit(MEMORY_LIMIT);
        let output = command.run().await;
        let refused = |error| match error {
            // Of this process, only the bundle decides how much it needs.
            DeliveryError::OutOfMemory { is_proven: true, .. } => {
                BundleError::TooMuchMemory { limit: MEMORY_LIMIT }.into()
            }
            error => quarantine.blame(error, |detail| BundleError::InvalidObjects { detail }),
        };
        let line = output.map_err(refused)?.trimmed_stdout();
        let name = line.strip_prefix("pack\t").unwrap_or_default();
        let valid = matches!(name.len(), 40 | 64) && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        if valid { Ok(name.to_owned()) } else { Err(unexpected_output(operation, &line)) }
    }

    /// Walks all new objects and returns the commits among them. A prerequisite that is not in the history of the known commits is
    /// one of them.
    async fn walk_new_commits(
        &self,
        quarantine: &Quarantine,
        header: &BundleHeader,
        wanted: &[ExpectedRef<'_>],
        known: &[&CommitId],
    ) -> Result<CommitGraph, DeliveryError> {
        let operation = "check that the result is complete";
        let args = ["rev-list", "--objects", "--no-object-names", "--no-commit-header", "--format=: %H %P", "--stdin"];
        let mut revisions = String::new();
        for commit in wanted.iter().map(|wanted| wanted.commit).chain(&header.prerequisites) {
            revisions.push_str(&format!("{commit}\n"));
        }
        let mut command = self.git(operation, args);
        for commit in known {
            revisions.push_str(&format!("^{commit}\n"));
        }
        if known.is_empty() {
            command = command.args(["--not", "--all", "--not"]);
        }
        let command = quarantine.confine(command, self.objects_dir()).input(revisions).time_limit(TIME_LIMIT);
        let mut commits = CommitCollector::default();
        let ended = command.run_streaming(|chunk| commits.push_output(chunk)).await;
        let ended = ended.map_err(|error| {
            let is_missing = |commit: &&&CommitId| {
                matches!(&error, DeliveryError::CommandFailed { tail, .. } if tail.contains(&format!("bad object {commit}")))
            };
            match known.iter().find(is_missing) {
                Some(commit) => DeliveryError::MissingCommit { commit: (*commit).clone() },
                None => quarantine.blame(error, |detail| BundleError::Incomplete { detail }),
            }
        })?;
        match ended {
            Some(_) => Ok(commits.graph),
            None => Err(BundleError::TooManyCommits { limit: MAX_COMMITS }.into()),
        }
    }
}

fn open_bundle(bundle: &Path, objects: &Path, format: &str) -> Result<(File, BundleHeader, Quarantine), DeliveryError> {
    let operation = "read the result bundle";
    let failed = |source| DeliveryError::from_io(operation, bundle, source);
    let mut file = File::open(bundle).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    let header = read_header(&file, size, format)?;
    file.seek(SeekFrom::Start(header.pack_offset)).map_err(failed)?;
    Ok((file, header, Quarantine::new(objects)?))
}

/// Requires each wanted ref once, at its commit, and no other ref.
fn check_expected_refs(header: &BundleHeader, wanted: &[ExpectedRef<'_>]) -> Result<(), BundleError> {
    let mut seen = HashSet::new();
    for (name, found) in &header.refs {
        match wanted.iter().find(|wanted| wanted.bundle_ref == *name) {
            Some(wanted) if wanted.commit == found && seen.insert(name) => {}
            Some(wanted) if wanted.commit != found => {
                let expected = wanted.commit.clone();
                return Err(BundleError::WrongTip { name: name.clone(), expected, found: found.clone() });
            }
            _ => {
                return Err(BundleError::UnexpectedRef { name: sanitize(name).chars().take(200).collect() });
            }
        }
    }
    match wanted.iter().find(|wanted| !seen.contains(&wanted.bundle_ref)) {
        Some(wanted) => Err(BundleError::MissingRef { name: wanted.bundle_ref.clone() }),
        None => Ok(()),
    }
}

/// Collects commits from the output of `rev-list`, whose other lines are object ids.
#[derive(Default)]
struct CommitCollector {
    graph: CommitGraph,
    buffer: Vec<u8>,
}

impl CommitCollector {
    /// Parses a chunk of output. Returns `false` when there are too many commits.
    fn push_output(&mut self, chunk: &[u8]) -> bool {
        self.buffer.extend_from_slice(chunk);
        let mut from = 0;
        while let Some(length) = self.buffer[from..].iter().position(|&byte| byte == b'\n') {
            if let Some(line) = self.buffer[from..from + length].strip_prefix(b": ") {
                let line = String::from_utf8_lossy(line);
                let mut ids = line.split(' ').filter_map(|id| id.parse().ok());
                if let Some(commit) = ids.next() {
                    self.graph.insert(commit, ids.collect());
                }
            }
            from += length + 1;
        }
        self.buffer.drain(..from);
        self.graph.len() <= MAX_COMMITS
    }
}

/// Whether `base` is an ancestor of `tip`. `graph` has all commits that `tip` reaches and the known ones, `base` among them, do not:
/// with one known commit, the last step of any path between them is in it. Paths through another known commit are not found.
fn is_descendant(graph: &CommitGraph, tip: &CommitId, base: &CommitId) -> bool {
    let mut seen = HashSet::new();
    let mut open = vec![tip];
    while let Some(commit) = open.pop() {
        if commit == base {
            return true;
        }
        if let Some(parents) = graph.get(commit)
            && seen.insert(commit)
        {
            open.extend(parents);
        }
    }
    false
}

/// A directory of objects that do not belong to the repository yet. Removed when dropped. `git gc` removes directories of this
/// name after a crash. It is on the same file system as the repository's objects.
struct Quarantine {
    path: PathBuf,
}

impl Quarantine {
    fn new(objects: &Path) -> Result<Self, DeliveryError> {
        let path = objects.join(format!("tmp_objdir-longshore-{}", uuid::Uuid::new_v4().simple()));
        let quarantine = Self { path };
        let dir = quarantine.path.join("pack");
        fs::create_dir_all(&dir)
            .map_err(|source| DeliveryError::from_io("create a quarantine directory", dir, source))?;
        Ok(quarantine)
    }

    /// Makes a command write objects here and read those of the repository too, without fetching any.
    fn confine<'g>(&self, command: GitCommand<'g>, objects: &Path) -> GitCommand<'g> {
        command
            .env("GIT_OBJECT_DIRECTORY", &self.path)
            .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", quote_path(objects))
            .env("GIT_NO_LAZY_FETCH", "1")
    }

    /// A refusal by git is the fault of the bundle; a full disk, a missing permission or a time limit is not, nor is a `git prune`
    /// that took this directory for one that a dead process left.
    fn blame(&self, error: DeliveryError, fault: impl FnOnce(String) -> BundleError) -> DeliveryError {
        match error {
            DeliveryError::CommandFailed { .. } if !self.path.join("pack").is_dir() => {
                DeliveryError::ObjectsVanished { source: Box::new(error) }
            }
            DeliveryError::CommandFailed { code: Some(_), tail, .. } => fault(tail).into(),
            _ => error,
        }
    }

    fn move_pack_into(self, name: &str, objects: &Path) -> Result<KeepFile, DeliveryError> {
        let operation = "move the result's objects into the repository";
        let (from, to) = (self.path.join("pack"), objects.join("pack"));
        let keep = KeepFile(to.join(format!("pack-{name}.keep")));
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| DeliveryError::from_io(operation, path, source)
        };
        fs::create_dir_all(&to).map_err(failed(&to))?;
        if to.join(format!("pack-{name}.idx")).exists() {
            // The same pack was imported before.
            return Ok(keep);
        }
        fs::write(&keep.0, "longshore\n").map_err(failed(&keep.0))?;
        // The index last: git sees a pack when its index exists.
        for extension in ["pack", "idx"] {
            let file = format!("pack-{name}.{extension}");
            fs::rename(from.join(&file), to.join(&file)).map_err(failed(&to.join(&file)))?;
        }
        // Git has synced the files; this syncs their names.
        File::open(&to).and_then(|dir| dir.sync_all()).map_err(failed(&to))?;
        Ok(keep)
    }
}

impl Drop for Quarantine {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove a quarantine directory");
        }
    }
}

/// A `.keep` file beside a pack; removed when dropped.
struct KeepFile(PathBuf);

impl Drop for KeepFile {
    fn drop(&mut self) {
        // Missing if the pack existed before. A leftover only keeps the pack from being repacked.
        let _ = fs::remove_file(&self.0);
    }
}

/// Quotes a path as an entry of a colon-separated list, as git reads it.
fn quote_path(path: &Path) -> OsString {
    let mut entry = vec![b'"'];
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'"' | b'\\' => entry.extend([b'\\', byte]),
            b'\n' => entry.extend(*b"\\n"),
            _ => entry.push(byte),
        }
    }
    entry.push(b'"');
    OsString::from_vec(entry)
}

#[cfg(test)]
mod tests;
