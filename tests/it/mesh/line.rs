//! Three nodes in a row: what each refuses, who says so, and what comes back.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{ECHO, FIRST, Node, SECOND, Streaming};

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
        let said = first.send(&json!({"Header": header, "Body": {}}), &[]);
        assert_eq!(said.fault(), ("MustUnderstand", "", node));
        assert_eq!(said.at("/Header/notUnderstood"), &json!(["strange"]));
        assert_eq!((said.at("/Header/relatesTo"), said.at("/Body/fault/role")), (&json!("m-7"), &json!(place)));
        assert!(said.err.contains("MustUnderstand") && said.err.contains(node), "{}", said.err);
        assert_eq!(said.at("/Body").as_object().map(serde_json::Map::len), Some(1), "2.4: one fault a message");
    }
}

#[test]
fn section_2_8_a_version_mismatch_has_the_upgrade_block() {
    let [first, _second, _last] = line(&[], &[], &[]);
    let said = super::send(&first.url, &json!({"frame": {"Body": {}}}).to_string(), &[]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    // The sender checks what it sends; so it is posted as others would.
    let frame = json!({"frame": {"version": "2.0", "Header": {"messageId": "m"}, "Body": {}}}).to_string();
    let answer = first.post("/mesh", &["Content-Type: application/amp+json"], frame.as_bytes());
    assert_eq!(answer.status, 500);
    assert_eq!(answer.body["frame"]["Body"]["fault"]["code"]["value"], "VersionMismatch");
    assert_eq!(answer.body["frame"]["Header"]["Upgrade"]["supportedVersions"], json!(["1.0"]));
}

#[test]
fn section_1_5_2_a_frame_ends_at_the_hop_that_its_ttl_says() {
    let [first, _second, _last] = line(&["--handler", ECHO], &[], &[]);
    for (hops, node) in [(0, "agent://first"), (1, "agent://second")] {
        for ttl in [json!(hops), json!({"role": "next", "hops": hops})] {
            let said = first.send(&json!({"Header": {"ttl": ttl}, "Body": {}}), &[]);
            assert_eq!(said.fault(), ("Sender", "amp:TTLExpired", node), "{ttl}");
        }
    }
    let said = first.send(&json!({"Header": {"ttl": 2}, "Body": {}}), &[]);
    assert_eq!(said.got()["Header"]["ttl"], 0);
    let late = json!({"role": "next", "expires": "2020-01-01T00:00:00Z"});
    assert_eq!(first.send(&json!({"Header": {"ttl": late}, "Body": {}}), &[]).fault().2, "agent://first");
}

#[test]
fn section_2_7_3_an_active_intermediary_changes_the_frame_and_says_what() {
    let flags = ["--annotate", "priority={\"level\":\"high\"}", "--mask", "secret"];
    let [first, _second, _last] = line(&["--handler", ECHO], &flags, &[]);
    let said = first.send(&json!({"Body": {"secret": 1, "task": "t"}}), &[]);
    let got = said.got();
    assert_eq!(got["Header"]["priority"], json!({"level": "high"}));
    assert_eq!(got["Body"], json!({"task": "t"}));
    let by = &got["Header"]["applied"]["by"][0];
    assert_eq!(by["node"], "agent://second");
    assert_eq!(by["features"], json!(["urn:longshore:mesh:feature:annotate", "urn:longshore:mesh:feature:mask"]));
    assert_eq!(by["changed"], json!(["/frame/Header/priority", "/frame/Body/secret"]));
}

#[test]
fn section_5_4_5_detail_is_for_the_next_node_alone() {
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
fn a_next_node_that_is_not_there_is_a_fault_of_the_one_before() {
    let [first, second, last] = line(&[], &[], &[]);
    drop(last);
    let said = first.send(&json!({"Header": {"messageId": "m"}, "Body": {}}), &[]);
    assert_eq!(said.fault(), ("Receiver", "NextHopUnreachable", "agent://second"));
    drop(second);
    let said = first.send(&json!({"Body": {}}), &[]);
    assert_eq!(said.fault(), ("Receiver", "NextHopUnreachable", "agent://first"));
}

#[test]
fn a_next_node_that_is_late_is_not_waited_for() {
    let [first, _second, _last] = line(&["--handler", "sleep 60"], &["--timeout", "300ms"], &[]);
    let begin = Instant::now();
    let said = first.send(&json!({"Body": {}}), &[]);
    assert_eq!(said.fault(), ("Receiver", "NextHopUnreachable", "agent://second"));
    assert!(begin.elapsed() < Duration::from_secs(10));
}

#[test]
fn what_is_no_node_is_no_next_node() {
    // The URL of a node, but not where it takes frames.
    let last = Node::last(&[]);
    let wrong = format!("{}/nothing", last.url);
    let first = Node::start(&["--uri", "agent://first", "--forward", &wrong]);
    let said = first.send(&json!({"Body": {}}), &[]);
    assert_eq!(said.fault(), ("Sender", "NoResource", "agent://last"));
}

#[test]
fn a_handler_that_fails_is_a_receivers_fault() {
    for (command, words) in [
        ("exit 3", "exit status: 3"),
        ("echo not json", "JSON object"),
        ("echo '[1]'", "JSON object"),
        ("kill -9 $$", "signal: 9"),
        ("sleep 60", "0.3 s"),
        ("echo '{\"fault\": {}}'", "a fault that is none"),
        ("echo '{\"n\": 9007199254740993}'", "JSON object that a frame may have: the number `9007199254740993`"),
        ("echo '{\"a\": {\"b\": 1, \"b\": 2}}'", "the key `b` stands twice, at `/a/b`"),
        ("echo '{\"frame\": {\"Body\": {}}}'", "a frame must not hold another, at `/frame`"),
    ] {
        let last = Node::last(&["--handler", command, "--timeout", "300ms"]);
        let said = last.send(&json!({"Body": {}}), &[]);
        assert_eq!(said.fault(), ("Receiver", "HandlerFailed", "agent://last"), "{command}");
        let text = said.at("/Body/fault/reason/0/text").as_str().unwrap_or_default();
        assert!(text.contains(words), "{command}: {text}");
    }
}

#[test]
fn a_handler_answers_with_a_body_or_with_a_fault_of_its_own() {
    let fault = r#"{"fault": {"code": {"value": "Sender", "subcode": "NoSuchOrder"}, "reason": [{"text": "no", "lang": "en"}]}}"#;
    let [first, _second, _last] = line(&["--handler", &format!("echo '{fault}'")], &[], &[]);
    assert_eq!(first.send(&json!({"Body": {}}), &[]).fault(), ("Sender", "NoSuchOrder", "agent://last"));
    let last = Node::last(&["--handler", "printf '{\"id\":\"%s\"}' \"$LONGSHORE_MESH_MESSAGE_ID\""]);
    let said = last.send(&json!({"Header": {"messageId": "m-9"}, "Body": {}}), &[]);
    assert_eq!((said.code, said.at("/Body")), (Some(0), &json!({"id": "m-9"})));
}

#[test]
fn section_5_4_a_fault_that_is_told_is_never_answered_with_another() {
    let [first, _second, _last] = line(&["--handler", "exit 1"], &[], &[]);
    let reason = json!([{"text": "no", "lang": "en"}]);
    let good = json!({"Body": {"fault": {"code": {"value": "Sender"}, "reason": reason}}});
    let said = first.send(&good, &[]);
    assert_eq!((said.code, said.at("/Body/acknowledgment/node")), (Some(0), &json!("agent://last")), "{}", said.err);
    // One that is mandatory for somebody who does not understand: a status and nothing more.
    let post = |frame: Value| {
        let bytes = json!({"frame": frame}).to_string();
        first.post("/mesh", &["Content-Type: application/amp+json"], bytes.as_bytes())
    };
    let strange = json!({"strange": {"role": "next", "mustUnderstand": true}});
    let answer = post(json!({"Header": strange, "Body": good["Body"]}));
    assert_eq!((answer.status, &answer.body), (500, &Value::Null));
    assert!(answer.head.contains("content-length: 0"), "{}", answer.head);
    // What only looks like a fault tells none, and its sender is told what is wrong with it.
    let answer = post(json!({"Body": {"fault": {"code": {"value": "Odd"}, "reason": reason}}}));
    assert_eq!((answer.status, answer.subcode()), (400, "FaultCodeKnown"));
    assert_eq!(answer.body["frame"]["Body"]["fault"]["node"], "agent://last");
    let answer = post(json!({"Header": strange, "Body": {"fault": {}}}));
    assert_eq!((answer.status, &answer.body["frame"]["Header"]["notUnderstood"]), (500, &json!(["strange"])));
}

#[test]
fn a_stream_goes_through_three_nodes_and_answers_come_in_order_as_frames_do() {
    for flags in [&[][..], &["--http2"]] {
        let [first, _second, _last] = line(&[], &["--next-http2"], &[]);
        let mut stream = Streaming::open(&first.url, flags);
        for number in 0..20 {
            // The answer is here before the next frame is said: both ways at once.
            stream.say(&json!({"frame": {"Header": {"messageId": format!("m-{number}")}, "Body": {}}}).to_string());
            assert_eq!(stream.hear()["frame"]["Header"]["relatesTo"], format!("m-{number}"), "{flags:?}");
        }
        stream.say("this is no frame");
        assert_eq!(stream.hear()["frame"]["Body"]["fault"]["code"]["subcode"], "NotJson");
        stream.say(&json!({"frame": {"Header": {"strange": {"mustUnderstand": true}}, "Body": {}}}).to_string());
        assert_eq!(stream.hear()["frame"]["Body"]["fault"]["node"], "agent://last");
        let many: Vec<String> = (0..100)
            .map(|n| json!({"frame": {"Header": {"messageId": format!("b-{n}")}, "Body": {}}}).to_string())
            .collect();
        stream.say(&many.join("\n"));
        for number in 0..100 {
            assert_eq!(stream.hear()["frame"]["Header"]["relatesTo"], format!("b-{number}"));
        }
        assert_eq!(stream.end(), Some(1), "a fault was among them");
    }
}

#[test]
fn a_signal_ends_a_node_at_once_with_its_streams() {
    let mut last = Node::last(&["--handler", "sleep 60"]);
    let mut stream = Streaming::open(&last.url, &[]);
    stream.say(&json!({"frame": {"Body": {}}}).to_string());
    let mut idle = Streaming::open(&last.url, &["--http2"]);
    idle.say(&json!({"frame": {"Body": {"fault": 1}}}).to_string());
    let _kept = last.connect();
    let begin = Instant::now();
    last.signal(Signal::TERM);
    assert_eq!(last.child.wait().expect("it ends").code(), Some(0));
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    assert!(stream.end().is_some() && idle.end().is_some());
}

#[test]
fn routes_go_by_the_uri_and_addresses_in_frames_are_never_followed() {
    let last = Node::last(&[]);
    let trap = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    let url = format!("http://{}/mesh", trap.local_addr().expect("an address"));
    let route = format!("agent://last={}", last.url);
    let first = Node::start(&["--uri", "agent://first", "--route", &route]);
    let said = first.send(&json!({"Header": {"routing": {"role": "next", "to": url}}, "Body": {}}), &[]);
    assert_eq!((said.fault().0, said.fault().2), ("Receiver", "agent://first"));
    trap.set_nonblocking(true).expect("a socket");
    assert!(trap.accept().is_err(), "nobody may come by");
}
