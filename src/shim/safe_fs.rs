//! Files in a folder that an agent could write: read without waiting for a FIFO's writer, written in the place of whatever
//! is there; and special files (FIFOs, sockets, devices) found before git opens them.
//!
//! Used wherever the shim touches the clone, `run` and `out` after an agent ran. Must not: follow a link to write, or open
//! what is not a regular file.

use std::fs::{self, File, FileType, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::clone_dir::remove_dir;

/// Files of a work tree that git reads while it looks at others.
const GIT_RULE_FILES: &[&str] = &[".gitignore", ".gitattributes", ".gitmodules", ".mailmap"];
/// Folders of a git folder in which git opens files; in the git folder itself it opens files too.
const GIT_READ_DIRS: &[&str] = &["refs", "objects", "info", "logs", "worktrees"];

/// Opens a regular file for reading; a link is not followed, and nothing blocks.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
    }
}

/// Reads at most `limit` bytes of a regular file as text.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Removes whatever has this name. That nothing has it is fine.
pub fn remove_any(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => remove_dir(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Writes a new file in the place of whatever is there.
pub fn write_replacing(path: &Path, bytes: &[u8]) -> io::Result<()> {
    remove_any(path)?;
    // `O_EXCL` follows no link either.
    OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?.write_all(bytes)
}

/// Gives the owner all rights on a folder. A link, or what is no folder, stays as it is.
pub fn make_owner_accessible(folder: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(folder)?;
    let mode = meta.permissions().mode() & 0o7777;
    if !meta.is_dir() || mode & 0o700 == 0o700 {
        return Ok(());
    }
    fs::set_permissions(folder, Permissions::from_mode(mode | 0o700))
}

/// Makes sure that there is a folder of this name, and that it can be written to.
pub fn ensure_dir(folder: &Path) -> io::Result<()> {
    if let Some(parent) = folder.parent() {
        // Where it is not ours, what follows says so.
        let _ = make_owner_accessible(parent);
    }
    match fs::symlink_metadata(folder) {
        Ok(meta) if meta.is_dir() => return make_owner_accessible(folder),
        Ok(_) => fs::remove_file(folder)?,
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Err(_) => {}
    }
    fs::DirBuilder::new().mode(0o700).create(folder)
}

/// Whether it is neither a file nor a folder nor a link.
pub fn is_special_file(kind: FileType) -> bool {
    kind.is_fifo() || kind.is_socket() || kind.is_block_device() || kind.is_char_device()
}

/// The kind of what git gets to see when it opens this: of what a link names.
fn resolved_file_type(entry: &fs::DirEntry) -> Option<FileType> {
    let kind = entry.file_type().ok()?;
    if kind.is_symlink() { fs::metadata(entry.path()).ok().map(|meta| meta.file_type()) } else { Some(kind) }
}

/// Special files in a git folder that git may open, and folders there that are links.
pub fn find_special_in_git_dir(git_dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![git_dir.to_owned()];
    folders.extend(GIT_READ_DIRS.iter().map(|name| git_dir.join(name)));
    while let Some(folder) = folders.pop() {
        if folder != *git_dir && !fs::symlink_metadata(&folder).is_ok_and(|meta| meta.is_dir()) {
            continue;
        }
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let Some(kind) = resolved_file_type(&entry) else { continue };
            let below = folder != *git_dir;
            let link = || entry.file_type().is_ok_and(|kind| kind.is_symlink());
            let opened = below || GIT_READ_DIRS.iter().any(|name| entry.file_name() == *name);
            if is_special_file(kind) || (kind.is_dir() && opened && link()) {
                found.push(entry.path());
            } else if kind.is_dir() && below {
                folders.push(entry.path());
            }
        }
    }
    found
}

/// What a walk through a work tree met.
#[derive(Debug, Default)]
pub struct WorkTreeScan {
    /// Special files where git reads its rules, and in the git folders of repositories inside.
    pub special: Vec<PathBuf>,
    /// The `.gitattributes` files.
    pub attributes: Vec<PathBuf>,
}

/// Walks through a work tree, without its own git folder.
pub fn scan_work_tree(repo: &Path) -> WorkTreeScan {
    let mut walked = WorkTreeScan::default();
    // Each with whether it is a git folder, or below one.
    let mut folders = vec![(repo.to_owned(), false)];
    while let Some((folder, git)) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Ok(kind) = entry.file_type() else { continue };
            let is_git = name == ".git";
            if is_git && folder == *repo {
                continue;
            }
            if kind.is_dir() {
                folders.push((entry.path(), git || is_git));
                continue;
            }
            let rule = GIT_RULE_FILES.iter().any(|rule| name == *rule);
            if (git || is_git || rule) && resolved_file_type(&entry).is_some_and(is_special_file) {
                walked.special.push(entry.path());
            } else if name == ".gitattributes" {
                walked.attributes.push(entry.path());
            }
        }
    }
    walked
}
