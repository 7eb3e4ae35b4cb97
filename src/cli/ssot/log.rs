//! `longshore ssot log`: one line for each message, in order.

use std::io::{Write, stdout};

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::args::SsotLogArgs;
use super::entry_json::entry_json;
use super::message_summary::{AckState, summarize_message};
use crate::cli::context::CommandContext;
use crate::cli::error::CommandError;
use crate::cli::{CommandResult, ExitStatus, print_stderr, terminal_columns};
use crate::ids::AssignmentId;
use crate::protocol::amp::message::MsgId;
use crate::protocol::amp::store::{LogEntry, Ssot, compare_by_time};
use crate::report::text::truncate_to_width;
use crate::state::SwarmDir;

pub(super) async fn log(args: &SsotLogArgs, here: &CommandContext) -> CommandResult {
    let repo = here.discover_repo().await?;
    let ssot = Ssot::open_read_only(repo.root());
    let ids = select_message_ids(&ssot, repo.root(), args)?;
    if ids.is_empty() && !args.json {
        print_stderr("nothing was said");
    }
    let (now, zone, columns) = (Timestamp::now(), TimeZone::system(), terminal_columns(&stdout()));
    let several = ids.first().zip(ids.last()).is_some_and(|(a, _)| ids.iter().any(|id| id.task_id() != a.task_id()));
    let mut out = std::io::BufWriter::new(stdout().lock());
    // Written as it is read: a repo's whole conversation may be long.
    for id in &ids {
        let Some(entry) = ssot.log_entry(id)? else { continue };
        let state = AckState::from_entry(&entry, now);
        if args.json {
            writeln!(out, "{}", entry_json(&entry, &state)?)?;
        } else {
            writeln!(out, "{}", truncate_to_width(&format_entry(&entry, &state, &zone, several), columns))?;
        }
    }
    out.flush()?;
    Ok(ExitStatus::Success)
}

/// Lists the selected messages in order.
fn select_message_ids(
    ssot: &Ssot,
    repo_root: &std::path::Path,
    args: &SsotLogArgs,
) -> Result<Vec<MsgId>, CommandError> {
    if args.all {
        return Ok(ssot.message_ids(None)?);
    }
    let tasks: Vec<AssignmentId> = if args.tasks.is_empty() {
        let Some(newest) = SwarmDir::latest(repo_root)? else { return Ok(ssot.message_ids(None)?) };
        let tasks = ssot.task_files()?.into_iter().filter(|task| task.swarm_id == newest.swarm());
        tasks.map(|task| task.task_id).collect()
    } else {
        args.tasks.clone()
    };
    let mut ids = Vec::new();
    for task in &tasks {
        let of_task = ssot.task_message_ids(task)?;
        if of_task.is_empty() && !args.tasks.is_empty() {
            let shown = CommandError::input(format!("nothing was said about a task `{task}`"));
            return Err(shown.with_hint("`longshore ssot log --all` tells what was said about all tasks"));
        }
        ids.extend(of_task);
    }
    ids.sort_by(compare_by_time);
    ids.dedup();
    Ok(ids)
}

/// `2026-11-22 12:00:03  T-2026-001  task_dispatch   coordinator -> executor  acked after 3.0 s  1 story: ...`
pub(crate) fn format_entry(entry: &LogEntry, state: &AckState, zone: &TimeZone, several: bool) -> String {
    let message = &entry.message;
    let time = message.timestamp().to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S");
    let task = if several { format!("{}  ", message.task_id()) } else { String::new() };
    let way = format!("{} -> {}", message.from().as_str(), message.to().as_str());
    let (kind, ack, gist) = (message.message_type().as_str(), state.describe(), summarize_message(message));
    let note = entry.ack.as_ref().and_then(|ack| ack.note.as_deref()).map(crate::report::text::sanitize);
    let note = note.map_or(String::new(), |note| format!(" [ack: {note}]"));
    format!("{time}  {task}{kind:<14}  {way:<23}  {ack:<20}  {gist}{note}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::amp::message::{Ack, AmpMessage, AmpRole};

    fn sample_dispatch() -> AmpMessage {
        let text = r#"{"msg_id":"task_dispatch-T-2026-044-1772116327001","protocol_version":"AMP/1.0",
            "type":"task_dispatch","from":"coordinator","to":"executor","task_id":"T-2026-044",
            "timestamp":"2026-02-26T14:32:07+00:00","requires_ack":true,"payload":{"description":"do \u001b[31mit\nnow",
            "repo":"/r","branch":"feat/x","subtasks":[{"subtask_id":"T-2026-044-S1","description":"a","estimated_lines":1}],
            "acceptance_criteria":["it works"],"risk_level":"high"}}"#;
        AmpMessage::parse(text).expect("a good message")
    }

    #[test]
    fn log_line_shows_the_ack_state() {
        let at = |seconds: i64| sample_dispatch().timestamp() + jiff::SignedDuration::from_secs(seconds);
        let say = |ack: Option<Ack>, now| {
            let entry = LogEntry { message: sample_dispatch(), ack };
            format_entry(&entry, &AckState::from_entry(&entry, at(now)), &TimeZone::UTC, false)
        };
        let ack = |note: Option<&str>| {
            let note = note.map(str::to_owned);
            Some(Ack { ack_of: sample_dispatch().id().clone(), by: AmpRole::Executor, timestamp: at(3), note })
        };
        assert_eq!(
            say(ack(None), 999),
            "2026-02-26 14:32:07  task_dispatch   coordinator -> executor  acked after 3.0 s     high risk, 1 story: do it now"
        );
        assert!(say(ack(Some("go\non")), 999).ends_with("do it now [ack: go on]"));
        assert!(say(None, 60).contains("  waiting, 4 m 00 s left  "), "{}", say(None, 60));
        assert!(say(None, 307).contains("  overdue by 7.0 s  "), "{}", say(None, 307));
        let several = LogEntry { message: sample_dispatch(), ack: None };
        assert!(
            format_entry(&several, &AckState::Open, &TimeZone::UTC, true).contains("  T-2026-044  task_dispatch  ")
        );
    }
}
