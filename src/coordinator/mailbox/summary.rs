//! The summary that the last agent standing owes the shared state (Shutdown, 3): who took part, how each ended, and how much
//! was said. Written by the orchestrator, who alone knows that nobody else comes. What agents wrote in `STATE.md` stays.

use std::fmt::Write as _;

use jiff::Timestamp;

use crate::protocol::mailbox::message::Seq;
use crate::protocol::mailbox::roster::AgentStatus;
use crate::protocol::mailbox::store::{Mailbox, MailboxResult, SharedName};
use crate::protocol::mailbox::text::render_time;

/// Where our part begins and ends; all between is replaced.
const BEGIN: &str = "<!-- longshore: summary -->";
const END: &str = "<!-- longshore: end of summary -->";

/// Writes it into the copy.
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
        "The conversation is over, {}: of {} agents, {} signed off, {} crashed and {} left without a word.\n",
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

/// The numbers that are missing before the last one, as ranges.
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

/// The text with the summary in the place of an earlier one, or at its end.
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
mod tests {
    use super::*;
    use crate::protocol::mailbox::message::{MailboxDraft, MailboxMessageType, MessageRecipient};
    use crate::protocol::mailbox::roster::RosterEntry;

    /// Shutdown.
    #[test]
    fn summary_follows_agents_text_and_appears_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let mailbox = Mailbox::create(&folder.path().join("m")).expect("made");
        let now = Timestamp::UNIX_EPOCH;
        let alpha: crate::ids::AgentId = "alpha".parse().expect("an id");
        mailbox.register(&RosterEntry::new(alpha.clone(), "coder", None, now)).expect("registered");
        let draft = MailboxDraft::new(MessageRecipient::Broadcast, MailboxMessageType::Done, "Signing off", "");
        let fifth = Seq::new(4);
        mailbox.send(&alpha, &draft, None, now).expect("sent");
        mailbox.send(&alpha, &draft, fifth, now).expect("sent");
        mailbox.set_status(&alpha, &AgentStatus::Done).expect("set");
        let own = "# Shared State\n\n## Decisions Made\n- none\n";
        mailbox.write_shared(&SharedName::state(), own).expect("written");
        for _ in 0..2 {
            write_summary(&mailbox, now).expect("written");
            let text = mailbox.read_shared(&SharedName::state()).expect("read").expect("there");
            assert!(text.starts_with(own) && text.matches("## Summary").count() == 1, "{text}");
            assert!(text.contains("| alpha | coder | done | 2 |") && text.contains("002 to 004"), "{text}");
        }
    }
}
