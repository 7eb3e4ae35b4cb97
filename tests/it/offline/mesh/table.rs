//! The forwarding table (2.7.1, Table 3) on the wire, with a forwarding and an active intermediary before the ultimate receiver.

use serde_json::{Map, Value, json};

use super::{ECHO, FIRST, Node, SECOND};

/// A forwarding and an active intermediary, and a receiver that runs [`ECHO`].
struct Line {
    _last: Node,
    _second: Node,
    first: Node,
}

impl Line {
    /// `flags` are for both intermediaries.
    fn with(flags: &[&str]) -> Self {
        let last = Node::last(&["--handler", ECHO]);
        let second = Node::active(&last, flags);
        let first = Node::forwarding(&second, flags);
        Self { _last: last, _second: second, first }
    }

    /// Sends a header and returns the received one.
    fn header(&self, header: Value) -> Map<String, Value> {
        let output = self.first.send(&json!({"Header": header, "Body": {"task": "t"}}), &[]);
        output.received_frame()["Header"].as_object().cloned().unwrap_or_default()
    }
}

#[test]
fn section_2_7_1_row_1_next_assumed_and_processed_is_not_forwarded_unless_reinserted() {
    let line = Line::with(&["--understand", "done", "--reinsert", "again"]);
    for relay in [true, false] {
        let done = json!({"role": "next", "relay": relay, "mustUnderstand": true});
        let again = json!({"role": "next", "relay": relay, "x": 1});
        let received_frame = line.header(json!({"done": done, "again": again}));
        assert_eq!((received_frame.get("done"), received_frame.get("again")), (None, Some(&again)), "{relay}");
    }
}

#[test]
fn section_2_7_1_row_2_next_not_processed_is_forwarded_if_relay() {
    let line = Line::with(&[]);
    let received_frame = line.header(json!({"kept": {"role": "next", "relay": true, "x": 1}, "lost": {"role": "next"}, "lostToo": {"role": "next", "relay": false}}));
    assert_eq!(received_frame.get("kept"), Some(&json!({"role": "next", "relay": true, "x": 1})));
    assert!(!received_frame.contains_key("lost") && !received_frame.contains_key("lostToo"), "{received_frame:?}");
}

#[test]
fn section_2_7_1_row_3_user_defined_assumed_and_processed_is_not_forwarded_unless_reinserted() {
    let line = Line::with(&[
        "--understand",
        "done",
        "--understand",
        "doneToo",
        "--reinsert",
        "again",
        "--reinsert",
        "againToo",
    ]);
    let block = |role: &str| json!({"role": role, "relay": true, "mustUnderstand": true, "x": 1});
    let header =
        json!({"done": block(FIRST), "again": block(FIRST), "doneToo": block(SECOND), "againToo": block(SECOND)});
    let received_frame = line.header(header);
    assert!(!received_frame.contains_key("done") && !received_frame.contains_key("doneToo"), "{received_frame:?}");
    assert_eq!(
        (received_frame.get("again"), received_frame.get("againToo")),
        (Some(&block(FIRST)), Some(&block(SECOND)))
    );
}

#[test]
fn section_2_7_1_row_4_user_defined_not_processed_is_forwarded_if_relay() {
    let line = Line::with(&[]);
    for role in [FIRST, SECOND] {
        let block = |relay: bool| json!({"role": role, "relay": relay});
        let received_frame = line.header(json!({"kept": block(true), "lost": block(false)}));
        assert_eq!((received_frame.get("kept"), received_frame.get("lost")), (Some(&block(true)), None), "{role}");
    }
}

#[test]
fn section_2_7_1_row_4_user_defined_not_assumed_is_forwarded_and_relay_has_no_effect() {
    let line = Line::with(&["--understand", "far"]);
    for relay in [true, false] {
        let block = json!({"role": "amp://example.org/cache", "relay": relay, "mustUnderstand": true});
        assert_eq!(line.header(json!({"far": block})).get("far"), Some(&block));
    }
}

#[test]
fn section_2_7_1_row_5_ultimate_receiver_is_processed_only_at_the_end() {
    let last = Node::last(&["--understand", "order"]);
    let second = Node::active(&last, &["--understand", "order"]);
    let first = Node::forwarding(&second, &["--understand", "order"]);
    for role in [json!("ultimateReceiver"), json!("amp://role/ultimateReceiver"), Value::Null] {
        let mut block = json!({"mustUnderstand": true, "role": role});
        if role.is_null() {
            block.as_object_mut().expect("an object").remove("role");
        }
        let output = first.send(&json!({"Header": {"order": block}, "Body": {}}), &[]);
        assert_eq!(output.code, Some(0), "{}", output.err);
        assert_eq!(output.at("/Body/acknowledgment/processed"), &json!(["order"]), "{role}");
        assert_eq!(output.at("/Body/acknowledgment/node"), "agent://last");
    }
}

#[test]
fn section_2_7_1_row_6_none_is_always_relayed() {
    let line = Line::with(&["--understand", "data"]);
    for relay in [true, false] {
        let block = json!({"role": "none", "relay": relay, "mustUnderstand": true, "x": [1]});
        assert_eq!(line.header(json!({"data": block})).get("data"), Some(&block));
    }
}

#[test]
fn section_2_7_1_listed_blocks_follow_the_same_rows() {
    let line = Line::with(&["--understand", "done", "--reinsert", "again"]);
    let block = |name: &str, relay: bool| json!({"type": name, "role": "next", "relay": relay, "content": {"x": 1}});
    let blocks = [block("done", true), block("again", false), block("kept", true), block("lost", false)];
    let received_frame = line.header(json!({"headerBlocks": blocks}));
    assert_eq!(received_frame["headerBlocks"], json!([block("again", false), block("kept", true)]));
}

#[test]
fn section_2_7_2_and_4_2_and_5_the_rest_of_the_frame_is_relayed_unchanged() {
    let line = Line::with(&[]);
    let frame = json!({
        "version": "1.0",
        "Header": {"messageId": "m-1", "traceId": "t-1", "strange": {"z": [1, 2.5, null], "a": {"role": 5}}},
        "Body": {"task": "alert", "context": {"z": "é", "a": 1e30}, "content": ["text\n", {"type": "json"}]},
        "MemoryGrams": [{"MemoryGram": {"id": "550e8400-e29b-41d4-a716-446655440000", "timestamp": "2025-06-26T23:00:00Z",
            "nodes": [{"id": "n1", "type": "entity"}], "edges": []}}]
    });
    let output = line.first.send(&frame, &[]);
    let mut received_frame = output.received_frame().clone();
    let mark = received_frame["Header"]
        .as_object_mut()
        .and_then(|header| header.shift_remove("applied"))
        .expect("the active one's mark");
    assert_eq!(received_frame.to_string(), frame.to_string());
    // 2.7.3, rule 1: only the active intermediary is on record.
    assert_eq!(mark["by"].as_array().map(Vec::len), Some(1), "{mark}");
    assert_eq!(mark["by"][0]["node"], "agent://second");
    assert_eq!(output.at("/Header/relatesTo"), "m-1");
    assert_eq!(output.at("/Header/traceId"), "t-1");
}
