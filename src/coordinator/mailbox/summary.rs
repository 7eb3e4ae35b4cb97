//! The summary that the last agent writes to the shared state (Shutdown, 3): the participants, how each ended, and the number of
//! messages. The orchestrator writes it, because it alone knows that no agent follows. The agents' text in `STATE.md` stays.

use std::fmt::Write as _;

use jiff::Timestamp;

use crate::protocol::mailbox::error::MailboxResult;
use crate::protocol::mailbox::layout::SharedName;
use crate::protocol::mailbox::message::Seq;
use crate::protocol::mailbox::roster::AgentStatus;
use crate::protocol::mailbox::store::Mailbox;
use crate::protocol::mailbox::text::render_time;

/// Delimit the summary, which is replaced as a whole.
const BEGIN: &str = "<!-- longshore: summary -->";
const END: &str = "<!-- longshore: end of summary -->";

pub(super) fn write_summary(mailbox: &Mailbox, now: Timestamp) -> MailboxResult<()> {
    let summary = render_summary(mailbox, now)?;
    let name = SharedName::state();
    let before = mailbox.read_shared(&name)?.unwrap_or_else(|| "# Shared State\n".to_owned());
    mailbox.write_shared(&name, &insert_summary(&before, &summary))
}

fn render_summary(mailbox: &Mailbox, now: Timestamp) -> MailboxResult<String> {
    let mut text = format!("{BEGIN}\n## Summary\n");
    let rows = mailbox.roster()?.entries();
    let count = |status: &AgentStatus| rows.iter().filter(|row| row.status == *status).count();
    let _ = writeln!(
        text,
        "The conversation ended at {}: of {} agents, {} signed off, {} crashed and {} left without signing off.\n",
        render_time(now),
        rows.len(),
        count(&AgentStatus::Done),
        count(&AgentStatus::Crashed),
        count(&AgentStatus::Left),
    );
    text.push_str("| Agent | Role | Status | Messages |\n|-------|------|--------|----------|\n");
    for row in &rows {
        let files = mailbox.list_outbox(&row.id)?.files;
        let _ = writeln!(text, "| {} | {} | {} | {} |", row.id, row.role.replace('|', "\\|"), row.status, files.len());
        let gaps = missing_ranges(files.keys().copied());
        if !gaps.is_empty() {
            let _ = writeln!(text, "| {} | | missing | {} |", row.id, gaps.join(", "));
        }
    }
    let _ = writeln!(text, "{END}");
    Ok(text)
}

/// The missing numbers below the highest one, as ranges.
fn missing_ranges(numbers: impl Iterator<Item = Seq>) -> Vec<String> {
    let mut next = 1;
    let mut gaps = Vec::new();
    for number in numbers.map(Seq::get) {
        match number - next {
            0 => {}
            1 => gaps.push(format!("{next:03}")),
            _ => gaps.push(format!("{next:03} to {:03}", number - 1)),
        }
        next = number + 1;
    }
    gaps
}

/// Replaces an earlier summary, or appends the new one.
fn insert_summary(before: &str, summary: &str) -> String {
    if let Some((head, rest)) = before.split_once(BEGIN)
        && let Some((_, tail)) = rest.split_once(END)
    {
        return format!("{head}{summary}{}", tail.strip_prefix('\n').unwrap_or(tail));
    }
    let gap = if before.ends_with("\n\n") || before.is_empty() {
        ""
    } else if before.ends_with('\n') {
        "\n"
    } else {
        "\n\n"
    };
    format!("{before}{gap}{summary}")
}

#[cfg(test)]
mod tests;
