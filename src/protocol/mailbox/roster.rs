//! `ROSTER.md`: who takes part. A Markdown table, to which every agent adds a row.
//!
//! Whatever else the file says stays as it is, byte for byte: agents that know nothing of this program write in it too. Where
//! an id has several rows (an agent that crashed and came back), the last is the one that counts. Used by `store.rs`. Pure.

use std::fmt;

use jiff::Timestamp;

use super::message::AgentId;
use super::text::{parse_time, render_time};

/// A roster without rows.
const EMPTY_TABLE: &str =
    "## Agents\n\n| ID | Role | PID | Started | Status |\n|----|------|-----|---------|--------|\n";
/// The most characters of a role that is written.
const MAX_ROLE_CHARS: usize = 100;

/// How an agent stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentStatus {
    /// It takes part.
    Active,
    /// It signed off.
    Done,
    /// It is gone without having signed off. A word of ours.
    Crashed,
    /// It went away, and may come back. A word of ours.
    Left,
    /// A word that nobody knows.
    Other(String),
}

impl AgentStatus {
    /// Its word in the table.
    pub fn word(&self) -> &str {
        match self {
            AgentStatus::Active => "active",
            AgentStatus::Done => "done",
            AgentStatus::Crashed => "crashed",
            AgentStatus::Left => "left",
            AgentStatus::Other(word) => word,
        }
    }

    /// Whether nothing more is to be expected.
    pub fn is_gone(&self) -> bool {
        matches!(self, AgentStatus::Done | AgentStatus::Crashed | AgentStatus::Left)
    }

    fn parse(word: &str) -> Self {
        match word.to_ascii_lowercase().as_str() {
            "active" => AgentStatus::Active,
            "done" => AgentStatus::Done,
            "crashed" => AgentStatus::Crashed,
            "left" => AgentStatus::Left,
            _ => AgentStatus::Other(word.chars().take(40).collect()),
        }
    }
}

impl fmt::Display for AgentStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// An agent, as it is registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RosterEntry {
    /// Its id.
    pub id: AgentId,
    /// What it does here.
    pub role: String,
    /// Its process, where that means something.
    pub pid: Option<u32>,
    /// Since when.
    pub started: Option<Timestamp>,
    /// How it stands.
    pub status: AgentStatus,
}

impl RosterEntry {
    /// An agent that begins now.
    pub fn new(id: AgentId, role: impl Into<String>, pid: Option<u32>, started: Timestamp) -> Self {
        // The file says no more than the second.
        let started = Timestamp::from_second(started.as_second()).ok();
        Self { id, role: role.into(), pid, started, status: AgentStatus::Active }
    }

    /// Its line, without a newline.
    fn to_line(&self) -> String {
        let pid = self.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        let started = self.started.map_or_else(|| "-".to_owned(), render_time);
        format!(
            "| {} | {} | {pid} | {started} | {} |",
            self.id,
            escape_cell(&self.role, MAX_ROLE_CHARS),
            escape_cell(self.status.word(), 40)
        )
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

/// Text that leaves the table a table.
fn escape_cell(text: &str, most: usize) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(most).collect();
    text.trim().replace('\\', "/").replace('|', "\\|")
}

/// Where the cells of a table's line are; none where it is no line of a table.
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

/// The file's text, and what it means.
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
    /// That of this text.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Who takes part, each once, in the order in which they came.
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

    /// The row of an agent.
    pub fn entry(&self, id: &AgentId) -> Option<RosterEntry> {
        self.text.lines().filter_map(RosterEntry::parse).rfind(|row| row.id == *id)
    }

    /// Adds a row behind the last one of the table.
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

    /// Changes how an agent stands: this one word and nothing else. False where it has no row.
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
        let word = escape_cell(status.word(), 40);
        match cell_ranges(&line).and_then(|cells| cells.get(4).cloned()) {
            Some(range) => self.text.replace_range(at + range.start..at + range.end, &format!(" {word} ")),
            // Whoever wrote it left cells out.
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
mod tests {
    use super::*;

    /// The spec's own (Agent Registration).
    const SPEC_ROSTER: &str = "\
## Agents

| ID | Role | PID | Started | Status |
|----|------|-----|---------|--------|
| alpha | orchestrator | 12345 | 2026-02-19T11:30:00 | active |
| bravo | specialist | 12346 | 2026-02-19T11:30:05 | active |
";

    fn row(id: &str, role: &str, pid: u32, started: &str) -> RosterEntry {
        RosterEntry::new(id.parse().expect("an id"), role, Some(pid), parse_time(started).expect("a time"))
    }

    /// Agent Registration.
    #[test]
    fn the_spec_roster_round_trips() {
        let rows = [
            row("alpha", "orchestrator", 12345, "2026-02-19T11:30:00"),
            row("bravo", "specialist", 12346, "2026-02-19T11:30:05"),
        ];
        assert_eq!(Roster::from_text(SPEC_ROSTER).entries(), rows);
        let mut roster = Roster::default();
        rows.iter().for_each(|row| roster.add(row));
        assert_eq!(roster.text(), SPEC_ROSTER);
    }

    #[test]
    fn set_status_changes_only_the_status_cell() {
        let text = format!("# Who\n\nnotes\n{SPEC_ROSTER}\nmore notes | here\n");
        let mut roster = Roster::from_text(text.clone());
        assert!(roster.set_status(&"alpha".parse().expect("an id"), &AgentStatus::Done));
        assert_eq!(roster.text(), text.replacen("11:30:00 | active", "11:30:00 | done", 1));
        assert!(!roster.set_status(&"charlie".parse().expect("an id"), &AgentStatus::Done));
        roster.add(&row("charlie", "tester | the third\nof its kind", 7, "2026-02-19T11:31:00"));
        let added = "| charlie | tester \\| the third of its kind | 7 | 2026-02-19T11:31:00 | active |\n\nmore notes";
        assert!(roster.text().contains(added), "{}", roster.text());
        assert_eq!(roster.entries()[2].role, "tester | the third of its kind");
    }

    /// Agent Registration.
    #[test]
    fn malformed_rows_are_read_leniently() {
        let text = "|ID|Role|\n|:--|--:|\n|delta|\n  | echo | x | - | yesterday | DONE\n| ../etc | y | 1 | - | active |\n\
                    | delta | again | 5 | 2026-02-19T11:31:00Z | resting |\n";
        let mut roster = Roster::from_text(text);
        let rows = roster.entries();
        assert_eq!(rows.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["delta", "echo"]);
        assert_eq!((rows[0].role.as_str(), rows[0].status.word()), ("again", "resting"));
        assert_eq!((rows[1].pid, rows[1].started, &rows[1].status), (None, None, &AgentStatus::Done));
        assert!(roster.set_status(&rows[1].id, &AgentStatus::Crashed));
        assert!(roster.text().contains("yesterday | crashed \n"), "{}", roster.text());
        let mut short = Roster::from_text("| delta |\r\n");
        assert!(short.set_status(&rows[0].id, &AgentStatus::Left));
        assert_eq!(short.entries()[0].status, AgentStatus::Left);
    }

    #[test]
    fn a_roster_without_a_table_gets_one() {
        let mut roster = Roster::from_text("only words");
        roster.add(&row("alpha", "a", 1, "2026-02-19T11:30:00"));
        assert!(roster.text().starts_with("only words\n## Agents\n\n| ID |"));
        assert_eq!(roster.entries().len(), 1);
    }
}
