//! Three nodes in a row: faults, their origin, and answers.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{ECHO, FIRST, Node, SECOND, StreamSender};

fn line(last: &[&str], second: &[&str], first: &[&str]) -> [Node; 3] {
    let last = Node::last(last);
    let second = Node::active(&last, second);
    let first = Node::forwarding(&second, first);
    [first, second, last]
}

#[test]
fn section_2_6_and_5_4_3_must_understand_at_each_of_three_nodes() {
    let [first, _second, _last] = line(&[], &[], &[]);
    for (role, node, place) in [
        (FIRST, "agent://first", "intermediary"),
        (SECOND, "agent://second", "intermediary"),
        ("ultimateReceiver", "agent://last", "ultimateReceiver"),
    ] {
        let header = json!({"messageId": "m-7", "strange": {"role": role, "mustUnderstand": true}});
        let output = first.send(&json!({"Header": header, "Body": {}}), &[]);
        assert_eq!(output.fault(), ("MustUnderstand", "", node));
        assert_eq!(output.at("/Header/notUnderstood"), &json!(["strange"]));
        assert_eq!((output.at("/Header/relatesTo"), output.at("/Body/fault/role")), (&json!("m-7"), &json!(place)));
        assert!(output.err.contains("MustUnderstand") && output.err.contains(node), "{}", output.err);
        assert_eq!(output.at("/Body").as_object().map(serde_json::Map::len), Some(1), "2.4: one fault a message");
    }
}

#[test]
fn section_2_8_a_version_mismatch_has_the_upgrade_block() {
    let [first, _second, _last] = line(&[], &[], &[]);
    let output = super::send(&first.url, &json!({"frame": {"Body": {}}}).to_string(), &[]);
    assert_eq!(output.code, Some(0), "{}", output.err);
    // `mesh send` refuses to send it.
    let frame = json!({"frame": {"version": "2.0", "Header": {"messageId": "m"}, "Body": {}}}).to_string();
    let answer = first.post("/mesh", &["Content-Type: application/amp+json"], frame.as_bytes());
    assert_eq!(answer.status, 500);
    assert_eq!(answer.body["frame"]["Body"]["fault"]["code"]["value"], "VersionMismatch");
    assert_eq!(answer.body["frame"]["Header"]["Upgrade"]["supportedVersions"], json!(["1.0"]));
}

#[test]
fn section_1_5_2_a_frame_ends_when_its_ttl_is_used_up() {
    let [first, _second, _last] = line(&["--handler", ECHO], &[], &[]);
    for (hops, node) in [(0, "agent://first"), (1, "agent://second")] {
        for ttl in [json!(hops), json!({"role": "next", "hops": hops})] {
            let output = first.send(&json!({"Header": {"ttl": ttl}, "Body": {}}), &[]);
            assert_eq!(output.fault(), ("Sender", "amp:TTLExpired", node), "{ttl}");
        }
    }
    let output = first.send(&json!({"Header": {"ttl": 2}, "Body": {}}), &[]);
    assert_eq!(output.received_frame()["Header"]["ttl"], 0);
    let late = json!({"role": "next", "expires": "2020-01-01T00:00:00Z"});
    assert_eq!(first.send(&json!({"Header": {"ttl": late}, "Body": {}}), &[]).fault().2, "agent://first");
}

#[test]
fn section_2_7_3_an_active_intermediary_changes_the_frame_and_records_it() {
    let flags = ["--annotate", "priority={\"level\":\"high\"}", "--mask", "secret"];
    let [first, _second, _last] = line(&["--handler", ECHO], &flags, &[]);
    let output = first.send(&json!({"Body": {"secret": 1, "task": "t"}}), &[]);
    let received_frame = output.received_frame();
    assert_eq!(received_frame["Header"]["priority"], json!({"level": "high"}));
    assert_eq!(received_frame["Body"], json!({"task": "t"}));
    let by = &received_frame["Header"]["applied"]["by"][0];
    assert_eq!(by["node"], "agent://second");
    assert_eq!(by["features"], json!(["urn:longshore:mesh:feature:annotate", "urn:longshore:mesh:feature:mask"]));
    assert_eq!(by["changed"], json!(["/frame/Header/priority", "/frame/Body/secret"]));
}

#[test]
fn section_5_4_5_detail_is_only_for_the_next_node() {
    let [first, _second, last] = line(&[], &[], &[]);
    let frame = json!({"Body": {"encodingStyle": "urn:strange"}});
    let near = last.send(&frame, &[]);
    assert_eq!(near.fault(), ("DataEncodingUnknown", "", "agent://last"));
    assert_eq!(near.at("/Body/fault/detail/pointer"), "/frame/Body/encodingStyle");
    let far = first.send(&frame, &[]);
    assert_eq!(far.fault(), near.fault());
    assert_eq!(far.at("/Body/fault/detail"), &Value::Null);
}

#[test]
fn an_unreachable_next_node_is_a_fault_of_the_previous_node() {
    let [first, second, last] = line(&[], &[], &[]);
    drop(last);
    let output = first.send(&json!({"Header": {"messageId": "m"}, "Body": {}}), &[]);
    assert_eq!(output.fault(), ("Receiver", "NextHopUnreachable", "agent://second"));
    drop(second);
    let output = first.send(&json!({"Body": {}}), &[]);
    assert_eq!(output.fault(), ("Receiver", "NextHopUnreachable", "agent://first"));
}

#[test]
fn a_late_next_node_is_a_fault() {
    let [first, _second, _last] = line(&["--handler", "sleep 60"], &["--timeout", "300ms"], &[]);
    let start = Instant::now();
    let output = first.send(&json!({"Body": {}}), &[]);
    assert_eq!(output.fault(), ("Receiver", "NextHopUnreachable", "agent://second"));
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_next_hop_with_a_wrong_path_is_a_fault() {
    let last = Node::last(&[]);
    let wrong = format!("{}/nothing", last.url);
    let first = Node::start(&["--uri", "agent://first", "--forward", &wrong]);
    let output = first.send(&json!({"Body": {}}), &[]);
    assert_eq!(output.fault(), ("Sender", "NoResource", "agent://last"));
}

#[test]
fn a_failing_handler_is_a_receiver_fault() {
    for (command, words) in [
        ("exit 3", "exit status: 3"),
        ("echo not json", "JSON object"),
        ("echo '[1]'", "JSON object"),
        ("kill -9 $$", "signal: 9"),
        ("sleep 60", "0.3 s"),
        ("echo '{\"fault\": {}}'", "an invalid fault"),
        ("echo '{\"n\": 9007199254740993}'", "valid JSON object: the number `9007199254740993`"),
        ("echo '{\"a\": {\"b\": 1, \"b\": 2}}'", "duplicate key `b`, at `/a/b`"),
        ("echo '{\"frame\": {\"Body\": {}}}'", "a frame must not contain another frame, at `/frame`"),
    ] {
        let last = Node::last(&["--handler", command, "--timeout", "300ms"]);
        let output = last.send(&json!({"Body": {}}), &[]);
        assert_eq!(output.fault(), ("Receiver", "HandlerFailed", "agent://last"), "{command}");
        let text = output.at("/Body/fault/reason/0/text").as_str().unwrap_or_default();
        assert!(text.contains(words), "{command}: {text}");
    }
}

#[test]
fn a_handler_answers_with_a_body_or_a_fault() {
    let fault = r#"{"fault": {"code": {"value": "Sender", "subcode": "NoSuchOrder"}, "reason": [{"text": "no", "lang": "en"}]}}"#;
    let [first, _second, _last] = line(&["--handler", &format!("echo '{fault}'")], &[], &[]);
    assert_eq!(first.send(&json!({"Body": {}}), &[]).fault(), ("Sender", "NoSuchOrder", "agent://last"));
    let last = Node::last(&["--handler", "printf '{\"id\":\"%s\"}' \"$LONGSHORE_MESH_MESSAGE_ID\""]);
    let output = last.send(&json!({"Header": {"messageId": "m-9"}, "Body": {}}), &[]);
    assert_eq!((output.code, output.at("/Body")), (Some(0), &json!({"id": "m-9"})));
}

#[test]
fn section_5_4_a_fault_is_never_answered_with_a_fault() {
    let [first, _second, _last] = line(&["--handler", "exit 1"], &[], &[]);
    let reason = json!([{"text": "no", "lang": "en"}]);
    let good = json!({"Body": {"fault": {"code": {"value": "Sender"}, "reason": reason}}});
    let output = first.send(&good, &[]);
    assert_eq!(
        (output.code, output.at("/Body/acknowledgment/node")),
        (Some(0), &json!("agent://last")),
        "{}",
        output.err
    );
    // With a mandatory block that is not understood: a status without a body.
    let post = |frame: Value| {
        let bytes = json!({"frame": frame}).to_string();
        first.post("/mesh", &["Content-Type: application/amp+json"], bytes.as_bytes())
    };
    let strange = json!({"strange": {"role": "next", "mustUnderstand": true}});
    let answer = post(json!({"Header": strange, "Body": good["Body"]}));
    assert_eq!((answer.status, &answer.body), (500, &Value::Null));
    assert!(answer.head.contains("content-length: 0"), "{}", answer.head);
    // An invalid fault is answered as malformed.
    let answer = post(json!({"Body": {"fault": {"code": {"value": "Odd"}, "reason": reason}}}));
    assert_eq!((answer.status, answer.subcode()), (400, "FaultCodeKnown"));
    assert_eq!(answer.body["frame"]["Body"]["fault"]["node"], "agent://last");
    let answer = post(json!({"Header": strange, "Body": {"fault": {}}}));
    assert_eq!((answer.status, &answer.body["frame"]["Header"]["notUnderstood"]), (500, &json!(["strange"])));
}

#[test]
fn a_stream_through_three_nodes_keeps_the_order() {
    for flags in [&[][..], &["--http2"]] {
        let [first, _second, _last] = line(&[], &["--next-http2"], &[]);
        let mut stream = StreamSender::open(&first.url, flags);
        for number in 0..20 {
            // The answer arrives before the next frame is sent.
            stream
                .send_line(&json!({"frame": {"Header": {"messageId": format!("m-{number}")}, "Body": {}}}).to_string());
            assert_eq!(stream.read_answer()["frame"]["Header"]["relatesTo"], format!("m-{number}"), "{flags:?}");
        }
        stream.send_line("this is no frame");
        assert_eq!(stream.read_answer()["frame"]["Body"]["fault"]["code"]["subcode"], "NotJson");
        stream.send_line(&json!({"frame": {"Header": {"strange": {"mustUnderstand": true}}, "Body": {}}}).to_string());
        assert_eq!(stream.read_answer()["frame"]["Body"]["fault"]["node"], "agent://last");
        let many: Vec<String> = (0..100)
            .map(|n| json!({"frame": {"Header": {"messageId": format!("b-{n}")}, "Body": {}}}).to_string())
            .collect();
        stream.send_line(&many.join("\n"));
        for number in 0..100 {
            assert_eq!(stream.read_answer()["frame"]["Header"]["relatesTo"], format!("b-{number}"));
        }
        assert_eq!(stream.end(), Some(1), "one answer was a fault");
    }
}

#[test]
fn a_signal_stops_a_node_and_its_streams() {
    let mut last = Node::last(&["--handler", "sleep 60"]);
    let mut stream = StreamSender::open(&last.url, &[]);
    stream.send_line(&json!({"frame": {"Body": {}}}).to_string());
    let mut idle = StreamSender::open(&last.url, &["--http2"]);
    idle.send_line(&json!({"frame": {"Body": {"fault": 1}}}).to_string());
    let _kept = last.connect();
    let start = Instant::now();
    last.signal(Signal::TERM);
    assert_eq!(last.child.wait().expect("it ends").code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert!(stream.end().is_some() && idle.end().is_some());
}

#[test]
fn addresses_in_frames_are_never_connected_to() {
    let last = Node::last(&[]);
    let trap = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    let url = format!("http://{}/mesh", trap.local_addr().expect("an address"));
    let route = format!("agent://last={}", last.url);
    let first = Node::start(&["--uri", "agent://first", "--route", &route]);
    let output = first.send(&json!({"Header": {"routing": {"role": "next", "to": url}}, "Body": {}}), &[]);
    assert_eq!((output.fault().0, output.fault().2), ("Receiver", "agent://first"));
    trap.set_nonblocking(true).expect("a socket");
    assert!(trap.accept().is_err(), "no connection may be made");
}
