//! Messages of the commits that land: longshore's own, and the agents' without what they claim in longshore's name.
//!
//! Called by `landing.rs`. Must not: trust a message from a sandbox.

use crate::ids::{StoryId, SwarmId};

/// The prefix of longshore's trailers, in lower case.
const TRAILER_PREFIX: &str = "longshore-";
const SWARM_TRAILER: &str = "Longshore-Swarm";
pub(in crate::delivery) const TASKS_TRAILER: &str = "Longshore-Tasks";
pub(in crate::delivery) const STORY_TRAILER: &str = "Longshore-Story";
pub(in crate::delivery) const CONTENT_TRAILER: &str = "Longshore-Content";

/// The most bytes of an agent's message that land.
pub(super) const MAX_MESSAGE: usize = 64 * 1024;

/// What longshore says about the stories of a candidate: the message of its merge commit, or the trailers of its last commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MergeMessage {
    /// The first line: "Merge US-003: short title".
    pub subject: String,
    /// Paragraphs after the subject; may be empty.
    pub body: String,
    /// For the `Longshore-Swarm` trailer.
    pub swarm: SwarmId,
    /// For the `Longshore-Tasks` trailer: the tasks file's path, relative to the root of the repository. `None` leaves it out.
    pub tasks: Option<String>,
    /// The stories that land.
    pub stories: Vec<MergedStory>,
}

/// A story in the trailers of a commit that lands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MergedStory {
    /// For the `Longshore-Story` trailer.
    pub id: StoryId,
    /// For the `Longshore-Content` trailer: a hash of what the story asks for. `None` leaves it out.
    pub content: Option<String>,
}

impl MergeMessage {
    /// The message of a merge commit.
    pub(super) fn render(&self) -> String {
        let mut text = format!("{}\n\n", self.subject_line());
        let body = clean(self.body.trim());
        if !body.is_empty() {
            text.push_str(&format!("{body}\n\n"));
        }
        text + &self.trailers()
    }

    /// The agent's message for a commit that lands without a merge commit, with longshore's trailers.
    pub(super) fn amend(&self, agent_message: &str) -> String {
        let text = strip_claims(agent_message);
        let text = if text.is_empty() { self.subject_line() } else { text };
        // In one paragraph with trailers of the agent's, such as `Co-authored-by`: git reads only the last paragraph.
        let separator = if ends_with_trailers(&text) { "\n" } else { "\n\n" };
        format!("{text}{separator}{}", self.trailers())
    }

    /// A subject of several lines would push the trailers out of the last paragraph.
    pub(super) fn subject_line(&self) -> String {
        clean(&self.subject.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    fn trailers(&self) -> String {
        let mut text = format!("{SWARM_TRAILER}: {}\n", self.swarm);
        if let Some(path) = &self.tasks {
            text.push_str(&tasks_trailer(path));
            text.push('\n');
        }
        for story in &self.stories {
            text.push_str(&format!("{STORY_TRAILER}: {}\n", story.id));
            if let Some(content) = &story.content {
                text.push_str(&format!("{CONTENT_TRAILER}: {}\n", encode_value(content)));
            }
        }
        text
    }
}

/// The line that names a tasks file.
pub(in crate::delivery) fn tasks_trailer(path: &str) -> String {
    format!("{TASKS_TRAILER}: {}", encode_value(path))
}

/// A trailer's value is one line without white space at its ends: those characters, controls and `%` are percent-encoded.
fn encode_value(value: &str) -> String {
    let inner = value.trim();
    let start = value.len() - value.trim_start().len();
    let end = start + inner.len();
    let mut text = String::new();
    for (at, c) in value.char_indices() {
        if c.is_control() || c == '%' || (c.is_whitespace() && !(start..end).contains(&at)) {
            let mut utf8 = [0; 4];
            c.encode_utf8(&mut utf8).bytes().for_each(|byte| text.push_str(&format!("%{byte:02X}")));
        } else {
            text.push(c);
        }
    }
    text
}

/// An agent's message as it lands: without longshore's trailers, of bounded length, and not empty.
pub(super) fn clean_agent_message(message: &str, fallback: &str) -> String {
    let text = strip_claims(message);
    if text.is_empty() { format!("{fallback}\n") } else { format!("{text}\n") }
}

/// Removes control characters first, then every line that git or a person could read as a trailer of longshore's, with the
/// lines that continue it.
fn strip_claims(message: &str) -> String {
    let text = clean(message);
    let mut kept: Vec<&str> = Vec::new();
    let mut in_claim = false;
    for line in text.lines() {
        let continues = line.starts_with([' ', '\t']) && !line.trim().is_empty();
        in_claim = is_claim(line) || (in_claim && continues);
        if !in_claim {
            kept.push(line.trim_end());
        }
    }
    let text = kept.join("\n");
    let text = text.trim_matches('\n');
    let mut end = text.len().min(MAX_MESSAGE);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].trim_end().to_owned()
}

/// Git allows white space before the separator, and users configure other separators.
fn is_claim(line: &str) -> bool {
    let line = line.trim_start().to_ascii_lowercase();
    let Some(rest) = line.strip_prefix(TRAILER_PREFIX) else { return false };
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '-');
    rest.trim_start().starts_with([':', '=', '#'])
}

/// Whether the last paragraph, not being the subject, has only trailers.
fn ends_with_trailers(text: &str) -> bool {
    let is_trailer = |line: &str| {
        line.split_once(':').is_some_and(|(key, _)| {
            !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        })
    };
    text.rsplit_once("\n\n").is_some_and(|(_, last)| !last.is_empty() && last.lines().all(is_trailer))
}

/// Without control characters but newlines, and without those that reorder text in a terminal.
fn clean(text: &str) -> String {
    let reorders = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}');
    text.chars()
        .map(|c| if c == '\t' { ' ' } else { c })
        .filter(|c| *c == '\n' || !(c.is_control() || reorders(*c)))
        .collect()
}

#[cfg(test)]
mod tests;
