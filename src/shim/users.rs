//! The two users of a sandbox: what PID 1 may do to others, what others may do to PID 1, and whose files it accesses.
//!
//! | | user | because |
//! |---|---|---|
//! | agents, checks, git | the agent's | git works on a clone that an agent prepared |
//! | PID 1 | the shim's | the agent's user can neither signal nor trace it, nor change its limits |
//! | file access of PID 1 | the agent's; the shim's within [`as_shim`] | a link that an agent left leads nowhere that the agent could not go |
//!
//! [`drop_root`] is called once, before there are other threads, which inherit its settings. Without it, in the depot and in tests,
//! nothing here has an effect. Must not: start threads or nest within [`as_shim`].

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::handoff::sandbox_users::SandboxUsers;

static USERS: OnceLock<SandboxUsers> = OnceLock::new();

/// What PID 1 keeps: the right to end agents, and to start them as another user.
const KEPT: [CapabilitySet; 3] = [CapabilitySet::KILL, CapabilitySet::SETGID, CapabilitySet::SETUID];

/// Turns a process of root, with the kept capabilities and `SETPCAP`, into one of the shim's user. Children have no capabilities, and
/// cannot get any.
pub fn drop_root(users: SandboxUsers) -> io::Result<()> {
    let (uid, gid) = (rustix::process::Uid::from_raw(users.shim), rustix::process::Gid::from_raw(users.shim));
    for capability in KEPT.into_iter().chain([CapabilitySet::SETPCAP]) {
        remove_capability_from_bounding_set(capability)?;
    }
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_keep_capabilities(true)?;
    set_thread_res_uid(uid, uid, uid)?;
    set_keep_capabilities(false)?;
    let kept = KEPT.into_iter().collect();
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() })?;
    // The protocol descriptor cannot be reached through `/proc/1/fd`, nor that of a child before it is the agent's.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    set_file_user(users.agent);
    let _ = USERS.set(users);
    Ok(())
}

/// Makes a command run as the agent's user.
pub fn run_as_agent(command: &mut Command) {
    if let Some(users) = USERS.get() {
        command.uid(users.agent).gid(users.agent);
    }
}

/// Accesses files as the shim's user: those in `out`. A process that is started meanwhile is the agent's all the same.
pub fn as_shim<T>(access: impl FnOnce() -> T) -> T {
    let Some(users) = USERS.get() else { return access() };
    set_file_user(users.shim);
    let done = access();
    set_file_user(users.agent);
    done
}

/// Sets the user that this thread, and those that it starts, access files as.
fn set_file_user(id: u32) {
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    setfsgid(gid);
    setfsuid(uid);
    // The calls report the previous user and no errors.
    assert!(setfsgid(gid) == gid && setfsuid(uid) == uid, "cannot access files as {id}");
}
