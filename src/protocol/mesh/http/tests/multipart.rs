//! Tests of `multipart.rs`.

use proptest::prelude::*;

use super::*;

fn content_type(text: &str) -> ContentType {
    ContentType::parse(text).unwrap_or_else(|| panic!("{text}"))
}

fn parse_message(boundary: &str, body: &str) -> Result<(String, Vec<(String, String)>), String> {
    let content = content_type(&format!("multipart/related; boundary=\"{boundary}\""));
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    match parse(&content, &Bytes::copy_from_slice(body.as_bytes())) {
        Ok((frame, rest)) => Ok((text(&frame), rest.iter().map(|one| (one.cid.clone(), text(&one.data))).collect())),
        Err(fault) => Err(fault.reason_text().to_owned()),
    }
}

#[test]
fn rfc_2046_section_5_1_1_sample() {
    let body = "This is the preamble.\r\n--simple boundary\r\n\r\nimplicitly typed\r\n--simple boundary\t \r\n\
                Content-type: text/plain; charset=us-ascii\r\nContent-ID: <two>\r\n\r\nends with a line break\r\n\r\n\
                --simple boundary--\r\n\r\nThis is the epilogue.";
    let (frame, rest) = parse_message("simple boundary", body).expect("two parts");
    assert_eq!(frame, "implicitly typed");
    assert_eq!(rest, [("two".to_owned(), "ends with a line break\r\n".to_owned())]);
}

#[test]
fn only_a_whole_line_is_a_delimiter_and_header_lines_may_be_folded() {
    let body = "--b\r\n\r\n{}\r\n--b\r\nContent-ID:\r\n <x>\r\n\r\n\r\n--bc\r\n--b \u{e9}\r\n--b--";
    let (frame, rest) = parse_message("b", body).expect("two parts");
    assert_eq!((frame.as_str(), rest.len()), ("{}", 1));
    assert_eq!(rest[0], ("x".to_owned(), "\r\n--bc\r\n--b \u{e9}".to_owned()));
}

#[test]
fn rfc_2387_start_names_the_part_with_the_frame() {
    let body = "--b\r\nContent-ID: <one>\r\n\r\n1\r\n--b\r\nContent-ID: <two>\r\nContent-Type: application/json\r\n\r\n{}\r\n--b--";
    let content = content_type("multipart/related; boundary=b; start=\"<two>\"");
    let (frame, rest) = parse(&content, &Bytes::from_static(body.as_bytes())).expect("two parts");
    assert_eq!((&frame[..], rest.len(), rest[0].cid.as_str()), (&b"{}"[..], 1, "one"));
}

#[test]
fn malformed_multipart_bodies_are_refused() {
    let part = |id: &str| format!("--b\r\nContent-ID: <{id}>\r\n\r\nx\r\n");
    let many =
        format!("--b\r\n\r\n{{}}\r\n{}--b--", (0..=MAX_ATTACHMENTS).map(|n| part(&n.to_string())).collect::<String>());
    for (body, words) in [
        ("", "last delimiter"),
        ("--b", "last delimiter"),
        ("--b--", "no part has the frame"),
        ("--b\r\n\r\n{}", "last delimiter"),
        ("--b\r\n\r\n{}\r\n--b", "last delimiter"),
        ("--b\r\nno colon\r\n\r\n{}\r\n--b--", "no `:`"),
        ("--b\r\nA: b\r\n--b--", "no end of its header lines"),
        ("--b\r\n\r\n{}\r\n--b\r\n\r\nx\r\n--b--", "no `Content-ID`"),
        ("--b\r\n\r\n{}\r\n--b\r\nContent-ID: <a b>\r\n\r\nx\r\n--b--", "visible"),
        ("--b\r\nContent-Transfer-Encoding: base64\r\n\r\ne30=\r\n--b--", "must be `binary`"),
        ("--b\r\nContent-Type: text/html\r\n\r\n{}\r\n--b--", "amp+json"),
        (&many, "more than 64"),
    ] {
        let found = parse_message("b", body).expect_err(body);
        assert!(found.contains(words), "{body}: {found}");
    }
    for bad in ["multipart/related", "multipart/related; boundary=\"\"", "multipart/related; boundary=\"\u{e9}\""] {
        assert!(parse(&content_type(bad), &Bytes::new()).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn rendered_messages_parse_back(frame in ".{0,40}", data in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 1..5)) {
        let attachments: Vec<Attachment> = data
            .into_iter()
            .enumerate()
            .map(|(n, data)| Attachment { cid: format!("part-{n}"), media_type: "a/b".to_owned(), data: data.into() })
            .collect();
        let (text, body) = render(frame.as_bytes(), &attachments);
        let (found, rest) = parse(&content_type(&text), &body).expect("our own");
        prop_assert_eq!(&found[..], frame.as_bytes());
        prop_assert_eq!(rest, attachments);
    }

    #[test]
    fn parsing_never_panics(pieces in proptest::collection::vec(prop_oneof![Just("--b"), Just("\r\n"), Just("--"), Just("x: y"), Just("\r"), Just(" "), Just("Content-ID: <a>")], 0..40)) {
        let body = Bytes::from(pieces.concat());
        let _ = parse(&content_type("multipart/related; boundary=b"), &body);
    }
}
