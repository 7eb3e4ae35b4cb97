//! Claims on shared files (Write Coordination): decides who may write. `store.rs` reads and writes the files. Pure.
//!
//! The claim of alpha on `STATE.md` is the file `shared/.claim-STATE-alpha`. The older claim wins; within one second the lower id
//! wins. A claim older than 2 minutes is stale, and anybody may delete it.
//!
//! Ids and file names may contain `-`, so `.claim-STATE-a-b` can be a claim of `a-b` on `STATE.md` or of `b` on `STATE-a.md`. The
//! claim's `target` field decides; without it the claim counts for both.

use std::time::Duration;

use jiff::Timestamp;

use super::layout::{CLAIM_PREFIX, SharedName};
use super::message::AgentId;
use super::text::{parse_time, render_time};

pub const STALE_AFTER: Duration = Duration::from_secs(120);
/// How far a claim's own timestamp may differ from the file's: clocks, time zones and lies. Beyond that the file's counts.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub agent: AgentId,
    pub at: Timestamp,
    pub target: SharedName,
    /// The purpose, for people.
    pub note: String,
}

impl Claim {
    pub fn file_name(&self) -> String {
        format!("{}{}", claim_prefix(&self.target), self.agent)
    }

    /// The file's text, as in the spec's example.
    pub fn render(&self) -> String {
        let note: String = self.note.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect();
        let Self { agent, at, target, .. } = self;
        let at = render_time(*at);
        let text = if note.is_empty() {
            format!("Claiming {target}.")
        } else {
            format!("Claiming {target} for update — {note}")
        };
        format!("<!-- agent: {agent} -->\n<!-- timestamp: {at} -->\n<!-- target: {target} -->\n{text}\n")
    }
}

/// The prefix of the names of claims on this file: `.claim-STATE-`.
pub(super) fn claim_prefix(target: &SharedName) -> String {
    format!("{CLAIM_PREFIX}{}-", target.stem())
}

/// A claim that was found in `shared`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimFile {
    pub file_name: String,
    pub agent: AgentId,
    pub at: Timestamp,
}

impl ClaimFile {
    /// Parses a file, last changed at `modified`, as a claim on `target`. `None` if it claims another file or has no valid agent.
    pub fn parse(file_name: &str, bytes: &[u8], modified: Timestamp, target: &SharedName) -> Option<Self> {
        let agent: AgentId = file_name.strip_prefix(&claim_prefix(target))?.parse().ok()?;
        let text = String::from_utf8_lossy(bytes);
        let field = |name: &str| {
            text.lines().find_map(|line| {
                let (found, value) = line.trim().strip_prefix("<!--")?.strip_suffix("-->")?.split_once(':')?;
                found.trim().eq_ignore_ascii_case(name).then(|| value.trim())
            })
        };
        // Claims are named without the extension: `STATE` and `STATE.md` are one target.
        let stem = |name: &str| {
            name.rsplit('/').next().unwrap_or_default().parse().map(|name: SharedName| name.stem().to_owned())
        };
        if let Some(named) = field("target")
            && stem(named).as_deref() != Ok(target.stem())
        {
            return None;
        }
        let plausible = |at: &Timestamp| at.duration_since(modified).unsigned_abs() <= MAX_CLOCK_SKEW;
        let at = field("timestamp").and_then(parse_time).filter(plausible).unwrap_or(modified);
        Some(Self { file_name: file_name.to_owned(), agent, at })
    }

    pub fn is_stale(&self, now: Timestamp) -> bool {
        // Claims have a resolution of one second.
        now.as_second() - self.at.as_second() > STALE_AFTER.as_secs() as i64
    }
}

/// The claim that has precedence over `mine`, if any: the oldest one, then the lowest id. Stale claims do not count. Claims in
/// `before` were found before mine was written, and count as older whatever their timestamps, because their owners may already be
/// writing.
pub fn competing_claim<'a>(
    mine: &Claim,
    before: &'a [ClaimFile],
    after: &'a [ClaimFile],
    now: Timestamp,
) -> Option<&'a ClaimFile> {
    let live = |found: &&ClaimFile| found.agent != mine.agent && !found.is_stale(now);
    let rank = |at: Timestamp, agent: &AgentId| (at.as_second(), agent.clone());
    let older = |found: &&ClaimFile| rank(found.at, &found.agent) < rank(mine.at, &mine.agent);
    let competing = before.iter().filter(live).chain(after.iter().filter(live).filter(older));
    competing.min_by_key(|found| rank(found.at, &found.agent))
}

#[cfg(test)]
mod tests;
