//! Claims on shared files (Write Coordination): who may write, as a pure decision. `store.rs` carries it out.
//!
//! A claim on `STATE.md` by alpha is the file `shared/.claim-STATE-alpha`. The older claim wins; of two from the same second
//! that of the lower id; one that is older than 2 minutes is stale, and whoever meets it deletes it.
//!
//! Ids and names of files may have a `-`, and so `.claim-STATE-a-b` may be `a-b`'s claim on `STATE.md` or `b`'s on
//! `STATE-a.md`: what the claim says of itself decides; one that says nothing counts for both.

use std::time::Duration;

use jiff::Timestamp;

use super::message::AgentId;
use super::store::SharedName;
use super::text::{parse_time, render_time};

/// A claim that is older is stale.
pub const STALE_AFTER: Duration = Duration::from_secs(120);
/// How far what a claim says of its age and its file's time may differ: clocks, time zones, and lies. Beyond it the file's
/// time counts.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(60);
/// What every claim's name begins with.
pub(super) const PREFIX: &str = ".claim-";

/// A claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Whose.
    pub agent: AgentId,
    /// Since when.
    pub at: Timestamp,
    /// On what.
    pub target: SharedName,
    /// What for.
    pub note: String,
}

impl Claim {
    /// The name of its file.
    pub fn file_name(&self) -> String {
        format!("{}{}", claim_prefix(&self.target), self.agent)
    }

    /// The file's text, as the spec has it.
    pub fn render(&self) -> String {
        let note: String = self.note.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect();
        let Self { agent, at, target, .. } = self;
        let at = render_time(*at);
        let words = if note.is_empty() {
            format!("Claiming {target}.")
        } else {
            format!("Claiming {target} for update — {note}")
        };
        format!("<!-- agent: {agent} -->\n<!-- timestamp: {at} -->\n<!-- target: {target} -->\n{words}\n")
    }
}

/// What the names of claims on this file begin with: `.claim-STATE-`.
pub(super) fn claim_prefix(target: &SharedName) -> String {
    format!("{PREFIX}{}-", target.stem())
}

/// A claim that was found: what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimFile {
    /// The name of its file.
    pub file_name: String,
    /// Whose it is.
    pub agent: AgentId,
    /// Since when it is there.
    pub at: Timestamp,
}

impl ClaimFile {
    /// Reads a file called so, last changed at `modified`, as a claim on `target`. None where it is on another file, or
    /// nobody's.
    pub fn parse(file_name: &str, bytes: &[u8], modified: Timestamp, target: &SharedName) -> Option<Self> {
        let by_name: AgentId = file_name.strip_prefix(&claim_prefix(target))?.parse().ok()?;
        let text = String::from_utf8_lossy(bytes);
        let field = |name: &str| {
            text.lines().find_map(|line| {
                let (found, value) = line.trim().strip_prefix("<!--")?.strip_suffix("-->")?.split_once(':')?;
                found.trim().eq_ignore_ascii_case(name).then(|| value.trim())
            })
        };
        // Claims go by the name without its ending: `STATE` and `STATE.md` are one.
        let stem = |name: &str| {
            name.rsplit('/').next().unwrap_or_default().parse().map(|name: SharedName| name.stem().to_owned())
        };
        if let Some(named) = field("target")
            && stem(named).as_deref() != Ok(target.stem())
        {
            return None;
        }
        let said = field("timestamp").and_then(parse_time);
        let at = said.filter(|said| said.duration_since(modified).unsigned_abs() <= MAX_CLOCK_SKEW).unwrap_or(modified);
        Some(Self { file_name: file_name.to_owned(), agent: by_name, at })
    }

    /// Whether it is too old to count.
    pub fn is_stale(&self, now: Timestamp) -> bool {
        // Claims are dated to the second.
        now.as_second() - self.at.as_second() > STALE_AFTER.as_secs() as i64
    }
}

/// Which of the claims stands in the way of `mine`, if any: of those that are older, or of the same second and a lower id, the
/// first. Stale ones do not count. `before` has those that were there before mine was written: these count as older, however
/// they are dated, because their owners may be writing already.
pub fn competing_claim<'a>(
    mine: &Claim,
    before: &'a [ClaimFile],
    after: &'a [ClaimFile],
    now: Timestamp,
) -> Option<&'a ClaimFile> {
    let live = |found: &&ClaimFile| found.agent != mine.agent && !found.is_stale(now);
    let rank = |at: Timestamp, agent: &AgentId| (at.as_second(), agent.clone());
    let older = |found: &&ClaimFile| rank(found.at, &found.agent) < rank(mine.at, &mine.agent);
    let standing = before.iter().filter(live).chain(after.iter().filter(live).filter(older));
    standing.min_by_key(|found| rank(found.at, &found.agent))
}

#[cfg(test)]
mod tests {
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
}
