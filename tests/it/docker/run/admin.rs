//! What a person decides about real swarms: high risk, and what had failed; and who hears of it meanwhile.

use super::*;

#[test]
fn high_risk_is_approved_during_and_after_the_swarm() {
    let scratch = SwarmFixture::new();
    let risky = |number| with_fields(story(number, "echo risky > f$LONGSHORE_STORY"), json!({ "riskLevel": "high" }));
    let stories = json!([
        risky(1),
        depending_on(story(2, "echo 2 > f2"), &[1]),
        story(3, &format!("{WAIT_FOR_GO}echo 3 > f3")),
        risky(4)
    ]);
    let tasks = scratch.tasks("feat/risk", stories);
    let hear = "echo \"$LONGSHORE_ESCALATION_TYPE $LONGSHORE_ESCALATION_SEVERITY\" >> .longshore/heard";
    let running = scratch.start(&["run", &tasks, "--yes", "--notify", hear]);
    let sandbox = scratch.sandboxes(1).remove(0);
    scratch.longshore(&["admin", "approve", "US-001"]).expect(0, &["applied by the running swarm"]);
    eventually("what was approved lands, and what depends on it", || {
        (scratch.state().story(2)["status"] == "completed").then_some(())
    });
    sandbox.release();
    let ran = running.wait().expect(4, &["US-004 waits for the admin: awaiting approval", "exit code 4"]);
    assert!(!ran.err.contains("a notification failed"), "{}", ran.err);
    assert_eq!(scratch.state().story(4)["waitsFor"]["what"], "approval");
    let notified = || std::fs::read_to_string(scratch.root().join(".longshore/heard")).expect("heard");
    assert_eq!(notified(), "permission_denied critical\n".repeat(2));

    scratch.longshore(&["admin", "answer", "US-004", "with care"]).expect(0, &["applies it"]);
    scratch.longshore(&["resume"]).expect(0, &["4 landed"]);
    assert_eq!(notified().lines().count(), 2, "nothing is told twice");
    scratch.longshore(&["ssot", "check"]).expect(0, &["0 errors, 0 warnings"]);
    scratch.longshore(&["admin", "list"]).expect(0, &["waits for you"]);
}

#[test]
fn a_finished_swarm_retries_failed_stories_on_request() {
    let scratch = SwarmFixture::new();
    let late = "test \"$LONGSHORE_ATTEMPT\" -ge 3 && echo 1 > f1";
    let tasks = scratch.tasks(
        "feat/late",
        json!([story(1, late), depending_on(story(2, "echo 2 > f2"), &[1]), story(3, "echo 3 > f3")]),
    );
    scratch.longshore(&["run", &tasks]).expect(1, &["1 landed, 1 failed, 1 skipped"]);
    assert!(!scratch.engine_resources().iter().any(|name| name.contains("-work")), "its volumes are gone");
    scratch.longshore(&["resume"]).expect(1, &["there is nothing to resume"]);
    scratch.longshore(&["admin", "abort", "US-001"]).expect(2, &["there is nothing to abort"]);
    scratch.longshore(&["admin", "retry", "US-001"]).expect(0, &["applies it"]);
    scratch.longshore(&["resume"]).expect(0, &["3 landed"]);
    let content = ["f1", "f2", "f3"].map(|path| scratch.show("feat/late", path));
    assert_eq!(content, ["1", "2", "3"]);
    let attempts = scratch.state().story(3)["attempts"].clone();
    assert_eq!(attempts, 1, "what had landed is not run again");
    assert!(
        !scratch.engine_resources().iter().any(|name| name.contains("-work")),
        "and what was made again is gone too"
    );
}
