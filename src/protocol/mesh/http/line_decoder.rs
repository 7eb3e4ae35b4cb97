//! Frames in a stream: one a line, as `application/x-ndjson` has them, each bounded.
//!
//! Used by both ends of a stream. A line that is too long is told once and skipped up to its end; a blank one keeps a connection
//! alive and says nothing. Must not: look into a line.

use bytes::{Bytes, BytesMut};
use memchr::memchr;

/// A line of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamLine {
    /// One that may be a frame.
    Complete(Bytes),
    /// One with more bytes than are taken.
    TooLong,
}

/// Pieces of a stream in, lines out.
#[derive(Debug)]
pub struct LineDecoder {
    limit: usize,
    buffer: BytesMut,
    /// Where the search for the next end of a line goes on.
    searched: usize,
    skipping: bool,
}

impl LineDecoder {
    /// Lines of up to `limit` bytes, their ends not counted.
    pub fn new(limit: usize) -> Self {
        Self { limit, buffer: BytesMut::new(), searched: 0, skipping: false }
    }

    /// Takes the next piece. The iterator has its lines.
    pub fn push(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// What is left at the end of the stream: a last line need not have an end.
    pub fn finish(&mut self) -> Option<StreamLine> {
        let line = self.buffer.split().freeze();
        self.searched = 0;
        if std::mem::take(&mut self.skipping) { None } else { self.to_line(line) }
    }

    fn to_line(&self, line: Bytes) -> Option<StreamLine> {
        let line = if line.ends_with(b"\r") { line.slice(..line.len() - 1) } else { line };
        if line.len() > self.limit {
            return Some(StreamLine::TooLong);
        }
        (!line.iter().all(u8::is_ascii_whitespace)).then_some(StreamLine::Complete(line))
    }
}

impl Iterator for LineDecoder {
    type Item = StreamLine;

    /// The next line that is whole, if there is one.
    fn next(&mut self) -> Option<StreamLine> {
        loop {
            let Some(place) = memchr(b'\n', &self.buffer[self.searched..]) else {
                let too_long = self.buffer.len() > self.limit + 1;
                if !too_long && !self.skipping {
                    self.searched = self.buffer.len();
                    return None;
                }
                self.buffer.clear();
                self.searched = 0;
                let told = std::mem::replace(&mut self.skipping, true);
                return (!told).then_some(StreamLine::TooLong);
            };
            let line = self.buffer.split_to(self.searched + place + 1).freeze();
            self.searched = 0;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if let Some(line) = self.to_line(line.slice(..line.len() - 1)) {
                return Some(line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
}
