//! The repo's remote as ACP's `repoUrl` can say it.
//!
//! Called by `coordinator/` when it writes a task-request. The sandbox never connects to the URL: its git maps it to the
//! objects volume. So a credential in it would be a leak with no use, and is dropped.

use gix_url::Scheme;

/// The remote's URL without its credentials, if it is https, ssh or scp-like (`user@host:path`); else, or without a remote,
/// `https://longshore.invalid/<hash_repo>.git`, which is valid and goes nowhere. `hash_repo` is [`Repo::hash_repo`](super::Repo::hash_repo).
pub fn acp_repo_url(remote: Option<&str>, hash: &str) -> String {
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
    // As written: the decoded path may need escapes to be a URL.
    let path = std::str::from_utf8(url.original_path()).ok()?;
    if path.trim_start_matches('/').starts_with('-') || path.trim_matches('/').is_empty() {
        return None;
    }
    let user = || url.user_argument_safe().filter(|user| is_plain_text(user, ".-_"));
    match url.scheme {
        // A user name in an https URL is as often a token as a name, and so is a query.
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

/// Not empty, and nothing but letters, digits and `others`.
fn is_plain_text(text: &str, others: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_removed_from_urls() {
        for (remote, expected) in [
            ("https://github.com/org/repo.git", "https://github.com/org/repo.git"),
            ("https://user:secret@github.com/org/repo.git", "https://github.com/org/repo.git"),
            ("https://ghp_token@github.com/org/repo", "https://github.com/org/repo"),
            ("https://host.example/a.git?private_token=x#y", "https://host.example/a.git"),
            ("https://host.example:8443/a/b.git", "https://host.example:8443/a/b.git"),
            ("ssh://git@host.example:2222/a.git", "ssh://git@host.example:2222/a.git"),
            ("ssh://git:secret@host.example/a.git", "ssh://git@host.example/a.git"),
            ("git@github.com:org/repo.git", "git@github.com:org/repo.git"),
            ("https://host.example/a%20b/c.git", "https://host.example/a%20b/c.git"),
            ("git@host.example:~ann/a.git", "git@host.example:~ann/a.git"),
        ] {
            assert_eq!(acp_repo_url(Some(remote), "abc"), expected);
        }
    }

    #[test]
    fn unsupported_urls_become_the_placeholder() {
        for remote in [
            "/srv/git/a.git",
            "../a",
            "file:///srv/git/a.git",
            "git://host/a.git",
            "http://host/a.git",
            "host:a.git",
            "ext::sh -c x",
            "-oProxyCommand=x@host:a",
            "ssh://-oProxyCommand=x/a",
            "git@-host:a",
            "git@host:-a",
            "https:///a",
            "https://host/a b",
            "",
        ] {
            assert_eq!(acp_repo_url(Some(remote), "abc"), "https://longshore.invalid/abc.git", "{remote:?}");
        }
        assert_eq!(acp_repo_url(None, "abc"), "https://longshore.invalid/abc.git");
    }
}
