//! Multipart messages: a frame and its attachments (RFC 2387 `multipart/related`, RFC 7578 `multipart/form-data`).
//!
//! The first part is the frame, or the one that `start` names; every other part has a `Content-ID` or a form's `name`. File names in a
//! message are ignored.
//!
//! Not `multer` (3.1): it fails on parts without header lines (the sample of RFC 2046 has one), takes `--b` at the start of the line `--bc`
//! for the delimiter of the boundary `b`, and refuses folded header lines.

use std::collections::BTreeSet;

use bytes::Bytes;
use memchr::memmem;

use super::super::fault::Fault;
use super::attachments::{Attachment, MAX_ATTACHMENTS, is_valid_cid};
use super::binding::{MEDIA_TYPE, MULTIPART_RELATED};
use super::content_type::ContentType;
use super::status::MULTIPART;

/// Maximum bytes of a part's header lines.
const MAX_PART_HEADER_BYTES: usize = 8 * 1024;

fn malformed(problem: impl Into<String>) -> Box<Fault> {
    Fault::sender(MULTIPART, problem)
}

fn unwrap_angle_brackets(id: &str) -> &str {
    id.trim_start_matches('<').trim_end_matches('>')
}

struct MimePart {
    headers: Vec<(String, String)>,
    data: Bytes,
}

impl MimePart {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.trim())
    }

    fn cid(&self) -> Option<String> {
        let named = || {
            let disposition = self.header("content-disposition")?;
            // Same grammar as a content type after the first word.
            ContentType::parse(&format!("x/{disposition}"))?.parameter("name").map(str::to_owned)
        };
        self.header("content-id").map(|id| unwrap_angle_brackets(id).to_owned()).or_else(named)
    }

    fn media_type(&self) -> Result<ContentType, Box<Fault>> {
        let text = self.header("content-type").unwrap_or("application/octet-stream");
        ContentType::parse(text).ok_or_else(|| malformed("a part has an invalid `Content-Type`"))
    }
}

/// Splits a multipart message into the frame's bytes and the attachments.
pub fn parse(content: &ContentType, body: &Bytes) -> Result<(Bytes, Vec<Attachment>), Box<Fault>> {
    let boundary = content.parameter("boundary").ok_or_else(|| malformed("`Content-Type` has no `boundary`"))?;
    if boundary.is_empty() || boundary.len() > 70 || !boundary.bytes().all(|b| (b' '..=b'~').contains(&b)) {
        return Err(malformed("the `boundary` must be 1 to 70 characters of ASCII"));
    }
    let mut parts = split_parts(boundary, body)?;
    let index = match content.parameter("start").map(unwrap_angle_brackets) {
        Some(start) => parts.iter().position(|part| part.cid().as_deref() == Some(start)),
        None => (!parts.is_empty()).then_some(0),
    };
    let frame = parts.remove(index.ok_or_else(|| malformed("no part has the frame"))?);
    if !frame.media_type()?.is_frame() && frame.header("content-type").is_some() {
        return Err(malformed("the part with the frame must be `application/amp+json`"));
    }
    let mut attachments = Vec::new();
    let mut ids = BTreeSet::new();
    for part in parts {
        let cid = part.cid().ok_or_else(|| malformed("a part has no `Content-ID`"))?;
        if !is_valid_cid(&cid) {
            return Err(malformed("a `Content-ID` must be 1 to 255 visible characters of ASCII"));
        }
        if !ids.insert(cid.clone()) {
            return Err(malformed(format!("duplicate `Content-ID` `{cid}`")));
        }
        let media_type = part.media_type()?.essence;
        attachments.push(Attachment { cid, media_type, data: part.data });
    }
    Ok((frame.data, attachments))
}

/// Parts between the delimiters (RFC 2046, 5.1.1). Ignores preamble and epilogue.
fn split_parts(boundary: &str, body: &Bytes) -> Result<Vec<MimePart>, Box<Fault>> {
    let delimiter = format!("\r\n--{boundary}");
    let finder = memmem::Finder::new(delimiter.as_bytes());
    let mut parts = Vec::new();
    let unterminated = || malformed("the last delimiter is missing");
    // The first delimiter may be at the very beginning, without a preceding line break.
    let mut at = if body.starts_with(&delimiter.as_bytes()[2..]) {
        delimiter.len() - 2
    } else {
        next_delimiter(&finder, body, 0).ok_or_else(unterminated)?.1
    };
    loop {
        if body[at..].starts_with(b"--") {
            return Ok(parts);
        }
        let line = memmem::find(&body[at..], b"\r\n").ok_or_else(unterminated)?;
        let (end, after) = next_delimiter(&finder, body, at + line).ok_or_else(unterminated)?;
        if parts.len() > MAX_ATTACHMENTS {
            return Err(malformed(format!("there are more than {MAX_ATTACHMENTS} attachments")));
        }
        // The delimiter's own line break ends an empty head.
        let inside = body.slice((at + line).min(end)..end);
        parts.push(parse_part(&inside)?);
        at = after;
    }
}

/// Finds the next delimiter, which takes a whole line. Returns its start and its end.
fn next_delimiter(finder: &memmem::Finder<'_>, body: &[u8], mut from: usize) -> Option<(usize, usize)> {
    loop {
        let begin = from + finder.find(&body[from..])?;
        let after = begin + finder.needle().len();
        let rest = &body[after..];
        let blank = rest.iter().take_while(|byte| b" \t".contains(byte)).count();
        if rest.starts_with(b"--") || rest[blank..].starts_with(b"\r\n") {
            return Some((begin, after));
        }
        from = begin + 2;
    }
}

/// Parses header lines and content. Begins with the delimiter's line break.
fn parse_part(inside: &Bytes) -> Result<MimePart, Box<Fault>> {
    let end = memmem::find(inside, b"\r\n\r\n").ok_or_else(|| malformed("a part has no end of its header lines"))?;
    if end > MAX_PART_HEADER_BYTES {
        return Err(malformed(format!("a part has more than {MAX_PART_HEADER_BYTES} bytes of header lines")));
    }
    let text = std::str::from_utf8(&inside[..end]).map_err(|_| malformed("a part's header lines are not UTF-8"))?;
    let mut head: Vec<(String, String)> = Vec::new();
    for line in text.split("\r\n").filter(|line| !line.is_empty()) {
        match (line.starts_with([' ', '\t']), head.last_mut()) {
            (true, Some((_, value))) => value.push_str(line),
            _ => {
                let (name, value) = line.split_once(':').ok_or_else(|| malformed("a part's header line has no `:`"))?;
                head.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
            }
        }
    }
    let part = MimePart { headers: head, data: inside.slice(end + 4..) };
    let encoding = part.header("content-transfer-encoding").unwrap_or("binary").to_ascii_lowercase();
    if !["binary", "8bit", "7bit"].contains(&encoding.as_str()) {
        return Err(malformed("`Content-Transfer-Encoding` must be `binary`"));
    }
    Ok(part)
}

/// Renders a frame and attachments as one message. Returns its `Content-Type` and bytes.
pub fn render(frame: &[u8], attachments: &[Attachment]) -> (String, Bytes) {
    let mut boundary = String::new();
    // The boundary must not occur in the content.
    while boundary.is_empty()
        || memmem::find(frame, boundary.as_bytes()).is_some()
        || attachments.iter().any(|attachment| memmem::find(&attachment.data, boundary.as_bytes()).is_some())
    {
        boundary = format!("amp-{}", uuid::Uuid::new_v4().simple());
    }
    let size: usize = attachments.iter().map(|attachment| attachment.data.len() + 512).sum();
    let mut body = Vec::with_capacity(frame.len() + size + 512);
    let mut add = |media_type: &str, cid: &str, data: &[u8]| {
        let head = format!(
            "--{boundary}\r\nContent-Type: {media_type}\r\nContent-ID: <{cid}>\r\nContent-Transfer-Encoding: binary\r\n\r\n"
        );
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(data);
        body.extend_from_slice(b"\r\n");
    };
    add(MEDIA_TYPE, "frame", frame);
    for attachment in attachments {
        add(&attachment.media_type, &attachment.cid, &attachment.data);
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    let content = format!("{MULTIPART_RELATED}; boundary=\"{boundary}\"; type=\"{MEDIA_TYPE}\"; start=\"<frame>\"");
    (content, body.into())
}

#[cfg(test)]
#[path = "tests/multipart.rs"]
mod tests;
