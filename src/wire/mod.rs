//! The NDJSON codec: lines of at most 65,536 bytes, both ways.
//!
//! [`LineSplitter`] is fed chunks as they come; [`NdjsonCodec`] is the same for `tokio_util`'s framed readers and
//! writers. Must not: know what the lines say.

use bytes::Bytes;

mod codec;
mod splitter;

pub use codec::NdjsonCodec;
pub use splitter::LineSplitter;

/// Most bytes of a line, its newline not counted (ACP, Transport: 64 KB).
pub const MAX_LINE: usize = 65_536;

/// A line as it came, without its newline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// Within the limit, and UTF-8.
    Good(Bytes),
    /// Not: an item like any other, behind which the stream goes on.
    Bad(BadLine),
}

/// A line that cannot be a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// What is wrong with it.
    pub kind: BadLineKind,
    /// Its bytes, the newline not counted.
    pub length: u64,
    /// Its beginning, for a log; control characters escaped.
    pub excerpt: String,
}

/// What is wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadLineKind {
    /// Longer than [`MAX_LINE`].
    TooLong,
    /// Not UTF-8.
    NotUtf8,
}
