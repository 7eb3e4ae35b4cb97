//! Attacks: slow and huge requests, DNS rebinding, web pages.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Node, send, wait_until};

const FRAME: &str = r#"{"frame":{"Header":{"messageId":"m-1"},"Body":{"task":"t"}}}"#;
const AMP: &str = "Content-Type: application/amp+json";

#[test]
fn slow_requests_time_out_without_blocking_others() {
    let node = Node::last(&["--patience", "1s"]);
    let prefixes: [&[u8]; 5] = [
        b"",
        b"PRI * HT",
        b"POST /mesh HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
        b"POST /mesh HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/amp+json\r\nContent-Length: 100\r\n\r\n{",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ];
    let mut slow: Vec<_> = (0..100)
        .map(|number| {
            let mut stream = node.connect();
            stream.write_all(prefixes[number % prefixes.len()]).expect("it listens");
            stream
        })
        .collect();
    let start = Instant::now();
    for flags in [&[][..], &["--http2"]] {
        assert_eq!(send(&node.url, FRAME, flags).code, Some(0), "{flags:?}");
    }
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    // The node closes each of them, with or without a response.
    for (number, stream) in slow.iter_mut().enumerate() {
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        assert!(
            ended.is_ok() || ended.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset),
            "connection {number}"
        );
    }
}

#[test]
fn a_huge_body_is_refused_before_it_is_read() {
    let node = Node::last(&["--max-frame", "64k"]);
    let head = |more: &str| {
        format!("POST /mesh HTTP/1.1\r\nHost: {}\r\n{AMP}\r\nConnection: close\r\n{more}\r\n", node.address)
    };
    let output = node.raw(head("Content-Length: 1000000000000\r\n").as_bytes());
    assert_eq!((output.status, output.subcode()), (413, "LimitExceeded"));
    // A body of undeclared length ends at the limit.
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    let endless = [head("Transfer-Encoding: chunked\r\n"), chunk.repeat(3)].concat();
    let output = node.raw(endless.as_bytes());
    assert_eq!((output.status, output.subcode()), (413, "LimitExceeded"));
    let long = json!({"frame": {"Body": {"text": "x".repeat(70_000)}}}).to_string();
    let output = node.post("/mesh", &[AMP], long.as_bytes());
    assert_eq!((output.status, output.subcode()), (413, "LimitExceeded"));
    let many = format!("X-Many: {}\r\n", "x".repeat(200_000));
    assert_eq!(node.raw(head(&many).as_bytes()).status, 431);
    assert_eq!(send(&node.url, FRAME, &[]).code, Some(0));
}

#[test]
fn an_overlong_line_is_a_fault_and_the_stream_continues() {
    let node = Node::last(&["--max-frame", "64k"]);
    let lines = format!("{}\n{FRAME}\n", "x".repeat(1_000_000));
    let mut answer = node.connect();
    let head = format!(
        "POST /mesh/stream HTTP/1.1\r\nHost: {}\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        node.address,
        lines.len()
    );
    answer.write_all(head.as_bytes()).and_then(|()| answer.write_all(lines.as_bytes())).expect("it reads");
    let mut text = String::new();
    answer.read_to_string(&mut text).expect("text");
    let (fault, good) = (text.find("LimitExceeded"), text.find("acknowledgment"));
    assert!(fault.is_some() && fault < good, "{text}");
}

#[test]
fn section_7_3_requests_from_web_pages_are_refused() {
    let node = Node::last(&[]);
    for host in ["Host: evil.example", "Host: evil.example:80", "Host: 10.0.0.1", "Host: localhost.evil.example"] {
        let answer = node.post("/mesh", &[host, AMP], FRAME.as_bytes());
        assert_eq!((answer.status, answer.subcode()), (403, "HostRefused"), "{host}");
    }
    let form = "--b\r\nContent-Disposition: form-data; name=\"frame\"\r\n\r\n{\"frame\":{\"Body\":{}}}\r\n--b--\r\n";
    let lines = ["Content-Type: multipart/form-data; boundary=b", "Origin: https://evil.example"];
    assert_eq!(node.post("/mesh", &lines, form.as_bytes()).status, 403);
    assert_eq!(node.post("/mesh", &lines[..1], form.as_bytes()).status, 200);
    assert_eq!(node.post("/mesh", &["Host: localhost:1", AMP], FRAME.as_bytes()).status, 200);
}

#[test]
fn control_characters_in_a_frame_do_not_reach_the_terminal() {
    let last = Node::last(&[
        "--handler",
        "printf '{\"fault\":{\"code\":{\"value\":\"Sender\"},\"reason\":[{\"text\":\"a\\\\u001b[31mb\",\"lang\":\"en\"}]}}'",
    ]);
    let output = last.send(&json!({"Body": {}}), &[]);
    assert_eq!(output.code, Some(1), "{}", output.err);
    assert!(!output.err.contains('\u{1b}') && output.err.contains("ab"), "{:?}", output.err);
}

#[test]
fn a_handler_leaves_no_processes() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("pid");
    let command = format!("sleep 60 & echo $! > '{}'; wait", file.display());
    let last = Node::last(&["--handler", &command, "--timeout", "500ms"]);
    assert_eq!(last.send(&json!({"Body": {}}), &[]).fault().1, "HandlerFailed");
    let pid = std::fs::read_to_string(&file).expect("it ran");
    let is_over = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    };
    wait_until("the handler's child ends", Duration::from_secs(5), is_over);
}
