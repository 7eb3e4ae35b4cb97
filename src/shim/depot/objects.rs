//! The objects volume: one bare repository, filled by packs, whose refs say which commits are complete in it.
//!
//! It lives on between swarms, so what is said to be stored is on the disk: git syncs here. Used by `depot/mod.rs`, as root;
//! no sandbox can write here. Must not: run several inits at once (a lock sees to it).

use std::fs;
use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::super::children;
use super::super::git::{self, HardenedGit};
use super::super::layout::Layout;
use super::{RequestBody, depot_error, io_error};
use crate::handoff::depot::{DepotError, DepotErrorKind, DepotResponse, ObjectTip};

/// A pack of at most this many objects is unpacked: many small packs would make every lookup slow.
const MAX_UNPACKED_OBJECTS: u32 = 100;
/// Bytes of a pack before its objects: `PACK`, version, number of objects.
const PACK_HEADER_LEN: usize = 12;

static INIT_LOCK: Mutex<()> = Mutex::new(());

/// Makes the repository if it is not there, and lists what is complete in it.
pub fn open_repo(layout: &Layout, format: &str) -> Result<DepotResponse, DepotError> {
    if !matches!(format, "sha1" | "sha256") {
        return Err(depot_error(DepotErrorKind::Failed, format!("`{format}` is no object format")));
    }
    let _one = INIT_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let repo = layout.objects_repo();
    let git = HardenedGit::for_bare_repo(&repo);
    if !repo.join("HEAD").is_file() {
        let volume = layout.objects_volume();
        fs::create_dir_all(&volume).map_err(|error| io_error("make", &volume, &error))?;
        let format = format!("--object-format={format}");
        git.run(&["init", "-q", "--bare", "--template=", "--initial-branch=none", &format])?;
    }
    let found = git.run(&["rev-parse", "--show-object-format"])?.text();
    if found != format {
        let message = format!("the objects volume holds `{found}` objects, and the repository has `{format}`");
        return Err(depot_error(DepotErrorKind::Failed, message));
    }
    let listed = git.run(&["for-each-ref", "--format=%(objectname) %(refname)"])?.text();
    let tip = |line: &str| {
        let (commit, name) = line.split_once(' ')?;
        Some(ObjectTip { name: name.to_owned(), commit: commit.parse().ok()? })
    };
    Ok(DepotResponse::Objects { tips: listed.lines().filter_map(tip).collect() })
}

/// Stores a pack, then says that the tips are complete. An empty body is a request for the tips alone.
pub fn store_pack(
    layout: &Layout,
    tips: &[ObjectTip],
    shallow: &str,
    body: &RequestBody,
) -> Result<DepotResponse, DepotError> {
    let git = HardenedGit::for_bare_repo(&layout.objects_repo());
    let mut begun = Vec::new();
    while begun.len() < PACK_HEADER_LEN {
        match body.next_chunk()? {
            Some(bytes) => begun.extend(bytes),
            None => break,
        }
    }
    // The history's edge first: without it, git would miss the parents beyond.
    write_shallow(layout, shallow)?;
    if !begun.is_empty() {
        let Some(count) = object_count(&begun) else {
            return Err(depot_error(DepotErrorKind::Failed, "the body is not a pack"));
        };
        import_pack(&git, count, &begun, body)?;
    }
    let orders: String = tips.iter().map(|tip| format!("update {} {}\n", tip.name, tip.commit)).collect();
    if !orders.is_empty() {
        git.run_with_stdin(&["update-ref", "--no-deref", "--stdin"], Some(orders.as_bytes()))?;
    }
    Ok(DepotResponse::Empty)
}

fn object_count(pack: &[u8]) -> Option<u32> {
    let header = pack.get(..PACK_HEADER_LEN)?;
    let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    (header.starts_with(b"PACK") && matches!(number(4), 2 | 3)).then(|| number(8))
}

fn import_pack(git: &HardenedGit, count: u32, begun: &[u8], body: &RequestBody) -> Result<(), DepotError> {
    let args: &[&str] = if count <= MAX_UNPACKED_OBJECTS {
        &["unpack-objects", "-q"]
    } else {
        &["index-pack", "--stdin", "--fix-thin"]
    };
    let mut command = git.command(args);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let (mut child, _owned) = children::spawn(|| command.spawn(), |child| Some(child.id()))
        .map_err(|error| depot_error(DepotErrorKind::Failed, format!("cannot run `git`: {error}")))?;
    let mut pipe = child.stdin.take().expect("standard input is piped");
    let mut said = child.stderr.take().expect("standard error is piped");
    let listener = thread::spawn(move || {
        let mut text = Vec::new();
        let _ = said.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let fed = write_pack(&mut pipe, begun, body);
    drop(pipe);
    let status = child.wait();
    let stderr = listener.join().unwrap_or_default();
    // A body that broke off explains whatever git says about it.
    fed?;
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(git::error_from_stderr(args, &stderr).into()),
        Err(error) => Err(depot_error(DepotErrorKind::Failed, format!("cannot wait for `git`: {error}"))),
    }
}

/// Passes the body on. That git stops reading is not an error here: its exit says why.
fn write_pack(pipe: &mut impl Write, begun: &[u8], body: &RequestBody) -> Result<(), DepotError> {
    if pipe.write_all(begun).is_err() {
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
        return match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io_error("remove", &path, &error)),
            _ => Ok(()),
        };
    }
    let temporary = path.with_extension("tmp");
    fs::write(&temporary, shallow)
        .and_then(|()| fs::rename(&temporary, &path))
        .map_err(|error| io_error("write", &path, &error))
}
