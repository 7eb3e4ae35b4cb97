//! Reviews: finished work lands with a verdict, goes back with one, or waits for the admin; and all of it is told in AMP. The
//! agents are small scripts.

use std::collections::BTreeSet;

use super::*;

const BRANCH: &str = "feat/reviewed";
/// Debug builds end themselves after this record of the journal.
const KILL_POINT: &str = "LONGSHORE_TEST_DIE_AT_RECORD";

/// A reviewer that answers by story, and by how often the story was rejected.
const REVIEWER: &str = r#"#!/bin/sh
criteria() {
  entry='{"criterion": "\1", "passed": '$1', "evidence": "it was read"}\2'
  printf '['
  sed -n 's/^ *"\(.*\)"\(,*\)$/'"$entry"'/p' "$LONGSHORE_REVIEW_DIR/criteria.json"
  printf ']'
}
reject() {
  issue=$(printf '{"severity": "major", "file": "%s", "line": 1, "description": "%s", "suggested_fix": "add it"}' "$1" "$2")
  printf '{"decision": "rejected", "criteria_results": %s, "issues": [%s], "confidence": 0.9}' "$(criteria false)" "$issue"
}
approve() { printf '{"decision": "approved", "criteria_results": %s, "confidence": 0.95}' "$(criteria true)"; }
rejected=$LONGSHORE_REJECT_COUNT
answer() {
  case $LONGSHORE_STORY in
    US-002) if [ "$rejected" -lt 2 ]; then reject two "part $rejected of the work is missing: ${rejected}th"; else approve; fi ;;
    US-003)
      sed -i 's/teh/the/' three
      fix='{"file": "three", "change_type": "typo", "diff_lines": 2}'
      printf '{"decision": "approved_with_fix", "criteria_results": %s, "direct_fixes": [%s], "confidence": 0.9}' \
        "$(criteria true)" "$fix" ;;
    US-004)
      if grep -q 'the second way' four; then approve; else
        set -- alpha beta gamma delta; shift "$rejected"; reject four "it lacks the $1 part"
      fi ;;
    *) approve ;;
  esac
}
answer > "$LONGSHORE_VERDICT_FILE"
"#;

/// A repository with a reviewer `rev`.
pub(super) fn with_reviewer() -> SwarmFixture {
    let scratch = SwarmFixture::new();
    scratch.write("reviewer.sh", REVIEWER);
    scratch.write(".longshore.toml", "[agents.rev]\nargv = [\"sh\", \"reviewer.sh\"]\n");
    scratch.git(&["add", "."]);
    scratch.git(&["commit", "--quiet", "-m", "A reviewer"]);
    scratch
}

/// A story whose command adds to a file at each attempt, and to say what it was told.
pub(super) fn story_adding(number: usize, file: &str) -> Value {
    let command =
        format!("echo $LONGSHORE_ATTEMPT >> {file}; grep -o 'the second way' $LONGSHORE_PROMPT_FILE >> {file}; true");
    with_fields(story(number, &command), json!({ "acceptanceCriteria": ["the file is right"] }))
}

impl SwarmFixture {
    /// The conversation of each task, without its times; the SSOT is sound.
    fn conversation(&self) -> BTreeMap<String, Vec<String>> {
        self.longshore(&["ssot", "check"]).expect(0, &["0 errors"]);
        let mut conversation: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in self.longshore(&["ssot", "log", "--all", "--json"]).expect(0, &[]).out.lines() {
            let entry: Value = serde_json::from_str(line).expect("JSON");
            let message = &entry["message"];
            let word = |key: &str| as_text(&message[key]).to_owned();
            let payload = &message["payload"];
            let more = ["decision", "completion_status", "escalation_type", "reject_count", "branch"];
            let more = more.into_iter().filter(|key| !payload[key].is_null()).map(|key| payload[key].to_string());
            let acked = if entry["ack"].is_null() { "" } else { " acked" };
            let summary = format!(
                "{} {} -> {} {}{acked}",
                word("type"),
                word("from"),
                word("to"),
                more.collect::<Vec<_>>().join(" ")
            );
            conversation.entry(word("task_id")).or_default().push(summary);
        }
        conversation
    }

    /// Holds every message and ack against the schemas that the program prints, and what they refer to against what is there.
    fn assert_messages_match_schema(&self) {
        let schema = |name: &str| {
            let schema: Value = serde_json::from_str(&self.longshore(&["schema", name]).out).expect("JSON");
            jsonschema::validator_for(&schema).expect("a good schema")
        };
        let ssot = self.root().join(".longshore/ssot");
        let read = |folder: &str, name: &str| -> Vec<Value> {
            let validator = schema(name);
            let files = all_files(&ssot.join(folder)).into_iter();
            let files = files.filter(|file| file.extension().is_some_and(|end| end == "json"));
            let all: Vec<Value> =
                files.map(|file| serde_json::from_slice(&std::fs::read(file).expect("read")).expect("JSON")).collect();
            for value in &all {
                let errors: Vec<String> = validator.iter_errors(value).map(|error| error.to_string()).collect();
                assert!(errors.is_empty(), "{errors:?} in {value}");
            }
            all
        };
        let messages = read("messages", "amp");
        let acks = read("acks", "amp-ack");
        let ids: BTreeSet<&str> = messages.iter().map(|message| as_text(&message["msg_id"])).collect();
        assert_eq!(ids.len(), messages.len(), "every id once");
        let acked: BTreeSet<&str> = acks.iter().map(|ack| as_text(&ack["ack_of"])).collect();
        assert_eq!(acked.len(), acks.len());
        for message in &messages {
            let id = as_text(&message["msg_id"]);
            assert!(message["requires_ack"] == json!(false) || acked.contains(id), "{id} has no ack");
            let payload = &message["payload"];
            let lists = [&message["context_ref"], &payload["affected_msgs"]];
            let single = [&payload["original_dispatch_ref"], &payload["task_result_ref"]];
            let refs = lists.into_iter().filter_map(Value::as_array).flatten().chain(single);
            for reference in refs.filter(|value| !value.is_null()) {
                assert!(ids.contains(as_text(reference)), "{id} refers to {reference}, which is not there");
            }
        }
        assert!(acked.iter().all(|of| ids.contains(of)));
    }
}

#[test]
fn verdicts_decide_landing_and_the_admin_unlocks() {
    let scratch = with_reviewer();
    let typo = with_fields(story(3, "echo 'teh end' > three"), json!({ "acceptanceCriteria": ["the file is right"] }));
    let tasks =
        scratch.tasks(BRANCH, json!([story_adding(1, "one"), story_adding(2, "two"), typo, story_adding(4, "four")]));
    let ran = scratch.longshore(&["run", &tasks, "--review", "rev", "--max", "2", "--retries", "0"]);
    ran.expect(4, &["3 landed", "T-2026-004 is locked", "longshore admin"]);
    let state = scratch.state();
    let verdicts = state.verdicts();
    assert_eq!([1, 2, 3].map(|number| verdicts[&format!("US-{number:03}")].clone()), ["landed"; 3]);
    assert_eq!(scratch.show(BRANCH, "one"), "1");
    assert_eq!(scratch.show(BRANCH, "two"), "1\n3\n5", "each round goes on where the one before ended");
    assert_eq!(scratch.show(BRANCH, "three"), "the end", "as the reviewer mended it");
    assert!(!scratch.paths(BRANCH).contains(&"four".to_owned()));

    // What waits goes on waiting, until somebody says how.
    scratch.longshore(&["resume"]).expect(4, &[]);
    scratch.longshore(&["admin", "list"]).expect(0, &["T-2026-004", "locked"]);
    scratch.longshore(&["admin", "answer", "US-004", "Do it the second way."]).expect(0, &["longshore resume"]);
    scratch.longshore(&["resume"]).expect(0, &["4 landed"]);
    assert_eq!(scratch.show(BRANCH, "four"), "1\n3\n5\n7\n9\nthe second way");
    scratch.assert_messages_match_schema();
    let conversation = scratch.conversation();
    let round = ["task_dispatch coordinator -> executor", "task_result executor -> coordinator \"complete\""];
    let review = ["review_request coordinator -> reviewer", "review_verdict reviewer -> coordinator"];
    let kinds =
        |task: &str| conversation[task].iter().map(|summary| summary.split(' ').next().unwrap_or_default().to_owned());
    let one: Vec<String> =
        round.iter().chain(&review).map(|summary| summary.split(' ').next().unwrap_or_default().to_owned()).collect();
    assert_eq!(kinds("T-2026-001").collect::<Vec<_>>(), one);
    assert_eq!(kinds("T-2026-002").collect::<Vec<_>>(), [one.clone(), one.clone(), one.clone()].concat());
    let escalated: Vec<&String> =
        conversation["T-2026-004"].iter().filter(|summary| summary.starts_with("escalation")).collect();
    assert_eq!(escalated, ["escalation coordinator -> admin \"hallucination_lock\" acked"]);
    let guided = "task_dispatch admin -> coordinator \"feat/reviewed-us-004\" acked";
    assert!(conversation["T-2026-004"].iter().any(|summary| summary == guided), "{conversation:?}");
}

#[test]
fn stories_of_one_sandbox_are_reviewed_together() {
    let scratch = with_reviewer();
    let once = "if [ ! -e five ]; then echo 5 > five; fi";
    let tasks = scratch.tasks(BRANCH, json!([story_adding(2, "two"), depending_on(story(5, once), &[2])]));
    let args = ["run", &tasks, "--fan-out", "file", "--review", "rev", "--retries", "0"];
    scratch.longshore(&args).expect(0, &["2 landed"]);
    assert_eq!(scratch.show(BRANCH, "two"), "1\n3\n5");
    assert_eq!(scratch.show(BRANCH, "five"), "5");
    scratch.assert_messages_match_schema();
    scratch.conversation();
}

#[test]
fn high_risk_waits_for_approval_and_the_rest_runs() {
    let scratch = SwarmFixture::new();
    let risky = with_fields(story(1, "echo 1 > one"), json!({ "riskLevel": "high" }));
    let tasks =
        scratch.tasks(BRANCH, json!([risky, depending_on(story(2, "echo 2 > two"), &[1]), story(3, "echo 3 > three")]));
    scratch.longshore(&["run", &tasks, "--yes"]).expect(4, &["1 landed", "waits for an approval"]);
    assert_eq!(scratch.paths(BRANCH), ["lines.txt", "three"]);
    scratch.longshore(&["admin", "approve", "US-001"]).expect(0, &["longshore resume"]);
    scratch.longshore(&["resume"]).expect(0, &["3 landed"]);
    assert_eq!(scratch.paths(BRANCH), ["lines.txt", "one", "three", "two"]);
    scratch.assert_messages_match_schema();
    let conversation = scratch.conversation();
    assert_eq!(conversation["T-2026-001"][0], "escalation coordinator -> admin \"permission_denied\" acked");
}

/// Every so many records the orchestrator dies.
const RECORDS_PER_KILL: usize = 6;

#[test]
fn the_conversation_is_identical_after_kills_in_a_review() {
    let prepared = || {
        let scratch = with_reviewer();
        let tasks = scratch.tasks(BRANCH, json!([story_adding(1, "one"), story_adding(2, "two")]));
        (scratch, tasks)
    };
    fn run_args(tasks: &str) -> Vec<&str> {
        vec!["run", tasks, "--review", "rev", "--max", "2", "--retries", "0", "--grace", "1s"]
    }
    let (undisturbed, tasks) = prepared();
    undisturbed.longshore(&run_args(&tasks)).expect(0, &["2 landed"]);
    let whole = undisturbed.conversation();
    let tree = undisturbed.git(&["rev-parse", &format!("{BRANCH}^{{tree}}")]);
    let journal = std::fs::read_to_string(undisturbed.latest().join("journal.ndjson")).expect("a journal");
    let records = journal.lines().count() - 1;
    assert!(records > 4 * RECORDS_PER_KILL, "{records}");
    // The last record too: then all that is left is to say what follows from it.
    let deaths: Vec<usize> = (1..records).step_by(RECORDS_PER_KILL).chain([records]).collect();
    std::thread::scope(|scope| {
        for some in deaths.chunks(deaths.len().div_ceil(3)) {
            let (whole, tree) = (&whole, &tree);
            scope.spawn(move || {
                for record in some {
                    let (scratch, tasks) = prepared();
                    let ran = scratch.start_with(&run_args(&tasks), &[(KILL_POINT, &record.to_string())]).wait();
                    // How many records there are depends on how fast the sandboxes are: the last may not be there.
                    let journal = std::fs::read_to_string(scratch.latest().join("journal.ndjson")).expect("a journal");
                    let died = ran.status.code().is_none();
                    assert!(died || journal.lines().count() - 1 < *record, "it dies at {record}: {:?}", ran.status);
                    scratch.longshore(&["resume"]).expect(0, &[]);
                    scratch.longshore(&["gc"]).expect(0, &[]);
                    assert_eq!(&scratch.conversation(), whole, "after a death at {record}");
                    assert_eq!(&scratch.git(&["rev-parse", &format!("{BRANCH}^{{tree}}")]), tree);
                    assert_eq!(scratch.engine_resources(), [""; 0]);
                }
            });
        }
    });
}
