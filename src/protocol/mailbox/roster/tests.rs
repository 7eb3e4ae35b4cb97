//! Reading and changing `ROSTER.md`.

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
