//! The golden files of `tests/golden/amp`. The kinds: `message`, `ack` and `verdict` (criteria, and a reviewer's payload).

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::protocol::amp::message::{
    Ack, AmpDraft, AmpMessage, AmpMessageType, AmpRole, MsgId, Payload, ReviewVerdict,
};
use crate::protocol::amp::rules::{MAX_ENTRIES, MAX_MESSAGE_BYTES, MAX_TEXT_CHARS, RULES};
use crate::protocol::rule::Violation;
use crate::protocol::tests::golden::{
    GoldenFile, assert_invalid_files_are_rejected, assert_rules_are_covered, load_golden_files, mutated_file,
};

pub(super) fn violation(file: &GoldenFile) -> Option<Violation> {
    match file.kind.as_str() {
        "message" => AmpMessage::parse(file.text()).err(),
        "ack" => Ack::parse(file.text()).err(),
        _ => {
            let (criteria, verdict) = criteria_and_verdict(file);
            ReviewVerdict::parse(&verdict, &criteria).err()
        }
    }
}

fn criteria_and_verdict(file: &GoldenFile) -> (Vec<String>, String) {
    let value: serde_json::Value = serde_json::from_str(file.text()).expect("JSON");
    (serde_json::from_value(value["criteria"].clone()).expect("texts"), value["verdict"].to_string())
}

/// The message of a valid golden file.
fn valid_message(name: &str) -> AmpMessage {
    let golden =
        load_golden_files("amp/valid").into_iter().find(|golden| golden.name == name).expect("it is in the repo");
    AmpMessage::parse(golden.text()).expect("valid")
}

/// The spec's five examples.
fn spec_examples() -> [AmpMessage; 5] {
    [
        "01-task-dispatch-of-the-spec",
        "02-task-result-of-the-spec",
        "03-review-request-of-the-spec",
        "04-review-verdict-of-the-spec",
        "05-escalation-of-the-spec",
    ]
    .map(valid_message)
}

#[test]
fn valid_files_are_accepted() {
    for golden in load_golden_files("amp/valid") {
        assert_eq!(violation(&golden), None, "`{}`", golden.name);
    }
}

#[test]
fn valid_files_round_trip() {
    for golden in load_golden_files("amp/valid") {
        match golden.kind.as_str() {
            "message" => {
                let read = AmpMessage::parse(golden.text()).expect("valid");
                let written = read.to_json();
                assert_eq!(AmpMessage::parse(&written).as_ref(), Ok(&read), "`{}`", golden.name);
                assert_eq!(AmpMessage::new(read.id().clone(), read.draft().clone()), Ok(read), "`{}`", golden.name);
                assert!(!written.ends_with('\n') && written.contains("+00:00\""), "{written}");
            }
            "ack" => {
                let read = Ack::parse(golden.text()).expect("valid");
                assert_eq!(Ack::parse(&read.to_json()), Ok(read), "`{}`", golden.name);
            }
            _ => {
                let (criteria, verdict) = criteria_and_verdict(&golden);
                let read = ReviewVerdict::parse(&verdict, &criteria).expect("valid");
                let written = serde_json::to_string(&read).expect("JSON");
                assert_eq!(ReviewVerdict::parse(&written, &criteria), Ok(read), "`{}`", golden.name);
            }
        }
    }
}

#[test]
fn spec_examples_are_written_byte_for_byte() {
    // Keys in the spec's order, times with its offset: the files are written by another program, and not one byte differs.
    for golden in load_golden_files("amp/valid").iter().filter(|golden| golden.name.ends_with("of-the-spec")) {
        assert_eq!(format!("{}\n", AmpMessage::parse(golden.text()).expect("valid").to_json()), golden.text());
    }
}

#[test]
fn invalid_files_are_rejected_with_rule_and_field() {
    assert_invalid_files_are_rejected("amp/invalid", |file| vec![violation(file)]);
}

#[test]
fn every_rule_has_an_invalid_golden_file() {
    // A file that is too large would be too large for the repo: `oversized_messages_are_rejected` generates one.
    assert_rules_are_covered("amp/invalid", RULES, &["size"]);
}

#[test]
fn the_spec_sentence_table_names_every_rule() {
    let rows = include_str!("../mod.rs").lines().filter_map(|line| line.strip_prefix("//! | "));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>()).collect();
    let rows: Vec<&Vec<&str>> = rows.iter().filter(|row| row.len() == 5 && row[0] != "section").collect();
    assert!(rows.len() > 60, "most sentences are gone");
    let named: BTreeSet<&str> =
        rows.iter().flat_map(|row| row[2].split(", ")).map(|rule| rule.trim_matches('`')).collect();
    for row in &rows {
        assert!(!row[2].is_empty() || !row[3].is_empty(), "nothing holds it: {row:?}");
    }
    for rule in named.iter().filter(|rule| !rule.is_empty()) {
        assert!(RULES.iter().any(|known| known.name == *rule), "there is no rule `{rule}`");
    }
    for rule in RULES.iter().filter(|rule| rule.section != "longshore") {
        assert!(named.contains(rule.name), "no sentence of the spec is named for `{}`", rule.name);
    }
}

#[test]
fn oversized_messages_are_rejected() {
    let [dispatch, ..] = spec_examples();
    let made = |criteria: Vec<String>| {
        let mut draft = dispatch.draft().clone();
        let Payload::TaskDispatch(payload) = &mut draft.payload else { panic!("a dispatch") };
        payload.acceptance_criteria = criteria;
        AmpMessage::new(dispatch.id().clone(), draft)
    };
    let text = |length: usize| "ä".repeat(length);
    assert!(made(vec![text(MAX_TEXT_CHARS)]).is_ok());
    assert_eq!(made(vec![text(MAX_TEXT_CHARS + 1)]).map_err(|e| e.rule), Err("text-length"));
    assert!(made(vec!["x".to_owned(); MAX_ENTRIES]).is_ok());
    assert_eq!(made(vec!["x".to_owned(); MAX_ENTRIES + 1]).map_err(|e| e.rule), Err("list-length"));
    let largest = made(vec![text(MAX_TEXT_CHARS); 31]).expect("it fits");
    assert!(AmpMessage::parse(&largest.to_json()).is_ok());
    assert_eq!(made(vec![text(MAX_TEXT_CHARS); 33]).map_err(|e| e.rule), Err("size"));
    let padded = format!("{}{}", " ".repeat(MAX_MESSAGE_BYTES), largest.to_json());
    assert_eq!(AmpMessage::parse(&padded).map_err(|e| (e.rule, e.field)), Err(("size", "message".to_owned())));
    // What would be too large once it is written, for its indents, is refused as it is read.
    let deep = format!("{}{}{}", "[".repeat(100), vec!["1"; 30_000].join(","), "]".repeat(100));
    let text = dispatch.to_json().replace("\"6.0\"", &deep);
    assert!(text.len() < 100_000);
    assert_eq!(AmpMessage::parse(&text).map_err(|e| e.rule), Err("size"));
    let deep = deep.replace(&vec!["1"; 30_000].join(","), "1,1");
    assert!(AmpMessage::parse(&dispatch.to_json().replace("\"6.0\"", &deep)).is_ok());
}

#[test]
fn each_type_allows_only_its_routes() {
    use AmpRole::{Admin, Coordinator, Executor, Reviewer, System};
    let roles = [Admin, Coordinator, Executor, Reviewer, System];
    let mut ways = Vec::new();
    for message in spec_examples() {
        for (from, to) in roles.into_iter().flat_map(|from| roles.map(|to| (from, to))) {
            let draft = AmpDraft { from, to, ..message.draft().clone() };
            match AmpMessage::new(message.id().clone(), draft) {
                Ok(_) => ways.push((message.message_type(), from, to)),
                Err(problem) => assert_eq!(problem.rule, if to == System { "receiver" } else { "direction" }),
            }
        }
    }
    let expected = [
        (AmpMessageType::TaskDispatch, Admin, Coordinator),
        (AmpMessageType::TaskDispatch, Coordinator, Executor),
        (AmpMessageType::TaskResult, Executor, Coordinator),
        (AmpMessageType::ReviewRequest, Coordinator, Reviewer),
        (AmpMessageType::ReviewVerdict, Reviewer, Coordinator),
        (AmpMessageType::Escalation, Coordinator, Admin),
        (AmpMessageType::Escalation, Executor, Admin),
        (AmpMessageType::Escalation, Reviewer, Admin),
        (AmpMessageType::Escalation, System, Admin),
    ];
    assert_eq!(ways, expected);
}

#[test]
fn ack_timeouts_match_the_spec() {
    let seconds = |message: &AmpMessage| message.ack_timeout().map(|time| time.as_secs());
    let without = |message: &AmpMessage| {
        let draft = AmpDraft { ack_timeout_sec: None, ..message.draft().clone() };
        seconds(&AmpMessage::new(message.id().clone(), draft).expect("valid"))
    };
    assert_eq!(spec_examples().map(|message| without(&message)), [Some(300), Some(120), Some(600), Some(60), None]);
    let own = AmpDraft { ack_timeout_sec: Some(7), ..spec_examples()[0].draft().clone() };
    assert_eq!(seconds(&AmpMessage::new(spec_examples()[0].id().clone(), own).expect("valid")), Some(7));
    assert_eq!(seconds(&valid_message("escalation--with-an-ack-and-a-time")), Some(86_400));
    assert_eq!(seconds(&valid_message("escalation--with-an-ack-without-a-time")), None);
}

#[test]
fn values_json_cannot_express_are_rejected() {
    let [.., verdict, _] = spec_examples();
    for confidence in [f64::NAN, f64::INFINITY, -f64::INFINITY] {
        let mut draft = verdict.draft().clone();
        let Payload::ReviewVerdict(payload) = &mut draft.payload else { panic!("a verdict") };
        payload.confidence = confidence;
        assert_eq!(AmpMessage::new(verdict.id().clone(), draft).map_err(|e| e.rule), Err("confidence"));
    }
    let draft = AmpDraft { timestamp: jiff::Timestamp::MIN, ..verdict.draft().clone() };
    assert_eq!(AmpMessage::new(verdict.id().clone(), draft).map_err(|e| e.rule), Err("timestamp"));
}

#[test]
fn verdict_entries_are_matched_by_text_then_by_position() {
    let [.., verdict, _] = spec_examples();
    let Payload::ReviewVerdict(verdict) = verdict.payload().clone() else { panic!("a verdict") };
    let places = |criteria: &[&str]| {
        let criteria: Vec<String> = criteria.iter().map(|&text| text.to_owned()).collect();
        verdict.match_criteria(&criteria).map_err(|problem| problem.rule)
    };
    let (timing, ci) = ("Background recovery timing error < 500ms", "XCode Cloud all tests passed");
    assert_eq!(places(&[timing, ci]), Ok(vec![0, 1]));
    assert_eq!(places(&[ci, timing]), Ok(vec![1, 0]));
    assert_eq!(places(&["Something else", timing]), Ok(vec![1, 0]));
    assert_eq!(places(&["One", "Two"]), Ok(vec![0, 1]));
    assert_eq!(places(&[" XCode  Cloud all\ttests passed", "Two"]), Ok(vec![1, 0]));
    assert_eq!(places(&[timing]), Err("criteria-results"));
    assert_eq!(places(&[timing, ci, "Three"]), Err("criteria-results"));
}

#[test]
fn message_ids_round_trip() {
    for kind in AmpMessageType::ALL {
        let id = MsgId::new(kind, "T-2026-044".parse().expect("an id"), 1_772_116_327_001);
        assert_eq!(id.as_str().parse(), Ok(id.clone()));
        assert_eq!((id.message_type(), id.unix_ms()), (kind, 1_772_116_327_001));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn parsers_never_panic_on_mutated_files(bytes in mutated_file("amp/valid")) {
        let text = String::from_utf8_lossy(&bytes);
        let violations = [AmpMessage::parse(&text).err(), Ack::parse(&text).err(), ReviewVerdict::parse(&text, &[]).err()];
        for violation in violations.into_iter().flatten() {
            prop_assert!(RULES.iter().any(|rule| rule.name == violation.rule));
            prop_assert!(violation.to_string().chars().all(|c| !c.is_control()), "{}", violation);
        }
    }
}
