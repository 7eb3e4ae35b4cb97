//! Remote URLs as ACP receives them.

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
