//! Display labels of stories: `US-001`, or `slug/US-001` where a swarm has several tasks files.
//!
//! Made of the swarm's spec, so that a running swarm and one read from its journal use the same labels.

use std::collections::BTreeMap;

use super::text::sanitize;
use crate::ids::{AssignmentId, StoryKey};
use crate::swarm::{StorySpec, SwarmSpec};

/// The labels of a swarm's stories.
#[derive(Debug, Clone)]
pub struct StoryLabels {
    labels: BTreeMap<StoryKey, (String, String)>,
    assignments: BTreeMap<AssignmentId, Vec<StoryKey>>,
}

impl StoryLabels {
    /// The names in this spec.
    pub fn from_spec(spec: &SwarmSpec) -> Self {
        let label = |story: &StorySpec| (spec.story_ref(&story.key).label, sanitize(&story.title));
        let labels = spec.stories.iter().map(|story| (story.key.clone(), label(story))).collect();
        let assignments = spec.assignments.iter().map(|each| (each.id.clone(), each.stories.clone())).collect();
        Self { labels, assignments }
    }

    /// A story's label.
    pub fn label<'a>(&'a self, key: &'a StoryKey) -> &'a str {
        self.labels.get(key).map_or(key.id.as_str(), |(label, _)| label)
    }

    /// A story's title, fit for a terminal.
    pub fn title(&self, key: &StoryKey) -> &str {
        self.labels.get(key).map_or("", |(_, title)| title)
    }

    /// The labels of several, with commas.
    pub fn joined_labels(&self, keys: &[StoryKey]) -> String {
        keys.iter().map(|key| self.label(key)).collect::<Vec<_>>().join(", ")
    }

    /// The stories of an assignment, with commas.
    pub fn assignment_labels(&self, assignment: &AssignmentId) -> String {
        self.assignments.get(assignment).map(|keys| self.joined_labels(keys)).unwrap_or_default()
    }

    /// The story that has this label or, where only one has it, this id.
    pub fn find(&self, typed: &str) -> Vec<&StoryKey> {
        let by_label: Vec<_> =
            self.labels.iter().filter(|(_, (label, _))| label == typed).map(|(key, _)| key).collect();
        if by_label.is_empty() { self.labels.keys().filter(|key| key.id.as_str() == typed).collect() } else { by_label }
    }

    /// The assignment that has a story.
    pub fn assignment_of(&self, story: &StoryKey) -> Option<&AssignmentId> {
        self.assignments.iter().find(|(_, stories)| stories.contains(story)).map(|(id, _)| id)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::ids::SwarmId;
    use crate::swarm::{AssignmentSpec, StoryRef, SwarmLimits, TasksFileSpec};
    use std::time::Duration;

    pub(crate) fn swarm_id() -> SwarmId {
        spec(1).swarm
    }

    /// A story of the only file.
    pub(crate) fn story_ref(id: &str) -> StoryRef {
        spec(1).story_ref(&StoryKey { file: 0, id: id.parse().expect("valid") })
    }

    /// A spec of so many files with two stories each, an assignment a story.
    pub(crate) fn spec(files: u16) -> SwarmSpec {
        let key = |file, id: &str| StoryKey { file, id: id.parse().expect("valid") };
        let titles = [("US-001", "Add the parser"), ("US-002", "Use the \u{1b}[31mparser")];
        SwarmSpec {
            swarm: "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d".parse().expect("valid"),
            files: (0..files)
                .map(|file| TasksFileSpec {
                    path: format!("tasks/f{file}.json"),
                    slug: format!("f{file}"),
                    title: "Feature".to_owned(),
                    branch: format!("feat/f{file}").parse().expect("valid"),
                    base: "1".repeat(40).parse().expect("valid"),
                    has_verify: false,
                })
                .collect(),
            stories: (0..files)
                .flat_map(|file| titles.map(|(id, title)| (file, id, title)))
                .map(|(file, id, title)| StorySpec {
                    key: key(file, id),
                    title: title.to_owned(),
                    depends_on: Vec::new(),
                    done: None,
                    risk: Default::default(),
                    has_command: false,
                    has_verify: false,
                    tested_criteria: Vec::new(),
                })
                .collect(),
            assignments: (0..files)
                .flat_map(|file| titles.map(|(id, _)| (file, id)))
                .enumerate()
                .map(|(number, (file, id))| AssignmentSpec {
                    id: AssignmentId::new(2026, number as u32 + 1),
                    file,
                    branch: format!("longshore/{file}/{id}").parse().expect("valid"),
                    stories: vec![key(file, id)],
                    priority: 1,
                    exclusive_with: Vec::new(),
                })
                .collect(),
            amp: None,
            landing: None,
            limits: SwarmLimits {
                max_sandboxes: 2,
                retries: 1,
                machinery_retries: 3,
                backoff: Duration::from_secs(1),
                story_timeout: Duration::from_secs(60),
                idle_timeout: Duration::ZERO,
                slack: Duration::from_secs(60),
                grace_period: Duration::from_secs(10),
                max_bad_records: 100,
                liveness_timeout: Duration::from_secs(150),
            },
        }
    }

    #[test]
    fn labels_have_the_slug_only_with_several_files() {
        let one = StoryLabels::from_spec(&spec(1));
        let key = StoryKey { file: 0, id: "US-002".parse().expect("valid") };
        assert_eq!((one.label(&key), one.title(&key)), ("US-002", "Use the parser"));
        let two = StoryLabels::from_spec(&spec(2));
        assert_eq!(two.label(&key), "f0/US-002");
        assert_eq!(two.find("US-002").len(), 2);
        assert_eq!(two.find("f1/US-002").len(), 1);
        assert!(two.find("US-003").is_empty());
        assert_eq!(two.assignment_of(&key).map(AssignmentId::as_str), Some("T-2026-002"));
    }
}
