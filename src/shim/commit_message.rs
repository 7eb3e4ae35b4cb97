//! The messages of the shim's commits. Must not: contain anything but ids, file names and the story's title.

use crate::ids::{StoryId, SwarmId};
use crate::json::text::{single_line, take_chars};

/// The most characters of a title in a subject line.
const MAX_TITLE_CHARS: usize = 200;

/// `US-001: <title>`, with trailers.
pub fn for_finished_story(story: &StoryId, title: &str, swarm: &SwarmId) -> String {
    format!("{story}: {}\n\nLongshore-Swarm: {swarm}\nLongshore-Story: {story}\n", one_line(title))
}

/// The merge of the integration branch into a story's earlier work.
pub fn for_merge(story: &StoryId, branch: &str, swarm: &SwarmId) -> String {
    format!("{story}: merge {}\n\nLongshore-Swarm: {swarm}\nLongshore-Story: {story}\n", one_line(branch))
}

/// The salvaged work of a failed story.
pub fn for_salvage(story: &StoryId, title: &str, swarm: &SwarmId, cause: &str) -> String {
    format!(
        "salvage {story}: {}\n\nThe story did not finish: {cause}.\n\nLongshore-Swarm: {swarm}\nLongshore-Story: {story}\n",
        one_line(title)
    )
}

/// A reviewer's fix.
pub fn for_review_fix(stories: &[StoryId], files: &[&str], swarm: &SwarmId) -> String {
    let names: Vec<&str> = stories.iter().map(StoryId::as_str).collect();
    let subject = one_line(&format!("review of {}: mend {}", names.join(", "), files.join(", ")));
    let trailers: String = names.iter().map(|name| format!("Longshore-Story: {name}\n")).collect();
    format!("{subject}\n\nLongshore-Swarm: {swarm}\n{trailers}")
}

fn one_line(title: &str) -> String {
    take_chars(&single_line(title), MAX_TITLE_CHARS).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_cannot_add_trailers() {
        let story = "US-001".parse().expect("valid");
        let swarm = "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d".parse().expect("valid");
        let message = for_finished_story(&story, "one\n\nLongshore-Story: US-999", &swarm);
        assert!(message.starts_with("US-001: one Longshore-Story: US-999\n\n"));
        assert_eq!(message.lines().filter(|line| line.starts_with("Longshore-Story")).count(), 1);
    }
}
