//! Claims: rendering, parsing and precedence.

use super::*;

fn at(text: &str) -> Timestamp {
    parse_time(text).expect("a time")
}

fn state() -> SharedName {
    "STATE.md".parse().expect("a name")
}

fn claim(agent: &str, time: &str) -> Claim {
    Claim {
        agent: agent.parse().expect("an id"),
        at: at(time),
        target: state(),
        note: "adding progress on MCP fix.".to_owned(),
    }
}

fn claim_file(agent: &str, time: &str) -> ClaimFile {
    let claim = claim(agent, time);
    ClaimFile::parse(&claim.file_name(), claim.render().as_bytes(), claim.at, &state()).expect("a claim")
}

/// The spec's own (Write Coordination), but for its first line, which says where it stands.
#[test]
fn a_claim_is_rendered_as_in_the_spec() {
    let claim = claim("alpha", "2026-02-19T11:35:00");
    assert_eq!(claim.file_name(), ".claim-STATE-alpha");
    let spec = "<!-- agent: alpha -->\n<!-- timestamp: 2026-02-19T11:35:00 -->\n<!-- target: STATE.md -->\n\
                Claiming STATE.md for update — adding progress on MCP fix.\n";
    assert_eq!(claim.render(), spec);
}

/// Write Coordination.
#[test]
fn the_older_claim_wins_then_the_lower_id_and_stale_claims_are_ignored() {
    let now = at("2026-02-19T11:35:10");
    let mine = claim("bravo", "2026-02-19T11:35:05");
    let blocks = |before: &[ClaimFile], after: &[ClaimFile]| {
        competing_claim(&mine, before, after, now).map(|found| found.agent.as_str().to_owned())
    };
    assert_eq!(blocks(&[], &[claim_file("bravo", "2026-02-19T11:35:05")]), None, "one's own");
    assert_eq!(blocks(&[], &[claim_file("charlie", "2026-02-19T11:35:04")]).as_deref(), Some("charlie"), "older");
    assert_eq!(blocks(&[], &[claim_file("alpha", "2026-02-19T11:35:06")]), None, "younger");
    assert_eq!(blocks(&[], &[claim_file("alpha", "2026-02-19T11:35:05")]).as_deref(), Some("alpha"), "lower id");
    assert_eq!(blocks(&[], &[claim_file("charlie", "2026-02-19T11:35:05")]), None, "higher id");
    assert_eq!(
        blocks(&[claim_file("charlie", "2026-02-19T11:35:05")], &[]).as_deref(),
        Some("charlie"),
        "there before"
    );
    assert_eq!(blocks(&[claim_file("alpha", "2026-02-19T11:33:10")], &[]).as_deref(), Some("alpha"), "2 minutes");
    assert_eq!(blocks(&[claim_file("alpha", "2026-02-19T11:33:09")], &[]), None, "more than 2 minutes");
}

#[test]
fn claim_timestamps_count_only_near_the_file_time() {
    let file = at("2026-02-19T11:35:00");
    let of = |name: &str, text: &str| ClaimFile::parse(name, text.as_bytes(), file, &state());
    assert_eq!(of(".claim-STATE-alpha", "").expect("a claim").at, file, "it says nothing");
    let local = "<!-- timestamp: 2026-02-19T06:35:00 -->";
    assert_eq!(of(".claim-STATE-alpha", local).expect("a claim").at, file, "another time zone");
    let near = "<!-- timestamp: 2026-02-19T11:34:58 -->";
    assert_eq!(of(".claim-STATE-alpha", near).expect("a claim").at, at("2026-02-19T11:34:58"));
    assert_eq!(of(".claim-STATE-", ""), None, "nobody's");
    assert_eq!(of(".claim-ARTIFACTS-alpha", ""), None);
    assert!(of(".claim-STATE-a-b", "").is_some());
    assert_eq!(of(".claim-STATE-a-b", "<!-- target: STATE-a.md -->"), None, "b's, on another file");
    assert!(of(".claim-STATE-a", "<!-- target: shared/STATE.md -->").is_some());
    assert!(of(".claim-STATE-a", "<!-- target: STATE -->").is_some(), "the same without its ending");
}
