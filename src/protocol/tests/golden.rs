//! Golden files: `valid/<what>.<kind>.<extension>` breaks nothing, `invalid/<rule>--<field>--<what>.<kind>.<extension>` breaks
//! exactly that rule at that field.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use proptest::prelude::*;

use crate::protocol::rule::{Rule, Violation};

#[derive(Debug, Clone)]
pub(in crate::protocol) struct GoldenFile {
    /// Without kind and extension.
    pub name: String,
    pub kind: String,
    pub bytes: Vec<u8>,
}

impl GoldenFile {
    pub fn text(&self) -> &str {
        str::from_utf8(&self.bytes).expect("UTF-8")
    }
}

/// The files of `tests/golden/<dir>`, by name.
pub(in crate::protocol) fn load_golden_files(dir: &str) -> Vec<GoldenFile> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(dir);
    let mut files: Vec<GoldenFile> = fs::read_dir(&dir)
        .expect("the golden files are in the repo")
        .map(|entry| {
            let path = entry.expect("a readable directory").path();
            let stem = path.file_stem().and_then(|name| name.to_str()).expect("a UTF-8 name");
            let (name, kind) = stem.rsplit_once('.').unwrap_or_else(|| panic!("`{stem}` names no kind"));
            let bytes = fs::read(&path).expect("a readable file");
            GoldenFile { name: name.to_owned(), kind: kind.to_owned(), bytes }
        })
        .collect();
    files.sort_by(|one, other| one.name.cmp(&other.name));
    assert!(files.len() > 40, "most golden files are gone from {}", dir.display());
    files
}

/// Asserts that the last record of each invalid file, and no other, breaks the rule at the field.
pub(in crate::protocol) fn assert_invalid_files_are_rejected(
    dir: &str,
    violations: impl Fn(&GoldenFile) -> Vec<Option<Violation>>,
) {
    let mut wrong = Vec::new();
    for file in load_golden_files(dir) {
        let [rule, field, _] = file.name.splitn(3, "--").collect::<Vec<_>>()[..] else {
            panic!("`{}` is not <rule>--<field>--<what>", file.name)
        };
        let mut records = violations(&file);
        let last = records.pop().flatten();
        if let Some(violation) = records.into_iter().flatten().next() {
            wrong.push(format!("{}: a record before the last is rejected: {violation}", file.name));
        }
        match last {
            Some(violation) if violation.rule == rule && violation.field == field => {}
            Some(violation) => wrong.push(format!("{}: {violation}", file.name)),
            None => wrong.push(format!("{}: accepted", file.name)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Asserts that each rule has an invalid file, or a test that generates one.
pub(in crate::protocol) fn assert_rules_are_covered(dir: &str, rules: &[Rule], generated: &[&str]) {
    let broken: BTreeSet<String> = load_golden_files(dir)
        .iter()
        .filter_map(|file| file.name.split_once("--").map(|(rule, _)| rule.to_owned()))
        .chain(generated.iter().map(|rule| (*rule).to_owned()))
        .collect();
    let names: BTreeSet<String> = rules.iter().map(|rule| rule.name.to_owned()).collect();
    assert_eq!(broken, names);
    assert_eq!(names.len(), rules.len(), "a rule's name is not unique");
}

/// One of the files with a few bytes replaced, inserted or cut off.
pub(in crate::protocol) fn mutated_file(dir: &str) -> impl Strategy<Value = Vec<u8>> {
    let files: Vec<Vec<u8>> = load_golden_files(dir).into_iter().map(|file| file.bytes).collect();
    let change = (any::<prop::sample::Index>(), any::<u8>(), 0_u8..3);
    (prop::sample::select(files), prop::collection::vec(change, 1..6)).prop_map(|(mut bytes, changes)| {
        for (at, byte, how) in changes {
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => bytes.truncate(at.max(1)),
            }
        }
        bytes
    })
}
