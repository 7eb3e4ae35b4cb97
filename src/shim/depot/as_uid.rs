//! `acp-shim as UID read-out|salvage|discard ...`: the depot's access to a sandbox's directories, in a process of the sandbox's user.
//!
//! The process writes the response as a line of JSON, then its data. An error goes to standard error as JSON, with exit code 1. The
//! depot may not signal another user's process (it lacks KILL), so the process ends itself when it takes too long, a little before
//! the host gives up (`engine/depot/`: after 150 s without data for what an attempt left, 600 s for a removal).

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::super::children;
use super::super::layout::Layout;
use super::error::{failed, refused};
use super::sandbox_dir;
use super::streams::ResponseSender;
use crate::handoff::depot::{DepotError, DepotResponse};

/// How long a read-out or a salvage, whose git a sandbox may block, may write nothing before the process ends itself.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a removal may take.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(540);
/// How often the process checks whether it wrote something.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How the depot becomes a sandbox's user.
#[derive(Debug, Clone)]
pub enum SandboxUserHelper {
    /// It starts this program, the shim itself, as the user.
    Program(PathBuf),
    /// It does not: the current user accesses these volumes.
    #[cfg(test)]
    InProcess(Layout),
}

/// Runs a command as the user, forwards its data, and returns its response.
pub fn run_as_user(
    helper: &SandboxUserHelper,
    uid: u32,
    args: &[String],
    sender: &ResponseSender,
) -> Result<DepotResponse, DepotError> {
    match helper {
        SandboxUserHelper::Program(program) => spawn_as_user(program, uid, args, sender),
        #[cfg(test)]
        SandboxUserHelper::InProcess(layout) => {
            let words: Vec<&str> = args.iter().map(String::as_str).collect();
            let mut output = Vec::new();
            sandbox_dir::execute(&words, layout, &mut output)?;
            forward_response(&output[..], sender)
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
        return Err(refused("a sandbox's user cannot be root"));
    }
    let mut command = Command::new(program);
    // As root, `uid` also drops the supplementary groups.
    command.arg("as").arg(uid.to_string()).args(args).uid(uid).gid(uid).process_group(0).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (mut child, _owned) = children::spawn_command(&mut command)
        .map_err(|error| failed(format!("cannot start the shim as {uid}: {error}")))?;
    let stderr = children::drain(child.stderr.take().expect("standard error is piped"));
    let response = forward_response(child.stdout.take().expect("standard output is piped"), sender);
    let status = child.wait().map_err(|error| failed(format!("cannot wait for the shim as {uid}: {error}")))?;
    if status.success() {
        return response;
    }
    let stderr = stderr.join().unwrap_or_default();
    Err(serde_json::from_str(&stderr)
        .unwrap_or_else(|_| failed(format!("the shim as {uid} ended with {status}: {}", stderr.trim()))))
}

/// Reads the response from the first line, and forwards the data that follows.
fn forward_response(from: impl Read, sender: &ResponseSender) -> Result<DepotResponse, DepotError> {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    let broken = |error: io::Error| failed(format!("cannot forward the data: {error}"));
    from.by_ref().take(64 * 1024).read_until(b'\n', &mut line).map_err(broken)?;
    let response = serde_json::from_slice(&line).map_err(|error| broken(error.into()))?;
    sender.send_all(from).map_err(broken)?;
    Ok(response)
}

/// Runs the process with the arguments after `as UID`. Returns the exit code.
pub fn main(uid: &str, args: &[&str], layout: &Layout) -> u8 {
    let is_user = |id: u32| uid.parse() == Ok(id);
    let done = if is_user(rustix::process::getuid().as_raw()) && is_user(rustix::process::getgid().as_raw()) {
        let limit = if args.first() == Some(&"discard") { DISCARD_TIMEOUT } else { SILENCE_TIMEOUT };
        let written = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&written);
        thread::spawn(move || {
            wait_for_silence(limit, CHECK_INTERVAL, &seen);
            write_error(&failed(format!("no progress for {} s", limit.as_secs())));
            // The group includes git's processes.
            let _ = rustix::process::kill_current_process_group(rustix::process::Signal::KILL);
        });
        sandbox_dir::execute(args, layout, &mut CountingWriter { to: io::stdout().lock(), written })
    } else {
        Err(failed(format!("this process does not run as {uid}")))
    };
    match done {
        Ok(()) => 0,
        Err(error) => {
            write_error(&error);
            1
        }
    }
}

/// Returns once nothing was written for `limit`.
fn wait_for_silence(limit: Duration, interval: Duration, written: &AtomicU64) {
    let (mut seen, mut since) = (written.load(Ordering::Relaxed), Instant::now());
    while since.elapsed() < limit {
        thread::sleep(interval);
        let now = written.load(Ordering::Relaxed);
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
    }
}

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

fn write_error(error: &DepotError) {
    let text = serde_json::to_vec(error).expect("an error is always JSON");
    let _ = io::stderr().write_all(&text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_for_silence_ends_only_after_output_stops() {
        let written = Arc::new(AtomicU64::new(0));
        let (started_at, limit) = (Instant::now(), Duration::from_millis(300));
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
        assert!(started_at.elapsed() > 2 * limit && last.elapsed() >= limit - Duration::from_millis(60));
        assert_eq!(written.load(Ordering::Relaxed), 10);
    }
}
