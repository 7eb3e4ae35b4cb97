//! URLs in ACP messages: a task-request's `repoUrl` and a completion's `prUrl`.
//!
//! A small strict parser, because the shim, which must stay small, reads `repoUrl` too. A test compares it with gix-url, which
//! accepts everything that this parser accepts. Used by [`decode`](super::decode), and by the orchestrator for the repo's
//! remote. Must not: put any part of a `repoUrl` into an error, since it may hold credentials.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use super::fields::FieldError;
use super::rules;

/// A repository's URL in a task-request: `https://host[:port]/path`, `ssh://[user@]host[:port]/path` or scp-like
/// `user@host:path`. Without credentials, without query and fragment (which may hold some), and without anything that
/// git or ssh could take for an option.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RepoUrl(String);

impl RepoUrl {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RepoUrl {
    type Err = FieldError;
    fn from_str(text: &str) -> Result<Self, FieldError> {
        let checked = match text.split_once("://") {
            Some(("https", rest)) => check_https(rest),
            Some(("ssh", rest)) => check_ssh(rest),
            Some(_) => Err(UrlProblem::Url("must begin with `https://` or `ssh://`, or be `user@host:path`")),
            None => check_scp(text),
        };
        match checked {
            Ok(()) => Ok(Self(text.to_owned())),
            Err(UrlProblem::Url(problem)) => Err(FieldError::new(rules::REPO_URL, problem)),
            Err(UrlProblem::Credentials(problem)) => Err(FieldError::new(rules::REPO_URL_CREDENTIALS, problem)),
        }
    }
}

impl fmt::Display for RepoUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

enum UrlProblem {
    Url(&'static str),
    Credentials(&'static str),
}

impl From<&'static str> for UrlProblem {
    fn from(problem: &'static str) -> Self {
        UrlProblem::Url(problem)
    }
}

fn check_https(rest: &str) -> Result<(), UrlProblem> {
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if authority.contains('@') {
        return Err(UrlProblem::Credentials("must not have a user or a password before the host"));
    }
    check_host_and_port(authority)?;
    check_path(path)
}

fn check_ssh(rest: &str) -> Result<(), UrlProblem> {
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = match authority.rsplit_once('@') {
        Some((login, host)) => check_user(login).map(|()| host)?,
        None => authority,
    };
    check_host_and_port(host)?;
    if path.len() < 2 {
        return Err(UrlProblem::Url("must have a path behind the host"));
    }
    check_path(path)
}

fn check_scp(text: &str) -> Result<(), UrlProblem> {
    let problem = "must begin with `https://` or `ssh://`, or be `user@host:path`";
    let (login, rest) = text.split_once('@').ok_or(problem)?;
    if login.contains('/') {
        return Err(UrlProblem::Url(problem));
    }
    check_user(login)?;
    let (name, path) = rest.split_once(':').ok_or(problem)?;
    if name.contains('@') {
        return Err(UrlProblem::Credentials("must not have more than a user before the host"));
    }
    check_host(name)?;
    if path.is_empty() || path.starts_with(':') {
        return Err(UrlProblem::Url("must have a path behind the host"));
    }
    if path.starts_with('-') {
        return Err(UrlProblem::Url("must not have a path that begins with `-`"));
    }
    check_characters(path).map_err(UrlProblem::Url)
}

/// The part before the `@` of an ssh login: a name only.
fn check_user(login: &str) -> Result<(), UrlProblem> {
    if login.contains([':', '@']) {
        return Err(UrlProblem::Credentials("must not have a password before the host"));
    }
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'+' | b'~');
    // ssh interprets a leading `-` as an option.
    if login.is_empty() || login.starts_with('-') || !login.bytes().all(allowed) {
        return Err(UrlProblem::Url(
            "must have a user of letters, digits, `.`, `_`, `-`, `+` and `~`, not beginning with `-`",
        ));
    }
    Ok(())
}

fn check_host_and_port(text: &str) -> Result<(), &'static str> {
    let from = if text.starts_with('[') { text.find(']').unwrap_or(0) } else { 0 };
    let Some(colon) = text[from..].find(':') else { return check_host(text) };
    let (name, port) = (&text[..from + colon], &text[from + colon + 1..]);
    let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    if !digits || port.parse::<u16>().ok().is_none_or(|port| port == 0) {
        return Err("must have a port of 1 to 65535, or none");
    }
    check_host(name)
}

/// A name of letters, digits, `-` and `_` in parts split by dots, or an IPv6 address in brackets.
fn check_host(name: &str) -> Result<(), &'static str> {
    if let Some(address) = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return if address.parse::<Ipv6Addr>().is_ok() { Ok(()) } else { Err("must have a valid IPv6 address") };
    }
    let part = |part: &str| {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        !part.is_empty() && !part.starts_with('-') && part.bytes().all(allowed)
    };
    if name.len() <= 253 && name.split('.').all(part) { Ok(()) } else { Err("must have a valid host") }
}

/// The path of a URL to clone; empty, or beginning with `/`.
fn check_path(path: &str) -> Result<(), UrlProblem> {
    if path.contains(['?', '#']) {
        return Err(UrlProblem::Url("must have no query and no fragment"));
    }
    check_characters(path)?;
    let decoded = percent_decode(path).ok_or("must have two hexadecimal digits behind each `%`")?;
    let decoded = str::from_utf8(&decoded).map_err(|_| "must be UTF-8 where it is decoded")?;
    // A newline that comes out of a `%0a` ends a line of git's credential protocol.
    Ok(check_characters(decoded)?)
}

/// No whitespace, control characters or backslashes.
fn check_characters(text: &str) -> Result<(), &'static str> {
    if text.chars().any(|c| c.is_whitespace() || c.is_control() || c == '\\') {
        return Err("must not have white space, control characters or backslashes");
    }
    Ok(())
}

fn percent_decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || bytes.next().and_then(|b| char::from(b).to_digit(16));
            let (high, low) = (digit()?, digit()?);
            decoded.push(u8::try_from(high * 16 + low).expect("two hexadecimal digits are at most 255"));
        } else {
            decoded.push(byte);
        }
    }
    Some(decoded)
}

/// Checks a URL with a host, of any scheme (ACP, completion: `prUrl`): only characters of RFC 3986.
pub(super) fn check_url(text: &str) -> Result<(), &'static str> {
    let (scheme, rest) = text.split_once("://").ok_or("must be a URL with a scheme and a host, or null")?;
    let letters = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) || !scheme.bytes().all(letters) {
        return Err("must begin with a valid scheme");
    }
    let characters = |b: u8| b.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&b);
    if !rest.bytes().all(characters) {
        return Err("must have no characters but those that RFC 3986 allows in a URL");
    }
    percent_decode(rest).ok_or("must have two hexadecimal digits behind each `%`")?;
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    check_host_and_port(authority.rsplit_once('@').map_or(authority, |(_, host)| host))
}
