//! Bytes to frames and back (`handoff/depot.rs` has their form). Chunks of the stream are cut anywhere; a frame is whole.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::handoff::depot::{FRAME_HEADER_LEN, FrameKind, MAX_PAYLOAD};

/// A frame as it arrived.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DepotFrame {
    pub id: u32,
    pub kind: FrameKind,
    pub payload: Bytes,
}

/// Collects chunks and gives frames.
#[derive(Debug, Default)]
pub(super) struct FrameDecoder {
    buffer: BytesMut,
}

impl FrameDecoder {
    /// Adds a chunk. Take all frames out before the next, or the buffer grows.
    pub(super) fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// The next whole frame, if there is one. After an error the stream cannot be read any further.
    pub(super) fn next_frame(&mut self) -> Result<Option<DepotFrame>, String> {
        let Some(header) = self.buffer.first_chunk::<FRAME_HEADER_LEN>() else { return Ok(None) };
        let mut header = &header[..];
        let (id, kind, length) = (header.get_u32_le(), header.get_u8(), header.get_u32_le());
        let Some(kind) = parse_kind(kind) else { return Err(format!("it sent a frame of the unknown kind {kind}")) };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > MAX_PAYLOAD {
            return Err(format!("it sent a frame of {length} bytes, and {MAX_PAYLOAD} is the most"));
        }
        if self.buffer.len() < FRAME_HEADER_LEN + length {
            return Ok(None);
        }
        self.buffer.advance(FRAME_HEADER_LEN);
        Ok(Some(DepotFrame { id, kind, payload: self.buffer.split_to(length).freeze() }))
    }

    /// Bytes of a frame that is not whole.
    pub(super) fn buffered_len(&self) -> usize {
        self.buffer.len()
    }
}

/// A frame as it is written. The payload must not be longer than [`MAX_PAYLOAD`].
pub(super) fn encode_frame(id: u32, kind: FrameKind, payload: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(FRAME_HEADER_LEN + payload.len());
    bytes.put_slice(&encode_header(id, kind, payload.len()));
    bytes.put_slice(payload);
    bytes.freeze()
}

/// The bytes before a payload.
pub(super) fn encode_header(id: u32, kind: FrameKind, length: usize) -> [u8; FRAME_HEADER_LEN] {
    debug_assert!(length <= MAX_PAYLOAD, "a payload of {length} bytes");
    let length = u32::try_from(length).expect("a payload is at most MAX_PAYLOAD, far below 4 GiB");
    let mut bytes = [0; FRAME_HEADER_LEN];
    let mut rest = &mut bytes[..];
    rest.put_u32_le(id);
    rest.put_u8(kind as u8);
    rest.put_u32_le(length);
    bytes
}

fn parse_kind(byte: u8) -> Option<FrameKind> {
    use FrameKind::{Data, Done, End, Failed, Ready, Request};
    [Request, Data, End, Done, Failed, Ready].into_iter().find(|kind| *kind as u8 == byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_decode_across_any_chunk_size() {
        let mut stream = encode_frame(7, FrameKind::Data, b"abc").to_vec();
        stream.extend_from_slice(&encode_frame(u32::MAX, FrameKind::Done, b""));
        for size in 1..stream.len() {
            let mut reader = FrameDecoder::default();
            let mut frames = Vec::new();
            for chunk in stream.chunks(size) {
                reader.push(chunk);
                while let Some(frame) = reader.next_frame().unwrap() {
                    frames.push(frame);
                }
            }
            let expected = [
                DepotFrame { id: 7, kind: FrameKind::Data, payload: Bytes::from_static(b"abc") },
                DepotFrame { id: u32::MAX, kind: FrameKind::Done, payload: Bytes::new() },
            ];
            assert_eq!(frames, expected, "in chunks of {size}");
            assert_eq!(reader.buffered_len(), 0);
        }
    }

    #[test]
    fn encoding_matches_the_wire_format() {
        assert_eq!(&encode_frame(0x0102_0304, FrameKind::Data, b"x")[..], b"\x04\x03\x02\x01\x02\x01\x00\x00\x00x");
    }

    #[test]
    fn invalid_headers_are_rejected_before_the_payload() {
        let mut reader = FrameDecoder::default();
        reader.push(b"\x01\x00\x00\x00\x09\x00\x00\x00\x00");
        assert!(reader.next_frame().unwrap_err().contains("kind 9"));
        let mut reader = FrameDecoder::default();
        reader.push(b"\x01\x00\x00\x00\x02\xff\xff\xff\xff");
        assert!(reader.next_frame().unwrap_err().contains("4294967295 bytes"));
    }

    /// Fuzz target: whatever comes, and however it is cut, the frames are the same up to the same fault, and no more is kept
    /// than one frame can have.
    fn decode_in_chunks(data: &[u8], size: usize) -> (Vec<DepotFrame>, Option<String>) {
        let mut reader = FrameDecoder::default();
        let mut frames = Vec::new();
        for chunk in data.chunks(size) {
            reader.push(chunk);
            loop {
                match reader.next_frame() {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => break,
                    Err(fault) => return (frames, Some(fault)),
                }
            }
            assert!(reader.buffered_len() < FRAME_HEADER_LEN + MAX_PAYLOAD);
        }
        (frames, None)
    }

    #[test]
    fn arbitrary_bytes_decode_the_same_in_any_chunking() {
        let mut state = 1_u64;
        let mut next = |end: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % end
        };
        let mut whole = 0;
        for _ in 0..3000 {
            let mut stream = Vec::new();
            for _ in 0..next(5) {
                let kind = [FrameKind::Data, FrameKind::Done, FrameKind::Failed, FrameKind::Ready][next(4)];
                stream.extend_from_slice(&encode_frame(next(4) as u32, kind, &vec![7; next(200)]));
            }
            for _ in 0..next(3) {
                if !stream.is_empty() {
                    let at = next(stream.len());
                    stream[at] = next(256) as u8;
                }
            }
            let found = decode_in_chunks(&stream, 1 + next(40));
            assert_eq!(found, decode_in_chunks(&stream, usize::MAX), "{stream:?}");
            whole += found.0.len();
        }
        assert!(whole > 1000, "{whole}");
    }
}
