//! The HTTP binding: media types, statuses, attachments, tokens, exit codes.

use jiff::Timestamp;
use longshore::ids::SwarmId;
use longshore::protocol::amp::store::Ssot;
use longshore::protocol::mesh::fault::Fault;
use longshore::protocol::mesh::frame::Frame;
use longshore::protocol::mesh::gram::{self, GramDraft};
use longshore::protocol::mesh::limits::FrameLimits;
use longshore::protocol::mesh::modules::audit::Audit;
use longshore::protocol::mesh::modules::routing::Routing;
use longshore::protocol::mesh::modules::ttl::Ttl;
use longshore::protocol::mesh::modules::upgrade::Upgrade;
use longshore::protocol::mesh::modules::validation::Validation;
use longshore::protocol::mesh::node::Node as Model;
use longshore::protocol::mesh::process::ProcessOutcome;
use longshore::state::SwarmDir;
use serde_json::{Value, json};

use super::{ECHO, HttpResponse, Node, program, send};

const FRAME: &str = r#"{"frame":{"Header":{"messageId":"m-1"},"Body":{"task":"t"}}}"#;
const AMP: &str = "Content-Type: application/amp+json";

#[test]
fn section_4_2_media_types() {
    let node = Node::last(&[]);
    for good in [AMP, "Content-Type: application/json", "content-type: Application/AMP+JSON; charset=UTF-8"] {
        let answer = node.post("/mesh", &[good], FRAME.as_bytes());
        assert_eq!(answer.status, 200, "{good}");
        assert!(answer.head.contains("content-type: application/amp+json"), "{}", answer.head);
    }
    let bad: [&[&str]; 6] = [
        &[],
        &["Content-Type: text/plain"],
        &["Content-Type: application/amp+json; charset=latin1"],
        &["Content-Type: ,"],
        &[AMP, "Content-Encoding: gzip"],
        &["Content-Type: application/x-ndjson"],
    ];
    for lines in bad {
        let answer = node.post("/mesh", lines, FRAME.as_bytes());
        assert_eq!((answer.status, answer.subcode()), (415, "MediaType"), "{lines:?}");
    }
    assert_eq!(node.post("/mesh/stream", &[AMP], FRAME.as_bytes()).status, 415);
}

#[test]
fn section_4_statuses_of_faults() {
    let node = Node::last(&[]);
    for (frame, status, code) in [
        ("{", 400, "Sender"),
        (r#"{"frame":{}}"#, 400, "Sender"),
        (r#"{"frame":{"Body":{}},"more":1}"#, 400, "Sender"),
        (r#"{"frame":{"Header":{"x":{"mustUnderstand":true}},"Body":{}}}"#, 500, "MustUnderstand"),
        (r#"{"frame":{"Body":{"encodingStyle":"urn:x"}}}"#, 500, "DataEncodingUnknown"),
        (r#"{"frame":{"version":"9.0","Body":{}}}"#, 500, "VersionMismatch"),
    ] {
        let answer = node.post("/mesh", &[AMP], frame.as_bytes());
        let answered = &answer.body["frame"]["Body"]["fault"];
        assert_eq!(
            (answer.status, answered["code"]["value"].as_str(), answered["node"].as_str()),
            (status, Some(code), Some("agent://last")),
            "{frame}"
        );
    }
    for (path, method) in [("/", "GET"), ("/other", "POST"), ("/mesh", "DELETE"), ("/mesh/stream", "GET")] {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
            node.address
        );
        let answer = node.raw(request.as_bytes());
        assert_eq!((answer.status, answer.subcode()), (404, "NoResource"), "{method} {path}");
    }
}

#[test]
fn section_4_2_a_node_describes_itself() {
    let node = Node::last(&["--role", "cache=amp://example.org/cache", "--understand", "order"]);
    let request = format!("GET /mesh HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", node.address);
    let answer = node.raw(request.as_bytes());
    assert_eq!(answer.status, 200);
    assert_eq!((&answer.body["uri"], &answer.body["place"]), (&json!("agent://last"), &json!("ultimateReceiver")));
    assert_eq!(answer.body["versions"], json!(["1.0"]));
    assert!(answer.body["roles"].to_string().contains("amp://example.org/cache"), "{}", answer.body);
    assert!(answer.body["understands"].to_string().contains("order"));
    assert!(answer.body["features"].to_string().contains("urn:longshore:mesh:mep:request-response"));
}

#[test]
fn http2_and_http1_on_one_port() {
    let node = Node::last(&["--handler", ECHO]);
    for flags in [&[][..], &["--http2"]] {
        let output = node.send(&json!({"Header": {"messageId": "m"}, "Body": {"task": "t"}}), flags);
        assert_eq!(output.received_frame()["Body"], json!({"task": "t"}), "{flags:?}");
    }
}

#[test]
fn exit_codes_of_send() {
    let node = Node::last(&[]);
    assert_eq!(send(&node.url, FRAME, &[]).code, Some(0));
    assert_eq!(send(&node.url, r#"{"frame":{"Body":{"encodingStyle":"urn:x"}}}"#, &[]).code, Some(1));
    let none = send(&node.url, r#"{"frame":{"Body":[]}}"#, &[]);
    assert_eq!(none.code, Some(2));
    assert!(none.err.contains("not sent") && none.err.contains("/frame/Body"), "{}", none.err);
    assert_eq!(send("ftp://x", FRAME, &[]).code, Some(2));
    let url = node.url.clone();
    drop(node);
    let reply = send(&url, FRAME, &[]);
    assert_eq!(reply.code, Some(3));
    assert!(reply.err.contains("cannot be reached"), "{}", reply.err);
}

#[test]
fn a_node_reachable_from_other_machines_needs_a_token() {
    let serve = |args: &[&str]| {
        let output = program().args(["mesh", "serve"]).args(args).output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, err) = serve(&["--listen", "0.0.0.0:0"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("--token-file"), "{err}");
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("text").to_owned()
    };
    let (right, wrong, empty) = (file("right", "s3cret-token\n"), file("wrong", "s3cret-tokem"), file("empty", "\n"));
    assert_eq!(serve(&["--token-file", &empty]).0, Some(2));
    let node = Node::last(&["--token-file", &right]);
    assert_eq!(send(&node.url, FRAME, &["--token-file", &right]).code, Some(0));
    for flags in [&[][..], &["--token-file", &wrong], &["--http2", "--token-file", &wrong]] {
        let output = send(&node.url, FRAME, flags);
        assert_eq!(output.fault(), ("Sender", "AuthenticationFailed", "agent://last"), "{flags:?}");
    }
    let answer = node.post("/mesh", &[AMP, "Authorization: Bearer s3cret-toke"], FRAME.as_bytes());
    assert_eq!(answer.status, 401);
    assert!(answer.head.contains("www-authenticate: bearer"), "{}", answer.head);
    assert_eq!(node.post("/mesh", &[AMP, "Authorization: bearer s3cret-token"], FRAME.as_bytes()).status, 200);
    assert_eq!(node.post("/mesh/stream", &["Content-Type: application/x-ndjson"], b"").status, 401);
    // An intermediary needs the next node's token.
    let knows = Node::forwarding(&node, &["--next-token-file", &right]);
    assert_eq!(send(&knows.url, FRAME, &[]).code, Some(0));
    let stranger = Node::forwarding(&node, &[]);
    assert_eq!(send(&stranger.url, FRAME, &[]).fault(), ("Receiver", "NextHopRefused", "agent://first"));
}

#[test]
fn attachments_are_relayed_and_stored_under_their_hash() {
    let dir = tempfile::tempdir().expect("a directory");
    let stored = dir.path().join("kept");
    let file = dir.path().join("a file.bin");
    let data: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&file, &data).expect("written");
    let last = Node::last(&["--attachments", stored.to_str().expect("text")]);
    let second = Node::active(&last, &["--next-http2"]);
    let first = Node::forwarding(&second, &[]);
    let output = first.send(&json!({"Body": {}}), &["--attach", file.to_str().expect("text")]);
    assert_eq!(output.code, Some(0), "{}", output.err);
    let answered = output.at("/Body/acknowledgment/attachments/0");
    assert_eq!(
        (&answered["cid"], &answered["size"], &answered["stored"]),
        (&json!("a_file.bin"), &json!(data.len()), &json!(true))
    );
    let names: Vec<String> = std::fs::read_dir(&stored)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
        .collect();
    assert_eq!(names, [answered["sha256"].as_str().expect("a hash")]);
    assert_eq!(std::fs::read(stored.join(&names[0])).expect("kept"), data);
}

/// A multipart message with a frame that lists attachments.
fn multipart(kind: &str, listed: Value, parts: &[(&str, &str)]) -> (String, Vec<u8>) {
    let block = json!({"role": "next", "relay": true, "parts": listed});
    beside(kind, &json!({"Header": {"attachments": block}, "Body": {}}), parts)
}

/// A multipart message with a frame and attachments.
fn beside(kind: &str, frame: &Value, parts: &[(&str, &str)]) -> (String, Vec<u8>) {
    let frame = json!({"frame": frame});
    let mut body = format!(
        "--b\r\nContent-Type: application/amp+json\r\nContent-Disposition: form-data; name=\"frame\"\r\n\r\n{frame}\r\n"
    );
    for (id, text) in parts {
        let id = if kind == "form-data" {
            format!("Content-Disposition: form-data; name=\"{id}\"; filename=\"../../etc/passwd\"")
        } else {
            format!("Content-ID: <{id}>")
        };
        body.push_str(&format!("--b\r\n{id}\r\nContent-Type: text/plain\r\n\r\n{text}\r\n"));
    }
    body.push_str("--b--\r\n");
    (format!("Content-Type: multipart/{kind}; boundary=b"), body.into_bytes())
}

#[test]
fn an_attachment_that_differs_from_the_list_is_refused_by_the_first_node() {
    let stored = tempfile::tempdir().expect("a directory");
    let last = Node::last(&["--attachments", stored.path().to_str().expect("text")]);
    let first = Node::forwarding(&last, &[]);
    let hello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let line = |size: u64, hash: &str| json!([{"cid": "a", "mediaType": "text/plain", "size": size, "sha256": hash}]);
    for kind in ["related", "form-data"] {
        let (content, body) = multipart(kind, line(5, hello), &[("a", "hello")]);
        let good = first.post("/mesh", &[&content], &body);
        assert_eq!(good.status, 200, "{}", good.body);
        for (listed, parts) in [
            (line(5, hello), &[("a", "hellO")][..]),
            (line(6, hello), &[("a", "hello")]),
            (line(5, hello), &[]),
            (line(5, hello), &[("a", "hello"), ("b", "more")]),
            (line(5, hello), &[("b", "hello")]),
            (json!([]), &[("a", "hello")]),
            (json!({}), &[]),
            (json!([{"cid": "a"}]), &[("a", "hello")]),
        ] {
            let (content, body) = multipart(kind, listed.clone(), parts);
            let answer = first.post("/mesh", &[&content], &body);
            assert_eq!((answer.status, answer.subcode()), (400, "Attachment"), "{listed} {parts:?}");
            assert_eq!(answer.body["frame"]["Body"]["fault"]["node"], "agent://first");
        }
        let (content, body) = multipart(kind, line(5, hello), &[("a", "hello"), ("a", "hello")]);
        assert_eq!(first.post("/mesh", &[&content], &body).subcode(), "Multipart");
        let (content, body) = multipart(kind, line(5, hello), &[("a", "hello")]);
        assert_eq!(first.post("/mesh", &[&content], &body[..body.len() - 8]).subcode(), "Multipart");
    }
    // A listed attachment is missing, as the message is not multipart.
    let block = json!({"role": "next", "parts": line(5, hello)});
    let alone = json!({"frame": {"Header": {"attachments": block}, "Body": {}}}).to_string();
    assert_eq!(first.post("/mesh", &[AMP], alone.as_bytes()).subcode(), "Attachment");
    // File names are hashes, whatever the sender's name.
    let names: Vec<_> =
        std::fs::read_dir(stored.path()).expect("a directory").map(|entry| entry.expect("one").file_name()).collect();
    assert_eq!(names, [hello]);
}

#[test]
fn section_2_3_only_nodes_of_its_role_check_the_list_of_attachments() {
    let stored = tempfile::tempdir().expect("a directory");
    let last = Node::last(&["--attachments", stored.path().to_str().expect("text")]);
    let first = Node::forwarding(&last, &[]);
    let bad = json!([{"cid": "a", "mediaType": "text/plain", "size": 1, "sha256": ""}]);
    let post = |node: &Node, block: Value, more: Value| {
        let mut header = json!({"attachments": block});
        header.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let (content, body) = beside("related", &json!({"Header": header, "Body": {}}), &[("a", "hello")]);
        node.post("/mesh", &[&content], &body)
    };
    // Without a role, only the ultimate receiver checks it (2.3, 5.2.2).
    let answer = post(&first, json!({"parts": bad}), json!({}));
    assert_eq!(
        (answer.subcode(), &answer.body["frame"]["Body"]["fault"]["node"]),
        ("Attachment", &json!("agent://last"))
    );
    for role in ["none", "initialSender", "amp://example.org/cache"] {
        let answer = post(&first, json!({"role": role, "parts": bad}), json!({}));
        assert_eq!(answer.status, 200, "{role}: {}", answer.body);
        // Attachments for other nodes are neither stored nor acknowledged.
        let answered = &answer.body["frame"]["Body"]["acknowledgment"];
        assert!(answered.is_object() && answered["attachments"].is_null(), "{role}: {answered}");
    }
    assert_eq!(std::fs::read_dir(stored.path()).expect("a directory").count(), 0);
    // 2.6, steps 3 and 7: mandatory blocks are checked first.
    let answer = post(&last, json!({"parts": bad}), json!({"strange": {"mustUnderstand": true}}));
    assert_eq!(answer.body["frame"]["Header"]["notUnderstood"], json!(["strange"]), "{}", answer.body);
    assert_eq!(post(&last, json!({"parts": bad}), json!({})).subcode(), "Attachment");
}

#[test]
fn section_7_0_attachments_have_their_own_limit() {
    let dir = tempfile::tempdir().expect("a directory");
    let last = Node::last(&["--max-attachments", "1k"]);
    for (size, status) in [(1024, Some(0)), (1025, Some(1)), (100_000, Some(1))] {
        let file = dir.path().join(size.to_string());
        std::fs::write(&file, vec![7; size]).expect("written");
        let output = last.send(&json!({"Body": {}}), &["--attach", file.to_str().expect("text")]);
        assert_eq!(output.code, status, "{size}: {}", output.err);
        assert!(status == Some(0) || output.fault() == ("Sender", "LimitExceeded", "agent://last"), "{}", output.err);
    }
    let (content, body) = multipart("related", json!([]), &[("a", &"x".repeat(2000))]);
    assert_eq!(last.post("/mesh", &[&content], &body).status, 413);
}

#[test]
fn arguments_that_make_a_node_useless_are_refused() {
    for args in [["--max-frame", "0"], ["--timeout", "0"], ["--patience", "0s"], ["--handler", ""], ["--handler", " "]]
    {
        let mut child = program();
        let child = child.args(["mesh", "serve", "--listen", "127.0.0.1:0"]).args(args);
        let output = child.output().expect("it ends");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && err.contains(args[0]), "{args:?}: {err}");
    }
}

#[test]
fn show_finds_the_memory_of_a_story_and_reports_missing_ones() {
    let show = |dir: &std::path::Path, what: &str| {
        let output = program().current_dir(dir).args(["mesh", "show", what]).output().expect("it runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, _, err) = show(std::path::Path::new("/"), "/nonexistent");
    assert!(code == Some(2) && err.contains("no file `/nonexistent`") && err.contains("no git repository"), "{err}");
    let dir = tempfile::tempdir().expect("a directory");
    let git = std::process::Command::new("git").args(["init", "-q"]).current_dir(dir.path()).status();
    assert!(git.expect("git runs").success());
    let swarm: SwarmId = "0b5c1f2e-0000-4000-8000-000000000001".parse().expect("an id");
    SwarmDir::create(dir.path(), swarm).expect("made");
    for (name, node) in [("a-US-001", "left"), ("b-US-001", "right")] {
        let mut draft = GramDraft::default();
        draft.nodes.push(gram::GramNode::new(node, "note", 0.5));
        let gram = draft.build(Timestamp::UNIX_EPOCH, &gram::GramLimits::default()).expect("a gram");
        let path = Ssot::open_read_only(dir.path()).memory_path(swarm, name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        std::fs::write(path, gram.to_json().to_string()).expect("written");
    }
    for (what, node) in
        [("a/US-001", "left"), ("b/us-001", "right"), ("0b5c1f2e/a/US-001", "left"), ("0b5c/b-US-001", "right")]
    {
        let (code, out, err) = show(dir.path(), what);
        assert!(code == Some(0) && out.contains(node), "{what}: {out} {err}");
    }
    assert!(show(dir.path(), "US-001").2.contains("is ambiguous"));
    let (code, _, err) = show(dir.path(), "c/US-001");
    assert!(code == Some(2) && err.contains("no memory of a story"), "{err}");
}

/// The processing model of a node without flags.
fn model() -> Model {
    Model::ultimate_receiver("agent://last")
        .expect("a node")
        .with_module(Ttl)
        .with_module(Upgrade)
        .with_module(Validation::default())
        .with_module(Routing)
        .with_module(Audit::default())
        .with_reinserted_blocks(["attachments"])
}

/// The golden files of the protocol, and their outcome by the processing model alone.
fn golden_frames() -> Vec<(String, Vec<u8>, ProcessOutcome)> {
    let model = model();
    let mut golden_frames = Vec::new();
    for dir in ["valid", "invalid", "spec"] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/mesh").join(dir);
        for entry in std::fs::read_dir(path).expect("the golden files are in the repo") {
            let path = entry.expect("an entry").path();
            let bytes = std::fs::read(&path).expect("a file");
            let outcome = model.process_bytes(&bytes, Timestamp::now());
            golden_frames.push((path.display().to_string(), bytes, outcome));
        }
    }
    assert!(golden_frames.len() > 60, "most golden files are gone");
    golden_frames
}

/// Asserts that an answer is the outcome of the processing model.
fn assert_matches_model(name: &str, bytes: &[u8], answer: &Value, outcome: &ProcessOutcome) {
    let frame = Frame::parse(bytes, &FrameLimits::default());
    let tells_fault = frame.is_ok_and(|frame| Fault::from_frame(&frame).is_ok_and(|fault| fault.is_some()));
    match outcome {
        ProcessOutcome::Fault(fault) if !answer.is_null() => assert_eq!(*answer, fault.to_frame().to_json(), "{name}"),
        ProcessOutcome::Fault(_) => assert!(tells_fault, "{name}: only a fault that is told has no answer"),
        ProcessOutcome::Processed(_) => {
            assert_eq!(answer["frame"]["Body"]["acknowledgment"]["node"], "agent://last", "{name}")
        }
        ProcessOutcome::Relayed(_) => panic!("{name}"),
    }
}

#[test]
fn section_3_1_and_3_2_and_4_the_binding_never_overrides_the_processing_model() {
    let node = Node::last(&[]);
    let (mut faults, mut good) = (0, 0);
    for (name, bytes, outcome) in golden_frames() {
        let answer: HttpResponse = node.post("/mesh", &[AMP], &bytes);
        let is_fault = matches!(outcome, ProcessOutcome::Fault(_));
        assert_eq!(answer.status == 200, !is_fault, "{name}: {}", answer.head);
        if is_fault {
            faults += 1
        } else {
            good += 1
        }
        assert_matches_model(&name, &bytes, &answer.body, &outcome);
    }
    assert!(faults > 30 && good > 15, "{faults} {good}");
}

#[test]
fn section_4_2_a_stream_is_equivalent_to_single_frames() {
    let node = Node::last(&[]);
    // White space is insignificant, so a golden file fits on one line, unless it is not UTF-8.
    let golden_frames = golden_frames().into_iter().filter(|(_, bytes, _)| std::str::from_utf8(bytes).is_ok());
    let golden_frames = golden_frames.map(|(name, bytes, _)| {
        let line = String::from_utf8_lossy(&bytes).trim().replace(['\n', '\r'], " ");
        let outcome = model().process_bytes(line.as_bytes(), Timestamp::now());
        (name, line, outcome)
    });
    let golden_frames: Vec<_> = golden_frames.filter(|(_, line, _)| !line.is_empty()).collect();
    let lines: String = golden_frames.iter().map(|(_, line, _)| format!("{line}\n")).collect();
    let answer = node.post("/mesh/stream", &["Content-Type: application/x-ndjson"], lines.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.head);
    let mut answers =
        answer.text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).filter(Value::is_object);
    for (name, line, outcome) in &golden_frames {
        let tells_fault =
            serde_json::from_str::<Value>(line).is_ok_and(|frame| !frame["frame"]["Body"]["fault"].is_null());
        let is_fault = matches!(outcome, ProcessOutcome::Fault(_));
        // A frame that carries a fault has no line if its answer is empty.
        let answered = match node.post("/mesh", &[AMP], line.as_bytes()).body {
            Value::Null => continue,
            _ => answers.next().unwrap_or_else(|| panic!("{name}: no line")),
        };
        assert!(tells_fault || !is_fault || !answered.is_null(), "{name}");
        assert_matches_model(name, line.as_bytes(), &answered, outcome);
    }
    assert_eq!(answers.next(), None, "no further lines");
}
