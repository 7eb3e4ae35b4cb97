//! What `check` finds, each kind of problem alone.

use super::*;

fn problems(ssot: &Ssot) -> Vec<(String, ProblemSeverity, String)> {
    let found = ssot.check(at(START_MS)).expect("checked");
    found.into_iter().map(|p| (p.path.to_string_lossy().into_owned(), p.severity, p.problem)).collect()
}

/// A conversation that is sound.
fn valid_conversation() -> (TempDir, Ssot, AmpMessage, AmpMessage) {
    let (repo, ssot) = new_ssot();
    let first = dispatch(&task(1), START_MS, "do it", vec![]);
    let second = dispatch(&task(1), START_MS + 1, "do it again", vec![first.id().clone()]);
    let third = escalation(&task(1), START_MS + 2, vec![first.id().clone(), second.id().clone()]);
    for message in [&first, &second, &third] {
        ssot.ensure_message(message).expect("written");
    }
    ssot.ensure_ack(&ack(&first, START_MS + 1)).expect("written");
    ssot.write_task_file(&task_file(&task(1))).expect("written");
    ssot.allocate_task_numbers(2026, 1).expect("a number");
    let violation = Violation { rule: "json", field: "message".to_owned(), problem: "is no JSON".to_owned() };
    ssot.log_rejected("{", &violation, at(START_MS), "stdin").expect("noted");
    assert_eq!(problems(&ssot), []);
    (repo, ssot, first, second)
}

#[test]
fn damaged_and_mismatched_messages_are_reported() {
    let (_repo, ssot, first, second) = valid_conversation();
    fs::write(ssot.message_path(second.id()), b"{\"msg").expect("torn");
    let found = problems(&ssot);
    let path = format!("messages/T-2026-001/{}.json", second.id());
    assert!(
        found
            .iter()
            .any(|(at, weight, problem)| *at == path && *weight == ProblemSeverity::Error && problem.contains("torn"))
    );
    // The escalation names it.
    assert!(
        found
            .iter()
            .any(|(_, _, problem)| problem.contains("`affected_msgs`") && problem.contains(second.id().as_str()))
    );
    assert_eq!(found.len(), 2, "{found:?}");

    ssot.ensure_message(&second).expect("healed");
    assert_eq!(problems(&ssot), []);
    fs::copy(ssot.message_path(first.id()), ssot.message_path(second.id())).expect("copied");
    assert!(problems(&ssot).iter().any(|(at, _, problem)| *at == path && problem.contains("it has the id")));
    let text = fs::read_to_string(ssot.message_path(first.id())).expect("there");
    fs::write(ssot.message_path(second.id()), text.replace("feat/x", "main")).expect("written");
    assert!(problems(&ssot).iter().any(|(at, _, problem)| *at == path && problem.contains("branch-protected")));
}

#[test]
fn missing_references_are_reported() {
    let (_repo, ssot, first, _) = valid_conversation();
    let missing = MsgId::new(AmpMessageType::TaskDispatch, task(1), 5);
    ssot.ensure_message(&dispatch(&task(1), START_MS + 9, "x", vec![missing.clone()])).expect("written");
    let found = problems(&ssot);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].2.contains("`context_ref`") && found[0].2.contains(missing.as_str()), "{found:?}");
    fs::remove_file(ssot.message_path(first.id())).expect("removed");
    // The second's context, the escalation's two and the ack's.
    assert_eq!(problems(&ssot).len(), 4, "{:?}", problems(&ssot));
}

#[test]
fn overdue_and_mismatched_acks_are_reported() {
    let (_repo, ssot, first, second) = valid_conversation();
    let late = ssot.check(at(START_MS + 1 + 300_000 + 7_000)).expect("checked");
    assert_eq!(late.len(), 1, "the first has its ack, and nobody waits for the escalation's: {late:?}");
    assert_eq!((late[0].severity, late[0].problem.as_str()), (ProblemSeverity::Warning, "its ack is overdue by 7 s"));
    assert!(late[0].path.ends_with(format!("{}.json", second.id())));

    let path = ssot.ack_path(second.id());
    write_json(&ssot, path.clone(), &ack(&first, START_MS));
    assert!(problems(&ssot)[0].2.contains("it has the id"));
    let alone = Ack { ack_of: MsgId::new(AmpMessageType::TaskDispatch, task(2), 5), ..ack(&first, START_MS) };
    fs::remove_file(path).expect("removed");
    write_json(&ssot, ssot.ack_path(&alone.ack_of), &alone);
    let found = problems(&ssot);
    assert_eq!((found.len(), found[0].2.as_str()), (1, "there is no such message"));
}

#[test]
fn bad_tasks_decisions_and_foreign_files_are_reported() {
    let (_repo, ssot, _, _) = valid_conversation();
    let path = |name: &str| ssot.dir().join(name);
    ssot.ensure_message(&dispatch(&task(5), START_MS, "x", vec![])).expect("written");
    assert_eq!(
        problems(&ssot),
        [("messages/T-2026-005".into(), ProblemSeverity::Error, "the task has no file in `tasks`".into())]
    );
    write_json(&ssot, path("tasks/T-2026-005.json"), &task_file(&task(6)));
    assert_eq!(problems(&ssot)[0].2, "it is for task `T-2026-006`");
    ssot.write_task_file(&task_file(&task(5))).expect("written");
    assert_eq!(problems(&ssot), []);

    let decision = AdminDecision {
        id: DecisionId::random(),
        swarm: swarm(),
        target: DecisionTarget::Task(task(1)),
        action: AdminAction::Approve,
        at: at(START_MS),
        by: "someone".to_owned(),
    };
    ssot.record_decision(&decision).expect("kept");
    assert_eq!(problems(&ssot), []);
    let folder = format!("decisions/{}", swarm());
    write_json(&ssot, path(&format!("{folder}/000002-x.json")), &decision);
    assert_eq!(problems(&ssot)[0].2, "another decision has the same id");
    fs::remove_file(path(&format!("{folder}/000002-x.json"))).expect("removed");

    for foreign in ["messages/mine", "messages/T-2026-001/mine.json", "acks/mine", "tasks/mine.txt", "decisions/mine"] {
        fs::write(path(foreign), b"").expect("written");
        assert_eq!(
            problems(&ssot),
            [(foreign.into(), ProblemSeverity::Warning, "it is not a file of longshore".into())]
        );
        fs::remove_file(path(foreign)).expect("removed");
    }
    fs::write(path("errors/2026-11.ndjson"), b"{\n").expect("written");
    assert_eq!((problems(&ssot).len(), problems(&ssot)[0].1), (1, ProblemSeverity::Warning));
}
