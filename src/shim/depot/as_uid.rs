//! What the depot does in a sandbox's folder, done by a process of the sandbox's own user: the folder is hostile, and what
//! it could be made to point to is no more than that user could reach anyway.
//!
//! `acp-shim as UID read-out|salvage|discard ...` writes the answer's JSON on one line, then its data; a fault goes to
//! standard error as JSON, with exit code 1. The depot may not signal another user's process (it has no KILL), so this one
//! ends itself when it takes too long. Started by [`ask`], nobody else.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use super::super::children;
use super::super::clone::{CloneDir, Head, config_text, remove_folder};
use super::super::git;
use super::super::layout::Layout;
use super::super::salvage::Salvage;
use super::{Helper, Sender, fault, folders, io_fault};
use crate::handoff::assignment::Identity;
use crate::handoff::depot::{Answer, DepotFault, DepotFaultKind};
use crate::handoff::layout as names;
use crate::handoff::result::RESULT_MAX_BYTES;
use crate::ids::CommitId;

/// How long the process may take before it ends itself.
const LIMIT: Duration = Duration::from_secs(600);
/// The most of its standard error that is read.
const STDERR_LIMIT: u64 = 64 * 1024;

/// Starts the process for a request, passes its data on, and gives its answer.
pub(super) fn ask(
    helper: &Helper,
    layout: &Layout,
    uid: u32,
    args: &[String],
    sender: &Sender,
) -> Result<Answer, DepotFault> {
    let _ = layout;
    match helper {
        Helper::Program(program) => ask_program(program, uid, args, sender),
        #[cfg(test)]
        Helper::Here => {
            let words: Vec<&str> = args.iter().map(String::as_str).collect();
            let mut answered = Vec::new();
            carry_out(&words, layout, &mut answered)?;
            read_answer(&answered[..], sender)
        }
    }
}

fn ask_program(program: &Path, uid: u32, args: &[String], sender: &Sender) -> Result<Answer, DepotFault> {
    if uid == 0 {
        return Err(fault(DepotFaultKind::Refused, "a sandbox's user cannot be root"));
    }
    let mut command = Command::new(program);
    // `uid` gives up the supplementary groups too, where root sets it.
    command.arg("as").arg(uid.to_string()).args(args).uid(uid).gid(uid).process_group(0).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed =
        |what: &str, error: &io::Error| fault(DepotFaultKind::Failed, format!("cannot {what} as {uid}: {error}"));
    let (mut child, _owned) = children::spawn(|| command.spawn(), |child| Some(child.id()))
        .map_err(|error| failed("start the shim", &error))?;
    let stdout = child.stdout.take().expect("standard output is piped");
    let stderr = child.stderr.take().expect("standard error is piped");
    let listener = thread::spawn(move || {
        let mut text = Vec::new();
        let mut stderr = stderr.take(STDERR_LIMIT);
        let _ = stderr.read_to_end(&mut text);
        // The rest is drained, so that it does not block its writer.
        let _ = io::copy(&mut stderr.into_inner(), &mut io::sink());
        text
    });
    let answered = read_answer(stdout, sender);
    let status = child.wait().map_err(|error| failed("wait for the shim", &error))?;
    let said = listener.join().unwrap_or_default();
    if status.success() {
        return answered;
    }
    Err(serde_json::from_slice(&said).unwrap_or_else(|_| {
        let said = String::from_utf8_lossy(&said);
        fault(DepotFaultKind::Failed, format!("the shim as {uid} ended with {status}: {}", said.trim()))
    }))
}

/// The first line is the answer, what follows is its data.
fn read_answer(from: impl Read, sender: &Sender) -> Result<Answer, DepotFault> {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    let broken = |error: io::Error| fault(DepotFaultKind::Failed, format!("the data cannot be passed on: {error}"));
    from.by_ref().take(64 * 1024).read_until(b'\n', &mut line).map_err(broken)?;
    let answer = serde_json::from_slice(&line).map_err(|error| broken(error.into()))?;
    sender.pump(from).map_err(broken)?;
    Ok(answer)
}

/// The process itself, with the arguments behind `as UID`. The exit code.
pub fn main(uid: &str, args: &[&str], layout: &Layout) -> u8 {
    let is_user = |id: u32| uid.parse() == Ok(id);
    let carried_out = if is_user(rustix::process::getuid().as_raw()) && is_user(rustix::process::getgid().as_raw()) {
        thread::spawn(|| {
            thread::sleep(LIMIT);
            let late = fault(DepotFaultKind::Failed, format!("it took longer than {} s", LIMIT.as_secs()));
            tell(&late);
            // The group: git's processes too.
            let _ = rustix::process::kill_current_process_group(rustix::process::Signal::KILL);
        });
        carry_out(args, layout, &mut io::stdout().lock())
    } else {
        Err(fault(DepotFaultKind::Failed, format!("this process does not run as {uid}")))
    };
    match carried_out {
        Ok(()) => 0,
        Err(fault) => {
            tell(&fault);
            1
        }
    }
}

fn tell(fault: &DepotFault) {
    let text = serde_json::to_vec(fault).expect("a fault is always JSON");
    let _ = io::stderr().write_all(&text);
}

fn carry_out(args: &[&str], layout: &Layout, out: &mut impl Write) -> Result<(), DepotFault> {
    let number = |text: &str| {
        text.parse::<u64>().map_err(|_| fault(DepotFaultKind::Failed, format!("`{text}` is not a number of bytes")))
    };
    match args {
        ["read-out", folder, max] => read_out(layout, folder, number(max)?, out),
        ["salvage", folder, base, reference, max] => {
            let base: CommitId = base.parse().map_err(|error| fault(DepotFaultKind::Failed, format!("{error}")))?;
            salvage(layout, folder, &base, reference, number(max)?, out)
        }
        ["discard", folder] => {
            discard(layout, folder)?;
            send_answer(out, &Answer::Nothing)
        }
        _ => Err(fault(DepotFaultKind::Failed, format!("`{}` is not understood", args.join(" ")))),
    }
}

fn send_answer(out: &mut impl Write, answer: &Answer) -> Result<(), DepotFault> {
    let mut line = serde_json::to_vec(answer).expect("an answer is always JSON");
    line.push(b'\n');
    out.write_all(&line).map_err(|error| fault(DepotFaultKind::Failed, format!("cannot answer: {error}")))
}

/// Opens a file of a folder for reading: no link is followed, nothing but a regular file is taken, and a FIFO does not
/// block. None where there is nothing of that name.
fn open_plain(folder: &File, at: &Path, name: &str, limit: u64) -> Result<Option<(File, u64)>, DepotFault> {
    let path = at.join(name);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(folder, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::LOOP | rustix::io::Errno::NXIO) => {
            return Err(fault(DepotFaultKind::Refused, format!("`{}` is not a regular file", path.display())));
        }
        Err(error) => return Err(io_fault("read", &path, &error.into())),
    };
    let meta = file.metadata().map_err(|error| io_fault("read", &path, &error))?;
    if !meta.is_file() {
        return Err(fault(DepotFaultKind::Refused, format!("`{}` is not a regular file", path.display())));
    }
    if meta.len() > limit {
        let message = format!("`{}` has {} bytes, and {limit} is the limit", path.display(), meta.len());
        return Err(fault(DepotFaultKind::Refused, message));
    }
    Ok(Some((file, meta.len())))
}

fn open_folder(path: &Path) -> Result<File, DepotFault> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map(File::from).map_err(|error| match error {
        rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR => {
            fault(DepotFaultKind::Refused, format!("`{}` is not a folder", path.display()))
        }
        error => io_fault("open", path, &error.into()),
    })
}

/// `out/result.json`, then `out/result.bundle`.
fn read_out(layout: &Layout, folder: &str, max: u64, out: &mut impl Write) -> Result<(), DepotFault> {
    let at = layout.out(folder);
    let opened = open_folder(&at)?;
    let result = open_plain(&opened, &at, names::RESULT_FILE, RESULT_MAX_BYTES)?;
    let bundle = open_plain(&opened, &at, names::RESULT_BUNDLE, max)?;
    let result_bytes = result.as_ref().map_or(0, |(_, length)| *length);
    send_answer(out, &Answer::Collected { result_bytes, bundle: bundle.is_some() })?;
    for (name, found) in [(names::RESULT_FILE, result), (names::RESULT_BUNDLE, bundle)] {
        let Some((file, length)) = found else { continue };
        let copied = io::copy(&mut file.take(length), out).map_err(|error| io_fault("read", &at.join(name), &error))?;
        if copied != length {
            return Err(fault(
                DepotFaultKind::Refused,
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
) -> Result<(), DepotFault> {
    let repo = layout.repo(folder);
    open_folder(&repo)?;
    let objects_repo = layout.objects_repo();
    let identity = Identity { name: "longshore".into(), email: "longshore@localhost".into() };
    let format = if base.as_str().len() == 64 { "sha256" } else { "sha1" };
    let clone = CloneDir {
        head: Head::Commit(base.clone()),
        refs: Vec::new(),
        config: config_text(format, &identity, None, None),
        repo,
        objects_repo,
        identity,
    };
    let is_empty = fs::read_dir(&clone.repo).is_ok_and(|mut entries| entries.next().is_none());
    if is_empty {
        // The shim died before its clone: a tree without files would look like a deletion of all of them.
        return send_answer(out, &Answer::Salvaged { commit: None });
    }
    let bundle = layout.out(folder).join(names::RESULT_BUNDLE);
    let git = clone.git().within(LIMIT / 2);
    let kept = Salvage {
        clone: &clone,
        git: git.clone(),
        start: base,
        beside: Vec::new(),
        finished: Some(&bundle),
        reference,
        message: &format!("salvage {folder}\n\nWhat the sandbox had in its work folder when it ended.\n"),
    }
    .keep()?
    .commit;
    send_answer(out, &Answer::Salvaged { commit: kept.clone() })?;
    if kept.is_none() {
        return Ok(());
    }
    let args =
        ["bundle".to_owned(), "create".into(), "-q".into(), "-".into(), format!("^{base}"), reference.to_owned()];
    let mut command = git.command(&args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (mut child, _owned) = children::spawn(|| command.spawn(), |child| Some(child.id()))
        .map_err(|error| fault(DepotFaultKind::Failed, format!("cannot run `git`: {error}")))?;
    let mut stdout = child.stdout.take().expect("standard output is piped").take(max.saturating_add(1));
    let copied = io::copy(&mut stdout, out)
        .map_err(|error| fault(DepotFaultKind::Failed, format!("cannot pass the bundle on: {error}")))?;
    if copied > max {
        let _ = child.kill();
        let _ = child.wait();
        return Err(fault(DepotFaultKind::Refused, format!("the salvage has more than {max} bytes")));
    }
    let ended = child.wait_with_output().map_err(|error| fault(DepotFaultKind::Failed, error.to_string()))?;
    if ended.status.success() {
        Ok(())
    } else {
        Err(git::failed(&args, &String::from_utf8_lossy(&ended.stderr)).into())
    }
}

/// Empties the attempt's two folders. Their own entries are root's to remove.
fn discard(layout: &Layout, folder: &str) -> Result<(), DepotFault> {
    folders::check_name(folder)?;
    for top in [layout.work().join(folder), layout.inbox().join(folder)] {
        match fs::symlink_metadata(&top) {
            Err(_) => continue,
            Ok(meta) if !meta.is_dir() => {
                return Err(fault(DepotFaultKind::Refused, format!("`{}` is not a folder", top.display())));
            }
            Ok(_) => {}
        }
        // The user may empty it, and not remove it: the volume is root's. The error about that is expected.
        let _ = remove_folder(&top);
        let left = fs::read_dir(&top).map(|mut entries| entries.next().is_some());
        if left.unwrap_or(false) {
            remove_by_program(&top)?;
        }
    }
    Ok(())
}

/// For folders nested so deeply that paths and recursion do not reach them.
fn remove_by_program(top: &Path) -> Result<(), DepotFault> {
    let script =
        r#"chmod -R u+rwx "$1"; cd "$1" && find . -mindepth 1 -delete 2>/dev/null || rm -rf ./* ./.[!.]* ./..?*"#;
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(top).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().map_err(|error| io_fault("empty", top, &error))?;
    let empty = fs::read_dir(top).is_ok_and(|mut entries| entries.next().is_none());
    if empty {
        Ok(())
    } else {
        Err(fault(DepotFaultKind::Failed, format!("cannot empty `{}`: {status}", top.display())))
    }
}
