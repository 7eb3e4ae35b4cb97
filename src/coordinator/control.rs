//! The control socket: how `longshore stop` and `longshore admin` reach a running swarm.
//!
//! `control.sock` in the swarm's folder. One line of JSON each way a connection: [`ControlCommand`], then [`ControlReply`]. A socket's
//! path may have 108 bytes only, so it is reached through the open folder (`/proc/self/fd/N/control.sock`) where there is
//! `/proc`. Served by the coordinator; [`send`] is called by `cli/stop.rs`. To add a command: a variant, and its arm in the
//! coordinator's loop. Must not: carry anything secret.

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

/// The socket's name in the swarm's folder.
pub const SOCKET_FILE: &str = "control.sock";
/// The longest line, in bytes.
const MAX_LINE: u64 = 256 * 1024;
/// How long one connection may take.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// What a running swarm can be told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum ControlCommand {
    /// Stop.
    Stop {
        /// How hard.
        level: StopLevel,
    },
    /// A decision of the admin's.
    Decide {
        /// What.
        decision: TaskDecision,
    },
}

/// A command, and where its answer goes.
#[derive(Debug)]
pub struct ControlRequest {
    /// What is wanted.
    pub command: ControlCommand,
    /// Whether it is done.
    pub reply: oneshot::Sender<ControlReply>,
}

/// What it answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum ControlReply {
    /// The command will be carried out.
    Accepted,
    /// It will not.
    Refused {
        /// Why.
        problem: String,
    },
}

/// Why a swarm could not be told something.
#[derive(Debug, Error)]
pub enum ControlError {
    /// Nobody listens there.
    #[error("no orchestrator listens on `{}`", path.display())]
    NotListening {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It was reached, and the exchange failed.
    #[error("no answer from the orchestrator on `{}`", path.display())]
    NoReply {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Listens in the folder of a swarm whose lock the caller holds. Aborting the task closes and removes the socket.
pub fn serve(dir: &SwarmDir, commands: mpsc::Sender<ControlRequest>) -> io::Result<JoinHandle<()>> {
    let folder = dir.path();
    let path = folder.join(SOCKET_FILE);
    // What a killed orchestrator left; nobody else listens, because the lock is ours.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = with_short_path(&folder, UnixListener::bind)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    let socket = SocketGuard(path);
    Ok(tokio::spawn(async move {
        let _socket = socket;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    // One after the other: a client that says nothing holds the next one up for no longer than this.
                    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, handle_connection(stream, &commands)).await;
                }
                // Out of file descriptors, perhaps for a moment.
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
    let answer = match serde_json::from_str(&line) {
        Ok(command) => {
            let (answer, answered) = oneshot::channel();
            let _ = commands.send(ControlRequest { command, reply: answer }).await;
            // Nobody to answer where the loop has ended, or ends before it comes to it.
            answered.await.unwrap_or_else(|_| ControlReply::Refused { problem: "the swarm is ending".to_owned() })
        }
        Err(error) => ControlReply::Refused { problem: format!("not a command: {error}") },
    };
    stream.write_all(&to_json_line(&answer)?).await?;
    stream.shutdown().await
}

/// Tells a running swarm something and waits for its answer.
pub async fn send(dir: &SwarmDir, command: &ControlCommand) -> Result<ControlReply, ControlError> {
    let path = dir.path().join(SOCKET_FILE);
    let stream = with_short_path(&dir.path(), std::os::unix::net::UnixStream::connect)
        .and_then(|stream| stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream)))
        .map_err(|source| ControlError::NotListening { path: path.clone(), source })?;
    match tokio::time::timeout(2 * CONNECTION_TIMEOUT, exchange(stream, command)).await {
        Ok(Ok(answer)) => Ok(answer),
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

/// Calls `act` with a short path of the socket in this folder.
fn with_short_path<T>(folder: &Path, act: impl FnOnce(PathBuf) -> io::Result<T>) -> io::Result<T> {
    let open = File::open(folder)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
    // Elsewhere than on Linux the folder itself has to do.
    let base = if short.exists() { short } else { folder.to_owned() };
    act(base.join(SOCKET_FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(root: &Path) -> SwarmDir {
        let swarm = "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d".parse().expect("valid");
        SwarmDir::create(root, swarm).expect("a folder")
    }

    #[tokio::test]
    async fn stop_is_answered_even_with_a_long_socket_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let deep = folder.path().join("a".repeat(100)).join("b".repeat(100));
        std::fs::create_dir_all(&deep).expect("made");
        let dir = dir(&deep);
        let (commands, mut arrived) = mpsc::channel(1);
        std::fs::write(dir.path().join(SOCKET_FILE), "left behind").expect("written");
        let server = serve(&dir, commands).expect("listening");
        let stop = ControlCommand::Stop { level: StopLevel::Kill };
        let loop_of_it = async {
            let order = arrived.recv().await.expect("an order");
            order.reply.send(ControlReply::Accepted).expect("somebody waits");
            order.command
        };
        let (answer, command) = tokio::join!(send(&dir, &stop), loop_of_it);
        assert_eq!((answer.expect("answered"), command), (ControlReply::Accepted, stop.clone()));
        drop(arrived);
        assert!(matches!(send(&dir, &stop).await.expect("answered"), ControlReply::Refused { .. }));
        server.abort();
        let _ = server.await;
        assert!(!dir.path().join(SOCKET_FILE).exists());
        assert!(matches!(send(&dir, &stop).await, Err(ControlError::NotListening { .. })));
    }

    #[tokio::test]
    async fn invalid_commands_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = dir(folder.path());
        let (commands, mut arrived) = mpsc::channel(1);
        let server = serve(&dir, commands).expect("listening");
        for nonsense in ["{\"command\":\"dance\"}\n", "\n", "{\"command\":\"stop\",\"level\":\"kill\",\"x\":1}\n"] {
            let mut stream = UnixStream::connect(dir.path().join(SOCKET_FILE)).await.expect("connected");
            stream.write_all(nonsense.as_bytes()).await.expect("written");
            let mut text = String::new();
            stream.read_to_string(&mut text).await.expect("read");
            assert!(text.starts_with("{\"answer\":\"refused\""), "{nonsense}: {text}");
        }
        assert!(arrived.try_recv().is_err());
        server.abort();
    }
}
