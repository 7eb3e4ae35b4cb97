//! Lines do not depend on how the stream is cut into chunks, and bad lines are items.

use proptest::prelude::*;

use super::*;

/// All lines of a stream that comes in these chunks.
fn lines(chunks: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Vec<WireLine> {
    let mut splitter = LineSplitter::new();
    let mut lines = Vec::new();
    for chunk in chunks {
        splitter.push(Bytes::copy_from_slice(chunk.as_ref()));
        lines.extend(std::iter::from_fn(|| splitter.next_line()));
        assert!(splitter.partial.len() <= MAX_LINE_BYTES && splitter.partial.capacity() <= 2 * MAX_LINE_BYTES);
    }
    lines.extend(std::iter::from_fn(|| splitter.finish()));
    lines
}

fn good(text: &str) -> WireLine {
    WireLine::Good(Bytes::copy_from_slice(text.as_bytes()))
}

fn bad(line: &WireLine) -> &BadLine {
    let WireLine::Bad(bad) = line else { panic!("expected a bad line, found {line:?}") };
    bad
}

#[test]
fn lines_end_at_newlines_and_the_last_needs_none() {
    assert_eq!(lines(["a\nbc\n\nd"]), [good("a"), good("bc"), good("d")]);
    assert_eq!(lines(["a", "b\nc", "\n"]), [good("ab"), good("c")]);
    assert_eq!(lines([""; 0]), []);
}

#[test]
fn blank_lines_are_skipped_and_carriage_returns_are_kept() {
    assert_eq!(lines(["\n \t\r\n\r\n{}\r\n  "]), [good("{}\r")]);
}

#[test]
fn a_line_in_one_chunk_is_not_copied() {
    let chunk = Bytes::from_static(b"first\nsecond\n");
    let mut splitter = LineSplitter::new();
    splitter.push(chunk.clone());
    let Some(WireLine::Good(line)) = splitter.next_line() else { panic!("a line") };
    assert_eq!(line.as_ptr(), chunk.as_ptr());
}

#[test]
fn several_chunks_can_be_pushed_before_reading() {
    let mut splitter = LineSplitter::new();
    for chunk in ["a", "b\nc\n", "", "d\n"] {
        splitter.push(Bytes::from_static(chunk.as_bytes()));
    }
    let all: Vec<WireLine> = std::iter::from_fn(|| splitter.finish()).collect();
    assert_eq!(all, [good("ab"), good("c"), good("d")]);
}

#[test]
fn the_limit_is_65536_bytes_without_the_newline() {
    let most = "x".repeat(MAX_LINE_BYTES);
    assert_eq!(lines([format!("{most}\nnext\n")]), [good(&most), good("next")]);
    let over = lines([format!("{most}y\nnext\n")]);
    assert_eq!((bad(&over[0]).kind, bad(&over[0]).length), (BadLineKind::TooLong, 65_537));
    assert_eq!(over[1..], [good("next")]);
}

#[test]
fn an_oversized_line_is_one_bad_line_and_the_stream_continues() {
    let mut stream = b"before\n".to_vec();
    stream.extend(std::iter::repeat_n(b'z', 10 << 20));
    stream.extend(b"\nafter\n");
    let found = lines(stream.chunks(4096));
    assert_eq!(found.len(), 3);
    assert_eq!((&found[0], &found[2]), (&good("before"), &good("after")));
    let bad = bad(&found[1]);
    assert_eq!((bad.kind, bad.length), (BadLineKind::TooLong, 10 << 20));
    assert_eq!(bad.excerpt, "z".repeat(EXCERPT_BYTES));
}

#[test]
fn an_over_long_last_line_is_reported_once() {
    let found = lines(vec![vec![b'z'; MAX_LINE_BYTES]; 3]);
    assert_eq!(found.len(), 1);
    assert_eq!(bad(&found[0]).length, 3 * MAX_LINE_BYTES as u64);
}

#[test]
fn a_line_that_is_not_utf8_is_one_bad_line() {
    let found = lines([&b"ok\n\xff\xfe\x1b[31m\nok\n"[..], b"cut \xf0\x9f"]);
    assert_eq!((&found[0], &found[2]), (&good("ok"), &good("ok")));
    assert_eq!((bad(&found[1]).kind, bad(&found[1]).length), (BadLineKind::NotUtf8, 7));
    assert_eq!(bad(&found[1]).excerpt, "\u{fffd}\u{fffd}\\u{1b}[31m");
    assert_eq!(bad(&found[3]).kind, BadLineKind::NotUtf8);
}

#[test]
fn an_excerpt_does_not_break_a_character() {
    let text = format!("{}€€", "x".repeat(EXCERPT_BYTES - 1));
    assert_eq!(excerpt(text.as_bytes(), &[]), "x".repeat(EXCERPT_BYTES - 1));
}

/// Pieces that streams are made of: text, broken bytes, blank lines, lines about as long as the limit.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => ".{0,40}".prop_map(String::into_bytes),
        4 => Just(b"\n".to_vec()),
        2 => prop::collection::vec(any::<u8>(), 0..40),
        1 => "[ \t\r\n]{0,6}".prop_map(String::into_bytes),
        1 => (MAX_LINE_BYTES - 3..MAX_LINE_BYTES + 3).prop_map(|length| vec![b'x'; length]),
    ]
}

proptest! {
    #[test]
    fn lines_do_not_depend_on_chunk_boundaries(
        pieces in prop::collection::vec(piece(), 0..24),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..24),
    ) {
        let stream = pieces.concat();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let chunks: Vec<&[u8]> = cuts.windows(2).map(|cut| &stream[cut[0]..cut[1]]).collect();
        let whole = lines([&stream]);
        prop_assert_eq!(&lines(chunks), &whole);
        // Compare with the simplest implementation.
        let plain: Vec<Vec<u8>> = stream
            .split(|byte| *byte == b'\n')
            .filter(|line| line.iter().any(|byte| !b" \t\r".contains(byte)))
            .map(<[u8]>::to_vec)
            .collect();
        prop_assert_eq!(plain.len(), whole.len());
        for (plain, line) in plain.iter().zip(&whole) {
            match line {
                WireLine::Good(bytes) => prop_assert_eq!(plain, bytes),
                WireLine::Bad(bad) => {
                    prop_assert_eq!(bad.length, plain.len() as u64);
                    let too_long = plain.len() > MAX_LINE_BYTES;
                    prop_assert_eq!(bad.kind == BadLineKind::TooLong, too_long);
                    prop_assert!(too_long || str::from_utf8(plain).is_err());
                }
            }
        }
    }

    #[test]
    fn byte_by_byte_gives_the_same_lines(stream in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert_eq!(lines(stream.chunks(1)), lines([&stream]));
    }
}
