//! The watchdog with real processes: hangs are detected and their work is salvaged, running commands are left alone.

use super::*;

/// A fixture with an idle timeout.
fn fixture_with_idle_timeout(seconds: u64) -> SandboxFixture {
    let mut fixture = SandboxFixture::new();
    fixture.assignment["idleTimeoutSecs"] = json!(seconds);
    fixture
}

#[track_caller]
fn assert_hung(outcome: &ShimOutcome) -> Failure {
    outcome.assert_failed(Cause::Hung);
    let failure = outcome.failure(0).0.clone();
    let summary = &failure.evidence.summary;
    assert!(summary.contains("no output and no CPU use for"), "{summary}");
    failure
}

#[test]
fn a_sleeping_agent_is_reported_as_hung_and_work_is_salvaged() {
    let mut fixture = fixture_with_idle_timeout(1);
    let outcome = fixture.run_command("echo half > half.txt; echo the last words; sleep 1000");
    let failure = assert_hung(&outcome);
    let evidence = failure.evidence;
    assert!(evidence.summary.contains("`sleep` (pid "), "{evidence:?}");
    assert_eq!(evidence.tail, ["the last words"]);
    assert!(evidence.command.is_some_and(|command| command.starts_with("echo half")));
    // The shell, and indented the program that it waits for.
    let places: Vec<usize> = evidence.processes.iter().map(|line| line.len() - line.trim_start().len()).collect();
    assert_eq!(places, [0, 2], "{:?}", evidence.processes);
    assert!(evidence.processes[1].ends_with("sleep 1000"), "{:?}", evidence.processes);
    // Both write to the two pipes that the shim reads. Descriptors inherited by the test may be listed too.
    let ours = evidence.pipes.iter().filter(|pipe| pipe.contains("read by acp-shim (")).collect::<Vec<_>>();
    assert_eq!(ours.len(), 2, "{:?}", evidence.pipes);
    for pipe in ours {
        assert!(pipe.contains("written by sh (") && pipe.contains("sleep ("), "{pipe}");
    }
    assert_eq!(fixture.git_show(&fixture.fetch_bundle(), "refs/got/longshore/salvage/US-001:half.txt"), "half");
}

#[test]
fn a_blocked_reader_is_shown_with_its_fifo() {
    let mut fixture = fixture_with_idle_timeout(1);
    let outcome = fixture.run_command("mkfifo ../run/line; exec 3<>../run/line; cat <../run/line >all.txt");
    let evidence = assert_hung(&outcome).evidence;
    assert!(evidence.summary.contains("`cat` (pid "), "{}", evidence.summary);
    let fifo = evidence.pipes.iter().find(|pipe| pipe.starts_with("fifo ")).expect("it is there");
    assert!(fifo.contains("/run/line: read by cat (") && fifo.contains("written by nobody"), "{fifo}");
    assert!(fifo.contains("both ends held by cat (") && fifo.contains("sh ("), "{fifo}");
}

#[test]
fn command_lines_contain_no_variable_values() {
    let mut fixture = fixture_with_idle_timeout(1);
    let outcome = fixture.run_command("exec sh -c 'sleep 1000; :' sh --token=\"$SECRET_WORD\"");
    let processes = assert_hung(&outcome).evidence.processes.join("\n");
    assert!(processes.contains("--token=$SECRET_WORD"), "{processes}");
    assert!(!processes.contains("xyzzy"), "{processes}");
}

#[test]
fn cpu_use_and_output_count_as_progress() {
    // Each makes only one kind of progress, for longer than twice the limit.
    let computes = "end=$(($(date +%s) + 4)); while [ $(date +%s) -lt $end ]; do :; done; echo x > x.txt";
    let speaks = "for i in 1 2 3 4 5; do echo $i; sleep 0.9; done; echo x > x.txt";
    for command in [computes, speaks] {
        let mut fixture = fixture_with_idle_timeout(2);
        let outcome = fixture.run_command(command);
        outcome.commit(0);
    }
}

#[test]
fn socket_reports_count_as_progress() {
    let mut fixture = fixture_with_idle_timeout(2);
    fixture.set_stories(&[json!({"command": "touch ../run/begun; sleep 4.5; echo x > x.txt"})]);
    let (socket, begun) =
        (fixture.layout().socket_path(ATTEMPT_DIR), fixture.layout().run_dir(ATTEMPT_DIR).join("begun"));
    let reporting = std::thread::spawn(move || {
        wait_until("the story", || begun.exists());
        for step in 0..5 {
            let reply =
                crate::shim::socket_client::run("progress", &[format!("step {step}")], Some(socket.as_os_str()));
            assert!(reply.is_ok(), "{reply:?}");
            std::thread::sleep(Duration::from_millis(850));
        }
    });
    let outcome = fixture.run();
    reporting.join().unwrap();
    outcome.commit(0);
}

#[test]
fn a_hanging_check_is_reported_as_hung() {
    let mut fixture = fixture_with_idle_timeout(1);
    fixture.set_stories(&[json!({"command": "echo x > x.txt", "verify": ["sleep 1000"]})]);
    let evidence = assert_hung(&fixture.run()).evidence;
    assert!(evidence.summary.starts_with("the verify command `sleep 1000` hung: "), "{}", evidence.summary);
    assert_eq!(evidence.command.as_deref(), Some("sleep 1000"));
    assert_eq!(fixture.git_show(&fixture.fetch_bundle(), "refs/got/longshore/salvage/US-001:x.txt"), "x");
}

#[test]
fn no_hang_is_reported_without_or_before_the_idle_limit() {
    let mut fixture = fixture_with_idle_timeout(0);
    fixture.run_command("sleep 2.5; echo x > x.txt").commit(0);
    let mut fixture = fixture_with_idle_timeout(1);
    fixture.assignment["storyTimeoutSecs"] = json!(1);
    fixture.assignment["idleTimeoutSecs"] = json!(60);
    fixture.run_command("echo x > x.txt; sleep 1000").assert_failed(Cause::Timeout);
}
