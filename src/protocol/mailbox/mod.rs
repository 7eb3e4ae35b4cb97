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
//! | [`parts`] | more than 10 KB: cut into messages, and joined |
//! | [`roster`] | who takes part |
//! | [`claim`] | who may write a shared file |
//! | [`store`] | the folder: outboxes, roster, shared files, claims |
//! | [`watch`] | waiting until something happens in it |
//! | [`machine`] | what a reader makes of it over time: order, gaps, parts, ttl, who is gone |
//! | [`pending`] | who waits for whose answer |
//! | [`order`] | the order in which a conversation went |
//! | [`reader`] | an agent at its mailbox: carries out what the machine wants |
//! | [`wait`] | waiting for what it needs, until it is there, or never will be |
//! | [`show`] | messages as text and as JSON, safe for a terminal |
//! | [`rules`] | the rules' names |
//! | `folder.rs` | files in a folder that is not to be trusted |
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
//! | Design Principles | No shared writes: each agent owns its outbox directory, others read only | `from`, `file-name`; in a swarm, the kernel | `what_is_no_message_is_named_and_nothing_is_followed_or_waited_for`, `the_kernel_keeps_each_agent_to_its_own_outbox` |
//! | Design Principles | Individual message files: one file per message | `store.rs` | `the_layout_is_the_specs`, `sends_at_once_take_a_number_each_and_parts_follow_each_other` |
//! | Design Principles | Sequence numbers: monotonic ordering, gap detection | `machine.rs` | `messages_come_in_order_of_their_numbers_and_once`, `each_senders_messages_are_delivered_whole_once_and_in_order` |
//! | Design Principles | Self-describing: every message carries enough context to act on | `parts.rs`: each part has its subject | `what_fits_is_one_message_and_what_does_not_comes_together_again` |
//! | Design Principles | Human-readable: Markdown | `text.rs` | `the_specs_example_is_read_and_written_byte_for_byte` |
//! | Directory Layout | `PROTOCOL.md`, `ROSTER.md`, `agents/<id>/NNN.md`, `shared/` | `store.rs` | `the_layout_is_the_specs`, `protocol_md_tells_all_that_one_needs` |
//! | Agent Registration | On startup, each agent appends to `ROSTER.md` | `roster.rs` | `the_specs_roster_is_read_and_written`, `rows_of_others_are_read_as_far_as_they_go` |
//! | Agent Registration | Agent IDs must be unique | `MailboxError::IdTaken` | `the_roster_keeps_what_several_write_at_once` |
//! | Message Format | Each message is a standalone `.md` file in the agent's outbox | `file-name`, `file-kind`, `utf8`, `size` | `what_is_no_message_is_named_and_nothing_is_followed_or_waited_for`, `files_of_others_are_named_and_passed_over` |
//! | Required Fields | `amp-version`, `from`, `to`, `seq`, `type`, `timestamp` | `required`, `version`, `from`, `to`, `seq`, `type`, `timestamp`, `field-twice` | `what_breaks_a_rule_is_told_by_it`, `what_others_write_is_read` |
//! | Required Fields | `to`: `*` for broadcast | `Recipient::All` | `messages_come_in_order_of_their_numbers_and_once` |
//! | Required Fields | `seq`: zero-padded 3 digits | `Seq` | `numbers_have_three_digits_at_least` |
//! | Optional Fields | `re`: reference to a previous message | `re` | `what_breaks_a_rule_is_told_by_it`, `what_is_asked_is_open_until_it_is_answered` |
//! | Optional Fields | `priority`: `low`, `normal` (default), `high`, `critical` | `priority` | `optional_fields_are_written_behind_re`, `the_specs_example_is_read_and_written_byte_for_byte` |
//! | Optional Fields | `ttl`: the message expires after this | `ttl` | `what_is_expired_is_not_delivered`, `a_message_is_good_for_its_ttl` |
//! | Message Types | the seven, and which expect a response | `type` | `who_waits_for_what`, `of_a_broadcast_everybody_owes_an_answer_and_of_who_is_gone_it_is_said` |
//! | Polling Protocol | Compare filenames against last-processed sequence number; read any new messages in sequence order | `reader.rs` | `what_is_read_is_read_once_and_what_is_not_kept_is_read_again` |
//! | Polling Frequency | Idle: check every 30 seconds | `watch.rs`: at once, at the latest every 2 s | `what_happens_is_told_at_once`, `without_the_kernel_it_is_seen_by_looking` |
//! | Write Coordination | Write a claim file with timestamp | `claim.rs` | `the_specs_claim_is_written` |
//! | Write Coordination | Check for competing claims; if none is older, proceed with the write | `claim::rival` | `the_older_wins_then_the_lower_id_and_stale_ones_do_not_count`, `a_claim_holds_until_it_is_released_or_stale` |
//! | Write Coordination | Delete your claim file after writing; if a competing claim exists, wait and retry | `Mailbox::with_claim` | `changes_under_claims_are_not_lost` |
//! | STATE.md Structure | the coordination hub | `acp-shim mail state` | `shared_state_is_written_under_claims` |
//! | STATE.md Structure | the coordination hub, as a swarm begins | `coordinator/mailbox/goals.rs` | `initial_state_lists_goal_and_owners_and_is_written_once` |
//! | Startup | Each agent reads `PROTOCOL.md` | `protocol.md`, which the prompt names | `protocol_md_tells_all_that_one_needs` |
//! | Startup | Each agent registers and creates its outbox directory; the first creates the mailbox | `Mailbox::create`, `register` | `the_specs_session_between_two_programs_message_by_message` |
//! | Startup | First agent writes initial `shared/STATE.md` with goals | in a swarm, the orchestrator | `initial_state_lists_goal_and_owners_and_is_written_once` |
//! | During Work | REQUEST/RESPONSE and STATUS through outboxes, `STATE.md` under claims, looking for news between work | `acp-shim mail` | `the_two_agent_session_of_the_spec`, `shared_state_is_written_under_claims` |
//! | Shutdown | Agent sends DONE to all others, and updates its status to `done` | `address`, `set_status` | `a_done_is_the_end_until_more_is_said`, `the_specs_session_between_two_programs_message_by_message` |
//! | Shutdown | Last agent standing writes final STATE.md summary | in a swarm, the orchestrator | `summary_follows_agents_text_and_appears_once`, `the_two_agent_session_of_the_spec` |
//! | Error Handling | Agent crashes: the surviving agent continues solo | `Machine::finished` | `nothing_is_asked_of_who_is_gone`, `who_begins_anew_is_waited_for_and_it_is_said`, `wait_ends_on_a_match_on_departure_and_on_timeout` |
//! | Error Handling | Sequence gap: send ERROR requesting resend, or proceed with warning | `machine.rs` | `a_gap_is_mended_by_its_sender`, `after_the_limit_it_goes_on_with_a_warning_and_what_comes_then_is_late`, `who_has_a_message_no_more_is_not_waited_for`, `who_asks_again_and_again_is_answered_once_and_floods_nobodys_outbox` |
//! | Error Handling | Stale claim: older than 2 minutes: delete, proceed | `Found::is_stale` | `a_claim_holds_until_it_is_released_or_stale` |
//! | Error Handling | Message too large: split into multiple messages with `part: 1/3` | `part`, `parts.rs` | `what_fits_is_one_message_and_what_does_not_comes_together_again`, `parts_are_joined_even_over_restarts_and_with_others_between` |
//! | Error Handling | Conflicting writes: lower agent id wins | `claim::rival` | `of_two_that_were_written_at_once_the_lower_id_wins` |
//! | Maker-Checker Patterns | review gate, test-first, adversarial, debug ping-pong | `tasks/patterns/` | `review_gate`, `test_first`, `adversarial`, `debug_ping_pong` |
//! | Example | the two-agent session | all of it | `the_specs_session_between_two_programs_message_by_message` |
//! | Known Issues | if agent crashes mid-write, partial files possible | `Limits::torn` | `a_file_that_is_no_message_may_be_half_written`, `a_torn_message_is_mended_and_what_there_is_no_copy_of_is_said` |

mod folder;

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
pub mod reader;
pub mod wait;
pub mod show;
pub mod rules;

#[cfg(test)]
mod property;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests {
    use super::rules::RULES;

    /// The module docs' tables, as rows of cells.
    fn rows() -> Vec<Vec<&'static str>> {
        let lines = include_str!("mod.rs").lines().filter_map(|line| line.strip_prefix("//! | "));
        lines.map(|line| line.trim_end_matches(" |").split(" | ").collect()).collect()
    }

    fn quoted(text: &str) -> Vec<&str> {
        text.split('`').skip(1).step_by(2).collect()
    }

    #[test]
    fn every_sentence_has_tests_and_every_rule_a_sentence() {
        let tests = [
            include_str!("claim.rs"),
            include_str!("parts.rs"),
            include_str!("order.rs"),
            include_str!("pending.rs"),
            include_str!("property.rs"),
            include_str!("roster.rs"),
            include_str!("watch.rs"),
            include_str!("machine/tests.rs"),
            include_str!("reader/tests.rs"),
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
        let rows = rows();
        let sentences: Vec<_> = rows.iter().filter(|row| row.len() == 4 && row[0] != "section").collect();
        assert!(sentences.len() > 25, "{}", sentences.len());
        for row in &sentences {
            let named = quoted(row[3]);
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
        let places: Vec<&str> = sentences.iter().flat_map(|row| quoted(row[2])).collect();
        for rule in RULES {
            assert!(places.contains(&rule.name), "no sentence has the rule `{}`", rule.name);
        }
    }

    /// Directory Layout.
    /// Startup.
    #[test]
    fn protocol_md_tells_all_that_one_needs() {
        let text = super::store::PROTOCOL_TEXT;
        for kind in super::message::Kind::ALL {
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
