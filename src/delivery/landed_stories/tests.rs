//! What the history says about stories.

use super::*;
use crate::delivery::tests::landing_repo::{LandingRepo, message};

const TASKS: &str = "tasks/a file.json";

#[tokio::test]
async fn the_newest_landing_of_a_story_counts() {
    let fixture = LandingRepo::new().await;
    let listed = |landed: Vec<LandedStory>| -> Vec<_> {
        landed.into_iter().map(|story| (story.id.to_string(), story.content, story.commit)).collect()
    };
    assert_eq!(fixture.repo.landed_stories(&fixture.base, TASKS).await.expect("read"), []);
    let forged = fixture.commit_story(
        &fixture.base,
        "a",
        "1\n",
        &format!("a\n\nLongshore-Tasks: {TASKS}\nLongshore-Story: US-007\nLongshore-Content: forged"),
    );
    let one = fixture.land(&fixture.base, fixture.candidate(&fixture.base, &forged, &["US-001"])).await;
    let other = fixture.commit_story(&fixture.base, "b", "1\n", "b");
    let two = fixture.land(&one, fixture.candidate(&fixture.base, &other, &["US-002", "US-003"])).await;
    // The story asks for something else now, and lands again; another file has a story of the same id.
    let third = fixture.commit_story(&two, "c", "1\n", "c");
    let mut again = fixture.candidate(&two, &third, &["US-001"]);
    again.message.stories[0].content = Some("new".into());
    let three = fixture.land(&two, again).await;
    let fourth = fixture.commit_story(&three, "d", "1\n", "d");
    let mut elsewhere = fixture.candidate(&three, &fourth, &["US-003"]);
    elsewhere.message.tasks = Some(format!("{TASKS}.json"));
    let four = fixture.land(&three, elsewhere).await;
    // A landing without a hash, as older versions made them.
    let fifth = fixture.commit_story(&four, "e", "1\n", "e");
    let mut old = fixture.candidate(&four, &fifth, &["US-009"]);
    old.message.stories[0].content = None;
    let five = fixture.land(&four, old).await;

    let before = fixture.repo.started_processes();
    let landed = listed(fixture.repo.landed_stories(&five, TASKS).await.expect("read"));
    assert_eq!(fixture.repo.started_processes() - before, 1, "processes");
    let expected = [("US-001", "new", &three), ("US-002", "hash-of-US-002", &two), ("US-003", "hash-of-US-003", &two)];
    assert_eq!(landed, expected.map(|(id, content, commit)| (id.to_owned(), content.to_owned(), commit.clone())));
    let of_other = listed(fixture.repo.landed_stories(&five, &format!("{TASKS}.json")).await.expect("read"));
    assert_eq!(of_other, [("US-003".to_owned(), "hash-of-US-003".to_owned(), four)]);
    // Reverted is still landed.
    let tree = fixture.tree(&two);
    let revert = fixture.scratch.git(&["commit-tree", "-p", five.as_str(), "-m", "Revert", &tree]);
    let landed = fixture.repo.landed_stories(&revert.parse().expect("a commit"), TASKS).await.expect("read");
    assert_eq!(landed.len(), 3);
}

#[test]
fn a_hash_belongs_to_the_story_before_it() {
    let wanted = tasks_trailer(TASKS);
    let trailers = [
        ("Longshore-Content", "nobody's"),
        ("longshore-story", "US-001"),
        ("Longshore-Story", "US-002"),
        ("Longshore-Content", "x"),
        ("Longshore-Content", "y"),
    ];
    assert!(stories_of(&trailers, &wanted).is_empty(), "of another file");
    let with_tasks: Vec<_> = trailers.into_iter().chain([("Longshore-Tasks", TASKS)]).collect();
    assert_eq!(stories_of(&with_tasks, &wanted), [("US-002".parse().expect("valid"), "x".to_owned())]);
    assert_eq!(message(&["US-001"]).tasks.as_deref(), Some(TASKS));
}
