//! The sandbox's end of ACP: the protocol descriptor, which nobody but the shim holds, and standard input.
//!
//! Used by `serve.rs` and `progress.rs`. Must not: know what the stories are.

use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::ids::{ContainerId, SwarmId};
use crate::protocol::acp::message::{ContainerMessage, Envelope, encode_container};
use crate::wire::{LineSplitter, WireLine};

/// Takes standard output away from everybody else: a private descriptor to it that no child inherits is returned, and
/// descriptor 1 becomes a second standard error.
pub fn claim_stdout() -> io::Result<File> {
    let private = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    Ok(File::from(private))
}

/// Reads lines on a thread of its own, so that a blocking read holds nothing up. The channel ends with the stream.
pub fn read_lines(mut input: impl Read + Send + 'static) -> mpsc::Receiver<WireLine> {
    let (send, receive) = mpsc::channel(16);
    thread::spawn(move || {
        let mut splitter = LineSplitter::new();
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let length = match input.read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(length) => length,
            };
            splitter.push(Bytes::copy_from_slice(&buffer[..length]));
            while let Some(line) = splitter.next_line() {
                if send.blocking_send(line).is_err() {
                    return;
                }
            }
        }
        if let Some(line) = splitter.finish() {
            let _ = send.blocking_send(line);
        }
    });
    receive
}

/// Who the sandbox is, for the envelope.
#[derive(Debug, Clone)]
pub struct SandboxIdentity {
    /// The swarm.
    pub swarm: SwarmId,
    /// This container.
    pub container: ContainerId,
}

/// Writes messages, one line each, whole. Cheap to clone.
#[derive(Clone)]
pub struct Channel {
    identity: SandboxIdentity,
    out: Arc<Mutex<Box<dyn Write + Send>>>,
}

impl Channel {
    /// Messages of this sender go to `out`.
    pub fn new(sender: SandboxIdentity, out: Arc<Mutex<Box<dyn Write + Send>>>) -> Self {
        Self { identity: sender, out }
    }

    /// Sends a message. That nobody reads any more is not an error: the result is in the work folder.
    pub fn send(&self, message: &ContainerMessage) {
        let envelope = Envelope {
            timestamp: jiff::Timestamp::now(),
            swarm_id: self.identity.swarm,
            container_id: self.identity.container.clone(),
        };
        let mut line = encode_container(&envelope, message);
        line.push(b'\n');
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = out.write_all(&line).and_then(|()| out.flush());
    }
}
