//! A story as an agent sees it: the JSON of `acp-shim task --json`, and the text of `acp-shim task` and the prompt.
//!
//! Made by `story.rs` and `review.rs`. Must not: hold values of environment variables.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskCard {
    pub id: String,
    pub title: String,
    pub description: String,
    /// The branch to work on.
    pub branch: String,
    pub acceptance_criteria: Vec<CriterionCard>,
    pub notes: String,
    /// The commands that verify the work.
    pub verify: Vec<String>,
    /// The checks run on a clean checkout after the story, and not at its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub checked_after: bool,
    /// The commit that is being merged into the branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge_head: Option<String>,
    /// The files with conflicts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_failure: Option<String>,
    /// The admin's comments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guidance: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CriterionCard {
    pub id: String,
    pub text: String,
    /// The command that checks the criterion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_command: Option<String>,
}

impl TaskCard {
    /// The title, which is the first line of both texts.
    pub fn heading(&self) -> String {
        format!("# {}: {}\n", self.id, self.title)
    }

    /// All checks, each distinct command once, with the criterion that it checks.
    pub fn checks(&self) -> Vec<(Option<&str>, &str)> {
        let tests = self.acceptance_criteria.iter();
        let tests = tests.filter_map(|criterion| Some((Some(&*criterion.id), criterion.test_command.as_deref()?)));
        let mut checks: Vec<(Option<&str>, &str)> = Vec::new();
        for check in tests.chain(self.verify.iter().map(|command| (None, &**command))) {
            if !checks.iter().any(|(_, command)| *command == check.1) {
                checks.push(check);
            }
        }
        checks
    }

    /// The sections that are not empty, as markdown.
    pub fn sections(&self) -> String {
        let mut text = String::new();
        let mut section = |heading: &str, body: &str| {
            if !body.is_empty() {
                text.push_str(&format!("\n## {heading}\n\n{body}\n"));
            }
        };
        section("What to do", &self.description);
        if let Some(head) = &self.merge_head {
            let intro = "This story was done before, and the branch that it is for has changed the same places since. A merge of that \
                         branch is in progress here";
            let rules = "Resolve the conflicts so that the intentions of both sides hold: `git log -p HEAD...MERGE_HEAD -- FILE` shows \
                         what each side did. Leave no markers. A file without markers, such as one that a side deleted, is resolved \
                         once you change, `git add` or `git rm` it. Both histories stay: do not abort the merge, reset it away, or \
                         rebase. You need not commit: the merge is committed for you.";
            let files = self.conflicts.join("`\n- `");
            section(
                "Finish the merge",
                &format!("{intro} (`MERGE_HEAD`, {head}). These files have conflicts:\n\n- `{files}`\n\n{rules}"),
            );
        }
        let criteria = self.acceptance_criteria.iter().map(|criterion| match &criterion.test_command {
            Some(command) => format!("- {}: {}\n  Checked by running: `{command}`", criterion.id, criterion.text),
            None => format!("- {}: {}", criterion.id, criterion.text),
        });
        section("Acceptance criteria", &criteria.collect::<Vec<_>>().join("\n"));
        section("Notes", &self.notes);
        let commands: Vec<&str> = match self.checked_after {
            true => self.checks().into_iter().map(|(_, command)| command).collect(),
            false => self.verify.iter().map(String::as_str).collect(),
        };
        if !commands.is_empty() {
            let intro = if self.checked_after {
                "Each of these commands must exit with 0. They run again when you have ended, on a clean checkout of your commit \
                 merged with the branch that it is for: files that git ignores, and what you changed in HOME or /tmp, are not \
                 there. Run `acp-shim check` before you end: it runs them here."
            } else {
                "Each of these commands must exit with 0 when you are done:"
            };
            section("How the work is verified", &format!("{intro}\n\n- `{}`", commands.join("`\n- `")));
        }
        section("What the admin says", &self.guidance.join("\n\n"));
        section("The previous attempt failed", self.previous_failure.as_deref().unwrap_or_default());
        text
    }
}
