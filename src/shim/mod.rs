//! `acp-shim`: the program inside each sandbox, and in the depot.
//!
//! ```text
//! serve      task-request -> setup -> attempt -> story: merge, prompt, run, examine, check or salvage
//!                                         -> result and bundle -> completion
//!                                  | review: prompt, run, verdict, examine
//!                                  | check: the checks of a commit, without an agent
//! depot      frames -> objects | attempt_dirs (as root) | as_uid (as one of the sandbox's users: read-out, salvage, discard)
//! task, progress, fail, remember   request to the socket of a running `serve`
//! check      run the current story's checks as a preview
//! mail       the mailbox's directory, and the socket while it waits
//! ```
//! `bin/acp-shim.rs` calls [`main`]. Built static and small, with the feature `shim` only. Must not: use the engine, write anything
//! but ACP and the depot's frames to standard output, or trust a directory that an agent could write to.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::handoff::sandbox_users::SandboxUsers;

mod agent_requests;
mod attempt;
mod channel;
mod check;
mod check_args;
mod check_preview;
mod check_runner;
mod children;
mod clock;
mod clone_dir;
mod command;
mod command_failure;
mod commit_message;
mod conflict_markers;
mod depot;
mod descendants;
mod disk_space;
mod examination;
mod fatal_error;
mod git;
mod hang_snapshot;
mod layout;
mod mail;
mod memory_gauge;
mod merge_start;
mod process;
mod progress;
mod prompt;
mod received_dispatch;
mod remember_args;
mod result_files;
mod review;
mod safe_fs;
mod salvage;
mod sandbox_context;
mod serve;
mod setup;
mod sign_off;
mod socket_client;
mod special_files;
mod staging;
mod stop_budget;
mod story;
mod story_failure;
mod tail;
mod task_card;
mod users;
mod watchdog;

#[cfg(test)]
mod tests;

const USAGE: &str = "\
The program inside a longshore sandbox

Usage: acp-shim <COMMAND>

Commands for agents:
  task [--json]      Print the current story
  progress <TEXT>    Report progress
  fail <TEXT>        Give up the story, with the reason
  check [--list]     Run the checks of the story here, or list them
  remember <TEXT>    Keep a note for later stories
  mail <COMMAND>     Exchange messages with other agents (see `acp-shim mail --help`)

Commands for longshore:
  serve <DIR> <AGENT> <SHIM>
                     Run the attempt in this directory, with these user ids
  depot              Transfer files between the host and the volumes

Options:
  -h, --help         Print help
  -V, --version      Print version
";

/// Runs the program with its arguments. Exit codes: 0 success, 1 failure, 2 wrong usage or wrong place; `mail` also has 3 and 4.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let Some(args) = args_to_strings(args) else {
        return exit_with_message("invalid UTF-8 in the arguments", 2);
    };
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve", attempt_dir, agent, shim] => match (agent.parse(), shim.parse()) {
            (Ok(agent), Ok(shim)) => serve_sandbox(attempt_dir, SandboxUsers { agent, shim }),
            _ => exit_with_message("the users are not user ids", 2),
        },
        ["depot"] => serve_depot(),
        ["as", uid, rest @ ..] => ExitCode::from(depot::as_uid::main(uid, rest, &layout::Layout::default())),
        [command @ ("task" | "progress" | "fail" | "remember"), ..] => {
            let socket = std::env::var_os(socket_client::SOCKET_VARIABLE);
            match socket_client::run(command, &args[1..], socket.as_deref()) {
                Ok(text) => print(&text),
                Err((message, code)) => exit_with_message(&message, code),
            }
        }
        ["check", ..] => preview_checks(&args[1..]),
        ["mail", ..] => {
            let variable = |name: &str| std::env::var_os(name);
            let (mut input, mut out, mut err) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
            let environment = mail::MailEnvironment {
                mailbox: variable(mail::MAILBOX_VARIABLE).map(Into::into),
                agent: variable(mail::AGENT_VARIABLE),
                has_more_stories: variable(mail::MORE_STORIES_VARIABLE).is_some(),
                socket: variable(socket_client::SOCKET_VARIABLE),
                input: &mut input,
                out: &mut out,
                err: &mut err,
            };
            ExitCode::from(mail::run(&args[1..], environment))
        }
        ["--version" | "-V"] => print(&format!("acp-shim {}\n", env!("CARGO_PKG_VERSION"))),
        ["--help" | "-h"] => print(USAGE),
        [] => exit_with_message(&format!("no command\n\n{USAGE}"), 2),
        [command, ..] => exit_with_message(&format!("unrecognized command `{command}`\n\n{USAGE}"), 2),
    }
}

/// Converts the arguments to text. Only the free text of agents may be invalid UTF-8.
fn args_to_strings(args: Vec<OsString>) -> Option<Vec<String>> {
    let free =
        args.first().is_some_and(|first| ["progress", "fail", "remember", "mail"].iter().any(|free| first == free));
    let text = |arg: OsString| if free { Some(arg.to_string_lossy().into_owned()) } else { arg.into_string().ok() };
    args.into_iter().map(text).collect()
}

fn print(text: &str) -> ExitCode {
    // Ignore a reader that is gone.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn exit_with_message(message: &str, code: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "acp-shim: {}", message.trim_end());
    ExitCode::from(code)
}

fn build_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn serve_sandbox(attempt_dir: &str, users: SandboxUsers) -> ExitCode {
    if let Err(error) = users::drop_root(users) {
        return exit_with_message(&format!("cannot become the user {}: {error}", users.shim), 1);
    }
    let output = match channel::claim_stdout() {
        Ok(output) => output,
        Err(error) => return exit_with_message(&format!("cannot claim standard output: {error}"), 1),
    };
    let stop = CancellationToken::new();
    let environment = serve::ShimEnvironment {
        input: Box::new(std::io::stdin()),
        output: Box::new(output),
        log: Box::new(std::io::stderr()),
        hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        request_timeout: serve::REQUEST_TIMEOUT,
        sandbox: setup::SandboxEnvironment {
            layout: layout::Layout::default(),
            env: std::env::vars_os().collect(),
            memory: memory_gauge::MemoryGauge::default(),
            stop: stop.clone(),
            heartbeat_interval: progress::HEARTBEAT_INTERVAL,
        },
    };
    let runtime = match build_stoppable_runtime(stop) {
        Ok(runtime) => runtime,
        Err(error) => return exit_with_message(&format!("cannot start: {error}"), 1),
    };
    let code = runtime.block_on(async move {
        tokio::spawn(reap_children());
        serve::serve(environment, attempt_dir).await
    });
    // Do not wait for blocking work that a stop abandoned.
    runtime.shutdown_background();
    ExitCode::from(code)
}

/// Builds a runtime. SIGTERM and SIGINT cancel `stop`. They come from the engine: an agent's user cannot send any.
fn build_stoppable_runtime(stop: CancellationToken) -> std::io::Result<tokio::runtime::Runtime> {
    let runtime = build_runtime()?;
    let context = runtime.enter();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    drop(context);
    runtime.spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.cancel();
    });
    Ok(runtime)
}

/// Reaps orphans, which count against the limit of processes while they are zombies.
async fn reap_children() {
    let Ok(mut child_ended) = signal(SignalKind::child()) else { return };
    while child_ended.recv().await.is_some() {
        children::reap_orphans();
    }
}

fn preview_checks(args: &[String]) -> ExitCode {
    let socket = std::env::var_os(socket_client::SOCKET_VARIABLE);
    let preview = match check_preview::CheckPreview::new(args, socket) {
        Ok(preview) => preview,
        Err((message, code)) => return exit_with_message(&message, code),
    };
    match build_runtime() {
        Ok(runtime) => ExitCode::from(runtime.block_on(preview.run(&mut std::io::stdout()))),
        Err(error) => exit_with_message(&format!("cannot start: {error}"), 1),
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
        Err(error) => return exit_with_message(&format!("cannot find its own executable: {error}"), 1),
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
        Err(error) => exit_with_message(&format!("cannot read the requests: {error}"), 1),
    }
}
