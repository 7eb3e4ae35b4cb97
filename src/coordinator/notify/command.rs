//! Runs the user's command for an escalation: `sh -c` in the repo's root, with the message's JSON on standard input and its main
//! fields in variables.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use futures::FutureExt;
use futures::future::FusedFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use crate::protocol::amp::message::{AmpMessage, Payload};
use crate::report::text::sanitize;

/// The most bytes of standard error in the reported problem.
const MAX_STDERR_BYTES: usize = 400;
/// How long standard error is read after the command ended: a background child may hold it open.
const STDERR_DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

/// # Errors
/// The reason as text.
pub(super) async fn run(command: &str, root: &Path, message: &AmpMessage, limit: Duration) -> Result<(), String> {
    let Payload::Escalation(escalation) = message.payload() else { return Ok(()) };
    let word = |value: serde_json::Result<serde_json::Value>| -> String {
        value.ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
    };
    let mut shell = Command::new("sh");
    shell
        .args(["-c", command])
        .current_dir(root)
        .env("LONGSHORE_ESCALATION_TYPE", word(serde_json::to_value(escalation.escalation_type)))
        .env("LONGSHORE_ESCALATION_SEVERITY", word(serde_json::to_value(escalation.severity)))
        .env("LONGSHORE_ESCALATION_TASK", message.task_id().as_str())
        .env("LONGSHORE_ESCALATION_MSG_ID", message.id().to_string())
        // Without control characters: a variable cannot contain NUL.
        .env("LONGSHORE_ESCALATION_DESCRIPTION", sanitize(&escalation.description))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // Ctrl-C is for longshore only, and the whole group can be killed.
        .process_group(0)
        .kill_on_drop(true);
    let mut child = shell.spawn().map_err(|error| format!("`sh` cannot be started: {error}"))?;
    let group = ProcessGroup(child.id());
    let ended = tokio::time::timeout(limit, feed_and_wait(&mut child, message.to_json())).await;
    match ended {
        Ok(result) => {
            group.disarm();
            result
        }
        Err(_) => Err(format!("the command did not end within {} s, and was killed", limit.as_secs_f64())),
    }
}

/// The command's process group. Killed on drop unless disarmed.
struct ProcessGroup(Option<u32>);

impl ProcessGroup {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let id = self.0.and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(id) = id {
            let _ = rustix::process::kill_process_group(id, rustix::process::Signal::KILL);
        }
    }
}

async fn feed_and_wait(child: &mut Child, json: String) -> Result<(), String> {
    let (input, errors) = (child.stdin.take(), child.stderr.take());
    let write = async {
        if let Some(mut input) = input {
            // A command that uses only the variables does not read it.
            let _ = input.write_all(json.as_bytes()).await;
            let _ = input.write_all(b"\n").await;
        }
    };
    let mut stderr = Vec::new();
    let read = async {
        if let Some(mut errors) = errors {
            let mut piece = [0; 1024];
            while let Ok(count @ 1..) = errors.read(&mut piece).await {
                let room = MAX_STDERR_BYTES.saturating_sub(stderr.len()).min(count);
                stderr.extend_from_slice(&piece[..room]);
            }
        }
    };
    let ended = async {
        let (status, ()) = tokio::join!(child.wait(), write);
        status
    };
    let status = {
        let mut read = std::pin::pin!(read.fuse());
        let mut ended = std::pin::pin!(ended);
        let status = tokio::select! {
            status = &mut ended => status,
            () = &mut read => ended.await,
        };
        if !read.is_terminated() {
            let _ = tokio::time::timeout(STDERR_DRAIN_TIMEOUT, read).await;
        }
        status
    };
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            let stderr = sanitize(&String::from_utf8_lossy(&stderr));
            let stderr = if stderr.trim().is_empty() { String::new() } else { format!(": {}", stderr.trim()) };
            Err(format!("the command ended with {status}{stderr}"))
        }
        Err(error) => Err(format!("the command cannot be waited for: {error}")),
    }
}
