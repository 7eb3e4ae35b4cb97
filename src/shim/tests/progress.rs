//! Progress updates and heartbeats, with a paused clock.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::SharedBuffer;
use crate::protocol::acp::message::{ContainerMessage, StoryStatus, decode_container};
use crate::shim::channel::{Channel, SandboxIdentity};
use crate::shim::progress::{HEARTBEAT_INTERVAL, ProgressReporter};

fn progress_outputs(output: &SharedBuffer) -> Vec<String> {
    let bytes = output.bytes();
    let lines = bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    lines
        .map(|line| match decode_container(line).unwrap().1 {
            ContainerMessage::Progress(update) => format!("{} {}", update.status.as_str(), update.output),
            other => panic!("{other:?}"),
        })
        .collect()
}

fn spawn_reporter(output: &SharedBuffer) -> (ProgressReporter, tokio::task::JoinHandle<()>) {
    let sender = SandboxIdentity {
        swarm: "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d".parse().unwrap(),
        container: "abc123def456".parse().unwrap(),
    };
    let out: Box<dyn Write + Send> = Box::new(output.clone());
    let channel = Channel::new(sender, Arc::new(Mutex::new(out)));
    let progress = ProgressReporter::new("US-001".parse().unwrap(), channel, HEARTBEAT_INTERVAL);
    let sending = progress.spawn();
    (progress, sending)
}

#[tokio::test(start_paused = true)]
async fn updates_are_limited_to_one_every_two_seconds() {
    let output = SharedBuffer::default();
    let (progress, sending) = spawn_reporter(&output);
    progress.set_status(StoryStatus::InProgress, "started");
    // A line every 100 ms for 5 s, and one report in between. The clock is at 2 s when line 21 is printed, and the reporter
    // runs after the printer.
    for line in 1..=50 {
        progress.report_output(&format!("line {line}"));
        if line == 25 {
            progress.report("half way");
        }
        tokio::time::advance(Duration::from_millis(100)).await;
    }
    let log: Vec<String> = progress.close("done").into_iter().map(|entry| entry.text).collect();
    progress.send_final_status(StoryStatus::Completed, "done");
    sending.abort();
    assert_eq!(
        progress_outputs(&output),
        ["in_progress started", "in_progress line 21", "in_progress half way", "completed done"]
    );
    assert_eq!(log, ["started", "line 21", "half way", "done"]);
}

#[tokio::test(start_paused = true)]
async fn heartbeats_are_sent_during_silence_and_not_logged() {
    let output = SharedBuffer::default();
    let (progress, sending) = spawn_reporter(&output);
    progress.set_status(StoryStatus::InProgress, "started");
    for _ in 0..60 {
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(progress_outputs(&output), ["in_progress started", "in_progress ", "in_progress "]);
    // A closed reporter sends heartbeats until its final status.
    let log = progress.close("done");
    for _ in 0..26 {
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
    }
    progress.send_final_status(StoryStatus::Completed, "done");
    sending.abort();
    assert_eq!(progress_outputs(&output)[3..], ["in_progress ", "completed done"]);
    assert_eq!(log.len(), 2, "a heartbeat is in no work log");
}
