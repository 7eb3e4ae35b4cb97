//! The codec over in-memory streams.

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
