//! JSON tree -> [`TasksFile`], with all problems at once.
//!
//! The keys by shape (`null` is absent, other keys are ignored):
//!
//! | what | canonical and passes | Ralph |
//! |---|---|---|
//! | title | `metadata.title`, required | `project`, else `name`, required |
//! | branch, type, description | `metadata.branchName`, `.type`, `.description` | root `branchName`, `type`, `description` |
//! | `maxConcurrency`, `verify`, `mailbox`, `mesh` | `metadata` | `metadata` |
//!
//! A story, in every shape: `id` and `title` (required), `description`, `notes`, `acceptanceCriteria[]` (a string or
//! `{id?, text, testCommand?}`), `priority` (a whole number, or `high`, `medium`, `low` for 1, 2, 3), `status`, `passes`,
//! `skipped`, dependencies (arrays of ids under `dependsOn`, `deps` and `blockedBy`; all count), `verify` (a string or an
//! array), `command` (ignored if blank), `touches[]`, `riskLevel`, `mailbox` (`{agent?, role?}`), `mesh`
//! (`{header: {NAME: {...}}}`).
//!
//! Used by `load.rs` and `write_back.rs`.

use std::path::Path;

use super::error::{MAX_FILE_BYTES, MAX_ROLE_CHARS, MAX_STORIES, TasksError, TasksProblemKind};
use super::field_reader::FieldReader;
use super::graph::{self, DependencyRef, StoryDraft};
use super::tasks_file::{AgentIdentity, Criterion, DoneStatus, RiskLevel, Shape, Story, TasksFile};
use super::{header_blocks, shape};
use crate::json::text::{excerpt, single_line};
use crate::json::{self, JsonNode, JsonPath, JsonValue};

const DEPENDENCY_KEYS: [&str; 3] = ["dependsOn", "deps", "blockedBy"];
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

const STATUS_WORDS: [(&str, ParsedStatus); 5] = [
    ("pending", ParsedStatus::Open("pending")),
    ("in_progress", ParsedStatus::Open("in_progress")),
    ("completed", ParsedStatus::Completed),
    ("failed", ParsedStatus::Open("failed")),
    ("skipped", ParsedStatus::Skipped),
];
const PRIORITY_WORDS: [(&str, i64); 3] = [("high", 1), ("medium", 2), ("low", 3)];
const RISK_WORDS: [(&str, RiskLevel); 3] =
    [("low", RiskLevel::Low), ("medium", RiskLevel::Medium), ("high", RiskLevel::High)];

#[derive(Clone, Copy)]
enum ParsedStatus {
    Open(&'static str),
    Completed,
    Skipped,
}

pub(super) struct ImportedFile {
    pub file: TasksFile,
    /// Its spans count from `text_start`.
    pub root: JsonNode,
    /// The start of the text in the bytes: after the BOM.
    pub text_start: usize,
}

/// Reads the bytes of a tasks file; `path` is for messages.
pub(super) fn import(bytes: &[u8], path: &Path) -> Result<ImportedFile, TasksError> {
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(TasksError::for_file(path, TasksProblemKind::TooLarge));
    }
    let whole = std::str::from_utf8(bytes).map_err(|error| {
        let offset = error.valid_up_to();
        TasksError::for_file(path, TasksProblemKind::NotUtf8 { offset, byte: bytes[offset] })
    })?;
    let text = whole.strip_prefix(UTF8_BOM).unwrap_or(whole);
    if text.trim().is_empty() {
        return Err(TasksError::for_file(path, TasksProblemKind::Empty));
    }
    let mut reader = FieldReader::new(text);
    let root = json::parse(text).map_err(|syntax| {
        let found = match text[syntax.offset..].chars().next() {
            None => "the end of the file".to_owned(),
            Some(c) if c.is_control() => format!("`{}`", c.escape_default()),
            Some(c) => format!("`{c}`"),
        };
        let (line, column) = (reader.line_index.line(syntax.offset), reader.line_index.column(syntax.offset));
        TasksError::for_file(path, TasksProblemKind::NotJson { line, column, expected: syntax.expected, found })
    })?;
    let file = read_file(&mut reader, &root, path);
    match file {
        Some(file) if reader.problems.is_empty() => {
            Ok(ImportedFile { file, root, text_start: whole.len() - text.len() })
        }
        _ => Err(TasksError::new(path, reader.problems)),
    }
}

/// `None` only if a problem was reported.
fn read_file(reader: &mut FieldReader<'_>, root: &JsonNode, path: &Path) -> Option<TasksFile> {
    let Some(shape) = shape::detect(root) else {
        reader.report(&JsonPath::Root, root, TasksProblemKind::UnknownShape { found: root.describe() });
        return None;
    };
    reader.check_unique_keys(&JsonPath::Root, root, &ROOT_KEYS);
    let nothing = JsonNode { span: root.span.clone(), value: JsonValue::Null };
    let metadata_at = JsonPath::Key(&JsonPath::Root, "metadata");
    let metadata = match root.get_non_null("metadata") {
        Some(node) if node.members().is_some() => node,
        Some(node) => {
            reader.report_wrong_type(&metadata_at, node, "an object");
            &nothing
        }
        None => &nothing,
    };
    reader.check_unique_keys(&metadata_at, metadata, &METADATA_KEYS);

    let (title, about, about_at) = match shape {
        Shape::Canonical | Shape::Passes => {
            (reader.required_line(&metadata_at, metadata, "title", "`metadata.title`"), metadata, &metadata_at)
        }
        Shape::Ralph => {
            let key = if root.get_non_null("project").is_some() { "project" } else { "name" };
            (reader.required_line(&JsonPath::Root, root, key, "`project` or `name`"), root, &JsonPath::Root)
        }
    };
    let kind = reader.string(about_at, about, "type").unwrap_or_default();
    let branch = reader.non_blank_string(about_at, about, "branchName");
    let description = reader.string(about_at, about, "description").unwrap_or_default();
    let max_concurrency = reader.positive_integer(&metadata_at, metadata, "maxConcurrency");
    let verify = reader.string_or_strings(&metadata_at, metadata, "verify");
    let mesh = header_blocks::read_header_blocks(reader, &metadata_at, metadata);
    let mailbox = reader.boolean(&metadata_at, metadata, "mailbox");
    let stories = read_stories(reader, root)?;
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

fn read_stories(reader: &mut FieldReader<'_>, root: &JsonNode) -> Option<Vec<Story>> {
    let reported = reader.problems.len();
    let items = reader.array(&JsonPath::Root, root, "userStories", "an array of stories");
    let at = JsonPath::Key(&JsonPath::Root, "userStories");
    let node = root.get_non_null("userStories")?;
    if items.is_empty() && reader.problems.len() == reported {
        reader.report(&at, node, TasksProblemKind::NoStories);
    }
    if items.len() > MAX_STORIES {
        reader.report(&at, node, TasksProblemKind::TooManyStories { count: items.len() });
    }
    if items.is_empty() || items.len() > MAX_STORIES {
        return None;
    }
    let drafts: Vec<StoryDraft<'_>> =
        items.iter().enumerate().map(|(index, item)| read_draft(reader, &JsonPath::Index(&at, index), item)).collect();
    let links = graph::resolve(reader, &drafts);

    let mut stories = Vec::with_capacity(items.len());
    for (index, (item, link)) in items.iter().zip(links).enumerate() {
        reader.current_story = drafts[index].id.clone();
        stories.extend(read_story(reader, &JsonPath::Index(&at, index), index, item, link));
    }
    reader.current_story = None;
    Some(stories)
}

fn read_draft<'a>(reader: &mut FieldReader<'_>, at: &JsonPath<'_>, node: &'a JsonNode) -> StoryDraft<'a> {
    let mut draft = StoryDraft { node, id: None, dependencies: Vec::new() };
    if node.members().is_none() {
        reader.report_wrong_type(at, node, "a story (an object)");
        return draft;
    }
    match node.get_non_null("id") {
        Some(id) => draft.id = reader.id(&JsonPath::Key(at, "id"), id),
        None => reader.report(&JsonPath::Key(at, "id"), node, TasksProblemKind::Missing { what: "the story's `id`" }),
    }
    reader.current_story = draft.id.clone();
    for key in DEPENDENCY_KEYS {
        let items = reader.array(at, node, key, "an array of story ids, like `[\"US-001\"]`");
        let at = JsonPath::Key(at, key);
        for (index, item) in items.iter().enumerate() {
            if let Some(id) = reader.id(&JsonPath::Index(&at, index), item) {
                draft.dependencies.push(DependencyRef { id, key, index, node: item });
            }
        }
    }
    reader.current_story = None;
    draft
}

fn read_story(
    reader: &mut FieldReader<'_>,
    at: &JsonPath<'_>,
    index: usize,
    node: &JsonNode,
    link: graph::ResolvedStory,
) -> Option<Story> {
    node.members()?;
    reader.check_unique_keys(at, node, &STORY_KEYS);
    let title = reader.required_line(at, node, "title", "the story's `title`");
    let description = reader.string(at, node, "description").unwrap_or_default();
    let criteria = read_criteria(reader, at, node);
    let priority = reader.integer_or_keyword(at, node, "priority", &PRIORITY_WORDS).unwrap_or(index as i64 + 1);
    let done = read_done(reader, at, node);
    let notes = reader.string(at, node, "notes").unwrap_or_default();
    let verify = reader.string_or_strings(at, node, "verify");
    let command = reader.non_blank_string(at, node, "command");
    let touches = reader.strings(at, node, "touches");
    let risk = reader.keyword(at, node, "riskLevel", &RISK_WORDS).unwrap_or_default();
    let mesh = header_blocks::read_header_blocks(reader, at, node);
    let mailbox = read_agent(reader, at, node);
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

fn read_agent(reader: &mut FieldReader<'_>, at: &JsonPath<'_>, story: &JsonNode) -> AgentIdentity {
    let Some(node) = story.get_non_null("mailbox") else { return AgentIdentity::default() };
    let at = JsonPath::Key(at, "mailbox");
    if node.members().is_none() {
        reader.report_wrong_type(&at, node, "an object with `agent` and `role`");
        return AgentIdentity::default();
    }
    reader.check_keys(&at, node, &["agent", "role"]);
    let mut identity = AgentIdentity::default();
    if let (Some(value), Some(text)) = (node.get_non_null("agent"), reader.non_blank_string(&at, node, "agent")) {
        match text.parse() {
            Ok(agent) => identity.agent = Some(agent),
            Err(_) => {
                reader.report(
                    &JsonPath::Key(&at, "agent"),
                    value,
                    TasksProblemKind::InvalidAgentId { found: excerpt(&text) },
                );
            }
        }
    }
    if let (Some(value), Some(text)) = (node.get_non_null("role"), reader.non_blank_string(&at, node, "role")) {
        let role = single_line(&text);
        // It becomes a cell of a table.
        if role.contains('|') || role.chars().count() > MAX_ROLE_CHARS {
            reader.report(&JsonPath::Key(&at, "role"), value, TasksProblemKind::InvalidRole { found: excerpt(&role) });
        } else {
            identity.role = Some(role);
        }
    }
    identity
}

/// The story's status in the file. `passes: true` takes precedence over `skipped: true`.
fn read_done(reader: &mut FieldReader<'_>, at: &JsonPath<'_>, node: &JsonNode) -> Option<DoneStatus> {
    let status = reader.keyword(at, node, "status", &STATUS_WORDS);
    let passes = reader.boolean(at, node, "passes");
    let skipped = reader.boolean(at, node, "skipped").unwrap_or(false);
    let contradicted = match (status, passes) {
        (Some(ParsedStatus::Completed), Some(false)) => Some("completed"),
        (Some(ParsedStatus::Skipped), Some(true)) => Some("skipped"),
        (Some(ParsedStatus::Open(word)), Some(true)) => Some(word),
        _ => None,
    };
    if let (Some(status), Some(passes), Some(value)) = (contradicted, passes, node.get_non_null("passes")) {
        let status = status.to_owned();
        reader.report(&JsonPath::Key(at, "passes"), value, TasksProblemKind::ConflictingStatus { status, passes });
    }
    match status {
        Some(ParsedStatus::Completed) => Some(DoneStatus::Completed),
        Some(ParsedStatus::Skipped) => Some(DoneStatus::Skipped),
        Some(ParsedStatus::Open(_)) => None,
        None if passes == Some(true) => Some(DoneStatus::Completed),
        None => skipped.then_some(DoneStatus::Skipped),
    }
}

fn read_criteria(reader: &mut FieldReader<'_>, at: &JsonPath<'_>, story: &JsonNode) -> Vec<Criterion> {
    let expected = "an array of criteria (strings, or objects with `text`)";
    let items = reader.array(at, story, "acceptanceCriteria", expected);
    let list = JsonPath::Key(at, "acceptanceCriteria");
    let mut criteria = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let at = JsonPath::Index(&list, index);
        let own_id = || format!("AC-{}", index + 1);
        match &item.value {
            JsonValue::Text(text) if !text.contains('\0') => {
                criteria.push(Criterion { id: own_id(), text: text.clone(), test_command: None });
            }
            JsonValue::Text(_) => reader.report(&at, item, TasksProblemKind::NulCharacter),
            JsonValue::Object(_) => {
                reader.check_unique_keys(&at, item, &["id", "text", "testCommand"]);
                let id = item.get_non_null("id").and_then(|id| reader.id(&JsonPath::Key(&at, "id"), id));
                let test_command = reader.non_blank_string(&at, item, "testCommand");
                match reader.non_blank_string(&at, item, "text") {
                    Some(text) => criteria.push(Criterion { id: id.unwrap_or_else(own_id), text, test_command }),
                    None if item.get_non_null("text").is_none_or(|text| matches!(text.value, JsonValue::Text(_))) => {
                        let kind = TasksProblemKind::Missing { what: "the criterion's `text`" };
                        reader.report(&JsonPath::Key(&at, "text"), item, kind);
                    }
                    None => {}
                }
            }
            _ => {
                reader.report_wrong_type(&at, item, "a criterion (a string, or an object with `text`)");
            }
        }
    }
    criteria
}
