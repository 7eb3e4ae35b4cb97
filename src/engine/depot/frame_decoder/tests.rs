//! Frames cut at any place, and invalid ones.

use super::*;
use crate::handoff::depot::frames::{MAX_PAYLOAD, encode_frame};

#[test]
fn frames_decode_across_any_chunk_size() {
    let mut stream = encode_frame(7, FrameKind::Data, b"abc").unwrap();
    stream.extend_from_slice(&encode_frame(u32::MAX, FrameKind::Done, b"").unwrap());
    for size in 1..stream.len() {
        let mut decoder = FrameDecoder::default();
        let mut frames = Vec::new();
        for chunk in stream.chunks(size) {
            decoder.push(chunk);
            while let Some(frame) = decoder.next_frame().unwrap() {
                frames.push(frame);
            }
        }
        let expected = [
            DepotFrame { id: 7, kind: FrameKind::Data, payload: Bytes::from_static(b"abc") },
            DepotFrame { id: u32::MAX, kind: FrameKind::Done, payload: Bytes::new() },
        ];
        assert_eq!(frames, expected, "in chunks of {size}");
        assert_eq!(decoder.buffered_len(), 0);
    }
}

#[test]
fn invalid_headers_are_rejected_before_the_payload() {
    let mut decoder = FrameDecoder::default();
    decoder.push(b"\x01\x00\x00\x00\x09\x00\x00\x00\x00");
    assert_eq!(decoder.next_frame(), Err(FrameError::UnknownKind(9)));
    let mut decoder = FrameDecoder::default();
    decoder.push(b"\x01\x00\x00\x00\x02\xff\xff\xff\xff");
    assert_eq!(decoder.next_frame(), Err(FrameError::TooLong(u32::MAX as usize)));
}

/// Decodes arbitrary data in chunks of `size`. The buffer never holds more than one frame.
fn decode_in_chunks(data: &[u8], size: usize) -> (Vec<DepotFrame>, Option<FrameError>) {
    let mut decoder = FrameDecoder::default();
    let mut frames = Vec::new();
    for chunk in data.chunks(size) {
        decoder.push(chunk);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
        assert!(decoder.buffered_len() < FRAME_HEADER_LEN + MAX_PAYLOAD);
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
            stream.extend_from_slice(&encode_frame(next(4) as u32, kind, &vec![7; next(200)]).unwrap());
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
