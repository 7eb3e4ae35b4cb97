//! Messages as Markdown: bytes -> message with the rule that is broken, and message -> text, as the spec's example has it.
//!
//! A header is lines `<!-- field: value -->`; fields that nobody knows are passed over. What follows is sections: `## Subject`,
//! `## Body`, `## PromptContext`, `## ExpectedBundle Response`, each once, in any order; a second one of that name, and every other
//! heading, is text. So that it stays text, such a line is written with `\` before it, and read without. Text before the
//! first section belongs to the body. Byte order marks and CRLF are read, and never written.
//!
//! Timestamps are written as the spec writes them, to the second and without an offset: UTC. One with an offset or `Z` is
//! what it says. Used by `store.rs`, `parts.rs` and `roster.rs`. Pure.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::message::{
    MAX_READ_BYTES, MailboxMessage, MessageContent, MessagePart, Priority, VERSION, trim_blank_lines,
};
use super::rules::{self, MailboxViolation};

/// The known sections, in the order in which they are written.
const SECTIONS: [&str; 4] = ["Subject", "Body", "Context", "Expected Response"];
const SUBJECT: usize = 0;
const BODY: usize = 1;
const CONTEXT: usize = 2;
const EXPECTED_RESPONSE: usize = 3;
/// The value of `part-cut` where a part ends inside a line.
const INSIDE_LINE: &str = "inside-line";

/// The known fields of a header.
#[derive(Default)]
struct HeaderFields<'a>([Option<&'a str>; HEADER_FIELDS.len()]);

const HEADER_FIELDS: [&str; 11] =
    ["amp-version", "from", "to", "seq", "type", "timestamp", "re", "priority", "ttl", "part", "part-cut"];

impl<'a> HeaderFields<'a> {
    fn optional(&self, name: &str) -> Option<&'a str> {
        // An empty value says nothing.
        let at = HEADER_FIELDS.iter().position(|field| *field == name)?;
        self.0[at].filter(|value| !value.is_empty())
    }

    fn required(&self, name: &'static str) -> Result<&'a str, MailboxViolation> {
        self.optional(name).ok_or_else(|| MailboxViolation::new(rules::REQUIRED, format!("`{name}` is missing")))
    }
}

/// Reads a message. Whether sender and number are those of its folder and file is for the caller to see.
pub fn parse(bytes: &[u8]) -> Result<MailboxMessage, MailboxViolation> {
    if bytes.len() > MAX_READ_BYTES {
        return Err(MailboxViolation::new(rules::SIZE, format!("it has more than {MAX_READ_BYTES} bytes")));
    }
    let text = str::from_utf8(bytes)
        .map_err(|error| MailboxViolation::new(rules::UTF8, format!("no UTF-8 from byte {}", error.valid_up_to())))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
    let (fields, rest) = parse_header(&text)?;

    let version = fields.required("amp-version")?;
    if version != VERSION {
        return Err(MailboxViolation::new(
            rules::VERSION,
            format!("`amp-version` is not 1 but `{}`", excerpt(version)),
        ));
    }
    let timestamp = fields.required("timestamp")?;
    let timestamp = parse_time(timestamp).ok_or_else(|| {
        MailboxViolation::new(rules::TIMESTAMP, format!("`timestamp` is not ISO 8601: `{}`", excerpt(timestamp)))
    })?;
    let ttl = fields.optional("ttl").map(|text| {
        let minutes = if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None };
        minutes.ok_or_else(|| {
            MailboxViolation::new(rules::TTL, format!("`ttl` is no number of minutes: `{}`", excerpt(text)))
        })
    });
    let part = fields.optional("part").map(|text| parse_field::<MessagePart>(rules::PART, "part", text)).transpose()?;
    let inside_line = fields.optional("part-cut") == Some(INSIDE_LINE);
    let priority =
        fields.optional("priority").map(|text| parse_field(rules::PRIORITY, "priority", text)).transpose()?;
    Ok(MailboxMessage {
        from: parse_field(rules::FROM, "from", fields.required("from")?)?,
        to: parse_field(rules::TO, "to", fields.required("to")?)?,
        seq: parse_field(rules::SEQ, "seq", fields.required("seq")?)?,
        message_type: parse_field(rules::TYPE, "type", fields.required("type")?)?,
        timestamp,
        re: fields.optional("re").map(|text| parse_field(rules::RE, "re", text)).transpose()?,
        priority: priority.unwrap_or(Priority::Normal),
        ttl: ttl.transpose()?,
        part: part.map(|part| MessagePart { cut_inside_line: inside_line, ..part }),
        content: parse_content(rest, part.is_some()),
    })
}

/// A value of a header.
fn parse_field<T: std::str::FromStr>(rule: &'static str, field: &str, text: &str) -> Result<T, MailboxViolation>
where
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error: T::Err| MailboxViolation::new(rule, format!("`{field}`: {error}")))
}

fn excerpt(text: &str) -> String {
    text.chars().take(80).collect()
}

/// The fields, and what follows them.
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
                return Err(MailboxViolation::new(
                    rules::FIELD_TWICE,
                    format!("`{}` stands there twice", HEADER_FIELDS[at]),
                ));
            }
        }
        rest = after;
    }
    Ok((fields, rest))
}

/// Which section begins with this line.
fn section_index(line: &str) -> Option<usize> {
    let name = line.strip_prefix("## ")?.trim();
    SECTIONS.iter().position(|section| section.eq_ignore_ascii_case(name))
}

/// Whether this line of a text would be read as the beginning of a section, but for the `\` before it.
fn looks_like_section(line: &str) -> bool {
    section_index(line.trim_start_matches('\\')).is_some()
}

fn parse_content(text: &str, exact: bool) -> MessageContent {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let mut sections: [Option<Vec<&str>>; 4] = Default::default();
    let mut before: Vec<&str> = Vec::new();
    let mut current = None;
    for line in text.split('\n') {
        if let Some(section) = section_index(line).filter(|section| sections[*section].is_none()) {
            // The blank line that parts two sections belongs to neither.
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
        // What a part begins and ends with matters when it is joined.
        Some(body) if exact && before.is_empty() => body,
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

/// Writes a message.
pub fn render(message: &MailboxMessage) -> String {
    let mut text = String::new();
    let mut field = |name: &str, value: &dyn std::fmt::Display| text.push_str(&format!("<!-- {name}: {value} -->\n"));
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

/// How many bytes a line of a text takes when it is written, its newline included.
pub(super) fn rendered_len(line: &str) -> usize {
    line.len() + 1 + usize::from(looks_like_section(line))
}

/// `2026-02-19T11:32:15`, in UTC.
pub fn render_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S").to_string()
}

/// A time with an offset, or without one: then in UTC.
pub fn parse_time(text: &str) -> Option<Timestamp> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time);
    }
    let time: DateTime = text.parse().ok()?;
    TimeZone::UTC.to_timestamp(time).ok()
}

#[cfg(test)]
mod tests;
