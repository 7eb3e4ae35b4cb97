//! Tests of `fault_codec.rs`.

use serde_json::{Value, json};

use super::*;

fn parse_fault(fault: Value) -> Result<Box<Fault>, Box<Fault>> {
    let body = json!({"fault": fault});
    Fault::from_frame(&Frame::new(body.as_object().expect("an object").clone())).map(|fault| fault.expect("a fault"))
}

fn rejection(fault: Value) -> (String, String) {
    let fault = parse_fault(fault).expect_err("must be refused");
    assert_eq!(fault.code, FaultCode::Sender);
    let pointer = fault.pointer().unwrap_or_default().trim_start_matches("/frame/Body/fault").to_owned();
    (fault.subcode.unwrap_or_default(), pointer)
}

fn valid_fault() -> Value {
    json!({"code": {"value": "Sender"}, "reason": [{"text": "No.", "lang": "en-US"}]})
}

fn fault_with_replaced(path: &str, value: Value) -> Value {
    let mut fault = valid_fault();
    *fault.pointer_mut(path).expect("present") = value;
    fault
}

fn fault_with_added(key: &str, value: Value) -> Value {
    let mut fault = valid_fault();
    fault[key] = value;
    fault
}

#[test]
fn section_5_4_a_fault_round_trips_through_a_frame() {
    let mut fault = *Fault::security_violation("Signature", "is invalid").with_escalation();
    fault.node = Some("agent://node-17".to_owned());
    fault.role = Some(Role::Intermediary);
    fault.return_to = Some("agent://node-1".to_owned());
    fault.not_understood = vec!["alertControl".to_owned()];
    fault.supported_versions = vec!["1.0".to_owned()];
    fault.relates_to = Some("amp-1001".to_owned());
    fault.trace_id = Some("trace-1".to_owned());
    fault.reasons.push(FaultReason { text: "Elle ne convient pas.".to_owned(), lang: "fr-CA".to_owned() });
    let bytes = fault.to_frame().to_bytes();
    let frame = Frame::parse(&bytes, &super::super::limits::FrameLimits::default()).expect("a fault is a valid frame");
    assert!(frame.is_fault());
    assert_eq!(Fault::from_frame(&frame), Ok(Some(Box::new(fault))));
}

#[test]
fn section_5_4_1_the_code_must_have_a_value() {
    assert!(parse_fault(valid_fault()).is_ok());
    let mut none = valid_fault();
    none.as_object_mut().expect("an object").remove("code");
    assert_eq!(rejection(none), (rules::FAULT_CODE.to_owned(), "/code".to_owned()));
    assert_eq!(
        rejection(fault_with_replaced("/code", json!({}))),
        (rules::FAULT_CODE.to_owned(), "/code/value".to_owned())
    );
    assert_eq!(
        rejection(fault_with_replaced("/code/value", json!(5))),
        (rules::FAULT_CODE.to_owned(), "/code/value".to_owned())
    );
    assert_eq!(
        rejection(fault_with_replaced("/code", json!("Sender"))),
        (rules::FAULT_TYPE.to_owned(), "/code".to_owned())
    );
}

#[test]
fn section_5_4_1_subcodes_are_validated() {
    for subcode in ["MissingField", "MessageTimeout.NetworkFailure", "amp:TTLExpired", "E_42-b"] {
        let fault = parse_fault(fault_with_replaced("/code", json!({"value": "Sender", "subcode": subcode})))
            .expect("a subcode");
        assert_eq!(fault.subcode.as_deref(), Some(subcode));
    }
    for subcode in [json!(""), json!("a..b"), json!(".a"), json!("two words"), json!(7)] {
        let fault = fault_with_replaced("/code", json!({"value": "Sender", "subcode": subcode}));
        assert_eq!(rejection(fault), (rules::FAULT_SUBCODE.to_owned(), "/code/subcode".to_owned()), "{subcode}");
    }
}

#[test]
fn section_5_4_2_reasons_must_have_a_text_and_a_bcp_47_language() {
    for lang in ["en", "en-US", "fr-CA", "zh-Hant-TW", "de-CH-1996", "x-agent", "i-klingon", "sl-rozaj-biske"] {
        assert!(parse_fault(fault_with_replaced("/reason/0/lang", json!(lang))).is_ok(), "{lang}");
    }
    for lang in ["", "e", "english-language-x", "en_US", "en-", "en US", "-en"] {
        let expected = (rules::FAULT_LANG.to_owned(), "/reason/0/lang".to_owned());
        assert_eq!(rejection(fault_with_replaced("/reason/0/lang", json!(lang))), expected, "{lang}");
    }
    for reason in [json!([]), json!({"text": "No.", "lang": "en"}), json!("No."), json!(null)] {
        let expected = (rules::FAULT_REASON.to_owned(), "/reason".to_owned());
        assert_eq!(rejection(fault_with_replaced("/reason", reason.clone())), expected, "{reason}");
    }
    for (entry, key) in
        [(json!({"lang": "en"}), "text"), (json!({"text": "No."}), "lang"), (json!({"text": 1, "lang": "en"}), "text")]
    {
        let expected = (rules::FAULT_REASON.to_owned(), format!("/reason/0/{key}"));
        assert_eq!(rejection(fault_with_replaced("/reason/0", entry)), expected);
    }
}

#[test]
fn section_5_4_3_a_fault_of_an_intermediary_must_name_its_node() {
    assert!(parse_fault(fault_with_added("node", json!("agent://node-17"))).is_ok());
    assert_eq!(
        rejection(fault_with_added("node", json!("node-17"))),
        (rules::FAULT_NODE.to_owned(), "/node".to_owned())
    );
    for role in ["intermediary", "amp://role/intermediary"] {
        assert_eq!(
            rejection(fault_with_added("role", json!(role))),
            (rules::FAULT_NODE.to_owned(), "/node".to_owned()),
            "{role}"
        );
    }
    assert!(parse_fault(fault_with_added("role", json!("ultimateReceiver"))).is_ok());
}

#[test]
fn section_5_4_4_an_unknown_role_counts_as_ultimate_receiver() {
    assert_eq!(
        parse_fault(fault_with_added("role", json!("manager"))).map(|fault| fault.role),
        Ok(Some(Role::UltimateReceiver))
    );
    assert_eq!(
        parse_fault(fault_with_added("role", json!("initialSender"))).map(|fault| fault.role),
        Ok(Some(Role::InitialSender))
    );
    assert_eq!(
        rejection(fault_with_added("role", json!(["next"]))),
        (rules::FAULT_ROLE.to_owned(), "/role".to_owned())
    );
}

#[test]
fn section_5_4_5_detail_is_an_object_with_camel_case_keys() {
    let detail = json!({"missingCredentials": {"username": null}, "timeoutInfo": {"durationMs": 30000}});
    assert!(parse_fault(fault_with_added("detail", detail)).is_ok());
    assert_eq!(rejection(fault_with_added("detail", json!([]))), (rules::FAULT_TYPE.to_owned(), "/detail".to_owned()));
    assert_eq!(
        rejection(fault_with_added("detail", json!({"Bad-Key": 1}))),
        (rules::FAULT_DETAIL.to_owned(), "/detail".to_owned())
    );
}

#[test]
fn section_5_4_6_every_spelling_of_a_code_maps_to_a_base_code() {
    for code in FaultCode::ALL {
        let fault = parse_fault(fault_with_replaced("/code/value", json!(code.as_str()))).expect("a base code");
        assert_eq!((fault.code, fault.subcode), (code, None));
    }
    let cases = [
        ("Receiver.SecurityViolation", FaultCode::Receiver, Some("SecurityViolation")),
        ("Client.InvalidRequest", FaultCode::Sender, Some("InvalidRequest")),
        ("Server.ProcessingError", FaultCode::Receiver, Some("ProcessingError")),
        ("amp:MustUnderstand", FaultCode::MustUnderstand, None),
        ("amp:TTLExpired", FaultCode::Sender, Some("amp:TTLExpired")),
    ];
    for (value, code, subcode) in cases {
        let fault = parse_fault(fault_with_replaced("/code/value", json!(value))).expect(value);
        assert_eq!((fault.code, fault.subcode.as_deref()), (code, subcode), "{value}");
    }
    for value in ["", "sender", "Teapot", "Sender.", "amp:", ".Sender"] {
        let expected = (rules::FAULT_CODE_KNOWN.to_owned(), "/code/value".to_owned());
        assert_eq!(rejection(fault_with_replaced("/code/value", json!(value))), expected, "{value}");
    }
    assert!(FaultCode::ALL.iter().filter(|code| code.is_retryable()).eq([&FaultCode::Receiver]));
}

#[test]
fn section_5_4_6_a_version_mismatch_carries_the_upgrade_block() {
    let fault =
        super::super::version::SupportedVersions::default().check_supported(Some("9.0")).expect_err("not supported");
    let json = fault.to_frame().to_json();
    assert_eq!(json["frame"]["Header"]["Upgrade"]["supportedVersions"], json!(["1.0"]));
    assert_eq!(json["frame"]["Body"]["fault"]["code"]["value"], json!("VersionMismatch"));
}

#[test]
fn section_5_3_1_unknown_fault_fields_are_preserved() {
    let fault = parse_fault(fault_with_added("metadata", json!({"supportedVersions": ["1.0"]}))).expect("a fault");
    assert_eq!(fault.extra_fields["metadata"]["supportedVersions"], json!(["1.0"]));
    assert_eq!(
        rejection(fault_with_added("escalateToHuman", json!("yes"))),
        (rules::FAULT_TYPE.to_owned(), "/escalateToHuman".to_owned())
    );
    assert_eq!(
        rejection(fault_with_added("returnTo", json!(1))),
        (rules::FAULT_TYPE.to_owned(), "/returnTo".to_owned())
    );
    assert_eq!(rejection(json!([])), (rules::FAULT_TYPE.to_owned(), String::new()));
}
