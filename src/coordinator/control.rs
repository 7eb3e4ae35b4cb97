//! The control socket: how `longshore stop` and `longshore admin` reach a running swarm.
//!
//! `control.sock` in the swarm's directory. A connection carries one line of JSON each way: [`ControlCommand`], then [`ControlReply`].
//! A socket's path is limited to 108 bytes, so it is opened relative to the directory (`/proc/self/fd/N/control.sock`) if there is a
//! `/proc`. Served by the coordinator; [`send`] is called by `cli/stop.rs` and `cli/admin`. To add a command: a variant, and its arm
//! in `event_loop.rs`. Must not: carry anything secret.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::state::SwarmDir;
use crate::swarm::{StopLevel, TaskDecision};

/// The socket's name in the swarm's directory.
pub const SOCKET_FILE: &str = "control.sock";
/// The longest line, in bytes.
const MAX_LINE: u64 = 256 * 1024;
/// How long one connection may take.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// A command to a running swarm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum ControlCommand {
    /// Stop the swarm.
    Stop {
        /// How hard to stop.
        level: StopLevel,
    },
    /// Apply a decision of the admin.
    Decide {
        /// The decision.
        decision: TaskDecision,
    },
}

/// A command, and the channel for its reply.
#[derive(Debug)]
pub struct ControlRequest {
    /// The command.
    pub command: ControlCommand,
    /// Takes the reply.
    pub reply: oneshot::Sender<ControlReply>,
}

/// The reply to a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum ControlReply {
    /// The command will be carried out.
    Accepted,
    /// The command will not be carried out.
    Refused {
        /// The reason.
        problem: String,
    },
}

/// Why a command could not be sent.
#[derive(Debug, Error)]
pub enum ControlError {
    /// No orchestrator listens on the socket.
    #[error("no orchestrator listens on `{}`", path.display())]
    NotListening {
        /// The socket.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// The connection failed.
    #[error("no answer from the orchestrator on `{}`", path.display())]
    NoReply {
        /// The socket.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
}

/// Listens in the directory of a swarm whose lock the caller holds. Aborting the task closes and removes the socket.
pub fn serve(dir: &SwarmDir, commands: mpsc::Sender<ControlRequest>) -> io::Result<JoinHandle<()>> {
    let dir = dir.path();
    let path = dir.join(SOCKET_FILE);
    // A killed orchestrator left it. Nobody listens: the caller holds the lock.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = with_short_path(&dir, UnixListener::bind)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    let socket = SocketGuard(path);
    Ok(tokio::spawn(async move {
        let _socket = socket;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    // One connection at a time: a silent client delays the next one by the timeout at most.
                    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, handle_connection(stream, &commands)).await;
                }
                // Out of file descriptors, perhaps temporarily.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }))
}

/// The socket's file, removed when the server ends.
struct SocketGuard(PathBuf);

impl Drop for SocketGuard {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

async fn handle_connection(mut stream: UnixStream, commands: &mpsc::Sender<ControlRequest>) -> io::Result<()> {
    let mut line = String::new();
    BufReader::new((&mut stream).take(MAX_LINE)).read_line(&mut line).await?;
    let reply = match serde_json::from_str(&line) {
        Ok(command) => {
            let (sender, reply) = oneshot::channel();
            let _ = commands.send(ControlRequest { command, reply: sender }).await;
            // The loop may have ended, or end before it handles the command.
            reply.await.unwrap_or_else(|_| ControlReply::Refused { problem: "the swarm is ending".to_owned() })
        }
        Err(error) => ControlReply::Refused { problem: format!("not a command: {error}") },
    };
    stream.write_all(&to_json_line(&reply)?).await?;
    stream.shutdown().await
}

/// Sends a command to a running swarm and waits for the reply.
pub async fn send(dir: &SwarmDir, command: &ControlCommand) -> Result<ControlReply, ControlError> {
    let path = dir.path().join(SOCKET_FILE);
    let stream = with_short_path(&dir.path(), std::os::unix::net::UnixStream::connect)
        .and_then(|stream| stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream)))
        .map_err(|source| ControlError::NotListening { path: path.clone(), source })?;
    match tokio::time::timeout(2 * CONNECTION_TIMEOUT, exchange(stream, command)).await {
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(source)) => Err(ControlError::NoReply { path, source }),
        Err(_) => Err(ControlError::NoReply { path, source: io::ErrorKind::TimedOut.into() }),
    }
}

async fn exchange(mut stream: UnixStream, command: &ControlCommand) -> io::Result<ControlReply> {
    stream.write_all(&to_json_line(command)?).await?;
    let mut line = String::new();
    BufReader::new(stream.take(MAX_LINE)).read_line(&mut line).await?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    serde_json::from_str(&line).map_err(io::Error::other)
}

fn to_json_line<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value).map_err(io::Error::other)?;
    line.push(b'\n');
    Ok(line)
}

/// Calls `act` with a short path of the socket in `dir`.
fn with_short_path<T>(dir: &Path, act: impl FnOnce(PathBuf) -> io::Result<T>) -> io::Result<T> {
    let open = File::open(dir)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
    // There is no `/proc` outside of Linux.
    let base = if short.exists() { short } else { dir.to_owned() };
    act(base.join(SOCKET_FILE))
}

#[cfg(test)]
mod tests;
