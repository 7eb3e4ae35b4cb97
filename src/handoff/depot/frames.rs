//! The depot's frames as bytes: `id: u32 LE, kind: u8, length: u32 LE, payload`, in both directions.
//!
//! Used by `engine/depot/` (incremental decoding of chunks) and `shim/depot/` (blocking reads); both share the header. Must not: know
//! what a payload means.

use thiserror::Error;

/// The largest payload of one frame, in bytes. A longer one breaks the stream.
pub const MAX_PAYLOAD: usize = 1024 * 1024;
/// The payload size of the `Data` frames that are written, in bytes.
pub const DATA_CHUNK_LEN: usize = 64 * 1024;
/// The bytes before the payload.
pub const FRAME_HEADER_LEN: usize = 9;

/// The meaning of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Host to depot: JSON [`DepotRequest`](super::DepotRequest).
    Request = 1,
    /// Either way: a chunk of the body.
    Data = 2,
    /// Host to depot: the body is complete.
    End = 3,
    /// Depot to host: JSON [`DepotResponse`](super::DepotResponse); the request is over.
    Done = 4,
    /// Depot to host: JSON [`DepotError`](super::DepotError); the request is over.
    Failed = 5,
    /// Depot to host, once, with id 0 and no payload: the depot is ready.
    Ready = 6,
}

/// The part of a frame before its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// The request that the frame belongs to.
    pub id: u32,
    /// The meaning of the frame.
    pub kind: FrameKind,
    /// The length of the payload, at most [`MAX_PAYLOAD`].
    pub length: usize,
}

/// A frame that breaks the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The kind is not a [`FrameKind`].
    #[error("a frame of unknown kind {0}")]
    UnknownKind(u8),
    /// The payload is longer than [`MAX_PAYLOAD`].
    #[error("a frame of {0} bytes, over the limit of {MAX_PAYLOAD}")]
    TooLong(usize),
}

impl FrameHeader {
    /// Parses a header.
    pub fn decode(bytes: &[u8; FRAME_HEADER_LEN]) -> Result<Self, FrameError> {
        use FrameKind::{Data, Done, End, Failed, Ready, Request};
        let [a, b, c, d, kind, e, f, g, h] = *bytes;
        let known = [Request, Data, End, Done, Failed, Ready].into_iter().find(|known| *known as u8 == kind);
        let kind = known.ok_or(FrameError::UnknownKind(kind))?;
        let length = usize::try_from(u32::from_le_bytes([e, f, g, h])).unwrap_or(usize::MAX);
        if length > MAX_PAYLOAD {
            return Err(FrameError::TooLong(length));
        }
        Ok(Self { id: u32::from_le_bytes([a, b, c, d]), kind, length })
    }

    /// The header as bytes, or an error if the payload is too long.
    pub fn encode(self) -> Result<[u8; FRAME_HEADER_LEN], FrameError> {
        let length = u32::try_from(self.length).ok().filter(|_| self.length <= MAX_PAYLOAD);
        let [e, f, g, h] = length.ok_or(FrameError::TooLong(self.length))?.to_le_bytes();
        let [a, b, c, d] = self.id.to_le_bytes();
        Ok([a, b, c, d, self.kind as u8, e, f, g, h])
    }
}

/// A whole frame as bytes, or an error if the payload is too long.
pub fn encode_frame(id: u32, kind: FrameKind, payload: &[u8]) -> Result<Vec<u8>, FrameError> {
    let header = FrameHeader { id, kind, length: payload.len() }.encode()?;
    Ok([&header[..], payload].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_matches_the_wire_format() {
        let frame = encode_frame(0x0102_0304, FrameKind::Data, b"x").expect("short");
        assert_eq!(frame, b"\x04\x03\x02\x01\x02\x01\x00\x00\x00x");
        let header = frame.first_chunk().expect("a header");
        let expected = FrameHeader { id: 0x0102_0304, kind: FrameKind::Data, length: 1 };
        assert_eq!(FrameHeader::decode(header), Ok(expected));
        let long = FrameHeader { length: MAX_PAYLOAD + 1, ..expected };
        assert_eq!(long.encode(), Err(FrameError::TooLong(MAX_PAYLOAD + 1)));
    }

    #[test]
    fn invalid_headers_are_rejected() {
        assert_eq!(FrameHeader::decode(b"\x01\0\0\0\x09\0\0\0\0"), Err(FrameError::UnknownKind(9)));
        assert_eq!(FrameHeader::decode(b"\x01\0\0\0\x02\xff\xff\xff\xff"), Err(FrameError::TooLong(u32::MAX as usize)));
    }
}
