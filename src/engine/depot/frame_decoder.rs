//! Incremental decoding of the depot's frames (`handoff/depot/frames.rs` has their form): chunks of the stream end anywhere.

use bytes::{Buf, Bytes, BytesMut};

use crate::handoff::depot::frames::{FRAME_HEADER_LEN, FrameError, FrameHeader, FrameKind};

#[derive(Debug, Clone, PartialEq)]
pub(super) struct DepotFrame {
    pub id: u32,
    pub kind: FrameKind,
    pub payload: Bytes,
}

/// Collects chunks and returns whole frames.
#[derive(Debug, Default)]
pub(super) struct FrameDecoder {
    buffer: BytesMut,
}

impl FrameDecoder {
    /// Adds a chunk. Take all frames out before the next one, or the buffer grows.
    pub(super) fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// The next whole frame, if there is one. After an error, the stream cannot be read any further.
    pub(super) fn next_frame(&mut self) -> Result<Option<DepotFrame>, FrameError> {
        let Some(header) = self.buffer.first_chunk::<FRAME_HEADER_LEN>() else { return Ok(None) };
        let FrameHeader { id, kind, length } = FrameHeader::decode(header)?;
        if self.buffer.len() < FRAME_HEADER_LEN + length {
            return Ok(None);
        }
        self.buffer.advance(FRAME_HEADER_LEN);
        Ok(Some(DepotFrame { id, kind, payload: self.buffer.split_to(length).freeze() }))
    }

    /// The bytes of an incomplete frame.
    pub(super) fn buffered_len(&self) -> usize {
        self.buffer.len()
    }
}

#[cfg(test)]
mod tests;
