//! Splits chunks into lines, for callers without a reader and for the codec. Must not: do I/O or wait.

use std::collections::VecDeque;
use std::mem;

use bytes::{Buf, Bytes};

use super::{BadLine, BadLineKind, MAX_LINE_BYTES, WireLine};

/// The length of a bad line's excerpt.
const EXCERPT_BYTES: usize = 120;

/// Splits a stream of chunks into lines. Take all lines after each [`push`](Self::push): chunks that were not taken are kept whole.
#[derive(Debug, Default)]
pub struct LineSplitter {
    /// The chunk being split, without the lines already returned.
    chunk: Bytes,
    /// Chunks after it.
    pending: VecDeque<Bytes>,
    /// The beginning of an unfinished line; at most [`MAX_LINE_BYTES`] bytes.
    partial: Vec<u8>,
    /// Set while the rest of a line that is too long is dropped.
    oversized: Option<BadLine>,
}

impl LineSplitter {
    /// A splitter at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next bytes of the stream.
    pub fn push(&mut self, chunk: Bytes) {
        if self.chunk.is_empty() && self.pending.is_empty() {
            self.chunk = chunk;
        } else {
            self.pending.push_back(chunk);
        }
    }

    /// The next line; `None` until more bytes are pushed.
    pub fn next_line(&mut self) -> Option<WireLine> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.chunk) {
                let piece = self.chunk.split_to(end);
                self.chunk.advance(1);
                if let Some(line) = self.finish_line(piece) {
                    return Some(line);
                }
            } else {
                let piece = mem::take(&mut self.chunk);
                self.buffer_partial(&piece);
                self.chunk = self.pending.pop_front()?;
            }
        }
    }

    /// Call it at the end of the stream: returns the remaining lines, then the unterminated last one, then `None`.
    pub fn finish(&mut self) -> Option<WireLine> {
        self.next_line().or_else(|| self.finish_line(Bytes::new()))
    }

    /// Keeps a piece of an unfinished line, or counts it if the line is too long already.
    fn buffer_partial(&mut self, piece: &[u8]) {
        if let Some(bad) = &mut self.oversized {
            bad.length += piece.len() as u64;
        } else if self.partial.len() + piece.len() > MAX_LINE_BYTES {
            self.oversized = Some(self.oversized_line(piece));
            self.partial = Vec::new();
        } else {
            self.partial.extend_from_slice(piece);
        }
    }

    /// Ends a line with its last piece. Returns `None` for a blank line.
    fn finish_line(&mut self, piece: Bytes) -> Option<WireLine> {
        if let Some(mut bad) = self.oversized.take() {
            bad.length += piece.len() as u64;
            return Some(WireLine::Bad(bad));
        }
        if self.partial.len() + piece.len() > MAX_LINE_BYTES {
            let bad = self.oversized_line(&piece);
            self.partial.clear();
            return Some(WireLine::Bad(bad));
        }
        let line = if self.partial.is_empty() {
            piece
        } else {
            let mut whole = mem::take(&mut self.partial);
            whole.extend_from_slice(&piece);
            Bytes::from(whole)
        };
        if line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r')) {
            return None;
        }
        if str::from_utf8(&line).is_ok() {
            return Some(WireLine::Good(line));
        }
        let length = line.len() as u64;
        Some(WireLine::Bad(BadLine { kind: BadLineKind::NotUtf8, length, excerpt: excerpt(&line, &[]) }))
    }

    /// The line that gets too long with this piece.
    fn oversized_line(&self, piece: &[u8]) -> BadLine {
        let length = (self.partial.len() + piece.len()) as u64;
        BadLine { kind: BadLineKind::TooLong, length, excerpt: excerpt(&self.partial, piece) }
    }
}

fn excerpt(first: &[u8], second: &[u8]) -> String {
    let bytes: Vec<u8> = first.iter().chain(second).take(EXCERPT_BYTES).copied().collect();
    // Drop a character that the end of the excerpt cut in two.
    let whole = match str::from_utf8(&bytes) {
        Err(error) if error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => &bytes[..],
    };
    String::from_utf8_lossy(whole).chars().flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests;
