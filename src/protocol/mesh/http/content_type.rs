//! `Content-Type` values (RFC 9110, 8.3).

use super::binding::{MEDIA_TYPE, MULTIPART_FORM_DATA, MULTIPART_RELATED};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContentType {
    /// Type and subtype in lower case: `application/amp+json`.
    pub essence: String,
    parameters: Vec<(String, String)>,
}

impl ContentType {
    pub fn parse(text: &str) -> Option<Self> {
        let (essence, mut rest) = text.split_once(';').unwrap_or((text, ""));
        let essence = essence.trim().to_ascii_lowercase();
        let (kind, subtype) = essence.split_once('/')?;
        if !is_token(kind) || !is_token(subtype) {
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

    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn is_multipart(&self) -> bool {
        [MULTIPART_RELATED, MULTIPART_FORM_DATA].contains(&self.essence.as_str())
    }

    /// Whether the content is a single frame. JSON is UTF-8 (RFC 8259); no other `charset` is accepted.
    pub fn is_frame(&self) -> bool {
        let utf8 = self.parameter("charset").is_none_or(|charset| charset.eq_ignore_ascii_case("utf-8"));
        utf8 && [MEDIA_TYPE, "application/json"].contains(&self.essence.as_str())
    }
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Reads a quoted string after its opening quote. Returns its value and the text after the following `;`.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((index, c)) = chars.next() {
        match c {
            '"' => {
                let rest = text[index + 1..].trim_start();
                return if rest.is_empty() { Some((value, "")) } else { Some((value, rest.strip_prefix(';')?)) };
            }
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_types_are_parsed() {
        let parse = |text: &str| ContentType::parse(text).unwrap_or_else(|| panic!("{text}"));
        let one = parse("Multipart/Related ; Boundary=\"a;b\\\"c\"; type=application/amp+json; start=\"<x>\"");
        assert_eq!(one.essence, "multipart/related");
        assert_eq!(one.parameter("boundary"), Some("a;b\"c"));
        assert_eq!((one.parameter("type"), one.parameter("start")), (Some("application/amp+json"), Some("<x>")));
        assert!(one.is_multipart() && !one.is_frame());
        assert!(parse("application/json;charset=\"UTF-8\";").is_frame());
        for bad in ["", "text", "a/", "/b", "a b/c", "a/b; c", "a/b; c=\"d", "a/b; c=\"d\" e", "a/b; =c"] {
            assert_eq!(ContentType::parse(bad), None, "{bad}");
        }
    }
}
