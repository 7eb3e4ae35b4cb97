//! Which of the three shapes a tasks file has: by the keys that are in it, never by its version number.
//!
//! | shape | the root has | a story has |
//! |---|---|---|
//! | canonical | `metadata` with `title`, `branchName` or `type` | `status`, or none of these |
//! | passes | the same | `passes` or `skipped`, and none has `status` |
//! | Ralph | `project`, `name` or `branchName`; any `metadata` has none of the above | `passes` |
//!
//! All of them have `userStories`. Called by `import.rs`.

use super::Shape;
use crate::json::{JsonNode, JsonValue};

/// The shape; nothing where it is none of them.
pub(super) fn detect(root: &JsonNode) -> Option<Shape> {
    let stories = root.get_non_null("userStories")?;
    let metadata = root.get_non_null("metadata").filter(|node| node.members().is_some());
    let has_any = |node: &JsonNode, keys: &[&str]| keys.iter().any(|key| node.get_non_null(key).is_some());

    let described = metadata.is_some_and(|node| has_any(node, &["title", "branchName", "type"]));
    if !described && has_any(root, &["project", "name", "branchName"]) {
        return Some(Shape::Ralph);
    }
    metadata?;
    let stories: &[JsonNode] = if let JsonValue::Array(items) = &stories.value { items } else { &[] };
    let any_has = |keys: &[&str]| stories.iter().any(|story| has_any(story, keys));
    let passes = !any_has(&["status"]) && any_has(&["passes", "skipped"]);
    Some(if passes { Shape::Passes } else { Shape::Canonical })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn the_shape_is_detected_from_the_content() {
        use Shape::{Canonical, Passes, Ralph};
        for (text, shape) in [
            (r#"{"metadata":{"title":"x"},"userStories":[{"status":"pending"}]}"#, Some(Canonical)),
            (
                r#"{"schemaVersion":"2.0","metadata":{"title":"x"},"userStories":[{"status":"pending"}]}"#,
                Some(Canonical),
            ),
            (r#"{"schemaVersion":"3.0","metadata":{"title":"x"},"userStories":[{"passes":false}]}"#, Some(Passes)),
            (r#"{"metadata":{"title":"x"},"userStories":[{"skipped":true}]}"#, Some(Passes)),
            (r#"{"metadata":{"title":"x"},"userStories":[{}]}"#, Some(Canonical)),
            (r#"{"metadata":{},"userStories":[]}"#, Some(Canonical)),
            (r#"{"project":"x","branchName":"b","userStories":[{"passes":true}]}"#, Some(Ralph)),
            (r#"{"name":"x","metadata":{"updatedAt":"now"},"userStories":[]}"#, Some(Ralph)),
            (r#"{"name":"x","metadata":{"title":"t"},"userStories":[]}"#, Some(Canonical)),
            (r#"{"userStories":[]}"#, None),
            (r#"{"metadata":{"title":"x"}}"#, None),
            (r#"{"metadata":"x","userStories":[]}"#, None),
            (r#"[{"id":"US-001"}]"#, None),
            (r#""userStories""#, None),
        ] {
            assert_eq!(detect(&json::parse(text).expect("valid JSON")), shape, "{text}");
        }
    }
}
