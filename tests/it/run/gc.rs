//! What dead swarms leave is cleaned up, and not before its work is safe.

use super::*;

/// A swarm on this branch whose stories have begun: the orchestrator, the swarm's id, and the sandboxes.
fn begun(scratch: &Scratch, branch: &str, stories: Value) -> (Running, String, Vec<Sandbox>) {
    let count = stories.as_array().expect("stories").len();
    let before = scratch.swarms();
    let name = format!("{}.json", branch.replace('/', "-"));
    let tasks = scratch.tasks_with(&name, json!({ "branchName": branch }), stories);
    let running = scratch.start(&["run", &tasks, "--max", "4", "--retries", "0", "--grace", "1s"]);
    let swarm = eventually("the swarm's folder", || scratch.swarms().into_iter().find(|id| !before.contains(id)));
    let sandboxes = eventually("its sandboxes run", || {
        let filter = format!("label={}={swarm}", label::SWARM);
        let listed = docker(&["ps", "-q", "--no-trunc", "--filter", &filter, "--filter", SANDBOXES]).ok()?;
        let ready = |id: &&str| docker(&["exec", id, "test", "-e", "/tmp/begun"]).is_ok();
        let found: Vec<Sandbox> = listed.split_whitespace().filter(ready).map(|id| Sandbox(id.to_owned())).collect();
        (found.len() == count).then_some(found)
    });
    (running, swarm, sandboxes)
}

fn writes(number: usize) -> Value {
    story(number, &format!("echo half {number} > half-{number}; {WAIT} echo whole > whole-{number}"))
}

fn of(swarm: &str) -> Vec<(&'static str, String)> {
    things(&format!("{}={swarm}", label::SWARM))
}

#[test]
fn work_is_salvaged_before_it_is_removed_and_a_live_swarm_is_left_alone() {
    let scratch = Scratch::new();
    let (dead, old, sandboxes) = begun(&scratch, "feat/dead", json!([writes(1), writes(2)]));
    dead.signal("KILL");
    dead.wait();
    // One of them finishes, and nobody hears it.
    sandboxes[0].go();
    eventually("it ends", || (sandboxes[0].inspect()["State"]["Running"] == false).then_some(()));
    let (alive, new, other) = begun(&scratch, "feat/alive", json!([writes(3)]));
    let alive_has = of(&new);

    let left = of(&old);
    assert!(left.len() >= 5, "two sandboxes, a depot, two volumes: {left:?}");
    scratch.longshore(&["gc"]).expect(0, &["it may hold work that is nowhere else", "0 removed"]);
    scratch.longshore(&["gc", "--all", "--dry-run"]).expect(0, &["what is not on the host is salvaged first"]);
    scratch.longshore(&["gc", "--all", "--force", "--dry-run"]).expect(0, &["which is running"]);
    assert_eq!(of(&old), left, "nothing was done");

    let ran = scratch.longshore(&["gc", "--all"]).expect(0, &["whose work was salvaged", "which is running"]);
    assert_eq!(of(&old), [], "{}", ran.out);
    assert_eq!(of(&new), alive_has);
    for number in [1, 2] {
        let reference = scratch.refs().into_iter().filter(|name| name.starts_with("refs/longshore/salvage/"));
        let kept: Vec<String> =
            reference.filter(|name| scratch.paths(name).contains(&format!("half-{number}"))).collect();
        assert_eq!(kept.len(), 1, "{}", ran.out);
        assert!(kept[0].contains(&old) && ran.out.contains(&kept[0]), "{}", ran.out);
        assert_eq!(scratch.show(&kept[0], &format!("half-{number}")), format!("half {number}"));
        scratch.longshore(&["salvage", "list", "--swarm", &old[..8]]).expect(0, &["US-00"]);
    }
    let whole =
        scratch.refs().iter().filter(|name| scratch.paths(name).iter().any(|path| path.starts_with("whole-"))).count();
    assert!(whole >= 1, "what was finished is there whole");

    other[0].go();
    alive.wait().expect(0, &["1 landed"]);
    // What was rescued can be begun anew, too.
    scratch.git(&["fsck", "--strict"]);
    let resumed = scratch.start(&["resume", &old[..8]]);
    let again = eventually("both begin again", || {
        let filter = format!("label={}={old}", label::SWARM);
        let listed = docker(&["ps", "-q", "--no-trunc", "--filter", &filter, "--filter", SANDBOXES]).ok()?;
        let ids: Vec<Sandbox> = listed.split_whitespace().map(|id| Sandbox(id.to_owned())).collect();
        (ids.len() == 2).then_some(ids)
    });
    again.iter().for_each(Sandbox::go);
    resumed.wait().expect(0, &["2 landed"]);
    scratch.longshore(&["gc", "--all"]).expect(0, &[]);
    assert_eq!(scratch.in_engine(), [""; 0]);
}

#[test]
fn what_cannot_be_salvaged_is_kept_until_it_is_forced() {
    let scratch = Scratch::new();
    let (dead, swarm, _) = begun(&scratch, "feat/dead", json!([writes(1)]));
    dead.signal("KILL");
    dead.wait();
    let short = &swarm[..8];
    scratch.longshore(&["gc", "0000"]).expect(2, &["no swarm `0000` here"]);
    scratch.longshore(&["gc", "--force"]).expect(2, &["--all"]);

    // Without a shim nobody can look into the volumes.
    let without = [("LONGSHORE_SHIM", "/nowhere")];
    let ran = scratch.start_with(&["gc", short, "--json"], &without).wait().expect(0, &[]);
    let lines: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(lines.iter().all(|line| line["verdict"] == "kept" && line["reason"].is_string()), "{}", ran.out);
    let told = |thing: &str| lines.iter().filter(|line| line["thing"] == thing).count();
    assert!(told("swarm") == 1 && told("volume") == 2 && told("container") >= 1, "{}", ran.out);
    assert!(ran.out.contains("/nowhere"), "{}", ran.out);
    assert!(of(&swarm).len() >= 3);

    // A record that cannot be read says nothing of what there is.
    let journal = scratch.root().join(".longshore/swarms").join(&swarm).join("journal.ndjson");
    let whole = std::fs::read(&journal).expect("a journal");
    let mut damaged = whole.clone();
    damaged[40] ^= 1;
    std::fs::write(&journal, damaged).expect("written");
    scratch.longshore(&["gc", "--all"]).expect(0, &["whose record cannot be read", "--force removes it"]);
    assert!(of(&swarm).len() >= 3);
    std::fs::write(&journal, whole).expect("written");

    let ran = scratch.longshore(&["gc", short, "--json"]).expect(0, &["\"salvaged\"", "\"removed\""]);
    assert_eq!(of(&swarm), [], "{}", ran.out);
    assert_eq!(scratch.show(&format!("refs/longshore/salvage/{swarm}/US-001/1"), "half-1"), "half 1");
}
