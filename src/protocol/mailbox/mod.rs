//! The Agent Mailbox Protocol, version 1: how agents in different sandboxes, and people, talk through files in a folder.
//!
//! ```text
//! draft -> parts -> text -> agents/<me>/NNN.md -> watch -> store -> machine -> what is delivered, asked for again, given up
//! ```
//!
//! | file | what |
//! |---|---|
//! | [`message`] | what can be said: messages, their headers' values, drafts |
//! | [`text`] | Markdown -> message, with the rule that is broken; message -> Markdown |
//! | [`parts_timeout`] | more than 10 KB: cut into messages, and joined |
//! | [`render_roster`] | who takes part |
//! | [`claim`] | who may write a shared file |
//! | [`store`] | the folder: outboxes, roster, shared files, claims |
//! | [`watch`] | waiting until something happens in it |
//! | [`machine`] | what a reader makes of it over time: order, gaps, parts, ttl, who is gone |
//! | [`pending`] | who waits for whose answer |
//! | [`ordered_references`] | the ordered_references in which a conversation went |
//! | [`agent_mailbox`] | an agent at its mailbox: carries out what the machine wants |
//! | [`wait`] | waiting for what it needs, until it is there, or never will be |
//! | [`show`] | messages as text and as JSON, safe for a terminal |
//! | [`rules`] | the rules' names |
//! | `open_dir.rs` | files in a folder that is not to be trusted |
//! | `protocol.md` | what `PROTOCOL.md` says |
//!
//! Used by `shim/` (`acp-shim mail`), `cli/mailbox` and the swarm. Plain, blocking I/O; compiles into the shim alone.
//!
//! # Choices
//!
//! Where the spec is silent or says two things:
//!
//! | choice | why |
//! |---|---|
//! | timestamps without an offset are UTC | the spec's have none, and sandboxes know no other zone |
//! | a file whose `seq` is not the number in its name, or whose `from` is not its outbox, is no message | neither can be believed before the other |
//! | after `999.md` comes `1000.md`; `3.md` is read as 3, and `003.md` before it | "zero-padded 3 digits" says nothing of a fourth |
//! | an ERROR waits for an answer where it has an Expected Response | "Depends" |
//! | the four sections are read in any order, once each; other headings belong to the text they are in | the spec names no others |
//! | types and priorities are read in any case | agents write them by hand |
//! | a header that is not known is passed over | the fields of a later version |
//! | a part is a message with a number of its own; `part-cut: inside-line` says that it ends inside a line | "Split into multiple messages with `part: 1/3` field" |
//! | a message of up to 64 KB is read, though over 10 KB it should have been split | its sender did not know |
//! | a claim that was there before one's own counts as older, however it is dated | its owner may be writing already |
//! | a claim's own time counts as far as its file's time bears it out, within a minute | clocks, time zones and lies |
//! | statuses `crashed` and `left` beside `active` and `done` | the spec has no word for an agent that crashed |
//! | a gap is asked for after 0.3 s (a bad file after 1 s) and given up 30 s later, of an agent that is gone at once; one reader's ERROR does for all | "Send ERROR requesting resend, or proceed with warning" |
//! | an ERROR that asks for a message and one that says that it is gone for good are carried out, and not delivered: with the second the gap is given up at once | nobody has to read them |
//! | a number is said to be gone once, and of one reader no more than 8 questions are answered at a time | whoever asks is not to fill another's outbox |
//! | what was said is shown by `re` first, then by time | a time is a second long, and clocks differ |
//! | a message that is resent has the same number and bytes | others have its reference |
//! | a broadcast that expects a response expects one of everybody | the spec does not say |
//! | whether an agent crashed is what its status says; process ids are not looked at | commands run in processes of their own, sandboxes in namespaces of their own |
//!
//! # The spec's sentences
//!
//! It has no word MUST: what its principles, lists and tables ask for. A test holds that the tests are there.
//!
//! | section | sentence | rule or place | tests |
//! |---|---|---|---|
//! | Design Principles | No shared writes: each agent owns its outbox directory, others read only | `from`, `file-name`; in a swarm, the kernel | `invalid_files_are_reported_without_following_links_or_blocking`, `the_kernel_keeps_each_agent_to_its_own_outbox` |
//! | Design Principles | Individual message files: one file per message | `store.rs` | `the_layout_matches_the_spec`, `concurrent_sends_get_unique_numbers_and_contiguous_parts` |
//! | Design Principles | Sequence numbers: monotonic ordering, gap detection | `machine.rs` | `messages_are_delivered_once_and_in_seq_order`, `each_senders_messages_are_delivered_complete_once_and_in_order` |
//! | Design Principles | Self-describing: every message carries enough context to act on | `parts.rs`: each part has its subject | `long_messages_are_split_and_joined_again` |
//! | Design Principles | Human-readable: Markdown | `text.rs` | `the_spec_example_round_trips_byte_for_byte` |
//! | Directory Layout | `PROTOCOL.md`, `ROSTER.md`, `agents/<id>/NNN.md`, `shared/` | `store.rs` | `the_layout_matches_the_spec`, `protocol_md_describes_the_whole_protocol` |
//! | Agent Registration | On startup, each agent appends to `ROSTER.md` | `roster.rs` | `the_spec_roster_round_trips`, `malformed_rows_are_read_leniently` |
//! | Agent Registration | Agent IDs must be unique | `MailboxError::IdTaken` | `concurrent_roster_updates_are_kept` |
//! | Message Format | Each message is a standalone `.md` file in the agent's outbox | `file-name`, `file-kind`, `utf8`, `size` | `invalid_files_are_reported_without_following_links_or_blocking`, `invalid_files_are_reported_and_skipped` |
//! | Required Fields | `amp-version`, `from`, `to`, `seq`, `type`, `timestamp` | `required`, `version`, `from`, `to`, `seq`, `type`, `timestamp`, `field-twice` | `each_violation_names_its_rule`, `variant_formatting_is_accepted` |
//! | Required Fields | `to`: `*` for broadcast | `MessageRecipient::Broadcast` | `messages_are_delivered_once_and_in_seq_order` |
//! | Required Fields | `seq`: zero-padded 3 digits | `Seq` | `file_names_have_at_least_three_digits` |
//! | Optional Fields | `re`: reference to a previous message | `re` | `each_violation_names_its_rule`, `requests_are_pending_until_answered` |
//! | Optional Fields | `priority`: `low`, `normal` (default), `high`, `critical` | `priority` | `optional_fields_are_written_after_re`, `the_spec_example_round_trips_byte_for_byte` |
//! | Optional Fields | `ttl`: the message expires after this | `ttl` | `expired_messages_are_not_delivered`, `messages_expire_after_their_ttl` |
//! | Message Types | the seven, and which expect a response | `type` | `each_message_type_expects_the_specified_reply`, `a_broadcast_is_pending_for_everybody_and_marks_who_is_gone` |
//! | Polling Protocol | Compare filenames against last-processed sequence number; read any new messages in sequence order | `agent_mailbox.rs` | `committed_messages_are_read_once_and_uncommitted_ones_again` |
//! | Polling Frequency | Idle: check every 30 seconds | `watch.rs`: at once, at the latest every 2 s | `changes_are_reported_at_once`, `changes_are_found_by_polling_without_inotify` |
//! | Write Coordination | Write a claim file with timestamp | `claim.rs` | `a_claim_is_rendered_as_in_the_spec` |
//! | Write Coordination | Check for competing claims; if none is older, proceed with the write | `claim::competing_claim` | `the_older_claim_wins_then_the_lower_id_and_stale_claims_are_ignored`, `a_claim_is_held_until_released_or_stale` |
//! | Write Coordination | Delete your claim file after writing; if a competing claim exists, wait and retry | `Mailbox::with_claim` | `updates_under_claims_are_not_lost` |
//! | STATE.md Structure | the coordination hub | `acp-shim mail state` | `shared_state_is_written_under_claims` |
//! | STATE.md Structure | the coordination hub, as a swarm begins | `coordinator/mailbox/goals.rs` | `initial_state_lists_goal_and_owners_and_is_written_once` |
//! | Startup | Each agent reads `PROTOCOL.md` | `protocol.md`, which the prompt names | `protocol_md_describes_the_whole_protocol` |
//! | Startup | Each agent registers and creates its outbox directory; the first creates the mailbox | `Mailbox::create`, `register` | `the_specs_session_between_two_programs_message_by_message` |
//! | Startup | First agent writes initial `shared/STATE.md` with goals | in a swarm, the orchestrator | `initial_state_lists_goal_and_owners_and_is_written_once` |
//! | During Work | REQUEST/RESPONSE and STATUS through outboxes, `STATE.md` under claims, looking for news between work | `acp-shim mail` | `the_two_agent_session_of_the_spec`, `shared_state_is_written_under_claims` |
//! | Shutdown | Agent sends DONE to all others, and updates its status to `done` | `address`, `set_status` | `a_done_followed_by_more_messages_does_not_count`, `the_specs_session_between_two_programs_message_by_message` |
//! | Shutdown | Last agent standing writes final STATE.md summary | in a swarm, the orchestrator | `summary_follows_agents_text_and_appears_once`, `the_two_agent_session_of_the_spec` |
//! | Error Handling | Agent crashes: the surviving agent continues solo | `MailboxMachine::finished_status` | `no_resend_is_requested_from_agents_that_are_gone`, `a_returning_agent_is_awaited_and_reported`, `wait_ends_on_a_match_on_departure_and_on_timeout` |
//! | Error Handling | Sequence gap: send ERROR requesting resend, or proceed with warning | `machine.rs` | `the_sender_resends_missing_messages`, `lost_messages_warn_after_the_timeout_and_arrive_late`, `unavailable_messages_are_given_up_at_once`, `repeated_resend_requests_are_answered_once` |
//! | Error Handling | Stale claim: older than 2 minutes: delete, proceed | `ClaimFile::is_stale` | `a_claim_is_held_until_released_or_stale` |
//! | Error Handling | Message too large: split into multiple messages with `part: 1/3` | `part`, `parts.rs` | `long_messages_are_split_and_joined_again`, `parts_are_joined_across_restarts_and_interleaved_messages` |
//! | Error Handling | Conflicting writes: lower agent id wins | `claim::competing_claim` | `of_two_simultaneous_claims_the_lower_id_wins` |
//! | Maker-Checker Patterns | review gate, test-first, adversarial, debug ping-pong | `tasks/patterns/` | `review_gate`, `test_first`, `adversarial`, `debug_ping_pong` |
//! | Example | the two-agent session | all of it | `the_specs_session_between_two_programs_message_by_message` |
//! | Known Issues | if agent crashes mid-write, partial files possible | `ReaderTimeouts::bad_file_grace` | `an_invalid_file_is_retried_then_given_up`, `torn_messages_are_restored_and_missing_copies_are_reported` |

mod open_dir;

pub mod message;
pub mod text;
pub mod parts;
pub mod roster;
pub mod claim;
pub mod store;
pub mod watch;
pub mod machine;
pub mod pending;
pub mod order;
pub mod agent_mailbox;
pub mod wait;
pub mod show;
pub mod rules;

#[cfg(test)]
mod property;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod tests {
    use super::rules::RULES;

    /// The module docs' tables, as rows of cells.
    fn table_rows() -> Vec<Vec<&'static str>> {
        let lines = include_str!("mod.rs").lines().filter_map(|line| line.strip_prefix("//! | "));
        lines.map(|line| line.trim_end_matches(" |").split(" | ").collect()).collect()
    }

    fn backticked(text: &str) -> Vec<&str> {
        text.split('`').skip(1).step_by(2).collect()
    }

    #[test]
    fn every_spec_sentence_has_tests_and_every_rule_a_sentence() {
        let tests = [
            include_str!("claim.rs"),
            include_str!("parts.rs"),
            include_str!("order.rs"),
            include_str!("pending.rs"),
            include_str!("property.rs"),
            include_str!("roster.rs"),
            include_str!("watch.rs"),
            include_str!("machine/tests.rs"),
            include_str!("agent_mailbox/tests.rs"),
            include_str!("store/tests.rs"),
            include_str!("text/tests.rs"),
            include_str!("mod.rs"),
            include_str!("../../coordinator/mailbox/shared_state.rs"),
            include_str!("../../coordinator/mailbox/summary.rs"),
            include_str!("../../shim/mail/tests.rs"),
            include_str!("../../../tests/it/cli/mailbox.rs"),
            include_str!("../../../tests/it/run/mailbox.rs"),
            include_str!("../../../tests/it/run/mailbox/patterns.rs"),
            include_str!("../../../tests/it/run/mailbox/session.rs"),
        ]
        .concat();
        let rows = table_rows();
        let sentences: Vec<_> = rows.iter().filter(|row| row.len() == 4 && row[0] != "section").collect();
        assert!(sentences.len() > 25, "{}", sentences.len());
        for row in &sentences {
            let named = backticked(row[3]);
            assert!(!named.is_empty(), "`{}` has no test", row[1]);
            for name in named {
                let (before, _) =
                    tests.split_once(&format!("fn {name}(")).unwrap_or_else(|| panic!("no test `{name}`"));
                let marks = before.lines().rev().map(str::trim).filter(|line| !line.is_empty());
                let mut marks = marks.take_while(|line| line.starts_with("///") || line.starts_with("#["));
                let section = row[0].to_lowercase();
                assert!(marks.any(|mark| mark.to_lowercase().contains(&section)), "`{name}` does not name `{section}`");
            }
        }
        let places: Vec<&str> = sentences.iter().flat_map(|row| backticked(row[2])).collect();
        for rule in RULES {
            assert!(places.contains(&rule.name), "no sentence has the rule `{}`", rule.name);
        }
    }

    /// Directory Layout.
    /// Startup.
    #[test]
    fn protocol_md_describes_the_whole_protocol() {
        let text = super::store::PROTOCOL_TEXT;
        for kind in super::message::MailboxMessageType::ALL {
            assert!(text.contains(kind.word()), "{kind}");
        }
        for word in
            ["amp-version: 1", "ROSTER.md", "shared/STATE.md", "`priority`", "`ttl`", "part: 1/3", ".claim-STATE-"]
        {
            assert!(text.contains(word), "{word}");
        }
        // Its example is a message: what is indented by four.
        let example: Vec<&str> = text.lines().skip_while(|line| !line.contains("amp-version")).collect();
        let example = example.iter().map_while(|line| line.strip_prefix("    ").or(line.is_empty().then_some("")));
        let example = example.collect::<Vec<_>>().join("\n");
        let message = super::text::parse(example.as_bytes()).expect("a message");
        assert_eq!(message.content.subject, "One line");
    }
}
