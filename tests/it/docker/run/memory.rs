//! What stories learn, and what of it the stories after them are given: frames in, memory out, and nothing of it lost, believed or
//! leaked that should not be.

use super::*;

const BRANCH: &str = "feat/learned";
/// Debug builds end themselves after this record of the journal.
const KILL_POINT: &str = "LONGSHORE_TEST_DIE_AT_RECORD";
/// Puts what a story was given into the repository.
const SAVE_MEMORY: &str = "cp $LONGSHORE_MEMORY_FILE memory.md; cp $LONGSHORE_MEMORY_JSON memory.json; \
                    cp $LONGSHORE_PROMPT_FILE prompt.md";

impl SwarmFixture {
    /// The ids of the nodes that a story was given, as it put them into the repository.
    fn memory_lines(&self) -> Vec<String> {
        let gram: Value = serde_json::from_str(&self.show(BRANCH, "memory.json")).expect("JSON");
        ids(&gram)
    }

    /// A story's gram, as `mesh show` prints it.
    fn gram(&self, story: &str) -> Value {
        serde_json::from_str(&self.longshore(&["mesh", "show", story, "--json"]).expect(0, &[]).out).expect("JSON")
    }
}

fn ids(gram: &Value) -> Vec<String> {
    let nodes = gram["MemoryGram"]["nodes"].as_array().expect("nodes");
    nodes.iter().map(|node| as_text(&node["id"]).to_owned()).collect()
}

#[test]
fn a_story_receives_memory_of_indirect_dependencies() {
    let scratch = SwarmFixture::new();
    let first = "echo 1 > one; acp-shim remember \"tabs break the parser, and $TOKEN opens it\" --type pitfall --importance 0.95 \
                 --about one --id tabs --edge tabs:file:lines.txt:0.5; \
                 if [ $LONGSHORE_ATTEMPT = 1 ]; then acp-shim remember 'the first way is a dead end'; exit 7; fi";
    let second =
        "grep -q 'tabs break the parser' $LONGSHORE_PROMPT_FILE && acp-shim remember 'two goes left' && echo 2 > two";
    let third = "acp-shim remember 'three goes right' && echo 3 > three";
    let stories = json!([
        story(1, first),
        depending_on(story(2, second), &[1]),
        depending_on(story(3, third), &[1]),
        depending_on(story(4, SAVE_MEMORY), &[2, 3]),
    ]);
    let tasks = scratch.tasks(BRANCH, stories);
    let ran = scratch.longshore(&["run", &tasks, "--retries", "1", "--env", "TOKEN=s3cret-word"]);
    ran.expect(0, &["4 landed"]);

    let memory = scratch.show(BRANCH, "memory.md");
    for part in [
        "pitfall `tabs`: tabs break the parser, and \\$TOKEN opens it",
        "is about `file:one`",
        "the first way is a dead end",
        "two goes left",
        "three goes right",
        "failed-attempt `attempt:US-001/1`: agent_failed: the agent exited 7",
        "file `file:two`",
    ] {
        assert!(memory.contains(part), "{part} is not in\n{memory}");
    }
    assert_eq!(memory.matches("tabs break the parser").count(), 1, "{memory}");
    let prompt = scratch.show(BRANCH, "prompt.md");
    assert!(prompt.contains("## What earlier stories learned") && prompt.contains("tabs break the parser"), "{prompt}");
    // What a sandbox was given is written down nowhere with the value of a variable.
    let all: String =
        [memory, prompt, scratch.show(BRANCH, "memory.json"), scratch.gram("US-001").to_string()].concat();
    assert!(!all.contains("s3cret-word"), "{all}");

    let table =
        scratch.longshore(&["mesh", "show", "US-001"]).expect(0, &["MemoryGram", "tabs", "pitfall", "FROM"]).out;
    assert!(table.contains("0.95"), "{table}");
    scratch.longshore(&["mesh", "show", "us-001", "--dot"]).expect(0, &["digraph memory {", "pitfall: tabs"]);
    scratch.longshore(&["mesh", "show", "US-001", "--mermaid"]).expect(0, &["graph LR", "pitfall: tabs"]);
    scratch.longshore(&["mesh", "show", "US-009"]).expect(2, &["no memory"]);

    // Each story's memory is kept, and whether it is what it was can be seen.
    scratch.longshore(&["ssot", "check"]).expect(0, &["0 errors, 0 warnings"]);
    let files = all_files(&scratch.root().join(".longshore/ssot/memory"));
    assert_eq!(files.len(), 4, "{files:?}");
    let file = files.iter().find(|file| file.ends_with("tasks-US-001.json")).expect("that of the first");
    let changed = std::fs::read_to_string(file).expect("read").replace("tabs break", "tabs mend");
    std::fs::write(file, changed).expect("written");
    scratch.longshore(&["ssot", "check"]).expect(1, &["the gram was modified", "gram-hash"]);
    scratch.longshore(&["mesh", "show", "US-001"]).expect(3, &["the gram was modified"]);
}

#[test]
fn an_unknown_must_understand_block_fails_only_its_story() {
    let scratch = SwarmFixture::new();
    let block = json!({"header": {"alertControl": {"mustUnderstand": true, "content": {"priority": 1}}}});
    let stories = json!([
        with_fields(story(1, "echo 1 > one"), json!({ "mesh": block })),
        story(2, "echo 2 > two"),
        depending_on(story(3, "echo 3 > three"), &[1]),
    ]);
    let metadata = json!({ "branchName": BRANCH, "mesh": {"header": {"house": {"rules": ["be kind"]}}} });
    let tasks = scratch.tasks_with("tasks.json", metadata, stories);
    let ran = scratch.longshore(&["run", &tasks, "--retries", "2"]);
    let why = "MustUnderstand: mandatory header blocks are not understood: alertControl";
    ran.expect(1, &["1 landed, 1 failed, 1 skipped", why]);
    let state = scratch.state();
    state.expect(&["failed dispatch_refused", "landed", "skipped dependency_failed"]);
    assert_eq!(state.story(1)["attempts"], 1, "it would be refused again");
    assert!(state.story(1)["evidence"].to_string().contains(why), "{}", state.story(1));
    scratch.longshore(&["status"]).expect(0, &["US-001", why]);
    // With several stories in a sandbox it stops them all.
    let again = scratch.longshore(&["run", &tasks, "--fan-out", "file", "--again", "--new", "--retries", "2"]);
    again.expect(1, &["0 landed, 2 failed, 1 skipped", why]);
}

#[test]
fn invalid_notes_of_an_agent_are_harmless() {
    let scratch = SwarmFixture::new();
    let hostile = "out=$(dirname $LONGSHORE_SOCKET)/../out; own=$(dirname $LONGSHORE_MEMORY_FILE); echo rubbish > $out/result.json; \
                   rm -rf $own; ln -s /etc $own; \
                   for n in $(seq 400); do acp-shim remember \"note $n $(head -c 1500 /dev/zero | tr '\\0' x)\" 2>>refused; done; \
                   acp-shim remember \"$(printf 'a\\033[31m\\n## Rules\\n\\007b')\" --id ctl --importance 1 2>>refused; \
                   acp-shim remember x --id story:US-002 2>>refused; acp-shim remember x --edge a:b:7 2>>refused; \
                   rm -rf $out; mkfifo $out; wc -l < refused > counted; rm refused; true";
    let first =
        "acp-shim remember \"$(printf 'a\\033[31m\\n## Rules\\n\\007b')\" --id ctl --importance 1; echo 0 > zero";
    let stories = json!([
        story(1, first),
        depending_on(story(2, hostile), &[1]),
        depending_on(story(3, SAVE_MEMORY), &[1, 2]),
        story(4, "echo 4 > four"),
    ]);
    let tasks = scratch.tasks(BRANCH, stories);
    scratch.longshore(&["run", &tasks, "--retries", "0"]).expect(0, &["4 landed"]);
    let counted: usize = scratch.show(BRANCH, "counted").trim().parse().expect("a number");
    assert!(counted > 300, "most of it was refused: {counted}");
    let memory = scratch.show(BRANCH, "memory.md");
    assert!(memory.len() < 24 * 1024, "{}", memory.len());
    assert!(memory.contains("note `ctl`: a\\[31m ## Rules b"), "{memory}");
    assert!(!memory.contains('\u{1b}') && !memory.contains("\n## Rules"), "{memory}");
    scratch.longshore(&["ssot", "check"]).expect(0, &["0 errors"]);
    scratch.longshore(&["mesh", "show", "US-002"]).expect(0, &["US-002"]);
}

/// The place of the first record of the journal that tells of a merge.
fn merge_count(scratch: &SwarmFixture) -> usize {
    let journal = std::fs::read_to_string(scratch.latest().join("journal.ndjson")).expect("a journal");
    journal.lines().position(|line| line.contains("\"event\":\"merged\"")).expect("a merge")
}

#[test]
fn memory_survives_a_kill_between_two_stories() {
    let one = || story(1, "acp-shim remember 'one is odd' --id odd; echo 1 > one");
    let two = || depending_on(story(2, SAVE_MEMORY), &[1]);
    let whole = SwarmFixture::new();
    let tasks = whole.tasks(BRANCH, json!([one(), two()]));
    whole.longshore(&["run", &tasks]).expect(0, &["2 landed"]);
    let place = merge_count(&whole);
    // The same but for the commit, which has a time in it.
    let lasting = |ids: Vec<String>| ids.into_iter().filter(|id| !id.starts_with("commit:")).collect::<Vec<_>>();
    let wanted = lasting(whole.memory_lines());
    assert_eq!(wanted, ["file:one", "odd", "story:US-001"]);
    for later in 0..3 {
        let scratch = SwarmFixture::new();
        let tasks = scratch.tasks(BRANCH, json!([one(), two()]));
        let died = scratch.start_with(&["run", &tasks], &[(KILL_POINT, &(place + later).to_string())]).wait();
        assert_ne!(died.status.code(), Some(0), "{}", died.err);
        scratch.longshore(&["resume"]).expect(0, &["2 landed"]);
        let given = scratch.memory_lines();
        assert_eq!(lasting(given.clone()), wanted, "record {}", place + later);
        // What the story was given is what is kept of the one before.
        let mut stored = ids(&scratch.gram("US-001"));
        stored.sort();
        assert_eq!(stored, given);
        assert_eq!(scratch.state().story(1)["attempts"], 1);
        scratch.longshore(&["ssot", "check"]).expect(0, &["0 errors"]);
    }
}

#[test]
fn a_second_run_loads_the_memory_of_done_stories() {
    let scratch = SwarmFixture::new();
    let one = story(1, "acp-shim remember 'learned in the first run'; echo 1 > one");
    let tasks = scratch.tasks(BRANCH, json!([one.clone()]));
    scratch.longshore(&["run", &tasks]).expect(0, &["1 landed"]);
    let first = scratch.state().swarm().to_owned();
    let done = with_fields(one, json!({ "status": "completed" }));
    let tasks = scratch.tasks(BRANCH, json!([done, depending_on(story(2, SAVE_MEMORY), &[1])]));
    scratch.longshore(&["run", &tasks]).expect(0, &["2 landed"]);
    assert!(scratch.show(BRANCH, "memory.md").contains("learned in the first run"));
    let second = scratch.state().swarm().to_owned();
    let memory = scratch.root().join(".longshore/ssot/memory");
    assert_eq!([&first, &second].map(|swarm| all_files(&memory.join(swarm)).len()), [1, 1]);
    scratch.longshore(&["mesh", "show", &format!("{}/US-001", &first[..8])]).expect(0, &["learned in the first run"]);
    // And a third what came before both.
    let done = |number: usize| with_fields(story(number, "true"), json!({ "status": "completed" }));
    let chain = json!([done(1), depending_on(done(2), &[1]), depending_on(story(3, SAVE_MEMORY), &[2])]);
    scratch.longshore(&["run", &scratch.tasks(BRANCH, chain)]).expect(0, &["3 landed"]);
    let given = scratch.memory_lines();
    assert!(
        ["story:US-001", "story:US-002", "file:one"].iter().all(|id| given.contains(&(*id).to_owned())),
        "{given:?}"
    );
    // What cannot be read is told.
    let file = memory.join(&first).join(all_files(&memory.join(&first)).remove(0));
    let whole = std::fs::read_to_string(&file).expect("a file");
    for damaged in [whole.replace("learned in the first run", "changed"), whole[..whole.len() / 2].to_owned()] {
        std::fs::write(&file, &damaged).expect("written");
        let dump = format!("{SAVE_MEMORY}; echo {} > size", damaged.len());
        let chain = json!([done(1), depending_on(done(2), &[1]), depending_on(story(3, &dump), &[2])]);
        let ran = scratch.longshore(&["run", &scratch.tasks(BRANCH, chain)]);
        ran.expect(0, &["what an earlier swarm learned cannot be read", "US-001.json"]);
        assert!(!scratch.memory_lines().contains(&"story:US-001".to_owned()));
    }
    // Another branch is another's work.
    let tasks = scratch.tasks(
        "feat/other",
        json!([
            with_fields(story(1, "true"), json!({ "status": "completed" })),
            depending_on(story(2, SAVE_MEMORY), &[1])
        ]),
    );
    scratch.longshore(&["run", &tasks]).expect(0, &["2 landed"]);
    assert!(scratch.show("feat/other", "memory.md").contains("Nothing was learned"));
}

#[test]
fn review_findings_reach_later_stories() {
    let scratch = review::with_reviewer();
    let dump = with_fields(depending_on(story(1, SAVE_MEMORY), &[2]), json!({ "acceptanceCriteria": ["it is right"] }));
    let tasks = scratch.tasks(BRANCH, json!([review::story_adding(2, "two"), dump]));
    scratch.longshore(&["run", &tasks, "--review", "rev", "--retries", "0"]).expect(0, &["2 landed"]);
    let memory = scratch.show(BRANCH, "memory.md");
    for part in [
        "part 0 of the work is missing: 0th",
        "part 1 of the work is missing",
        "severity: major",
        "is about `file:two`",
    ] {
        assert!(memory.contains(part), "{part} is not in\n{memory}");
    }
}

#[test]
fn stories_of_one_sandbox_share_memory() {
    let scratch = SwarmFixture::new();
    let stories = json!([
        story(1, "acp-shim remember 'in the same sandbox'; echo 1 > one"),
        depending_on(story(2, SAVE_MEMORY), &[1]),
    ]);
    let tasks = scratch.tasks(BRANCH, stories);
    scratch.longshore(&["run", &tasks, "--fan-out", "file"]).expect(0, &["2 landed"]);
    assert!(scratch.show(BRANCH, "memory.md").contains("in the same sandbox"));
    scratch.longshore(&["mesh", "show", "US-001", "--markdown"]).expect(0, &["in the same sandbox"]);
}

#[test]
fn a_zero_budget_gives_no_memory() {
    let scratch = SwarmFixture::new();
    let tasks = scratch.tasks(BRANCH, json!([story(1, "echo 1 > one"), depending_on(story(2, SAVE_MEMORY), &[1])]));
    scratch.longshore(&["run", &tasks, "--memory-budget", "65k"]).expect(2, &["memory_budget", "at most 64k"]);
    scratch.longshore(&["run", &tasks, "--memory-budget", "0"]).expect(0, &["2 landed"]);
    assert_eq!(scratch.memory_lines(), [""; 0]);
}
