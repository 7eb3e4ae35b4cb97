//! `acp-shim`: the program inside each sandbox, and in the depot.
//!
//! ```text
//! serve      channel (ACP) -> clone -> attempt -> story: prompt, run, examine, checks, salvage -> result and bundle -> completion
//!                                  | review: brief, run, verdict, examine
//! depot      frames -> objects | folders (as root) | as_uid (as the sandbox's user: read-out, salvage, discard)
//! task, progress, fail, remember   ask -> socket of a running `serve`
//! mail                      the mailbox's folder, and the socket while it waits
//! ```
//! `bin/acp-shim.rs` calls [`main`]. Built static and small, with the feature `shim` alone. Must not: use the engine, speak on
//! standard output beside ACP and the depot's frames, or believe what is in a folder that an agent could write.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

pub mod socket_client;
pub mod attempt;
pub mod channel;
pub mod children;
pub mod clock;
pub mod clone_dir;
pub mod commit_message;
pub mod depot;
pub mod examination;
mod git;
pub mod stop_budget;
pub mod received_dispatch;
pub mod layout;
pub mod mail;
pub mod conflict_markers;
pub mod memory_gauge;
pub mod processes;
pub mod progress;
pub mod prompt;
mod remember_args;
pub mod review;
pub mod command;
pub mod salvage;
pub mod hang_snapshot;
pub mod serve;
pub mod sign_off;
pub mod signals;
pub mod agent_requests;
pub mod disk_space;
pub mod safe_fs;
pub mod staging;
pub mod story;
pub mod tail;
pub mod watchdog;

#[cfg(test)]
mod tests;

const USAGE: &str = "usage: acp-shim serve FOLDER | depot | task [--json] | progress TEXT | fail TEXT | remember TEXT ... | mail COMMAND | --version";

/// Runs the program with the arguments behind its name. Exit codes: 0 done; 1 it failed; 2 wrong usage, or not where it can
/// run; of `mail` also 3 and 4.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let Some(args) = args_to_strings(args) else {
        return exit_with_message("the arguments are not UTF-8", 2);
    };
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve", folder] => serve_sandbox(folder),
        ["depot"] => serve_depot(),
        ["as", uid, rest @ ..] => ExitCode::from(depot::as_uid::main(uid, rest, &layout::Layout::default())),
        [command @ ("task" | "progress" | "fail" | "remember"), ..] => {
            let socket = std::env::var_os(socket_client::SOCKET_VARIABLE);
            match socket_client::run(command, &args[1..], socket.as_deref()) {
                Ok(text) => print(&text),
                Err((message, code)) => exit_with_message(&message, code),
            }
        }
        ["mail", ..] => {
            let variable = |name: &str| std::env::var_os(name);
            let (mut input, mut out, mut err) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
            let around = mail::MailEnvironment {
                mailbox: variable(mail::MAILBOX_VARIABLE).map(Into::into),
                agent: variable(mail::AGENT_VARIABLE),
                has_more_stories: variable(mail::MORE_STORIES_VARIABLE).is_some(),
                socket: variable(socket_client::SOCKET_VARIABLE),
                input: &mut input,
                out: &mut out,
                err: &mut err,
            };
            ExitCode::from(mail::run(&args[1..], around))
        }
        ["--version" | "-V"] => print(&format!("acp-shim {}\n", env!("CARGO_PKG_VERSION"))),
        ["--help" | "-h"] => print(&format!("{USAGE}\n")),
        _ => exit_with_message(USAGE, 2),
    }
}

/// The arguments as text. What an agent has to say is taken as it is; names and numbers have to be what they are.
fn args_to_strings(args: Vec<OsString>) -> Option<Vec<String>> {
    let free =
        args.first().is_some_and(|first| ["progress", "fail", "remember", "mail"].iter().any(|free| first == free));
    let text = |arg: OsString| if free { Some(arg.to_string_lossy().into_owned()) } else { arg.into_string().ok() };
    args.into_iter().map(text).collect()
}

fn print(text: &str) -> ExitCode {
    // A reader that went away is none of our business.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn exit_with_message(message: &str, code: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "acp-shim: {message}");
    ExitCode::from(code)
}

fn build_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn serve_sandbox(folder: &str) -> ExitCode {
    let output = match channel::claim_stdout() {
        Ok(output) => output,
        Err(error) => return exit_with_message(&format!("cannot take standard output: {error}"), 1),
    };
    // An agent has the same user: it must not get at the protocol descriptor through `/proc/1/fd`.
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    let layout = layout::Layout::default();
    let stop = CancellationToken::new();
    let outside = serve::ShimEnvironment {
        input: Box::new(std::io::stdin()),
        output: Box::new(output),
        log: Box::new(std::io::stderr()),
        hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        env: std::env::vars_os().collect(),
        memory: memory_gauge::MemoryGauge::default(),
        stop: stop.clone(),
        request_timeout: serve::REQUEST_TIMEOUT,
        heartbeat_interval: progress::HEARTBEAT_INTERVAL,
        layout,
    };
    let runtime = match build_stoppable_runtime(stop) {
        Ok(runtime) => runtime,
        Err(error) => return exit_with_message(&format!("cannot start: {error}"), 1),
    };
    let code = runtime.block_on(async move {
        tokio::spawn(reap_children());
        serve::serve(outside, folder).await
    });
    // Blocking work that a stop left behind is not waited for.
    runtime.shutdown_background();
    ExitCode::from(code)
}

/// A runtime, with `stop` cancelled when somebody outside asks for an end.
fn build_stoppable_runtime(stop: CancellationToken) -> std::io::Result<tokio::runtime::Runtime> {
    signals::cancel_on_signal(stop, |note| {
        let _ = writeln!(std::io::stderr(), "acp-shim: {note}");
    })?;
    build_runtime()
}

/// PID 1 has to reap what its children leave behind: zombies count against the limit of processes.
async fn reap_children() {
    let Ok(mut ended) = signal(SignalKind::child()) else { return };
    while ended.recv().await.is_some() {
        children::reap_orphans();
    }
}

fn serve_depot() -> ExitCode {
    let stop = CancellationToken::new();
    let runtime = match build_stoppable_runtime(stop.clone()) {
        Ok(runtime) => runtime,
        Err(error) => return exit_with_message(&format!("cannot start: {error}"), 1),
    };
    let exe = match std::env::current_exe() {
        Ok(exe) => exe,
        Err(error) => return exit_with_message(&format!("cannot find the program itself: {error}"), 1),
    };
    let depot = depot::DepotServer::new(layout::Layout::default(), depot::SandboxUserHelper::Program(exe));
    let served = runtime.block_on(async move {
        let (done, served) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || done.send(depot.serve(std::io::stdin(), Box::new(std::io::stdout()))));
        tokio::select! {
            served = served => served.unwrap_or(Ok(())),
            () = stop.cancelled() => Ok(()),
        }
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit_with_message(&format!("the stream of frames broke: {error}"), 1),
    }
}
