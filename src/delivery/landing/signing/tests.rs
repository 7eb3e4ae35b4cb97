//! Which programs may sign.

use super::*;

fn overrides(settings: &[(&str, &str, &str)]) -> Vec<String> {
    let owned = |(scope, key, value): &(&str, &str, &str)| ((*scope).into(), (*key).into(), (*value).into());
    SigningConfig::from_settings(&settings.iter().map(owned).collect::<Vec<_>>()).overrides
}

#[test]
fn programs_of_the_repos_config_are_replaced_by_the_users() {
    assert_eq!(overrides(&[("global", "gpg.program", "mine"), ("local", "gpg.format", "ssh")]), [""; 0]);
    assert_eq!(overrides(&[("local", "gpg.openpgp.program", "theirs")]), ["gpg.program=gpg"]);
    assert_eq!(
        overrides(&[
            ("system", "gpg.openpgp.program", "old"),
            ("global", "gpg.program", "mine"),
            ("local", "gpg.program", "theirs")
        ]),
        ["gpg.program=mine"]
    );
    assert_eq!(
        overrides(&[("worktree", "gpg.ssh.program", "theirs"), ("local", "gpg.ssh.defaultkeycommand", "theirs")]),
        ["gpg.ssh.program=ssh-keygen", "gpg.ssh.defaultkeycommand="]
    );
}
