//! Reviewers: what they are given, what counts as an answer, what leaves the sandbox, and all the ways not to answer.

use super::*;
use crate::protocol::amp::message::{ReviewDecision, ReviewVerdict};

const CRITERIA: [&str; 2] = ["it is done", "no typo in the README"];

/// A fixture whose base commit is under review, with the commit before it as what the diff is against.
fn review_fixture(script: &str) -> SandboxFixture {
    let mut fixture = SandboxFixture::new();
    let host = fixture.dir.path().join("host");
    fs::write(host.join("README"), "helo\n").unwrap();
    git(&host, &["commit", "-qam", "US-001: greet"]);
    let commit: CommitId = git(&host, &["rev-parse", "HEAD"]).parse().unwrap();
    git(&host, &["push", "-q", fixture.layout().objects_repo().to_str().unwrap(), "HEAD:refs/heads/under-review"]);
    let before = std::mem::replace(&mut fixture.base, commit);
    fixture
        .set_stories(&[json!({"command": "echo the story is not done again; exit 7"}), json!({"command": "exit 7"})]);
    fixture.assignment["base"] = json!(fixture.base);
    let result = json!({
        "subtask_id": "T-2026-001-S1", "completion_status": "complete",
        "diff_summary": {"files_changed": ["README"], "lines_added": 1, "lines_removed": 1},
        "self_assessment": {"criteria_met": [null], "notes": ["looks good to me"]},
        "work_log": [],
    });
    fixture.assignment["review"] = json!({
        "base": before, "commit": fixture.base,
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
    fixture
}

/// A verdict's text. `more` is put into it.
fn verdict_text(decision: &str, more: Value) -> String {
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

fn typo_fix() -> Value {
    json!({"direct_fixes": [{"file": "README", "change_type": "typo", "diff_lines": 2}]})
}

/// A script that answers with this, after `before`.
fn script_with_verdict(before: &str, text: &str) -> String {
    format!("{before}\ncat > \"$LONGSHORE_VERDICT_FILE\" <<'END'\n{text}\nEND\n")
}

impl ShimOutcome {
    fn review_file(&self) -> &ReviewFile {
        self.review.as_ref().unwrap_or_else(|| panic!("there is no result\n{}", self.log))
    }

    #[track_caller]
    fn verdict(&self) -> ReviewVerdict {
        let file = self.review_file();
        assert_eq!(file.failure, None, "{}", self.log);
        let text = file.verdict.as_ref().expect("a verdict").to_string();
        let criteria: Vec<String> = CRITERIA.map(str::to_owned).to_vec();
        ReviewVerdict::parse(&text, &criteria).expect("a verdict that breaks no rule")
    }

    /// The summary of a review that came to nothing, after it was seen that nothing came out.
    #[track_caller]
    fn assert_no_verdict(&self, fixture: &SandboxFixture, cause: Cause) -> String {
        let file = self.review_file();
        let failure = file.failure.as_ref().unwrap_or_else(|| panic!("it has a verdict: {file:?}"));
        assert_eq!(failure.cause, cause, "{failure:?}\n{}", self.log);
        assert!(file.verdict.is_none() && file.fix.is_none() && !file.bundle);
        assert!(!fixture.out().join("result.bundle").exists());
        for story in ["US-001", "US-002"] {
            assert_eq!(self.statuses(story), [StoryStatus::InProgress, StoryStatus::Failed]);
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
fn a_reviewer_receives_its_input_and_approves() {
    let script = script_with_verdict(
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
        &verdict_text("approved", json!({})),
    );
    let fixture = review_fixture(&script);
    let outcome = fixture.run();
    assert_eq!(outcome.verdict().decision, ReviewDecision::Approved);
    let file = outcome.review_file();
    assert_eq!((&file.commit, &file.fix, file.bundle), (&fixture.base, &None, false));
    assert!(!fixture.out().join("result.bundle").exists(), "nothing leaves but the verdict");
    assert_eq!(outcome.code, 0);
    assert_eq!(outcome.completion().errors, Vec::<String>::new());
    for story in ["US-001", "US-002"] {
        assert_eq!(outcome.statuses(story), [StoryStatus::InProgress, StoryStatus::Completed]);
        assert_eq!(outcome.last_output(story), "review: approved, confidence 0.95");
    }
    assert_eq!(file.work_log.first().unwrap().text, "review started");
    assert!(!outcome.log.contains("the story is not done again"));
    let prompt = fs::read_to_string(fixture.repo().join("prompt-as-read")).unwrap();
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
fn the_example_in_the_prompt_is_a_valid_verdict() {
    let script = script_with_verdict("cat > /dev/null", "");
    let fixture = review_fixture(&script);
    fixture.run();
    let prompt = fs::read_to_string(fixture.layout().run_dir(ATTEMPT_DIR).join("review/review.md")).unwrap();
    let example = prompt.split("```json\n").nth(1).and_then(|rest| rest.split("\n```").next()).unwrap();
    let criteria: Vec<String> = CRITERIA.map(str::to_owned).to_vec();
    ReviewVerdict::parse(example, &criteria).expect("the example is valid");
}

#[test]
fn a_rejection_exports_no_commits() {
    let fixture = review_fixture(&script_with_verdict(
        "echo changed > README; git commit -qam mine; echo more > new",
        &verdict_text("rejected", issues()),
    ));
    let outcome = fixture.run();
    let verdict = outcome.verdict();
    assert_eq!(verdict.decision, ReviewDecision::Rejected);
    assert_eq!(verdict.issues[0].description, "$SECRET_WORD is no word", "a variable's value is not in a message");
    assert_eq!((&outcome.review_file().fix, outcome.review_file().bundle), (&None, false));
    assert!(!fixture.out().join("result.bundle").exists());
    assert_eq!(outcome.last_output("US-001"), "review: rejected, confidence 0.95");
}

#[test]
fn a_fix_is_committed_on_top_of_the_reviewed_commit() {
    for (mend, own) in [("echo hello > README", false), ("echo hello > README; git commit -qam 'mine'", true)] {
        let fixture = review_fixture(&script_with_verdict(mend, &verdict_text("approved_with_fix", typo_fix())));
        let outcome = fixture.run();
        assert_eq!(outcome.verdict().decision, ReviewDecision::ApprovedWithFix);
        let fix = outcome.review_file().fix.as_ref().expect("a fix").as_str();
        assert!(outcome.review_file().bundle);
        let clone = fixture.fetch_bundle();
        assert_eq!(git(&clone, &["rev-parse", "refs/got/heads/feat/work"]), fix);
        assert_eq!(git(&clone, &["rev-parse", &format!("{fix}~1")]), fixture.base.as_str());
        assert_eq!(git(&clone, &["diff", "--name-only", fixture.base.as_str(), fix]), "README");
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
fn an_oversized_fix_is_exported_for_the_host_to_judge() {
    let fixture = review_fixture(&script_with_verdict(
        "seq 100 > README; seq 9 > new",
        &verdict_text("approved_with_fix", typo_fix()),
    ));
    let outcome = fixture.run();
    let fix = outcome.review_file().fix.clone().expect("the shim does not judge it");
    assert_eq!(
        git(&fixture.fetch_bundle(), &["diff", "--name-only", fixture.base.as_str(), fix.as_str()]),
        "README\nnew"
    );
}

#[test]
fn approved_with_fix_without_changes_is_invalid() {
    let fixture = review_fixture(&script_with_verdict("", &verdict_text("approved_with_fix", typo_fix())));
    let summary = fixture.run().assert_no_verdict(&fixture, Cause::ProtocolViolation);
    assert!(summary.contains("nothing was changed"), "{summary}");
}

#[test]
fn invalid_verdicts_name_the_violated_rule() {
    let huge = format!("head -c {} /dev/zero | tr '\\0' ' ' > \"$LONGSHORE_VERDICT_FILE\"", 1024 * 1024 + 1);
    let table: [(String, &[&str]); 14] = [
        ("exit 0".into(), &["left no verdict"]),
        (script_with_verdict("", "I approve."), &["verdict"]),
        (script_with_verdict("", "[]"), &["verdict"]),
        (script_with_verdict("", &verdict_text("rejected", json!({}))), &["issues"]),
        (script_with_verdict("", &verdict_text("maybe", json!({}))), &["decision"]),
        (script_with_verdict("", &verdict_text("approved", json!({"confidence": 1.5}))), &["confidence"]),
        (script_with_verdict("", &verdict_text("approved", json!({"criteria_results": []}))), &["criteria"]),
        (script_with_verdict("echo hello > README", &verdict_text("approved_with_fix", json!({}))), &["direct_fixes"]),
        (
            script_with_verdict(
                "echo hello > README",
                &verdict_text(
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
        ("ln -s /etc/passwd \"$LONGSHORE_VERDICT_FILE\"".into(), &["cannot read"]),
    ];
    for (script, said) in table {
        let fixture = review_fixture(&script);
        let began = std::time::Instant::now();
        let summary = fixture.run().assert_no_verdict(&fixture, Cause::ProtocolViolation);
        assert!(said.iter().all(|said| summary.contains(said)), "{script}: {summary}");
        assert!(began.elapsed() < Duration::from_secs(20), "it waited: {script}");
    }
}

#[test]
fn a_failing_reviewers_verdict_is_ignored() {
    let approve = verdict_text("approved", json!({}));
    for (script, cause, said) in [
        (script_with_verdict("", &approve) + "exit 1", Cause::AgentFailed, "the reviewer exited 1"),
        (script_with_verdict("", &approve) + "kill -SEGV $$", Cause::AgentFailed, "killed by signal 11"),
    ] {
        let fixture = review_fixture(&script);
        let summary = fixture.run().assert_no_verdict(&fixture, cause);
        assert!(summary.contains(said), "{summary}");
    }
    let mut gone = review_fixture("");
    gone.assignment["review"]["agent"]["argv"] = json!(["/no/such/reviewer"]);
    gone.run().assert_no_verdict(&gone, Cause::AgentFailed);
}

#[test]
fn evidence_contains_no_variable_values() {
    let fixture = review_fixture("echo \"the word is $SECRET_WORD\"; exit 1");
    let outcome = fixture.run();
    outcome.assert_no_verdict(&fixture, Cause::AgentFailed);
    let evidence = &outcome.review_file().failure.as_ref().unwrap().evidence;
    assert_eq!(evidence.tail, ["the word is $SECRET_WORD"]);
    let fixture = review_fixture(&script_with_verdict("", "{\"xyzzy\": 1}"));
    let summary = fixture.run().assert_no_verdict(&fixture, Cause::ProtocolViolation);
    assert!(!summary.contains("xyzzy"), "{summary}");
}

#[test]
fn a_verdict_is_rejected_if_refs_moved_or_the_clone_is_damaged() {
    let approve = verdict_text("approved", json!({}));
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
            let text = if decision == "approved" { approve.clone() } else { verdict_text(decision, typo_fix()) };
            let fixture =
                review_fixture(&script_with_verdict(&format!("{command} || exit 9; echo hello > README"), &text));
            fixture.run().assert_no_verdict(&fixture, cause);
        }
    }
}

#[test]
fn a_reviewer_that_hangs_or_times_out_is_killed() {
    let mut fixture = review_fixture("echo looking; sleep 1000");
    fixture.assignment["idleTimeoutSecs"] = json!(1);
    let summary = fixture.run().assert_no_verdict(&fixture, Cause::Hung);
    assert!(summary.contains("the reviewer hung") && summary.contains("sleep"), "{summary}");

    let mut fixture = review_fixture("while :; do :; done");
    fixture.assignment["storyTimeoutSecs"] = json!(1);
    let summary = fixture.run().assert_no_verdict(&fixture, Cause::Timeout);
    assert!(summary.contains("its 1 s were over"), "{summary}");
}

#[test]
fn a_stop_ends_the_reviewer() {
    let fixture = review_fixture("touch ../begun; sleep 1000");
    let (stop, begun) = (fixture.stop.clone(), fixture.repo().parent().unwrap().join("begun"));
    let stopping = std::thread::spawn(move || {
        wait_until("the reviewer", || begun.exists());
        stop.cancel();
    });
    let outcome = fixture.run();
    stopping.join().unwrap();
    outcome.assert_no_verdict(&fixture, Cause::StoppedByUser);
    assert_eq!(outcome.completion().status, crate::protocol::acp::message::CompletionStatus::Stopped);
}

#[test]
fn a_reviewers_give_up_reason_is_reported() {
    let script = "touch ../run/begun; until test -e ../run/go; do sleep 0.01; done";
    let fixture = review_fixture(&script_with_verdict(script, &verdict_text("approved", json!({}))));
    let (socket, run) = (fixture.layout().socket_path(ATTEMPT_DIR), fixture.layout().run_dir(ATTEMPT_DIR));
    let asking = std::thread::spawn(move || {
        wait_until("the reviewer's begin", || run.join("begun").exists());
        let ask =
            |command: &str, args: &[String]| super::super::socket_client::run(command, args, Some(socket.as_os_str()));
        let answers = (ask("task", &["--json".to_owned()]), ask("fail", &["no idea".to_owned()]));
        fs::write(run.join("go"), "").unwrap();
        answers
    });
    let outcome = fixture.run();
    let (task, fail) = asking.join().unwrap();
    assert_eq!(fail, Ok(String::new()));
    let card: Value = serde_json::from_str(&task.unwrap()).unwrap();
    assert_eq!(card["acceptanceCriteria"][1]["text"], json!(CRITERIA[1]));
    let summary = outcome.assert_no_verdict(&fixture, Cause::AgentFailed);
    assert!(summary.contains("gave up: no idea"), "{summary}");
}

#[test]
fn setup_failures_are_recorded_in_the_review_result() {
    let mut fixture = review_fixture("");
    let nowhere: CommitId = "1".repeat(40).parse().unwrap();
    fixture.assignment["base"] = json!(nowhere);
    fixture.assignment["review"]["commit"] = json!(nowhere);
    let outcome = fixture.run();
    assert_eq!(outcome.review_file().failure.as_ref().unwrap().cause, Cause::CloneFailed, "{}", outcome.log);
    assert_eq!(outcome.errors(), ["GIT_CLONE_FAILED"]);

    // The diff has a beginning that is not there.
    let mut fixture = review_fixture("");
    fixture.assignment["review"]["base"] = json!(nowhere);
    let summary = fixture.run().assert_no_verdict(&fixture, Cause::CloneFailed);
    assert!(summary.contains("cannot create the diff"), "{summary}");

    // What is reviewed is what is checked out.
    let mut fixture = review_fixture("");
    fixture.assignment["review"]["commit"] = json!(nowhere);
    let outcome = fixture.run();
    assert!(
        outcome.review.is_none() && outcome.completion().errors[0].contains("is to be reviewed"),
        "{}",
        outcome.log
    );
}
