//! The names that a plan gives: slugs, integration branches, the branches of assignments, and the paths at which sandboxes
//! get their tasks files.
//!
//! Called by `build.rs`. Must not: ask git whether a branch exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::error::{PlanProblemKind, branch_key};
use super::slug::{file_slug, make_unique, slugify};
use crate::ids::BranchName;
use crate::protocol::acp::message::TaskFilePath;
use crate::tasks::TasksFile;

/// The longest delivered path, in bytes: far below what one ACP line holds.
const MAX_PATH_BYTES: usize = 1024;

/// A file's integration branch: `--branch`, else the file's own, else `longshore/` and the title. An error includes
/// its location.
pub(super) fn integration_branch(
    file: &TasksFile,
    flag: Option<&str>,
) -> Result<BranchName, (&'static str, PlanProblemKind)> {
    let (location, name) = match (flag, &file.branch) {
        (Some(flag), _) => ("--branch", flag.to_owned()),
        (None, Some(branch)) => (branch_key(file.shape), branch.clone()),
        (None, None) => {
            let title = slugify(&file.title);
            let word = if title.is_empty() { file_slug(&file.path) } else { title };
            (branch_key(file.shape), format!("longshore/{word}"))
        }
    };
    parse_branch(&name).map_err(|kind| (location, kind))
}

fn parse_branch(name: &str) -> Result<BranchName, PlanProblemKind> {
    if matches!(name, "main" | "master") {
        return Err(PlanProblemKind::ProtectedBranch { branch: name.to_owned() });
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-');
    let wrong: BTreeSet<char> = name.chars().filter(|c| !allowed(*c)).collect();
    let branch: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
    if !wrong.is_empty() {
        let listed = wrong.into_iter().map(|c| match c {
            ' ' => "a space".to_owned(),
            c if c.is_control() || c.is_whitespace() => format!("`{}`", c.escape_default()),
            c => format!("`{c}`"),
        });
        return Err(PlanProblemKind::BranchCharacters { branch, wrong: listed.collect::<Vec<_>>().join(", ") });
    }
    name.parse().map_err(|_| {
        let rule = match name {
            "" => "is empty",
            "HEAD" => "is git's own word",
            _ if name.len() > 200 => "has more than 200 characters",
            _ if name.contains("//") => "has `//` in it",
            _ if name.ends_with('/') => "ends with `/`",
            _ => "must begin with a letter or a digit",
        };
        PlanProblemKind::InvalidBranch { branch, rule }
    })
}

/// The branch of an assignment: the integration branch and a suffix, made unique in `taken`, and added to it.
pub(super) fn assignment_branch(
    integration: &BranchName,
    suffix: &str,
    taken: &mut BTreeSet<String>,
) -> Result<BranchName, PlanProblemKind> {
    let name = make_unique(format!("{integration}-{suffix}"), taken);
    let branch = name.parse().map_err(|_| PlanProblemKind::BranchTooLong {
        branch: integration.to_string(),
        suffix: format!("-{suffix}"),
    })?;
    taken.insert(name);
    Ok(branch)
}

/// The canonical path, or the absolute path if the file does not exist.
pub(super) fn resolve_path(path: &Path) -> PathBuf {
    fs::canonicalize(path).or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}

/// The path of the tasks file in the sandbox, by ACP's rules: its path in the repo, or a default under `.longshore/`.
pub(super) fn sandbox_path(file: &Path, repo_root: &Path, slug: &str) -> String {
    let default_path = || format!(".longshore/tasks/{slug}.json");
    let file = resolve_path(file);
    let Ok(inside) = file.strip_prefix(resolve_path(repo_root)) else { return default_path() };
    let parts: Option<Vec<&str>> =
        inside.components().map(|part| if let Component::Normal(part) = part { part.to_str() } else { None }).collect();
    let Some(path) = parts.map(|parts| parts.join("/")) else { return default_path() };
    if path.len() <= MAX_PATH_BYTES && path.parse::<TaskFilePath>().is_ok() { path } else { default_path() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_branches_are_rejected_with_a_reason() {
        for (name, expected) in [
            ("main", "longshore never merges stories onto `main`: only a person may"),
            ("master", "longshore never merges stories onto `master`: only a person may"),
            (
                "feat/ä b.c",
                "the branch name `feat/ä b.c` has a space, `.`, `ä`; allowed are letters, digits, `/`, `_` and `-`",
            ),
            ("a\tb", "the branch name `a b` has `\\t`; allowed are letters, digits, `/`, `_` and `-`"),
            ("-x", "the branch name `-x` must begin with a letter or a digit"),
            ("/x", "the branch name `/x` must begin with a letter or a digit"),
            ("a//b", "the branch name `a//b` has `//` in it"),
            ("a/", "the branch name `a/` ends with `/`"),
            ("HEAD", "the branch name `HEAD` is git's own word"),
            ("", "the branch name `` is empty"),
        ] {
            assert_eq!(parse_branch(name).expect_err("refused").to_string(), expected);
        }
        assert!(
            parse_branch(&"x".repeat(201)).expect_err("refused").to_string().ends_with("has more than 200 characters")
        );
        assert!(parse_branch("feat/x_1-b").is_ok());
    }

    #[test]
    fn files_outside_the_repo_get_a_path_under_longshore() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let repo = root.path().join("repo");
        fs::create_dir_all(repo.join("tasks")).expect("made");
        for name in ["repo/tasks/a.json", "repo/tasks/b.JSON", "repo/tasks/c.txt", "outside.json"] {
            fs::write(root.path().join(name), "{}").expect("written");
        }
        let at = |name: &str| sandbox_path(&root.path().join(name), &repo, "slug");
        assert_eq!(at("repo/tasks/a.json"), "tasks/a.json");
        assert_eq!(at("repo/tasks/../tasks/a.json"), "tasks/a.json");
        for ours in ["repo/tasks/b.JSON", "repo/tasks/c.txt", "outside.json", "repo/../outside.json"] {
            assert_eq!(at(ours), ".longshore/tasks/slug.json", "{ours}");
        }
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(&repo, root.path().join("link")).expect("linked");
            assert_eq!(at("link/tasks/a.json"), "tasks/a.json");
        }
    }
}
