//! Tests of `line_decoder.rs`.

use super::*;

fn decode_all(limit: usize, pieces: &[&str]) -> Vec<String> {
    let mut lines = LineDecoder::new(limit);
    let mut found = Vec::new();
    let word = |line: StreamLine| match line {
        StreamLine::Complete(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        StreamLine::TooLong => "TOO LONG".to_owned(),
    };
    for piece in pieces {
        lines.push(piece.as_bytes());
        found.extend(lines.by_ref().map(word));
    }
    found.extend(lines.finish().map(word));
    found
}

#[test]
fn lines_are_reassembled_from_any_chunks() {
    let text = "one\r\n\n  \ntwo\nthree";
    let wanted = ["one", "two", "three"];
    assert_eq!(decode_all(100, &[text]), wanted);
    let pieces: Vec<String> = text.chars().map(String::from).collect();
    assert_eq!(decode_all(100, &pieces.iter().map(String::as_str).collect::<Vec<_>>()), wanted);
}

#[test]
fn a_too_long_line_is_reported_once_and_the_next_is_decoded() {
    let pieces = ["12345\n123456\nok\n", "1234567890", "1234567890", "1234567890\nok", "\n", "1234567"];
    assert_eq!(decode_all(5, &pieces), ["12345", "TOO LONG", "ok", "TOO LONG", "ok", "TOO LONG"]);
}

#[test]
fn skipped_bytes_are_not_buffered() {
    let mut lines = LineDecoder::new(5);
    for _ in 0..1000 {
        lines.push(&[b'x'; 100]);
        assert!(lines.by_ref().count() <= 1);
        assert!(lines.buffer.len() <= 6);
    }
}
