//! Check sandboxes, attempts whose checks come afterwards, and `acp-shim check`.

use super::*;
use crate::handoff::check::{CheckFile, CheckRun};
use crate::protocol::acp::message::CompletionStatus;
use crate::shim::check_preview::CheckPreview;

/// A check sandbox for these stories, and the shared verify commands of the tasks file and of the assignment.
fn check_fixture(stories: &[Value], tasks_verify: &[&str], verify: &[&str]) -> SandboxFixture {
    let mut fixture = SandboxFixture::new();
    fixture.set_stories(stories);
    let path = fixture.layout().tasks_file(ATTEMPT_DIR, TASKS_PATH);
    let mut tasks: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    tasks["metadata"]["verify"] = json!(tasks_verify);
    fixture.write_tasks(&tasks.to_string());
    fixture.assignment["verify"] = json!(verify);
    fixture.assignment["check"] = json!({"commit": fixture.base.as_str()});
    fixture
}

impl ShimOutcome {
    fn check_file(&self) -> &CheckFile {
        self.check.as_ref().expect("there is a result")
    }

    #[track_caller]
    fn check_failure(&self, cause: Cause) -> &Failure {
        let failure = self.check_file().failure.as_ref().expect("it did not pass");
        assert_eq!(failure.cause, cause, "{failure:?}\n{}", self.log);
        failure
    }

    /// The completion's status, and the final status of each story.
    fn ended(&self, stories: &[&str]) -> (CompletionStatus, Vec<StoryStatus>) {
        let last = |story: &&str| {
            let statuses = self.statuses(story);
            assert_eq!((statuses.len(), statuses[0]), (2, StoryStatus::InProgress));
            statuses[1]
        };
        (self.completion().status, stories.iter().map(last).collect())
    }

    fn met(&self, story: usize) -> Vec<Option<bool>> {
        self.check_file().stories[story].criteria.iter().map(|criterion| criterion.met).collect()
    }
}

fn commands(checks: &[CheckRun]) -> Vec<(Option<&str>, &str, bool)> {
    checks.iter().map(|run| (run.story.as_ref().map(|id| id.as_str()), run.command.as_str(), run.passed)).collect()
}

#[test]
fn each_check_runs_once_and_shared_ones_come_first() {
    let note = |what: &str| format!("echo {what} $LONGSHORE_STORY >> ../order");
    let (one, two, three) = (note("one"), note("two"), note("three"));
    let criteria = json!(["in words", {"id": "A", "text": "a", "testCommand": &one}, {"id": "B", "text": "b", "testCommand": &one}]);
    let fixture = check_fixture(
        &[
            json!({"acceptanceCriteria": criteria, "verify": [&three, &one, &three], "command": "touch ../agent-ran"}),
            json!({"verify": [&three]}),
        ],
        &[&one, &two],
        &[&two, &one],
    );
    let outcome = fixture.run();
    assert_eq!(outcome.code, 0, "{}", outcome.log);
    let file = outcome.check_file();
    assert_eq!((&file.commit, &file.failure, &file.failed_story), (&fixture.base, &None, &None));
    let (first, second) = (Some("US-001"), Some("US-002"));
    assert_eq!(
        commands(&file.checks),
        [(None, &*one, true), (None, &two, true), (first, &one, true), (first, &three, true), (second, &three, true)]
    );
    assert_eq!(file.checks[2].criterion.as_deref(), Some("A"));
    let order = fs::read_to_string(fixture.repo().with_file_name("order")).unwrap();
    assert_eq!(order, "one US-001,US-002\ntwo US-001,US-002\none US-001\nthree US-001\nthree US-002\n");
    assert_eq!((outcome.met(0), outcome.met(1)), (vec![None, Some(true), Some(true)], vec![None]));
    let done = vec![StoryStatus::Completed; 2];
    assert_eq!(outcome.ended(&["US-001", "US-002"]), (CompletionStatus::Completed, done));
    assert!(!fixture.repo().with_file_name("agent-ran").exists());
    assert!(!fixture.out().join("result.bundle").exists());
}

#[test]
fn a_check_sandbox_has_no_socket_no_mailbox_and_a_clean_checkout() {
    let look = "test -z \"$LONGSHORE_SOCKET$LONGSHORE_MAILBOX$LONGSHORE_MEMORY_FILE\"; test ! -e ../run/shim.sock; \
                test -z \"$(git status --porcelain --ignored)\"; test \"$(git branch --show-current)\" = feat/work; \
                test \"$SECRET_WORD\" = xyzzy; test \"$LONGSHORE_ASSIGNMENT\" = T-2026-001";
    let mut fixture = check_fixture(&[json!({})], &[&format!("set -ex; {look}")], &[]);
    fixture.assignment["mailbox"] = json!({"agent": "alpha", "role": "coder"});
    let outcome = fixture.run();
    assert_eq!(outcome.check_file().failure, None, "{}", outcome.log);
}

#[test]
fn a_failed_shared_check_ends_the_checks() {
    let stories = [json!({"verify": ["true"]}), json!({})];
    let fixture = check_fixture(&stories, &["true", "echo why; exit 3", "touch ../too-far"], &[]);
    let outcome = fixture.run();
    let failure = outcome.check_failure(Cause::VerificationFailed);
    assert_eq!((failure.evidence.exit_code, failure.evidence.tail.as_slice()), (Some(3), &["why".to_owned()][..]));
    assert_eq!(outcome.check_file().failed_story, None);
    assert_eq!(outcome.check_file().checks.len(), 2);
    assert!(!fixture.repo().with_file_name("too-far").exists());
    let failed = vec![StoryStatus::Failed; 2];
    assert_eq!(outcome.ended(&["US-001", "US-002"]), (CompletionStatus::Completed, failed));
    assert_eq!((outcome.code, outcome.completion().errors.len()), (0, 1));
    assert_eq!(outcome.met(0), [None], "nobody checked it");
}

#[test]
fn a_failed_story_is_named_and_the_others_are_checked_too() {
    let criteria =
        json!([{"id": "A", "text": "a", "testCommand": "false"}, {"id": "B", "text": "b", "testCommand": "true"}]);
    let stories = [
        json!({"verify": ["true"]}),
        json!({"acceptanceCriteria": criteria, "verify": ["touch ../too-far"]}),
        json!({"verify": ["exit 7"]}),
        json!({"acceptanceCriteria": criteria}),
    ];
    let mut fixture = check_fixture(&stories, &[], &[]);
    fixture.assignment["stories"].as_array_mut().unwrap().pop();
    let outcome = fixture.run();
    assert!(outcome.check_failure(Cause::VerificationFailed).evidence.summary.contains("criterion A"));
    assert_eq!(outcome.check_file().failed_story, Some("US-002".parse().unwrap()));
    assert_eq!(outcome.met(1), [Some(false), Some(true)]);
    assert!(!fixture.repo().with_file_name("too-far").exists());
    assert_eq!(outcome.check_file().stories.len(), 3, "the fourth story is not assigned");
    let ended = outcome.ended(&["US-001", "US-002", "US-003"]);
    let wanted = vec![StoryStatus::Completed, StoryStatus::Failed, StoryStatus::Failed];
    assert_eq!(ended, (CompletionStatus::Completed, wanted));
}

/// Whatever a check does to the clone, the next one finds the commit, and the build output that the commit's rules ignore.
#[test]
fn a_check_cannot_change_what_the_next_one_sees() {
    let pristine = "set -ex; test \"$(cat README)\" = hello; test -f other.txt; test \"$(git log --format=%s)\" = base; \
                    test -z \"$(git status --porcelain)\"; test -z \"$(git status --porcelain --ignored | grep -v '!! ignored/')\"; \
                    test ! -e hidden; test ! -e sub; test \"$(git for-each-ref | wc -l)\" = 2; cat README other.txt";
    for tampering in [
        "echo bad > README; rm other.txt; echo new > new.txt",
        "echo bad > README; git commit -qam mine; git tag mine; git checkout -q --detach",
        // Rules that hide files from the cleanup.
        "mkdir sub; echo '*' > sub/.gitignore; echo x > sub/x; echo x > hidden; echo hidden >> .git/info/exclude",
        "echo hidden >> .gitignore; echo x > hidden",
        // An index that hides changes. The size and the time stay the same.
        "touch -r README ../time; echo hallo > README; touch -r ../time README; git update-index --assume-unchanged README",
        "git config core.worktree /tmp; git config core.excludesFile /dev/null; echo 'README text eol=crlf' > .git/info/attributes",
        "rm -rf .git",
        "rm -rf .git; git init -q .; git add -A; git -c user.name=t -c user.email=t@t commit -qm mine",
        "mkdir nested; cd nested; git init -q .; echo x > x; git add x; git -c user.name=t -c user.email=t@t commit -qm x",
        "mkdir -p sub; touch sub/x; chmod 000 sub",
        "mkfifo sub",
        // Another file under a known object's name.
        "id=$(git rev-parse HEAD:README); other=$(echo bad | git hash-object -w --stdin); d=.git/objects; \
         mkdir -p $d/$(echo $id | cut -c1-2); cp -f $d/$(echo $other | sed 's,^..,&/,') $d/$(echo $id | sed 's,^..,&/,'); rm README",
    ] {
        let tamper = format!("mkdir -p ignored; echo output > ignored/built; {tampering}");
        let look = format!("{pristine}; test \"$(cat ignored/built)\" = output");
        let fixture = check_fixture(&[json!({"verify": [&look]})], &[&tamper], &[&look]);
        let outcome = fixture.run();
        assert_eq!(outcome.check_file().failure, None, "{tampering}\n{}", outcome.log);
        assert_eq!(outcome.check_file().checks.len(), 3, "{tampering}");
    }
}

#[test]
fn each_story_has_its_own_time() {
    let mut fixture = check_fixture(&[json!({"verify": ["sleep 60"]}), json!({"verify": ["true"]})], &["sleep 1"], &[]);
    fixture.assignment["storyTimeoutSecs"] = json!(2);
    fixture.assignment["graceSecs"] = json!(1);
    let outcome = fixture.run();
    let failure = outcome.check_failure(Cause::Timeout);
    assert!(failure.evidence.summary.contains("was ended when its 2 s were over"), "{failure:?}");
    assert_eq!(outcome.check_file().failed_story, Some("US-001".parse().unwrap()));
    let wanted = (CompletionStatus::Completed, vec![StoryStatus::Failed, StoryStatus::Completed]);
    assert_eq!(outcome.ended(&["US-001", "US-002"]), wanted);
}

#[test]
fn a_stopped_check_says_so() {
    let fixture = check_fixture(&[json!({})], &["touch ../run/begun; sleep 1000"], &["touch ../too-far"]);
    let (stop, begun) = (fixture.stop.clone(), fixture.layout().run_dir(ATTEMPT_DIR).join("begun"));
    let stopping = std::thread::spawn(move || {
        wait_until("the check", || begun.exists());
        stop.cancel();
    });
    let outcome = fixture.run();
    stopping.join().unwrap();
    outcome.check_failure(Cause::StoppedByUser);
    assert_eq!(outcome.ended(&["US-001"]), (CompletionStatus::Stopped, vec![StoryStatus::Failed]));
    assert!(!fixture.repo().with_file_name("too-far").exists());
}

#[test]
fn a_check_that_cannot_start_fails_with_the_machinery() {
    let fixture = check_fixture(&[json!({})], &["true"], &[]);
    fs::remove_dir_all(fixture.layout().objects_repo()).unwrap();
    let outcome = fixture.run();
    outcome.check_failure(Cause::CloneFailed);
    assert_eq!((outcome.code, outcome.completion().status), (1, CompletionStatus::Failed));
    assert_eq!(outcome.errors(), ["GIT_CLONE_FAILED"]);

    let mut fixture = check_fixture(&[json!({})], &["true"], &[]);
    fixture.assignment["check"]["commit"] = json!("b".repeat(40));
    let outcome = fixture.run();
    assert_eq!((outcome.code, outcome.completion().status), (1, CompletionStatus::Failed));
    assert!(outcome.completion().errors[0].contains("is to be checked"), "{:?}", outcome.completion());
}

#[test]
fn no_check_runs_in_a_clone_that_could_not_be_restored() {
    let stories = [json!({"verify": ["mv ../repo ../gone; touch ../repo"]}), json!({"verify": ["touch ../too-far"]})];
    let outcome = check_fixture(&stories, &[], &[]).run();
    outcome.check_failure(Cause::RepoDamaged);
    assert_eq!(outcome.check_file().failed_story, Some("US-001".parse().unwrap()));
    assert_eq!(outcome.check_file().checks.len(), 1, "{:?}", outcome.check_file());
    let wanted = (CompletionStatus::Completed, vec![StoryStatus::Failed; 2]);
    assert_eq!(outcome.ended(&["US-001", "US-002"]), wanted);
}

/// What the completion says is what the result says: without a result, there is no verdict.
#[test]
fn a_result_that_cannot_be_written_is_the_machinery_s_failure() {
    let gone = format!("d=$(cd ..; pwd); mv $d $d.gone; touch $d; test -f ../../{ATTEMPT_DIR}");
    let outcome = check_fixture(&[json!({"verify": [&gone]})], &[], &[]).run();
    assert!(outcome.check.is_none(), "{:?}", outcome.check);
    assert_eq!(outcome.ended(&["US-001"]), (CompletionStatus::Failed, vec![StoryStatus::Failed]));
    assert_eq!(outcome.code, 1);
    assert!(outcome.completion().errors[0].contains("cannot write the result"), "{:?}", outcome.completion());
}

#[test]
fn a_story_that_is_checked_after_runs_no_checks_and_its_prompt_says_so() {
    let mut fixture = SandboxFixture::new();
    fixture.assignment["checkedAfter"] = json!(true);
    fixture.set_stories(&[json!({
        "command": "cp $LONGSHORE_PROMPT_FILE prompt.md", "verify": ["touch ../checked; false"],
        "acceptanceCriteria": [{"id": "A", "text": "a", "testCommand": "touch ../checked"}],
    })]);
    let outcome = fixture.run();
    let prompt = fixture.git_show(&fixture.fetch_bundle(), &format!("{}:prompt.md", outcome.commit(0)));
    for part in ["acp-shim check", "clean checkout", "- `touch ../checked; false`", "- `touch ../checked`\n"] {
        assert!(prompt.contains(part), "{part} is not in\n{prompt}");
    }
    assert!(!fixture.repo().with_file_name("checked").exists());
    assert_eq!(outcome.story(0).criteria[0].met, None);
    assert_eq!(outcome.completion().status, CompletionStatus::Completed);
}

#[test]
fn a_preview_runs_the_checks_in_the_clone_as_it_is() {
    let mut fixture = SandboxFixture::new();
    fixture.set_stories(&[json!({
        "command": "echo x > x.txt; touch ../run/begun; while ! test -e ../run/done; do sleep 0.05; done",
        "acceptanceCriteria": [{"id": "A", "text": "a", "testCommand": "test -f x.txt"}],
        "verify": ["test -f x.txt", "echo lines of it; exit 3"],
    })]);
    let run_dir = fixture.layout().run_dir(ATTEMPT_DIR);
    let socket = fixture.layout().socket_path(ATTEMPT_DIR);
    let previewing = std::thread::spawn(move || {
        wait_until("the agent", || run_dir.join("begun").exists());
        let preview = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            let preview = CheckPreview::new(&args, Some(socket.clone().into()))?;
            let mut out = Vec::new();
            let code = crate::shim::build_runtime().unwrap().block_on(preview.run(&mut out));
            Ok((String::from_utf8(out).unwrap(), code))
        };
        let shown: Vec<Result<(String, u8), (String, u8)>> =
            [&[][..], &["--list"], &["--all"]].map(preview).into_iter().collect();
        fs::write(run_dir.join("done"), "").unwrap();
        shown
    });
    let outcome = fixture.run();
    let shown = previewing.join().unwrap();
    let (text, code) = shown[0].as_ref().unwrap();
    assert_eq!(
        (text.as_str(), *code),
        (
            "passed: A: test -f x.txt (0 s)\nFAILED: echo lines of it; exit 3 (exit code 3, 0 s)\n    lines of it\n\
             1 of 2 checks passed\n",
            1
        )
    );
    let (text, code) = shown[1].as_ref().unwrap();
    assert_eq!((text.as_str(), *code), ("A: test -f x.txt\necho lines of it; exit 3\n", 0));
    assert_eq!(shown[2].as_ref().unwrap_err().1, 2);
    outcome.assert_failed(Cause::VerificationFailed);
    assert_eq!(CheckPreview::new(&[], None).err().unwrap().1, 2);
}
