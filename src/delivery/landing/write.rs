//! Writes the commits of a landing and puts them under their ref; makes sure that no `git gc` takes their objects.
//!
//! Called by `landing.rs`. Must not: move a ref outside `refs/longshore/`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::candidate::LandingOptions;
use super::signing::SigningConfig;
use crate::delivery::error::DeliveryError;
use crate::delivery::gc_lock;
use crate::delivery::git_runner::unexpected_output;
use crate::delivery::repo::Repo;
use crate::git::identity_env;
use crate::handoff::assignment::GitIdentity;
use crate::ids::CommitId;

const TIME_LIMIT: Duration = Duration::from_secs(10 * 60);

/// A commit to write.
#[derive(Debug, Clone)]
pub(super) struct CommitPlan {
    pub tree: String,
    pub parents: Vec<PlannedParent>,
    pub author: GitIdentity,
    pub message: String,
}

#[derive(Debug, Clone)]
pub(super) enum PlannedParent {
    Existing(CommitId),
    /// The index of an earlier plan.
    Planned(usize),
}

impl Repo {
    /// Writes the commits in order and points `keep_ref` at the last one. Returns their ids.
    pub(super) async fn write_commits(
        &self,
        plans: &[CommitPlan],
        options: &LandingOptions,
        keep_ref: &str,
    ) -> Result<Vec<CommitId>, DeliveryError> {
        if options.sign {
            self.write_signed_commits(plans, options, keep_ref).await
        } else {
            self.import_commits(plans, options, keep_ref).await
        }
    }

    /// One process for all commits and the ref.
    async fn import_commits(
        &self,
        plans: &[CommitPlan],
        options: &LandingOptions,
        keep_ref: &str,
    ) -> Result<Vec<CommitId>, DeliveryError> {
        let operation = "write the commits that land";
        let committer = ident(&options.committer);
        let mut stream = String::from("feature done\n");
        for (number, plan) in plans.iter().enumerate() {
            // Without the reset, a commit without parents would get the one before it.
            if number == 0 || plan.parents.is_empty() {
                stream.push_str(&format!("reset {keep_ref}\n"));
            }
            stream.push_str(&format!("commit {keep_ref}\nmark :{}\n", number + 1));
            stream.push_str(&format!("author {} now\ncommitter {committer} now\n", ident(&plan.author)));
            stream.push_str(&format!("data {}\n{}\n", plan.message.len(), plan.message));
            for (place, parent) in plan.parents.iter().enumerate() {
                let command = if place == 0 { "from" } else { "merge" };
                match parent {
                    PlannedParent::Existing(commit) => stream.push_str(&format!("{command} {commit}\n")),
                    PlannedParent::Planned(index) => stream.push_str(&format!("{command} :{}\n", index + 1)),
                }
            }
            stream.push_str(&format!("M 040000 {} \"\"\n\n", plan.tree));
        }
        for number in 1..=plans.len() {
            stream.push_str(&format!("get-mark :{number}\n"));
        }
        stream.push_str("done\n");
        // Never unpacked into loose objects: the pack has a `.keep` file until the ref exists.
        let args =
            ["-c", "fastimport.unpackLimit=0", "fast-import", "--quiet", "--done", "--force", "--date-format=now"];
        let command = self.git(operation, args).input(stream).time_limit(TIME_LIMIT);
        let output = command.run().await.inspect_err(|error| self.remove_leftovers(error))?;
        let text = output.trimmed_stdout();
        let ids: Result<Vec<CommitId>, _> = text.lines().map(str::parse).collect();
        match ids {
            Ok(ids) if ids.len() == plans.len() => Ok(ids),
            _ => Err(unexpected_output(operation, &text)),
        }
    }

    /// A failed `fast-import` leaves a report in the git directory, and the `.keep` file of a pack that it could not store.
    fn remove_leftovers(&self, error: &DeliveryError) {
        let DeliveryError::CommandFailed { tail, .. } = error else { return };
        let file_name = |path: &str| Some(Path::new(path.trim()).file_name()?.to_string_lossy().into_owned());
        for line in tail.lines() {
            // What cannot be removed only takes space.
            if let Some((_, path)) = line.split_once("dumping crash report to ")
                && let Some(name) = file_name(path).filter(|name| name.starts_with("fast_import_crash_"))
            {
                let _ = fs::remove_file(self.git_dir().join(name));
            }
            if let Some((_, rest)) = line.split_once("unable to write file ")
                && let Some((path, _)) = rest.split_once(".pack: ")
                && let Some(name) = file_name(path).filter(|name| name.starts_with("pack-"))
            {
                let pack = self.objects_dir().join("pack").join(format!("{name}.pack"));
                if !pack.exists() {
                    let _ = fs::remove_file(pack.with_extension("keep"));
                }
            }
        }
    }

    /// One process and one signature a commit.
    async fn write_signed_commits(
        &self,
        plans: &[CommitPlan],
        options: &LandingOptions,
        keep_ref: &str,
    ) -> Result<Vec<CommitId>, DeliveryError> {
        let operation = "sign the commits that land";
        let signing = SigningConfig::read(self).await?;
        let mut written: Vec<CommitId> = Vec::new();
        for plan in plans {
            let command = self.git(operation, signing.args()).args(["commit-tree", "-S", "-F", "-"]);
            let mut command = command.input(plan.message.clone());
            for parent in &plan.parents {
                let parent = match parent {
                    PlannedParent::Existing(commit) => commit,
                    PlannedParent::Planned(index) => &written[*index],
                };
                command = command.args(["-p", parent.as_str()]);
            }
            let command =
                command.arg(&plan.tree).envs(identity_env(&options.committer).map(|(k, v)| (k, v.to_owned())));
            let author =
                [("GIT_AUTHOR_NAME", plan.author.name.clone()), ("GIT_AUTHOR_EMAIL", plan.author.email.clone())];
            let output = command.envs(author).run().await.map_err(signing_error)?;
            let line = output.trimmed_stdout();
            written.push(line.parse().map_err(|_| unexpected_output(operation, &line))?);
        }
        let last = written.last().expect("at least one commit is planned");
        self.overwrite_ref(keep_ref, last).await?;
        Ok(written)
    }

    /// Packs what is new in `head`: from then on, a `git prune` or `git gc` that began before the ref existed cannot take it. It
    /// fails if one took something already.
    pub(super) async fn pack_landing(
        &self,
        head: &CommitId,
        onto: &CommitId,
        tips: impl Iterator<Item = &CommitId>,
        is_retry: bool,
    ) -> Result<(), DeliveryError> {
        let mut revisions = format!("{head}\n^{onto}\n");
        tips.for_each(|tip| revisions.push_str(&format!("^{tip}\n")));
        let mut args = vec!["pack-objects", "--revs", "-q"];
        // Objects in packs are left out, unless something may be deleting packs that no ref reached when it began.
        if !is_retry && !gc_lock::is_gc_running(self.common_dir()) {
            args.push("--incremental");
        }
        let command = self.git("pack what a merge made", args).arg(self.objects_dir().join("pack/pack"));
        command.input(revisions).time_limit(TIME_LIMIT).run().await.map(drop)
    }
}

/// Whatever else can be wrong with these commits was checked before.
fn signing_error(error: DeliveryError) -> DeliveryError {
    match error {
        DeliveryError::CommandFailed { tail, .. } if !tail.contains("not a valid object") => {
            DeliveryError::SigningFailed { detail: tail }
        }
        error => error,
    }
}

/// An identity as commits have it: git refuses some characters, and ignores others at the ends.
fn ident(identity: &GitIdentity) -> String {
    let clean = |text: &str| {
        let text: String = text.chars().filter(|c| !c.is_control() && !matches!(c, '<' | '>')).collect();
        text.trim_matches(|c: char| c <= ' ' || ".,:;\"\\'".contains(c)).to_owned()
    };
    format!("{} <{}>", clean(&identity.name), clean(&identity.email))
}
