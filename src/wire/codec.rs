//! The splitter as a codec of `tokio_util`, for framed readers and writers. Must not: end a stream because of a bad line.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use tokio_util::codec::{Decoder, Encoder};

use super::{LineSplitter, MAX_LINE_BYTES, WireLine};

/// A `Decoder` of [`WireLine`]s and an `Encoder` of bytes.
///
/// The decoder takes all bytes out of the framed reader's buffer, and keeps the beginning of an unfinished line. Its only errors are
/// those of the reader. The encoder adds the newline. It refuses lines that contain a newline or are longer than [`MAX_LINE_BYTES`],
/// with `InvalidInput`.
#[derive(Debug, Default)]
pub struct NdjsonCodec {
    splitter: LineSplitter,
}

impl NdjsonCodec {
    /// A codec at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Decoder for NdjsonCodec {
    type Item = WireLine;
    type Error = io::Error;

    fn decode(&mut self, source: &mut BytesMut) -> Result<Option<WireLine>, io::Error> {
        if !source.is_empty() {
            self.splitter.push(source.split().freeze());
        }
        Ok(self.splitter.next_line())
    }

    fn decode_eof(&mut self, source: &mut BytesMut) -> Result<Option<WireLine>, io::Error> {
        Ok(self.decode(source)?.or_else(|| self.splitter.finish()))
    }
}

impl Encoder<&[u8]> for NdjsonCodec {
    type Error = io::Error;

    fn encode(&mut self, line: &[u8], out: &mut BytesMut) -> Result<(), io::Error> {
        let refused = |problem: String| Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        if line.len() > MAX_LINE_BYTES {
            return refused(format!("a line of {} bytes exceeds the limit of {MAX_LINE_BYTES}", line.len()));
        }
        if memchr::memchr(b'\n', line).is_some() {
            return refused("a line must not contain a newline".to_owned());
        }
        out.reserve(line.len() + 1);
        out.put_slice(line);
        out.put_u8(b'\n');
        Ok(())
    }
}

impl Encoder<Bytes> for NdjsonCodec {
    type Error = io::Error;

    fn encode(&mut self, line: Bytes, out: &mut BytesMut) -> Result<(), io::Error> {
        self.encode(line.as_ref(), out)
    }
}

#[cfg(test)]
mod tests;
