//! Files in a directory that an agent could write to: opening never follows a link or waits for a FIFO's writer, and writing
//! replaces whatever is there.
//!
//! Used wherever the shim touches the clone and `run` after an agent ran, for its results, and by the depot.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};

/// Opens a regular file for reading. Anything else fails with [`io::ErrorKind::InvalidInput`].
pub fn open_regular(path: &Path) -> io::Result<File> {
    open_regular_at(CWD, path)
}

/// [`open_regular`] relative to an open directory.
pub fn open_regular_at(dir: impl AsFd, name: impl rustix::path::Arg) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(dir, name, flags, Mode::empty())?);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }
}

/// Opens a directory. A link fails.
pub fn open_dir(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

/// Reads at most `limit` bytes of a regular file as text.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The result of a removal for which a missing file is no error.
pub fn missing_is_ok(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Removes a file of any type, or a directory with its content. A missing one is no error.
pub fn remove_any(path: &Path) -> io::Result<()> {
    missing_is_ok(fs::symlink_metadata(path).and_then(|meta| match meta.is_dir() {
        true => remove_dir(path),
        false => fs::remove_file(path),
    }))
}

/// Removes a directory whose subdirectories may lack the owner's permissions.
pub fn remove_dir(path: &Path) -> io::Result<()> {
    if fs::remove_dir_all(path).is_ok() {
        return Ok(());
    }
    let mut dirs = vec![path.to_owned()];
    while let Some(dir) = dirs.pop() {
        let _ = fs::set_permissions(&dir, Permissions::from_mode(0o700));
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        let subdirs = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        dirs.extend(subdirs.map(|entry| entry.path()));
    }
    fs::remove_dir_all(path)
}

/// Creates a file, replacing whatever is there.
pub fn create_replacing(path: &Path) -> io::Result<File> {
    remove_any(path)?;
    // `O_EXCL` follows no link either.
    OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)
}

/// Writes a new file, replacing whatever is there.
pub fn write_replacing(path: &Path, bytes: &[u8]) -> io::Result<()> {
    create_replacing(path)?.write_all(bytes)
}

/// Gives the owner all permissions on a directory. A link or another file stays unchanged.
pub fn make_owner_accessible(dir: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(dir)?;
    let mode = meta.permissions().mode() & 0o7777;
    if !meta.is_dir() || mode & 0o700 == 0o700 {
        return Ok(());
    }
    fs::set_permissions(dir, Permissions::from_mode(mode | 0o700))
}

/// Creates a directory that only its owner can access. It must not exist.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Makes sure that the directory exists and is writable, replacing a file of its name.
pub fn ensure_dir(dir: &Path) -> io::Result<()> {
    if let Some(parent) = dir.parent() {
        // If that fails, the next step reports it.
        let _ = make_owner_accessible(parent);
    }
    match fs::symlink_metadata(dir) {
        Ok(meta) if meta.is_dir() => return make_owner_accessible(dir),
        Ok(_) => fs::remove_file(dir)?,
        Err(error) => missing_is_ok(Err(error))?,
    }
    create_private_dir(dir)
}
