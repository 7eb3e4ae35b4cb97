//! The names of the refs that longshore keeps work under, and changes to refs.
//!
//! Used by `coordinator/` (names), by `import.rs` (transactions) and by `longshore gc` (list, delete). Must not: change a ref
//! outside `refs/longshore/`, except to make the integration branch where it is missing (`merge.rs` moves it).

use super::error::DeliveryError;
use super::repo::Repo;
use crate::ids::{BranchName, CommitId, SwarmId};

/// Where finished work is kept: `<RESULT_REFS>/<swarm>/<story path>/<attempt>`.
pub const RESULT_REFS: &str = "refs/longshore/results";
/// Where unfinished work is kept: `<SALVAGE_REFS>/<swarm>/<story path>/<attempt>`.
pub const SALVAGE_REFS: &str = "refs/longshore/salvage";
/// Everything that is ours.
const LONGSHORE_REFS: &str = "refs/longshore/";

/// The ref of what an attempt finished. `story_path` is `US-001`, or `<file slug>/US-001` in a swarm of several files.
pub fn result_ref(swarm: SwarmId, story_path: &str, attempt: u32) -> String {
    format!("{RESULT_REFS}/{swarm}/{story_path}/{attempt}")
}

/// The ref of what an attempt left unfinished.
pub fn salvage_ref(swarm: SwarmId, story_path: &str, attempt: u32) -> String {
    format!("{SALVAGE_REFS}/{swarm}/{story_path}/{attempt}")
}

impl Repo {
    /// The refs below `prefix`, which ends at a `/` or at a whole name, with their commits.
    pub async fn list_refs(&self, prefix: &str) -> Result<Vec<(String, CommitId)>, DeliveryError> {
        let operation = "list refs";
        let output = self
            .git()
            .new_command(operation, ["for-each-ref", "--format=%(objectname) %(refname)", "--"])
            .arg(prefix)
            .run()
            .await?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines()
            .map(|line| {
                let (commit, name) = line.split_once(' ').unwrap_or((line, ""));
                let commit = commit.parse().map_err(|_| super::git::unexpected_output(operation, line))?;
                Ok((name.to_owned(), commit))
            })
            .collect()
    }

    /// The name under which a commit can be kept: `name`, or with `-2`, `-3` and so on behind it where that is taken by
    /// another commit. An attempt may be salvaged more than once, and nothing that is kept is overwritten.
    pub async fn unused_ref_name(&self, name: &str, commit: &CommitId) -> Result<String, DeliveryError> {
        let mut candidate = name.to_owned();
        for number in 2_u32.. {
            let holds = self.list_refs(&candidate).await?.into_iter().find(|(found, _)| *found == candidate);
            if holds.is_none_or(|(_, holds)| holds == *commit) {
                break;
            }
            candidate = format!("{name}-{number}");
        }
        Ok(candidate)
    }

    /// Makes or moves a ref below `refs/longshore/`.
    pub async fn update_ref(&self, name: &str, commit: &CommitId) -> Result<(), DeliveryError> {
        check_longshore_ref(name)?;
        let transaction = format!("update {name} {commit}\n");
        self.git().new_command("write a ref", ["update-ref", "--no-deref", "--stdin"]).input(transaction).run().await?;
        Ok(())
    }

    /// Makes a ref below `refs/longshore/`, and never moves one: [`DeliveryError::RefExists`] where it holds another commit.
    pub async fn create_ref(&self, name: &str, commit: &CommitId) -> Result<(), DeliveryError> {
        self.create_refs(&[(name, commit)]).await
    }

    /// Deletes a ref below `refs/longshore/`. One that is not there is no error.
    pub async fn delete_ref(&self, name: &str) -> Result<(), DeliveryError> {
        self.delete_refs(&[name.to_owned()]).await
    }

    /// Deletes refs below `refs/longshore/`: all or none. Those that are not there are no error.
    pub async fn delete_refs(&self, names: &[String]) -> Result<(), DeliveryError> {
        let mut transaction = String::new();
        for name in names {
            check_longshore_ref(name)?;
            transaction.push_str(&format!("delete {name}\n"));
        }
        self.git().new_command("delete refs", ["update-ref", "--no-deref", "--stdin"]).input(transaction).run().await?;
        Ok(())
    }

    /// Makes the refs, all or none. A ref that is there already must hold the same commit: a repeated import is no error,
    /// and no work is overwritten.
    pub(super) async fn create_refs(&self, refs: &[(&str, &CommitId)]) -> Result<(), DeliveryError> {
        let mut transaction = String::new();
        for (name, commit) in refs {
            check_longshore_ref(name)?;
            transaction.push_str(&format!("create {name} {commit}\n"));
        }
        let call = self.git().new_command("keep the result", ["update-ref", "--no-deref", "--stdin"]);
        let Err(error) = call.input(transaction).run().await else { return Ok(()) };
        let mut missing = Vec::new();
        for &(name, commit) in refs {
            match self.list_refs(name).await?.into_iter().find(|(found, _)| found == name) {
                Some((_, holds)) if holds != *commit => {
                    return Err(DeliveryError::RefExists { name: name.to_owned(), holds });
                }
                Some(_) => {}
                None => missing.push(format!("create {name} {commit}\n")),
            }
        }
        if missing.len() == refs.len() {
            return Err(error);
        }
        let call = self.git().new_command("keep the result", ["update-ref", "--no-deref", "--stdin"]);
        call.input(missing.concat()).run().await.map(drop)
    }

    /// Makes the integration branch at `at`. One that is there already must be at the same commit.
    pub async fn create_integration_branch(&self, branch: &BranchName, at: &CommitId) -> Result<(), DeliveryError> {
        if let Some(with) = self.conflicting_branch(branch.as_str()).await? {
            return Err(DeliveryError::BranchNameConflict { branch: branch.to_string(), with });
        }
        let name = format!("refs/heads/{branch}");
        let nothing = "0".repeat(at.as_str().len());
        let made = self
            .git()
            .new_command("make the integration branch", ["update-ref", "-m", "longshore: created", "--no-deref", "--"])
            .args([name.as_str(), at.as_str(), nothing.as_str()])
            .run()
            .await;
        let Err(error) = made else { return Ok(()) };
        match self.branch_head(branch.as_str()).await? {
            Some(holds) if holds == *at => Ok(()),
            Some(holds) => Err(DeliveryError::RefExists { name, holds }),
            None => Err(error),
        }
    }

    /// A branch whose name excludes `branch` (`a` excludes `a/b`, and the other way round), if there is one. On a file system
    /// that ignores case, a branch whose name differs only in case counts too.
    pub async fn conflicting_branch(&self, branch: &str) -> Result<Option<String>, DeliveryError> {
        let fold = |name: &str| if self.ignores_case() { name.to_lowercase() } else { name.to_owned() };
        let wanted = fold(branch);
        let clashes = |other: &str| {
            let folded = fold(other);
            let inside = |outer: &str, inner: &str| inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'));
            inside(&folded, &wanted) || inside(&wanted, &folded) || (folded == wanted && other != branch)
        };
        let heads = self.list_refs("refs/heads/").await?;
        Ok(heads
            .into_iter()
            .filter_map(|(name, _)| name.strip_prefix("refs/heads/").map(str::to_owned))
            .find(|b| clashes(b)))
    }
}

/// Refuses a name that is not below `refs/longshore/`, or that could be read as more than a name.
pub(super) fn check_longshore_ref(name: &str) -> Result<(), DeliveryError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'-' | b'_' | b'.');
    let valid = name.starts_with(LONGSHORE_REFS)
        && name.bytes().all(plain)
        && name.split('/').all(|part| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock"))
        && !name.contains("..")
        && !name.ends_with('.');
    if valid { Ok(()) } else { Err(DeliveryError::ForbiddenRef { name: name.chars().take(200).collect() }) }
}

#[cfg(test)]
mod tests {
    use super::super::scratch_repo::ScratchRepo;
    use super::*;

    #[test]
    fn only_plain_longshore_refs_are_accepted() {
        for right in ["refs/longshore/results/a/US-001/1", "refs/longshore/salvage/a/my-file_2/US-001/1"] {
            assert!(check_longshore_ref(right).is_ok(), "{right}");
        }
        for wrong in [
            "refs/heads/x",
            "refs/longshore/",
            "refs/longshore/a b",
            "refs/longshore/a\ndelete refs/heads/main",
            "refs/longshore/../heads/main",
            "refs/longshore/a..b",
            "refs/longshore//a",
            "refs/longshore/a.lock",
            "refs/longshore/a.",
        ] {
            assert!(matches!(check_longshore_ref(wrong), Err(DeliveryError::ForbiddenRef { .. })), "{wrong}");
        }
    }

    #[tokio::test]
    async fn refs_are_listed_and_deleted_by_prefix() {
        let scratch = ScratchRepo::new();
        let base = scratch.commit("a", "1");
        let repo = scratch.repo().await;
        let swarm = SwarmId::random();
        let (one, two) = (result_ref(swarm, "US-001", 1), salvage_ref(swarm, "slug/US-001", 2));
        repo.create_refs(&[(&one, &base), (&two, &base)]).await.expect("made");
        assert_eq!(
            repo.list_refs(&format!("{RESULT_REFS}/{swarm}")).await.expect("listed"),
            [(one.clone(), base.clone())]
        );
        assert_eq!(repo.list_refs("refs/longshore/").await.expect("listed").len(), 2);
        repo.delete_refs(&[one, two, "refs/longshore/never".into()]).await.expect("deleted");
        assert!(repo.list_refs("refs/longshore/").await.expect("listed").is_empty());
        assert!(matches!(repo.delete_ref("refs/heads/main").await, Err(DeliveryError::ForbiddenRef { .. })));
        assert_eq!(repo.branch_head("main").await.expect("read"), Some(base));
    }

    #[tokio::test]
    async fn a_kept_ref_is_never_overwritten() {
        let scratch = ScratchRepo::new();
        let (first, second) = (scratch.commit("a", "1"), scratch.commit("a", "2"));
        let repo = scratch.repo().await;
        repo.create_refs(&[("refs/longshore/x", &first)]).await.expect("made");
        repo.create_refs(&[("refs/longshore/x", &first), ("refs/longshore/y", &second)]).await.expect("the same again");
        let taken = repo.create_refs(&[("refs/longshore/x", &second), ("refs/longshore/z", &second)]).await;
        assert!(matches!(taken, Err(DeliveryError::RefExists { holds, .. }) if holds == first));
        let names: Vec<_> =
            repo.list_refs("refs/longshore/").await.expect("listed").into_iter().map(|(n, _)| n).collect();
        assert_eq!(names, ["refs/longshore/x", "refs/longshore/y"]);
    }

    #[tokio::test]
    async fn a_second_salvage_gets_an_unused_name() {
        let scratch = ScratchRepo::new();
        let (first, second) = (scratch.commit("a", "1"), scratch.commit("a", "2"));
        let third = scratch.commit("a", "3");
        let repo = scratch.repo().await;
        let name = salvage_ref(SwarmId::random(), "US-001", 1);
        let mut names = Vec::new();
        for commit in [&first, &second, &third, &second, &first] {
            let free = repo.unused_ref_name(&name, commit).await.expect("listed");
            repo.create_refs(&[(&free, commit)]).await.expect("made");
            names.push(free.strip_prefix(&name).expect("the same and more").to_owned());
        }
        assert_eq!(names, ["", "-2", "-3", "-2", ""]);
    }

    #[tokio::test]
    async fn the_integration_branch_is_created_once() {
        let scratch = ScratchRepo::new();
        let (first, second) = (scratch.commit("a", "1"), scratch.commit("a", "2"));
        let repo = scratch.repo().await;
        let branch: BranchName = "feat/x".parse().expect("valid");
        repo.create_integration_branch(&branch, &first).await.expect("made");
        repo.create_integration_branch(&branch, &first).await.expect("the same again");
        let taken = repo.create_integration_branch(&branch, &second).await;
        assert!(matches!(taken, Err(DeliveryError::RefExists { holds, .. }) if holds == first));
    }

    #[tokio::test]
    async fn conflicting_branch_names_are_found() {
        let scratch = ScratchRepo::new();
        let base = scratch.commit("a", "1");
        let repo = scratch.repo().await;
        repo.create_integration_branch(&"feat/x".parse().expect("valid"), &base).await.expect("made");
        for (branch, with) in [
            ("feat", Some("feat/x")),
            ("feat/x/y/z", Some("feat/x")),
            ("feat/x", None),
            ("feat/xy", None),
            ("fea", None),
        ] {
            assert_eq!(repo.conflicting_branch(branch).await.expect("listed").as_deref(), with, "{branch}");
        }
        let clash = repo.create_integration_branch(&"feat/x/y".parse().expect("valid"), &base).await;
        assert!(matches!(clash, Err(DeliveryError::BranchNameConflict { with, .. }) if with == "feat/x"));
    }
}
