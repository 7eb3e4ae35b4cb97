//! The program behind an ultimate receiver: the processed frame on its standard input, and the Body of the answer on its standard output.
//!
//! Called by `node_service.rs`. What fails, is killed by a signal, takes too long or says no JSON object is a `Receiver` fault; what it
//! writes to standard error is this program's own, and never told to a peer. Must not: leave anything of its running behind.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use super::super::fault::Fault;
use super::super::limits::{self, FrameLimits};
use super::status::HANDLER_FAILED;

/// A command for `sh -c`.
#[derive(Debug, Clone)]
pub struct Handler {
    /// The command.
    pub command: String,
    /// How long it may take.
    pub timeout: Duration,
    /// The most bytes that it may answer.
    pub max_output_bytes: usize,
    /// Variables that it must not see.
    pub removed_env: Vec<String>,
}

/// The command's process group, killed when it is no longer waited for.
struct ProcessGroupGuard(Option<u32>);

impl Drop for ProcessGroupGuard {
    fn drop(&mut self) {
        let id = self.0.and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(id) = id {
            let _ = rustix::process::kill_process_group(id, rustix::process::Signal::KILL);
        }
    }
}

impl Handler {
    /// Runs it with a frame and more variables: the Body of the answer, within these limits.
    ///
    /// # Errors
    /// The fault that the sender is told.
    pub async fn run(
        &self,
        frame: &[u8],
        variables: &[(&str, String)],
        limits: &FrameLimits,
    ) -> Result<Map<String, Value>, Box<Fault>> {
        let mut shell = Command::new("sh");
        shell.args(["-c", &self.command]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        shell.process_group(0).kill_on_drop(true);
        for name in &self.removed_env {
            shell.env_remove(name);
        }
        // Without control characters: a NUL cannot be in a variable.
        shell.envs(variables.iter().map(|(name, value)| (name, value.replace(|c: char| c.is_control(), ""))));
        let mut child = shell.spawn().map_err(|_| handler_failed("the handler cannot be started".to_owned()))?;
        let _group = ProcessGroupGuard(child.id());
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let write = async {
            if let Some(mut input) = input {
                // One that does not read it is content with less.
                let _ = input.write_all(frame).await;
                let _ = input.write_all(b"\n").await;
            }
        };
        let work = async {
            let (said, ()) = tokio::join!(read_limited(output, self.max_output_bytes), write);
            (said, child.wait().await)
        };
        let Ok((said, status)) = tokio::time::timeout(self.timeout, work).await else {
            return Err(handler_failed(format!("the handler did not end within {} s", self.timeout.as_secs_f64())));
        };
        match status {
            Ok(status) if status.success() => {}
            Ok(status) => return Err(handler_failed(format!("the handler ended with {status}"))),
            Err(_) => return Err(handler_failed("the handler cannot be waited for".to_owned())),
        }
        let said = said.ok_or_else(|| {
            handler_failed(format!("the handler answered with more than {} bytes", self.max_output_bytes))
        })?;
        match limits::parse_json(&said, limits) {
            Ok(Value::Object(body)) => Ok(body),
            Ok(_) => Err(handler_failed("the handler did not answer with a JSON object".to_owned())),
            Err(fault) => Err(invalid_output(&fault)),
        }
    }
}

fn handler_failed(problem: String) -> Box<Fault> {
    Fault::receiver(HANDLER_FAILED, problem)
}

/// What the handler said is nothing that could be sent: a number that is not the same for everybody, a key twice, a frame in a frame.
pub(super) fn invalid_output(fault: &Fault) -> Box<Fault> {
    let place = fault.pointer().filter(|pointer| !pointer.is_empty()).map(|pointer| format!(", at `{pointer}`"));
    handler_failed(format!(
        "the handler did not answer with a JSON object that a frame may have: {}{}",
        fault.reason_text(),
        place.unwrap_or_default()
    ))
}

/// All that it says, up to a limit; what is over is not read, so that it cannot go on.
async fn read_limited(output: Option<impl AsyncRead + Unpin>, limit: usize) -> Option<Vec<u8>> {
    let mut said = Vec::new();
    if let Some(output) = output {
        let mut bounded = output.take(limit as u64 + 1);
        let _ = bounded.read_to_end(&mut said).await;
    }
    (said.len() <= limit).then_some(said)
}
