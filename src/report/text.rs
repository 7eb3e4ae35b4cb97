//! Text for a terminal: what comes out of sandboxes is hostile, and lines have a width.
//!
//! Used by the reporters, the final table and the errors. Must not: write anything.

/// The text without terminal escapes, control characters and characters that reorder text, on one line: line breaks and
/// tabs become a space.
pub fn sanitize(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_escape(&mut chars),
            // The one-character forms of the same introducers.
            '\u{9b}' => skip_control_sequence(&mut chars),
            '\u{90}' | '\u{9d}' | '\u{9e}' | '\u{9f}' | '\u{98}' => skip_control_string(&mut chars),
            '\n' | '\r' | '\t' => {
                if !out.ends_with(' ') {
                    out.push(' ');
                }
            }
            c if c.is_control() || is_reordering(c) => {}
            c => out.push(c),
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// [`sanitize`], line by line.
pub fn sanitize_lines(text: &str) -> String {
    text.lines().map(sanitize).collect::<Vec<_>>().join("\n")
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn skip_escape(chars: &mut Chars<'_>) {
    match chars.next() {
        Some('[') => skip_control_sequence(chars),
        Some(']' | 'P' | 'X' | '^' | '_') => skip_control_string(chars),
        // `ESC ( B` and the like: intermediates, then one final character.
        Some(' '..='/') => {
            while chars.next_if(|c| matches!(c, ' '..='/')).is_some() {}
            chars.next();
        }
        _ => {}
    }
}

/// The rest of a control sequence: parameters, then one final character of `@`..`~`.
fn skip_control_sequence(chars: &mut Chars<'_>) {
    while chars.next_if(|c| matches!(c, ' '..='?')).is_some() {}
    chars.next_if(|c| matches!(c, '@'..='~'));
}

/// The rest of an operating system command and its like, up to its terminator. One that does not end within 4096
/// characters eats no more than that.
fn skip_control_string(chars: &mut Chars<'_>) {
    for _ in 0..4096 {
        match chars.next() {
            None | Some('\u{7}' | '\u{9c}') => return,
            Some('\u{1b}') => {
                chars.next_if_eq(&'\\');
                return;
            }
            Some(_) => {}
        }
    }
}

/// Bidirectional overrides and isolates, zero-width marks, and the line separators that some terminals obey.
fn is_reordering(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// How many columns the text takes, nearly: wide characters of East Asian scripts and emoji count as two, marks that join
/// the character before as none.
pub fn display_width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

fn char_width(c: char) -> usize {
    match u32::from(c) {
        0x0300..=0x036f | 0x200d | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f
        | 0x2e80..=0x303e
        | 0x3041..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1f64f
        | 0x1f680..=0x1f9ff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// The text, cut to at most so many columns, the last of them `…` where something was cut.
pub fn truncate_to_width(text: &str, columns: usize) -> String {
    if display_width(text) <= columns {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        used += char_width(c);
        if used + 1 > columns {
            break;
        }
        out.push(c);
    }
    if columns > 0 {
        out.push('…');
    }
    out
}

/// The text filled up with spaces to so many columns.
pub fn pad_to_width(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(display_width(text))))
}

/// A duration for people: `0.4 s`, `12.3 s`, `4 m 05 s`, `2 h 03 m`.
pub fn format_duration(time: std::time::Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{:.1} s", time.as_secs_f64().min(59.9)),
        60..3600 => format!("{} m {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// `1 story`, `2 stories`.
pub fn pluralize(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn escapes_are_removed() {
        let table = [
            ("plain", "plain"),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}]0;title\u{7}after", "after"),
            ("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("\u{1b}(Bx", "x"),
            ("\u{9b}2Jx", "x"),
            ("a\u{1b}", "a"),
            ("a\u{1b}[", "a"),
            ("a\r\nb\tc", "a b c"),
            ("a\u{0}\u{8}b", "ab"),
            ("evil\u{202e}txt", "eviltxt"),
            ("ümläut 漢字", "ümläut 漢字"),
        ];
        for (dirty, wanted) in table {
            assert_eq!(sanitize(dirty), wanted, "{dirty:?}");
        }
    }

    #[test]
    fn an_unterminated_control_string_is_bounded() {
        let dirty = format!("\u{1b}]{}end", "x".repeat(5000));
        assert!(sanitize(&dirty).ends_with("end"));
    }

    #[test]
    fn text_is_truncated_and_padded_by_display_width() {
        assert_eq!(truncate_to_width("hello", 5), "hello");
        assert_eq!(truncate_to_width("hello", 4), "hel…");
        assert_eq!(truncate_to_width("漢字漢字", 5), "漢字…");
        assert_eq!(truncate_to_width("hello", 0), "");
        assert_eq!(pad_to_width("漢", 4), "漢  ");
    }

    #[test]
    fn durations_are_formatted_for_people() {
        assert_eq!(format_duration(Duration::from_millis(2140)), "2.1 s");
        assert_eq!(format_duration(Duration::from_millis(59_990)), "59.9 s");
        assert_eq!(format_duration(Duration::from_secs(245)), "4 m 05 s");
        assert_eq!(format_duration(Duration::from_secs(7380)), "2 h 03 m");
    }
}
