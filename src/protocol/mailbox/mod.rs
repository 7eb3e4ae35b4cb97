//! The Agent Mailbox Protocol, version 1: agents in different sandboxes, and people, communicate through files in a directory.
//!
//! ```text
//! draft -> parts -> text -> agents/<me>/NNN.md -> watch -> store -> machine -> delivered, requested again, given up
//! ```
//!
//! | file | content |
//! |---|---|
//! | [`message`] | messages, the values in their headers, drafts |
//! | [`text`] | Markdown -> message or violated rule, message -> Markdown |
//! | [`parts`] | splits messages over 10 KB, and joins parts |
//! | [`roster`], [`participant`] | `ROSTER.md`; roster and outboxes combined |
//! | [`claim`] | who may write a shared file |
//! | [`layout`] | names of files and directories |
//! | [`outbox`] | the files of an outbox |
//! | [`store`], [`error`] | the directory: outboxes, roster, shared files, claims |
//! | [`watch`] | waits for changes in the directory |
//! | [`machine`] | the reader over time: order, gaps, parts, ttl, agents that are gone |
//! | [`pending`] | which messages wait for whose reply |
//! | [`order`] | the order of a conversation |
//! | [`agent_mailbox`] | one agent's access: carries out the machine's effects |
//! | [`wait`] | waits for messages until one matches or none can come |
//! | [`show`] | output as text and JSON, safe for a terminal |
//! | [`rules`] | the names of the rules |
//! | `open_dir.rs` | files in a directory that is not trusted |
//! | `protocol.md` | the text of `PROTOCOL.md` |
//!
//! Used by `shim/` (`acp-shim mail`), `cli/mailbox` and `coordinator/mailbox`. Plain, blocking I/O; compiles into the shim.
//!
//! # Choices
//!
//! Where the spec is silent or contradicts itself:
//!
//! | choice | reason |
//! |---|---|
//! | timestamps without an offset are UTC | the spec's have none, and sandboxes know no other zone |
//! | a file whose `seq` is not the number in its name, or whose `from` is not the outbox's owner, is not a message | neither is more credible |
//! | `1000.md` follows `999.md`; `3.md` is read as 3, and `003.md` wins over it | "zero-padded 3 digits" does not cover a fourth |
//! | an ERROR expects a reply if it has an Expected Response | "Depends" |
//! | the four sections are read in any order, once each; other headings are text | the spec names no others |
//! | types and priorities are read in any case | agents write them by hand |
//! | unknown header fields are ignored | a later version may add some |
//! | a part is a message with a number of its own; `part-cut: inside-line` marks one that ends inside a line | "Split into multiple messages with `part: 1/3` field" |
//! | messages up to 64 KB are read, although they should be split at 10 KB | other senders may not split |
//! | a claim that was present before one's own counts as older, whatever its timestamp | its owner may already be writing |
//! | a claim's timestamp counts if it is within a minute of its file's | clocks, time zones and lies |
//! | statuses `crashed` and `left` beside `active` and `done` | the spec has no word for an agent that crashed |
//! | a gap is requested after 0.3 s (an invalid file after 1 s) and given up 30 s later, for an agent that is gone at once; one reader's ERROR serves all | "Send ERROR requesting resend, or proceed with warning" |
//! | an ERROR that requests a message or declares it unavailable is handled, not delivered; the latter ends the wait at once | nobody has to read them |
//! | a message is declared unavailable once, and at most 8 requests of one reader are answered at a time | a requester must not fill another agent's outbox |
//! | conversations are shown by `re` first, then by time | times have a resolution of one second, and clocks differ |
//! | a message that is sent again has the same number and bytes | others have its reference |
//! | a broadcast that expects a reply expects one from everybody | the spec does not say |
//! | only the status says whether an agent crashed; process ids are not checked | commands run in processes of their own, sandboxes in namespaces of their own |
//!
//! # The spec's sentences
//!
//! The spec has no MUST, so these are the requirements of its principles, lists and tables. A test checks that the named tests exist.
//!
//! | section | sentence | rule or place | tests |
//! |---|---|---|---|
//! | Design Principles | No shared writes: each agent owns its outbox directory, others read only | `from`, `file-name`; in a swarm, the kernel | `invalid_files_are_reported_without_following_links_or_blocking`, `the_kernel_keeps_each_agent_to_its_own_outbox` |
//! | Design Principles | Individual message files: one file per message | `store.rs` | `the_layout_matches_the_spec`, `concurrent_sends_get_unique_numbers_and_contiguous_parts` |
//! | Design Principles | Sequence numbers: monotonic ordering, gap detection | `machine.rs` | `messages_are_delivered_once_and_in_seq_order`, `each_senders_messages_are_delivered_complete_once_and_in_order` |
//! | Design Principles | Self-describing: every message carries enough context to act on | `parts.rs`: each part has the subject | `long_messages_are_split_and_joined_again` |
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
//! | Polling Frequency | Idle: check every 30 seconds | `watch.rs`: at once, at least every 2 s | `changes_are_reported_at_once`, `changes_are_found_by_polling_without_inotify` |
//! | Write Coordination | Write a claim file with timestamp | `claim.rs` | `a_claim_is_rendered_as_in_the_spec` |
//! | Write Coordination | Check for competing claims; if none is older, proceed with the write | `claim::competing_claim` | `the_older_claim_wins_then_the_lower_id_and_stale_claims_are_ignored`, `a_claim_is_held_until_released_or_stale` |
//! | Write Coordination | Delete your claim file after writing; if a competing claim exists, wait and retry | `Mailbox::with_claim` | `updates_under_claims_are_not_lost` |
//! | STATE.md Structure | the coordination hub | `acp-shim mail state` | `shared_state_is_written_under_claims` |
//! | STATE.md Structure | the coordination hub, when a swarm begins | `coordinator/mailbox/shared_state.rs` | `initial_state_lists_goal_and_owners_and_is_written_once` |
//! | Startup | Each agent reads `PROTOCOL.md` | `protocol.md`, named in the prompt | `protocol_md_describes_the_whole_protocol` |
//! | Startup | Each agent registers and creates its outbox directory; the first creates the mailbox | `Mailbox::create`, `register` | `the_specs_session_between_two_programs_message_by_message` |
//! | Startup | First agent writes initial `shared/STATE.md` with goals | in a swarm, the orchestrator | `initial_state_lists_goal_and_owners_and_is_written_once` |
//! | During Work | REQUEST/RESPONSE and STATUS through outboxes, `STATE.md` under claims, polling between work units | `acp-shim mail` | `the_two_agent_session_of_the_spec`, `shared_state_is_written_under_claims` |
//! | Shutdown | Agent sends DONE to all others, and updates its status to `done` | `resolve_address`, `set_status` | `a_done_followed_by_more_messages_does_not_count`, `the_specs_session_between_two_programs_message_by_message` |
//! | Shutdown | Last agent standing writes final STATE.md summary | in a swarm, the orchestrator | `summary_follows_agents_text_and_appears_once`, `the_two_agent_session_of_the_spec` |
//! | Error Handling | Agent crashes: the surviving agent continues solo | `MailboxMachine::finished_status` | `no_resend_is_requested_from_agents_that_are_gone`, `a_returning_agent_is_awaited_and_reported`, `wait_ends_on_a_match_on_departure_and_on_timeout` |
//! | Error Handling | Sequence gap: send ERROR requesting resend, or proceed with warning | `machine.rs` | `the_sender_resends_missing_messages`, `lost_messages_warn_after_the_timeout_and_arrive_late`, `unavailable_messages_are_given_up_at_once`, `repeated_resend_requests_are_answered_once` |
//! | Error Handling | Stale claim: older than 2 minutes: delete, proceed | `ClaimFile::is_stale` | `a_claim_is_held_until_released_or_stale` |
//! | Error Handling | Message too large: split into multiple messages with `part: 1/3` | `part`, `parts.rs` | `long_messages_are_split_and_joined_again`, `parts_are_joined_across_restarts_and_interleaved_messages` |
//! | Error Handling | Conflicting writes: lower agent id wins | `claim::competing_claim` | `of_two_simultaneous_claims_the_lower_id_wins` |
//! | Maker-Checker Patterns | review gate, test-first, adversarial, debug ping-pong | `tasks/patterns/` | `review_gate`, `test_first`, `adversarial`, `debug_ping_pong` |
//! | Example | the two-agent session | everything | `the_specs_session_between_two_programs_message_by_message` |
//! | Known Issues | if agent crashes mid-write, partial files possible | `ReaderTimeouts::bad_file_grace` | `an_invalid_file_is_retried_then_given_up`, `torn_messages_are_restored_and_missing_copies_are_reported` |

pub mod message;
pub(crate) mod text;
pub(crate) mod parts;
pub mod roster;
pub(crate) mod participant;
pub(crate) mod claim;
pub(crate) mod layout;
pub(crate) mod outbox;
pub mod store;
pub(crate) mod error;
pub(crate) mod watch;
pub(crate) mod machine;
pub(crate) mod pending;
pub(crate) mod order;
pub(crate) mod agent_mailbox;
pub(crate) mod wait;
pub(crate) mod show;
pub mod rules;
pub(crate) mod open_dir;

#[cfg(test)]
mod tests;
