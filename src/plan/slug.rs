//! Words made from free text, for branches and paths.

use std::collections::BTreeSet;
use std::path::Path;

/// The longest slug, in characters.
const MAX_SLUG_CHARS: usize = 40;

/// Lower-case ASCII letters and digits of a text, with single `-` for everything between them; at most [`MAX_SLUG_CHARS`]
/// characters, and empty where the text has none of these.
pub(super) fn slugify(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut slug = words.collect::<Vec<_>>().join("-").to_ascii_lowercase();
    slug.truncate(MAX_SLUG_CHARS);
    slug.trim_end_matches('-').to_owned()
}

/// The slug of a file's name, or `tasks` where that has none.
pub(super) fn file_slug(path: &Path) -> String {
    let stem = path.file_stem().map(|stem| slugify(&stem.to_string_lossy())).unwrap_or_default();
    if stem.is_empty() { "tasks".to_owned() } else { stem }
}

/// The text, or the text with the lowest number from 2 behind it that makes it new to `taken`.
pub(super) fn make_unique(text: String, taken: &BTreeSet<String>) -> String {
    if !taken.contains(&text) {
        return text;
    }
    let numbered = (2_u32..).map(|number| format!("{text}-{number}"));
    numbered
        .into_iter()
        .find(|candidate| !taken.contains(candidate))
        .expect("fewer names are taken than there are numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_are_lowercase_ascii_words() {
        for (text, expected) in [
            ("feat: Shopping list!", "feat-shopping-list"),
            ("--A  b--", "a-b"),
            ("Übung", "bung"),
            ("日本", ""),
            ("a234567890123456789012345678901234567890 b", "a234567890123456789012345678901234567890"),
            ("a23456789012345678901234567890123456789 b", "a23456789012345678901234567890123456789"),
        ] {
            assert_eq!(slugify(text), expected);
        }
        assert_eq!(file_slug(Path::new("x/prd.v2.json")), "prd-v2");
        assert_eq!(file_slug(Path::new("日本.json")), "tasks");
    }
}
