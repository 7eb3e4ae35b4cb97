//! `ROSTER.md`: a Markdown table of the participants, to which every agent adds a row.
//!
//! Changes preserve the rest of the file byte for byte, because programs other than longshore write in it too. If an id has
//! several rows (an agent that crashed and returned), the last one counts. Used by `store.rs`. Pure.

use std::fmt;

use jiff::Timestamp;

use super::message::AgentId;
use super::text::{parse_time, render_time};

const EMPTY_TABLE: &str =
    "## Agents\n\n| ID | Role | PID | Started | Status |\n|----|------|-----|---------|--------|\n";
const MAX_ROLE_CHARS: usize = 100;
const MAX_STATUS_CHARS: usize = 40;

/// A participant's status. The spec has `active` and `done` only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentStatus {
    /// Takes part.
    Active,
    /// Signed off.
    Done,
    /// Ended without signing off.
    Crashed,
    /// Went away and may return.
    Left,
    /// An unknown word.
    Other(String),
}

impl AgentStatus {
    /// The word in the table.
    pub fn word(&self) -> &str {
        match self {
            AgentStatus::Active => "active",
            AgentStatus::Done => "done",
            AgentStatus::Crashed => "crashed",
            AgentStatus::Left => "left",
            AgentStatus::Other(word) => word,
        }
    }

    /// Whether no more messages are expected.
    pub fn is_gone(&self) -> bool {
        matches!(self, AgentStatus::Done | AgentStatus::Crashed | AgentStatus::Left)
    }

    fn parse(word: &str) -> Self {
        match word.to_ascii_lowercase().as_str() {
            "active" => AgentStatus::Active,
            "done" => AgentStatus::Done,
            "crashed" => AgentStatus::Crashed,
            "left" => AgentStatus::Left,
            _ => AgentStatus::Other(word.chars().take(MAX_STATUS_CHARS).collect()),
        }
    }
}

impl fmt::Display for AgentStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// A row of the roster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RosterEntry {
    /// Unique, ignoring case.
    pub id: AgentId,
    /// Free text.
    pub role: String,
    /// `None` in sandboxes, whose process ids mean nothing outside.
    pub pid: Option<u32>,
    /// `None` if the cell is not a time.
    pub started: Option<Timestamp>,
    /// `active` if the cell is empty.
    pub status: AgentStatus,
}

impl RosterEntry {
    /// An active participant.
    pub fn new(id: AgentId, role: impl Into<String>, pid: Option<u32>, started: Timestamp) -> Self {
        // The file has a resolution of one second.
        let started = Timestamp::from_second(started.as_second()).ok();
        Self { id, role: role.into(), pid, started, status: AgentStatus::Active }
    }

    fn to_line(&self) -> String {
        let pid = self.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        let started = self.started.map_or_else(|| "-".to_owned(), render_time);
        let role = escape_cell(&self.role, MAX_ROLE_CHARS);
        let status = escape_cell(self.status.word(), MAX_STATUS_CHARS);
        format!("| {} | {role} | {pid} | {started} | {status} |", self.id)
    }

    fn parse(line: &str) -> Option<Self> {
        let cells = cell_ranges(line)?;
        let text = |at: usize| cells.get(at).map(|range| line[range.clone()].trim()).unwrap_or_default();
        if text(0).eq_ignore_ascii_case("id") && text(1).eq_ignore_ascii_case("role") {
            return None;
        }
        Some(Self {
            id: text(0).parse().ok()?,
            role: text(1).replace("\\|", "|"),
            pid: text(2).parse().ok(),
            started: parse_time(text(3)),
            status: AgentStatus::parse(if text(4).is_empty() { "active" } else { text(4) }),
        })
    }
}

fn escape_cell(text: &str, max_chars: usize) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(max_chars).collect();
    text.trim().replace('\\', "/").replace('|', "\\|")
}

/// The cells of a table's line. `None` if the line is not one.
fn cell_ranges(line: &str) -> Option<Vec<std::ops::Range<usize>>> {
    let bytes = line.as_bytes();
    let begin = bytes.iter().position(|b| *b != b' ')?;
    if bytes[begin] != b'|' {
        return None;
    }
    let mut cells = Vec::new();
    let mut from = begin + 1;
    for at in begin + 1..bytes.len() {
        if bytes[at] == b'|' && bytes[at - 1] != b'\\' {
            cells.push(from..at);
            from = at + 1;
        }
    }
    if !line[from..].trim().is_empty() {
        cells.push(from..line.len());
    }
    Some(cells)
}

/// The text of the file, parsed on demand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roster {
    text: String,
}

impl Default for Roster {
    fn default() -> Self {
        Self::from_text(EMPTY_TABLE)
    }
}

impl Roster {
    /// Any text is a roster.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }

    /// The file's content.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The participants, each once, in the order of their first rows.
    pub fn entries(&self) -> Vec<RosterEntry> {
        let mut rows: Vec<RosterEntry> = Vec::new();
        for row in self.text.lines().filter_map(RosterEntry::parse) {
            match rows.iter_mut().find(|known| known.id == row.id) {
                Some(known) => *known = row,
                None => rows.push(row),
            }
        }
        rows
    }

    /// The current row of an agent.
    pub fn entry(&self, id: &AgentId) -> Option<RosterEntry> {
        self.text.lines().filter_map(RosterEntry::parse).rfind(|row| row.id == *id)
    }

    /// A registered id that differs from `id` only in case.
    pub(crate) fn similar_id(&self, id: &AgentId) -> Option<AgentId> {
        let mut ids = self.entries().into_iter().map(|row| row.id);
        ids.find(|known| known != id && known.as_str().eq_ignore_ascii_case(id.as_str()))
    }

    /// Adds a row after the last one of the table, which is created if needed.
    pub fn add(&mut self, row: &RosterEntry) {
        let line = row.to_line();
        let mut lines: Vec<&str> = self.text.lines().collect();
        let last = lines.iter().rposition(|line| cell_ranges(line).is_some());
        match last {
            Some(last) => lines.insert(last + 1, &line),
            None => {
                lines.extend(EMPTY_TABLE.lines());
                lines.push(&line);
            }
        }
        self.text = lines.join("\n") + "\n";
    }

    /// Replaces the status cell of an agent's current row. Returns `false` if the agent has none.
    pub fn set_status(&mut self, id: &AgentId, status: &AgentStatus) -> bool {
        let mut at = 0;
        let mut found = None;
        for line in self.text.split_inclusive('\n') {
            let content = line.trim_end_matches(['\n', '\r']);
            if RosterEntry::parse(content).is_some_and(|row| row.id == *id) {
                found = Some((at, content.to_owned()));
            }
            at += line.len();
        }
        let Some((at, line)) = found else { return false };
        let word = escape_cell(status.word(), MAX_STATUS_CHARS);
        match cell_ranges(&line).and_then(|cells| cells.get(4).cloned()) {
            Some(range) => self.text.replace_range(at + range.start..at + range.end, &format!(" {word} ")),
            // The row has no status cell.
            None => {
                let row = RosterEntry {
                    status: status.clone(),
                    ..RosterEntry::parse(&line)
                        .unwrap_or_else(|| RosterEntry::new(id.clone(), "", None, Timestamp::UNIX_EPOCH))
                };
                self.text.replace_range(at..at + line.len(), &row.to_line());
            }
        }
        true
    }
}

#[cfg(test)]
mod tests;
