//! The NDJSON codec: lines of at most 65,536 bytes, both ways.
//!
//! [`LineSplitter`] takes chunks (`coordinator/`, from an engine's attached stream; `shim/`, from standard input). [`NdjsonCodec`] does
//! the same for `tokio_util`'s framed readers and writers. Must not: know the content of lines.
//!
//! # Lines
//!
//! * A line ends at `\n` only. A preceding `\r` is kept: JSON counts it as white space.
//! * A line of spaces, tabs and carriage returns only is skipped. It is neither an item nor an error.
//! * The last line may lack its newline. `finish` (or the codec's end of stream) returns it.
//! * A line of more than [`MAX_LINE_BYTES`] bytes is one [`WireLine::Bad`], however long it is. So is one that is not UTF-8. The
//!   stream then continues with the next line.
//!
//! Lines keep their order, and do not depend on how the stream is cut into chunks. Of an unfinished line, at most [`MAX_LINE_BYTES`]
//! bytes and a short excerpt are kept. Each byte is examined a fixed number of times.

use bytes::Bytes;

mod codec;
mod splitter;

pub use codec::NdjsonCodec;
pub use splitter::LineSplitter;

/// The most bytes of a line without its newline (ACP, Transport: 64 KB).
pub const MAX_LINE_BYTES: usize = 65_536;

/// A line without its newline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WireLine {
    /// UTF-8 within the limit. Often a slice of its chunk, which it keeps alive: copy it to keep it for long.
    Good(Bytes),
    /// Not a valid line. The stream continues.
    Bad(BadLine),
}

/// A line that cannot be a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// What is wrong with the line.
    pub kind: BadLineKind,
    /// The length in bytes without the newline.
    pub length: u64,
    /// The beginning, with control characters escaped. It may contain secrets, so the reader of task-requests must not log it.
    pub excerpt: String,
}

/// What is wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadLineKind {
    /// Longer than [`MAX_LINE_BYTES`].
    TooLong,
    /// Not UTF-8.
    NotUtf8,
}
