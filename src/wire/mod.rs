//! The NDJSON codec: lines of at most 65,536 bytes, both ways.
//!
//! [`LineSplitter`] is fed chunks as they come (`coordinator/`, from an engine's attached stream); [`NdjsonCodec`] is the
//! same for `tokio_util`'s framed readers and writers (`shim/`). Must not: know what the lines say.
//!
//! # What a line is
//!
//! * It ends at `\n`, and only there. A `\r` before it is left where it is: JSON counts it as white space.
//! * A line of nothing but spaces, tabs and carriage returns says nothing. It is no item, in no count, and no error.
//! * The last line may lack its newline: `finish` (or the codec's end of stream) gives it out.
//! * A line of more than [`MAX_LINE_BYTES`] bytes is one [`WireLine::Bad`], however long it is. So is one that is not UTF-8. The
//!   lines behind it come as if it had not been there.
//!
//! Lines come out in the order in which they went in. Wherever the chunks were cut, the lines are the same. What is kept
//! of an unfinished line is at most [`MAX_LINE_BYTES`] bytes and a short excerpt; each byte is looked at a fixed number of times.

use bytes::Bytes;

mod codec;
mod splitter;

pub use codec::NdjsonCodec;
pub use splitter::LineSplitter;

/// Most bytes of a line, its newline not counted (ACP, Transport: 64 KB).
pub const MAX_LINE_BYTES: usize = 65_536;

/// A line as it came, without its newline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WireLine {
    /// Within the limit, and UTF-8. Often a slice of the chunk that it came in, which it keeps alive: copy what is to be
    /// kept for long.
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
    /// Its beginning, for people; control characters escaped. It may hold anything that the line held, secrets too: not
    /// for logs of the side that reads task-requests.
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
