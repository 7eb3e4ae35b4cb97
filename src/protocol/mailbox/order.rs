//! The order of a conversation: each sender's messages by number, a reply after the message it answers, and otherwise by time.
//! Times have a resolution of one second and come from clocks that may differ.
//!
//! Used by `agent_mailbox.rs` and `cli/mailbox`. Pure.

use jiff::Timestamp;

use super::message::{AgentId, MailboxMessage, Seq};

/// Sorts items that each have a message. `time` is the best known time at which an item was sent.
pub fn conversation_order<T>(
    mut items: Vec<T>,
    message: impl Fn(&T) -> &MailboxMessage,
    time: impl Fn(&T) -> Timestamp,
) -> Vec<T> {
    fn key(message: &MailboxMessage) -> (&AgentId, Seq) {
        (&message.from, message.seq)
    }
    items.sort_by(|one, other| key(message(one)).cmp(&key(message(other))));
    let mut by_time: Vec<usize> = (0..items.len()).collect();
    by_time.sort_by_key(|at| (time(&items[*at]), *at));
    // The sender's last message up to a number: a joined message has the number of its first part, and who answers a message
    // that is not here has read the ones before it.
    let up_to = |from: &AgentId, seq: Seq| {
        let at = items.partition_point(|item| key(message(item)) <= (from, seq)).checked_sub(1)?;
        (message(&items[at]).from == *from).then_some(at)
    };
    // A depth-first search emits what a message depends on before the message.
    let mut ordered = Vec::with_capacity(items.len());
    let (mut visited, mut emitted) = (vec![false; items.len()], vec![false; items.len()]);
    for start in by_time {
        let mut stack = vec![start];
        while let Some(at) = stack.last().copied() {
            if visited[at] {
                stack.pop();
                // In a cycle of replies, an item can be on the stack twice.
                if !std::mem::replace(&mut emitted[at], true) {
                    ordered.push(at);
                }
                continue;
            }
            visited[at] = true;
            let current = message(&items[at]);
            let previous = at.checked_sub(1).filter(|previous| message(&items[*previous]).from == current.from);
            let answered = current.re.as_ref().and_then(|re| up_to(&re.from, re.seq));
            stack.extend([previous, answered].into_iter().flatten().filter(|needed| !visited[*needed]));
        }
    }
    let mut items: Vec<Option<T>> = items.into_iter().map(Some).collect();
    ordered.into_iter().filter_map(|at| items[at].take()).collect()
}

#[cfg(test)]
mod tests;
