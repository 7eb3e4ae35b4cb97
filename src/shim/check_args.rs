//! The arguments of `acp-shim check`.
//!
//! Read by `check_preview.rs`. Must not: send anything.

/// How `check` is called.
pub const USAGE: &str = "check [--list]";

/// Whether the checks are only to be listed. `None` if the arguments are wrong.
pub fn parse(args: &[String]) -> Option<bool> {
    match args {
        [] => Some(false),
        [flag] if flag == "--list" => Some(true),
        _ => None,
    }
}
