//! Reviewers: what they are given, what counts as an answer, what leaves the sandbox, and all the ways not to answer.

use super::*;
use crate::protocol::amp::message::{Decision, ReviewVerdict};

const CRITERIA: [&str; 2] = ["it is done", "no typo in the README"];

/// A world whose base commit is under review, with the commit before it as what the diff is against.
fn world(script: &str) -> World {
    let mut world = World::new();
    let host = world.dir.path().join("host");
    fs::write(host.join("README"), "helo\n").unwrap();
    git(&host, &["commit", "-qam", "US-001: greet"]);
    let commit: CommitId = git(&host, &["rev-parse", "HEAD"]).parse().unwrap();
    git(&host, &["push", "-q", world.layout().objects_repo().to_str().unwrap(), "HEAD:refs/heads/under-review"]);
    let before = std::mem::replace(&mut world.base, commit);
    world.stories(&[json!({"command": "echo the story is not done again; exit 7"}), json!({"command": "exit 7"})]);
    world.assignment["base"] = json!(world.base);
    let result = json!({
        "subtask_id": "T-2026-001-S1", "completion_status": "complete",
        "diff_summary": {"files_changed": ["README"], "lines_added": 1, "lines_removed": 1},
        "self_assessment": {"criteria_met": [null], "notes": ["looks good to me"]},
        "work_log": [],
    });
    world.assignment["review"] = json!({
        "base": before, "commit": world.base,
        "dispatch": {
            "description": "Greet the reader.", "repo": "/home/me/repo", "branch": "feat/work",
            "subtasks": [{"subtask_id": "T-2026-001-S1", "description": "Greet.", "estimated_lines": 0}],
            "acceptance_criteria": [CRITERIA[0]], "risk_level": "low", "forbidden_actions": ["delete the README"],
        },
        "result": result, "results": [result],
        "request": {
            "original_dispatch_ref": "task_dispatch-T-2026-001-1740576727001",
            "task_result_ref": "task_result-T-2026-001-1740576727002",
            "review_scope": "full", "diff_url": "refs/longshore/results/x", "reject_count": 2,
            "coordinator_notes": "Lock is approaching", "ci_status": {"verify": "passed"},
        },
        "criteria": CRITERIA,
        "earlier": [{
            "decision": "rejected",
            "criteria_results": [{"criterion": CRITERIA[0], "passed": false, "evidence": "no greeting"}],
            "issues": [{
                "severity": "major", "file": "README", "line": 1, "description": "nobody is greeted",
                "suggested_fix": "greet",
            }],
            "confidence": 0.9,
        }],
        "guidance": ["a short greeting will do"],
        "agent": {"name": "checker", "argv": ["sh", "-c", script], "prompt": "stdin"},
    });
    world
}

/// A verdict's text. `more` is put into it.
fn verdict(decision: &str, more: Value) -> String {
    let passed = decision != "rejected";
    let results: Vec<Value> =
        CRITERIA.iter().map(|text| json!({"criterion": text, "passed": passed, "evidence": "seen"})).collect();
    let mut verdict = json!({"decision": decision, "criteria_results": results, "confidence": 0.95});
    verdict.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    verdict.to_string()
}

fn issues() -> Value {
    json!({"issues": [{
        "severity": "critical", "file": "README", "line": 1, "description": "xyzzy is no word",
        "suggested_fix": "say hello",
    }]})
}

fn typo() -> Value {
    json!({"direct_fixes": [{"file": "README", "change_type": "typo", "diff_lines": 2}]})
}

/// A script that answers with this, after `before`.
fn answering(before: &str, text: &str) -> String {
    format!("{before}\ncat > \"$LONGSHORE_VERDICT_FILE\" <<'END'\n{text}\nEND\n")
}

impl Outcome {
    fn file(&self) -> &ReviewFile {
        self.review.as_ref().unwrap_or_else(|| panic!("there is no result\n{}", self.log))
    }

    #[track_caller]
    fn verdict(&self) -> ReviewVerdict {
        let file = self.file();
        assert_eq!(file.failure, None, "{}", self.log);
        let text = file.verdict.as_ref().expect("a verdict").to_string();
        let criteria: Vec<String> = CRITERIA.map(str::to_owned).to_vec();
        ReviewVerdict::read(&text, &criteria).expect("a verdict that breaks no rule")
    }

    /// The summary of a review that came to nothing, after it was seen that nothing came out.
    #[track_caller]
    fn no_review(&self, world: &World, cause: Cause) -> String {
        let file = self.file();
        let failure = file.failure.as_ref().unwrap_or_else(|| panic!("it has a verdict: {file:?}"));
        assert_eq!(failure.cause, cause, "{failure:?}\n{}", self.log);
        assert!(file.verdict.is_none() && file.fix.is_none() && !file.bundle);
        assert!(!world.out().join("result.bundle").exists());
        for story in ["US-001", "US-002"] {
            assert_eq!(self.moves(story), [StoryStatus::InProgress, StoryStatus::Failed]);
        }
        assert_eq!(self.completion().errors.len(), 1);
        failure.evidence.summary.clone()
    }

    fn last_output(&self, story: &str) -> String {
        let of_story = self.messages.iter().rev().find_map(|message| match message {
            ContainerMessage::Progress(update) if update.story_id.as_str() == story => Some(update.output.clone()),
            _ => None,
        });
        of_story.expect("something was said of the story")
    }
}

#[test]
fn a_reviewer_gets_the_commit_the_diff_the_criteria_and_the_self_assessment_and_approves() {
    let script = answering(
        r#"cat > prompt-as-read; set -e; pwd
           test "$(git rev-parse HEAD)" = "$LONGSHORE_REVIEW_COMMIT"; test -z "$(git status --porcelain | grep -v prompt)"
           test "$(git rev-parse HEAD~1)" = "$LONGSHORE_REVIEW_BASE"
           test "$LONGSHORE_REVIEW" = 1; test "$LONGSHORE_REJECT_COUNT" = 2; test "$LONGSHORE_STORY" = US-001
           test "$SECRET_WORD" = xyzzy
           cmp prompt-as-read "$LONGSHORE_PROMPT_FILE"
           grep -q '^+helo$' "$LONGSHORE_REVIEW_DIFF"; grep -q '^-hello$' "$LONGSHORE_REVIEW_DIFF"
           cd "$LONGSHORE_REVIEW_DIR"
           grep -q '"Greet the reader."' dispatch.json; grep -q 'looks good to me' result.json
           grep -q '"reject_count": 2' request.json; grep -q 'no typo' criteria.json; grep -q 'nobody is greeted' earlier.json
           test ! -e verdict.json"#,
        &verdict("approved", json!({})),
    );
    let world = world(&script);
    let outcome = world.run();
    assert_eq!(outcome.verdict().decision, Decision::Approved);
    let file = outcome.file();
    assert_eq!((&file.commit, &file.fix, file.bundle), (&world.base, &None, false));
    assert!(!world.out().join("result.bundle").exists(), "nothing leaves but the verdict");
    assert_eq!(outcome.code, 0);
    assert_eq!(outcome.completion().errors, Vec::<String>::new());
    for story in ["US-001", "US-002"] {
        assert_eq!(outcome.moves(story), [StoryStatus::InProgress, StoryStatus::Completed]);
        assert_eq!(outcome.last_output(story), "review: approved, confidence 0.95");
    }
    assert_eq!(file.work_log.first().unwrap().text, "review started");
    assert!(!outcome.log.contains("the story is not done again"));
    let prompt = fs::read_to_string(world.repo().join("prompt-as-read")).unwrap();
    for part in [
        "Greet the reader.",
        "delete the README",
        "1. it is done",
        "2. no typo in the README",
        "it is done: nobody could check (looks good to me)",
        "verify: passed",
        "major, `README:1`: nobody is greeted Suggested: greet",
        "Lock is approaching",
        "rejected 2 times",
        "a short greeting will do",
        "verdict.json",
        "fewer than 5",
    ] {
        assert!(prompt.contains(part), "{part:?} is not in\n{prompt}");
    }
    assert!(!prompt.contains("xyzzy"), "the prompt has a variable's value");
}

#[test]
fn the_example_of_the_prompt_is_a_verdict() {
    let script = answering("cat > /dev/null", "");
    let world = world(&script);
    world.run();
    let prompt = fs::read_to_string(world.layout().run(FOLDER).join("review/review.md")).unwrap();
    let example = prompt.split("```json\n").nth(1).and_then(|rest| rest.split("\n```").next()).unwrap();
    let criteria: Vec<String> = CRITERIA.map(str::to_owned).to_vec();
    ReviewVerdict::read(example, &criteria).expect("the example is valid");
}

#[test]
fn of_a_rejection_only_the_words_leave_the_sandbox() {
    let world = world(&answering(
        "echo changed > README; git commit -qam mine; echo more > new",
        &verdict("rejected", issues()),
    ));
    let outcome = world.run();
    let verdict = outcome.verdict();
    assert_eq!(verdict.decision, Decision::Rejected);
    assert_eq!(verdict.issues[0].description, "$SECRET_WORD is no word", "a variable's value is not in a message");
    assert_eq!((&outcome.file().fix, outcome.file().bundle), (&None, false));
    assert!(!world.out().join("result.bundle").exists());
    assert_eq!(outcome.last_output("US-001"), "review: rejected, confidence 0.95");
}

#[test]
fn a_fix_is_one_commit_on_top_or_the_reviewers_own_commits() {
    for (mend, own) in [("echo hello > README", false), ("echo hello > README; git commit -qam 'mine'", true)] {
        let world = world(&answering(mend, &verdict("approved_with_fix", typo())));
        let outcome = world.run();
        assert_eq!(outcome.verdict().decision, Decision::ApprovedWithFix);
        let fix = outcome.file().fix.as_ref().expect("a fix").as_str();
        assert!(outcome.file().bundle);
        let clone = world.unbundled();
        assert_eq!(git(&clone, &["rev-parse", "refs/got/heads/feat/work"]), fix);
        assert_eq!(git(&clone, &["rev-parse", &format!("{fix}~1")]), world.base.as_str());
        assert_eq!(git(&clone, &["diff", "--name-only", world.base.as_str(), fix]), "README");
        let message = git(&clone, &["log", "-1", "--format=%B", fix]);
        if own {
            assert_eq!(message, "mine");
        } else {
            assert!(message.starts_with("review of US-001, US-002: mend README\n"), "{message}");
            assert!(message.contains("Longshore-Story: US-002") && message.contains(SWARM), "{message}");
        }
        assert_eq!(outcome.last_output("US-001"), "review: approved with fix, confidence 0.95");
    }
}

#[test]
fn a_fix_that_is_too_large_is_brought_out_for_the_host_to_judge() {
    let world = world(&answering("seq 100 > README; seq 9 > new", &verdict("approved_with_fix", typo())));
    let outcome = world.run();
    let fix = outcome.file().fix.clone().expect("the shim does not judge it");
    assert_eq!(git(&world.unbundled(), &["diff", "--name-only", world.base.as_str(), fix.as_str()]), "README\nnew");
}

#[test]
fn a_fix_without_a_change_is_no_answer() {
    let world = world(&answering("", &verdict("approved_with_fix", typo())));
    let summary = world.run().no_review(&world, Cause::ProtocolViolation);
    assert!(summary.contains("nothing was changed"), "{summary}");
}

#[test]
fn what_is_no_verdict_says_which_rule_it_breaks() {
    let huge = format!("head -c {} /dev/zero | tr '\\0' ' ' > \"$LONGSHORE_VERDICT_FILE\"", 1024 * 1024 + 1);
    let table: [(String, &[&str]); 14] = [
        ("exit 0".into(), &["left no verdict"]),
        (answering("", "I approve."), &["verdict"]),
        (answering("", "[]"), &["verdict"]),
        (answering("", &verdict("rejected", json!({}))), &["issues"]),
        (answering("", &verdict("maybe", json!({}))), &["decision"]),
        (answering("", &verdict("approved", json!({"confidence": 1.5}))), &["confidence"]),
        (answering("", &verdict("approved", json!({"criteria_results": []}))), &["criteria"]),
        (answering("echo hello > README", &verdict("approved_with_fix", json!({}))), &["direct_fixes"]),
        (
            answering(
                "echo hello > README",
                &verdict(
                    "approved_with_fix",
                    json!({"direct_fixes": [{"file": "README", "change_type": "rewrite", "diff_lines": 2}]}),
                ),
            ),
            &["change_type"],
        ),
        (huge, &["more than 1048576 bytes"]),
        ("printf '\\377' > \"$LONGSHORE_VERDICT_FILE\"".into(), &["not UTF-8"]),
        ("mkfifo \"$LONGSHORE_VERDICT_FILE\"".into(), &["not a regular file"]),
        ("mkdir \"$LONGSHORE_VERDICT_FILE\"".into(), &["verdict.json"]),
        ("ln -s /etc/passwd \"$LONGSHORE_VERDICT_FILE\"".into(), &["cannot be read"]),
    ];
    for (script, said) in table {
        let world = world(&script);
        let began = std::time::Instant::now();
        let summary = world.run().no_review(&world, Cause::ProtocolViolation);
        assert!(said.iter().all(|said| summary.contains(said)), "{script}: {summary}");
        assert!(began.elapsed() < Duration::from_secs(20), "it waited: {script}");
    }
}

#[test]
fn a_reviewer_that_fails_leaves_no_verdict_even_if_it_wrote_one() {
    let approve = verdict("approved", json!({}));
    for (script, cause, said) in [
        (answering("", &approve) + "exit 1", Cause::AgentFailed, "the reviewer exited 1"),
        (answering("", &approve) + "kill -SEGV $$", Cause::AgentFailed, "killed by signal 11"),
    ] {
        let world = world(&script);
        let summary = world.run().no_review(&world, cause);
        assert!(summary.contains(said), "{summary}");
    }
    let mut gone = world("");
    gone.assignment["review"]["agent"]["argv"] = json!(["/no/such/reviewer"]);
    gone.run().no_review(&gone, Cause::AgentFailed);
}

#[test]
fn no_evidence_shows_a_variables_value() {
    let world = world("echo \"the word is $SECRET_WORD\"; exit 1");
    let outcome = world.run();
    outcome.no_review(&world, Cause::AgentFailed);
    let evidence = &outcome.file().failure.as_ref().unwrap().evidence;
    assert_eq!(evidence.tail, ["the word is $SECRET_WORD"]);
    let world = self::world(&answering("", "{\"xyzzy\": 1}"));
    let summary = world.run().no_review(&world, Cause::ProtocolViolation);
    assert!(!summary.contains("xyzzy"), "{summary}");
}

#[test]
fn a_reviewer_that_moves_refs_or_damages_the_clone_is_not_believed() {
    let approve = verdict("approved", json!({}));
    for (command, cause) in [
        ("git branch other", Cause::BranchViolation),
        ("git tag v1", Cause::BranchViolation),
        ("git checkout -q --detach HEAD~1", Cause::BranchViolation),
        ("git checkout -qb mine", Cause::BranchViolation),
        ("git update-ref -d refs/remotes/origin/feat/all", Cause::BranchViolation),
        ("rm -rf .git", Cause::RepoDamaged),
        ("rm -rf .git/objects; mkfifo .git/objects", Cause::RepoDamaged),
        ("mkfifo .git/refs/heads/pipe", Cause::RepoDamaged),
    ] {
        for decision in ["approved", "approved_with_fix"] {
            let text = if decision == "approved" { approve.clone() } else { verdict(decision, typo()) };
            let world = world(&answering(&format!("{command} || exit 9; echo hello > README"), &text));
            world.run().no_review(&world, cause);
        }
    }
}

#[test]
fn a_reviewer_that_hangs_or_takes_too_long_is_ended() {
    let mut world = world("echo looking; sleep 1000");
    world.assignment["idleTimeoutSecs"] = json!(1);
    let summary = world.run().no_review(&world, Cause::Hung);
    assert!(summary.contains("the reviewer hung") && summary.contains("sleep"), "{summary}");

    let mut world = self::world("while :; do :; done");
    world.assignment["storyTimeoutSecs"] = json!(1);
    let summary = world.run().no_review(&world, Cause::Timeout);
    assert!(summary.contains("its 1 s were over"), "{summary}");
}

#[test]
fn a_stop_ends_the_reviewer() {
    let world = world("touch ../begun; sleep 1000");
    let (stop, begun) = (world.stop.clone(), world.repo().parent().unwrap().join("begun"));
    let stopping = std::thread::spawn(move || {
        until("the reviewer", || begun.exists());
        stop.cancel();
    });
    let outcome = world.run();
    stopping.join().unwrap();
    outcome.no_review(&world, Cause::StoppedByUser);
    assert_eq!(outcome.completion().status, crate::protocol::acp::message::CompletionStatus::Stopped);
}

#[test]
fn a_reviewer_that_gives_up_says_why() {
    let script = "touch ../run/begun; until test -e ../run/go; do sleep 0.01; done";
    let world = world(&answering(script, &verdict("approved", json!({}))));
    let (socket, run) = (world.layout().socket(FOLDER), world.layout().run(FOLDER));
    let asking = std::thread::spawn(move || {
        until("the reviewer's begin", || run.join("begun").exists());
        let ask = |command: &str, args: &[String]| super::super::ask::run(command, args, Some(socket.as_os_str()));
        let answers = (ask("task", &["--json".to_owned()]), ask("fail", &["no idea".to_owned()]));
        fs::write(run.join("go"), "").unwrap();
        answers
    });
    let outcome = world.run();
    let (task, fail) = asking.join().unwrap();
    assert_eq!(fail, Ok(String::new()));
    let card: Value = serde_json::from_str(&task.unwrap()).unwrap();
    assert_eq!(card["acceptanceCriteria"][1]["text"], json!(CRITERIA[1]));
    let summary = outcome.no_review(&world, Cause::AgentFailed);
    assert!(summary.contains("gave up: no idea"), "{summary}");
}

#[test]
fn a_sandbox_that_cannot_begin_says_so_in_the_reviews_result() {
    let mut world = world("");
    let nowhere: CommitId = "1".repeat(40).parse().unwrap();
    world.assignment["base"] = json!(nowhere);
    world.assignment["review"]["commit"] = json!(nowhere);
    let outcome = world.run();
    assert_eq!(outcome.file().failure.as_ref().unwrap().cause, Cause::CloneFailed, "{}", outcome.log);
    assert_eq!(outcome.errors(), ["GIT_CLONE_FAILED"]);

    // The diff has a beginning that is not there.
    let mut world = self::world("");
    world.assignment["review"]["base"] = json!(nowhere);
    let summary = world.run().no_review(&world, Cause::CloneFailed);
    assert!(summary.contains("the diff cannot be made"), "{summary}");

    // What is reviewed is what is checked out.
    let mut world = self::world("");
    world.assignment["review"]["commit"] = json!(nowhere);
    let outcome = world.run();
    assert!(
        outcome.review.is_none() && outcome.completion().errors[0].contains("is to be reviewed"),
        "{}",
        outcome.log
    );
}
