//! Checks whether a declared kind of change explains the changed lines.
//!
//! | kind | explains |
//! |---|---|
//! | `whitespace` | lines that differ only in white space, blank lines ignored (as `git diff -w` with empty output) |
//! | `typo` | the same number of lines, in which only words differ, each by a few letters |
//! | `import_order` | the same lines in another order, all of them imports |
//! | `lint` | white space; lines that differ only in trailing or quoting punctuation; removed imports, comments and blank lines; a name that gains or loses a leading underscore |
//!
//! Where indentation has a meaning (Python, YAML, makefiles), it must not change.
//!
//! Called by `direct_fix.rs`. Must not: run git.

use crate::protocol::amp::message::ChangeType;

/// Replaced lines, without their newlines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Hunk {
    pub(super) removed: Vec<Vec<u8>>,
    pub(super) added: Vec<Vec<u8>>,
}

/// Parses a patch of one file without context lines.
pub(super) fn parse_hunks(patch: &[u8]) -> Vec<Hunk> {
    let mut hunks: Vec<Hunk> = Vec::new();
    let patch = patch.strip_suffix(b"\n").unwrap_or(patch);
    for line in patch.split(|&byte| byte == b'\n') {
        if line.starts_with(b"@@ ") {
            hunks.push(Hunk::default());
        } else if let Some(hunk) = hunks.last_mut() {
            match line.split_first() {
                Some((b'-', text)) => hunk.removed.push(text.to_vec()),
                Some((b'+', text)) => hunk.added.push(text.to_vec()),
                // "\ No newline at end of file"
                _ => {}
            }
        }
    }
    hunks
}

/// Checks that the declared kinds explain the hunks of a file. The error is the reason.
pub(super) fn check_declared_kinds(file: &str, hunks: &[Hunk], kinds: &[ChangeType]) -> Result<(), String> {
    let has = |kind| kinds.contains(&kind);
    let mut rest = Vec::new();
    let mut typo_error = None;
    for hunk in hunks {
        let spaces = has(ChangeType::Whitespace) || has(ChangeType::Lint);
        if spaces && is_whitespace_change(&hunk.removed, &hunk.added) && !changes_indentation(file, hunk) {
            continue;
        }
        if has(ChangeType::Lint) && is_lint_change(file, hunk) {
            continue;
        }
        if has(ChangeType::Typo) {
            match check_typos(hunk, spaces) {
                Ok(()) => continue,
                Err(reason) => typo_error = Some(reason),
            }
        }
        rest.push(hunk);
    }
    if rest.is_empty() || (has(ChangeType::ImportOrder) && is_import_reordering(file, &rest)) {
        return Ok(());
    }
    Err(match typo_error {
        Some(reason) => reason,
        None if has(ChangeType::ImportOrder) => "it is not the same imports in another order".to_owned(),
        None if has(ChangeType::Lint) => "it is more than punctuation, comments and imports".to_owned(),
        None => "more than white space differs".to_owned(),
    })
}

/// Extensions of languages in which indentation has a meaning.
const INDENTATION_SENSITIVE: [&str; 12] =
    ["py", "pyi", "yml", "yaml", "mk", "coffee", "haml", "pug", "nim", "fs", "hs", "sass"];

/// Whether the hunk changes an indentation that has a meaning.
fn changes_indentation(file: &str, hunk: &Hunk) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    let is_sensitive = name
        .rsplit_once('.')
        .is_some_and(|(_, end)| INDENTATION_SENSITIVE.contains(&end.to_ascii_lowercase().as_str()))
        || name.to_ascii_lowercase().contains("makefile");
    let indents = |lines: &[Vec<u8>]| -> Vec<Vec<u8>> {
        let written = lines.iter().filter(|line| line.iter().any(|&byte| !is_space(byte)));
        written.map(|line| line.iter().copied().take_while(|&byte| is_space(byte)).collect()).collect()
    };
    is_sensitive && indents(&hunk.removed) != indents(&hunk.added)
}

/// Whether the hunk is a typical linter fix that does not change behaviour.
fn is_lint_change(file: &str, hunk: &Hunk) -> bool {
    let is_removable = |line: &Vec<u8>| {
        let text = String::from_utf8_lossy(line);
        let text = text.trim();
        text.is_empty() || is_comment(text) || is_import(file, line)
    };
    if hunk.added.is_empty() {
        return hunk.removed.iter().all(is_removable);
    }
    // Ignores the end of the line, the kind of quotes, and the underscore before an unused name.
    let bare = |line: &Vec<u8>| -> Vec<u8> {
        let line = line.trim_ascii_end();
        let line = line.strip_suffix(b";").or_else(|| line.strip_suffix(b",")).unwrap_or(line);
        let mut bare = Vec::with_capacity(line.len());
        for (at, &byte) in line.iter().enumerate() {
            let is_word =
                |index: Option<usize>| index.and_then(|index| line.get(index)).is_some_and(u8::is_ascii_alphanumeric);
            let leading = byte == b'_' && !is_word(at.checked_sub(1)) && is_word(Some(at + 1));
            if !is_space(byte) && !leading {
                bare.push(if byte == b'\'' { b'"' } else { byte });
            }
        }
        bare
    };
    let lines = hunk.removed.len() == hunk.added.len() && !changes_indentation(file, hunk);
    lines && hunk.removed.iter().zip(&hunk.added).all(|(before, after)| bare(before) == bare(after))
}

fn is_comment(text: &str) -> bool {
    ["//", "# ", "--", "/*", "*/", "* ", ";;", "<!--"].iter().any(|begin| text.starts_with(begin)) || text == "#"
}

/// White space as in `git diff -w`.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\x0b' | b'\x0c')
}

fn is_whitespace_change(removed: &[Vec<u8>], added: &[Vec<u8>]) -> bool {
    let bare = |lines: &[Vec<u8>]| -> Vec<Vec<u8>> {
        let bare = lines.iter().map(|line| line.iter().copied().filter(|&byte| !is_space(byte)).collect::<Vec<u8>>());
        bare.filter(|line| !line.is_empty()).collect()
    };
    bare(removed) == bare(added)
}

/// Checks that the added lines are the removed ones with respelled words. With `spaces`, white space may differ too.
fn check_typos(hunk: &Hunk, spaces: bool) -> Result<(), String> {
    if hunk.removed.len() != hunk.added.len() {
        return Err("a typo is fixed within its line".to_owned());
    }
    for (before, after) in hunk.removed.iter().zip(&hunk.added) {
        if spaces && is_whitespace_change(std::slice::from_ref(before), std::slice::from_ref(after)) {
            continue;
        }
        let (Ok(before), Ok(after)) = (std::str::from_utf8(before), std::str::from_utf8(after)) else {
            return Err("a line is not UTF-8".to_owned());
        };
        let (before, after) = (tokenize(before), tokenize(after));
        if before.len() != after.len() {
            return Err("more than the letters of words differ".to_owned());
        }
        for (old, new) in before.into_iter().zip(after).filter(|(old, new)| old != new) {
            match (old, new) {
                (LineToken::Word(old), LineToken::Word(new)) if is_respelling(old, new) => {}
                (LineToken::Word(old), LineToken::Word(new)) => {
                    let shown = |word: &str| word.chars().take(40).collect::<String>();
                    return Err(format!("`{}` and `{}` are different words", shown(old), shown(new)));
                }
                _ => return Err("more than the letters of words differ".to_owned()),
            }
        }
    }
    Ok(())
}

/// A word of letters and inner apostrophes, or the text between words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineToken<'a> {
    Word(&'a str),
    Separator(&'a str),
}

/// Splits a line into separator, word, separator, ..., separator. Separators may be empty.
fn tokenize(line: &str) -> Vec<LineToken<'_>> {
    let chars: Vec<(usize, char)> = line.char_indices().collect();
    let is_letter = |index: usize| chars.get(index).is_some_and(|(_, c)| c.is_alphabetic());
    let in_word = |index: usize| {
        let apostrophe = chars.get(index).is_some_and(|(_, c)| matches!(c, '\'' | '\u{2019}'));
        is_letter(index) || (apostrophe && index > 0 && is_letter(index - 1) && is_letter(index + 1))
    };
    let offset = |index: usize| chars.get(index).map_or(line.len(), |(offset, _)| *offset);
    let mut tokens = Vec::new();
    let mut index = 0;
    loop {
        let start = index;
        while index < chars.len() && !in_word(index) {
            index += 1;
        }
        tokens.push(LineToken::Separator(&line[offset(start)..offset(index)]));
        if index == chars.len() {
            return tokens;
        }
        let start = index;
        while in_word(index) {
            index += 1;
        }
        tokens.push(LineToken::Word(&line[offset(start)..offset(index)]));
    }
}

/// Longer words are never respellings.
const MAX_WORD_LETTERS: usize = 64;

/// Whether the words differ by at most one letter of up to four, two of up to eight, or three of more. A swap of neighbours
/// counts as one, a change of case as none.
fn is_respelling(old: &str, new: &str) -> bool {
    // A look-alike letter of another script is not a correction.
    if mixes_scripts(new) && !mixes_scripts(old) {
        return false;
    }
    let (old, new) = (old.to_lowercase(), new.to_lowercase());
    let (old, new): (Vec<char>, Vec<char>) = (old.chars().collect(), new.chars().collect());
    if old.len() > MAX_WORD_LETTERS || new.len() > MAX_WORD_LETTERS {
        return false;
    }
    let allowed = match old.len().max(new.len()) {
        0..=4 => 1,
        5..=8 => 2,
        _ => 3,
    };
    edit_distance(&old, &new) <= allowed
}

/// Whether the word mixes Latin letters with those of another script.
fn mixes_scripts(word: &str) -> bool {
    let latin_ends = '\u{24f}';
    word.chars().any(|c| c.is_ascii_alphabetic()) && word.chars().any(|c| c.is_alphabetic() && c > latin_ends)
}

/// The number of letters to add, remove, replace or swap with their neighbour.
fn edit_distance(a: &[char], b: &[char]) -> usize {
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for (i, from) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, to) in b.iter().enumerate() {
            let above = &rows[i];
            let mut least = (above[j + 1] + 1).min(row[j] + 1).min(above[j] + usize::from(from != to));
            if i > 0 && j > 0 && *from == b[j - 1] && a[i - 1] == *to {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

/// The starts of import lines in common languages.
const IMPORT_PREFIXES: &[&str] = &[
    "use ",
    "pub use ",
    "pub(crate) use ",
    "pub(super) use ",
    "extern crate ",
    "import ",
    "import\t",
    "from ",
    "export * from ",
    "export {",
    "#include",
    "#import",
    "# include",
    "@import",
    "using ",
    "require ",
    "require(",
    "require_relative ",
    "require_once",
    "include ",
    "library(",
    "source(",
    "open ",
    "alias ",
];

fn is_import_reordering(file: &str, hunks: &[&Hunk]) -> bool {
    let lines = |side: fn(&Hunk) -> &Vec<Vec<u8>>| {
        let mut lines: Vec<&[u8]> = hunks.iter().flat_map(|hunk| side(hunk)).map(Vec::as_slice).collect();
        lines.retain(|line| !line.iter().all(|&byte| is_space(byte)));
        lines.sort_unstable();
        lines
    };
    let (removed, added) = (lines(|hunk| &hunk.removed), lines(|hunk| &hunk.added));
    !removed.is_empty() && removed == added && removed.iter().all(|line| is_import(file, line))
}

fn is_import(file: &str, line: &[u8]) -> bool {
    let Ok(line) = std::str::from_utf8(line) else { return false };
    let line = line.trim();
    let declared = ["const ", "let ", "var "].iter().any(|word| line.starts_with(word)) && line.contains("require(");
    // Go: a quoted path, optionally after a name.
    let in_block = || {
        let path = line.rsplit([' ', '\t']).next().unwrap_or_default();
        let name = line.strip_suffix(path).unwrap_or_default().trim();
        let quoted = path.len() > 2 && path.starts_with('"') && path.ends_with('"');
        quoted && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.'))
    };
    declared || IMPORT_PREFIXES.iter().any(|word| line.starts_with(word)) || (file.ends_with(".go") && in_block())
}

#[cfg(test)]
mod tests;
