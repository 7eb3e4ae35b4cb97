//! A result bundle in: hostile until every object of it was checked.
//!
//! Called by `coordinator/` after the depot handed a bundle over. The objects go to a quarantine folder first, where git
//! checks their form (`index-pack --strict`: what `fsck` calls an error or a warning is refused, such as `.git` or `..` in a
//! tree) and that nothing is missing (`rev-list --objects`). Then the pack is moved into the repo, and the refs are made in
//! one transaction. On any failure the quarantine folder is removed, and neither object nor ref of the bundle stays.
//!
//! Must not: take a ref's name from the bundle. Only refs that the caller names are made, all below `refs/longshore/`.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::bundle::{BundleHeader, read_header};
use super::error::{BundleError, DeliveryError};
use super::git::unexpected_output;
use super::refs::check_longshore_ref;
use super::repo::Repo;
use crate::handoff::layout;
use crate::ids::{BranchName, CommitId, StoryId};

/// How long git may take to check a bundle.
const TIME_LIMIT: Duration = Duration::from_secs(15 * 60);
/// The memory that git may use to unpack one: a few kilobytes of pack can claim gigabytes.
const MEMORY_LIMIT: u64 = 2 * 1024 * 1024 * 1024;
/// The most commits that one bundle may bring.
const MAX_COMMITS: usize = 100_000;
/// The trailer by which a commit names the story that it belongs to.
pub(super) const STORY_TRAILER: &str = "Longshore-Story";

/// What a bundle must hold, and where it goes. Anything else in it is refused.
#[derive(Debug, Clone)]
pub struct ExpectedBundle {
    /// The assigned branch.
    pub branch: BranchName,
    /// Where it started.
    pub base: CommitId,
    /// Where it ends; none where it did not move: then the bundle must not have it.
    pub tip: Option<CommitId>,
    /// The host's ref for the tip, below `refs/longshore/`.
    pub result_ref: String,
    /// What failed stories left: the story, its commit, the host's ref for it. In the bundle it is
    /// [`layout::salvage_ref`].
    pub salvage: Vec<(StoryId, CommitId, String)>,
}

/// What came in: all of it verified, and all of it under refs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedResult {
    /// The branch's new commits, newest first; empty where it did not move.
    pub commits: Vec<CommitId>,
    /// The refs that were made.
    pub refs: Vec<String>,
}

/// How a tip relates to its base.
#[derive(Debug, Clone)]
pub(super) struct Lineage {
    /// Where it started.
    pub(super) base: CommitId,
    /// All commits from there to the tip.
    pub(super) commits: HashSet<CommitId>,
    /// The stories that their trailers name.
    pub(super) stories: HashSet<String>,
}

/// One ref wanted of a bundle.
struct ExpectedRef<'a> {
    bundle_ref: String,
    commit: &'a CommitId,
    host_ref: &'a str,
}

/// Commits that came in, with their parents and the stories that they name.
type CommitGraph = HashMap<CommitId, (Vec<CommitId>, Vec<String>)>;

impl Repo {
    /// Takes a result bundle in. The caller has limited its size.
    pub async fn import_bundle(
        &self,
        bundle: &Path,
        expected: &ExpectedBundle,
    ) -> Result<ImportedResult, DeliveryError> {
        let mut wanted = Vec::new();
        if let Some(tip) = &expected.tip {
            let in_bundle = format!("refs/heads/{}", expected.branch);
            wanted.push(ExpectedRef { bundle_ref: in_bundle, commit: tip, host_ref: &expected.result_ref });
        }
        for (story, commit, on_host) in &expected.salvage {
            wanted.push(ExpectedRef { bundle_ref: layout::salvage_ref(story), commit, host_ref: on_host });
        }
        let graph = self.import_refs(bundle, &wanted, Some(&expected.base), |graph| match &expected.tip {
            Some(tip) if !is_descendant(graph, tip, &expected.base) => {
                Err(BundleError::NotDescendedFromBase { tip: tip.clone(), base: expected.base.clone() })
            }
            _ => Ok(()),
        });
        let graph = graph.await?;
        let mut commits = Vec::new();
        if let Some(tip) = &expected.tip {
            let lineage;
            (commits, lineage) = trace_lineage(&graph, tip, &expected.base);
            self.lineages().lock().expect("nothing panics while it is locked").insert(tip.clone(), lineage);
        }
        Ok(ImportedResult { commits, refs: wanted.iter().map(|wanted| wanted.host_ref.to_owned()).collect() })
    }

    /// Takes in a bundle of one ref: what the depot saved from the work folder of a dead sandbox. It need not descend from
    /// anything, but nothing of it may be missing. The same again is no error.
    pub async fn import_salvage(
        &self,
        bundle: &Path,
        from_ref: &str,
        commit: &CommitId,
        to_ref: &str,
    ) -> Result<(), DeliveryError> {
        let wanted = [ExpectedRef { bundle_ref: from_ref.to_owned(), commit, host_ref: to_ref }];
        self.import_refs(bundle, &wanted, None, |_| Ok(())).await.map(drop)
    }

    /// The steps that both have in common. Without a `base`, what the repo's refs reach counts as complete.
    async fn import_refs(
        &self,
        bundle: &Path,
        wanted: &[ExpectedRef<'_>],
        base: Option<&CommitId>,
        check: impl FnOnce(&CommitGraph) -> Result<(), BundleError>,
    ) -> Result<CommitGraph, DeliveryError> {
        for wanted in wanted {
            check_longshore_ref(wanted.host_ref)?;
        }
        let (path, objects, format) =
            (bundle.to_owned(), self.objects_dir().to_owned(), self.object_format().to_owned());
        let opened = tokio::task::spawn_blocking(move || open_bundle(&path, &objects, &format));
        let (file, header, quarantine) = opened.await.expect("opening a bundle does not panic")?;
        check_expected_refs(&header, wanted)?;

        let pack = if header.object_count == 0 { None } else { Some(self.index_pack(file, &quarantine).await?) };
        let graph = self.walk_new_commits(&quarantine, &header, wanted, base).await?;
        if let Some(commit) = header.prerequisites.into_iter().find(|commit| graph.contains_key(commit)) {
            return Err(BundleError::ForeignPrerequisite { commit }.into());
        }
        let strange: Vec<&CommitId> = (wanted.iter().map(|wanted| wanted.commit))
            .filter(|commit| !graph.contains_key(*commit) && base != Some(*commit))
            .collect();
        // Without a base, what a ref of the repo's reaches is left out of the walk: an earlier import may have got so far.
        let had = match base {
            None if !strange.is_empty() => self.existing_commits(strange.iter().copied()).await?,
            _ => Vec::new(),
        };
        if let Some(commit) = strange.into_iter().find(|commit| !had.contains(commit)) {
            return Err(BundleError::NotACommit { tip: commit.clone() }.into());
        }
        check(&graph)?;

        let objects = self.objects_dir().to_owned();
        let moved = tokio::task::spawn_blocking(move || {
            pack.map(|name| quarantine.move_pack_into(&name, &objects)).transpose()
        });
        // Held until the refs are there: it keeps a `git repack -d` from dropping the pack in between.
        let _keep = moved.await.expect("moving a pack does not panic")?;
        let refs: Vec<_> = wanted.iter().map(|wanted| (wanted.host_ref, wanted.commit)).collect();
        self.create_refs(&refs).await?;
        Ok(graph)
    }

    /// Has git check the objects' form and index them in the quarantine folder. Answers with the pack's name.
    async fn index_pack(&self, pack: File, quarantine: &Quarantine) -> Result<String, DeliveryError> {
        let operation = "check the result's objects";
        // Large files are checked piece by piece, not in memory.
        let args =
            ["-c", "core.bigFileThreshold=16m", "index-pack", "--stdin", "--fix-thin", "--strict", "--threads=1"];
        let call = quarantine.confine(self.git().new_command(operation, args), self.objects_dir());
        let call = call.input_file(pack).time_limit(TIME_LIMIT).memory_limit(MEMORY_LIMIT);
        let line = call
            .run()
            .await
            .map_err(|error| as_bundle_error(error, |detail| BundleError::InvalidObjects { detail }))?
            .trimmed_stdout();
        let name = line.strip_prefix("pack\t").unwrap_or_default();
        let valid = matches!(name.len(), 40 | 64) && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        if valid { Ok(name.to_owned()) } else { Err(unexpected_output(operation, &line)) }
    }

    /// Walks all that is new, down to the last blob, and answers with the commits. Prerequisites are walked too: one that
    /// is not in the base's history shows up among the new commits.
    async fn walk_new_commits(
        &self,
        quarantine: &Quarantine,
        header: &BundleHeader,
        wanted: &[ExpectedRef<'_>],
        base: Option<&CommitId>,
    ) -> Result<CommitGraph, DeliveryError> {
        let operation = "check that the result is complete";
        let format = format!("--format=: %H|%P|%(trailers:key={STORY_TRAILER},valueonly,unfold,separator=%x2C)");
        let args = ["rev-list", "--objects", "--no-object-names", "--no-commit-header", &format, "--stdin"];
        let mut revisions = String::new();
        for commit in wanted.iter().map(|wanted| wanted.commit).chain(&header.prerequisites) {
            revisions.push_str(&format!("{commit}\n"));
        }
        let mut call = self.git().new_command(operation, args);
        match base {
            Some(base) => revisions.push_str(&format!("^{base}\n")),
            None => call = call.args(["--not", "--all", "--not"]),
        }
        let call = quarantine.confine(call, self.objects_dir()).input(revisions).time_limit(TIME_LIMIT);
        let mut commits = CommitCollector::default();
        let ended = call.run_streaming(|chunk| commits.push_output(chunk)).await;
        let ended = ended.map_err(|error| match (&error, base) {
            (DeliveryError::CommandFailed { tail, .. }, Some(base)) if tail.contains(&format!("bad object {base}")) => {
                DeliveryError::MissingCommit { commit: base.clone() }
            }
            _ => as_bundle_error(error, |detail| BundleError::Incomplete { detail }),
        })?;
        match ended {
            Some(_) => Ok(commits.graph),
            None => Err(BundleError::TooManyCommits { limit: MAX_COMMITS }.into()),
        }
    }
}

/// What git refuses is the bundle's fault; a full disk, missing permission or a time limit is not.
fn as_bundle_error(error: DeliveryError, fault: impl FnOnce(String) -> BundleError) -> DeliveryError {
    match error {
        DeliveryError::CommandFailed { code: Some(_), tail, .. } => fault(tail).into(),
        _ => error,
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

/// Each wanted ref once, at its commit, and no other.
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
                return Err(BundleError::UnexpectedRef {
                    name: super::git::sanitize(name).chars().take(200).collect(),
                });
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
    /// Takes a piece of output; `false` when there are too many commits.
    fn push_output(&mut self, chunk: &[u8]) -> bool {
        self.buffer.extend_from_slice(chunk);
        let mut from = 0;
        while let Some(length) = self.buffer[from..].iter().position(|&byte| byte == b'\n') {
            if let Some(line) = self.buffer[from..from + length].strip_prefix(b": ") {
                let line = String::from_utf8_lossy(line);
                let mut parts = line.splitn(3, '|');
                let mut part = || parts.next().unwrap_or_default();
                let (id, parents, stories) = (part(), part(), part());
                if let Ok(id) = id.parse() {
                    let parents = parents.split(' ').filter_map(|parent| parent.parse().ok()).collect();
                    let stories = stories.split(',').map(|story| story.trim().to_owned());
                    self.graph.insert(id, (parents, stories.filter(|story| !story.is_empty()).collect()));
                }
            }
            from += length + 1;
        }
        self.buffer.drain(..from);
        self.graph.len() <= MAX_COMMITS
    }
}

/// Whether `base` is an ancestor of `tip`. `graph` has all commits that `tip` reaches and `base` does not: if there is a way
/// from one to the other, its last step is in there.
fn is_descendant(graph: &CommitGraph, tip: &CommitId, base: &CommitId) -> bool {
    let mut seen = HashSet::new();
    let mut open = vec![tip];
    while let Some(commit) = open.pop() {
        if commit == base {
            return true;
        }
        if let Some((parents, _)) = graph.get(commit)
            && seen.insert(commit)
        {
            open.extend(parents);
        }
    }
    false
}

/// The commits between base and tip, newest first, and what they say of themselves.
fn trace_lineage(graph: &CommitGraph, tip: &CommitId, base: &CommitId) -> (Vec<CommitId>, Lineage) {
    let mut lineage = Lineage { base: base.clone(), commits: HashSet::new(), stories: HashSet::new() };
    let mut commits = Vec::new();
    let mut open = std::collections::VecDeque::from([tip]);
    while let Some(commit) = open.pop_front() {
        if let Some((parents, stories)) = graph.get(commit)
            && lineage.commits.insert(commit.clone())
        {
            commits.push(commit.clone());
            lineage.stories.extend(stories.iter().cloned());
            open.extend(parents);
        }
    }
    (commits, lineage)
}

/// A folder of objects that are not yet the repo's. Removed when dropped. Its name is one that `git gc` knows how to remove
/// after a crash, and it is on the same file system as the repo's objects.
struct Quarantine {
    path: PathBuf,
}

impl Quarantine {
    fn new(objects: &Path) -> Result<Self, DeliveryError> {
        let path = objects.join(format!("tmp_objdir-longshore-{}", uuid::Uuid::new_v4().simple()));
        let quarantine = Self { path };
        let folder = quarantine.path.join("pack");
        fs::create_dir_all(&folder)
            .map_err(|source| DeliveryError::from_io("make a quarantine folder", folder, source))?;
        Ok(quarantine)
    }

    /// Has a command write its objects here and read the repo's beside them; nothing is fetched.
    fn confine<'g>(&self, call: super::git::GitCommand<'g>, objects: &Path) -> super::git::GitCommand<'g> {
        call.env("GIT_OBJECT_DIRECTORY", &self.path)
            .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", quote_path(objects))
            .env("GIT_NO_LAZY_FETCH", "1")
    }

    /// Moves the pack into the repo.
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
            // The same pack came in before.
            return Ok(keep);
        }
        fs::write(&keep.0, "longshore\n").map_err(failed(&keep.0))?;
        // The index last: a pack is seen when its index is.
        for extension in ["pack", "idx"] {
            let file = format!("pack-{name}.{extension}");
            fs::rename(from.join(&file), to.join(&file)).map_err(failed(&to.join(&file)))?;
        }
        // The files were synced by git; now their names.
        File::open(&to).and_then(|folder| folder.sync_all()).map_err(failed(&to))?;
        Ok(keep)
    }
}

impl Drop for Quarantine {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "a quarantine folder could not be removed");
        }
    }
}

/// A `.keep` file beside a pack; removed when dropped.
struct KeepFile(PathBuf);

impl Drop for KeepFile {
    fn drop(&mut self) {
        // Not there if the pack was there before; left behind, it only keeps the pack from being repacked.
        let _ = fs::remove_file(&self.0);
    }
}

/// A path as an entry of a list that is separated by colons: quoted, as git reads it.
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
