//! Attachments: a frame and other bytes in one HTTP message (RFC 2387 `multipart/related`, RFC 7578 `multipart/form-data`), and the
//! header block `attachments` that lists them in the frame, so that a signature over the frame holds them too.
//!
//! The first part is the frame, or the one that `start` names; each other has a `Content-ID`, or the `name` of a form. The block:
//! `{"parts": [{"cid", "mediaType", "size", "sha256"}]}`. What is listed must be there, as it is listed, and nothing else; every node
//! on the path checks it. Used by `server.rs`, `node_service.rs` and `client.rs`. Must not: take a file's name from a message.

use std::collections::BTreeSet;

use bytes::Bytes;
use memchr::memmem;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::super::fault::Fault;
use super::super::frame::Frame;
use super::status::{ATTACHMENT, MULTIPART};
use super::{MEDIA_TYPE, MULTIPART_FORM_DATA, MULTIPART_RELATED};

/// The header block that lists the attachments.
pub const ATTACHMENTS_BLOCK: &str = "attachments";
/// The most attachments of one frame.
pub const MAX_ATTACHMENTS: usize = 64;
/// The most bytes of a part's own header.
const MAX_PART_HEADER_BYTES: usize = 8 * 1024;

/// Bytes that travel beside a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// What the frame calls it.
    pub cid: String,
    /// Its media type.
    pub media_type: String,
    /// The bytes.
    pub data: Bytes,
}

impl Attachment {
    /// Its SHA-256, as hexadecimal digits.
    pub fn sha256(&self) -> String {
        Sha256::digest(&self.data).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn to_block_entry(&self) -> Value {
        json!({"cid": self.cid, "mediaType": self.media_type, "size": self.data.len(), "sha256": self.sha256()})
    }
}

/// A value of `Content-Type`: the type in lower case, and its parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContentType {
    /// `application/amp+json`.
    pub essence: String,
    parameters: Vec<(String, String)>,
}

impl ContentType {
    /// Reads one; nothing that is none.
    pub fn parse(text: &str) -> Option<Self> {
        let (essence, mut rest) = text.split_once(';').unwrap_or((text, ""));
        let essence = essence.trim().to_ascii_lowercase();
        let (kind, sub) = essence.split_once('/')?;
        if !is_token(kind) || !is_token(sub) {
            return None;
        }
        let mut parameters = Vec::new();
        while !rest.trim().is_empty() {
            let (name, after) = rest.split_once('=')?;
            let name = name.trim().to_ascii_lowercase();
            let (value, after) = match after.strip_prefix('"') {
                Some(quoted) => unquote(quoted)?,
                None => {
                    let (value, after) = after.split_once(';').unwrap_or((after, ""));
                    (value.trim().to_owned(), after)
                }
            };
            if !is_token(&name) {
                return None;
            }
            parameters.push((name, value));
            rest = after;
        }
        Some(Self { essence, parameters })
    }

    /// A parameter.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Whether it is a frame with others beside it.
    pub fn is_multipart(&self) -> bool {
        [MULTIPART_RELATED, MULTIPART_FORM_DATA].contains(&self.essence.as_str())
    }

    /// Whether it is a frame alone. JSON is UTF-8 (RFC 8259), and another `charset` is none.
    pub fn is_frame(&self) -> bool {
        let utf8 = self.parameter("charset").is_none_or(|charset| charset.eq_ignore_ascii_case("utf-8"));
        utf8 && [MEDIA_TYPE, "application/json"].contains(&self.essence.as_str())
    }
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// A quoted text without its first `"`, and what comes behind the next `;`.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((place, c)) = chars.next() {
        match c {
            '"' => {
                let rest = text[place + 1..].trim_start();
                return if rest.is_empty() { Some((value, "")) } else { Some((value, rest.strip_prefix(';')?)) };
            }
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}

fn malformed(problem: impl Into<String>) -> Box<Fault> {
    Fault::sender(MULTIPART, problem)
}

fn attachment_mismatch(problem: impl Into<String>) -> Box<Fault> {
    Fault::sender(ATTACHMENT, problem).at_pointer("/frame/Header/attachments")
}

/// A part as it came.
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
            // The same grammar as a content type, but for the first word.
            ContentType::parse(&format!("x/{disposition}"))?.parameter("name").map(str::to_owned)
        };
        let id = self.header("content-id").map(|id| id.trim_start_matches('<').trim_end_matches('>').to_owned());
        id.or_else(named)
    }

    fn media_type(&self) -> Result<ContentType, Box<Fault>> {
        let text = self.header("content-type").unwrap_or("application/octet-stream");
        ContentType::parse(text).ok_or_else(|| malformed("a part's `Content-Type` is none"))
    }
}

/// Takes a multipart message apart: the frame's bytes, and the attachments in their order.
pub fn parse(content: &ContentType, body: &Bytes) -> Result<(Bytes, Vec<Attachment>), Box<Fault>> {
    let boundary = content.parameter("boundary").ok_or_else(|| malformed("`Content-Type` has no `boundary`"))?;
    if boundary.is_empty() || boundary.len() > 70 || !boundary.bytes().all(|b| (b' '..=b'~').contains(&b)) {
        return Err(malformed("the `boundary` must be 1 to 70 characters of ASCII"));
    }
    let mut parts = split_parts(boundary, body)?;
    let start = content.parameter("start").map(|start| start.trim_start_matches('<').trim_end_matches('>').to_owned());
    let place = match start {
        Some(start) => parts.iter().position(|part| part.cid().as_deref() == Some(start.as_str())),
        None => (!parts.is_empty()).then_some(0),
    };
    let frame = parts.remove(place.ok_or_else(|| malformed("there is no part with the frame"))?);
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
            return Err(malformed(format!("the `Content-ID` `{cid}` stands twice")));
        }
        let media_type = part.media_type()?.essence;
        attachments.push(Attachment { cid, media_type, data: part.data });
    }
    Ok((frame.data, attachments))
}

fn is_valid_cid(cid: &str) -> bool {
    (1..=255).contains(&cid.len()) && cid.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>\"\\".contains(&byte))
}

/// The parts between the delimiters (RFC 2046, 5.1.1). What is before the first and behind the last is nobody's.
fn split_parts(boundary: &str, body: &Bytes) -> Result<Vec<MimePart>, Box<Fault>> {
    let delimiter = format!("\r\n--{boundary}");
    let finder = memmem::Finder::new(delimiter.as_bytes());
    let mut parts = Vec::new();
    let open = || malformed("the last delimiter is missing");
    // The first delimiter may stand at the very beginning, without a line before it.
    let mut at = if body.starts_with(&delimiter.as_bytes()[2..]) {
        delimiter.len() - 2
    } else {
        next_delimiter(&finder, body, 0).ok_or_else(open)?.1
    };
    loop {
        if body[at..].starts_with(b"--") {
            return Ok(parts);
        }
        let line = memmem::find(&body[at..], b"\r\n").ok_or_else(open)?;
        let (end, after) = next_delimiter(&finder, body, at + line).ok_or_else(open)?;
        if parts.len() > MAX_ATTACHMENTS {
            return Err(malformed(format!("there are more than {MAX_ATTACHMENTS} attachments")));
        }
        // An empty head: the delimiter's own line break ends it.
        let inside = body.slice((at + line).min(end)..end);
        parts.push(parse_part(&inside)?);
        at = after;
    }
}

/// The next delimiter that is not only the beginning of a longer line: where it begins, and what is behind it.
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

/// Header lines and content; begins with the line break of the delimiter.
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
        return Err(malformed("parts are sent as they are: `Content-Transfer-Encoding` must be `binary`"));
    }
    Ok(part)
}

/// A frame and attachments as one message: its `Content-Type`, and the bytes.
pub fn render(frame: &[u8], attachments: &[Attachment]) -> (String, Bytes) {
    let mut boundary = String::new();
    // One that is nowhere inside. A second round is as likely as a collision of UUIDs.
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

/// The block that lists them. It is for every node, which checks it, and goes on from each.
pub fn attachments_block(attachments: &[Attachment]) -> Map<String, Value> {
    let mut block = Map::new();
    block.insert("role".to_owned(), json!("next"));
    block.insert("relay".to_owned(), json!(true));
    block.insert("parts".to_owned(), attachments.iter().map(Attachment::to_block_entry).collect());
    block
}

/// Whether what came beside a frame is what the frame lists.
pub fn check_attachments(frame: &Frame, attachments: &[Attachment]) -> Result<(), Box<Fault>> {
    let content = frame.header.block(ATTACHMENTS_BLOCK).map(|block| block.content().clone());
    let listed: Vec<&Value> = match content.as_ref().map(|content| content.get("parts")) {
        None => Vec::new(),
        Some(Some(Value::Array(list))) if list.len() <= MAX_ATTACHMENTS => list.iter().collect(),
        Some(_) => {
            return Err(attachment_mismatch(format!(
                "`attachments` must have `parts`, a list of at most {MAX_ATTACHMENTS}"
            )));
        }
    };
    let mut cids = BTreeSet::new();
    for line in listed {
        let cid = line.get("cid").and_then(Value::as_str).filter(|cid| is_valid_cid(cid));
        let cid = cid.ok_or_else(|| attachment_mismatch("an entry of `attachments` has no `cid`"))?;
        if !cids.insert(cid) {
            return Err(attachment_mismatch(format!("the attachment `{cid}` is listed twice")));
        }
        let attachment = attachments.iter().find(|attachment| attachment.cid == cid);
        let attachment = attachment
            .ok_or_else(|| attachment_mismatch(format!("the attachment `{cid}` is listed and did not come")))?;
        for (key, found) in [
            ("size", json!(attachment.data.len())),
            ("mediaType", json!(attachment.media_type)),
            ("sha256", json!(attachment.sha256())),
        ] {
            if line.get(key) != Some(&found) {
                return Err(attachment_mismatch(format!(
                    "the attachment `{cid}` is not as it was sent: its `{key}` differs"
                )));
            }
        }
    }
    match attachments.iter().find(|attachment| !cids.contains(attachment.cid.as_str())) {
        Some(attachment) => {
            Err(attachment_mismatch(format!("the attachment `{}` came and is not listed", attachment.cid)))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "multipart_tests.rs"]
mod tests;
