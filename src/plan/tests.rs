//! Tests of the plan: what it says, what it refuses, and properties.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::limits::*;
use super::*;
use crate::ids::{AssignmentId, CommitId, StoryKey, SwarmId};
use crate::swarm::SwarmLimits;
use crate::tasks::{self, DoneStatus, TasksFile};

const CANONICAL: &str = include_str!("../../tests/golden/tasks/canonical.json");
const PASSES: &str = include_str!("../../tests/golden/tasks/passes.json");
const RALPH: &str = include_str!("../../tests/golden/tasks/ralph.json");

/// Stories of 2026, each in a sandbox of its own with an agent.
pub(crate) fn options() -> PlanOptions {
    PlanOptions { fan_out: FanOut::Story, rerun_done: false, branch: None, year: 2026, mailbox: None, has_agent: true }
}

/// A file as `tasks::load` gives it; its path is in no repo.
fn file(path: &str, text: &str) -> (TasksFile, Vec<u8>) {
    (tasks::parse(text.as_bytes(), Path::new(path)).expect("a valid tasks file"), text.as_bytes().to_vec())
}

fn plan_of(files: &[(&str, &str)], options: &PlanOptions) -> Result<Plan, PlanError> {
    build(files.iter().map(|(path, text)| file(path, text)).collect(), Path::new("/nowhere/repo"), options)
}

/// A file with these stories on a branch.
fn tasks_file_with(branch: Value, stories: Value) -> String {
    json!({ "metadata": { "title": "The title", "branchName": branch }, "userStories": stories }).to_string()
}

fn one_story() -> Value {
    json!([{ "id": "US-001", "title": "x" }])
}

fn problems(result: Result<Plan, PlanError>) -> Vec<String> {
    let error = result.expect_err("refused");
    for problem in error.problems() {
        assert!(!problem.kind.remedy().is_empty());
    }
    error.problems().iter().map(ToString::to_string).collect()
}

fn ids(keys: &[StoryKey]) -> Vec<&str> {
    keys.iter().map(|key| key.id.as_str()).collect()
}

#[test]
fn done_stories_are_not_planned() {
    let plan = plan_of(&[("a/canonical.json", CANONICAL)], &options()).expect("a plan");
    // US-003 has the better priority; US-001, on which both depend, is done.
    assert_eq!(plan.waves.iter().map(|wave| ids(wave)).collect::<Vec<_>>(), [["US-003", "US-002"]]);
    let assignments: Vec<_> = plan.assignments.iter().map(|a| (a.id.as_str(), a.branch.as_str(), a.priority)).collect();
    assert_eq!(
        assignments,
        [("T-2026-001", "feat/shopping-list-us-002", 2), ("T-2026-002", "feat/shopping-list-us-003", 1)]
    );
    let done: Vec<_> = plan.stories.iter().map(|story| story.done).collect();
    assert_eq!(done, [Some(DoneStatus::Completed), None, None, Some(DoneStatus::Skipped)]);
    assert_eq!(plan.max_concurrency(), Some(3));
    assert_eq!(plan.label(&plan.waves[0][0]), "US-003");
    assert_eq!(plan.story(&plan.waves[0][0]).title, "Remove an item");
    assert_eq!(plan.files[0].task_file_path, ".longshore/tasks/canonical.json");
    assert_eq!(plan.files[0].bytes, CANONICAL.as_bytes());
}

#[test]
fn stories_in_one_sandbox_need_identical_header_blocks() {
    let block = |priority: u32| json!({"header": {"alert": {"priority": priority}}});
    let text = |one: Value, two: Value| {
        let stories = json!([{"id": "US-001", "title": "x", "mesh": one}, {"id": "US-002", "title": "y", "mesh": two}]);
        let mesh = json!({"header": {"house": {"rules": []}, "alert": {"priority": 1}}});
        json!({"metadata": {"title": "T", "branchName": "b", "mesh": mesh}, "userStories": stories}).to_string()
    };
    let together = PlanOptions { fan_out: FanOut::File, ..options() };
    let plan = plan_of(&[("f.json", &text(block(2), block(2)))], &together).expect("a plan");
    let blocks = plan.header_blocks(0, &plan.assignments[0].stories);
    assert_eq!(Value::Object(blocks), json!({"house": {"rules": []}, "alert": {"priority": 2}}));
    let says = "f.json: stories `US-001`, `US-002`: the two share a sandbox but differ in the header block `alert`";
    // In so many words, and by leaving it to the file.
    for text in [text(block(2), block(3)), text(block(2), json!(null))] {
        assert_eq!(problems(plan_of(&[("f.json", &text)], &together)), [says]);
        assert!(plan_of(&[("f.json", &text)], &options()).is_ok(), "each in a sandbox of its own");
    }
    let long = json!({"header": {"alert": {"text": "x".repeat(33 * 1024)}}});
    let found = problems(plan_of(&[("f.json", &text(long, json!(null)))], &options()));
    assert_eq!(
        found,
        ["f.json: story `US-001`: the header blocks for one sandbox have 34 KB, and at most 32 KB can be delivered"]
    );
}

#[test]
fn rerun_done_plans_every_story() {
    let plan =
        plan_of(&[("canonical.json", CANONICAL)], &PlanOptions { rerun_done: true, ..options() }).expect("a plan");
    let waves: Vec<_> = plan.waves.iter().map(|wave| ids(wave)).collect();
    assert_eq!(waves, [vec!["US-001"], vec!["US-003", "US-002"], vec!["US-004"]]);
    assert!(plan.stories.iter().all(|story| story.done.is_none()));
}

#[test]
fn a_skipped_dependency_does_not_block() {
    let text = tasks_file_with(
        json!("b"),
        json!([
            { "id": "US-001", "title": "x", "status": "skipped" },
            { "id": "US-002", "title": "x", "dependsOn": ["US-001"] },
        ]),
    );
    let plan = plan_of(&[("a.json", &text)], &options()).expect("a plan");
    assert_eq!(plan.waves.iter().map(|wave| ids(wave)).collect::<Vec<_>>(), [["US-002"]]);
}

#[test]
fn a_plan_may_have_nothing_to_run() {
    let text = tasks_file_with(json!("b"), json!([{ "id": "US-001", "title": "x", "status": "completed" }]));
    for fan_out in [FanOut::Story, FanOut::File] {
        let plan = plan_of(&[("a.json", &text)], &PlanOptions { fan_out, ..options() }).expect("a plan");
        assert!(plan.assignments.is_empty() && plan.waves.is_empty());
        assert!(render::to_text(&plan).ends_with("\nnothing to run\n"));
    }
}

#[test]
fn fan_out_file_plans_one_assignment_per_file() {
    let options = PlanOptions { fan_out: FanOut::File, ..options() };
    let plan = plan_of(&[("canonical.json", CANONICAL), ("x/ralph.json", RALPH)], &options).expect("a plan");
    let assignments: Vec<_> = plan
        .assignments
        .iter()
        .map(|a| (a.id.as_str(), a.file, a.branch.as_str(), ids(&a.stories), a.priority))
        .collect();
    assert_eq!(
        assignments,
        [
            ("T-2026-001", 0, "feat/shopping-list-canonical", vec!["US-003", "US-002"], 1),
            ("T-2026-002", 1, "ralph/lamp-control-ralph", vec!["US-001", "US-003"], 3),
        ]
    );
    assert_eq!(plan.label(&plan.assignments[1].stories[0]), "ralph/US-001");
}

#[test]
fn slugs_and_branches_are_unique() {
    let shared = tasks_file_with(json!("feat/a"), one_story());
    let clash = tasks_file_with(json!("feat/a-prd-us-001"), one_story());
    let files = [("x/prd.json", shared.as_str()), ("y/prd.json", &shared), ("z/other.json", &clash)];
    let plan = plan_of(&files, &options()).expect("a plan");
    assert_eq!(plan.files.iter().map(|file| file.slug.as_str()).collect::<Vec<_>>(), ["prd", "prd-2", "other"]);
    let branches: Vec<_> = plan.assignments.iter().map(|assignment| assignment.branch.as_str()).collect();
    assert_eq!(branches, ["feat/a-prd-us-001-2", "feat/a-prd-2-us-001", "feat/a-prd-us-001-us-001"]);
}

#[test]
fn the_branch_comes_from_the_flag_the_file_or_the_title() {
    let branch = |text: &str, flag: Option<&str>| {
        let options = PlanOptions { branch: flag.map(str::to_owned), ..options() };
        plan_of(&[("my file.json", text)], &options).expect("a plan").files[0].branch.to_string()
    };
    assert_eq!(branch(&tasks_file_with(json!("main"), one_story()), Some("feat/x")), "feat/x");
    assert_eq!(branch(&tasks_file_with(json!("feat/y"), one_story()), None), "feat/y");
    assert_eq!(branch(&tasks_file_with(json!(null), one_story()), None), "longshore/the-title");
    let japanese = json!({ "project": "日本", "userStories": one_story() }).to_string();
    assert_eq!(branch(&japanese, None), "longshore/my-file");
}

#[test]
fn invalid_arguments_and_branches_are_rejected() {
    let good = tasks_file_with(json!("b"), one_story());
    let several = PlanOptions { branch: Some("x".to_owned()), ..options() };
    assert_eq!(problems(plan_of(&[], &options())), ["no tasks file was given"]);
    let many = vec![("a.json", good.as_str()); MAX_FILES + 1];
    assert_eq!(problems(plan_of(&many, &options())), ["101 tasks files were given; at most 100 go into one swarm"]);
    assert_eq!(
        problems(plan_of(&[("a.json", &good), ("b.json", &good)], &several)),
        ["`--branch`: one branch was given for 2 tasks files"]
    );
    assert_eq!(
        problems(plan_of(&[("a.json", &good), ("./a.json", &good)], &options())),
        ["./a.json: the file was given twice (also as `a.json`)"]
    );
    assert_eq!(
        problems(plan_of(&[("a.json", &tasks_file_with(json!("main"), one_story()))], &options())),
        ["a.json: `metadata.branchName`: longshore never merges stories onto `main`: only a person may"]
    );
    let ralph = json!({ "name": "n", "branchName": "a b", "userStories": one_story() }).to_string();
    assert_eq!(
        problems(plan_of(&[("a.json", &ralph)], &options())),
        ["a.json: `branchName`: the branch name `a b` has a space; allowed are letters, digits, `/`, `_` and `-`"]
    );
    let flag = PlanOptions { branch: Some("master".to_owned()), ..options() };
    assert_eq!(
        problems(plan_of(&[("a.json", &good)], &flag)),
        ["a.json: `--branch`: longshore never merges stories onto `master`: only a person may"]
    );
    assert_eq!(
        problems(plan_of(&[("a.json", &good), ("b.json", &tasks_file_with(json!("b/c"), one_story()))], &options())),
        ["b.json: the branch `b/c` conflicts with the branch `b` of `a.json`: git cannot store both"]
    );
    let long = "x".repeat(195);
    assert_eq!(
        problems(plan_of(&[("a.json", &tasks_file_with(json!(long), one_story()))], &options())),
        [format!("a.json: the branch name `{long}` is too long: with `-us-001` it passes 200 characters")]
    );
}

#[test]
fn all_problems_of_all_files_are_reported_together() {
    let first = tasks_file_with(
        json!("main"),
        json!([
            { "id": "setup", "title": "x", "touches": ["src/[a", "/etc"] },
            { "id": "US-002", "title": "x", "command": "make" },
            { "id": "US-003", "title": "x", "status": "completed" },
            { "id": "US-004", "title": "x", "touches": ["../x"] },
        ]),
    );
    let second = tasks_file_with(json!("feat/ä"), one_story());
    let options = PlanOptions { has_agent: false, ..options() };
    let error = plan_of(&[("a.json", &first), ("b.json", &second)], &options).expect_err("refused");
    assert_eq!(
        error.to_string(),
        "\
a.json: story `setup`, `userStories[0].touches[0]`: the glob `src/[a` cannot be read: unclosed character class; missing ']'
    remedy: correct it; `*` is any text, `**/` any folders, `{a,b}` either
a.json: story `setup`, `userStories[0].touches[1]`: the glob `/etc` leaves the repository
    remedy: write it relative to the repository's root, without `..`
a.json: story `US-004`, `userStories[3].touches[0]`: the glob `../x` leaves the repository
    remedy: write it relative to the repository's root, without `..`
a.json: stories `setup`, `US-004`: no agent was named, and there is no `command` to run instead
    remedy: name one with `--agent NAME` or in `.longshore.toml`, or give the stories a `command`
a.json: `metadata.branchName`: longshore never merges stories onto `main`: only a person may
    remedy: give another branch with `--branch NAME`, or change it in the tasks file; review that branch and merge \
it yourself
b.json: story `US-001`: no agent was named, and there is no `command` to run instead
    remedy: name one with `--agent NAME` or in `.longshore.toml`, or give the stories a `command`
b.json: `metadata.branchName`: the branch name `feat/ä` has `ä`; allowed are letters, digits, `/`, `_` and `-`
    remedy: give another one with `--branch feat`, or change it in the tasks file"
    );
}

#[test]
fn overlapping_independent_assignments_are_kept_apart() {
    let text = tasks_file_with(
        json!("b"),
        json!([
            { "id": "US-001", "title": "x", "touches": ["src/a/**"] },
            { "id": "US-002", "title": "x", "touches": ["src/a/x.rs"] },
            { "id": "US-003", "title": "x", "touches": ["src/b/**"] },
            { "id": "US-004", "title": "x", "touches": ["src/*"], "dependsOn": ["US-005"] },
            { "id": "US-005", "title": "x", "dependsOn": ["US-003"] },
            { "id": "US-006", "title": "x" },
        ]),
    );
    let plan = plan_of(&[("a.json", &text)], &options()).expect("a plan");
    let apart: Vec<Vec<&str>> =
        plan.assignments.iter().map(|one| one.exclusive_with.iter().map(AssignmentId::as_str).collect()).collect();
    // US-004 waits for US-003, through US-005.
    assert_eq!(
        apart,
        [
            vec!["T-2026-002", "T-2026-004"],
            vec!["T-2026-001", "T-2026-004"],
            vec![],
            vec!["T-2026-001", "T-2026-002"],
            vec![],
            vec![],
        ]
    );

    let files = [("a.json", text.as_str()), ("b.json", CANONICAL), ("c.json", PASSES)];
    let plan = plan_of(&files, &PlanOptions { fan_out: FanOut::File, ..options() }).expect("a plan");
    let apart: Vec<usize> = plan.assignments.iter().map(|one| one.exclusive_with.len()).collect();
    assert_eq!(apart, [1, 1, 0]);
}

#[test]
fn the_swarm_spec_is_the_plan_with_bases() {
    let plan = plan_of(&[("a/canonical.json", CANONICAL)], &options()).expect("a plan");
    let limits = SwarmLimits { max_sandboxes: 3, ..crate::report::story_labels::tests::spec(1).limits };
    let base: CommitId = "a".repeat(40).parse().expect("a commit");
    let spec = plan.to_swarm_spec(SwarmId::random(), std::slice::from_ref(&base), limits.clone());
    assert_eq!((&spec.stories, &spec.assignments, &spec.limits), (&plan.stories, &plan.assignments, &limits));
    assert_eq!((spec.files[0].path.as_str(), spec.files[0].slug.as_str()), ("a/canonical.json", "canonical"));
    assert_eq!((spec.files[0].branch.as_str(), &spec.files[0].base), ("feat/shopping-list", &base));
}

#[test]
fn the_plan_renders_as_text_and_json() {
    let golden = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tasks").join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let files = [("tasks/canonical.json", CANONICAL), ("tasks/ralph.json", RALPH)];
    let by_story = plan_of(&files, &options()).expect("a plan");
    assert_eq!(render::to_text(&by_story), golden("plan-story.txt"));
    let by_file = plan_of(&files, &PlanOptions { fan_out: FanOut::File, ..options() }).expect("a plan");
    assert_eq!(render::to_text(&by_file), golden("plan-file.txt"));

    let document = render::to_json(&by_story);
    assert_eq!(format!("{document:#}\n"), golden("plan-story.json"));
    let schema = serde_json::to_value(render::schema()).expect("a schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("a valid schema");
    for plan in [&by_story, &by_file] {
        let document = render::to_json(plan);
        assert_eq!(validator.iter_errors(&document).map(|error| error.to_string()).collect::<Vec<_>>(), [""; 0]);
    }
    let mut wrong = document;
    wrong["files"][0]["stories"] = json!(1);
    assert!(!validator.is_valid(&wrong));
}

#[test]
fn the_example_files_match_the_schema_and_can_be_planned() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tasks");
    let schema = serde_json::to_value(tasks::schema()).expect("a schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("a valid schema");
    let mut examples = 0;
    let entries = |folder: &Path| fs::read_dir(folder).expect("a folder of examples");
    for entry in entries(&folder).chain(entries(&folder.join("patterns"))) {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            continue;
        }
        let (tasks, bytes) = tasks::load(&path).unwrap_or_else(|error| panic!("{error}"));
        let value: Value = serde_json::from_slice(&bytes).expect("JSON");
        assert!(validator.is_valid(&value), "{}", path.display());
        build(vec![(tasks, bytes)], &folder, &options()).unwrap_or_else(|error| panic!("{error}"));
        examples += 1;
    }
    assert!(examples >= 6, "two examples and four patterns, found {examples}");
}

/// Stories `US-001`... of which each depends on some of the stories before it in a shuffled order.
fn stories() -> impl Strategy<Value = Value> {
    let edges = prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..40);
    let shuffled = (1..20_usize).prop_flat_map(|count| Just((0..count).collect::<Vec<_>>()).prop_shuffle());
    let details = prop::collection::vec((0i64..4, any::<bool>(), "src/[ab]{1,2}(/\\*)?"), 20);
    (shuffled, edges, details).prop_map(|(order, edges, details)| {
        let mut stories: Vec<Value> = (0..order.len())
            .map(|at| {
                let (priority, done, glob) = &details[at];
                let status = if *done { "completed" } else { "pending" };
                json!({ "id": format!("US-{:03}", at + 1), "title": "x", "priority": priority, "status": status,
                        "touches": [glob], "dependsOn": [] })
            })
            .collect();
        for (one, two) in edges {
            let (one, two) = (one.index(order.len()), two.index(order.len()));
            if one < two {
                let dependency = stories[order[one]]["id"].clone();
                stories[order[two]]["dependsOn"].as_array_mut().expect("an array").push(dependency);
            }
        }
        stories.into()
    })
}

proptest! {
    #[test]
    fn every_plan_is_consistent(stories in stories(), again: bool, by_file: bool) {
        let fan_out = if by_file { FanOut::File } else { FanOut::Story };
        let text = tasks_file_with(json!("b"), stories);
        let plan = plan_of(&[("a.json", &text)], &PlanOptions { rerun_done: again, fan_out, ..options() }).expect("a plan");
        let running: BTreeSet<_> = plan.stories.iter().filter(|s| s.done.is_none()).map(|s| s.key.clone()).collect();

        // Every story to run is in one wave and in one assignment.
        let in_waves: Vec<_> = plan.waves.iter().flatten().cloned().collect();
        let assigned: Vec<_> = plan.assignments.iter().flat_map(|one| one.stories.clone()).collect();
        prop_assert_eq!(in_waves.len(), running.len());
        prop_assert_eq!(assigned.len(), running.len());
        prop_assert_eq!(in_waves.iter().cloned().collect::<BTreeSet<_>>(), running.clone());
        prop_assert_eq!(assigned.iter().cloned().collect::<BTreeSet<_>>(), running.clone());

        // A wave comes directly after the last of what its stories depend on; an assignment's order allows itself.
        let wave: HashMap<_, _> =
            plan.waves.iter().enumerate().flat_map(|(at, keys)| keys.iter().map(move |key| (key.clone(), at))).collect();
        for story in plan.stories.iter().filter(|story| story.done.is_none()) {
            let before = story.depends_on.iter().filter_map(|key| wave.get(key)).max();
            prop_assert_eq!(wave[&story.key], before.map_or(0, |last| last + 1));
        }
        let mut reached: HashSet<StoryKey> = HashSet::new();
        for key in plan.assignments.iter().filter(|_| by_file).flat_map(|one| &one.stories) {
            let story = plan.stories.iter().find(|story| story.key == *key).expect("in the plan");
            prop_assert!(story.depends_on.iter().all(|key| reached.contains(key) || !running.contains(key)));
            reached.insert(key.clone());
        }

        // Branches are all different, and apart is mutual.
        let branches: BTreeSet<_> = plan.assignments.iter().map(|one| one.branch.as_str()).chain(["b"]).collect();
        prop_assert_eq!(branches.len(), plan.assignments.len() + 1);
        for one in &plan.assignments {
            prop_assert!(!one.exclusive_with.contains(&one.id));
            for other in &one.exclusive_with {
                let other = plan.assignments.iter().find(|two| two.id == *other).expect("in the plan");
                prop_assert!(other.exclusive_with.contains(&one.id));
            }
        }
    }
}

#[test]
fn a_large_file_is_reduced_to_the_assignment_stories() {
    let stories = |count: usize, size: usize| -> Value {
        let story = |at: usize| {
            let depends_on: Vec<String> = (at > 1).then(|| "US-001".to_owned()).into_iter().collect();
            json!({ "id": format!("US-{at:03}"), "title": "x", "notes": "\n".repeat(size), "dependsOn": depends_on })
        };
        (1..=count).map(story).collect()
    };
    let small = tasks_file_with(json!("b"), stories(10, 1000));
    let plan = plan_of(&[("a.json", &small)], &options()).expect("a plan");
    assert_eq!(plan.tasks_file_for(0, &plan.assignments[1].stories), small);

    let large = tasks_file_with(json!("b"), stories(10, 100_000));
    let plan = plan_of(&[("a.json", &large)], &options()).expect("a plan");
    let part = plan.tasks_file_for(0, &plan.assignments[1].stories);
    assert!(serde_json::to_string(&part).expect("JSON").len() <= MAX_DELIVERED_BYTES);
    let part = tasks::parse(part.as_bytes(), Path::new("a.json")).expect("a tasks file of its own");
    assert_eq!(part.stories.len(), 1);
    assert_eq!((part.stories[0].id.as_str(), part.stories[0].notes.len()), ("US-002", 100_000));

    let together = problems(plan_of(&[("a.json", &large)], &PlanOptions { fan_out: FanOut::File, ..options() }));
    assert!(together[0].contains("US-010") && together[0].contains("at most 640 KB"), "{together:?}");
    let one = problems(plan_of(&[("a.json", &tasks_file_with(json!("b"), stories(1, 400_000)))], &options()));
    assert!(one[0].starts_with("a.json: story `US-001`: the text for one sandbox has"), "{one:?}");
}

#[test]
fn json_string_length_matches_serde_json() {
    for text in ["", "plain", "a\"b\\c\n\r\t\u{8}\u{c}\u{1}\u{1f}\u{7f} ä €"] {
        assert_eq!(json_string_length(text), serde_json::to_string(text).expect("JSON").len(), "{text:?}");
    }
}

fn agents(plan: &Plan) -> Vec<(&str, &str)> {
    plan.agents.iter().map(|seat| (seat.id.as_str(), seat.role.as_str())).collect()
}

/// Stories with these `mailbox` values, in a file that wants a mailbox or says nothing.
fn tasks_file_with_mailbox(wanted: impl Into<Option<bool>>, mailboxes: &[Value]) -> String {
    let story = |(place, mailbox): (usize, &Value)| json!({ "id": format!("US-{:03}", place + 1), "title": "x", "mailbox": mailbox });
    let stories: Vec<Value> = mailboxes.iter().enumerate().map(story).collect();
    let metadata = json!({ "title": "T", "branchName": "feat/mail", "mailbox": wanted.into() });
    json!({ "metadata": metadata, "userStories": stories }).to_string()
}

#[test]
fn agent_ids_are_unique() {
    let named = json!({ "agent": "Alpha", "role": "coder" });
    let two = tasks_file_with_mailbox(true, &[named.clone(), Value::Null]);
    let plan = plan_of(&[("a.json", &two)], &options()).expect("a plan");
    assert_eq!(agents(&plan), [("Alpha", "coder"), ("us-002", "agent")]);
    assert_eq!(plan.agents[0].reviewer().id.as_str(), "Alpha-reviewer");
    let text = render::to_text(&plan);
    assert!(text.contains("in the mailbox Alpha (coder)") && text.contains("in the mailbox us-002 (agent)"), "{text}");
    assert_eq!(render::to_json(&plan)["assignments"][0]["agent"], json!({ "id": "Alpha", "role": "coder" }));

    // The setting outweighs the file, both ways.
    let off = PlanOptions { mailbox: Some(false), ..options() };
    assert!(!plan_of(&[("a.json", &two)], &off).expect("a plan").has_mailbox());
    let (on, plain) =
        (PlanOptions { mailbox: Some(true), ..options() }, tasks_file_with_mailbox(false, &[Value::Null]));
    assert!(!plan_of(&[("a.json", &plain)], &options()).expect("a plan").has_mailbox());
    assert_eq!(agents(&plan_of(&[("a.json", &plain)], &on).expect("a plan")), [("us-001", "agent")]);

    // Who names an agent wants a mailbox, unless the file says that there is none.
    let has = |wanted| {
        plan_of(&[("a.json", &tasks_file_with_mailbox(wanted, std::slice::from_ref(&named)))], &options())
            .expect("a plan")
            .has_mailbox()
    };
    assert_eq!([None, Some(true), Some(false)].map(has), [true, true, false]);

    // One file's wish is enough; several files have their slugs in the ids, and a sandbox for a file has that alone.
    let long = format!("{}.json", "long-name".repeat(12));
    let several = [("a.json", two.as_str()), ("b.json", plain.as_str()), (long.as_str(), plain.as_str())];
    let plan = plan_of(&several, &options()).expect("a plan");
    let ids: Vec<&str> = agents(&plan).iter().map(|(id, _)| *id).collect();
    assert_eq!(ids[..3], ["Alpha", "a-us-002", "b-us-001"]);
    assert!(ids[3].starts_with("long-name") && ids[3].ends_with("-us-001") && ids[3].len() <= 64, "{}", ids[3]);
    let by_file = PlanOptions { fan_out: FanOut::File, ..options() };
    let plan = plan_of(&several[..2], &by_file).expect("a plan");
    assert_eq!(agents(&plan), [("a", "agent"), ("b", "agent")]);
    assert!(render::to_text(&plan).contains("in the mailbox a (agent)"));
    // A wish is in the way of what would have been another's.
    let taken = tasks_file_with_mailbox(true, &[json!({ "agent": "us-002" }), Value::Null]);
    assert_eq!(agents(&plan_of(&[("a.json", &taken)], &options()).expect("a plan"))[1].0, "us-002-2");
}

#[test]
fn duplicate_agent_ids_are_rejected_with_both_stories() {
    let refused = |mailboxes: &[Value]| {
        problems(plan_of(&[("a.json", &tasks_file_with_mailbox(true, mailboxes))], &options())).join("\n")
    };
    let agent = |id: &str| json!({ "agent": id });
    let same = refused(&[agent("alpha"), agent("Alpha")]);
    assert!(
        same.contains(
            "stories `US-001`, `US-002`, `userStories[1].mailbox.agent`: the agent `Alpha` is in the mailbox twice"
        ),
        "{same}"
    );
    assert!(refused(&[agent("alpha"), agent("alpha-reviewer")]).contains("stories `US-001`, `US-002`"));
    assert!(refused(&[agent("alpha-reviewer"), agent("alpha")]).contains("stories `US-001`, `US-002`"));
    assert!(
        refused(&[agent("Host")])
            .contains("story `US-001`, `userStories[0].mailbox.agent`: the agent `Host` has a reserved name")
    );
    let files = [
        ("a.json", tasks_file_with_mailbox(true, &[agent("x")])),
        ("b.json", tasks_file_with_mailbox(false, &[agent("x")])),
    ];
    let both = problems(plan_of(&files.each_ref().map(|(path, text)| (*path, text.as_str())), &options())).join("\n");
    assert!(both.contains("b.json: stories `a/US-001`, `b/US-001`, "), "{both}");
}
