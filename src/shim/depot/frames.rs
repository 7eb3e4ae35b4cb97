//! The depot's frames as bytes ([`handoff::depot`](crate::handoff::depot) has their form).
//!
//! Used by `depot/mod.rs`. Must not: know what is asked.

use std::io::{self, Read, Write};

use crate::handoff::depot::{FRAME_HEADER_LEN, FrameKind, MAX_PAYLOAD};

/// A frame from the host.
#[derive(Debug, PartialEq, Eq)]
pub struct HostFrame {
    /// The request that it belongs to.
    pub id: u32,
    /// What it is.
    pub kind: FrameKind,
    /// What it carries.
    pub payload: Vec<u8>,
}

/// Reads a frame; none where the stream ends between two.
pub fn read_frame(input: &mut impl Read) -> io::Result<Option<HostFrame>> {
    let mut header = [0; FRAME_HEADER_LEN];
    let mut have = 0;
    while have < FRAME_HEADER_LEN {
        match input.read(&mut header[have..]) {
            Ok(0) if have == 0 => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => have += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let kind = match header[4] {
        1 => FrameKind::Request,
        2 => FrameKind::Data,
        3 => FrameKind::End,
        other => return Err(invalid_data(format!("the host sent a frame of kind {other}"))),
    };
    let length = usize::try_from(number(5)).unwrap_or(usize::MAX);
    if length > MAX_PAYLOAD {
        return Err(invalid_data(format!("the host sent a frame of {length} bytes, and {MAX_PAYLOAD} is the limit")));
    }
    let mut payload = vec![0; length];
    input.read_exact(&mut payload)?;
    Ok(Some(HostFrame { id: number(0), kind, payload }))
}

/// Writes a frame whole. Callers hold the lock of the stream.
pub fn write_frame(output: &mut impl Write, id: u32, kind: FrameKind, payload: &[u8]) -> io::Result<()> {
    let length = u32::try_from(payload.len()).ok().filter(|_| payload.len() <= MAX_PAYLOAD);
    let Some(length) = length else { return Err(invalid_data(format!("a frame of {} bytes", payload.len()))) };
    let mut frame = Vec::with_capacity(FRAME_HEADER_LEN + payload.len());
    frame.extend_from_slice(&id.to_le_bytes());
    frame.push(kind as u8);
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(payload);
    output.write_all(&frame)?;
    output.flush()
}

fn invalid_data(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}
