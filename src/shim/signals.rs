//! Who asks the shim to stop: SIGTERM and SIGINT from outside of the sandbox do, those of its own processes do not.
//!
//! An agent has the shim's user and may signal it. What it ends that way is its own story, and not for a person to wonder who
//! stopped the sandbox. The kernel says the sender's process in the receiver's numbers: 0 where it has none, because it is
//! outside of the sandbox's processes. Started by [`main`](super::main). Must not: end anything itself.

use std::io;
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Origin;
use tokio_util::sync::CancellationToken;

use super::children;

/// Cancels at the first SIGTERM or SIGINT from outside. Those after it change nothing. `note` is told of the first from
/// inside: a program that sends one sends many.
pub fn cancel_on_signal(stop: CancellationToken, note: impl Fn(&str) + Send + 'static) -> io::Result<()> {
    let mut signals = SignalsInfo::<WithOrigin>::new([SIGTERM, SIGINT])?;
    let init = children::is_init();
    thread::spawn(move || {
        let mut noted = false;
        for origin in &mut signals {
            match sender_pid(&origin).filter(|_| init) {
                None => stop.cancel(),
                Some(pid) if !noted => {
                    noted = true;
                    let signal = origin.signal;
                    note(&format!("process {pid} of the sandbox sent signal {signal} to the shim: ignored"));
                }
                Some(_) => {}
            }
        }
    });
    Ok(())
}

/// The sender's process id, where it is one that this process could see.
fn sender_pid(origin: &Origin) -> Option<i32> {
    origin.process.as_ref().map(|process| process.pid).filter(|pid| *pid != 0)
}
