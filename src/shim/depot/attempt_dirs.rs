//! The folders of an attempt in the *in* and *work* volumes: made as root for the sandbox's user, removed when empty.
//!
//! Used by `depot/mod.rs`. The depot has no FOWNER: it sets modes before it gives a thing away, and makes everything new,
//! so that it never writes through something that a sandbox put there.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Component, Path, PathBuf};

use super::super::layout::Layout;
use super::{depot_error, io_error};
use crate::handoff::depot::{DepotError, DepotErrorKind, DepotResponse, TextFile};
use crate::handoff::layout as names;

/// Refuses what is not the name of an attempt's folder.
pub fn check_attempt_dir_name(folder: &str) -> Result<(), DepotError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    if folder.starts_with("T-") && folder.len() <= 64 && folder.bytes().all(plain) {
        Ok(())
    } else {
        Err(depot_error(DepotErrorKind::Refused, format!("`{folder}` is not the name of an attempt's folder")))
    }
}

/// Makes an attempt's folders. What was made is removed again where it fails.
pub fn prepare_dirs(layout: &Layout, folder: &str, uid: u32, files: &[TextFile]) -> Result<DepotResponse, DepotError> {
    check_attempt_dir_name(folder)?;
    remove_half_made(layout, folder, uid)?;
    let (inbox, work) = (layout.in_volume().join(folder), layout.work_volume().join(folder));
    for path in [&inbox, &work] {
        if fs::symlink_metadata(path).is_ok() {
            return Err(depot_error(DepotErrorKind::Failed, format!("`{}` is there already", path.display())));
        }
    }
    let made = create_dirs(layout, &inbox, &work, uid, files);
    if made.is_err() {
        // No sandbox has seen these folders: nothing in them is hostile.
        let _ = fs::remove_dir_all(&inbox);
        let _ = fs::remove_dir_all(&work);
    }
    made.map(|()| DepotResponse::Empty)
}

/// Removes what a depot that died in [`prepare_dirs`] left. Its last step gives the work folder away, and no sandbox can take that
/// back: where it is not given away no sandbox has seen any of it, and nothing in it is hostile.
pub fn remove_half_made(layout: &Layout, folder: &str, uid: u32) -> Result<(), DepotError> {
    let (inbox, work) = (layout.in_volume().join(folder), layout.work_volume().join(folder));
    if fs::symlink_metadata(&work).is_ok_and(|meta| meta.uid() == uid) {
        return Ok(());
    }
    for path in [inbox, work] {
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(io_error("remove", &path, &error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn create_dirs(layout: &Layout, inbox: &Path, work: &Path, uid: u32, files: &[TextFile]) -> Result<(), DepotError> {
    for volume in [layout.in_volume(), layout.work_volume()] {
        fs::create_dir_all(&volume).map_err(|error| io_error("make", &volume, &error))?;
    }
    let mut folders = vec![inbox.to_owned()];
    make_dir(inbox)?;
    let mut written = Vec::new();
    for file in files {
        let path = inbox.join(check_relative_path(&file.path)?);
        for parent in parents_below(inbox, &path) {
            if !folders.contains(&parent) {
                make_dir(&parent)?;
                folders.push(parent);
            }
        }
        write_new(&path, &file.text)?;
        written.push(path);
    }
    for path in &written {
        chown_to(path, uid)?;
    }
    // From the inside out: a folder that is given away is one that root goes through by DAC_OVERRIDE alone.
    for path in folders.iter().rev() {
        set_mode(path, 0o500)?;
        chown_to(path, uid)?;
    }
    make_dir(work)?;
    for name in [names::REPO_DIR, names::RUN_DIR, names::OUT_DIR] {
        let path = work.join(name);
        make_dir(&path)?;
        chown_to(&path, uid)?;
    }
    chown_to(work, uid)
}

fn check_relative_path(text: &str) -> Result<&Path, DepotError> {
    let path = Path::new(text);
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    if plain && !text.is_empty() && !text.contains('\0') {
        Ok(path)
    } else {
        Err(depot_error(DepotErrorKind::Refused, format!("`{text}` is not a relative path without `..`")))
    }
}

/// The folders between `top` and a file, from the outside in.
fn parents_below(top: &Path, path: &Path) -> Vec<PathBuf> {
    let mut parents: Vec<PathBuf> =
        path.ancestors().skip(1).take_while(|parent| *parent != top).map(Path::to_owned).collect();
    parents.reverse();
    parents
}

fn make_dir(path: &Path) -> Result<(), DepotError> {
    DirBuilder::new().mode(0o700).create(path).map_err(|error| io_error("make", path, &error))
}

fn write_new(path: &Path, text: &str) -> Result<(), DepotError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o400);
    let mut file = options.open(path).map_err(|error| io_error("make", path, &error))?;
    file.write_all(text.as_bytes()).map_err(|error| io_error("write", path, &error))
}

fn set_mode(path: &Path, mode: u32) -> Result<(), DepotError> {
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(|error| io_error("set the mode of", path, &error))
}

fn chown_to(path: &Path, uid: u32) -> Result<(), DepotError> {
    chown(path, Some(uid), Some(uid)).map_err(|error| io_error("give away", path, &error))
}

/// Removes an attempt's folders, which its user has emptied. That they are gone already is fine.
pub fn remove_empty(layout: &Layout, folder: &str) -> Result<DepotResponse, DepotError> {
    for path in [layout.in_volume().join(folder), layout.work_volume().join(folder)] {
        match fs::remove_dir(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(io_error("remove", &path, &error));
            }
            _ => {}
        }
    }
    Ok(DepotResponse::Empty)
}

/// `MemAvailable`, which is the whole machine's also in a container, in bytes; 0 where it is not there.
fn memory_available(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0).saturating_mul(1024)
}

/// The space of the *work* volume, which on an engine is that of all its volumes.
pub fn measure_space(layout: &Layout) -> Result<DepotResponse, DepotError> {
    let path = [layout.work_volume(), layout.objects_volume()].into_iter().find(|path| path.is_dir());
    let path = path.ok_or_else(|| depot_error(DepotErrorKind::NotFound, "there is no volume"))?;
    let space = rustix::fs::statvfs(&path).map_err(|error| io_error("measure", &path, &error.into()))?;
    Ok(DepotResponse::Space {
        free: space.f_bavail.saturating_mul(space.f_frsize),
        total: space.f_blocks.saturating_mul(space.f_frsize),
        memory_available: memory_available(&fs::read_to_string("/proc/meminfo").unwrap_or_default()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_available_memory() {
        let text = "MemTotal:        4015544 kB\nMemFree:          120000 kB\nMemAvailable:    2097152 kB\n";
        assert_eq!(memory_available(text), 2 << 30);
        assert_eq!(memory_available("MemTotal: 1 kB\n"), 0);
        assert_eq!(memory_available("MemAvailable: much\n"), 0);
    }
}
