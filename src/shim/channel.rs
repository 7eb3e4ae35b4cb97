//! The sandbox's end of ACP: the protocol descriptor, which only the shim holds, and standard input.
//!
//! Used by `serve.rs` and everything that reports. Must not: know the stories.

use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::ids::{ContainerId, SwarmId};
use crate::protocol::acp::message::{Completion, CompletionStatus, ContainerMessage, Envelope, encode_container};
use crate::wire::{LineSplitter, WireLine};

/// Moves standard output to a private descriptor that no child inherits. Descriptor 1 becomes a second standard error.
pub fn claim_stdout() -> io::Result<File> {
    let private = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    Ok(File::from(private))
}

/// Reads lines on a thread of its own, so that a blocking read delays nothing. The channel ends with the stream.
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

/// The sandbox's ids in each envelope.
#[derive(Debug, Clone)]
pub struct SandboxIdentity {
    pub swarm: SwarmId,
    pub container: ContainerId,
}

/// Writes messages as whole lines. Cheap to clone.
#[derive(Clone)]
pub struct Channel {
    identity: SandboxIdentity,
    out: Arc<Mutex<Box<dyn Write + Send>>>,
}

impl Channel {
    pub fn new(identity: SandboxIdentity, out: Arc<Mutex<Box<dyn Write + Send>>>) -> Self {
        Self { identity, out }
    }

    /// Sends a message. A reader that is gone is no error: the result is in the work volume.
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

    pub fn send_completion(&self, status: CompletionStatus, errors: Vec<String>) {
        self.send(&ContainerMessage::Completion(Completion { status, pr_url: None, errors }));
    }
}
