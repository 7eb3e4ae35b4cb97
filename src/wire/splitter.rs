//! Chunks -> lines.

use bytes::Bytes;

use super::Line;

/// Cuts a stream of chunks into lines.
#[derive(Debug, Default)]
pub struct LineSplitter {
    chunk: Bytes,
}

impl LineSplitter {
    /// At the beginning of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the stream's next bytes.
    pub fn push(&mut self, chunk: Bytes) {
        self.chunk = chunk;
    }

    /// The next line; `None` until there are more bytes.
    pub fn next_line(&mut self) -> Option<Line> {
        unimplemented!("skeleton")
    }

    /// The stream ended: the unterminated last line, if there is one.
    pub fn finish(&mut self) -> Option<Line> {
        unimplemented!("skeleton")
    }
}
