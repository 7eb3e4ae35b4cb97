//! What dead swarms leave is cleaned up, and not before its work is safe.

use super::*;

/// A swarm on this branch whose stories have begun: the orchestrator, the swarm's id, and the sandboxes.
fn start_waiting_swarm(
    scratch: &SwarmFixture,
    branch: &str,
    stories: Value,
) -> (RunningCommand, String, Vec<SandboxHandle>) {
    let count = stories.as_array().expect("stories").len();
    let before = scratch.swarms();
    let name = format!("{}.json", branch.replace('/', "-"));
    let tasks = scratch.tasks_with(&name, json!({ "branchName": branch }), stories);
    let running = scratch.start(&["run", &tasks, "--max", "4", "--retries", "0", "--grace", "1s"]);
    let swarm = eventually("the swarm's folder", || scratch.swarms().into_iter().find(|id| !before.contains(id)));
    let sandboxes = eventually("its sandboxes run", || {
        let filter = format!("label={}={swarm}", label::SWARM);
        let listed = docker(&["ps", "-q", "--no-trunc", "--filter", &filter, "--filter", SANDBOX_FILTER]).ok()?;
        let ready = |id: &&str| docker(&["exec", id, "test", "-e", "/tmp/begun"]).is_ok();
        let found: Vec<SandboxHandle> =
            listed.split_whitespace().filter(ready).map(|id| SandboxHandle(id.to_owned())).collect();
        (found.len() == count).then_some(found)
    });
    (running, swarm, sandboxes)
}

fn writing_story(number: usize) -> Value {
    story(number, &format!("echo half {number} > half-{number}; {WAIT_FOR_GO} echo whole > whole-{number}"))
}

fn resources_of(swarm: &str) -> Vec<(&'static str, String)> {
    resources_with_label(&format!("{}={swarm}", label::SWARM))
}

#[test]
fn gc_salvages_before_removing_and_spares_live_swarms() {
    let scratch = SwarmFixture::new();
    let (dead, old, sandboxes) =
        start_waiting_swarm(&scratch, "feat/dead", json!([writing_story(1), writing_story(2)]));
    dead.signal("KILL");
    dead.wait();
    // One of them finishes, and nobody hears it.
    sandboxes[0].release();
    eventually("it ends", || (sandboxes[0].inspect()["State"]["Running"] == false).then_some(()));
    let (alive, new, other) = start_waiting_swarm(&scratch, "feat/alive", json!([writing_story(3)]));
    let alive_has = resources_of(&new);

    let left = resources_of(&old);
    assert!(left.len() >= 5, "two sandboxes, a depot, two volumes: {left:?}");
    scratch.longshore(&["gc"]).expect(0, &["it may hold work that is nowhere else", "0 removed"]);
    scratch.longshore(&["gc", "--all", "--dry-run"]).expect(0, &["what is not on the host is salvaged first"]);
    scratch.longshore(&["gc", "--all", "--force", "--dry-run"]).expect(0, &["which is running"]);
    assert_eq!(resources_of(&old), left, "nothing was done");

    let ran = scratch.longshore(&["gc", "--all"]).expect(0, &["whose work was salvaged", "which is running"]);
    assert_eq!(resources_of(&old), [], "{}", ran.out);
    assert_eq!(resources_of(&new), alive_has);
    for number in [1, 2] {
        let references = scratch.refs().into_iter().filter(|name| name.starts_with("refs/longshore/salvage/"));
        let salvage_refs: Vec<String> =
            references.filter(|name| scratch.paths(name).contains(&format!("half-{number}"))).collect();
        assert_eq!(salvage_refs.len(), 1, "{}", ran.out);
        assert!(salvage_refs[0].contains(&old) && ran.out.contains(&salvage_refs[0]), "{}", ran.out);
        assert_eq!(scratch.show(&salvage_refs[0], &format!("half-{number}")), format!("half {number}"));
        scratch.longshore(&["salvage", "list", "--swarm", &old[..8]]).expect(0, &["US-00"]);
    }
    let whole =
        scratch.refs().iter().filter(|name| scratch.paths(name).iter().any(|path| path.starts_with("whole-"))).count();
    assert!(whole >= 1, "what was finished is there whole");

    other[0].release();
    alive.wait().expect(0, &["1 landed"]);
    // What was rescued can be begun anew, too.
    scratch.git(&["fsck", "--strict"]);
    let resumed = scratch.start(&["resume", &old[..8]]);
    let again = eventually("both begin again", || {
        let filter = format!("label={}={old}", label::SWARM);
        let listed = docker(&["ps", "-q", "--no-trunc", "--filter", &filter, "--filter", SANDBOX_FILTER]).ok()?;
        let ids: Vec<SandboxHandle> = listed.split_whitespace().map(|id| SandboxHandle(id.to_owned())).collect();
        (ids.len() == 2).then_some(ids)
    });
    again.iter().for_each(SandboxHandle::release);
    resumed.wait().expect(0, &["2 landed"]);
    scratch.longshore(&["gc", "--all"]).expect(0, &[]);
    assert_eq!(scratch.engine_resources(), [""; 0]);
}

#[test]
fn gc_keeps_unsalvageable_work_unless_forced() {
    let scratch = SwarmFixture::new();
    let (dead, swarm, _) = start_waiting_swarm(&scratch, "feat/dead", json!([writing_story(1)]));
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
    let count_kind = |kind: &str| lines.iter().filter(|line| line["thing"] == kind).count();
    assert!(count_kind("swarm") == 1 && count_kind("volume") == 2 && count_kind("container") >= 1, "{}", ran.out);
    assert!(ran.out.contains("/nowhere"), "{}", ran.out);
    assert!(resources_of(&swarm).len() >= 3);

    // A record that cannot be read says nothing of what there is.
    let journal = scratch.root().join(".longshore/swarms").join(&swarm).join("journal.ndjson");
    let whole = std::fs::read(&journal).expect("a journal");
    let mut damaged = whole.clone();
    damaged[40] ^= 1;
    std::fs::write(&journal, damaged).expect("written");
    scratch.longshore(&["gc", "--all"]).expect(0, &["whose record cannot be read", "--force removes it"]);
    assert!(resources_of(&swarm).len() >= 3);
    std::fs::write(&journal, whole).expect("written");

    let ran = scratch.longshore(&["gc", short, "--json"]).expect(0, &["\"salvaged\"", "\"removed\""]);
    assert_eq!(resources_of(&swarm), [], "{}", ran.out);
    assert_eq!(scratch.show(&format!("refs/longshore/salvage/{swarm}/US-001/1"), "half-1"), "half 1");
}
