//! `memory/<swarm>/<file>-<story>.json`: the MemoryGram of each landed story (Agentic Mesh Protocol).
//!
//! Written once. A gram contains its own hash, so `longshore ssot check` detects changes. Must not: create grams.

use std::path::PathBuf;

use serde_json::Value;

use super::error::{SsotError, SsotResult};
use super::files::{is_torn, to_json_bytes};
use super::ssot::{EnsureOutcome, MEMORY_DIR, Ssot};
use crate::ids::SwarmId;
use crate::protocol::mesh::gram::{GramError, GramLimits, MemoryGram};

/// A story's memory in earlier swarms.
#[derive(Debug, Default)]
pub struct NewestMemory {
    /// The newest readable one.
    pub gram: Option<MemoryGram>,
    /// Files that cannot be read, of any branch.
    pub damaged: Vec<SsotError>,
}

impl Ssot {
    /// A name is made of the tasks file's slug and the story's id.
    pub fn memory_path(&self, swarm: SwarmId, name: &str) -> PathBuf {
        self.files.path(format!("{MEMORY_DIR}/{swarm}/{name}.json"))
    }

    /// Writes a story's memory. An existing file stays, whatever its content: it was passed on to other stories.
    pub fn ensure_memory(&self, swarm: SwarmId, name: &str, gram: &MemoryGram) -> SsotResult<EnsureOutcome> {
        let path = self.memory_path(swarm, name);
        let there = self.files.read(&path)?;
        if there.as_ref().is_some_and(|there| !is_torn(there)) {
            return Ok(EnsureOutcome::AlreadyThere);
        }
        self.files.create_dir(&self.files.path(MEMORY_DIR))?;
        self.files.create_dir(&self.files.path(format!("{MEMORY_DIR}/{swarm}")))?;
        let bytes = to_json_bytes(&path, &gram.to_json())?;
        if there.is_some() {
            self.files.replace(&path, &bytes)?;
        } else if !self.files.create_new(&path, &bytes)? {
            return Ok(EnsureOutcome::AlreadyThere);
        }
        Ok(EnsureOutcome::Written)
    }

    /// A story's memory; `None` if it is absent or torn.
    ///
    /// # Errors
    /// Also if its hash does not match.
    pub fn memory(&self, swarm: SwarmId, name: &str) -> SsotResult<Option<MemoryGram>> {
        let path = self.memory_path(swarm, name);
        let Some(value) = self.files.read_json::<Value>(&path)? else { return Ok(None) };
        let gram = MemoryGram::from_json(&value, &GramLimits::default());
        gram.map(Some).map_err(|error: GramError| SsotError::damaged(&path, error))
    }

    /// The newest memory of this name on the branch, in any swarm but `but`.
    pub fn newest_memory(&self, name: &str, but: SwarmId, branch: &str) -> SsotResult<NewestMemory> {
        let mut newest = NewestMemory::default();
        let on_branch = |gram: &MemoryGram| {
            gram.metadata().and_then(|metadata| metadata.get("branch")).and_then(Value::as_str) == Some(branch)
        };
        let mut grams = Vec::new();
        for swarm in self.memory_swarms()?.into_iter().filter(|swarm| *swarm != but) {
            let path = self.memory_path(swarm, name);
            match self.memory(swarm, name) {
                Ok(Some(gram)) => grams.push(gram),
                Ok(None) if path.exists() => newest.damaged.push(SsotError::damaged(&path, "it is torn")),
                Ok(None) => {}
                Err(error) => newest.damaged.push(error),
            }
        }
        newest.gram = grams.into_iter().filter(on_branch).max_by_key(|gram| (gram.timestamp(), gram.id()));
        Ok(newest)
    }

    /// The swarms with memory, unordered.
    pub fn memory_swarms(&self) -> SsotResult<Vec<SwarmId>> {
        let names = self.files.file_names(&self.files.path(MEMORY_DIR))?;
        Ok(names.into_iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// The names of a swarm's memories, sorted.
    pub fn memory_names(&self, swarm: SwarmId) -> SsotResult<Vec<String>> {
        let names = self.files.file_names(&self.files.path(format!("{MEMORY_DIR}/{swarm}")))?;
        let mut names: Vec<String> =
            names.iter().filter_map(|name| name.strip_suffix(".json")).map(str::to_owned).collect();
        names.sort();
        Ok(names)
    }
}
