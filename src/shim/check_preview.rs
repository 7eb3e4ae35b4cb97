//! `acp-shim check`: runs the checks of the current story in the agent's clone as it is now.
//!
//! A preview: what it shows decides nothing. It runs in the agent's process, with the agent's environment; the shim only says which
//! checks there are. Exit codes: 0 every check passed, 1 one failed or the shim did not respond, 2 wrong usage or not inside a
//! sandbox. Called by [`main`](super::main).

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::agent_requests::{AgentRequest, AgentRequests};
use super::check_args;
use super::clock::SandboxClock;
use super::command::{CommandExit, CommandRunner, CommandSpec, OutputLog};
use super::memory_gauge::MemoryGauge;
use super::sandbox_context::shell_argv;
use super::socket_client;
use super::task_card::TaskCard;
use crate::handoff::layout;

/// Longer than any story.
const TIME_LIMIT: Duration = Duration::from_secs(30 * 24 * 3600);

pub struct CheckPreview {
    card: TaskCard,
    list_only: bool,
    repo: PathBuf,
    socket: Option<OsString>,
}

impl CheckPreview {
    /// Asks the shim for the story. An error has a message and the exit code.
    pub fn new(args: &[String], socket: Option<OsString>) -> Result<Self, (String, u8)> {
        let wrong_usage = || (format!("wrong arguments\n\nUsage: acp-shim {}", check_args::USAGE), 2);
        let list_only = check_args::parse(args).ok_or_else(wrong_usage)?;
        let card = socket_client::request_task(socket.as_deref(), &AgentRequest::Task)?;
        let card = card.ok_or_else(|| ("the shim sent no story".to_owned(), 1))?;
        // The clone is beside the socket's directory. The agent may be in any directory.
        let attempt = socket.as_deref().map(Path::new).and_then(Path::parent).and_then(Path::parent);
        let repo = attempt.unwrap_or(Path::new(".")).join(layout::REPO_DIR);
        Ok(Self { card, list_only, repo, socket })
    }

    /// Runs or lists the checks. Returns the exit code.
    pub async fn run(&self, out: &mut dyn Write) -> u8 {
        // Nobody may be reading. The exit code counts all the same.
        self.write_report(out).await.unwrap_or(1)
    }

    async fn write_report(&self, out: &mut dyn Write) -> io::Result<u8> {
        let checks = self.card.checks();
        if checks.is_empty() {
            writeln!(out, "The story has no checks.")?;
            return Ok(0);
        }
        let runner = CommandRunner {
            log: OutputLog::new(Box::new(io::sink())),
            memory: MemoryGauge::default(),
            stop: CancellationToken::new(),
            stop_grace: Duration::ZERO,
            agent_requests: AgentRequests::default(),
            secrets: Vec::new(),
        };
        let mut failed = 0;
        for (criterion, command) in &checks {
            let criterion = criterion.map(|id| format!("{id}: ")).unwrap_or_default();
            if self.list_only {
                writeln!(out, "{criterion}{command}")?;
                continue;
            }
            // The agent does nothing else meanwhile.
            socket_client::report_waiting(self.socket.as_deref());
            let started_at = Instant::now();
            let output = runner.run(self.command_spec(command), |_| {}).await;
            let seconds = started_at.elapsed().as_secs();
            let reason = match output.exit {
                CommandExit::Code(0) => {
                    writeln!(out, "passed: {criterion}{command} ({seconds} s)")?;
                    continue;
                }
                CommandExit::Code(code) => format!("exit code {code}"),
                CommandExit::Signal(signal) => format!("signal {signal}"),
                CommandExit::NotStarted(error) => error,
                CommandExit::TimedOut | CommandExit::Hung(_) | CommandExit::Stopped => "ended".to_owned(),
            };
            failed += 1;
            writeln!(out, "FAILED: {criterion}{command} ({reason}, {seconds} s)")?;
            for line in output.tail {
                writeln!(out, "    {line}")?;
            }
        }
        if !self.list_only {
            writeln!(out, "{} of {} checks passed", checks.len() - failed, checks.len())?;
        }
        out.flush()?;
        Ok(u8::from(failed > 0))
    }

    fn command_spec(&self, command: &str) -> CommandSpec {
        CommandSpec {
            argv: shell_argv(command),
            dir: self.repo.clone(),
            env: std::env::vars_os().collect(),
            stdin: None,
            deadline: SandboxClock::default().deadline_after(TIME_LIMIT),
            idle_timeout: Duration::ZERO,
            grace: Duration::ZERO,
        }
    }
}
