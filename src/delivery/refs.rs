//! The refs under which longshore keeps work: their names, listing and transactions.
//!
//! Called by `coordinator/` (names), `import.rs` (transactions) and `longshore gc` (list, delete). Must not: change a ref outside
//! `refs/longshore/`.

use super::error::DeliveryError;
use super::git_runner::unexpected_output;
use super::ref_files;
use super::repo::Repo;
use crate::ids::{CommitId, SwarmId};

/// Finished work: `<RESULT_REFS>/<swarm>/<story path>/<attempt>`.
pub(super) const RESULT_REFS: &str = "refs/longshore/results";
/// Unfinished work: `<SALVAGE_REFS>/<swarm>/<story path>/<attempt>`.
pub(super) const SALVAGE_REFS: &str = "refs/longshore/salvage";
/// What is prepared to land: `<LANDING_REFS>/<swarm>/<name>`. Holds the last preparation; all work in it is in a result too.
pub(super) const LANDING_REFS: &str = "refs/longshore/landing";
/// The prefix of every ref that longshore may change.
const LONGSHORE_REFS: &str = "refs/longshore/";

/// The ref of an attempt's finished work. `story_path` is `US-001`, or `<file slug>/US-001` in a swarm of several files.
pub(crate) fn result_ref(swarm: SwarmId, story_path: &str, attempt: u32) -> String {
    format!("{RESULT_REFS}/{swarm}/{story_path}/{attempt}")
}

/// The ref of an attempt's unfinished work.
pub(crate) fn salvage_ref(swarm: SwarmId, story_path: &str, attempt: u32) -> String {
    format!("{SALVAGE_REFS}/{swarm}/{story_path}/{attempt}")
}

/// The ref of what is prepared to land. `name` tells apart what is prepared at the same time.
pub(crate) fn landing_ref(swarm: SwarmId, name: &str) -> String {
    format!("{LANDING_REFS}/{swarm}/{name}")
}

/// Whether the ref holds what is prepared to land.
pub(crate) fn is_landing_ref(name: &str) -> bool {
    is_inside(name, LANDING_REFS)
}

impl Repo {
    /// The refs below `prefix` with their commits. `prefix` ends with `/` or is a whole name.
    pub(crate) async fn list_refs(&self, prefix: &str) -> Result<Vec<(String, CommitId)>, DeliveryError> {
        let operation = "list refs";
        let args = ["for-each-ref", "--format=%(objectname) %(refname)", "--", prefix];
        let output = self.git(operation, args).run().await?;
        let parse = |line: &str| {
            let (commit, name) = line.split_once(' ').unwrap_or((line, ""));
            let commit = commit.parse().map_err(|_| unexpected_output(operation, line))?;
            Ok((name.to_owned(), commit))
        };
        output.text().lines().map(parse).collect()
    }

    /// The commit of the ref with this whole name.
    pub(crate) async fn read_ref(&self, name: &str) -> Result<Option<CommitId>, DeliveryError> {
        if self.has_ref_files()
            && let Some(found) = ref_files::read_ref(self.common_dir(), name)
        {
            return Ok(found);
        }
        let refs = self.list_refs(name).await?;
        Ok(refs.into_iter().find(|(found, _)| found == name).map(|(_, commit)| commit))
    }

    /// The first of `name`, `name-2`, `name-3`, ... that is free or already holds `commit`. An attempt can be salvaged more than
    /// once, and kept work is never overwritten.
    pub(crate) async fn unused_ref_name(&self, name: &str, commit: &CommitId) -> Result<String, DeliveryError> {
        let mut candidate = name.to_owned();
        for number in 2_u32.. {
            if self.read_ref(&candidate).await?.is_none_or(|holds| holds == *commit) {
                break;
            }
            candidate = format!("{name}-{number}");
        }
        Ok(candidate)
    }

    /// Creates a ref below `refs/longshore/`. It never moves one: [`DeliveryError::RefExists`] if it holds another commit.
    pub(crate) async fn create_ref(&self, name: &str, commit: &CommitId) -> Result<(), DeliveryError> {
        self.create_refs(&[(name, commit)]).await
    }

    /// Deletes a ref below `refs/longshore/`. A missing ref is not an error.
    pub(crate) async fn delete_ref(&self, name: &str) -> Result<(), DeliveryError> {
        check_longshore_ref(name)?;
        self.update_refs("delete a ref", format!("delete {name}\n")).await
    }

    /// Creates all refs or none. An existing ref must hold the same commit: a repeated import succeeds, and no work is
    /// overwritten.
    pub(super) async fn create_refs(&self, refs: &[(&str, &CommitId)]) -> Result<(), DeliveryError> {
        let operation = "keep the result";
        let mut transaction = String::new();
        for (name, commit) in refs {
            check_longshore_ref(name)?;
            transaction.push_str(&format!("create {name} {commit}\n"));
        }
        let Err(error) = self.update_refs(operation, transaction).await else { return Ok(()) };
        let mut missing = Vec::new();
        for &(name, commit) in refs {
            match self.read_ref(name).await? {
                Some(holds) if holds != *commit => {
                    return Err(DeliveryError::RefExists { name: name.to_owned(), holds });
                }
                Some(_) => {}
                None => missing.push(format!("create {name} {commit}\n")),
            }
        }
        if missing.len() == refs.len() {
            return Err(error);
        }
        self.update_refs(operation, missing.concat()).await
    }

    /// Deletes the refs of what a swarm prepared to land.
    pub(crate) async fn delete_landing_refs(&self, swarm: SwarmId) -> Result<(), DeliveryError> {
        let refs = self.list_refs(&format!("{LANDING_REFS}/{swarm}/")).await?;
        let transaction: String = refs.iter().map(|(name, commit)| format!("delete {name} {commit}\n")).collect();
        match refs.is_empty() {
            true => Ok(()),
            false => self.update_refs("delete the refs of landings", transaction).await,
        }
    }

    /// Points a ref below `refs/longshore/` at the commit, whatever it held.
    pub(super) async fn overwrite_ref(&self, name: &str, commit: &CommitId) -> Result<(), DeliveryError> {
        check_longshore_ref(name)?;
        self.update_refs("keep what is prepared", format!("update {name} {commit}\n")).await
    }

    async fn update_refs(&self, operation: &'static str, transaction: String) -> Result<(), DeliveryError> {
        self.git(operation, ["update-ref", "--no-deref", "--stdin"]).input(transaction).run().await.map(drop)
    }
}

/// Refuses a name that is not below `refs/longshore/`, or that a transaction could read as more than a name.
pub(super) fn check_longshore_ref(name: &str) -> Result<(), DeliveryError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'-' | b'_' | b'.');
    let valid = name.starts_with(LONGSHORE_REFS)
        && name.bytes().all(plain)
        && name.split('/').all(|part| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock"))
        && !name.contains("..")
        && !name.ends_with('.');
    if valid { Ok(()) } else { Err(DeliveryError::ForbiddenRef { name: name.chars().take(200).collect() }) }
}

/// Whether the slash-separated path `inner` is below `outer`.
pub(super) fn is_inside(inner: &str, outer: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests;
