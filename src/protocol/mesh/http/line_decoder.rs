//! Splits a stream of frames (`application/x-ndjson`) into bounded lines, for both ends of a stream.
//!
//! An overlong line is reported once and skipped; blank lines, which keep a connection alive, are dropped.

use bytes::{Bytes, BytesMut};
use memchr::memchr;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamLine {
    Complete(Bytes),
    /// Exceeds the limit.
    TooLong,
}

/// Push chunks in, iterate over the lines.
#[derive(Debug)]
pub struct LineDecoder {
    limit: usize,
    buffer: BytesMut,
    /// Bytes already searched for a line break.
    searched: usize,
    skipping: bool,
}

impl LineDecoder {
    /// `limit`: bytes of a line without its end.
    pub fn new(limit: usize) -> Self {
        Self { limit, buffer: BytesMut::new(), searched: 0, skipping: false }
    }

    pub fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// The last line at the end of the stream, which needs no line break.
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

    /// The next complete line.
    fn next(&mut self) -> Option<StreamLine> {
        loop {
            let Some(offset) = memchr(b'\n', &self.buffer[self.searched..]) else {
                let too_long = self.buffer.len() > self.limit + 1;
                if !too_long && !self.skipping {
                    self.searched = self.buffer.len();
                    return None;
                }
                self.buffer.clear();
                self.searched = 0;
                let reported = std::mem::replace(&mut self.skipping, true);
                return (!reported).then_some(StreamLine::TooLong);
            };
            let line = self.buffer.split_to(self.searched + offset + 1).freeze();
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
#[path = "tests/line_decoder.rs"]
mod tests;
