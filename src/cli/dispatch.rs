//! Parses the command line, runs the command and gives its exit code.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use super::args::{Cli, CliCommand};
use super::context::CommandContext;
use super::exit_status::ExitStatus;
use super::runtime::{build_runtime, init_stderr_logging};
use super::{
    CommandResult, admin, completions, doctor, gc, images, logs, mailbox, man, mesh, plan, resume, run, salvage,
    schema, ssot, status, stop,
};

/// Runs `longshore`.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to standard output and are no errors. A reader that is gone is no error either.
            let _ = error.print();
            return if error.use_stderr() { ExitStatus::InvalidInput } else { ExitStatus::Success }.into();
        }
    };
    let status = run_command(cli).unwrap_or_else(|error| {
        if !error.is_output_closed() {
            let _ = std::io::stderr().write_all(error.to_string().as_bytes());
        }
        error.exit_status()
    });
    status.into()
}

fn run_command(cli: Cli) -> CommandResult {
    let context = CommandContext::new(cli.repo);
    // `run` and `resume` log to a file of the swarm.
    if !matches!(cli.command, CliCommand::Run(_) | CliCommand::Resume(_)) {
        init_stderr_logging();
    }
    let runtime = || build_runtime(false);
    match cli.command {
        CliCommand::Run(args) => build_runtime(true)?.block_on(run::run(*args, &context)),
        CliCommand::Resume(args) => build_runtime(true)?.block_on(resume::resume(args, &context)),
        CliCommand::Plan(args) => runtime()?.block_on(plan::plan(&args, &context)),
        CliCommand::Status(args) => runtime()?.block_on(status::status(&args, &context)),
        CliCommand::Logs(args) => runtime()?.block_on(logs::logs(&args, &context)),
        CliCommand::Stop(args) => runtime()?.block_on(stop::stop(&args, &context)),
        CliCommand::Salvage(args) => runtime()?.block_on(salvage::salvage(&args, &context)),
        CliCommand::Ssot(args) => runtime()?.block_on(ssot::ssot(&args, &context)),
        CliCommand::Mailbox(args) => runtime()?.block_on(mailbox::mailbox(&args, &context)),
        CliCommand::Mesh(args) => mesh::mesh(&args, &context),
        CliCommand::Admin(args) => runtime()?.block_on(admin::admin(&args, &context)),
        CliCommand::Gc(args) => runtime()?.block_on(gc::gc(&args, &context)),
        CliCommand::Doctor(args) => runtime()?.block_on(doctor::doctor(&args, &context)),
        CliCommand::Images { command } => runtime()?.block_on(images::images(&command, &context)),
        CliCommand::Schema { what } => schema::schema(what),
        CliCommand::Completions { shell } => completions::completions(shell),
        CliCommand::Man { dir } => man::man(dir.as_deref()),
    }
}
