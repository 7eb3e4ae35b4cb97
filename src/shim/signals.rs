//! Stops the shim on SIGTERM and SIGINT from outside the sandbox, and ignores those of the sandbox's own processes.
//!
//! An agent runs as the shim's user and may signal it, but must not be able to fake a stop by the user. The kernel reports the sender
//! as a process id in the receiver's namespace: 0 if the sender is outside of it. Started by [`main`](super::main). Must not: end
//! anything itself.

use std::io;
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Origin;
use tokio_util::sync::CancellationToken;

use super::children;

/// Cancels `stop` at SIGTERM or SIGINT from outside. `log` gets a line about the first ignored signal only, because a program that
/// sends one sends many.
pub fn cancel_on_signal(stop: CancellationToken, log: impl Fn(&str) + Send + 'static) -> io::Result<()> {
    let mut signals = SignalsInfo::<WithOrigin>::new([SIGTERM, SIGINT])?;
    let init = children::is_init();
    thread::spawn(move || {
        let mut logged = false;
        for origin in &mut signals {
            match sender_pid(&origin).filter(|_| init) {
                None => stop.cancel(),
                Some(pid) if !logged => {
                    logged = true;
                    let signal = origin.signal;
                    log(&format!("ignored: process {pid} of the sandbox sent signal {signal}"));
                }
                Some(_) => {}
            }
        }
    });
    Ok(())
}

/// The sender's process id, if it is in this process's namespace.
fn sender_pid(origin: &Origin) -> Option<i32> {
    origin.process.as_ref().map(|process| process.pid).filter(|pid| *pid != 0)
}
