//! Signatures, encryption and permissions between nodes (7.0, 7.2, 7.3).

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use longshore::protocol::mesh::gram::{GramLimits, MemoryGram};
use serde_json::{Value, json};

use super::{ECHO, HttpResponse, Node, SendOutput, program, send};

const AMP: &str = "Content-Type: application/amp+json";

/// Key files and public halves of `sender`, `second`, `last` and `stranger`.
struct KeyFiles(tempfile::TempDir);

impl KeyFiles {
    fn new() -> Self {
        let keys = Self(tempfile::tempdir().expect("a directory"));
        for name in ["sender", "second", "last", "stranger"] {
            let output = program()
                .args(["mesh", "keygen", &keys.key(name), "--agent", &format!("agent://{name}")])
                .output()
                .expect("it runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            std::fs::write(keys.file(&format!("{name}.pub")), output.stdout).expect("written");
        }
        keys
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

    /// The public half with more fields.
    fn trusted(&self, name: &str, more: &Value) -> Value {
        let text = std::fs::read_to_string(self.public(name)).expect("it is there");
        let mut one: Value = serde_json::from_str(&text).expect("JSON");
        one.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        one
    }

    /// A trust file that permits `Body` to the sender, and changes to the second node.
    fn trust(&self) -> String {
        let agents = [
            self.trusted("sender", &json!({"allow": ["Body"]})),
            self.trusted("second", &json!({"rights": ["change"]})),
        ];
        let path = self.file("trust.json");
        std::fs::write(&path, json!({"agents": agents}).to_string()).expect("written");
        path.to_str().expect("text").to_owned()
    }

    /// A frame signed with a key.
    fn signed(&self, name: &str, frame: &Value, more: &[&str]) -> Value {
        let key = self.key(name);
        let output = printed(frame, &[&["--key", &key], more].concat());
        assert_eq!(output.code, Some(0), "{}", output.err);
        output.frame
    }
}

fn printed(frame: &Value, args: &[&str]) -> SendOutput {
    send("http://127.0.0.1:1", &json!({"frame": frame}).to_string(), &[&["--print"], args].concat())
}

fn post(node: &Node, frame: &Value) -> HttpResponse {
    node.post("/mesh", &[AMP], frame.to_string().as_bytes())
}

/// Subcode and node of a `Receiver` fault.
fn refused(answer: &HttpResponse) -> (&str, &str) {
    assert_eq!(answer.status, 500, "{} {}", answer.head, answer.body);
    let node = answer.body.pointer("/frame/Body/fault/node").and_then(Value::as_str).unwrap_or_default();
    (answer.subcode(), node)
}

fn task() -> Value {
    let gram = json!({"id": "550e8400-e29b-41d4-a716-446655440000", "timestamp": "2025-06-26T23:00:00Z",
        "nodes": [{"id": "n1", "type": "entity", "attributes": {"name": "Alice"}}], "edges": []});
    json!({"Header": {"order": {"amount": 5}}, "Body": {"task": "pay"}, "MemoryGrams": [gram]})
}

/// Three nodes that require signatures: forwarding, active with a key, and last.
fn strict(keys: &KeyFiles, last: &[&str], second: &[&str]) -> [Node; 3] {
    let trust = keys.trust();
    let (second_key, last_key) = (keys.key("second"), keys.key("last"));
    let strict = ["--trust", trust.as_str(), "--require-signature"];
    let last = Node::last(&[&strict[..], &["--key", &last_key], last].concat());
    let second = Node::active(&last, &[&strict[..], &["--key", &second_key], second].concat());
    let first = Node::forwarding(&second, &strict);
    [first, second, last]
}

#[test]
fn section_7_0_a_signed_frame_is_delivered_with_its_sender() {
    let keys = KeyFiles::new();
    let [first, _second, _last] = strict(&keys, &["--understand", "order"], &[]);
    let output = first.send(&task(), &["--key", &keys.key("sender")]);
    assert_eq!(output.code, Some(0), "{} {}", output.err, output.frame);
    assert_eq!(output.at("/Body/acknowledgment/sender"), "agent://sender");
    let processed = output.at("/Body/acknowledgment/processed").to_string();
    assert!(["authentication", "signature", "order"].iter().all(|name| processed.contains(name)), "{processed}");
}

#[test]
fn section_6_0_a_tampered_gram_is_refused_by_the_first_node_with_the_keys() {
    let keys = KeyFiles::new();
    let [first, second, last] = strict(&keys, &[], &[]);
    let signed = keys.signed("sender", &task(), &[]);
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
    // Refused frames are not remembered: the original is accepted.
    assert_eq!(post(&first, &signed).status, 200);
}

#[test]
fn section_6_0_a_tampered_gram_is_refused_by_its_hash_without_keys() {
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
    let output = first.send(&json!({"Body": {}, "MemoryGrams": [bad]}), &[]);
    assert_eq!(output.fault(), ("Sender", "MemoryGram", "agent://last"));
    assert!(output.err.contains("hash"), "{}", output.err);
}

#[test]
fn section_7_0_a_bad_signature_is_refused() {
    let keys = KeyFiles::new();
    let [first, _second, last] = strict(&keys, &[], &[]);
    let signed = keys.signed("sender", &task(), &[]);
    let other = keys.signed("stranger", &task(), &[]);
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
    // No signature, and one of an unknown key.
    let unsigned = json!({"frame": task()});
    assert_eq!(refused(&post(&first, &unsigned)).0, "SecurityViolation.Signature");
    let stranger = keys.signed("stranger", &task(), &[]);
    assert_eq!(refused(&post(&first, &stranger)), ("SecurityViolation.Authentication", "agent://first"));
    let mut disguised = stranger;
    disguised["frame"]["Header"]["authentication"] = signed["frame"]["Header"]["authentication"].clone();
    assert!(refused(&post(&first, &disguised)).0.starts_with("SecurityViolation."));
    assert_eq!(post(&first, &signed).status, 200);
}

#[test]
fn section_7_3_a_replayed_frame_is_refused_by_every_node() {
    let keys = KeyFiles::new();
    let [first, second, last] = strict(&keys, &[], &[]);
    let signed = keys.signed("sender", &task(), &[]);
    assert_eq!(post(&first, &signed).status, 200);
    for (node, uri) in [(&first, "agent://first"), (&second, "agent://second"), (&last, "agent://last")] {
        assert_eq!(refused(&post(node, &signed)), ("SecurityViolation.Replay", uri));
    }
    // Another id does not help: it is signed.
    let mut renamed = signed.clone();
    renamed["frame"]["Header"]["messageId"] = json!("another");
    assert!(refused(&post(&last, &renamed)).0.starts_with("SecurityViolation."));
}

#[test]
fn section_7_3_of_concurrent_copies_one_is_accepted() {
    let keys = KeyFiles::new();
    let last = Node::last(&["--trust", &keys.trust(), "--require-signature"]);
    let signed = keys.signed("sender", &task(), &[]);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let copies: Vec<_> = (0..24).map(|_| scope.spawn(|| post(&last, &signed).status)).collect();
        copies.into_iter().map(|copy| copy.join().expect("it ends")).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| [200, 500].contains(status)), "{statuses:?}");
}

#[test]
fn section_5_4_6_a_frame_may_be_resent_after_a_receiver_fault_but_not_if_stale() {
    let keys = KeyFiles::new();
    let flag = keys.file("flag");
    let handler = format!("if test -e '{0}'; then echo '{{}}'; else touch '{0}'; exit 1; fi", flag.display());
    let last = Node::last(&["--trust", &keys.trust(), "--require-signature", "--handler", &handler]);
    let signed = keys.signed("sender", &task(), &[]);
    assert_eq!(refused(&post(&last, &signed)).0, "HandlerFailed");
    assert_eq!(post(&last, &signed).status, 200);
    assert_eq!(refused(&post(&last, &signed)).0, "SecurityViolation.Replay");
    // Through an intermediary as well.
    std::fs::remove_file(&flag).expect("it is there");
    let first = Node::forwarding(&last, &["--trust", &keys.trust(), "--require-signature"]);
    let again = keys.signed("sender", &task(), &[]);
    assert_eq!(refused(&post(&first, &again)), ("HandlerFailed", "agent://last"));
    assert_eq!(post(&first, &again).status, 200);
    assert_eq!(refused(&post(&first, &again)), ("SecurityViolation.Replay", "agent://first"));
    let hasty = Node::last(&["--trust", &keys.trust(), "--require-signature", "--replay-window", "1ms"]);
    let old = keys.signed("sender", &task(), &[]);
    assert_eq!(refused(&post(&hasty, &old)).0, "SecurityViolation.Stale");
}

#[test]
fn section_2_7_3_changing_a_signed_frame_needs_a_new_signature_and_permission() {
    let keys = KeyFiles::new();
    let change = ["--annotate", "priority={\"level\":\"high\"}"];
    let [first, _second, last] = strict(&keys, &["--handler", ECHO], &change);
    let key = keys.key("sender");
    let output = first.send(&task(), &["--key", &key]);
    assert_eq!(output.received_frame()["Header"]["priority"]["level"], "high");
    assert_eq!(output.received_frame()["Header"]["signature"]["signer"], "agent://second");
    // Without a key the signature breaks; without the permission the new one does not count.
    let keyless = Node::active(&last, &change);
    let output = keyless.send(&task(), &["--key", &key]);
    assert_eq!(output.fault(), ("Receiver", "SecurityViolation.Signature", "agent://last"));
    let rightless =
        Node::last(&["--trust", &keys.public("sender"), "--trust", &keys.public("second"), "--require-signature"]);
    let second_key = keys.key("second");
    let trust = keys.trust();
    let second = Node::active(&rightless, &[&change[..], &["--trust", &trust, "--key", &second_key]].concat());
    let output = second.send(&task(), &["--key", &key]);
    assert_eq!(output.fault(), ("Receiver", "SecurityViolation.Signature", "agent://last"));
}

#[test]
fn section_7_2_only_the_ultimate_receiver_decrypts() {
    let keys = KeyFiles::new();
    let last_key = keys.key("last");
    let last = Node::last(&["--key", &last_key, "--handler", ECHO]);
    let second = Node::active(&last, &[]);
    let first = Node::forwarding(&second, &[]);
    let seal = ["--encrypt-to", &keys.public("last")];
    let sealed = printed(&task(), &seal).frame;
    assert!(!sealed["frame"]["Body"].to_string().contains("pay"), "{sealed}");
    assert_eq!(
        sealed["frame"]["Body"].as_object().map(|body| body.keys().collect::<Vec<_>>()),
        Some(vec![&"sealed".to_owned()])
    );
    // MemoryGrams are encrypted as well, and decrypted unchanged.
    assert!(!sealed.to_string().contains("Alice"), "{sealed}");
    assert_eq!(sealed["frame"]["MemoryGrams"][0]["id"], task()["MemoryGrams"][0]["id"]);
    let received_frame = first.send(&task(), &seal).received_frame().clone();
    assert_eq!(
        (&received_frame["Body"], &received_frame["MemoryGrams"]),
        (&json!({"task": "pay"}), &task()["MemoryGrams"])
    );
    // For another key, corrupted, and at a node without a key.
    let output = first.send(&task(), &["--encrypt-to", &keys.public("stranger")]);
    assert_eq!(output.fault(), ("Receiver", "SecurityViolation.Encryption", "agent://last"));
    let mut broken = sealed;
    let mut text = broken["frame"]["Body"]["sealed"].as_str().expect("a text").to_owned();
    let other = if text.starts_with('A') { "B" } else { "A" };
    text.replace_range(..1, other);
    broken["frame"]["Body"]["sealed"] = json!(text);
    assert_eq!(refused(&post(&first, &broken)), ("SecurityViolation.Encryption", "agent://last"));
    let keyless = Node::last(&[]);
    let output = keyless.send(&task(), &seal);
    assert_eq!((output.fault().0, output.at("/Header/notUnderstood")), ("MustUnderstand", &json!(["encryption"])));
}

#[test]
fn section_7_0_a_body_that_needs_permission_is_processed_for_permitted_senders() {
    let keys = KeyFiles::new();
    let issuer = keys.trusted("second", &json!({"rights": ["authorize"]}));
    let agents = [keys.trusted("sender", &json!({"allow": ["Body"]})), keys.trusted("stranger", &json!({})), issuer];
    let path = keys.file("leave.json");
    std::fs::write(&path, json!({"agents": agents}).to_string()).expect("written");
    let last = Node::last(&["--trust", path.to_str().expect("text"), "--need", "Body"]);
    assert_eq!(last.send(&task(), &["--key", &keys.key("sender")]).code, Some(0));
    for flags in [&["--key", &keys.key("stranger")][..], &[]] {
        let output = last.send(&task(), flags);
        assert_eq!(output.fault(), ("Receiver", "SecurityViolation.Authorization", "agent://last"), "{flags:?}");
    }
    // An agent with the permission to authorize grants it for one message.
    let grant = ["--key", &keys.key("second"), "--grant", "agent://second=Body"];
    assert_eq!(last.send(&task(), &grant).code, Some(0));
    let own = ["--key", &keys.key("stranger"), "--grant", "agent://stranger=Body"];
    assert_eq!(last.send(&task(), &own).fault().1, "SecurityViolation.Authorization");
}

#[test]
fn section_7_0_without_its_signature_a_message_has_no_permission_and_no_sender() {
    let keys = KeyFiles::new();
    let last = Node::last(&["--trust", &keys.trust(), "--need", "Body"]);
    let open =
        Node::last(&["--trust", &keys.trust(), "--handler", "printf '{\"from\":\"%s\"}' \"$LONGSHORE_MESH_SENDER\""]);
    let signed = keys.signed("sender", &task(), &[]);
    let mut stripped = signed.clone();
    stripped["frame"]["Header"].as_object_mut().expect("an object").shift_remove("signature");
    stripped["frame"]["Body"] = json!({"task": "steal"});
    let answer = post(&last, &stripped);
    assert_eq!(refused(&answer), ("SecurityViolation.Authorization", "agent://last"));
    assert!(answer.body.to_string().contains("`Body` is not signed by agent://sender"));
    assert_eq!(post(&open, &stripped).body["frame"]["Body"]["from"], "");
    assert_eq!(post(&last, &signed).status, 200);
    let again = keys.signed("sender", &task(), &[]);
    assert_eq!(post(&open, &again).body["frame"]["Body"]["from"], "agent://sender");
}

#[test]
fn section_7_3_a_message_signed_for_one_node_is_refused_by_others() {
    let keys = KeyFiles::new();
    let trust = keys.trust();
    let [one, two] = ["agent://one", "agent://two"]
        .map(|uri| Node::start(&["--uri", uri, "--trust", &trust, "--require-signature"]));
    let signed =
        keys.signed("sender", &json!({"Header": {"routing": {"role": "next", "to": "agent://one"}}, "Body": {}}), &[]);
    let mut diverted = signed.clone();
    diverted["frame"]["Header"].as_object_mut().expect("an object").shift_remove("routing");
    assert_eq!(refused(&post(&two, &diverted)), ("SecurityViolation.Signature", "agent://two"));
    assert_eq!(post(&one, &signed).status, 200);
}

#[test]
fn useless_keys_and_unsigned_blocks_are_refused_at_the_start() {
    let keys = KeyFiles::new();
    let refused = |args: &[&str], words: &str| {
        let output = program().args(["mesh", "serve", "--listen", "127.0.0.1:0"]).args(args).output().expect("it ends");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && err.contains(words), "{args:?}: {err}");
    };
    let key = keys.key("second");
    for more in [&["--active"][..], &["--annotate", "a={}"], &[]] {
        let key = ["--key", key.as_str(), "--forward", "http://127.0.0.1:9"];
        refused(&[&key, more].concat(), "cannot use a key");
    }
    let trust = keys.trust();
    for name in ["routing", "audit", "authentication", "signature", "authorization", "ttl", "applied"] {
        refused(&["--trust", &trust, "--need", name], "every node on the path may change the block");
    }
    refused(&["--trust", &trust, "--need", "no-name"], "is not a valid header block");
    let next = ["--forward", "http://127.0.0.1:9"];
    refused(&[&["--trust", &trust, "--need", "Body"], &next[..]].concat(), "an intermediary processes no Body");
    for name in ["applied", "signature"] {
        let block = format!("{name}={{}}");
        refused(&[&["--annotate", &block], &next[..]].concat(), "is reserved for the node itself");
    }
}

#[test]
fn section_7_2_every_hop_is_in_the_log_and_cannot_be_changed() {
    let keys = KeyFiles::new();
    let last = Node::last(&["--handler", ECHO]);
    let second = Node::active(&last, &["--audit", "--key", &keys.key("second")]);
    let first = Node::forwarding(&second, &["--audit"]);
    let output = first.send(&json!({"Body": {}}), &[]);
    let entries = output.received_frame()["Header"]["audit"]["entries"].as_array().cloned().unwrap_or_default();
    let agents: Vec<&str> = entries.iter().filter_map(|entry| entry["agentUri"].as_str()).collect();
    assert_eq!(agents[..2], ["agent://first", "agent://second"]);
    assert!(
        entries[..2].iter().all(|entry| entry["timestamp"].is_string() && entry["actions"].is_array()),
        "{entries:?}"
    );
    let mut forged = output.received_frame().clone();
    forged["Header"]["audit"]["entries"][0]["actions"] = json!(["nothing"]);
    assert_eq!(refused(&post(&last, &json!({"frame": forged}))), ("SecurityViolation.Audit", "agent://last"));
}

#[test]
fn section_2_7_a_frame_follows_the_routing_block() {
    let (one, two) = (Node::start(&["--uri", "agent://one"]), Node::start(&["--uri", "agent://two"]));
    let routes = [format!("agent://one={}", one.url), format!("agent://two={}", two.url)];
    let first = Node::start(&["--uri", "agent://first", "--route", &routes[0], "--route", &routes[1]]);
    let to = |to: &str, more: Value| {
        let mut routing = json!({"role": "next", "to": to, "mustUnderstand": true});
        routing.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        first.send(&json!({"Header": {"routing": routing}, "Body": {}}), &[])
    };
    for uri in ["agent://one", "agent://two"] {
        let output = to(uri, json!({}));
        assert_eq!((output.code, output.at("/Body/acknowledgment/node")), (Some(0), &json!(uri)), "{}", output.err);
    }
    assert_eq!(to("agent://three", json!({})).fault(), ("Receiver", "NoRoute", "agent://first"));
    assert_eq!(
        to("agent://one", json!({"visited": ["agent://first"]})).fault(),
        ("Sender", "RoutingLoop", "agent://first")
    );
    assert_eq!(to("agent://two", json!({"path": ["agent://one"]})).fault(), ("Sender", "Misrouted", "agent://one"));
}

#[test]
fn key_files_are_private_and_never_printed() {
    let keys = KeyFiles::new();
    let key = keys.key("last");
    let mode = |path: &str| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(&key), 0o600);
    let secret: Value = serde_json::from_str(&std::fs::read_to_string(&key).expect("text")).expect("JSON");
    let public = std::fs::read_to_string(keys.public("last")).expect("text");
    for part in ["sign", "open"] {
        assert!(!public.contains(secret[part].as_str().expect("a text")), "{part}");
    }
    let keygen = program().args(["mesh", "keygen", &key, "--agent", "agent://x"]).output().expect("it runs");
    assert_eq!(keygen.status.code(), Some(2), "a key is never overwritten");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).expect("its owner may");
    let output = printed(&task(), &["--key", &key]);
    assert_eq!(output.code, Some(2));
    assert!(output.err.contains("other users can read") && output.err.contains("chmod 600"), "{}", output.err);
    std::fs::write(keys.file("none.key"), "{\"agent\": \"s3cret\"}").expect("written");
    std::fs::set_permissions(keys.file("none.key"), std::fs::Permissions::from_mode(0o600)).expect("its owner may");
    let output = printed(&task(), &["--key", &keys.key("none")]);
    assert!(output.code == Some(2) && !output.err.contains("s3cret"), "{}", output.err);
}

#[test]
fn trust_files_may_be_toml_and_invalid_ones_are_refused() {
    let keys = KeyFiles::new();
    let one = keys.trusted("sender", &json!({}));
    let text = |key: &str| one[key].as_str().expect("a text");
    let toml = format!(
        "[[agents]]\nagent = \"{}\"\nkeyId = \"{}\"\nverify = \"{}\"\nallow = [\"Body\"]\n",
        text("agent"),
        text("keyId"),
        text("verify")
    );
    let path = keys.file("trust.toml");
    std::fs::write(&path, toml).expect("written");
    let trust = path.to_str().expect("text");
    let last = Node::last(&["--trust", trust, "--require-signature", "--need", "Body"]);
    assert_eq!(last.send(&task(), &["--key", &keys.key("sender")]).code, Some(0));
    let bad = |text: &str, words: &str| {
        std::fs::write(keys.file("bad.json"), text).expect("written");
        let file = keys.file("bad.json");
        let output = program()
            .args(["mesh", "serve", "--listen", "127.0.0.1:0", "--trust", file.to_str().expect("text")])
            .output()
            .expect("it ends");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && err.contains(words), "{text}: {err}");
    };
    bad("{}", "not a trust file");
    bad("{\"agents\": [{}]}", "not a trust file");
    bad(r#"{"agent": "agent://a", "keyId": "k", "verify": "AAAA"}"#, "Ed25519");
    bad(r#"{"agent": "agent://a", "keyId": "k", "verify": "AAAA", "may": []}"#, "may");
    bad(&json!({"agents": [one, one]}).to_string(), "duplicate key");
}
