//! Reports each resource as a line of text or JSON, and the totals at the end.

use serde::Serialize;

use super::decision::GcDecision;
use crate::cli::args::GcArgs;
use crate::cli::error::CommandError;
use crate::cli::output::print_json_line;
use crate::cli::{CommandResult, ExitStatus, print_stderr, print_stdout};
use crate::report::text::sanitize;

/// A line of `--json`.
#[derive(Serialize)]
struct GcJsonLine<'a> {
    /// `container`, `volume`, `network`, `image`, `ref`; `attempt` and `swarm` for what was salvaged.
    #[serde(rename = "thing")]
    kind: &'a str,
    name: &'a str,
    /// `removed`, `would_remove`, `kept`, `salvaged` or `failed`.
    #[serde(rename = "verdict")]
    action: String,
    reason: &'a str,
}

pub(super) struct GcReport {
    dry_run: bool,
    json: bool,
    removed: usize,
    kept: usize,
    salvaged: usize,
    failed: usize,
}

impl GcReport {
    pub(super) fn new(args: &GcArgs) -> Self {
        Self { dry_run: args.dry_run, json: args.json, removed: 0, kept: 0, salvaged: 0, failed: 0 }
    }

    /// Prints and counts a decision and the result of the removal.
    pub(super) fn print_decision(
        &mut self,
        kind: &str,
        name: &str,
        decision: &GcDecision,
        result: Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        let word = match (decision.remove, &result) {
            (_, Err(_)) => {
                self.failed += 1;
                "FAILED"
            }
            (true, Ok(())) => {
                self.removed += 1;
                if self.dry_run { "would remove" } else { "removed" }
            }
            (false, Ok(())) => {
                self.kept += 1;
                "kept"
            }
        };
        self.print_line(word, kind, name, &decision.reason)?;
        if let Err(error) = result {
            print_stderr(error.to_string().trim_end());
        }
        Ok(())
    }

    /// Prints and counts an attempt whose work was salvaged.
    pub(super) fn print_salvaged(&mut self, attempt: &str, reason: &str) -> Result<(), CommandError> {
        self.salvaged += 1;
        self.print_line("salvaged", "attempt", attempt, reason)
    }

    fn print_line(&self, word: &str, kind: &str, name: &str, reason: &str) -> Result<(), CommandError> {
        if !self.json {
            return print_stdout(&format!("{word:<12} {kind} {}: {}\n", sanitize(name), sanitize(reason)));
        }
        let action = word.to_lowercase().replace(' ', "_");
        print_json_line(&GcJsonLine { kind, name, action, reason })
    }

    pub(super) fn finish(self) -> CommandResult {
        let verb = if self.dry_run { "to remove" } else { "removed" };
        let salvaged = if self.salvaged > 0 { format!(", {} salvaged", self.salvaged) } else { String::new() };
        let failed = if self.failed > 0 { format!(", {} failed", self.failed) } else { String::new() };
        let numbers = format!("{} {verb}, {} kept{salvaged}{failed}", self.removed, self.kept);
        if self.json {
            print_stderr(&numbers);
        } else {
            print_stdout(&format!("{numbers}\n"))?;
        }
        Ok(if self.failed > 0 { ExitStatus::Machinery } else { ExitStatus::Success })
    }
}
