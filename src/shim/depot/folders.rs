//! The folders of an attempt in the *in* and *work* volumes: made as root for the sandbox's user, removed when empty.
//!
//! Used by `depot/mod.rs`. The depot has no FOWNER: it sets modes before it gives a thing away, and makes everything new,
//! so that it never writes through something that a sandbox put there.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Component, Path, PathBuf};

use super::super::layout::Layout;
use super::{fault, io_fault};
use crate::handoff::depot::{Answer, DepotFault, DepotFaultKind, TextFile};
use crate::handoff::layout as names;

/// Refuses what is not the name of an attempt's folder.
pub fn check_name(folder: &str) -> Result<(), DepotFault> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    if folder.starts_with("T-") && folder.len() <= 64 && folder.bytes().all(plain) {
        Ok(())
    } else {
        Err(fault(DepotFaultKind::Refused, format!("`{folder}` is not the name of an attempt's folder")))
    }
}

/// Makes an attempt's folders. What was made is removed again where it fails.
pub fn prepare(layout: &Layout, folder: &str, uid: u32, files: &[TextFile]) -> Result<Answer, DepotFault> {
    check_name(folder)?;
    remove_half_made(layout, folder, uid)?;
    let (inbox, work) = (layout.inbox().join(folder), layout.work().join(folder));
    for path in [&inbox, &work] {
        if fs::symlink_metadata(path).is_ok() {
            return Err(fault(DepotFaultKind::Failed, format!("`{}` is there already", path.display())));
        }
    }
    let made = fill(layout, &inbox, &work, uid, files);
    if made.is_err() {
        // No sandbox has seen these folders: nothing in them is hostile.
        let _ = fs::remove_dir_all(&inbox);
        let _ = fs::remove_dir_all(&work);
    }
    made.map(|()| Answer::Nothing)
}

/// Removes what a depot that died in [`prepare`] left. Its last step gives the work folder away, and no sandbox can take that
/// back: where it is not given away no sandbox has seen any of it, and nothing in it is hostile.
pub fn remove_half_made(layout: &Layout, folder: &str, uid: u32) -> Result<(), DepotFault> {
    let (inbox, work) = (layout.inbox().join(folder), layout.work().join(folder));
    if fs::symlink_metadata(&work).is_ok_and(|meta| meta.uid() == uid) {
        return Ok(());
    }
    for path in [inbox, work] {
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(io_fault("remove", &path, &error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn fill(layout: &Layout, inbox: &Path, work: &Path, uid: u32, files: &[TextFile]) -> Result<(), DepotFault> {
    for volume in [layout.inbox(), layout.work()] {
        fs::create_dir_all(&volume).map_err(|error| io_fault("make", &volume, &error))?;
    }
    let mut folders = vec![inbox.to_owned()];
    make_folder(inbox)?;
    let mut written = Vec::new();
    for file in files {
        let path = inbox.join(relative(&file.path)?);
        for parent in parents_below(inbox, &path) {
            if !folders.contains(&parent) {
                make_folder(&parent)?;
                folders.push(parent);
            }
        }
        write_new(&path, &file.text)?;
        written.push(path);
    }
    for path in &written {
        give(path, uid)?;
    }
    // From the inside out: a folder that is given away is one that root goes through by DAC_OVERRIDE alone.
    for path in folders.iter().rev() {
        set_mode(path, 0o500)?;
        give(path, uid)?;
    }
    make_folder(work)?;
    for name in [names::REPO_DIR, names::RUN_DIR, names::OUT_DIR] {
        let path = work.join(name);
        make_folder(&path)?;
        give(&path, uid)?;
    }
    give(work, uid)
}

fn relative(text: &str) -> Result<&Path, DepotFault> {
    let path = Path::new(text);
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    if plain && !text.is_empty() && !text.contains('\0') {
        Ok(path)
    } else {
        Err(fault(DepotFaultKind::Refused, format!("`{text}` is not a relative path without `..`")))
    }
}

/// The folders between `top` and a file, from the outside in.
fn parents_below(top: &Path, path: &Path) -> Vec<PathBuf> {
    let mut parents: Vec<PathBuf> =
        path.ancestors().skip(1).take_while(|parent| *parent != top).map(Path::to_owned).collect();
    parents.reverse();
    parents
}

fn make_folder(path: &Path) -> Result<(), DepotFault> {
    DirBuilder::new().mode(0o700).create(path).map_err(|error| io_fault("make", path, &error))
}

fn write_new(path: &Path, text: &str) -> Result<(), DepotFault> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o400);
    let mut file = options.open(path).map_err(|error| io_fault("make", path, &error))?;
    file.write_all(text.as_bytes()).map_err(|error| io_fault("write", path, &error))
}

fn set_mode(path: &Path, mode: u32) -> Result<(), DepotFault> {
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(|error| io_fault("set the mode of", path, &error))
}

fn give(path: &Path, uid: u32) -> Result<(), DepotFault> {
    chown(path, Some(uid), Some(uid)).map_err(|error| io_fault("give away", path, &error))
}

/// Removes an attempt's folders, which its user has emptied. That they are gone already is fine.
pub fn remove_empty(layout: &Layout, folder: &str) -> Result<Answer, DepotFault> {
    for path in [layout.inbox().join(folder), layout.work().join(folder)] {
        match fs::remove_dir(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(io_fault("remove", &path, &error));
            }
            _ => {}
        }
    }
    Ok(Answer::Nothing)
}

/// `MemAvailable`, which is the whole machine's also in a container, in bytes; 0 where it is not there.
fn memory_available(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0).saturating_mul(1024)
}

/// The space of the *work* volume, which on an engine is that of all its volumes.
pub fn space(layout: &Layout) -> Result<Answer, DepotFault> {
    let path = [layout.work(), layout.objects()].into_iter().find(|path| path.is_dir());
    let path = path.ok_or_else(|| fault(DepotFaultKind::NotFound, "there is no volume"))?;
    let space = rustix::fs::statvfs(&path).map_err(|error| io_fault("measure", &path, &error.into()))?;
    Ok(Answer::Space {
        free: space.f_bavail.saturating_mul(space.f_frsize),
        total: space.f_blocks.saturating_mul(space.f_frsize),
        memory_available: memory_available(&fs::read_to_string("/proc/meminfo").unwrap_or_default()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_that_is_available() {
        let text = "MemTotal:        4015544 kB\nMemFree:          120000 kB\nMemAvailable:    2097152 kB\n";
        assert_eq!(memory_available(text), 2 << 30);
        assert_eq!(memory_available("MemTotal: 1 kB\n"), 0);
        assert_eq!(memory_available("MemAvailable: much\n"), 0);
    }
}
