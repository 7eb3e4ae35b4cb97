//! What was done with each thing, in a line for people or as JSON, and the numbers at the end.

use serde::Serialize;

use super::judge::Verdict;
use crate::cli::args::GcArgs;
use crate::cli::error::{Kind, Shown};
use crate::cli::{Outcome, remark, say};
use crate::report::text::sanitize;

/// A line of `--json`.
#[derive(Serialize)]
struct Line<'a> {
    /// `container`, `volume`, `network`, `image`, `ref`; `attempt` and `swarm` for what was salvaged.
    thing: &'a str,
    name: &'a str,
    /// `removed`, `would_remove`, `kept`, `salvaged` or `failed`.
    verdict: String,
    reason: &'a str,
}

pub(super) struct Tally {
    dry_run: bool,
    json: bool,
    removed: usize,
    kept: usize,
    salvaged: usize,
    failed: usize,
}

impl Tally {
    pub(super) fn new(args: &GcArgs) -> Self {
        Self { dry_run: args.dry_run, json: args.json, removed: 0, kept: 0, salvaged: 0, failed: 0 }
    }

    /// What was judged, and how the removal went.
    pub(super) fn tell(
        &mut self,
        thing: &str,
        name: &str,
        verdict: &Verdict,
        done: Result<(), Shown>,
    ) -> Result<(), Shown> {
        let word = match (verdict.remove, &done) {
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
        self.line(word, thing, name, &verdict.reason)?;
        if let Err(error) = done {
            remark(error.to_string().trim_end());
        }
        Ok(())
    }

    /// Work that was brought to the host.
    pub(super) fn salvaged(&mut self, attempt: &str, reason: &str) -> Result<(), Shown> {
        self.salvaged += 1;
        self.line("salvaged", "attempt", attempt, reason)
    }

    fn line(&self, word: &str, thing: &str, name: &str, reason: &str) -> Result<(), Shown> {
        if !self.json {
            return say(&format!("{word:<12} {thing} {}: {}\n", sanitize(name), sanitize(reason)));
        }
        let verdict = word.to_lowercase().replace(' ', "_");
        let line = serde_json::to_string(&Line { thing, name, verdict, reason })
            .map_err(|error| Shown::of(Kind::Machinery, &error))?;
        say(&format!("{line}\n"))
    }

    pub(super) fn close(self) -> Outcome {
        let verb = if self.dry_run { "to remove" } else { "removed" };
        let salvaged = if self.salvaged > 0 { format!(", {} salvaged", self.salvaged) } else { String::new() };
        let failed = if self.failed > 0 { format!(", {} failed", self.failed) } else { String::new() };
        let numbers = format!("{} {verb}, {} kept{salvaged}{failed}", self.removed, self.kept);
        if self.json {
            remark(&numbers);
        } else {
            say(&format!("{numbers}\n"))?;
        }
        Ok(if self.failed > 0 { 3 } else { 0 })
    }
}
