//! The order in which a conversation went: each sender's messages in the order of their numbers, an answer behind what it
//! answers, and otherwise by time, which says no more than the second and comes from clocks that need not agree.
//!
//! Used by `agent_mailbox.rs` and `cli/mailbox`. Pure.

use jiff::Timestamp;

use super::message::{AgentId, MailboxMessage, Seq};

/// Puts messages, or what has one each, in order. `time` says when one was sent, as well as that is known.
pub fn conversation_order<T>(
    mut all: Vec<T>,
    of: impl Fn(&T) -> &MailboxMessage,
    time: impl Fn(&T) -> Timestamp,
) -> Vec<T> {
    fn key(message: &MailboxMessage) -> (&AgentId, Seq) {
        (&message.from, message.seq)
    }
    all.sort_by(|one, other| key(of(one)).cmp(&key(of(other))));
    let mut by_time: Vec<usize> = (0..all.len()).collect();
    by_time.sort_by_key(|at| (time(&all[*at]), *at));
    // The last of a sender's up to a number: of a message in parts the first is there, and whoever answers has read what was
    // before.
    let up_to = |from: &AgentId, seq: Seq| {
        let at = all.partition_point(|one| key(of(one)) <= (from, seq)).checked_sub(1)?;
        (of(&all[at]).from == *from).then_some(at)
    };
    let mut ordered = Vec::with_capacity(all.len());
    let (mut begun, mut placed) = (vec![false; all.len()], vec![false; all.len()]);
    for start in by_time {
        let mut stack = vec![start];
        while let Some(at) = stack.last().copied() {
            if begun[at] {
                stack.pop();
                // What answers each other in a circle comes as it comes.
                if !std::mem::replace(&mut placed[at], true) {
                    ordered.push(at);
                }
                continue;
            }
            begun[at] = true;
            let message = of(&all[at]);
            let before = at.checked_sub(1).filter(|before| of(&all[*before]).from == message.from);
            let answered = message.re.as_ref().and_then(|re| up_to(&re.from, re.seq));
            stack.extend([before, answered].into_iter().flatten().filter(|needed| !begun[*needed]));
        }
    }
    let mut all: Vec<Option<T>> = all.into_iter().map(Some).collect();
    ordered.into_iter().filter_map(|at| all[at].take()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::message::{MailboxMessageType, MessageContent, Priority};
    use super::super::text::parse_time;
    use super::*;

    fn message(reference: &str, seconds: i64, re: Option<&str>) -> MailboxMessage {
        let reference: super::super::message::MessageRef = reference.parse().expect("a reference");
        MailboxMessage {
            from: reference.from,
            to: "*".parse().expect("all"),
            seq: reference.seq,
            message_type: MailboxMessageType::Status,
            timestamp: parse_time("2026-02-19T11:32:15").expect("a time") + jiff::SignedDuration::from_secs(seconds),
            re: re.map(|re| re.parse().expect("a reference")),
            priority: Priority::Normal,
            ttl: None,
            part: None,
            content: MessageContent::default(),
        }
    }

    fn ordered_references(messages: Vec<MailboxMessage>) -> String {
        let ordered = conversation_order(messages, |message| message, |message| message.timestamp);
        ordered.iter().map(|message| message.reference().to_string()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn replies_follow_what_they_answer_and_senders_stay_in_order() {
        // All of one second, as agents are that are scripts.
        let talk = vec![
            message("alpha/001", 0, Some("bravo/001")),
            message("alpha/002", 0, Some("bravo/002")),
            message("bravo/001", 0, None),
            message("bravo/002", 0, Some("alpha/001")),
            message("bravo/003", 0, Some("alpha/002")),
            message("zulu/001", 0, None),
        ];
        assert_eq!(ordered_references(talk.clone()), "bravo/001 alpha/001 bravo/002 alpha/002 bravo/003 zulu/001");
        // A clock that is ahead.
        let ahead = talk.into_iter().map(|mut message| {
            if message.from.as_str() == "bravo" {
                message.timestamp += jiff::SignedDuration::from_secs(100);
            }
            message
        });
        assert_eq!(ordered_references(ahead.collect()), "bravo/001 alpha/001 bravo/002 alpha/002 zulu/001 bravo/003");
    }

    #[test]
    fn without_replies_time_decides_and_reply_cycles_terminate() {
        let talk = vec![message("alpha/001", 2, None), message("alpha/002", 1, None), message("bravo/001", 1, None)];
        assert_eq!(ordered_references(talk), "alpha/001 alpha/002 bravo/001", "a sender's numbers are its order");
        let talk = vec![message("alpha/001", 3, None), message("bravo/001", 2, None), message("alpha/002", 4, None)];
        assert_eq!(ordered_references(talk), "bravo/001 alpha/001 alpha/002");
        let circle = vec![message("alpha/001", 0, Some("bravo/001")), message("bravo/001", 0, Some("alpha/001"))];
        assert_eq!(ordered_references(circle), "bravo/001 alpha/001");
        // Of parts the first is there; of what nobody has, what was before it.
        let parts = vec![
            message("alpha/001", 0, Some("bravo/004")),
            message("bravo/003", 0, None),
            message("bravo/009", 0, None),
        ];
        assert_eq!(ordered_references(parts), "bravo/003 alpha/001 bravo/009");
        let many = (1..5000).map(|n| message(&format!("alpha/{n}"), 5000 - n, None)).collect::<Vec<_>>();
        assert!(ordered_references(many).starts_with("alpha/001 alpha/002 "));
    }
}
