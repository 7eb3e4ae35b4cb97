//! Checks the tables in the documentation of `mesh/mod.rs`: every MUST and MUST NOT of sections 1 to 3 and 5 to 7 of the spec has tests, and
//! so has every row of Table 3.
//!
//! Section 4, and what section 3 says of bindings and message exchange patterns, is in the documentation of `http/mod.rs`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Rows of the tables in `mesh/mod.rs`. A row must not get lost unnoticed.
const REQUIREMENTS: usize = 82;
const TABLE_3_ROWS: usize = 7;

/// A row of a table of rules: name, sections, and the tests in the last column.
pub(in crate::protocol::mesh) struct TableRow<'d> {
    pub(in crate::protocol::mesh) name: &'d str,
    pub(in crate::protocol::mesh) sections: &'d str,
    pub(in crate::protocol::mesh) tests: Vec<&'d str>,
}

/// The rows with tests of the tables in a module's documentation.
pub(in crate::protocol::mesh) fn table_rows(source: &str) -> Vec<TableRow<'_>> {
    let rows = source.lines().filter_map(|line| line.strip_prefix("//! | ")?.strip_suffix(" |"));
    rows.filter_map(|row| {
        let cells: Vec<&str> = row.split(" | ").collect();
        let names = cells.last()?.split('`');
        let tests: Vec<&str> =
            names.filter(|name| name.starts_with("section_") || name.starts_with("table_3_")).collect();
        (!tests.is_empty()).then(|| TableRow { name: cells[0], sections: cells[1], tests })
    })
    .collect()
}

fn collect_source_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("the sources are there") {
        let path = entry.expect("a readable directory").path();
        if path.is_dir() { collect_source_files(&path, found) } else { found.push(path) }
    }
}

/// Sections at the start of a test's name: `section_2_1_and_5_2_3_what` yields 2.1 and 5.2.3.
fn sections_in_test_name(test: &str) -> BTreeSet<String> {
    let mut sections = BTreeSet::new();
    let mut rest = test.strip_prefix("section_").unwrap_or_default();
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(rest.len());
        let section = rest[..end].trim_end_matches('_').replace('_', ".");
        if section.is_empty() {
            return sections;
        }
        sections.insert(section);
        let more = rest[end..].strip_prefix("and_").or_else(|| rest[end..].strip_prefix("to_"));
        rest = more.unwrap_or_default();
    }
}

/// Sections of a row (`2.1; 5.2.3, 4`, with the rule's number after the comma) that no test of the row names.
pub(in crate::protocol::mesh) fn sections_without_test(sections: &str, tests: &[&str]) -> Vec<String> {
    let all: BTreeSet<String> = tests.iter().flat_map(|test| sections_in_test_name(test)).collect();
    let of_row = sections.split(';').map(|section| section.split(',').next().unwrap_or_default().trim().to_owned());
    of_row.filter(|section| !all.contains(section)).collect()
}

#[test]
fn section_1_2_sections_without_a_test_are_detected() {
    assert_eq!(
        sections_in_test_name("section_2_1_and_5_2_3_to_7_what_and_8"),
        ["2.1", "5.2.3", "7"].map(str::to_owned).into()
    );
    assert!(sections_in_test_name("table_3_row_1").is_empty() && sections_in_test_name("section_").is_empty());
    assert_eq!(sections_without_test("2.1; 5.2, 3; 6.0", &["section_2_1_x", "section_5_2_1_y"]), ["5.2", "6.0"]);
    assert!(sections_without_test("2.6, 3", &["section_2_6_step_3_x"]).is_empty());
}

#[test]
fn section_1_2_every_requirement_has_a_test_and_a_table_row() {
    let mut files = Vec::new();
    collect_source_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/protocol/mesh"), &mut files);
    let mut existing = BTreeSet::new();
    for text in files.iter().map(|file| fs::read_to_string(file).expect("UTF-8")) {
        let mut lines = text.lines().map(str::trim);
        while let Some(line) = lines.next() {
            // The name of a test follows its attribute; proptest's tests are inside a macro.
            if line == "#[test]" {
                let name = lines.next().and_then(|line| line.strip_prefix("fn ")?.split('(').next());
                existing.extend(name.map(str::to_owned));
            }
        }
    }
    let rows = table_rows(include_str!("../mod.rs"));
    let missing: BTreeSet<&str> =
        rows.iter().flat_map(|row| &row.tests).filter(|test| !existing.contains(**test)).copied().collect();
    assert!(missing.is_empty(), "these tests do not exist: {missing:#?}");
    let (rules, table_3): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.name.starts_with('`'));
    assert_eq!((rules.len(), table_3.len()), (REQUIREMENTS, TABLE_3_ROWS));
    let names: BTreeSet<&str> = rules.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), REQUIREMENTS, "duplicate names");
    let uncovered: Vec<String> = rules
        .iter()
        .flat_map(|row| {
            sections_without_test(row.sections, &row.tests).into_iter().map(|section| format!("{} {section}", row.name))
        })
        .collect();
    assert!(uncovered.is_empty(), "no test names these sections: {uncovered:#?}");
}
