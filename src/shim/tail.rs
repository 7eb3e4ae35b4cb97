//! The last lines of a command's output, safe to show: valid UTF-8, no control characters, bounded.
//!
//! `command.rs` uses one [`LineCutter`] per stream and one [`OutputTail`] per command. Must not: grow with the output.

use std::collections::VecDeque;

const MAX_TAIL_LINES: usize = 50;
const MAX_LINE_CHARS: usize = 500;
/// How many bytes of a line are examined: enough for [`MAX_LINE_CHARS`] characters of four bytes and some escapes.
const MAX_LINE_BYTES: usize = 4 * MAX_LINE_CHARS + 512;

/// The last lines, oldest first.
#[derive(Debug, Default)]
pub struct OutputTail {
    lines: VecDeque<String>,
}

impl OutputTail {
    /// Adds a sanitized line. Empty lines are dropped.
    pub fn push(&mut self, line: String) {
        if line.is_empty() {
            return;
        }
        if self.lines.len() == MAX_TAIL_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    pub fn into_lines(self) -> Vec<String> {
        self.lines.into()
    }
}

/// Cuts a stream's chunks into lines. They end at `\n` or at `\r`, which progress bars use.
#[derive(Debug, Default)]
pub struct LineCutter {
    partial: Vec<u8>,
}

impl LineCutter {
    /// Takes a chunk, and passes each completed line to `line`.
    pub fn push(&mut self, chunk: &[u8], mut line: impl FnMut(String)) {
        let mut rest = chunk;
        while let Some(end) = rest.iter().position(|b| matches!(b, b'\n' | b'\r')) {
            self.append(&rest[..end]);
            line(sanitize_line(&self.partial));
            self.partial.clear();
            rest = &rest[end + 1..];
        }
        self.append(rest);
    }

    /// Passes an unterminated last line to `line`.
    pub fn finish(&mut self, line: impl FnOnce(String)) {
        if !self.partial.is_empty() {
            line(sanitize_line(&self.partial));
            self.partial.clear();
        }
    }

    fn append(&mut self, piece: &[u8]) {
        let room = MAX_LINE_BYTES.saturating_sub(self.partial.len());
        self.partial.extend_from_slice(&piece[..piece.len().min(room)]);
    }
}

/// Replaces invalid UTF-8, removes terminal escapes and control characters, trims, and truncates to [`MAX_LINE_CHARS`].
pub fn sanitize_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut shown = String::new();
    let mut kept = 0;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            skip_escape(&mut chars);
        } else if c == '\t' || !c.is_control() {
            if kept == MAX_LINE_CHARS {
                break;
            }
            shown.push(if c == '\t' { ' ' } else { c });
            kept += 1;
        }
    }
    shown.trim().to_owned()
}

/// Skips `[ ... letter`, or the one character of any other escape.
fn skip_escape(chars: &mut std::str::Chars<'_>) {
    if chars.next() == Some('[') {
        for c in chars.by_ref() {
            if ('@'..='~').contains(&c) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_lines(chunks: &[&[u8]]) -> Vec<String> {
        let mut cutter = LineCutter::default();
        let mut found = Vec::new();
        for chunk in chunks {
            cutter.push(chunk, |line| found.push(line));
        }
        cutter.finish(|line| found.push(line));
        found
    }

    #[test]
    fn characters_split_between_chunks_are_joined() {
        assert_eq!(split_lines(&[b"\xc3", b"\xa4b\nc"]), ["äb", "c"]);
    }

    #[test]
    fn escapes_and_control_characters_are_removed() {
        assert_eq!(split_lines(&[b"\x1b[31mred\x1b[0m\x07 \x00x\r50%\r\n"]), ["red x", "50%", ""]);
    }

    #[test]
    fn long_lines_are_truncated() {
        let long = vec![b'x'; 1_000_000];
        let found = split_lines(&[&long, b"\nnext\n"]);
        assert_eq!(found[0].chars().count(), MAX_LINE_CHARS);
        assert_eq!(found[1], "next");
    }

    #[test]
    fn only_the_last_lines_are_kept() {
        let mut tail = OutputTail::default();
        for n in 0..200 {
            tail.push(format!("{n}"));
        }
        let lines = tail.into_lines();
        assert_eq!(
            (lines.len(), lines[0].as_str(), lines[MAX_TAIL_LINES - 1].as_str()),
            (MAX_TAIL_LINES, "150", "199")
        );
    }
}
