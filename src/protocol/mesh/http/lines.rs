//! Frames in a stream: one a line, as `application/x-ndjson` has them, each bounded.
//!
//! Used by both ends of a stream. A line that is too long is told once and skipped up to its end; a blank one keeps a connection
//! alive and says nothing. Must not: look into a line.

use bytes::{Bytes, BytesMut};
use memchr::memchr;

/// A line of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// One that may be a frame.
    Whole(Bytes),
    /// One with more bytes than are taken.
    TooLong,
}

/// Pieces of a stream in, lines out.
#[derive(Debug)]
pub struct Lines {
    limit: usize,
    held: BytesMut,
    /// Where the search for the next end of a line goes on.
    searched: usize,
    skipping: bool,
}

impl Lines {
    /// Lines of up to `limit` bytes, their ends not counted.
    pub fn new(limit: usize) -> Self {
        Self { limit, held: BytesMut::new(), searched: 0, skipping: false }
    }

    /// Takes the next piece. The iterator has its lines.
    pub fn push(&mut self, piece: &[u8]) {
        self.held.extend_from_slice(piece);
    }

    /// What is left at the end of the stream: a last line need not have an end.
    pub fn rest(&mut self) -> Option<Line> {
        let line = self.held.split().freeze();
        self.searched = 0;
        if std::mem::take(&mut self.skipping) { None } else { self.made(line) }
    }

    fn made(&self, line: Bytes) -> Option<Line> {
        let line = if line.ends_with(b"\r") { line.slice(..line.len() - 1) } else { line };
        if line.len() > self.limit {
            return Some(Line::TooLong);
        }
        (!line.iter().all(u8::is_ascii_whitespace)).then_some(Line::Whole(line))
    }
}

impl Iterator for Lines {
    type Item = Line;

    /// The next line that is whole, if there is one.
    fn next(&mut self) -> Option<Line> {
        loop {
            let Some(place) = memchr(b'\n', &self.held[self.searched..]) else {
                let too_long = self.held.len() > self.limit + 1;
                if !too_long && !self.skipping {
                    self.searched = self.held.len();
                    return None;
                }
                self.held.clear();
                self.searched = 0;
                let told = std::mem::replace(&mut self.skipping, true);
                return (!told).then_some(Line::TooLong);
            };
            let line = self.held.split_to(self.searched + place + 1).freeze();
            self.searched = 0;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if let Some(line) = self.made(line.slice(..line.len() - 1)) {
                return Some(line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(limit: usize, pieces: &[&str]) -> Vec<String> {
        let mut lines = Lines::new(limit);
        let mut found = Vec::new();
        let word = |line: Line| match line {
            Line::Whole(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Line::TooLong => "TOO LONG".to_owned(),
        };
        for piece in pieces {
            lines.push(piece.as_bytes());
            found.extend(lines.by_ref().map(word));
        }
        found.extend(lines.rest().map(word));
        found
    }

    #[test]
    fn lines_come_whole_whatever_the_pieces_are() {
        let text = "one\r\n\n  \ntwo\nthree";
        let wanted = ["one", "two", "three"];
        assert_eq!(lines(100, &[text]), wanted);
        let pieces: Vec<String> = text.chars().map(String::from).collect();
        assert_eq!(lines(100, &pieces.iter().map(String::as_str).collect::<Vec<_>>()), wanted);
    }

    #[test]
    fn a_line_that_is_too_long_is_told_once_and_the_next_one_is_good() {
        let pieces = ["12345\n123456\nok\n", "1234567890", "1234567890", "1234567890\nok", "\n", "1234567"];
        assert_eq!(lines(5, &pieces), ["12345", "TOO LONG", "ok", "TOO LONG", "ok", "TOO LONG"]);
    }

    #[test]
    fn what_is_skipped_is_not_kept() {
        let mut lines = Lines::new(5);
        for _ in 0..1000 {
            lines.push(&[b'x'; 100]);
            assert!(lines.by_ref().count() <= 1);
            assert!(lines.held.len() <= 6);
        }
    }
}
