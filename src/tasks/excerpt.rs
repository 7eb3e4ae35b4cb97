//! Some stories of a tasks file as a tasks file of the canonical shape: a sandbox gets it if the whole file is too large.
//!
//! Used by `plan/`; the shim reads the result. Must not: lose anything of a story that the shim uses or a prompt shows.

use serde_json::{Map, Value, json};

use super::tasks_file::{Criterion, Story, TasksFile};
use crate::ids::StoryId;

impl TasksFile {
    /// These stories alone, with the file's metadata. Dependencies on other stories are dropped: they have landed.
    pub fn excerpt(&self, stories: &[StoryId]) -> String {
        let mut metadata = Map::from_iter([
            ("title".to_owned(), json!(self.title)),
            ("type".to_owned(), json!(self.kind)),
            ("description".to_owned(), json!(self.description)),
            ("verify".to_owned(), json!(self.verify)),
        ]);
        if let Some(branch) = &self.branch {
            metadata.insert("branchName".to_owned(), json!(branch));
        }
        if let Some(most) = self.max_concurrency {
            metadata.insert("maxConcurrency".to_owned(), json!(most));
        }
        if !self.mesh.is_empty() {
            metadata.insert("mesh".to_owned(), json!({ "header": self.mesh }));
        }
        if let Some(mailbox) = self.mailbox {
            metadata.insert("mailbox".to_owned(), json!(mailbox));
        }
        let wanted = self.stories.iter().filter(|one| stories.contains(&one.id));
        let stories: Vec<Value> = wanted.map(|one| story_json(one, stories)).collect();
        json!({ "schemaVersion": "3.0", "metadata": metadata, "userStories": stories }).to_string()
    }
}

fn story_json(story: &Story, among: &[StoryId]) -> Value {
    let depends_on: Vec<&StoryId> = story.depends_on.iter().filter(|id| among.contains(id)).collect();
    let mut object = json!({
        "id": story.id,
        "title": story.title,
        "description": story.description,
        "acceptanceCriteria": story.criteria.iter().map(criterion_json).collect::<Vec<_>>(),
        "priority": story.priority,
        "status": story.done.map_or_else(|| json!("pending"), |done| json!(done)),
        "dependsOn": depends_on,
        "notes": story.notes,
        "verify": story.verify,
        "touches": story.touches,
        "riskLevel": story.risk,
    });
    if !story.mesh.is_empty() {
        object["mesh"] = json!({ "header": story.mesh });
    }
    if let Some(command) = &story.command {
        object["command"] = json!(command);
    }
    let identity: Map<String, Value> = [
        ("agent", story.mailbox.agent.as_ref().map(|agent| json!(agent))),
        ("role", story.mailbox.role.as_ref().map(|role| json!(role))),
    ]
    .into_iter()
    .filter_map(|(key, value)| Some((key.to_owned(), value?)))
    .collect();
    if !identity.is_empty() {
        object["mailbox"] = Value::Object(identity);
    }
    object
}

fn criterion_json(criterion: &Criterion) -> Value {
    match &criterion.test_command {
        Some(command) => json!({ "id": criterion.id, "text": criterion.text, "testCommand": command }),
        None => json!({ "id": criterion.id, "text": criterion.text }),
    }
}
