//! Excerpts parse back to the same stories.

use std::path::Path;

use crate::ids::StoryId;
use crate::tasks::{Shape, parse};

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
