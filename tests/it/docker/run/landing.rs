//! Swarms in which all goes well.

use super::*;

/// Everything about the user's checkout that a swarm must leave as it is.
fn checkout_files(scratch: &SwarmFixture) -> BTreeMap<PathBuf, Vec<u8>> {
    let root = scratch.root();
    let files = all_files(&root).into_iter().filter(|path| {
        let inside = path.strip_prefix(&root).expect("below the root");
        // Objects, refs and the swarm's record are what it adds.
        !inside.starts_with(".longshore")
            && ![".git/objects", ".git/refs", ".git/logs"].iter().any(|at| inside.starts_with(at))
    });
    files.map(|path| (path.clone(), std::fs::read(&path).expect("read"))).collect()
}

#[test]
fn a_diamond_lands_and_the_checkout_is_untouched() {
    let scratch = SwarmFixture::new();
    scratch.write("staged.txt", "staged\n");
    scratch.git(&["add", "staged.txt"]);
    scratch.write("lines.txt", "changed, and not staged\n");
    scratch.write("untracked.txt", "untracked\n");
    let tasks = scratch.tasks(
        "feat/diamond",
        json!([
            story(1, "echo base > a; sed -i s/two/TWO/ lines.txt"),
            depending_on(story(2, "cat a > b; echo left >> b; test ! -e c"), &[1]),
            depending_on(story(3, "cat a > c; echo right >> c; git add c; git commit -qm 'a commit of its own'"), &[1]),
            depending_on(story(4, "cat b c lines.txt > d; test ! -e untracked.txt"), &[2, 3]),
        ]),
    );
    let head = scratch.git(&["rev-parse", "HEAD"]);
    let status = scratch.git(&["status", "--porcelain"]);
    let before = checkout_files(&scratch);

    let ran = scratch.longshore(&["run", &tasks]).expect(0, &["4 landed", "the working tree has uncommitted changes"]);
    assert!(ran.out.contains("feat/diamond"), "{}", ran.out);

    assert!(before == checkout_files(&scratch), "the checkout changed");
    assert_eq!(scratch.git(&["status", "--porcelain"]), status);
    assert_eq!(scratch.git(&["symbolic-ref", "HEAD"]), "refs/heads/main");
    assert_eq!(scratch.git(&["rev-parse", "HEAD"]), head);
    assert_eq!(scratch.show("feat/diamond", "d"), "base\nleft\nbase\nright\none\nTWO\nthree");

    let state = scratch.state();
    state.expect(&["landed"; 4]);
    assert_eq!(state.0["status"], "landed");
    let swarm = state.swarm();
    let results = (1..=4).map(|number| format!("refs/longshore/results/{swarm}/US-{number:03}/1"));
    let refs: Vec<String> =
        ["refs/heads/feat/diamond", "refs/heads/main"].map(str::to_owned).into_iter().chain(results).collect();
    assert_eq!(scratch.refs(), refs);
    for number in 1..=4 {
        let commit = as_text(&state.story(number)["commit"]);
        scratch.git(&["merge-base", "--is-ancestor", commit, "feat/diamond"]);
        let history = scratch.git(&["log", "--format=%B", "main..feat/diamond"]);
        // Its own commit may be what landed, under the agent's own words.
        let own_words = number == 3 && history.contains("a commit of its own");
        assert!(own_words || history.contains(&format!("US-{number:03}: Story {number}")), "{history}");
        assert!(history.contains(&format!("Longshore-Story: US-{number:03}")), "{history}");
        assert!(history.contains(&format!("Longshore-Swarm: {swarm}")), "{history}");
    }
    for container in state.0["containers"].as_array().expect("a list") {
        assert_eq!((as_text(&container["status"]), &container["exitCode"]), ("completed", &json!(0)));
    }
    assert_eq!(scratch.engine_resources(), [""; 0], "nothing of the swarm is left in the engine");
    scratch.git(&["fsck", "--strict"]);
    let log = format!("logs/{}.log", as_text(&state.story(1)["assignment"]));
    for file in ["report.md", "report.json", "journal.ndjson", &log] {
        assert!(scratch.latest().join(file).is_file(), "{file}");
    }
    scratch.longshore(&["status"]).expect(0, &["every story landed", "US-004"]);
    scratch.longshore(&["logs", "US-003"]).expect(0, &["US-003 begins"]);
    scratch.longshore(&["gc", "--dry-run"]).expect(0, &[]);
}

#[test]
fn runs_start_at_a_detached_head_or_an_existing_branch() {
    let scratch = SwarmFixture::new();
    scratch.git(&["checkout", "--quiet", "--detach"]);
    let first = scratch.tasks("feat/x", json!([story(1, "echo 1 > one")]));
    scratch.longshore(&["run", &first]).expect(0, &["the detached HEAD", "1 landed"]);
    let one = scratch.git(&["rev-parse", "feat/x"]);
    let second = scratch.tasks("feat/x", json!([story(1, "cat one > two")]));
    scratch.longshore(&["run", &second]).expect(0, &["branch feat/x exists", &one[..10], "1 landed"]);
    scratch.git(&["merge-base", "--is-ancestor", &one, "feat/x"]);
    assert_eq!(scratch.show("feat/x", "two"), "1");
    assert_eq!(scratch.git(&["rev-parse", "--abbrev-ref", "HEAD"]), "HEAD");
}
