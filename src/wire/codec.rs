//! The splitter as a codec of `tokio_util`. Used by `shim/` for its stdin and stdout, and in tests. Must not: end a stream
//! because of what a line is like.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use tokio_util::codec::{Decoder, Encoder};

use super::{LineSplitter, MAX_LINE_BYTES, WireLine};

/// Lines both ways: a `Decoder` of [`WireLine`]s and an `Encoder` of bytes.
///
/// The decoder takes all bytes out of the framed reader's buffer; the beginning of an unfinished line is inside the codec.
/// Its only errors are those of the reader. The encoder adds the newline, and refuses with `InvalidInput` a line that is
/// longer than [`MAX_LINE_BYTES`] or has a newline in it.
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
            return refused(format!("a line of {} bytes is over the limit of {MAX_LINE_BYTES}", line.len()));
        }
        if memchr::memchr(b'\n', line).is_some() {
            return refused("a line must not have a newline in it".to_owned());
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
mod tests {
    use futures::{SinkExt, StreamExt};
    use tokio::io::AsyncWriteExt;
    use tokio_util::codec::{FramedRead, FramedWrite};

    use super::*;
    use crate::wire::BadLineKind;

    #[tokio::test]
    async fn lines_after_a_bad_line_are_decoded() {
        let (mut writer, reader) = tokio::io::duplex(100);
        let writing = tokio::spawn(async move {
            writer.write_all(b"one\n").await.expect("the reader reads");
            writer.write_all(&[b'x'; MAX_LINE_BYTES + 1]).await.expect("the reader reads");
            writer.write_all("\n\u{e4} two\n\nlast".as_bytes()).await.expect("the reader reads");
        });
        let lines: Vec<WireLine> =
            FramedRead::new(reader, NdjsonCodec::new()).map(|line| line.expect("duplex does not fail")).collect().await;
        writing.await.expect("the writer ends");
        let [WireLine::Good(one), WireLine::Bad(bad), WireLine::Good(two), WireLine::Good(last)] = &lines[..] else {
            panic!("one, a bad line, two, last; found {lines:?}")
        };
        assert_eq!((&one[..], &two[..], &last[..]), (&b"one"[..], "\u{e4} two".as_bytes(), &b"last"[..]));
        assert_eq!((bad.kind, bad.length), (BadLineKind::TooLong, MAX_LINE_BYTES as u64 + 1));
    }

    #[tokio::test]
    async fn encoded_lines_are_decoded_unchanged() {
        let (writer, reader) = tokio::io::duplex(1 << 20);
        let most = Bytes::from(vec![b'x'; MAX_LINE_BYTES]);
        let mut sink = FramedWrite::new(writer, NdjsonCodec::new());
        sink.send(most.clone()).await.expect("the limit itself is allowed");
        sink.send(&b"{}"[..]).await.expect("a plain line");
        drop(sink);
        let lines: Vec<WireLine> =
            FramedRead::new(reader, NdjsonCodec::new()).map(|line| line.expect("duplex does not fail")).collect().await;
        assert_eq!(lines, [WireLine::Good(most), WireLine::Good(Bytes::from_static(b"{}"))]);
    }

    #[test]
    fn encoder_rejects_lines_the_decoder_would_reject() {
        let mut out = BytesMut::new();
        for line in [&vec![b'x'; MAX_LINE_BYTES + 1][..], b"{\n}"] {
            let error = NdjsonCodec::new().encode(line, &mut out).expect_err("refused");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
        assert!(out.is_empty());
    }
}
