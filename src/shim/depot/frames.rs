//! Blocking reads and writes of the depot's frames ([`handoff::depot::frames`](crate::handoff::depot::frames) has their form).
//!
//! Used by `depot/mod.rs`. Must not: know what is asked.

use std::io::{self, Read, Write};

use crate::handoff::depot::frames::{FRAME_HEADER_LEN, FrameHeader, FrameKind, encode_frame};

/// A frame from the host.
#[derive(Debug, PartialEq, Eq)]
pub struct HostFrame {
    pub id: u32,
    pub kind: FrameKind,
    pub payload: Vec<u8>,
}

/// Reads a frame. `None` if the stream ends between two frames.
pub fn read_frame(input: &mut impl Read) -> io::Result<Option<HostFrame>> {
    let mut header = [0; FRAME_HEADER_LEN];
    let mut filled = 0;
    while filled < FRAME_HEADER_LEN {
        match input.read(&mut header[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let invalid = |problem: String| io::Error::new(io::ErrorKind::InvalidData, format!("the host sent {problem}"));
    let FrameHeader { id, kind, length } = FrameHeader::decode(&header).map_err(|error| invalid(error.to_string()))?;
    if !matches!(kind, FrameKind::Request | FrameKind::Data | FrameKind::End) {
        return Err(invalid(format!("a frame of kind {kind:?}")));
    }
    let mut payload = vec![0; length];
    input.read_exact(&mut payload)?;
    Ok(Some(HostFrame { id, kind, payload }))
}

/// Writes a whole frame. The caller holds the lock of the stream.
pub fn write_frame(output: &mut impl Write, id: u32, kind: FrameKind, payload: &[u8]) -> io::Result<()> {
    let frame = encode_frame(id, kind, payload).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    output.write_all(&frame)?;
    output.flush()
}
