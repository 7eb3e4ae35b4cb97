//! Files that a reader sees whole or not at all: written under a temporary name, then renamed.
//!
//! Used by everything that keeps files on the host. The caller chooses the temporary name, which must be on the same file
//! system and which no reader looks at.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, linkat, unlinkat};
use rustix::io::Errno;

/// Writes or replaces a file so that it is whole even after a power cut: it and its directory are synced.
#[cfg(feature = "orchestrator")]
pub(crate) fn write_durable(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = atomic_write_file::AtomicWriteFile::open(path)?;
    file.write_all(bytes)?;
    file.commit()
}

/// Writes or replaces a file. Not synced: a power cut may leave it empty.
pub(crate) fn replace(path: &Path, temp: &Path, bytes: &[u8]) -> io::Result<()> {
    write_temp(temp, bytes)?;
    fs::rename(temp, path).inspect_err(|_| drop(fs::remove_file(temp)))
}

/// Writes a file, or returns `false` if the name is taken: of several writers, also in other processes, one succeeds. Not
/// synced.
pub(crate) fn create_new(path: &Path, temp: &Path, bytes: &[u8]) -> io::Result<bool> {
    write_temp(temp, bytes)?;
    let renamed = rename_no_replace(CWD, temp, path);
    if !matches!(renamed, Ok(true)) {
        drop(fs::remove_file(temp));
    }
    Ok(renamed?)
}

/// Renames within the directory `dir`, or returns `false` if the name `to` is taken.
pub(crate) fn rename_no_replace(dir: impl AsFd, from: &Path, to: &Path) -> rustix::io::Result<bool> {
    let dir = dir.as_fd();
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    {
        use rustix::fs::{RenameFlags, renameat_with};
        match renameat_with(dir, from, dir, to, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(true),
            Err(Errno::EXIST) => return Ok(false),
            // NFS and others cannot, but they can link.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
            Err(error) => return Err(error),
        }
    }
    match linkat(dir, from, dir, to, AtFlags::empty()) {
        Ok(()) => unlinkat(dir, from, AtFlags::empty()).map(|()| true),
        Err(Errno::EXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

fn write_temp(temp: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = OpenOptions::new().create_new(true).write(true).open(temp);
    file.and_then(|mut file| file.write_all(bytes)).inspect_err(|_| drop(fs::remove_file(temp)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_created_once_and_replaced_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, temp) = (dir.path().join("file"), dir.path().join(".temp"));
        assert!(create_new(&path, &temp, b"one").expect("written"));
        assert!(!create_new(&path, &temp, b"two").expect("the name is taken"));
        assert_eq!(fs::read(&path).expect("a file"), b"one");
        replace(&path, &temp, b"three").expect("replaced");
        assert_eq!(fs::read(&path).expect("a file"), b"three");
        assert!(replace(&dir.path().join("none/file"), &temp, b"").is_err());
        assert!(!temp.exists());
    }
}
