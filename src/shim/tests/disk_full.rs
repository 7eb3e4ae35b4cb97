//! Full disks: each case runs in a process of its own, whose temporary files are on a small file system.

use super::*;

/// Set in the process with the small disk.
const SMALL_DISK_VARIABLE: &str = "LONGSHORE_TEST_SMALL_DISK";

/// Runs a case where the test of this name is on a small disk; else runs that test in a process that has one.
fn run_on_small_disk(name: &str, case: fn()) {
    if std::env::var_os(SMALL_DISK_VARIABLE).is_some() {
        return case();
    }
    let dir = tempfile::tempdir().unwrap();
    // A user namespace where the system allows them to everybody, else root's own right to mount.
    let script = r#"mount -t tmpfs -o size=6m small "$1" && TMPDIR="$1" exec "$2" --exact "$3" --nocapture"#;
    let run = |flags: &[&str]| {
        Command::new("unshare")
            .args(flags)
            .env(SMALL_DISK_VARIABLE, "1")
            .args(["sh", "-c", script, "sh"])
            .arg(dir.path())
            .arg(std::env::current_exe().unwrap())
            .arg(format!("shim::tests::disk_full::{name}"))
            .output()
            .expect("`unshare` is part of util-linux")
    };
    let allowed = |flags: &[&str]| {
        let tried = Command::new("unshare").args(flags).args(["mount", "-t", "tmpfs", "small", "/mnt"]).output();
        tried.is_ok_and(|tried| tried.status.success())
    };
    let flags: &[&str] = if allowed(&["--user", "--map-root-user", "--mount"]) {
        &["--user", "--map-root-user", "--mount"]
    } else {
        &["--mount"]
    };
    let finished = run(flags);
    let output = format!("{}{}", String::from_utf8_lossy(&finished.stdout), String::from_utf8_lossy(&finished.stderr));
    assert!(finished.status.success() && output.contains("1 passed"), "{output}");
}

const FILL_DISK_COMMAND: &str = "echo half > half.txt; dd if=/dev/urandom of=big bs=1k 2>../run/said";

#[test]
fn uncommittable_work_stays_in_the_work_dir_on_a_full_disk() {
    run_on_small_disk("uncommittable_work_stays_in_the_work_dir_on_a_full_disk", check_full_disk_at_commit);
}

#[test]
fn an_agent_failing_on_a_full_disk_is_reported_as_disk_full() {
    run_on_small_disk("an_agent_failing_on_a_full_disk_is_reported_as_disk_full", check_full_disk_in_agent);
}

fn check_full_disk_at_commit() {
    let mut fixture = SandboxFixture::new();
    fixture.set_stories(&[
        json!({"command": format!("{FILL_DISK_COMMAND}; exit 0")}),
        json!({"command": "echo x > x.txt"}),
    ]);
    let outcome = fixture.run();
    let (failure, salvage) = outcome.failure(0);
    assert_eq!(failure.cause, Cause::DiskFull, "{failure:?}");
    assert!(salvage.is_none() && outcome.unsaved(0));
    let repo = fixture.repo();
    assert!(failure.evidence.summary.contains(&format!("are free in `{}`", repo.display())), "{failure:?}");
    assert!(failure.evidence.paths.contains(&repo.display().to_string()), "{failure:?}");
    // The work tree was not reset, and no other story started in it.
    assert_eq!(fs::read_to_string(repo.join("half.txt")).unwrap(), "half\n");
    assert!(fs::metadata(repo.join("big")).unwrap().len() > 1 << 20);
    assert_eq!(outcome.story(1).outcome, StoryOutcome::NotReached);
}

fn check_full_disk_in_agent() {
    let mut fixture = SandboxFixture::new();
    let outcome = fixture.run_command(FILL_DISK_COMMAND);
    let failure = outcome.failure(0).0;
    assert_eq!(failure.cause, Cause::DiskFull, "{failure:?}");
    assert_eq!(failure.evidence.exit_code, Some(1));
    assert!(outcome.unsaved(0), "{failure:?}");
}
