//! An attempt's directories in the *in* and *work* volumes: created as root for the sandbox's users, removed when empty.
//!
//! Used by `server.rs`. The depot lacks FOWNER: it sets modes before it gives files away, and creates everything new, so that it
//! never writes through something that a sandbox put there.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Component, Path, PathBuf};

use super::super::disk_space::DiskSpace;
use super::super::layout::Layout;
use super::super::safe_fs;
use super::error::{depot_error, failed, io_error, refused};
use crate::handoff::depot::{DepotError, DepotErrorKind, DepotResponse, TextFile};
use crate::handoff::layout as names;
use crate::handoff::sandbox_users::SandboxUsers;

/// Refuses anything but the name of an attempt's directory.
pub fn check_attempt_dir_name(attempt_dir: &str) -> Result<(), DepotError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    if attempt_dir.starts_with("T-") && attempt_dir.len() <= 64 && attempt_dir.bytes().all(plain) {
        Ok(())
    } else {
        Err(refused(format!("`{attempt_dir}` is not the name of an attempt's directory")))
    }
}

/// Creates an attempt's directories, or none of them.
pub fn prepare_dirs(
    layout: &Layout,
    attempt_dir: &str,
    users: SandboxUsers,
    files: &[TextFile],
) -> Result<DepotResponse, DepotError> {
    check_attempt_dir_name(attempt_dir)?;
    remove_half_made(layout, attempt_dir, users.agent)?;
    let (inbox, work) = (layout.in_volume().join(attempt_dir), layout.work_volume().join(attempt_dir));
    for path in [&inbox, &work] {
        if fs::symlink_metadata(path).is_ok() {
            return Err(failed(format!("`{}` already exists", path.display())));
        }
    }
    let created = create_dirs(layout, &inbox, &work, users, files);
    if created.is_err() {
        // No sandbox has seen these directories, so nothing in them is hostile.
        let _ = fs::remove_dir_all(&inbox);
        let _ = fs::remove_dir_all(&work);
    }
    created.map(|()| DepotResponse::Empty)
}

/// Removes what a depot that died in [`prepare_dirs`] left. Its last step gives the work directory away, and no sandbox can undo
/// that: before it, no sandbox has seen any of the files, so nothing in them is hostile.
pub fn remove_half_made(layout: &Layout, attempt_dir: &str, uid: u32) -> Result<(), DepotError> {
    if work_dir_owner(layout, attempt_dir, uid).is_some() {
        return Ok(());
    }
    let (inbox, work) = (layout.in_volume().join(attempt_dir), layout.work_volume().join(attempt_dir));
    for path in [inbox, work] {
        safe_fs::missing_is_ok(fs::remove_dir_all(&path)).map_err(|error| io_error("remove", &path, &error))?;
    }
    Ok(())
}

/// The user to whom the work directory was given: the shim's, or the agent's (`uid`) in that of an older version. `None` if there is
/// no directory, or none that was given away. No sandbox can change the owner.
pub fn work_dir_owner(layout: &Layout, attempt_dir: &str, uid: u32) -> Option<u32> {
    let owner = fs::symlink_metadata(layout.work_volume().join(attempt_dir)).ok()?.uid();
    (owner == uid || owner != rustix::process::geteuid().as_raw()).then_some(owner)
}

fn create_dirs(
    layout: &Layout,
    inbox: &Path,
    work: &Path,
    users: SandboxUsers,
    files: &[TextFile],
) -> Result<(), DepotError> {
    for volume in [layout.in_volume(), layout.work_volume()] {
        fs::create_dir_all(&volume).map_err(|error| io_error("create", &volume, &error))?;
    }
    let mut dirs = vec![inbox.to_owned()];
    make_dir(inbox)?;
    let mut written = Vec::new();
    for file in files {
        let path = inbox.join(check_relative_path(&file.path)?);
        for parent in parents_below(inbox, &path) {
            if !dirs.contains(&parent) {
                make_dir(&parent)?;
                dirs.push(parent);
            }
        }
        write_new(&path, &file.text)?;
        written.push(path);
    }
    for path in &written {
        chown_to(path, users.agent)?;
    }
    // From the inside out: root enters a directory that it gave away by DAC_OVERRIDE only.
    for path in dirs.iter().rev() {
        set_mode(path, 0o500)?;
        chown_to(path, users.agent)?;
    }
    make_dir(work)?;
    for (name, owner) in [
        (names::REPO_DIR, users.agent),
        (names::RUN_DIR, users.agent),
        (names::MEMORY_DIR, users.agent),
        (names::OUT_DIR, users.shim),
    ] {
        let path = work.join(name);
        make_dir(&path)?;
        chown_to(&path, owner)?;
    }
    // The agent's user goes through it, and cannot replace what is in it.
    set_mode(work, 0o711)?;
    chown_to(work, users.shim)
}

fn check_relative_path(text: &str) -> Result<&Path, DepotError> {
    let path = Path::new(text);
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    if plain && !text.is_empty() && !text.contains('\0') {
        Ok(path)
    } else {
        Err(refused(format!("`{text}` is not a relative path without `..`")))
    }
}

/// The directories between `top` and a file, from the outside in.
fn parents_below(top: &Path, path: &Path) -> Vec<PathBuf> {
    let mut parents: Vec<PathBuf> =
        path.ancestors().skip(1).take_while(|parent| *parent != top).map(Path::to_owned).collect();
    parents.reverse();
    parents
}

fn make_dir(path: &Path) -> Result<(), DepotError> {
    safe_fs::create_private_dir(path).map_err(|error| io_error("create", path, &error))
}

fn write_new(path: &Path, text: &str) -> Result<(), DepotError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o400);
    let mut file = options.open(path).map_err(|error| io_error("create", path, &error))?;
    file.write_all(text.as_bytes()).map_err(|error| io_error("write", path, &error))
}

fn set_mode(path: &Path, mode: u32) -> Result<(), DepotError> {
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(|error| io_error("set the mode of", path, &error))
}

fn chown_to(path: &Path, uid: u32) -> Result<(), DepotError> {
    chown(path, Some(uid), Some(uid)).map_err(|error| io_error("change the owner of", path, &error))
}

/// Removes an attempt's directories, which its users have emptied. Missing ones are no error.
pub fn remove_empty(layout: &Layout, attempt_dir: &str) -> Result<DepotResponse, DepotError> {
    for path in [layout.in_volume().join(attempt_dir), layout.work_volume().join(attempt_dir)] {
        safe_fs::missing_is_ok(fs::remove_dir(&path)).map_err(|error| io_error("remove", &path, &error))?;
    }
    Ok(DepotResponse::Empty)
}

/// `MemAvailable` in bytes, or 0. Also in a container, it is the whole machine's.
fn memory_available(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0).saturating_mul(1024)
}

/// Measures the space of the *work* volume, which is that of all volumes of an engine.
pub fn measure_space(layout: &Layout) -> Result<DepotResponse, DepotError> {
    let path = [layout.work_volume(), layout.objects_volume()].into_iter().find(|path| path.is_dir());
    let path = path.ok_or_else(|| depot_error(DepotErrorKind::NotFound, "no volume is mounted"))?;
    let space = DiskSpace::measure(&path).map_err(|error| io_error("measure", &path, &error))?;
    Ok(DepotResponse::Space {
        free: space.free,
        total: space.total,
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
