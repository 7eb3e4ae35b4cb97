//! Signed, sealed and allowed frames between nodes that trust some and not others (sections 7.0, 7.2, 7.3).

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use longshore::protocol::mesh::gram::{GramLimits, MemoryGram};
use serde_json::{Value, json};

use super::{ECHO, Node, Raw, Said, program, send};

const AMP: &str = "Content-Type: application/amp+json";

/// Who there is: `sender`, `second`, `last`, `stranger`, each with a key file and a public half.
struct People(tempfile::TempDir);

impl People {
    fn new() -> Self {
        let people = Self(tempfile::tempdir().expect("a folder"));
        for name in ["sender", "second", "last", "stranger"] {
            let output = program()
                .args(["mesh", "keygen", &people.key(name), "--agent", &format!("agent://{name}")])
                .output()
                .expect("it runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            std::fs::write(people.file(&format!("{name}.pub")), output.stdout).expect("written");
        }
        people
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn key(&self, name: &str) -> String {
        self.file(&format!("{name}.key")).to_str().expect("text").to_owned()
    }

    fn public(&self, name: &str) -> String {
        self.file(&format!("{name}.pub")).to_str().expect("text").to_owned()
    }

    /// The public half with more beside it.
    fn trusted(&self, name: &str, more: &Value) -> Value {
        let text = std::fs::read_to_string(self.public(name)).expect("it is there");
        let mut one: Value = serde_json::from_str(&text).expect("JSON");
        one.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        one
    }

    /// A trust file with the sender, who may have the Body processed, and the second node, who may change what it passes on.
    fn trust(&self) -> String {
        let agents = [
            self.trusted("sender", &json!({"allow": ["Body"]})),
            self.trusted("second", &json!({"rights": ["change"]})),
        ];
        let path = self.file("trust.json");
        std::fs::write(&path, json!({"agents": agents}).to_string()).expect("written");
        path.to_str().expect("text").to_owned()
    }

    /// A frame as it would be sent, with a key.
    fn signed(&self, name: &str, frame: &Value, more: &[&str]) -> Value {
        let key = self.key(name);
        let said = printed(frame, &[&["--key", &key], more].concat());
        assert_eq!(said.code, Some(0), "{}", said.err);
        said.frame
    }
}

fn printed(frame: &Value, args: &[&str]) -> Said {
    send("http://127.0.0.1:1", &json!({"frame": frame}).to_string(), &[&["--print"], args].concat())
}

fn post(node: &Node, frame: &Value) -> Raw {
    node.post("/mesh", &[AMP], frame.to_string().as_bytes())
}

/// Subcode and node of the fault.
fn refused(answer: &Raw) -> (&str, &str) {
    assert_eq!(answer.status, 500, "{} {}", answer.head, answer.body);
    let node = answer.body.pointer("/frame/Body/fault/node").and_then(Value::as_str).unwrap_or_default();
    (answer.subcode(), node)
}

fn task() -> Value {
    let gram = json!({"id": "550e8400-e29b-41d4-a716-446655440000", "timestamp": "2025-06-26T23:00:00Z",
        "nodes": [{"id": "n1", "type": "entity", "attributes": {"name": "Alice"}}], "edges": []});
    json!({"Header": {"order": {"amount": 5}}, "Body": {"task": "pay"}, "MemoryGrams": [gram]})
}

/// Three nodes that want everything signed: forwarding, active with a key of its own, and the end.
fn strict(people: &People, last: &[&str], second: &[&str]) -> [Node; 3] {
    let trust = people.trust();
    let (second_key, last_key) = (people.key("second"), people.key("last"));
    let strict = ["--trust", trust.as_str(), "--require-signature"];
    let last = Node::last(&[&strict[..], &["--key", &last_key], last].concat());
    let second = Node::active(&last, &[&strict[..], &["--key", &second_key], second].concat());
    let first = Node::forwarding(&second, &strict);
    [first, second, last]
}

#[test]
fn section_7_0_a_signed_frame_goes_through_and_its_sender_is_known() {
    let people = People::new();
    let [first, _second, _last] = strict(&people, &["--understand", "order"], &[]);
    let said = first.send(&task(), &["--key", &people.key("sender")]);
    assert_eq!(said.code, Some(0), "{} {}", said.err, said.frame);
    assert_eq!(said.at("/Body/acknowledgment/sender"), "agent://sender");
    let processed = said.at("/Body/acknowledgment/processed").to_string();
    assert!(["authentication", "signature", "order"].iter().all(|name| processed.contains(name)), "{processed}");
}

#[test]
fn section_6_0_a_tampered_memory_gram_is_refused_at_the_first_node_that_has_the_keys() {
    let people = People::new();
    let [first, second, last] = strict(&people, &[], &[]);
    let signed = people.signed("sender", &task(), &[]);
    for (pointer, value) in [
        ("/frame/MemoryGrams/0/nodes/0/attributes/name", json!("Mallory")),
        ("/frame/MemoryGrams/0/timestamp", json!("2025-06-26T23:00:01Z")),
        ("/frame/MemoryGrams", json!([])),
    ] {
        let mut bad = signed.clone();
        *bad.pointer_mut(pointer).expect(pointer) = value;
        for (node, uri) in [(&first, "agent://first"), (&second, "agent://second"), (&last, "agent://last")] {
            assert_eq!(refused(&post(node, &bad)), ("SecurityViolation.Signature", uri), "{pointer}");
        }
    }
    // What was refused was not taken: the frame itself is good.
    assert_eq!(post(&first, &signed).status, 200);
}

#[test]
fn section_6_0_a_tampered_memory_gram_is_refused_by_its_own_hash_without_any_keys() {
    let gram = json!({"id": "550e8400-e29b-41d4-a716-446655440000", "timestamp": "2025-06-26T23:00:00Z",
        "nodes": [{"id": "n1", "type": "entity"}], "edges": [], "metadata": {"sourceAgent": "agent://sender"}});
    let hash = MemoryGram::from_json(&gram, &GramLimits::default()).expect("a good gram").hash().to_owned();
    let mut good = gram;
    good["metadata"]["contentHash"] = json!(hash);
    let mut bad = good.clone();
    bad["nodes"][0]["type"] = json!("state");
    let last = Node::last(&[]);
    let second = Node::active(&last, &[]);
    let first = Node::forwarding(&second, &[]);
    assert_eq!(first.send(&json!({"Body": {}, "MemoryGrams": [good]}), &[]).code, Some(0));
    let said = first.send(&json!({"Body": {}, "MemoryGrams": [bad]}), &[]);
    assert_eq!(said.fault(), ("Sender", "MemoryGram", "agent://last"));
    assert!(said.err.contains("hash"), "{}", said.err);
}

#[test]
fn section_7_0_a_bad_signature_is_refused() {
    let people = People::new();
    let [first, _second, last] = strict(&people, &[], &[]);
    let signed = people.signed("sender", &task(), &[]);
    let other = people.signed("stranger", &task(), &[]);
    let other = |pointer: &str| other.pointer(pointer).expect(pointer).clone();
    for (pointer, value) in [
        ("/frame/Body/task", json!("steal")),
        ("/frame/Header/order/amount", json!(500)),
        ("/frame/Header/signature/value", json!("AAAA")),
        ("/frame/Header/signature/value", other("/frame/Header/signature/value")),
        ("/frame/Header/signature/keyId", other("/frame/Header/signature/keyId")),
        ("/frame/Header/signature", other("/frame/Header/signature")),
    ] {
        let mut bad = signed.clone();
        *bad.pointer_mut(pointer).expect(pointer) = value;
        for (node, uri) in [(&first, "agent://first"), (&last, "agent://last")] {
            let answer = post(node, &bad);
            assert_eq!(refused(&answer), ("SecurityViolation.Signature", uri), "{pointer}");
            let fault = &answer.body["frame"]["Body"]["fault"];
            assert_eq!((&fault["code"]["value"], &fault["escalateToHuman"]), (&json!("Receiver"), &json!(true)));
        }
    }
    // None at all, and one of somebody whom nobody knows.
    let unsigned = json!({"frame": task()});
    assert_eq!(refused(&post(&first, &unsigned)).0, "SecurityViolation.Signature");
    let stranger = people.signed("stranger", &task(), &[]);
    assert_eq!(refused(&post(&first, &stranger)), ("SecurityViolation.Authentication", "agent://first"));
    let mut disguised = stranger;
    disguised["frame"]["Header"]["authentication"] = signed["frame"]["Header"]["authentication"].clone();
    assert!(refused(&post(&first, &disguised)).0.starts_with("SecurityViolation."));
    assert_eq!(post(&first, &signed).status, 200);
}

#[test]
fn section_7_3_a_replayed_frame_is_refused_at_every_node_that_saw_it() {
    let people = People::new();
    let [first, second, last] = strict(&people, &[], &[]);
    let signed = people.signed("sender", &task(), &[]);
    assert_eq!(post(&first, &signed).status, 200);
    for (node, uri) in [(&first, "agent://first"), (&second, "agent://second"), (&last, "agent://last")] {
        assert_eq!(refused(&post(node, &signed)), ("SecurityViolation.Replay", uri));
    }
    // Another body under the same id does not help, nor does another id: both are signed.
    let mut renamed = signed.clone();
    renamed["frame"]["Header"]["messageId"] = json!("another");
    assert!(refused(&post(&last, &renamed)).0.starts_with("SecurityViolation."));
}

#[test]
fn section_7_3_of_many_copies_at_once_one_is_taken() {
    let people = People::new();
    let last = Node::last(&["--trust", &people.trust(), "--require-signature"]);
    let signed = people.signed("sender", &task(), &[]);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let copies: Vec<_> = (0..24).map(|_| scope.spawn(|| post(&last, &signed).status)).collect();
        copies.into_iter().map(|copy| copy.join().expect("it ends")).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| [200, 500].contains(status)), "{statuses:?}");
}

#[test]
fn section_5_4_6_what_a_receiver_could_not_do_may_be_sent_again_and_what_was_too_old_may_not() {
    let people = People::new();
    let flag = people.file("flag");
    let handler = format!("if test -e '{0}'; then echo '{{}}'; else touch '{0}'; exit 1; fi", flag.display());
    let last = Node::last(&["--trust", &people.trust(), "--require-signature", "--handler", &handler]);
    let signed = people.signed("sender", &task(), &[]);
    assert_eq!(refused(&post(&last, &signed)).0, "HandlerFailed");
    assert_eq!(post(&last, &signed).status, 200);
    assert_eq!(refused(&post(&last, &signed)).0, "SecurityViolation.Replay");
    // Through others, too: each of them lets it by again, and the end takes it once.
    std::fs::remove_file(&flag).expect("it is there");
    let first = Node::forwarding(&last, &["--trust", &people.trust(), "--require-signature"]);
    let again = people.signed("sender", &task(), &[]);
    assert_eq!(refused(&post(&first, &again)), ("HandlerFailed", "agent://last"));
    assert_eq!(post(&first, &again).status, 200);
    assert_eq!(refused(&post(&first, &again)), ("SecurityViolation.Replay", "agent://first"));
    let hasty = Node::last(&["--trust", &people.trust(), "--require-signature", "--replay-window", "1ms"]);
    let old = people.signed("sender", &task(), &[]);
    assert_eq!(refused(&post(&hasty, &old)).0, "SecurityViolation.Stale");
}

#[test]
fn section_2_7_3_who_changes_a_signed_frame_signs_it_anew_and_has_to_have_the_right() {
    let people = People::new();
    let change = ["--annotate", "priority={\"level\":\"high\"}"];
    let [first, _second, last] = strict(&people, &["--handler", ECHO], &change);
    let key = people.key("sender");
    let said = first.send(&task(), &["--key", &key]);
    assert_eq!(said.got()["Header"]["priority"]["level"], "high");
    assert_eq!(said.got()["Header"]["signature"]["signer"], "agent://second");
    // One without a key breaks the signature, and one whom nobody gave the right is not believed.
    let keyless = Node::active(&last, &change);
    let said = keyless.send(&task(), &["--key", &key]);
    assert_eq!(said.fault(), ("Receiver", "SecurityViolation.Signature", "agent://last"));
    let rightless =
        Node::last(&["--trust", &people.public("sender"), "--trust", &people.public("second"), "--require-signature"]);
    let second_key = people.key("second");
    let trust = people.trust();
    let second = Node::active(&rightless, &[&change[..], &["--trust", &trust, "--key", &second_key]].concat());
    let said = second.send(&task(), &["--key", &key]);
    assert_eq!(said.fault(), ("Receiver", "SecurityViolation.Signature", "agent://last"));
}

#[test]
fn section_7_2_only_the_end_reads_what_is_sealed() {
    let people = People::new();
    let last_key = people.key("last");
    let last = Node::last(&["--key", &last_key, "--handler", ECHO]);
    let second = Node::active(&last, &[]);
    let first = Node::forwarding(&second, &[]);
    let seal = ["--encrypt-to", &people.public("last")];
    let sealed = printed(&task(), &seal).frame;
    assert!(!sealed["frame"]["Body"].to_string().contains("pay"), "{sealed}");
    assert_eq!(
        sealed["frame"]["Body"].as_object().map(|body| body.keys().collect::<Vec<_>>()),
        Some(vec![&"sealed".to_owned()])
    );
    // The snapshots that travel along are sealed with it, and come out as they went in.
    assert!(!sealed.to_string().contains("Alice"), "{sealed}");
    assert_eq!(sealed["frame"]["MemoryGrams"][0]["id"], task()["MemoryGrams"][0]["id"]);
    let got = first.send(&task(), &seal).got().clone();
    assert_eq!((&got["Body"], &got["MemoryGrams"]), (&json!({"task": "pay"}), &task()["MemoryGrams"]));
    // For another, broken, and to one who has no key.
    let said = first.send(&task(), &["--encrypt-to", &people.public("stranger")]);
    assert_eq!(said.fault(), ("Receiver", "SecurityViolation.Encryption", "agent://last"));
    let mut broken = sealed;
    let text = broken["frame"]["Body"]["sealed"].as_str().expect("a text").replacen(['A', 'b', '1', 'Q'], "x", 1);
    broken["frame"]["Body"]["sealed"] = json!(text);
    assert_eq!(refused(&post(&first, &broken)), ("SecurityViolation.Encryption", "agent://last"));
    let keyless = Node::last(&[]);
    let said = keyless.send(&task(), &seal);
    assert_eq!((said.fault().0, said.at("/Header/notUnderstood")), ("MustUnderstand", &json!(["encryption"])));
}

#[test]
fn section_7_0_a_body_that_needs_a_leave_is_processed_for_those_who_have_it() {
    let people = People::new();
    let issuer = people.trusted("second", &json!({"rights": ["authorize"]}));
    let agents =
        [people.trusted("sender", &json!({"allow": ["Body"]})), people.trusted("stranger", &json!({})), issuer];
    let path = people.file("leave.json");
    std::fs::write(&path, json!({"agents": agents}).to_string()).expect("written");
    let last = Node::last(&["--trust", path.to_str().expect("text"), "--need", "Body"]);
    assert_eq!(last.send(&task(), &["--key", &people.key("sender")]).code, Some(0));
    for flags in [&["--key", &people.key("stranger")][..], &[]] {
        let said = last.send(&task(), flags);
        assert_eq!(said.fault(), ("Receiver", "SecurityViolation.Authorization", "agent://last"), "{flags:?}");
    }
    // Somebody with the right to says that this one message is allowed.
    let grant = ["--key", &people.key("second"), "--grant", "agent://second=Body"];
    assert_eq!(last.send(&task(), &grant).code, Some(0));
    let own = ["--key", &people.key("stranger"), "--grant", "agent://stranger=Body"];
    assert_eq!(last.send(&task(), &own).fault().1, "SecurityViolation.Authorization");
}

#[test]
fn section_7_0_without_its_signature_a_message_has_no_leave_and_no_sender() {
    let people = People::new();
    let last = Node::last(&["--trust", &people.trust(), "--need", "Body"]);
    let open =
        Node::last(&["--trust", &people.trust(), "--handler", "printf '{\"from\":\"%s\"}' \"$LONGSHORE_MESH_SENDER\""]);
    let signed = people.signed("sender", &task(), &[]);
    let mut stripped = signed.clone();
    stripped["frame"]["Header"].as_object_mut().expect("an object").shift_remove("signature");
    stripped["frame"]["Body"] = json!({"task": "steal"});
    let answer = post(&last, &stripped);
    assert_eq!(refused(&answer), ("SecurityViolation.Authorization", "agent://last"));
    assert!(answer.body.to_string().contains("no signature says that `Body` is as agent://sender sent it"));
    assert_eq!(post(&open, &stripped).body["frame"]["Body"]["from"], "");
    assert_eq!(post(&last, &signed).status, 200);
    let again = people.signed("sender", &task(), &[]);
    assert_eq!(post(&open, &again).body["frame"]["Body"]["from"], "agent://sender");
}

#[test]
fn section_7_3_a_message_signed_for_one_node_is_refused_by_another() {
    let people = People::new();
    let trust = people.trust();
    let [one, two] = ["agent://one", "agent://two"]
        .map(|uri| Node::start(&["--uri", uri, "--trust", &trust, "--require-signature"]));
    let signed = people.signed(
        "sender",
        &json!({"Header": {"routing": {"role": "next", "to": "agent://one"}}, "Body": {}}),
        &[],
    );
    let mut diverted = signed.clone();
    diverted["frame"]["Header"].as_object_mut().expect("an object").shift_remove("routing");
    assert_eq!(refused(&post(&two, &diverted)), ("SecurityViolation.Signature", "agent://two"));
    assert_eq!(post(&one, &signed).status, 200);
}

#[test]
fn a_key_that_would_do_nothing_and_a_block_that_nobody_answers_for_are_told_at_the_start() {
    let people = People::new();
    let refused = |args: &[&str], words: &str| {
        let output = program().args(["mesh", "serve", "--listen", "127.0.0.1:0"]).args(args).output().expect("it ends");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && err.contains(words), "{args:?}: {err}");
    };
    let key = people.key("second");
    for more in [&["--active"][..], &["--annotate", "a={}"], &[]] {
        let key = ["--key", key.as_str(), "--forward", "http://127.0.0.1:9"];
        refused(&[&key, more].concat(), "does nothing with a key");
    }
    let trust = people.trust();
    for name in ["routing", "audit", "authentication", "signature", "authorization", "ttl", "applied"] {
        refused(&["--trust", &trust, "--need", name], "every node on the way may change it");
    }
    refused(&["--trust", &trust, "--need", "no-name"], "cannot be a header block");
    let next = ["--forward", "http://127.0.0.1:9"];
    refused(&[&["--trust", &trust, "--need", "Body"], &next[..]].concat(), "an intermediary processes no Body");
    for name in ["applied", "signature"] {
        let block = format!("{name}={{}}");
        refused(&[&["--annotate", &block], &next[..]].concat(), "is the node's own to say");
    }
}

#[test]
fn section_7_2_every_hop_is_in_the_log_and_nobody_takes_it_out() {
    let people = People::new();
    let last = Node::last(&["--handler", ECHO]);
    let second = Node::active(&last, &["--audit", "--key", &people.key("second")]);
    let first = Node::forwarding(&second, &["--audit"]);
    let said = first.send(&json!({"Body": {}}), &[]);
    let entries = said.got()["Header"]["audit"]["entries"].as_array().cloned().unwrap_or_default();
    let agents: Vec<&str> = entries.iter().filter_map(|entry| entry["agentUri"].as_str()).collect();
    assert_eq!(agents[..2], ["agent://first", "agent://second"]);
    assert!(
        entries[..2].iter().all(|entry| entry["timestamp"].is_string() && entry["actions"].is_array()),
        "{entries:?}"
    );
    let mut forged = said.got().clone();
    forged["Header"]["audit"]["entries"][0]["actions"] = json!(["nothing"]);
    assert_eq!(refused(&post(&last, &json!({"frame": forged}))), ("SecurityViolation.Audit", "agent://last"));
}

#[test]
fn section_2_7_a_frame_goes_the_way_that_its_header_says() {
    let (one, two) = (Node::start(&["--uri", "agent://one"]), Node::start(&["--uri", "agent://two"]));
    let routes = [format!("agent://one={}", one.url), format!("agent://two={}", two.url)];
    let first = Node::start(&["--uri", "agent://first", "--route", &routes[0], "--route", &routes[1]]);
    let to = |to: &str, more: Value| {
        let mut routing = json!({"role": "next", "to": to, "mustUnderstand": true});
        routing.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        first.send(&json!({"Header": {"routing": routing}, "Body": {}}), &[])
    };
    for uri in ["agent://one", "agent://two"] {
        let said = to(uri, json!({}));
        assert_eq!((said.code, said.at("/Body/acknowledgment/node")), (Some(0), &json!(uri)), "{}", said.err);
    }
    assert_eq!(to("agent://three", json!({})).fault(), ("Receiver", "NoRoute", "agent://first"));
    assert_eq!(
        to("agent://one", json!({"visited": ["agent://first"]})).fault(),
        ("Sender", "RoutingLoop", "agent://first")
    );
    assert_eq!(to("agent://two", json!({"path": ["agent://one"]})).fault(), ("Sender", "Misrouted", "agent://one"));
}

#[test]
fn a_secret_is_its_owners_alone() {
    let people = People::new();
    let key = people.key("last");
    let mode = |path: &str| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(&key), 0o600);
    let secret: Value = serde_json::from_str(&std::fs::read_to_string(&key).expect("text")).expect("JSON");
    let public = std::fs::read_to_string(people.public("last")).expect("text");
    for part in ["sign", "open"] {
        assert!(!public.contains(secret[part].as_str().expect("a text")), "{part}");
    }
    let keygen = program().args(["mesh", "keygen", &key, "--agent", "agent://x"]).output().expect("it runs");
    assert_eq!(keygen.status.code(), Some(2), "a key is never overwritten");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).expect("its owner may");
    let said = printed(&task(), &["--key", &key]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("others can read") && said.err.contains("chmod 600"), "{}", said.err);
    std::fs::write(people.file("none.key"), "{\"agent\": \"s3cret\"}").expect("written");
    std::fs::set_permissions(people.file("none.key"), std::fs::Permissions::from_mode(0o600)).expect("its owner may");
    let said = printed(&task(), &["--key", &people.key("none")]);
    assert!(said.code == Some(2) && !said.err.contains("s3cret"), "{}", said.err);
}

#[test]
fn trust_files_as_toml_and_what_is_none() {
    let people = People::new();
    let one = people.trusted("sender", &json!({}));
    let text = |key: &str| one[key].as_str().expect("a text");
    let toml = format!(
        "[[agents]]\nagent = \"{}\"\nkeyId = \"{}\"\nverify = \"{}\"\nallow = [\"Body\"]\n",
        text("agent"),
        text("keyId"),
        text("verify")
    );
    let path = people.file("trust.toml");
    std::fs::write(&path, toml).expect("written");
    let trust = path.to_str().expect("text");
    let last = Node::last(&["--trust", trust, "--require-signature", "--need", "Body"]);
    assert_eq!(last.send(&task(), &["--key", &people.key("sender")]).code, Some(0));
    let bad = |text: &str, words: &str| {
        std::fs::write(people.file("bad.json"), text).expect("written");
        let file = people.file("bad.json");
        let output = program()
            .args(["mesh", "serve", "--listen", "127.0.0.1:0", "--trust", file.to_str().expect("text")])
            .output()
            .expect("it ends");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && err.contains(words), "{text}: {err}");
    };
    bad("{}", "no trust file");
    bad("{\"agents\": [{}]}", "no trust file");
    bad(r#"{"agent": "agent://a", "keyId": "k", "verify": "AAAA"}"#, "Ed25519");
    bad(r#"{"agent": "agent://a", "keyId": "k", "verify": "AAAA", "may": []}"#, "may");
    bad(&json!({"agents": [one, one]}).to_string(), "twice");
}
