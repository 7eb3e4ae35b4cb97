//! The checks of a commit: which commands they are, and which passed before. Called by `landing.rs`, `start/sandbox_spec.rs` and
//! `collect/check.rs`.
//!
//! A check that passed is remembered by the tree, the image and the command, in `.longshore/checks/`: the same check of the same files
//! is not run again, in this swarm or a later one. Must not: remember what an agent's sandbox says.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error_chain::error_chain;
use crate::ids::{StoryId, StoryKey};
use crate::plan::Plan;
use crate::repo_dir;
use crate::swarm::SwarmSpec;

/// Where checks that passed are remembered, in `.longshore`.
pub(crate) const CHECKS_DIR: &str = "checks";

/// The variable by which a check knows its story.
const STORY_VARIABLE: &str = "LONGSHORE_STORY";

/// A command that a commit must pass. Those of a story run with its id in the environment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct CheckCommand {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub story: Option<StoryId>,
    pub command: String,
}

/// The verify commands that every landing on the branch of this tasks file must pass, beside those of the file itself: the settings',
/// and those of the other files that land on the branch.
pub(crate) fn shared_verify(spec: &SwarmSpec, plan: &Plan, settings: &[String], file: u16) -> Vec<String> {
    let branch = &spec.files[usize::from(file)].branch;
    let others = spec.files.iter().zip(&plan.files).enumerate();
    let others = others.filter(|(index, (other, _))| *index != usize::from(file) && other.branch == *branch);
    let mut commands = settings.to_vec();
    for command in others.flat_map(|(_, (_, planned))| &planned.tasks.verify) {
        if !commands.contains(command) {
            commands.push(command.clone());
        }
    }
    commands
}

/// All checks of a commit in which these stories of the file are finished.
pub(crate) fn check_commands(
    spec: &SwarmSpec,
    plan: &Plan,
    settings: &[String],
    file: u16,
    stories: &[StoryKey],
) -> BTreeSet<CheckCommand> {
    let shared = shared_verify(spec, plan, settings, file);
    let own = &plan.files[usize::from(file)].tasks.verify;
    let shared = own.iter().chain(&shared).map(|command| CheckCommand { story: None, command: command.clone() });
    let of_stories = stories.iter().flat_map(|key| {
        let story = plan.story(key);
        let tests = story.criteria.iter().filter_map(|criterion| criterion.test_command.as_ref());
        tests.chain(&story.verify).map(|command| CheckCommand { story: Some(key.id.clone()), command: command.clone() })
    });
    shared.chain(of_stories).collect()
}

/// The checks that passed before.
#[derive(Debug, Clone)]
pub(crate) struct CheckMemory {
    dir: PathBuf,
    /// The image's id, with a digest of what else sandboxes have in common.
    image: String,
}

/// The first half of a SHA-256, in hexadecimal.
fn digest(text: &str) -> String {
    Sha256::digest(text).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// A file of the memory.
#[derive(Default, Serialize, Deserialize)]
struct PassedChecks {
    tree: String,
    image: String,
    passed: BTreeSet<CheckCommand>,
}

impl CheckMemory {
    /// `image`: its id, which changes with its content. Without one, nothing is remembered. `surroundings`: what else could
    /// decide a check, such as the network and the environment; only a digest is written.
    pub fn new(repo_root: &Path, image: Option<&str>, surroundings: &str) -> Self {
        let dir = repo_root.join(repo_dir::STATE_DIR).join(CHECKS_DIR);
        let image = image.map(|image| format!("{image} {}", digest(surroundings)));
        Self { dir, image: image.unwrap_or_default() }
    }

    fn path(&self, tree: &str) -> PathBuf {
        self.dir.join(format!("{}.json", digest(&format!("{tree}\0{}", self.image))))
    }

    fn read(&self, tree: &str) -> PassedChecks {
        let bytes = std::fs::read(self.path(tree)).unwrap_or_default();
        let known: PassedChecks = serde_json::from_slice(&bytes).unwrap_or_default();
        if known.tree == tree && known.image == self.image { known } else { PassedChecks::default() }
    }

    /// Whether each of the commands passed on this tree.
    pub fn has_passed(&self, tree: &str, commands: &BTreeSet<CheckCommand>) -> bool {
        !self.image.is_empty() && commands.is_subset(&self.read(tree).passed)
    }

    /// Remembers what passed. A failure is logged: the checks run again.
    pub fn remember(&self, tree: &str, commands: impl IntoIterator<Item = CheckCommand>) {
        if self.image.is_empty() {
            return;
        }
        let mut known = self.read(tree);
        let before = known.passed.len();
        // A shared command that looks at the story may pass for one and not for another.
        let depends_on_story = |check: &CheckCommand| check.story.is_none() && check.command.contains(STORY_VARIABLE);
        known.passed.extend(commands.into_iter().filter(|check| !depends_on_story(check)));
        if known.passed.len() == before {
            return;
        }
        (known.tree, known.image) = (tree.to_owned(), self.image.clone());
        let bytes = serde_json::to_vec(&known).expect("strings are always JSON");
        let path = self.path(tree);
        let temp = path.with_extension(format!("{}.tmp", std::process::id()));
        let written = repo_dir::create_dir(&self.dir)
            .map_err(|error| error_chain(&error))
            .and_then(|()| crate::atomic_file::replace(&path, &temp, &bytes).map_err(|error| error.to_string()));
        if let Err(error) = written {
            tracing::warn!(path = %path.display(), error, "cannot remember which checks passed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(text: &str) -> CheckCommand {
        CheckCommand { story: None, command: text.to_owned() }
    }

    #[test]
    fn a_check_is_remembered_for_its_tree_image_command_and_story() {
        let dir = tempfile::tempdir().expect("a directory");
        repo_dir::create_state_dir(dir.path()).expect("created");
        let memory = CheckMemory::new(dir.path(), Some("sha256:1"), "none");
        let test = BTreeSet::from([command("make test")]);
        assert!(!memory.has_passed("t1", &test));
        assert!(memory.has_passed("t1", &BTreeSet::new()), "nothing to check");
        memory.remember("t1", [command("make test")]);
        memory.remember("t1", [command("make lint")]);
        assert!(memory.has_passed("t1", &test));
        assert!(memory.has_passed("t1", &BTreeSet::from([command("make lint"), command("make test")])));
        let of_story = CheckCommand { story: Some("US-001".parse().expect("an id")), ..command("make test") };
        assert!(!memory.has_passed("t1", &BTreeSet::from([of_story])));
        assert!(!memory.has_passed("t2", &test));
        assert!(!CheckMemory::new(dir.path(), Some("sha256:2"), "none").has_passed("t1", &test));
        assert!(!CheckMemory::new(dir.path(), Some("sha256:1"), "bridge").has_passed("t1", &test));
        let by_story = command("test -e $LONGSHORE_STORY");
        memory.remember("t1", [by_story.clone()]);
        assert!(!memory.has_passed("t1", &BTreeSet::from([by_story])));
        assert!(
            !CheckMemory::new(dir.path(), None, "none").has_passed("t1", &test),
            "without an image nothing is known"
        );
    }
}
