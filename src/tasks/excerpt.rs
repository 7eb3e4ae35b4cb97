//! A part of a tasks file as a tasks file of its own, in the canonical shape: what a sandbox gets of a file that is too large
//! to be delivered whole.
//!
//! Called by `plan/` through [`TasksFile::excerpt`], and read again by the shim. Must not: lose anything of a story that the
//! shim acts upon or that a prompt shows.

use serde_json::{Map, Value, json};

use super::{Criterion, DoneStatus, RiskLevel, Story, TasksFile};
use crate::ids::StoryId;

impl TasksFile {
    /// These stories alone, with all that is said of the file as a whole. A dependency on a story that is not among them is
    /// left out: whoever asks for them knows that it has landed.
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
        "status": match story.done {
            None => "pending",
            Some(DoneStatus::Completed) => "completed",
            Some(DoneStatus::Skipped) => "skipped",
        },
        "dependsOn": depends_on,
        "notes": story.notes,
        "verify": story.verify,
        "touches": story.touches,
        "riskLevel": match story.risk {
            RiskLevel::Low => "low",
            RiskLevel::Medium => "medium",
            RiskLevel::High => "high",
        },
    });
    if !story.mesh.is_empty() {
        object["mesh"] = json!({ "header": story.mesh });
    }
    if let Some(command) = &story.command {
        object["command"] = json!(command);
    }
    let seat: Map<String, Value> = [
        ("agent", story.mailbox.agent.as_ref().map(|agent| json!(agent))),
        ("role", story.mailbox.role.as_ref().map(|role| json!(role))),
    ]
    .into_iter()
    .filter_map(|(key, value)| Some((key.to_owned(), value?)))
    .collect();
    if !seat.is_empty() {
        object["mailbox"] = Value::Object(seat);
    }
    object
}

fn criterion_json(criterion: &Criterion) -> Value {
    match &criterion.test_command {
        Some(command) => json!({ "id": criterion.id, "text": criterion.text, "testCommand": command }),
        None => json!({ "id": criterion.id, "text": criterion.text }),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{Shape, parse};
    use super::*;

    #[test]
    fn an_excerpt_parses_back_to_the_same_stories() {
        let text = r#"{"schemaVersion":"3.0",
            "metadata":{"title":"A","type":"feat","branchName":"feat/a","createdAt":"2026-01-01","description":"Why",
                "maxConcurrency":2,"verify":["make test","make lint"],"mailbox":true,
                "mesh":{"header":{"house":{"rules":[1,2.5,null],"relay":true}}}},
            "userStories":[
                {"id":"US-001","title":"One","status":"completed","command":"true"},
                {"id":"US-002","title":"Two","description":"d","notes":"n","priority":7,"status":"pending","command":"echo 2",
                 "dependsOn":["US-001"],"verify":"true","touches":["a/**"],"riskLevel":"medium",
                 "mesh":{"header":{"alertControl":{"mustUnderstand":true,"content":{"priority":1}}}},
                 "mailbox":{"agent":"alpha","role":"coder"},
                 "acceptanceCriteria":["plain",{"id":"AC-x","text":"checked","testCommand":"test -e x"}]},
                {"id":"US-003","title":"Three","status":"skipped","dependsOn":["US-002","US-001"]}]}"#;
        let file = parse(text.as_bytes(), Path::new("t.json")).expect("a good file");
        let ids = |ids: &[&str]| -> Vec<StoryId> { ids.iter().map(|id| id.parse().expect("an id")).collect() };

        let all = file.excerpt(&ids(&["US-001", "US-002", "US-003"]));
        assert_eq!(parse(all.as_bytes(), Path::new("t.json")).expect("a good file"), file);

        let some = file.excerpt(&ids(&["US-003", "US-002"]));
        let mut wanted = file.clone();
        wanted.stories.remove(0);
        wanted.stories[0].depends_on.clear();
        wanted.stories[1].depends_on = ids(&["US-002"]);
        assert_eq!(parse(some.as_bytes(), Path::new("t.json")).expect("a good file"), wanted);
    }

    #[test]
    fn an_excerpt_of_any_shape_is_canonical() {
        let text = r#"{"project":"P","branchName":"b","description":"Why","userStories":[
            {"id":"A-1","title":"One","passes":false},{"id":"A-2","title":"Two","passes":false,"blockedBy":["A-1"]}]}"#;
        let file = parse(text.as_bytes(), Path::new("p.json")).expect("a good file");
        let id = file.stories[1].id.clone();
        let read = parse(file.excerpt(&[id]).as_bytes(), Path::new("p.json")).expect("a good file");
        assert_eq!(read.shape, Shape::Canonical);
        assert_eq!((read.title.as_str(), read.description.as_str()), ("P", "Why"));
        let (one, other) = (&read.stories[0], &file.stories[1]);
        assert_eq!((&one.id, &one.title, one.priority), (&other.id, &other.title, other.priority));
        assert!(one.depends_on.is_empty());
    }
}
