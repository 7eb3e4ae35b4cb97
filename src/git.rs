//! What running git has in common on the host and in a sandbox: the settings and variables that keep a repository's config, hooks
//! and prompts from doing anything, and how git reports a full disk.
//!
//! Called by `delivery/git_runner.rs` (async, on the user's repository) and `shim/git.rs` (blocking, on a clone that an agent may
//! have changed). Each decides which inherited variables it keeps and which settings it adds. Must not: start a process.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::handoff::assignment::GitIdentity;

/// Settings of every command. `-c` wins over the user's and the repository's config.
const HARDENED_CONFIG: [&str; 5] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "protocol.ext.allow=never",
    "gc.auto=0",
    "maintenance.auto=false",
];

/// Applies the hardened environment and settings, then `config`. Call it before adding the subcommand, and after clearing or
/// removing inherited variables.
pub(crate) fn harden<'a>(command: &mut Command, config: impl IntoIterator<Item = &'a str>) {
    command
        .env("LC_ALL", "C")
        .env_remove("LANGUAGE")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_OPTIONAL_LOCKS", "0")
        // Replace refs stay local to a repository. Without them, host and sandbox see the same history.
        .env("GIT_NO_REPLACE_OBJECTS", "1")
        // Signals for the caller's process group, such as Ctrl-C at a terminal, do not reach git.
        .process_group(0);
    for setting in HARDENED_CONFIG.into_iter().chain(config) {
        command.args(["-c", setting]);
    }
}

/// The variables that make `identity` author and committer.
pub(crate) fn identity_env(identity: &GitIdentity) -> [(&'static str, &str); 4] {
    let GitIdentity { name, email } = identity;
    [
        ("GIT_AUTHOR_NAME", name),
        ("GIT_AUTHOR_EMAIL", email),
        ("GIT_COMMITTER_NAME", name),
        ("GIT_COMMITTER_EMAIL", email),
    ]
}

/// Whether a program's stderr says that the disk is full.
pub(crate) fn mentions_disk_full(stderr: &str) -> bool {
    stderr.contains("No space left on device") || stderr.contains("Disk quota exceeded")
}

/// Whether a program's stderr says that it got no memory.
pub(crate) fn mentions_out_of_memory(stderr: &str) -> bool {
    stderr.to_lowercase().contains("out of memory") || stderr.contains("Cannot allocate memory")
}
