//! The splitter as a codec of `tokio_util`.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio_util::codec::{Decoder, Encoder};

use super::{Line, LineSplitter};

/// Lines both ways: a `Decoder` of [`Line`]s and an `Encoder` of bytes.
#[derive(Debug, Default)]
pub struct NdjsonCodec {
    splitter: LineSplitter,
}

impl NdjsonCodec {
    /// At the beginning of a stream.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Decoder for NdjsonCodec {
    type Item = Line;
    type Error = io::Error;

    fn decode(&mut self, source: &mut BytesMut) -> Result<Option<Line>, io::Error> {
        if !source.is_empty() {
            self.splitter.push(source.split().freeze());
        }
        Ok(self.splitter.next_line())
    }
}

impl Encoder<&[u8]> for NdjsonCodec {
    type Error = io::Error;

    fn encode(&mut self, line: &[u8], out: &mut BytesMut) -> Result<(), io::Error> {
        out.extend_from_slice(line);
        Ok(())
    }
}

impl Encoder<Bytes> for NdjsonCodec {
    type Error = io::Error;

    fn encode(&mut self, line: Bytes, out: &mut BytesMut) -> Result<(), io::Error> {
        self.encode(line.as_ref(), out)
    }
}
