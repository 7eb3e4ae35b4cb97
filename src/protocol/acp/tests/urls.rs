//! The URL parser beside gix-url.

use crate::protocol::acp::rules;
use crate::protocol::acp::urls::{RepoUrl, check_url};

fn broken_rule(text: &str) -> Option<&'static str> {
    text.parse::<RepoUrl>().err().map(|error| error.rule)
}

const VALID_REPO_URLS: &[&str] = &[
    "https://github.com/org/repo.git",
    "https://localhost:8443/a/b",
    "https://[2001:db8::1]:8443/a",
    "https://host",
    "https://longshore.invalid/0123456789ab.git",
    "https://host/caf%C3%A9",
    "https://host/-/x",
    "ssh://git@github.com/org/repo.git",
    "ssh://git@host:2222/~user/repo",
    "ssh://host/repo",
    "ssh://git@[::1]:22/repo",
    "git@github.com:org/repo.git",
    "org@vs-ssh.visualstudio.com:v3/org/project/repo",
    "git@host:~/repo",
];

#[test]
fn valid_repo_urls_parse_and_invalid_ones_are_rejected() {
    for text in VALID_REPO_URLS {
        assert_eq!(broken_rule(text), None, "{text}");
    }
    for text in [
        "",
        "repo",
        "/srv/repo",
        "./repo",
        "../a:b",
        "C:/repo",
        "host:path",
        "http://host/a",
        "git://host/a",
        "file:///a",
        "ext::sh -c id",
        "HTTPS://host/a",
        "https://",
        "https:///a",
        "https://-host/a",
        "https://a..b/",
        "https://h\u{f6}st/a",
        "https://host:0/a",
        "https://host:65536/a",
        "https://host:/a",
        "https://host:+1/a",
        "https://host/a b",
        "https://host/a\n",
        "https://host/a\\b",
        "https://host/a?b",
        "https://host/a#b",
        "https://host?token=x",
        "https://host/%0a",
        "https://host/%00",
        "https://host/%2",
        "https://host/%zz",
        "https://host/%ff",
        "https://[::1/a",
        "https://[x]/a",
        "ssh://host",
        "ssh://host/",
        "ssh://@host/a",
        "ssh://-oProxyCommand=id/a",
        "ssh://-x@host/a",
        "ssh://a%3Ab@host/a",
        "git@-host:a",
        "-x@host:a",
        "git@host:-a",
        "git@host:",
        "git@host",
        "git@host::a",
        "git@host:a\0",
        "a/b@host:c",
        "git@ho/st:a",
        "git@[::1]:a",
    ] {
        assert_eq!(broken_rule(text), Some(rules::REPO_URL), "{text:?}");
    }
}

#[test]
fn credentials_are_rejected_and_not_shown() {
    for text in [
        "https://hunter2@host/a",
        "https://user:hunter2@host/a",
        "https://:hunter2@host/a",
        "https://@host/a",
        "ssh://user:hunter2@host/a",
        "ssh://user@hunter2@host/a",
        "user:hunter2@host:a",
        "user@hunter2@host:a",
    ] {
        let error = text.parse::<RepoUrl>().expect_err(text);
        assert_eq!(error.rule, rules::REPO_URL_CREDENTIALS, "{text}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    }
}

#[test]
fn pull_request_urls_are_checked() {
    for text in [
        "https://github.com/org/repo/pull/42",
        "http://localhost:3000/org/repo/pulls/1?a=b#c",
        "https://[::1]/x",
        "ssh://user@host/x",
    ] {
        assert_eq!(check_url(text), Ok(()), "{text}");
    }
    for text in [
        "",
        "pull/42",
        "github.com/org/repo",
        "https:/x",
        "https://",
        "https:///x",
        "://host",
        "1x://host",
        "javascript:alert(1)",
        "https://ho st/",
        "https://host/\u{1b}[31m",
        "https://host/a b",
        "https://host/%",
        "https://host/\u{e4}",
        "https://-x/",
        "https://host:99999/",
        "https://host/\"",
    ] {
        assert!(check_url(text).is_err(), "{text:?}");
    }
}

#[cfg(feature = "orchestrator")]
mod against_gix {
    use proptest::prelude::*;

    use super::*;

    /// What gix-url sees in a URL that we accept.
    fn assert_gix_agrees(text: &str) {
        let theirs = gix_url::parse(text).unwrap_or_else(|error| panic!("gix refuses {text:?}: {error}"));
        let scheme = if text.starts_with("https://") { gix_url::Scheme::Https } else { gix_url::Scheme::Ssh };
        assert_eq!(theirs.scheme, scheme, "{text:?}");
        assert_eq!(theirs.password(), None, "{text:?}");
        assert!(scheme == gix_url::Scheme::Ssh || theirs.user().is_none(), "{text:?}");
        assert!(theirs.host().is_some_and(|host| !host.is_empty() && !host.starts_with('-')), "{text:?}");
        assert!(!theirs.path.starts_with(b"-"), "{text:?}");
    }

    #[test]
    fn gix_accepts_the_examples() {
        VALID_REPO_URLS.iter().for_each(|text| assert_gix_agrees(text));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        /// Texts that are nearly URLs: whatever we accept, gix accepts, and finds no credentials in it.
        #[test]
        fn gix_accepts_every_accepted_url(
            scheme in prop::sample::select(vec!["https://", "ssh://", "", "", "http://", "ext::"]),
            login in prop::sample::select(vec!["", "", "git@", "a:b@", "-x@", "@", "a@b@", "%3A@"]),
            host in "(host|\\[::1\\]|[a-z0-9.:%\\[\\]-]{0,6})",
            port in prop::sample::select(vec!["", "", ":22", ":", ":0", ":x", ":70000"]),
            path in "[/:~-]?(repo|[a-z/%~:@?# \\\\.-]{0,6})",
        ) {
            let text = format!("{scheme}{login}{host}{port}{path}");
            if text.parse::<RepoUrl>().is_ok() {
                assert_gix_agrees(&text);
            }
        }
    }
}
