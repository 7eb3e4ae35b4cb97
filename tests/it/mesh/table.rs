//! The forwarding table (section 2.7.1, Table 3), row by row, on the wire: a forwarding and an active intermediary before the end.
//!
//! Each row is sent to both of them in one line of three nodes, and what the last one got is looked at.

use serde_json::{Map, Value, json};

use super::{ECHO, FIRST, Node, SECOND};

/// A line of three: `first` forwards, `second` is active, the last one tells what it got.
struct Line {
    _last: Node,
    _second: Node,
    first: Node,
}

impl Line {
    /// With these flags for both intermediaries.
    fn with(flags: &[&str]) -> Self {
        let last = Node::last(&["--handler", ECHO]);
        let second = Node::active(&last, flags);
        let first = Node::forwarding(&second, flags);
        Self { _last: last, _second: second, first }
    }

    /// The header that reached the end.
    fn header(&self, header: Value) -> Map<String, Value> {
        let said = self.first.send(&json!({"Header": header, "Body": {"task": "t"}}), &[]);
        said.got()["Header"].as_object().cloned().unwrap_or_default()
    }
}

#[test]
fn section_2_7_1_row_1_next_assumed_and_processed_is_not_forwarded_unless_reinserted() {
    let line = Line::with(&["--understand", "done", "--reinsert", "again"]);
    for relay in [true, false] {
        let done = json!({"role": "next", "relay": relay, "mustUnderstand": true});
        let again = json!({"role": "next", "relay": relay, "x": 1});
        let got = line.header(json!({"done": done, "again": again}));
        assert_eq!((got.get("done"), got.get("again")), (None, Some(&again)), "{relay}");
    }
}

#[test]
fn section_2_7_1_row_2_next_not_processed_is_forwarded_if_relay() {
    let line = Line::with(&[]);
    let got = line.header(json!({"kept": {"role": "next", "relay": true, "x": 1}, "lost": {"role": "next"}, "lostToo": {"role": "next", "relay": false}}));
    assert_eq!(got.get("kept"), Some(&json!({"role": "next", "relay": true, "x": 1})));
    assert!(!got.contains_key("lost") && !got.contains_key("lostToo"), "{got:?}");
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
    let got = line.header(header);
    assert!(!got.contains_key("done") && !got.contains_key("doneToo"), "{got:?}");
    assert_eq!((got.get("again"), got.get("againToo")), (Some(&block(FIRST)), Some(&block(SECOND))));
}

#[test]
fn section_2_7_1_row_4_user_defined_not_processed_is_forwarded_if_relay() {
    let line = Line::with(&[]);
    for role in [FIRST, SECOND] {
        let block = |relay: bool| json!({"role": role, "relay": relay});
        let got = line.header(json!({"kept": block(true), "lost": block(false)}));
        assert_eq!((got.get("kept"), got.get("lost")), (Some(&block(true)), None), "{role}");
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
fn section_2_7_1_row_5_ultimate_receiver_is_processed_at_the_end_alone() {
    let last = Node::last(&["--understand", "order"]);
    let second = Node::active(&last, &["--understand", "order"]);
    let first = Node::forwarding(&second, &["--understand", "order"]);
    for role in [json!("ultimateReceiver"), json!("amp://role/ultimateReceiver"), Value::Null] {
        let mut block = json!({"mustUnderstand": true, "role": role});
        if role.is_null() {
            block.as_object_mut().expect("an object").remove("role");
        }
        let said = first.send(&json!({"Header": {"order": block}, "Body": {}}), &[]);
        assert_eq!(said.code, Some(0), "{}", said.err);
        assert_eq!(said.at("/Body/acknowledgment/processed"), &json!(["order"]), "{role}");
        assert_eq!(said.at("/Body/acknowledgment/node"), "agent://last");
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
    let got = line.header(json!({"headerBlocks": blocks}));
    assert_eq!(got["headerBlocks"], json!([block("again", false), block("kept", true)]));
}

#[test]
fn section_2_7_2_and_4_2_and_5_the_rest_of_the_frame_is_relayed_as_it_came() {
    let line = Line::with(&[]);
    let frame = json!({
        "version": "1.0",
        "Header": {"messageId": "m-1", "traceId": "t-1", "strange": {"z": [1, 2.5, null], "a": {"role": 5}}},
        "Body": {"task": "alert", "context": {"z": "é", "a": 1e30}, "content": ["text\n", {"type": "json"}]},
        "MemoryGrams": [{"MemoryGram": {"id": "550e8400-e29b-41d4-a716-446655440000", "timestamp": "2025-06-26T23:00:00Z",
            "nodes": [{"id": "n1", "type": "entity"}], "edges": []}}]
    });
    let said = line.first.send(&frame, &[]);
    let mut got = said.got().clone();
    let mark =
        got["Header"].as_object_mut().and_then(|header| header.shift_remove("applied")).expect("the active one's mark");
    assert_eq!(got.to_string(), frame.to_string());
    // 2.7.3, rule 1: it says who did what; the forwarding one changed nothing and says nothing.
    assert_eq!(mark["by"].as_array().map(Vec::len), Some(1), "{mark}");
    assert_eq!(mark["by"][0]["node"], "agent://second");
    assert_eq!(said.at("/Header/relatesTo"), "m-1");
    assert_eq!(said.at("/Header/traceId"), "t-1");
}
