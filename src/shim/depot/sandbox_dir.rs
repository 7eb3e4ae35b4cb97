//! What a process of one of the sandbox's own users does in the sandbox's directories: collect, salvage, discard.
//!
//! The directories are hostile, and what they could make the process access is no more than that user could reach anyway. Called by
//! `as_uid.rs`. The answer is a line of JSON followed by its data.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::super::children;
use super::super::clone_dir::{CloneDir, HeadTarget, render_git_config};
use super::super::git::{self, GitError};
use super::super::layout::Layout;
use super::super::safe_fs;
use super::super::salvage::{SalvageRun, SalvagedCommit};
use super::attempt_dirs;
use super::error::{failed, io_error, refused};
use crate::handoff::assignment::GitIdentity;
use crate::handoff::depot::{DepotError, DepotErrorKind, DepotResponse, MAX_LEFT_OUT_PATH_CHARS, MAX_LEFT_OUT_PATHS};
use crate::handoff::layout;
use crate::handoff::result::MAX_RESULT_BYTES;
use crate::ids::CommitId;
use crate::json::text::take_chars;

/// The time limit of a git process in a clone.
const GIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs `read-out|salvage|discard` with its arguments.
pub fn execute(args: &[&str], layout: &Layout, out: &mut impl Write) -> Result<(), DepotError> {
    let parse_bytes =
        |text: &str| text.parse::<u64>().map_err(|_| failed(format!("`{text}` is not a number of bytes")));
    if let [_, attempt_dir, ..] = args {
        attempt_dirs::check_attempt_dir_name(attempt_dir)?;
        make_dirs_accessible(layout, attempt_dir)?;
    }
    match args {
        ["read-out", attempt_dir, max] => collect(layout, attempt_dir, parse_bytes(max)?, out),
        ["salvage", attempt_dir, base, reference, max] => {
            let base: CommitId = base.parse().map_err(|error| failed(format!("{error}")))?;
            salvage(layout, attempt_dir, &base, reference, parse_bytes(max)?, out)
        }
        ["discard", attempt_dir] => {
            discard(layout, attempt_dir)?;
            write_response(out, &DepotResponse::Empty)
        }
        _ => Err(failed(format!("unexpected arguments `{}`", args.join(" ")))),
    }
}

/// Whether it is a directory of this process's user. A sandbox has two users.
fn is_own_dir(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw())
}

/// Gives the owner access to the directories, which the sandbox may have closed. Whatever is not a directory is found later.
fn make_dirs_accessible(layout: &Layout, attempt_dir: &str) -> Result<(), DepotError> {
    let top = layout.work_volume().join(attempt_dir);
    let dirs = [top, layout.repo_dir(attempt_dir), layout.run_dir(attempt_dir), layout.out_dir(attempt_dir)];
    for path in dirs.into_iter().filter(|path| is_own_dir(path)) {
        safe_fs::missing_is_ok(safe_fs::make_owner_accessible(&path))
            .map_err(|error| sandbox_io_error("access", &path, &error))?;
    }
    Ok(())
}

/// [`io_error`] that is refused if the sandbox itself caused it.
fn sandbox_io_error(what: &str, path: &Path, error: &io::Error) -> DepotError {
    let found = io_error(what, path, error);
    let own = matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory)
        || error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
    if own { DepotError { kind: DepotErrorKind::Refused, ..found } } else { found }
}

/// The error of a salvage. An unreadable file is the sandbox's doing.
fn salvage_error(error: GitError) -> DepotError {
    let found = DepotError::from(error);
    let denied = found.kind == DepotErrorKind::Failed && found.message.contains("ermission denied");
    if denied { DepotError { kind: DepotErrorKind::Refused, ..found } } else { found }
}

fn write_response(out: &mut impl Write, response: &DepotResponse) -> Result<(), DepotError> {
    let mut line = serde_json::to_vec(response).expect("a response is always JSON");
    line.push(b'\n');
    out.write_all(&line).map_err(|error| failed(format!("cannot write the response: {error}")))
}

/// Opens a regular file and measures it. `None` if it does not exist.
fn open_regular_at(dir: &File, path: &Path, limit: u64) -> Result<Option<(File, u64)>, DepotError> {
    let name = path.file_name().unwrap_or_default();
    let file = match safe_fs::open_regular_at(dir, name) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let links_and_sockets =
                [rustix::io::Errno::LOOP, rustix::io::Errno::NXIO].map(|errno| errno.raw_os_error());
            let is_special = error.kind() == io::ErrorKind::InvalidInput
                || error.raw_os_error().is_some_and(|errno| links_and_sockets.contains(&errno));
            return Err(match is_special {
                true => refused(format!("`{}` is not a regular file", path.display())),
                false => sandbox_io_error("read", path, &error),
            });
        }
    };
    let length = file.metadata().map_err(|error| sandbox_io_error("read", path, &error))?.len();
    if length > limit {
        return Err(refused(format!("`{}` has {length} bytes, the limit is {limit}", path.display())));
    }
    Ok(Some((file, length)))
}

fn open_dir(path: &Path) -> Result<File, DepotError> {
    safe_fs::open_dir(path).map_err(|error| sandbox_io_error("open the directory", path, &error))
}

/// Copies `out/result.json`, then `out/result.bundle`.
fn collect(layout: &Layout, attempt_dir: &str, max: u64, out: &mut impl Write) -> Result<(), DepotError> {
    let out_dir = layout.out_dir(attempt_dir);
    let dir = open_dir(&out_dir)?;
    let (result_path, bundle_path) = (out_dir.join(layout::RESULT_FILE), out_dir.join(layout::BUNDLE_FILE));
    let result = open_regular_at(&dir, &result_path, MAX_RESULT_BYTES)?;
    let bundle = open_regular_at(&dir, &bundle_path, max)?;
    let result_bytes = result.as_ref().map_or(0, |(_, length)| *length);
    write_response(out, &DepotResponse::Collected { result_bytes, bundle: bundle.is_some() })?;
    for (path, opened) in [(result_path, result), (bundle_path, bundle)] {
        let Some((file, length)) = opened else { continue };
        let copied = io::copy(&mut file.take(length), out).map_err(|error| sandbox_io_error("read", &path, &error))?;
        if copied != length {
            return Err(refused(format!("`{}` changed while it was read", path.display())));
        }
    }
    Ok(())
}

fn salvage(
    layout: &Layout,
    attempt_dir: &str,
    base: &CommitId,
    reference: &str,
    max: u64,
    out: &mut impl Write,
) -> Result<(), DepotError> {
    let repo = layout.repo_dir(attempt_dir);
    open_dir(&repo)?;
    if is_empty(&repo) {
        // The shim died before it cloned. A tree without files would look like a deletion of all of them.
        return write_response(out, &DepotResponse::Salvaged { commit: None, left_out: Vec::new() });
    }
    let identity = GitIdentity { name: "longshore".into(), email: "longshore@localhost".into() };
    let format = if base.as_str().len() == 64 { "sha256" } else { "sha1" };
    let clone = CloneDir {
        head: HeadTarget::Commit(base.clone()),
        refs: Vec::new(),
        config: render_git_config(format, &identity, None),
        repo,
        objects_repo: layout.objects_repo(),
        identity,
        stop_deadline: None,
    };
    let git = clone.git().with_timeout(GIT_TIMEOUT);
    let SalvagedCommit { commit, mut left_out, special_files: _ } = SalvageRun {
        clone: &clone,
        git: git.clone(),
        start: base,
        stray_commits: Vec::new(),
        // Only later stories in the same sandbox build on earlier ones.
        finished_bundle: None,
        reference,
        message: &format!("salvage {attempt_dir}\n\nThe content of the sandbox's work tree when it ended.\n"),
    }
    .run()
    .map_err(salvage_error)?;
    left_out.truncate(MAX_LEFT_OUT_PATHS);
    let left_out = left_out.iter().map(|path| take_chars(path, MAX_LEFT_OUT_PATH_CHARS).to_owned()).collect();
    let has_commit = commit.is_some();
    write_response(out, &DepotResponse::Salvaged { commit, left_out })?;
    if !has_commit {
        return Ok(());
    }
    let args =
        ["bundle".to_owned(), "create".into(), "-q".into(), "-".into(), format!("^{base}"), reference.to_owned()];
    let mut command = git.command(&args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (mut child, _owned) =
        children::spawn_command(&mut command).map_err(|error| failed(format!("cannot run `git`: {error}")))?;
    let stderr = children::drain(child.stderr.take().expect("standard error is piped"));
    let mut stdout = child.stdout.take().expect("standard output is piped").take(max.saturating_add(1));
    let copied = io::copy(&mut stdout, out).map_err(|error| failed(format!("cannot send the bundle: {error}")))?;
    if copied > max {
        let _ = child.kill();
        let _ = child.wait();
        return Err(refused(format!("the salvage has more than {max} bytes")));
    }
    let status = child.wait().map_err(|error| failed(format!("cannot wait for `git`: {error}")))?;
    if status.success() {
        Ok(())
    } else {
        Err(salvage_error(git::error_from_stderr(&args, &stderr.join().unwrap_or_default())))
    }
}

/// Empties those of the attempt's directories that this process's user owns. Only the owners of their parents, in the end root, can
/// remove the directories themselves.
fn discard(layout: &Layout, attempt_dir: &str) -> Result<(), DepotError> {
    let work = layout.work_volume().join(attempt_dir);
    let parts = [layout::REPO_DIR, layout::RUN_DIR, layout::MEMORY_DIR, layout::OUT_DIR].map(|name| work.join(name));
    let inbox = layout.in_volume().join(attempt_dir);
    for dir in parts.iter().chain([&work, &inbox]).filter(|dir| is_own_dir(dir)) {
        if *dir == work {
            // Those of the other user are empty, but cannot be entered.
            parts.iter().for_each(|part| drop(fs::remove_dir(part)));
        }
        // This fails at the directory itself if another user owns its parent.
        let _ = safe_fs::remove_dir(dir);
        if fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
            remove_with_shell(dir)?;
        }
    }
    Ok(())
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none())
}

/// Empties a directory that is nested too deeply for paths and recursion.
fn remove_with_shell(top: &Path) -> Result<(), DepotError> {
    let script =
        r#"chmod -R u+rwx "$1"; cd "$1" && find . -mindepth 1 -delete 2>/dev/null || rm -rf ./* ./.[!.]* ./..?*"#;
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(top).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().map_err(|error| sandbox_io_error("empty", top, &error))?;
    if is_empty(top) { Ok(()) } else { Err(failed(format!("cannot empty `{}`: {status}", top.display()))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permission_errors_in_a_sandbox_dir_are_refused() {
        let kind = |kind: io::ErrorKind| sandbox_io_error("open", Path::new("/x"), &kind.into()).kind;
        assert_eq!(kind(io::ErrorKind::PermissionDenied), DepotErrorKind::Refused);
        assert_eq!(kind(io::ErrorKind::StorageFull), DepotErrorKind::DiskFull);
        assert_eq!(kind(io::ErrorKind::NotFound), DepotErrorKind::NotFound);
        assert_eq!(kind(io::ErrorKind::Interrupted), DepotErrorKind::Failed);
        let denied =
            git::error_from_stderr(&["add"], "error: open(\"x\"): Permission denied\nfatal: adding files failed\n");
        assert_eq!(salvage_error(denied).kind, DepotErrorKind::Refused);
        assert_eq!(salvage_error(git::error_from_stderr(&["add"], "fatal: odd\n")).kind, DepotErrorKind::Failed);
    }
}
