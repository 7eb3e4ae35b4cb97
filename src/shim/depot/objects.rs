//! The objects volume: one bare repository, filled by packs. Its refs name the commits that are complete in it.
//!
//! It outlives swarms, so git syncs what it stores. Used by `server.rs`, as root; no sandbox can write here.
//!
//! The depots of several swarms may share the volume. Git's own lock files do not say whether their holder still lives, and one that
//! was killed leaves them behind, where they would stop every later swarm. So a depot locks [`WRITER_LOCK`] while its git may make
//! lock files. The kernel releases that lock with its holder, in whatever container it ran: whoever has it knows that nobody holds
//! the lock files that are there, and removes them.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use super::super::children;
use super::super::git::{self, HardenedGit};
use super::super::layout::Layout;
use super::super::safe_fs;
use super::error::{failed, io_error};
use super::streams::RequestBody;
use crate::handoff::depot::{DepotError, DepotResponse, ObjectTip};

/// A pack of at most this many objects is unpacked, because many small packs slow down every lookup.
const MAX_UNPACKED_OBJECTS: u32 = 100;
/// The length of a pack's header: `PACK`, version, number of objects.
const PACK_HEADER_LEN: usize = 12;

/// The file in the volume that depots lock to write refs.
const WRITER_LOCK: &str = "writer";
/// How long another depot may write refs, which takes it milliseconds.
const WRITER_TIMEOUT: Duration = Duration::from_secs(30);
const WRITER_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Creates the repository if it does not exist, and lists the complete commits.
pub fn open_repo(layout: &Layout, format: &str) -> Result<DepotResponse, DepotError> {
    if !matches!(format, "sha1" | "sha256") {
        return Err(failed(format!("`{format}` is not an object format")));
    }
    let repo = layout.objects_repo();
    let git = HardenedGit::for_bare_repo(&repo);
    let _writer = lock_for_writing(layout)?;
    if !repo.join("HEAD").is_file() {
        let format = format!("--object-format={format}");
        git.run(&["init", "-q", "--bare", "--template=", "--initial-branch=none", &format])?;
    }
    let found = git.run(&["rev-parse", "--show-object-format"])?.text();
    if found != format {
        return Err(failed(format!("the objects volume has `{found}` objects, the repository `{format}`")));
    }
    let listed = git.run(&["for-each-ref", "--format=%(objectname) %(refname)"])?.text();
    let tip = |line: &str| {
        let (commit, name) = line.split_once(' ')?;
        Some(ObjectTip { name: name.to_owned(), commit: commit.parse().ok()? })
    };
    Ok(DepotResponse::Objects { tips: listed.lines().filter_map(tip).collect() })
}

/// Stores a pack, then records that the tips are complete. An empty body records the tips only.
pub fn store_pack(
    layout: &Layout,
    tips: &[ObjectTip],
    shallow: &str,
    body: &RequestBody,
) -> Result<DepotResponse, DepotError> {
    let git = HardenedGit::for_bare_repo(&layout.objects_repo());
    let mut header = Vec::new();
    while header.len() < PACK_HEADER_LEN {
        match body.next_chunk()? {
            Some(bytes) => header.extend(bytes),
            None => break,
        }
    }
    // First the edge of a shallow history: without it, git would look for the parents beyond.
    write_shallow(layout, shallow)?;
    if !header.is_empty() {
        let Some(count) = object_count(&header) else {
            return Err(failed("the body is not a pack"));
        };
        import_pack(&git, count, &header, body)?;
    }
    let commands: String = tips.iter().map(|tip| format!("update {} {}\n", tip.name, tip.commit)).collect();
    if !commands.is_empty() {
        let _writer = lock_for_writing(layout)?;
        git.run_with_stdin(&["update-ref", "--no-deref", "--stdin"], Some(commands.as_bytes()))?;
    }
    Ok(DepotResponse::Empty)
}

/// Waits until no other depot writes refs, and removes the lock files of those that died. `None` if the file system has no locks.
fn lock_for_writing(layout: &Layout) -> Result<Option<File>, DepotError> {
    let volume = layout.objects_volume();
    fs::create_dir_all(&volume).map_err(|error| io_error("create", &volume, &error))?;
    let path = volume.join(WRITER_LOCK);
    let opened = File::options().create(true).truncate(false).write(true).open(&path);
    let file = opened.map_err(|error| io_error("open", &path, &error))?;
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if begun.elapsed() < WRITER_TIMEOUT => thread::sleep(WRITER_RETRY_INTERVAL),
            Err(TryLockError::WouldBlock) => {
                return Err(failed(format!(
                    "another depot has kept `{}` locked for {} s: look with `docker ps --filter label=dev.longshore.role=depot` \
                     for one that is paused",
                    path.display(),
                    WRITER_TIMEOUT.as_secs()
                )));
            }
            Err(TryLockError::Error(_)) => return Ok(None),
        }
    }
    let repo = layout.objects_repo();
    remove_lock_files(&repo, false)
        .and_then(|()| remove_lock_files(&repo.join("refs"), true))
        .map_err(|error| io_error("remove the lock files of a dead depot from", &repo, &error))?;
    Ok(Some(file))
}

/// No ref's name ends in `.lock`.
fn remove_lock_files(dir: &Path, recursive: bool) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() && recursive {
            remove_lock_files(&path, true)?;
        } else if kind.is_file() && path.extension().is_some_and(|extension| extension == "lock") {
            safe_fs::missing_is_ok(fs::remove_file(&path))?;
        }
    }
    Ok(())
}

fn object_count(pack: &[u8]) -> Option<u32> {
    let header = pack.get(..PACK_HEADER_LEN)?;
    let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    (header.starts_with(b"PACK") && matches!(number(4), 2 | 3)).then(|| number(8))
}

fn import_pack(git: &HardenedGit, count: u32, header: &[u8], body: &RequestBody) -> Result<(), DepotError> {
    let args: &[&str] = if count <= MAX_UNPACKED_OBJECTS {
        &["unpack-objects", "-q"]
    } else {
        &["index-pack", "--stdin", "--fix-thin"]
    };
    let mut command = git.command(args);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let (mut child, _owned) =
        children::spawn_command(&mut command).map_err(|error| failed(format!("cannot run `git`: {error}")))?;
    let mut pipe = child.stdin.take().expect("standard input is piped");
    let stderr = children::drain(child.stderr.take().expect("standard error is piped"));
    let written = write_pack(&mut pipe, header, body);
    drop(pipe);
    let status = child.wait();
    let stderr = stderr.join().unwrap_or_default();
    // A body that broke off explains any error of git.
    written?;
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(git::error_from_stderr(args, &stderr).into()),
        Err(error) => Err(failed(format!("cannot wait for `git`: {error}"))),
    }
}

/// Forwards the body. If git stops reading, its exit explains why.
fn write_pack(pipe: &mut impl Write, header: &[u8], body: &RequestBody) -> Result<(), DepotError> {
    if pipe.write_all(header).is_err() {
        return Ok(());
    }
    while let Some(bytes) = body.next_chunk()? {
        if pipe.write_all(&bytes).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

fn write_shallow(layout: &Layout, shallow: &str) -> Result<(), DepotError> {
    let path = layout.objects_repo().join("shallow");
    if shallow.is_empty() {
        return safe_fs::missing_is_ok(fs::remove_file(&path)).map_err(|error| io_error("remove", &path, &error));
    }
    let temporary = path.with_extension("tmp");
    fs::write(&temporary, shallow)
        .and_then(|()| fs::rename(&temporary, &path))
        .map_err(|error| io_error("write", &path, &error))
}
