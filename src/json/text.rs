//! Free text made fit for a message: shortened at character boundaries, on one line, without control characters.

use std::borrow::Cow;

/// The first `max` characters.
pub(crate) fn take_chars(text: &str, max: usize) -> &str {
    text.char_indices().nth(max).map_or(text, |(end, _)| &text[..end])
}

/// At most `max` characters. A longer text ends with `mark`, which counts.
pub(crate) fn truncate<'t>(text: &'t str, max: usize, mark: &str) -> Cow<'t, str> {
    if take_chars(text, max).len() == text.len() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{}{mark}", take_chars(text, max.saturating_sub(mark.chars().count()))))
}

/// One line: each run of whitespace and control characters becomes a space, none at the ends.
pub(crate) fn single_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// An untrusted value as an error message quotes it: its first 80 characters, with control characters escaped.
pub(crate) fn excerpt(text: &str) -> String {
    let start = take_chars(text, 80);
    let mut shown: String = start.chars().flat_map(char::escape_debug).collect();
    if start.len() < text.len() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_at_character_boundaries() {
        assert_eq!((take_chars("äöü", 2), take_chars("äöü", 3), take_chars("", 1)), ("äö", "äöü", ""));
        assert_eq!((truncate("äöü", 3, "…"), truncate("äöüß", 3, "…")), ("äöü".into(), "äö…".into()));
        assert_eq!(truncate("abc", 1, "..."), "...");
        assert_eq!(single_line(" a\n\tb\u{1b} c "), "a b c");
        assert_eq!(excerpt("a\nb"), "a\\nb");
        assert_eq!(excerpt(&"ü".repeat(81)), format!("{}…", "ü".repeat(80)));
    }
}
