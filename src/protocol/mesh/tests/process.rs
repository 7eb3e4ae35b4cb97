//! Tests of `process.rs`.

use serde_json::{Value, json};

use super::super::node::{BodyProblem, BodySchema};
use super::super::role::Role;
use super::super::tests::support::{
    NOW, expect_fault, expect_processed, expect_relayed, forwarding_intermediary, frame, into_fault, into_processed,
    ultimate_receiver,
};
use super::*;

#[test]
fn section_2_6_and_5_2_1_and_5_2_3_and_5_4_8_a_mandatory_block_not_understood_ends_processing() {
    let frame = frame(json!({
        "Header": {
            "messageId": "m-1",
            "one": {"mustUnderstand": true},
            "known": {"mustUnderstand": true},
            "optional": {"mustUnderstand": false},
            "headerBlocks": [{"type": "two", "role": "next", "mustUnderstand": 1}, {"type": "three", "role": "none", "mustUnderstand": true}]
        },
        "Body": {"fault": "not looked at in this step", "encodingStyle": 7}
    }));
    let fault = expect_fault(ultimate_receiver().with_understood_blocks(["known"]), frame);
    assert_eq!(fault.code, FaultCode::MustUnderstand);
    assert_eq!(fault.not_understood, ["one", "two"]);
    assert_eq!(fault.node.as_deref(), Some("agent://last"));
    assert_eq!(fault.relates_to.as_deref(), Some("m-1"));
    let json = fault.to_frame().to_json();
    assert_eq!(json["frame"]["Header"]["notUnderstood"], json!(["one", "two"]));
    assert_eq!(json["frame"]["Body"]["fault"]["code"]["value"], json!("MustUnderstand"));
    assert_eq!(json["frame"]["Body"].as_object().map(Map::len), Some(1), "one fault a message");
}

#[test]
fn section_2_3_blocks_are_targeted_by_role() {
    let header = json!({
        "forAll": {"role": "next"},
        "forMiddle": {"role": "intermediary"},
        "forLast": {"role": "amp://role/ultimateReceiver"},
        "forLastToo": {},
        "forNobody": {"role": "none"},
        "forSender": {"role": "initialSender"},
        "forCache": {"role": "amp://example.org/cache"},
        "forWhoever": {"role": "someToken"}
    });
    let all = ["forAll", "forMiddle", "forLast", "forLastToo", "forNobody", "forSender", "forCache", "forWhoever"];
    let frame = frame(json!({"Header": header, "Body": {}}));
    let last = expect_processed(ultimate_receiver().with_understood_blocks(all), frame.clone());
    assert_eq!(last.processed_blocks, ["forAll", "forLast", "forLastToo", "forWhoever"]);
    let middle = expect_relayed(forwarding_intermediary().with_understood_blocks(all), frame.clone());
    assert_eq!(middle.processed_blocks, ["forAll", "forMiddle"]);
    let cache =
        forwarding_intermediary().with_role("amp://example.org/cache").expect("a role").with_understood_blocks(all);
    assert_eq!(expect_relayed(&cache, frame).processed_blocks, ["forAll", "forCache", "forMiddle"]);
}

#[test]
fn section_2_4_a_mandatory_block_for_another_role_is_no_fault() {
    for role in ["none", "amp://example.org/cache", "initialSender", "intermediary"] {
        let frame = frame(json!({"Header": {"strange": {"role": role, "mustUnderstand": true}}, "Body": {}}));
        let last = expect_processed(ultimate_receiver(), frame);
        assert!(last.processed_blocks.is_empty(), "{role}");
    }
    let frame = frame(json!({"Header": {"strange": {"mustUnderstand": true}}, "Body": {}}));
    assert_eq!(expect_relayed(forwarding_intermediary(), frame).removed_blocks, [""; 0]);
}

#[test]
fn section_2_6_step_7_must_faults_take_precedence() {
    // Version, mandatory block and Body are all wrong: the version precedes.
    let frame = |version: &str| {
        let mut frame =
            frame(json!({"Header": {"strange": {"mustUnderstand": true}}, "Body": {"encodingStyle": "urn:x"}}));
        frame.version = Some(version.to_owned());
        frame
    };
    assert_eq!(expect_fault(ultimate_receiver(), frame("9.9")).code, FaultCode::VersionMismatch);
    assert_eq!(expect_fault(ultimate_receiver(), frame("1.0")).code, FaultCode::MustUnderstand);
    let known = ultimate_receiver().with_understood_blocks(["strange"]);
    assert_eq!(expect_fault(&known, frame("1.0")).code, FaultCode::DataEncodingUnknown);
}

#[test]
fn section_5_4_3_every_fault_names_its_node() {
    let bytes = br#"{"frame":{"Body":[]}}"#;
    for (node, role) in [(ultimate_receiver(), Role::UltimateReceiver), (forwarding_intermediary(), Role::Intermediary)]
    {
        let fault = into_fault(node.process_bytes(bytes, NOW));
        assert_eq!(
            (fault.code, fault.node.as_deref(), fault.role.clone()),
            (FaultCode::Sender, Some(node.uri()), Some(role))
        );
        assert_eq!(Fault::from_frame(&fault.to_frame()), Ok(Some(Box::new(fault))));
    }
}

#[test]
fn section_2_5_and_5_4_6_an_unknown_encoding_style_is_a_fault() {
    for (header, body) in [
        (json!({"known": {"encodingStyle": "urn:strange"}}), json!({})),
        (json!({}), json!({"encodingStyle": "urn:strange"})),
        (json!({}), json!({"metadata": {"encodingStyle": "urn:strange"}})),
    ] {
        let frame = frame(json!({"Header": header, "Body": body}));
        let mut node = ultimate_receiver().with_understood_blocks(["known"]);
        assert_eq!(expect_fault(&node, frame.clone()).code, FaultCode::DataEncodingUnknown);
        node.encoding_styles.insert("urn:strange".to_owned());
        expect_processed(&node, frame);
    }
    let unknown = frame(json!({"Header": {"unknown": {"encodingStyle": "urn:strange"}}, "Body": {}}));
    expect_processed(ultimate_receiver(), unknown);
    let elsewhere = frame(json!({"Body": {"encodingStyle": "urn:strange"}}));
    expect_relayed(forwarding_intermediary(), elsewhere);
}

struct TaskRequiredSchema;

impl BodySchema for TaskRequiredSchema {
    fn check(&self, body: &Map<String, Value>) -> Result<(), BodyProblem> {
        let problem = || BodyProblem { pointer: "/task".to_owned(), problem: "must be there, a text".to_owned() };
        body.get("task").filter(|task| task.is_string()).map(|_| ()).ok_or_else(problem)
    }
}

#[test]
fn section_2_5_and_2_6_and_5_3_and_5_3_1_a_body_that_violates_its_schema_is_refused() {
    let node = ultimate_receiver().with_body_schema(TaskRequiredSchema);
    // The Body as a whole, and each of its children.
    for body in [json!({}), json!({"task": {"id": 7}, "other": 1})] {
        let refused = expect_fault(&node, frame(json!({"Body": body})));
        assert_eq!((refused.code, refused.subcode.as_deref()), (FaultCode::Sender, Some(rules::BODY_SCHEMA)));
        assert_eq!(refused.pointer(), Some("/frame/Body/task"));
    }
    expect_processed(&node, frame(json!({"Body": {"task": "alert"}})));
    expect_relayed(forwarding_intermediary().with_body_schema(TaskRequiredSchema), frame(json!({"Body": {}})));
}

#[test]
fn section_5_3_1_only_the_fault_of_a_body_is_read() {
    let good = json!({"code": {"value": "Server.ProcessingError"}, "reason": [{"text": "Timeout.", "lang": "en-US"}]});
    let frame =
        |fault: Value| frame(json!({"Body": {"encodingStyle": 7, "fault": fault, "task": {"encodingStyle": "urn:x"}}}));
    let last = expect_processed(ultimate_receiver().with_body_schema(TaskRequiredSchema), frame(good));
    let fault = last.fault.expect("a fault");
    assert_eq!((fault.code, fault.reason_text()), (FaultCode::Receiver, "Timeout."));
    let bad = expect_fault(ultimate_receiver(), frame(json!({"reason": []})));
    assert_eq!(bad.subcode.as_deref(), Some(rules::FAULT_CODE));
}

#[test]
fn section_5_2_1_unknown_blocks_and_properties_are_ignored_and_preserved() {
    let value = json!({"Header": {"strange": {"what": [1, {"role": 5}]}, "field": 7, "known": {"role": "next", "more": {}}}, "Body": {"x": {"y": 1}}});
    let last = expect_processed(ultimate_receiver().with_understood_blocks(["known"]), frame(value.clone()));
    assert_eq!(last.frame.to_json()["frame"], value);
    let middle = expect_relayed(forwarding_intermediary().with_reinserted_blocks(["known"]), frame(value.clone()));
    assert_eq!(middle.frame.to_json()["frame"], value);
}

#[test]
fn section_1_4_grams_follow_the_header_block_rules() {
    let sealed = |more: Value| {
        let mut gram = json!({"id": "alert-evt", "encryption": {"scheme": "homomorphic", "keyId": "key-123"}});
        gram.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        frame(json!({"Body": {}, "MemoryGrams": [gram]}))
    };
    let refused = expect_fault(ultimate_receiver(), sealed(json!({"role": "next", "mustUnderstand": true})));
    assert_eq!((refused.code, refused.not_understood), (FaultCode::MustUnderstand, vec!["memoryGrams".to_owned()]));
    expect_processed(ultimate_receiver(), sealed(json!({"role": "next"})));
    expect_processed(ultimate_receiver(), sealed(json!({"role": "none", "mustUnderstand": true})));
    let count =
        |more: Value| expect_relayed(forwarding_intermediary(), sealed(more)).frame.memory_grams_or_empty().len();
    assert_eq!(count(json!({})), 1);
    assert_eq!(count(json!({"role": "next"})), 0);
    assert_eq!(count(json!({"role": "next", "relay": true})), 1);
    assert_eq!(count(json!({"role": "ultimateReceiver"})), 1);
}

#[test]
fn section_7_2_only_trusted_intermediaries_process_blocks_with_side_effects() {
    for name in ["routing", "audit"] {
        let mandatory = frame(json!({"Header": {name: {"role": "next", "mustUnderstand": true}}, "Body": {}}));
        let node = forwarding_intermediary().with_understood_blocks([name]);
        let refused = expect_fault(&node, mandatory.clone());
        assert_eq!((refused.code, refused.not_understood), (FaultCode::MustUnderstand, vec![name.to_owned()]));
        assert_eq!(
            expect_relayed(node.clone().with_authorized_blocks([name]), mandatory.clone()).processed_blocks,
            [name]
        );
        assert_eq!(
            expect_processed(ultimate_receiver().with_understood_blocks([name]), mandatory).processed_blocks,
            [name]
        );
        let optional = frame(json!({"Header": {name: {"role": "next", "relay": true}}, "Body": {}}));
        let ignored = expect_relayed(&node, optional);
        assert!(ignored.processed_blocks.is_empty() && ignored.removed_blocks.is_empty());
    }
}

#[test]
fn section_6_0_grams_are_validated_at_the_ultimate_receiver() {
    let gram = json!({
        "id": "550e8400-e29b-41d4-a716-446655440000", "timestamp": "2025-06-26T23:00:00Z",
        "nodes": [{"id": "n1", "type": "entity", "attributes": {}}],
        "edges": [{"source": "n1", "target": "n1", "weight": 0.75}]
    });
    let with = |pointer: &str, value: Value| {
        let mut gram = gram.clone();
        *gram.pointer_mut(pointer).expect("present") = value;
        frame(json!({"Body": {}, "MemoryGrams": [{"MemoryGram": gram}]}))
    };
    let good = expect_processed(ultimate_receiver(), with("/id", gram["id"].clone()));
    assert_eq!(good.grams.len(), 1);
    for (pointer, value) in [
        ("/id", json!("alert-evt")),
        ("/id", json!("550e8400-e29b-11d4-a716-446655440000")),
        ("/timestamp", json!("yesterday")),
        ("/timestamp", json!("2025-06-26T23:00:00+02:00")),
        ("/edges/0/target", json!("n2")),
        ("/nodes/0/id", json!(1)),
    ] {
        let bad = with(pointer, value);
        let refused = expect_fault(ultimate_receiver(), bad.clone());
        assert_eq!((refused.code, refused.subcode.as_deref()), (FaultCode::Sender, Some(rules::GRAM)), "{pointer}");
        assert_eq!(refused.pointer(), Some(format!("/frame/MemoryGrams/0{pointer}").as_str()));
        expect_relayed(forwarding_intermediary(), bad);
    }
    let node = gram["nodes"][0].clone();
    let refused = expect_fault(ultimate_receiver(), with("/nodes", json!([node, node])));
    assert_eq!(refused.detail["rule"], "gram-node-twice");
    assert_eq!(refused.pointer(), Some("/frame/MemoryGrams/0/nodes/1/id"));
}

#[test]
fn section_6_0_different_grams_with_one_id_are_refused() {
    let gram = |kind: &str| {
        json!({"id": "550e8400-e29b-41d4-a716-446655440000", "timestamp": "2025-06-26T23:00:00Z",
            "nodes": [{"id": "n1", "type": kind}], "edges": []})
    };
    let with = |other: Value| {
        process(&ultimate_receiver(), frame(json!({"Body": {}, "MemoryGrams": [gram("a"), other]})), NOW)
    };
    let refused = into_fault(with(gram("b")));
    assert_eq!((refused.code, refused.subcode.as_deref()), (FaultCode::Sender, Some(rules::GRAM)));
    assert_eq!(
        (refused.pointer(), &refused.detail["rule"]),
        (Some("/frame/MemoryGrams/1/id"), &json!("gram-immutable"))
    );
    assert_eq!(into_processed(with(json!({"MemoryGram": gram("a")}))).grams.len(), 1);
    let mut third = gram("b");
    third["id"] = json!("550e8400-e29b-41d4-a716-446655440001");
    assert_eq!(into_processed(with(third)).grams.len(), 2);
}

#[test]
fn section_2_6_step_7_an_unauthorized_mandatory_block_precedes_module_faults() {
    let frame = |hops: u64| {
        frame(json!({"Header": {"ttl": hops, "audit": {"role": "next", "mustUnderstand": true}}, "Body": {}}))
    };
    let node = || {
        forwarding_intermediary()
            .with_module(super::super::modules::ttl::Ttl)
            .with_module(super::super::modules::audit::Audit::default())
    };
    let refused = expect_fault(node(), frame(0));
    assert_eq!((refused.code, refused.not_understood), (FaultCode::MustUnderstand, vec!["audit".to_owned()]));
    let authorized = node().with_authorized_blocks(["audit"]);
    assert_eq!(expect_fault(&authorized, frame(0)).subcode.as_deref(), Some(rules::TTL_EXPIRED));
    expect_relayed(&authorized, frame(1));
}

#[test]
fn section_2_2_a_frame_does_not_change_a_node_s_roles() {
    // The frame's `roles` do not affect the node.
    let header = json!({"roles": ["ultimateReceiver", "none", "monitor"], "forMonitor": {"role": "monitor"}, "mine": {"role": "next"}});
    let node = forwarding_intermediary().with_understood_blocks(["forMonitor", "mine"]);
    let before = node.roles().clone();
    let outcome = expect_relayed(&node, frame(json!({"Header": header, "Body": {}})));
    assert_eq!(outcome.processed_blocks, ["mine"]);
    assert_eq!(*node.roles(), before);
}

#[test]
fn section_2_7_2_an_intermediary_follows_the_processing_model() {
    for node in [forwarding_intermediary(), Node::active_intermediary("agent://active").expect("a node")] {
        let mandatory = frame(json!({"Header": {"strange": {"role": "next", "mustUnderstand": true}}, "Body": {}}));
        let refused = expect_fault(&node, mandatory);
        assert_eq!((refused.code, refused.role.clone()), (FaultCode::MustUnderstand, Some(Role::Intermediary)));
        let mut other = frame(json!({"Body": {}}));
        other.version = Some("3.0".to_owned());
        assert_eq!(expect_fault(&node, other).code, FaultCode::VersionMismatch);
        // An intermediary does not read the Body.
        expect_relayed(&node, frame(json!({"Body": {"fault": "none", "encodingStyle": 7}})));
    }
}

struct FaultListSchema;

impl BodySchema for FaultListSchema {
    fn check(&self, _body: &Map<String, Value>) -> Result<(), BodyProblem> {
        Ok(())
    }

    fn check_fault(&self, fault: &Fault) -> Result<(), BodyProblem> {
        let known = ["MissingField", "MessageTimeout"].contains(&fault.subcode.as_deref().unwrap_or("MissingField"));
        let pointer = if known { "/detail" } else { "/code/subcode" };
        let problem = BodyProblem { pointer: pointer.to_owned(), problem: "is not on the list".to_owned() };
        if known && fault.detail.keys().all(|key| key == "missingFields") { Ok(()) } else { Err(problem) }
    }
}

#[test]
fn section_5_4_1_and_5_4_5_a_fault_is_checked_against_the_application_s_lists() {
    let process_fault = |subcode: &str, detail: &str| {
        let fault = json!({"code": {"value": "Sender", "subcode": subcode}, "reason": [{"text": "No.", "lang": "en"}], "detail": {detail: 1}});
        process(&ultimate_receiver().with_body_schema(FaultListSchema), frame(json!({"Body": {"fault": fault}})), NOW)
    };
    assert!(into_processed(process_fault("MissingField", "missingFields")).fault.is_some());
    for (subcode, detail, pointer) in
        [("Other", "missingFields", "/code/subcode"), ("MissingField", "other", "/detail")]
    {
        let refused = into_fault(process_fault(subcode, detail));
        assert_eq!(refused.subcode.as_deref(), Some(rules::FAULT_SCHEMA));
        assert_eq!(refused.pointer(), Some(format!("/frame/Body/fault{pointer}").as_str()));
    }
}

#[test]
fn section_7_0_unknown_security_blocks_follow_the_same_rules() {
    for name in ["authentication", "authorization", "signature", "encryption"] {
        let with = |block: Value| frame(json!({"Header": {name: block}, "Body": {}}));
        let relayed = expect_relayed(forwarding_intermediary(), with(json!({"role": "next", "relay": true})));
        assert!(relayed.removed_blocks.is_empty() && relayed.processed_blocks.is_empty(), "{name}");
        assert!(expect_processed(ultimate_receiver(), with(json!({}))).processed_blocks.is_empty(), "{name}");
        let refused = expect_fault(ultimate_receiver(), with(json!({"mustUnderstand": true})));
        assert_eq!((refused.code, refused.not_understood), (FaultCode::MustUnderstand, vec![name.to_owned()]));
    }
}
