//! Runs the handler of an ultimate receiver: the processed frame on its standard input, the Body of the answer on its standard output.
//!
//! A handler that fails, times out or does not print a JSON object is a `Receiver` fault. Its standard error is inherited and never sent
//! to a peer. Must not: leave processes behind.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use super::super::fault::Fault;
use super::super::limits::{self, FrameLimits};
use super::status::HANDLER_FAILED;

#[derive(Debug, Clone)]
pub struct Handler {
    /// A command for `sh -c`.
    pub command: String,
    pub timeout: Duration,
    pub max_output_bytes: usize,
    /// Environment variables hidden from the command.
    pub removed_env: Vec<String>,
}

/// Kills the command's process group on drop.
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
    /// Runs the command for a frame. Returns the Body of the answer, within the limits.
    ///
    /// # Errors
    /// The fault to answer with.
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
        // A variable cannot contain NUL; drop all control characters.
        shell.envs(variables.iter().map(|(name, value)| (name, value.replace(|c: char| c.is_control(), ""))));
        let mut child = shell.spawn().map_err(|_| handler_failed("the handler cannot be started".to_owned()))?;
        let _group = ProcessGroupGuard(child.id());
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let write = async {
            if let Some(mut input) = input {
                // The handler need not read its input.
                let _ = input.write_all(frame).await;
                let _ = input.write_all(b"\n").await;
            }
        };
        let work = async {
            let (answer, ()) = tokio::join!(read_limited(output, self.max_output_bytes), write);
            (answer, child.wait().await)
        };
        let Ok((answer, status)) = tokio::time::timeout(self.timeout, work).await else {
            return Err(handler_failed(format!("the handler did not end within {} s", self.timeout.as_secs_f64())));
        };
        match status {
            Ok(status) if status.success() => {}
            Ok(status) => return Err(handler_failed(format!("the handler ended with {status}"))),
            Err(_) => return Err(handler_failed("the handler cannot be waited for".to_owned())),
        }
        let answer = answer.ok_or_else(|| {
            handler_failed(format!("the handler answered with more than {} bytes", self.max_output_bytes))
        })?;
        match limits::parse_json(&answer, limits) {
            Ok(Value::Object(body)) => Ok(body),
            Ok(_) => Err(handler_failed("the handler did not answer with a JSON object".to_owned())),
            Err(fault) => Err(invalid_output(&fault)),
        }
    }
}

fn handler_failed(problem: String) -> Box<Fault> {
    Fault::receiver(HANDLER_FAILED, problem)
}

/// The fault for output that cannot be part of a frame, such as a duplicate key or a nested frame.
pub(super) fn invalid_output(fault: &Fault) -> Box<Fault> {
    handler_failed(format!("the handler did not answer with a valid JSON object: {}", fault.reason_with_pointer()))
}

/// Reads the output. `None` if it exceeds the limit; then the rest stays unread, which stops the handler.
async fn read_limited(output: Option<impl AsyncRead + Unpin>, limit: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(output) = output {
        let mut bounded = output.take(limit as u64 + 1);
        let _ = bounded.read_to_end(&mut bytes).await;
    }
    (bytes.len() <= limit).then_some(bytes)
}
