//! The command line of `longshore`: arguments as typed (`args.rs`) -> settings (`settings.rs`, `config.rs`) -> one file a
//! command -> an exit code. `error.rs` is what the user sees when something is wrong; `context.rs` finds repo and engine.
//!
//! Called by `main.rs`. Exit codes: 0 every story landed (or the command did what it was asked); 1 some story did not; 2
//! bad usage or bad input; 3 the machinery failed; 4 suspended; 130 interrupted. A reader of standard output that goes
//! away ends a command quietly.

pub mod admin;
pub mod amounts;
pub mod args;
pub mod completions;
pub mod config;
pub mod doctor;
pub mod error;
pub mod gc;
pub mod context;
pub mod images;
pub mod logs;
pub mod mailbox;
pub mod man;
pub mod mesh;
pub mod plan;
pub mod resume;
pub mod run;
pub mod salvage;
pub mod schema;
pub mod settings;
pub mod shim;
pub mod ssot;
pub mod status;
pub mod stop;
pub mod variable;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use args::{Cli, CliCommand};
use error::CommandError;

/// What a command gives: its exit code.
pub type CommandResult = Result<u8, CommandError>;

/// Parses the command line and carries it out.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to standard output and are no errors; a reader that left is none either.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    match run_command(cli) {
        Ok(code) => ExitCode::from(code),
        Err(shown) => {
            if !shown.is_output_closed() {
                let _ = std::io::stderr().write_all(shown.to_string().as_bytes());
            }
            ExitCode::from(shown.exit_code())
        }
    }
}

fn run_command(cli: Cli) -> CommandResult {
    let here = context::CommandContext::new(cli.repo);
    match cli.command {
        // The swarm has its own log; see `run/`.
        CliCommand::Run(args) => build_runtime(true)?.block_on(run::run(*args, &here)),
        CliCommand::Resume(args) => build_runtime(true)?.block_on(resume::resume(args, &here)),
        other => {
            init_stderr_logging();
            match other {
                CliCommand::Run(_) | CliCommand::Resume(_) => Ok(0),
                CliCommand::Plan(args) => build_runtime(false)?.block_on(plan::plan(&args.plan, &here)),
                CliCommand::Status(args) => build_runtime(false)?.block_on(status::status(&args, &here)),
                CliCommand::Logs(args) => build_runtime(false)?.block_on(logs::logs(&args, &here)),
                CliCommand::Stop(args) => build_runtime(false)?.block_on(stop::stop(&args, &here)),
                CliCommand::Salvage(args) => build_runtime(false)?.block_on(salvage::salvage(&args, &here)),
                CliCommand::Ssot(args) => build_runtime(false)?.block_on(ssot::ssot(&args, &here)),
                CliCommand::Mailbox(args) => build_runtime(false)?.block_on(mailbox::mailbox(&args, &here)),
                CliCommand::Mesh(args) => mesh::mesh(&args, &here),
                CliCommand::Admin(args) => build_runtime(false)?.block_on(admin::admin(&args, &here)),
                CliCommand::Gc(args) => build_runtime(false)?.block_on(gc::gc(&args, &here)),
                CliCommand::Doctor(args) => build_runtime(false)?.block_on(doctor::doctor(&args, &here)),
                CliCommand::Images { command } => build_runtime(false)?.block_on(images::images(&command, &here)),
                CliCommand::Schema(args) => schema::schema(args.what),
                CliCommand::Completions(args) => completions::completions(args.shell),
                CliCommand::Man(args) => man::man(&args),
            }
        }
    }
}

/// The async runtime. A run's loop blocks its thread for the journal's writes, so that it needs others beside it.
fn build_runtime(several_threads: bool) -> Result<tokio::runtime::Runtime, CommandError> {
    let mut builder = if several_threads {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    // Few threads: the work is waiting, and each costs memory.
    if several_threads {
        builder.worker_threads(std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 4));
    }
    builder
        .enable_all()
        .build()
        .map_err(|error| CommandError::machinery("cannot start the async runtime").with_cause(&error))
}

/// Diagnostics of the program itself, where `LONGSHORE_LOG` asks for them (`debug`, `longshore=trace`).
fn init_stderr_logging() {
    let Ok(filter) = EnvFilter::try_from_env("LONGSHORE_LOG") else { return };
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colour).with_writer(std::io::stderr).try_init();
}

/// Writes to standard output. A reader that is gone ends the command quietly.
pub(crate) fn print_stdout(text: &str) -> Result<(), CommandError> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Writes a remark to standard error. One that nobody reads is no trouble.
pub(crate) fn print_stderr(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// How many columns the terminal has: by `COLUMNS`, else 120 on a terminal, and no end where there is none.
pub(crate) fn terminal_columns(stream: &impl IsTerminal) -> usize {
    if !stream.is_terminal() {
        return usize::MAX;
    }
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).map(|size| usize::from(size.ws_col)).unwrap_or(0);
    let named = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    named.unwrap_or(if size > 20 { size } else { 120 })
}

#[cfg(test)]
mod tests;
