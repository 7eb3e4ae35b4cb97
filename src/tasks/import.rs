//! From the JSON tree to a [`TasksFile`], with all problems at once.
//!
//! What is read, by shape (`null` is absent, what is not named here is ignored):
//!
//! | what | canonical and passes | Ralph |
//! |---|---|---|
//! | title | `metadata.title`, required | `project`, else `name`, required |
//! | branch, type, description | `metadata.branchName`, `.type`, `.description` | root `branchName`, `type`, `description` |
//! | `maxConcurrency`, `verify`, `mailbox`, `mesh` | `metadata` | `metadata` |
//!
//! A story, in every shape: `id` and `title` (required), `description`, `notes`, `acceptanceCriteria[]` (a string or
//! `{id?, text, testCommand?}`), `priority` (a whole number, or `high`, `medium`, `low` for 1, 2, 3), `status`, `passes`,
//! `skipped`, dependencies (arrays of ids under `dependsOn`, `deps` or `blockedBy`; where several are there, all count),
//! `verify` (a string or an array), `command`, `touches[]`, `riskLevel`, `mailbox` (`{agent?, role?}`), `mesh`
//! (`{header: {NAME: {...}}}`). A blank command is no
//! command.
//!
//! Called by `mod.rs` and `write_back.rs`.

use std::path::Path;

use super::fields::{At, Checker, one_line};
use super::graph::{self, Draft, Wanted};
use super::json::{self, Node, Value, shortened};
use super::problem::{Defect, TasksError};
use super::{Criterion, Done, MAX_BYTES, MAX_STORIES, RiskLevel, Seat, Shape, Story, TasksFile, mesh, shape};

/// Where dependencies may stand.
const DEPENDENCY_KEYS: [&str; 3] = ["dependsOn", "deps", "blockedBy"];
/// The keys of a story that are read.
const STORY_KEYS: [&str; 18] = [
    "id",
    "title",
    "description",
    "acceptanceCriteria",
    "priority",
    "status",
    "passes",
    "skipped",
    "dependsOn",
    "deps",
    "blockedBy",
    "notes",
    "verify",
    "command",
    "touches",
    "riskLevel",
    "mailbox",
    "mesh",
];
const ROOT_KEYS: [&str; 7] = ["metadata", "userStories", "project", "name", "branchName", "description", "type"];
const METADATA_KEYS: [&str; 8] =
    ["title", "type", "branchName", "description", "maxConcurrency", "verify", "mailbox", "mesh"];
const UTF8_BOM: &str = "\u{feff}";

/// The longest role of an agent, in characters.
pub(super) const MAX_ROLE: usize = 60;

/// `status`, with what it says of passing.
const STATUS_WORDS: [(&str, Status); 5] = [
    ("pending", Status::Open("pending")),
    ("in_progress", Status::Open("in_progress")),
    ("completed", Status::Completed),
    ("failed", Status::Open("failed")),
    ("skipped", Status::Skipped),
];
const PRIORITY_WORDS: [(&str, i64); 3] = [("high", 1), ("medium", 2), ("low", 3)];
const RISK_WORDS: [(&str, RiskLevel); 3] =
    [("low", RiskLevel::Low), ("medium", RiskLevel::Medium), ("high", RiskLevel::High)];

#[derive(Clone, Copy)]
enum Status {
    Open(&'static str),
    Completed,
    Skipped,
}

/// A tasks file as tree and as meaning.
pub(super) struct Imported {
    pub file: TasksFile,
    /// The root; spans count from `text_start`.
    pub root: Node,
    /// Where the text starts in the bytes: after the BOM.
    pub text_start: usize,
}

/// Reads the bytes of a tasks file; `path` is for messages.
pub(super) fn import(bytes: &[u8], path: &Path) -> Result<Imported, TasksError> {
    if bytes.len() as u64 > MAX_BYTES {
        return Err(TasksError::whole(path, Defect::TooLarge));
    }
    let whole = std::str::from_utf8(bytes).map_err(|error| {
        let offset = error.valid_up_to();
        TasksError::whole(path, Defect::NotUtf8 { offset, byte: bytes[offset] })
    })?;
    let text = whole.strip_prefix(UTF8_BOM).unwrap_or(whole);
    if text.trim().is_empty() {
        return Err(TasksError::whole(path, Defect::Empty));
    }
    let mut checker = Checker::new(text);
    let root = json::parse(text).map_err(|syntax| {
        let found = match text[syntax.offset..].chars().next() {
            None => "the end of the file".to_owned(),
            Some(c) if c.is_control() => format!("`{}`", c.escape_default()),
            Some(c) => format!("`{c}`"),
        };
        let (line, column) = (checker.lines.line(syntax.offset), checker.lines.column(syntax.offset));
        TasksError::whole(path, Defect::NotJson { line, column, expected: syntax.expected, found })
    })?;
    let file = read_file(&mut checker, &root, path);
    match file {
        Some(file) if checker.problems.is_empty() => Ok(Imported { file, root, text_start: whole.len() - text.len() }),
        _ => Err(TasksError::new(path, checker.problems)),
    }
}

/// Nothing is given back only where something was reported.
fn read_file(checker: &mut Checker<'_>, root: &Node, path: &Path) -> Option<TasksFile> {
    let Some(shape) = shape::decide(root) else {
        checker.report(&At::Root, root, Defect::WrongShape { found: root.found() });
        return None;
    };
    checker.unique_keys(&At::Root, root, &ROOT_KEYS);
    let nothing = Node { span: root.span.clone(), value: Value::Null };
    let metadata_at = At::Key(&At::Root, "metadata");
    let metadata = match root.present("metadata") {
        Some(node) if node.members().is_some() => node,
        Some(node) => {
            checker.report(&metadata_at, node, Defect::WrongType { expected: "an object", found: node.found() });
            &nothing
        }
        None => &nothing,
    };
    checker.unique_keys(&metadata_at, metadata, &METADATA_KEYS);

    let (title, about, about_at) = match shape {
        Shape::Canonical | Shape::Passes => {
            (checker.heading(&metadata_at, metadata, "title", "`metadata.title`"), metadata, &metadata_at)
        }
        Shape::Ralph => {
            let key = if root.present("project").is_some() { "project" } else { "name" };
            (checker.heading(&At::Root, root, key, "`project` or `name`"), root, &At::Root)
        }
    };
    let kind = checker.text(about_at, about, "type").unwrap_or_default();
    let branch = checker.filled(about_at, about, "branchName");
    let description = checker.text(about_at, about, "description").unwrap_or_default();
    let max_concurrency = checker.count(&metadata_at, metadata, "maxConcurrency");
    let verify = checker.one_or_more(&metadata_at, metadata, "verify");
    let mesh = mesh::read(checker, &metadata_at, metadata);
    let mailbox = checker.flag(&metadata_at, metadata, "mailbox");
    let stories = read_stories(checker, root)?;
    Some(TasksFile {
        path: path.to_owned(),
        shape,
        title: title?,
        kind,
        branch,
        description,
        max_concurrency,
        verify,
        mesh,
        mailbox,
        stories,
    })
}

fn read_stories(checker: &mut Checker<'_>, root: &Node) -> Option<Vec<Story>> {
    let reported = checker.problems.len();
    let items = checker.items(&At::Root, root, "userStories", "an array of stories");
    let at = At::Key(&At::Root, "userStories");
    let node = root.present("userStories")?;
    if items.is_empty() && checker.problems.len() == reported {
        checker.report(&at, node, Defect::NoStories);
    }
    if items.len() > MAX_STORIES {
        checker.report(&at, node, Defect::TooManyStories { count: items.len() });
    }
    if items.is_empty() || items.len() > MAX_STORIES {
        return None;
    }
    let drafts: Vec<Draft<'_>> =
        items.iter().enumerate().map(|(index, item)| read_draft(checker, &At::Index(&at, index), item)).collect();
    let links = graph::resolve(checker, &drafts);

    let mut stories = Vec::with_capacity(items.len());
    for (index, (item, link)) in items.iter().zip(links).enumerate() {
        checker.story = drafts[index].id.clone();
        stories.extend(read_story(checker, &At::Index(&at, index), index, item, link));
    }
    checker.story = None;
    Some(stories)
}

/// A story's id and dependencies, as the file has them.
fn read_draft<'a>(checker: &mut Checker<'_>, at: &At<'_>, node: &'a Node) -> Draft<'a> {
    let mut draft = Draft { node, id: None, wanted: Vec::new() };
    if node.members().is_none() {
        checker.report(at, node, Defect::WrongType { expected: "a story (an object)", found: node.found() });
        return draft;
    }
    match node.present("id") {
        Some(id) => draft.id = checker.id(&At::Key(at, "id"), id),
        None => checker.report(&At::Key(at, "id"), node, Defect::Absent { what: "the story's `id`" }),
    }
    checker.story = draft.id.clone();
    for key in DEPENDENCY_KEYS {
        let items = checker.items(at, node, key, "an array of story ids, like `[\"US-001\"]`");
        let at = At::Key(at, key);
        for (index, item) in items.iter().enumerate() {
            if let Some(id) = checker.id(&At::Index(&at, index), item) {
                draft.wanted.push(Wanted { id, key, index, node: item });
            }
        }
    }
    checker.story = None;
    draft
}

fn read_story(checker: &mut Checker<'_>, at: &At<'_>, index: usize, node: &Node, link: graph::Link) -> Option<Story> {
    node.members()?;
    checker.unique_keys(at, node, &STORY_KEYS);
    let title = checker.heading(at, node, "title", "the story's `title`");
    let description = checker.text(at, node, "description").unwrap_or_default();
    let criteria = read_criteria(checker, at, node);
    let priority = checker.number_or_word(at, node, "priority", &PRIORITY_WORDS).unwrap_or(index as i64 + 1);
    let done = read_done(checker, at, node);
    let notes = checker.text(at, node, "notes").unwrap_or_default();
    let verify = checker.one_or_more(at, node, "verify");
    let command = checker.filled(at, node, "command");
    let touches = checker.texts(at, node, "touches");
    let risk = checker.word(at, node, "riskLevel", &RISK_WORDS).unwrap_or_default();
    let mesh = mesh::read(checker, at, node);
    let mailbox = read_seat(checker, at, node);
    Some(Story {
        id: link.id,
        source_id: link.source_id,
        title: title?,
        description,
        criteria,
        priority,
        done,
        depends_on: link.depends_on,
        notes,
        verify,
        command,
        touches,
        risk,
        mesh,
        mailbox,
    })
}

/// Who the story's agent is in a mailbox.
fn read_seat(checker: &mut Checker<'_>, at: &At<'_>, story: &Node) -> Seat {
    let Some(node) = story.present("mailbox") else { return Seat::default() };
    let at = At::Key(at, "mailbox");
    if node.members().is_none() {
        let expected = "an object with `agent` and `role`";
        checker.report(&at, node, Defect::WrongType { expected, found: node.found() });
        return Seat::default();
    }
    checker.keys(&at, node, &["agent", "role"]);
    let mut seat = Seat::default();
    if let (Some(value), Some(text)) = (node.present("agent"), checker.filled(&at, node, "agent")) {
        match text.parse() {
            Ok(agent) => seat.agent = Some(agent),
            Err(_) => checker.report(&At::Key(&at, "agent"), value, Defect::BadAgent { found: shortened(&text) }),
        }
    }
    if let (Some(value), Some(text)) = (node.present("role"), checker.filled(&at, node, "role")) {
        let role = one_line(&text);
        // It stands in a row of a table.
        if role.contains('|') || role.chars().count() > MAX_ROLE {
            checker.report(&At::Key(&at, "role"), value, Defect::BadRole { found: shortened(&role) });
        } else {
            seat.role = Some(role);
        }
    }
    seat
}

/// What the file says of a story already. `passes: true` outweighs `skipped: true`.
fn read_done(checker: &mut Checker<'_>, at: &At<'_>, node: &Node) -> Option<Done> {
    let status = checker.word(at, node, "status", &STATUS_WORDS);
    let passes = checker.flag(at, node, "passes");
    let skipped = checker.flag(at, node, "skipped").unwrap_or(false);
    let contradicted = match (status, passes) {
        (Some(Status::Completed), Some(false)) => Some("completed"),
        (Some(Status::Skipped), Some(true)) => Some("skipped"),
        (Some(Status::Open(word)), Some(true)) => Some(word),
        _ => None,
    };
    if let (Some(status), Some(passes), Some(value)) = (contradicted, passes, node.present("passes")) {
        let status = status.to_owned();
        checker.report(&At::Key(at, "passes"), value, Defect::Contradiction { status, passes });
    }
    match status {
        Some(Status::Completed) => Some(Done::Completed),
        Some(Status::Skipped) => Some(Done::Skipped),
        Some(Status::Open(_)) => None,
        None if passes == Some(true) => Some(Done::Completed),
        None => skipped.then_some(Done::Skipped),
    }
}

fn read_criteria(checker: &mut Checker<'_>, at: &At<'_>, story: &Node) -> Vec<Criterion> {
    let expected = "an array of criteria (strings, or objects with `text`)";
    let items = checker.items(at, story, "acceptanceCriteria", expected);
    let list = At::Key(at, "acceptanceCriteria");
    let mut criteria = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let at = At::Index(&list, index);
        let own_id = || format!("AC-{}", index + 1);
        match &item.value {
            Value::Text(text) if !text.contains('\0') => {
                criteria.push(Criterion { id: own_id(), text: text.clone(), test_command: None });
            }
            Value::Text(_) => checker.report(&at, item, Defect::Nul),
            Value::Object(_) => {
                checker.unique_keys(&at, item, &["id", "text", "testCommand"]);
                let id = item.present("id").and_then(|id| checker.id(&At::Key(&at, "id"), id));
                let test_command = checker.filled(&at, item, "testCommand");
                match checker.filled(&at, item, "text") {
                    Some(text) => criteria.push(Criterion { id: id.unwrap_or_else(own_id), text, test_command }),
                    None if item.present("text").is_none_or(|text| matches!(text.value, Value::Text(_))) => {
                        checker.report(&At::Key(&at, "text"), item, Defect::Absent { what: "the criterion's `text`" });
                    }
                    None => {}
                }
            }
            _ => {
                let expected = "a criterion (a string, or an object with `text`)";
                checker.report(&at, item, Defect::WrongType { expected, found: item.found() });
            }
        }
    }
    criteria
}
