//! The repository's remote as ACP's `repoUrl`.
//!
//! Called by `coordinator/` when it writes a task-request. The sandbox never connects to the URL: its git maps it to the
//! objects volume. A credential in it would be a useless leak, so it is removed.

use gix_url::Scheme;

/// The remote's URL without its credentials, if it is https, ssh or scp-like (`user@host:path`); otherwise
/// `https://longshore.invalid/<hash>.git`, which is valid and leads nowhere. `hash` is [`Repo::hash`](super::Repo::hash).
pub(crate) fn acp_repo_url(remote: Option<&str>, hash: &str) -> String {
    remote.and_then(without_credentials).unwrap_or_else(|| format!("https://longshore.invalid/{hash}.git"))
}

fn without_credentials(remote: &str) -> Option<String> {
    if remote.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return None;
    }
    let url = gix_url::parse(remote).ok()?;
    let host = url.host_argument_safe().filter(|host| is_plain_text(host, ".-_:"))?;
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let port = url.port.map(|port| format!(":{port}")).unwrap_or_default();
    // As written: a decoded path might need escapes again.
    let path = std::str::from_utf8(url.original_path()).ok()?;
    if path.trim_start_matches('/').starts_with('-') || path.trim_matches('/').is_empty() {
        return None;
    }
    let user = || url.user_argument_safe().filter(|user| is_plain_text(user, ".-_"));
    match url.scheme {
        // A user name or a query in an https URL may be a token.
        Scheme::Https => {
            let path = path.split(['?', '#']).next().unwrap_or_default();
            Some(format!("https://{host}{port}{path}"))
        }
        Scheme::Ssh if !remote.contains("://") => Some(format!("{}@{host}:{path}", user()?)),
        Scheme::Ssh => {
            let user = user().map(|user| format!("{user}@")).unwrap_or_default();
            Some(format!("ssh://{user}{host}{port}{path}"))
        }
        _ => None,
    }
}

/// Whether the text is not empty and consists of letters, digits and `others`.
fn is_plain_text(text: &str, others: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
}

#[cfg(test)]
mod tests;
