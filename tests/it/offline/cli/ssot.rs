//! `longshore ssot`: shows and checks messages in the SSOT.

use longshore::protocol::amp::message::{Ack, AmpMessage};
use longshore::protocol::amp::store::Ssot;

use super::CliFixture;

#[test]
fn ssot_commands_show_and_check_messages() {
    let world = CliFixture::new();
    world.run(&["ssot", "log"]).expect(0, &["nothing was said"]);
    world.run(&["ssot", "log", "T-2026-001"]).expect(2, &["nothing was said about a task `T-2026-001`", "--all"]);
    world.run(&["ssot", "log", "T-1"]).expect(2, &["an assignment id"]);
    world.run(&["ssot", "show", "escalation-T-2026-001-5"]).expect(2, &["there is no message"]);
    assert!(!world.root().join(".longshore").exists(), "reading makes nothing");

    let swarm = world.swarm().swarm();
    let ssot = Ssot::open(&world.root()).expect("opened");
    let say = |task: &str, text: &str| {
        let text = text.replace("TASK", task);
        let message = AmpMessage::parse(&text).expect("a good message");
        ssot.ensure_message(&message).expect("written");
        message
    };
    let dispatch = r#"{"msg_id":"task_dispatch-TASK-1772116327001","protocol_version":"AMP/1.0","type":"task_dispatch",
        "from":"coordinator","to":"executor","task_id":"TASK","timestamp":"2026-02-26T14:32:07.001+00:00",
        "requires_ack":true,"payload":{"description":"Do the story","repo":"/r","branch":"feat/x","subtasks":
        [{"subtask_id":"TASK-S1","description":"a","estimated_lines":1}],"acceptance_criteria":["it works"],
        "risk_level":"low"}}"#;
    let escalation = r#"{"msg_id":"escalation-TASK-1772116327002","protocol_version":"AMP/1.0","type":"escalation",
        "from":"system","to":"admin","task_id":"TASK","timestamp":"2026-02-26T14:32:07.002+00:00","requires_ack":false,
        "payload":{"escalation_type":"unknown","severity":"warning","triggered_by":"system","description":"It crashed",
        "affected_msgs":["task_dispatch-TASK-1772116327001"],"system_state_snapshot":{"task_status":"failed",
        "reject_count":0,"last_successful_msg_id":null},"auto_suspended":true}}"#;
    let first = say("T-2026-001", dispatch);
    say("T-2026-001", escalation);
    say("T-2026-002", dispatch);
    let ack = format!(r#"{{"ack_of":"{}","by":"executor","timestamp":"2026-02-26T14:32:10.001+00:00"}}"#, first.id());
    ssot.ensure_ack(&Ack::parse(&ack).expect("a good ack")).expect("written");
    let file = |task: &str, swarm: &str| {
        let text = format!(
            r#"{{"task_id":"{task}","swarm_id":"{swarm}","branch":"feat/x","status":"running","risk_level":"low",
            "attempts":1,"reject_count":0,"stories":[],"updated_at":"2026-02-26T14:32:07Z"}}"#
        );
        ssot.write_task_file(&serde_json::from_str(&text).expect("a good task file")).expect("written");
    };
    file("T-2026-001", &swarm.to_string());
    file("T-2026-002", "b1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d");

    let output = world
        .run(&["ssot", "log"])
        .expect(0, &["coordinator -> executor", "acked after 3.0 s", "1 story: Do the story"]);
    let lines: Vec<&str> = output.out.lines().collect();
    assert_eq!(lines.len(), 2, "the newest swarm's task alone: {}", output.out);
    assert!(lines[1].contains("system -> admin") && lines[1].contains("warning unknown: It crashed"), "{}", output.out);
    assert!(lines[1].contains("  open  "), "{}", output.out);
    assert_eq!(world.run(&["ssot", "log", "T-2026-001"]).expect(0, &[]).out, output.out);
    let all = world.run(&["ssot", "log", "--all"]).expect(0, &["T-2026-001", "T-2026-002", "overdue by"]);
    assert_eq!(all.out.lines().count(), 3);
    let json = world.run(&["ssot", "log", "T-2026-001", "--json"]).expect(0, &[]);
    let lines: Vec<serde_json::Value> =
        json.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&lines[0]["message"]["type"], &lines[0]["ack_state"]), (&"task_dispatch".into(), &"acked".into()));
    assert_eq!((&lines[0]["ack_seconds"], &lines[0]["ack"]["by"]), (&3.0.into(), &"executor".into()));
    assert_eq!((&lines[1]["ack_state"], &lines[1]["ack"]), (&"open".into(), &serde_json::Value::Null));
    world.run(&["ssot", "show", first.id().as_str()]).expect(0, &["\"Do the story\"", "\"ack_of\""]);

    world.run(&["ssot", "check"]).expect(0, &["3 messages: 0 errors, 1 warning", "its ack is overdue"]);
    world.run(&["ssot", "mirror"]).expect(0, &["branch longshore/ssot is at "]);
    world.run(&["ssot", "mirror"]).expect(0, &["branch longshore/ssot is up to date"]);
    std::fs::write(ssot.message_path(first.id()), "{").expect("torn");
    let check = world.run(&["ssot", "check", "--json"]).expect(1, &["\"weight\":\"error\"", "it is torn"]);
    assert!(check.out.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{}", check.out);
    world.run(&["ssot", "check", "--reindex"]).expect(1, &["0 entries were wrong"]);
}
