//! Messages as Markdown: parses a file or names the rule it violates, and renders a message as the spec's example does.
//!
//! A header consists of lines `<!-- field: value -->`; unknown fields are ignored. The sections `## Subject`, `## Body`,
//! `## Context` and `## Expected Response` follow in any order. Only the first heading of each name begins a section; any other
//! heading is text. A text line that would begin a section is written with a `\` before it and read without it. Text before the
//! first section belongs to the body. Byte order marks and CRLF are accepted and never written.
//!
//! Timestamps are written as in the spec: in UTC, to the second, without an offset. A `Z` or an offset is honoured when reading.
//! Used by `store.rs`, `parts.rs` and `roster.rs`. Pure.

use std::fmt::Display;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::message::{
    MAX_READ_BYTES, MailboxMessage, MessageContent, MessagePart, Priority, VERSION, trim_blank_lines,
};
use super::rules::{self, MailboxViolation};

/// The sections, in the order in which they are written.
const SECTIONS: [&str; 4] = ["Subject", "Body", "Context", "Expected Response"];
const SUBJECT: usize = 0;
const BODY: usize = 1;
const CONTEXT: usize = 2;
const EXPECTED_RESPONSE: usize = 3;
/// The value of `part-cut` for a part that ends inside a line.
const INSIDE_LINE: &str = "inside-line";

/// The values of the known fields.
#[derive(Default)]
struct HeaderFields<'a>([Option<&'a str>; HEADER_FIELDS.len()]);

const HEADER_FIELDS: [&str; 11] =
    ["amp-version", "from", "to", "seq", "type", "timestamp", "re", "priority", "ttl", "part", "part-cut"];

impl<'a> HeaderFields<'a> {
    fn optional(&self, name: &str) -> Option<&'a str> {
        let at = HEADER_FIELDS.iter().position(|field| *field == name)?;
        // An empty value counts as missing.
        self.0[at].filter(|value| !value.is_empty())
    }

    fn required(&self, name: &'static str) -> Result<&'a str, MailboxViolation> {
        self.optional(name).ok_or_else(|| MailboxViolation::new(rules::REQUIRED, format!("`{name}` is missing")))
    }

    fn parse_optional<T: FromStr>(&self, rule: &'static str, name: &str) -> Result<Option<T>, MailboxViolation>
    where
        T::Err: Display,
    {
        self.optional(name).map(|text| parse_field(rule, name, text)).transpose()
    }
}

/// Parses a message. The caller checks that sender and number match the outbox and the file name.
pub fn parse(bytes: &[u8]) -> Result<MailboxMessage, MailboxViolation> {
    let violation = |rule, problem: String| MailboxViolation::new(rule, problem);
    if bytes.len() > MAX_READ_BYTES {
        return Err(violation(rules::SIZE, format!("it has more than {MAX_READ_BYTES} bytes")));
    }
    let text = str::from_utf8(bytes)
        .map_err(|error| violation(rules::UTF8, format!("it is not UTF-8 from byte {}", error.valid_up_to())))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
    let (fields, rest) = parse_header(&text)?;

    let version = fields.required("amp-version")?;
    if version != VERSION {
        return Err(violation(rules::VERSION, format!("`amp-version` is not 1 but `{}`", excerpt(version))));
    }
    let timestamp = fields.required("timestamp")?;
    let timestamp = parse_time(timestamp)
        .ok_or_else(|| violation(rules::TIMESTAMP, format!("`timestamp` is not ISO 8601: `{}`", excerpt(timestamp))))?;
    let parse_ttl = |text: &str| {
        let minutes = if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None };
        let problem = || format!("`ttl` is not a number of minutes: `{}`", excerpt(text));
        minutes.ok_or_else(|| violation(rules::TTL, problem()))
    };
    let part: Option<MessagePart> = fields.parse_optional(rules::PART, "part")?;
    let cut_inside_line = fields.optional("part-cut") == Some(INSIDE_LINE);
    Ok(MailboxMessage {
        from: parse_field(rules::FROM, "from", fields.required("from")?)?,
        to: parse_field(rules::TO, "to", fields.required("to")?)?,
        seq: parse_field(rules::SEQ, "seq", fields.required("seq")?)?,
        message_type: parse_field(rules::TYPE, "type", fields.required("type")?)?,
        timestamp,
        re: fields.parse_optional(rules::RE, "re")?,
        priority: fields.parse_optional(rules::PRIORITY, "priority")?.unwrap_or(Priority::Normal),
        ttl: fields.optional("ttl").map(parse_ttl).transpose()?,
        part: part.map(|part| MessagePart { cut_inside_line, ..part }),
        content: parse_content(rest, part.is_some()),
    })
}

fn parse_field<T: FromStr>(rule: &'static str, field: &str, text: &str) -> Result<T, MailboxViolation>
where
    T::Err: Display,
{
    text.parse().map_err(|error: T::Err| MailboxViolation::new(rule, format!("`{field}`: {error}")))
}

fn excerpt(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Splits a file into its header's fields and the rest.
fn parse_header(text: &str) -> Result<(HeaderFields<'_>, &str), MailboxViolation> {
    let mut fields = HeaderFields::default();
    let mut rest = text;
    while !rest.is_empty() {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        let line = line.trim();
        if !line.is_empty() {
            let Some(comment) = line.strip_prefix("<!--").and_then(|rest| rest.strip_suffix("-->")) else { break };
            let (name, value) = comment.split_once(':').map_or((comment.trim(), ""), |(n, v)| (n.trim(), v.trim()));
            if let Some(at) = HEADER_FIELDS.iter().position(|field| field.eq_ignore_ascii_case(name))
                && fields.0[at].replace(value).is_some()
            {
                let problem = format!("`{}` occurs twice", HEADER_FIELDS[at]);
                return Err(MailboxViolation::new(rules::FIELD_TWICE, problem));
            }
        }
        rest = after;
    }
    Ok((fields, rest))
}

/// The section that begins with this line.
fn section_index(line: &str) -> Option<usize> {
    let name = line.strip_prefix("## ")?.trim();
    SECTIONS.iter().position(|section| section.eq_ignore_ascii_case(name))
}

/// Whether a text line needs a `\` before it, or one more, so that it does not begin a section.
fn looks_like_section(line: &str) -> bool {
    section_index(line.trim_start_matches('\\')).is_some()
}

/// `is_part`: the body keeps its blank lines, which matter when parts are joined.
fn parse_content(text: &str, is_part: bool) -> MessageContent {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let mut sections: [Option<Vec<&str>>; 4] = Default::default();
    let mut before: Vec<&str> = Vec::new();
    let mut current = None;
    for line in text.split('\n') {
        if let Some(section) = section_index(line).filter(|section| sections[*section].is_none()) {
            // The blank line between two sections belongs to neither.
            if let Some(lines) = current.and_then(|at: usize| sections[at].as_mut())
                && lines.last().is_some_and(|last| last.is_empty())
            {
                lines.pop();
            }
            sections[section] = Some(Vec::new());
            current = Some(section);
            continue;
        }
        let line = if line.starts_with('\\') && looks_like_section(line) { &line[1..] } else { line };
        match current {
            Some(at) => sections[at].get_or_insert_default().push(line),
            None => before.push(line),
        }
    }
    let mut take = |at: usize| sections[at].take().map(|lines| lines.join("\n"));
    let (subject, body, context, expected) = (take(SUBJECT), take(BODY), take(CONTEXT), take(EXPECTED_RESPONSE));
    let before = trim_blank_lines(&before.join("\n"));
    let body = match body {
        None => before,
        Some(body) if is_part && before.is_empty() => body,
        Some(body) if before.is_empty() => trim_blank_lines(&body),
        Some(body) => format!("{before}\n\n{}", trim_blank_lines(&body)),
    };
    let option = |text: Option<String>| text.map(|text| trim_blank_lines(&text)).filter(|text| !text.is_empty());
    MessageContent {
        subject: option(subject).unwrap_or_default(),
        body,
        context: option(context),
        expected_response: option(expected),
    }
}

pub fn render(message: &MailboxMessage) -> String {
    let mut text = String::new();
    let mut field = |name: &str, value: &dyn Display| text.push_str(&format!("<!-- {name}: {value} -->\n"));
    field("amp-version", &VERSION);
    field("from", &message.from);
    field("to", &message.to);
    field("seq", &message.seq);
    field("type", &message.message_type);
    field("timestamp", &render_time(message.timestamp));
    if let Some(re) = &message.re {
        field("re", re);
    }
    if message.priority != Priority::Normal {
        field("priority", &message.priority);
    }
    if let Some(ttl) = message.ttl {
        field("ttl", &ttl);
    }
    if let Some(part) = message.part {
        field("part", &part);
        if part.cut_inside_line {
            field("part-cut", &INSIDE_LINE);
        }
    }
    let MessageContent { subject, body, context, expected_response } = &message.content;
    let sections = [Some(subject), Some(body), context.as_ref(), expected_response.as_ref()];
    for (name, section) in SECTIONS.iter().zip(sections) {
        let Some(section) = section else { continue };
        text.push_str(&format!("\n## {name}\n"));
        for line in section.split('\n') {
            text.push_str(if looks_like_section(line) { "\\" } else { "" });
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// The length of a text line as rendered, in bytes with its newline.
pub(super) fn rendered_len(line: &str) -> usize {
    line.len() + 1 + usize::from(looks_like_section(line))
}

/// `2026-02-19T11:32:15`, in UTC.
pub fn render_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S").to_string()
}

/// Parses a time; without an offset it is in UTC.
pub fn parse_time(text: &str) -> Option<Timestamp> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time);
    }
    let time: DateTime = text.parse().ok()?;
    TimeZone::UTC.to_timestamp(time).ok()
}

#[cfg(test)]
mod tests;
