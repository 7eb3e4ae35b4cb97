//! What the depot does in a sandbox's folder, done by a process of the sandbox's own user: the folder is hostile, and what
//! it could be made to point to is no more than that user could reach anyway.
//!
//! `acp-shim as UID read-out|salvage|discard ...` writes the answer's JSON on one line, then its data; a fault goes to
//! standard error as JSON, with exit code 1. The depot may not signal another user's process (it has no KILL), so this one
//! ends itself when it takes too long, and a little before the host would give up to wait for it (`engine/depot.rs`: 150 s
//! in which nothing happens for what an attempt left, 600 s for a removal). Started by [`run_as_user`], nobody else.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use super::super::children;
use super::super::clone_dir::{CloneDir, HeadTarget, remove_dir, render_git_config};
use super::super::git::{self, GitError};
use super::super::layout::Layout;
use super::super::safe_fs;
use super::super::salvage::{SalvageRun, SalvagedWork};
use super::{ResponseSender, SandboxUserHelper, attempt_dirs, depot_error, io_error};
use crate::handoff::assignment::GitIdentity;
use crate::handoff::depot::{DepotError, DepotErrorKind, DepotResponse, MAX_LEFT_OUT_PATH_CHARS, MAX_LEFT_OUT_PATHS};
use crate::handoff::layout as names;
use crate::handoff::result::MAX_RESULT_BYTES;
use crate::ids::CommitId;

/// How long nothing at all may come out of a read-out or a salvage, whose git a sandbox may have made to wait, before the
/// process ends itself.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a removal may take.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(540);
/// How often it is looked whether something came out.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The most of its standard error that is read.
const MAX_STDERR_BYTES: u64 = 64 * 1024;

/// Starts the process for a request, passes its data on, and gives its answer.
pub(super) fn run_as_user(
    helper: &SandboxUserHelper,
    layout: &Layout,
    uid: u32,
    args: &[String],
    sender: &ResponseSender,
) -> Result<DepotResponse, DepotError> {
    let _ = layout;
    match helper {
        SandboxUserHelper::Program(program) => spawn_as_user(program, uid, args, sender),
        #[cfg(test)]
        SandboxUserHelper::InProcess => {
            let words: Vec<&str> = args.iter().map(String::as_str).collect();
            let mut answered = Vec::new();
            execute(&words, layout, &mut answered)?;
            read_response(&answered[..], sender)
        }
    }
}

fn spawn_as_user(
    program: &Path,
    uid: u32,
    args: &[String],
    sender: &ResponseSender,
) -> Result<DepotResponse, DepotError> {
    if uid == 0 {
        return Err(depot_error(DepotErrorKind::Refused, "a sandbox's user cannot be root"));
    }
    let mut command = Command::new(program);
    // `uid` gives up the supplementary groups too, where root sets it.
    command.arg("as").arg(uid.to_string()).args(args).uid(uid).gid(uid).process_group(0).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed =
        |what: &str, error: &io::Error| depot_error(DepotErrorKind::Failed, format!("cannot {what} as {uid}: {error}"));
    let (mut child, _owned) = children::spawn(|| command.spawn(), |child| Some(child.id()))
        .map_err(|error| failed("start the shim", &error))?;
    let stdout = child.stdout.take().expect("standard output is piped");
    let stderr = child.stderr.take().expect("standard error is piped");
    let listener = thread::spawn(move || {
        let mut text = Vec::new();
        let mut stderr = stderr.take(MAX_STDERR_BYTES);
        let _ = stderr.read_to_end(&mut text);
        // The rest is drained, so that it does not block its writer.
        let _ = io::copy(&mut stderr.into_inner(), &mut io::sink());
        text
    });
    let answered = read_response(stdout, sender);
    let status = child.wait().map_err(|error| failed("wait for the shim", &error))?;
    let said = listener.join().unwrap_or_default();
    if status.success() {
        return answered;
    }
    Err(serde_json::from_slice(&said).unwrap_or_else(|_| {
        let said = String::from_utf8_lossy(&said);
        depot_error(DepotErrorKind::Failed, format!("the shim as {uid} ended with {status}: {}", said.trim()))
    }))
}

/// The first line is the answer, what follows is its data.
fn read_response(from: impl Read, sender: &ResponseSender) -> Result<DepotResponse, DepotError> {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    let broken =
        |error: io::Error| depot_error(DepotErrorKind::Failed, format!("the data cannot be passed on: {error}"));
    from.by_ref().take(64 * 1024).read_until(b'\n', &mut line).map_err(broken)?;
    let answer = serde_json::from_slice(&line).map_err(|error| broken(error.into()))?;
    sender.send_all(from).map_err(broken)?;
    Ok(answer)
}

/// The process itself, with the arguments behind `as UID`. The exit code.
pub fn main(uid: &str, args: &[&str], layout: &Layout) -> u8 {
    let is_user = |id: u32| uid.parse() == Ok(id);
    let carried_out = if is_user(rustix::process::getuid().as_raw()) && is_user(rustix::process::getgid().as_raw()) {
        let limit = if args.first() == Some(&"discard") { DISCARD_TIMEOUT } else { SILENCE_TIMEOUT };
        let written = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&written);
        thread::spawn(move || {
            wait_for_silence(limit, CHECK_INTERVAL, &seen);
            let late = depot_error(DepotErrorKind::Failed, format!("nothing happened for {} s", limit.as_secs()));
            write_error(&late);
            // The group: git's processes too.
            let _ = rustix::process::kill_current_process_group(rustix::process::Signal::KILL);
        });
        execute(args, layout, &mut CountingWriter { to: io::stdout().lock(), written })
    } else {
        Err(depot_error(DepotErrorKind::Failed, format!("this process does not run as {uid}")))
    };
    match carried_out {
        Ok(()) => 0,
        Err(fault) => {
            write_error(&fault);
            1
        }
    }
}

/// Returns once nothing was written for so long.
fn wait_for_silence(limit: Duration, every: Duration, written: &AtomicU64) {
    let (mut seen, mut since) = (written.load(Ordering::Relaxed), Instant::now());
    while since.elapsed() < limit {
        thread::sleep(every);
        let now = written.load(Ordering::Relaxed);
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
    }
}

/// Counts what is written.
struct CountingWriter<W> {
    to: W,
    written: Arc<AtomicU64>,
}

impl<W: Write> Write for CountingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.to.write(bytes)?;
        self.written.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn write_error(fault: &DepotError) {
    let text = serde_json::to_vec(fault).expect("a fault is always JSON");
    let _ = io::stderr().write_all(&text);
}

fn execute(args: &[&str], layout: &Layout, out: &mut impl Write) -> Result<(), DepotError> {
    let number = |text: &str| {
        text.parse::<u64>()
            .map_err(|_| depot_error(DepotErrorKind::Failed, format!("`{text}` is not a number of bytes")))
    };
    if let [_, folder, ..] = args {
        attempt_dirs::check_attempt_dir_name(folder)?;
        make_dirs_accessible(layout, folder)?;
    }
    match args {
        ["read-out", folder, max] => collect(layout, folder, number(max)?, out),
        ["salvage", folder, base, reference, max] => {
            let base: CommitId =
                base.parse().map_err(|error| depot_error(DepotErrorKind::Failed, format!("{error}")))?;
            salvage(layout, folder, &base, reference, number(max)?, out)
        }
        ["discard", folder] => {
            discard(layout, folder)?;
            write_response(out, &DepotResponse::Empty)
        }
        _ => Err(depot_error(DepotErrorKind::Failed, format!("`{}` is not understood", args.join(" ")))),
    }
}

/// Gives the folders back to their owner, who may have closed them. What is not a folder is met later.
fn make_dirs_accessible(layout: &Layout, folder: &str) -> Result<(), DepotError> {
    for path in
        [layout.work_volume().join(folder), layout.repo_dir(folder), layout.run_dir(folder), layout.out_dir(folder)]
    {
        match safe_fs::make_owner_accessible(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(sandbox_io_error("open up", &path, &error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The fault that an error of the system is, where what is in the way is the sandbox's own doing.
fn sandbox_io_error(what: &str, path: &Path, error: &io::Error) -> DepotError {
    let found = io_error(what, path, error);
    let own = matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory)
        || error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
    if own { DepotError { kind: DepotErrorKind::Refused, ..found } } else { found }
}

/// The fault of a salvage: that something may not be read is the sandbox's doing.
fn salvage_error(error: GitError) -> DepotError {
    let found = DepotError::from(error);
    let denied = found.kind == DepotErrorKind::Failed && found.message.contains("ermission denied");
    if denied { DepotError { kind: DepotErrorKind::Refused, ..found } } else { found }
}

fn write_response(out: &mut impl Write, answer: &DepotResponse) -> Result<(), DepotError> {
    let mut line = serde_json::to_vec(answer).expect("an answer is always JSON");
    line.push(b'\n');
    out.write_all(&line).map_err(|error| depot_error(DepotErrorKind::Failed, format!("cannot answer: {error}")))
}

/// Opens a file of a folder for reading: no link is followed, nothing but a regular file is taken, and a FIFO does not
/// block. None where there is nothing of that name.
fn open_regular_at(folder: &File, at: &Path, name: &str, limit: u64) -> Result<Option<(File, u64)>, DepotError> {
    let path = at.join(name);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(folder, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::LOOP | rustix::io::Errno::NXIO) => {
            return Err(depot_error(DepotErrorKind::Refused, format!("`{}` is not a regular file", path.display())));
        }
        Err(error) => return Err(sandbox_io_error("read", &path, &error.into())),
    };
    let meta = file.metadata().map_err(|error| sandbox_io_error("read", &path, &error))?;
    if !meta.is_file() {
        return Err(depot_error(DepotErrorKind::Refused, format!("`{}` is not a regular file", path.display())));
    }
    if meta.len() > limit {
        let message = format!("`{}` has {} bytes, and {limit} is the limit", path.display(), meta.len());
        return Err(depot_error(DepotErrorKind::Refused, message));
    }
    Ok(Some((file, meta.len())))
}

fn open_dir(path: &Path) -> Result<File, DepotError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map(File::from).map_err(|error| match error {
        rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR => {
            depot_error(DepotErrorKind::Refused, format!("`{}` is not a folder", path.display()))
        }
        error => sandbox_io_error("open", path, &error.into()),
    })
}

/// `out/result.json`, then `out/result.bundle`.
fn collect(layout: &Layout, folder: &str, max: u64, out: &mut impl Write) -> Result<(), DepotError> {
    let at = layout.out_dir(folder);
    let opened = open_dir(&at)?;
    let result = open_regular_at(&opened, &at, names::RESULT_FILE, MAX_RESULT_BYTES)?;
    let bundle = open_regular_at(&opened, &at, names::BUNDLE_FILE, max)?;
    let result_bytes = result.as_ref().map_or(0, |(_, length)| *length);
    write_response(out, &DepotResponse::Collected { result_bytes, bundle: bundle.is_some() })?;
    for (name, found) in [(names::RESULT_FILE, result), (names::BUNDLE_FILE, bundle)] {
        let Some((file, length)) = found else { continue };
        let copied =
            io::copy(&mut file.take(length), out).map_err(|error| sandbox_io_error("read", &at.join(name), &error))?;
        if copied != length {
            return Err(depot_error(
                DepotErrorKind::Refused,
                format!("`{}` changed while it was read", at.join(name).display()),
            ));
        }
    }
    Ok(())
}

fn salvage(
    layout: &Layout,
    folder: &str,
    base: &CommitId,
    reference: &str,
    max: u64,
    out: &mut impl Write,
) -> Result<(), DepotError> {
    let repo = layout.repo_dir(folder);
    open_dir(&repo)?;
    let objects_repo = layout.objects_repo();
    let identity = GitIdentity { name: "longshore".into(), email: "longshore@localhost".into() };
    let format = if base.as_str().len() == 64 { "sha256" } else { "sha1" };
    let clone = CloneDir {
        head: HeadTarget::Commit(base.clone()),
        refs: Vec::new(),
        config: render_git_config(format, &identity, None, None),
        repo,
        objects_repo,
        identity,
        stop_deadline: None,
    };
    let is_empty = fs::read_dir(&clone.repo).is_ok_and(|mut entries| entries.next().is_none());
    if is_empty {
        // The shim died before its clone: a tree without files would look like a deletion of all of them.
        return write_response(out, &DepotResponse::Salvaged { commit: None, left_out: Vec::new() });
    }
    let bundle = layout.out_dir(folder).join(names::BUNDLE_FILE);
    let git = clone.git().with_timeout(SILENCE_TIMEOUT / 2);
    let SalvagedWork { commit: kept, left_out, special_files: _ } = SalvageRun {
        clone: &clone,
        git: git.clone(),
        start: base,
        stray_commits: Vec::new(),
        finished_bundle: Some(&bundle),
        reference,
        message: &format!("salvage {folder}\n\nWhat the sandbox had in its work folder when it ended.\n"),
    }
    .run()
    .map_err(salvage_error)?;
    write_response(out, &DepotResponse::Salvaged { commit: kept.clone(), left_out: shorten_paths(left_out) })?;
    if kept.is_none() {
        return Ok(());
    }
    let args =
        ["bundle".to_owned(), "create".into(), "-q".into(), "-".into(), format!("^{base}"), reference.to_owned()];
    let mut command = git.command(&args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (mut child, _owned) = children::spawn(|| command.spawn(), |child| Some(child.id()))
        .map_err(|error| depot_error(DepotErrorKind::Failed, format!("cannot run `git`: {error}")))?;
    let mut stdout = child.stdout.take().expect("standard output is piped").take(max.saturating_add(1));
    let copied = io::copy(&mut stdout, out)
        .map_err(|error| depot_error(DepotErrorKind::Failed, format!("cannot pass the bundle on: {error}")))?;
    if copied > max {
        let _ = child.kill();
        let _ = child.wait();
        return Err(depot_error(DepotErrorKind::Refused, format!("the salvage has more than {max} bytes")));
    }
    let ended = child.wait_with_output().map_err(|error| depot_error(DepotErrorKind::Failed, error.to_string()))?;
    if ended.status.success() {
        Ok(())
    } else {
        Err(salvage_error(git::error_from_stderr(&args, &String::from_utf8_lossy(&ended.stderr))))
    }
}

/// Paths as an answer may hold them.
fn shorten_paths(paths: Vec<String>) -> Vec<String> {
    paths
        .into_iter()
        .take(MAX_LEFT_OUT_PATHS)
        .map(|path| path.chars().take(MAX_LEFT_OUT_PATH_CHARS).collect())
        .collect()
}

/// Empties the attempt's two folders. Their own entries are root's to remove.
fn discard(layout: &Layout, folder: &str) -> Result<(), DepotError> {
    attempt_dirs::check_attempt_dir_name(folder)?;
    for top in [layout.work_volume().join(folder), layout.in_volume().join(folder)] {
        match fs::symlink_metadata(&top) {
            Err(_) => continue,
            Ok(meta) if !meta.is_dir() => {
                return Err(depot_error(DepotErrorKind::Refused, format!("`{}` is not a folder", top.display())));
            }
            Ok(_) => {}
        }
        // The user may empty it, and not remove it: the volume is root's. The error about that is expected.
        let _ = remove_dir(&top);
        let left = fs::read_dir(&top).map(|mut entries| entries.next().is_some());
        if left.unwrap_or(false) {
            remove_with_shell(&top)?;
        }
    }
    Ok(())
}

/// For folders nested so deeply that paths and recursion do not reach them.
fn remove_with_shell(top: &Path) -> Result<(), DepotError> {
    let script =
        r#"chmod -R u+rwx "$1"; cd "$1" && find . -mindepth 1 -delete 2>/dev/null || rm -rf ./* ./.[!.]* ./..?*"#;
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(top).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().map_err(|error| sandbox_io_error("empty", top, &error))?;
    let empty = fs::read_dir(top).is_ok_and(|mut entries| entries.next().is_none());
    if empty {
        Ok(())
    } else {
        Err(depot_error(DepotErrorKind::Failed, format!("cannot empty `{}`: {status}", top.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_for_silence_ends_only_after_output_stops() {
        let written = Arc::new(AtomicU64::new(0));
        let (begun, limit) = (Instant::now(), Duration::from_millis(300));
        let writing = thread::spawn({
            let mut to = CountingWriter { to: io::sink(), written: Arc::clone(&written) };
            move || {
                for _ in 0..10 {
                    thread::sleep(Duration::from_millis(50));
                    to.write_all(b"x").expect("written");
                }
                Instant::now()
            }
        });
        wait_for_silence(limit, Duration::from_millis(10), &written);
        let last = writing.join().expect("it writes");
        assert!(begun.elapsed() > 2 * limit && last.elapsed() >= limit - Duration::from_millis(60));
        assert_eq!(written.load(Ordering::Relaxed), 10);
    }

    #[test]
    fn permission_errors_in_a_sandbox_dir_are_refused() {
        let kind = |kind: io::ErrorKind| sandbox_io_error("open", Path::new("/x"), &kind.into()).kind;
        assert_eq!(kind(io::ErrorKind::PermissionDenied), DepotErrorKind::Refused);
        assert_eq!(kind(io::ErrorKind::StorageFull), DepotErrorKind::DiskFull);
        assert_eq!(kind(io::ErrorKind::NotFound), DepotErrorKind::NotFound);
        assert_eq!(kind(io::ErrorKind::Interrupted), DepotErrorKind::Failed);
        let said =
            git::error_from_stderr(&["add"], "error: open(\"x\"): Permission denied\nfatal: adding files failed\n");
        assert_eq!(salvage_error(said).kind, DepotErrorKind::Refused);
        assert_eq!(salvage_error(git::error_from_stderr(&["add"], "fatal: odd\n")).kind, DepotErrorKind::Failed);
    }
}
