//! The Agentic Mesh Protocol: frames that carry tasks, blocks for the nodes on their way, and the memory that travels with them.
//!
//! Bytes -> [`frame::Frame`] -> [`process::process`] at a [`node::GramNode`] -> processed, relayed or a [`fault::Fault`]. Used by
//! `coordinator/`, `shim/` and `cli/`, which do the I/O, and by the binding in `http`. Must not (but
//! `http`): do I/O, read a clock, or keep anything between two frames.
//!
//! | file | what |
//! |---|---|
//! | [`limits`] | bytes -> JSON values within sizes, no key twice, no number that two readers would take for two |
//! | [`frame`] | -> a frame with every rule of its structure checked; what it does not know is kept |
//! | [`version`], [`role`], [`block`] | what a frame conforms to, whom a block is for, what it wants of them |
//! | [`node`] | a node: its place on the path, its roles, what it understands |
//! | [`process`] | a node, a frame and the time -> one outcome |
//! | [`relay`] | the forwarding table; what active intermediaries change and mark |
//! | [`supported_modules`] | blocks that this build understands by itself, each with its specification |
//! | [`fault`], [`rules`] | what went wrong: written, read, and the names of the rules |
//! | [`gram`] | MemoryGrams |
//! | [`to_canonical_json`], [`replay`] | RFC 8785; what a node has seen |
//! | `http` | the binding: frames over HTTP, by section 4 |
//!
//! # Choices
//!
//! The draft contradicts itself or is silent in places. What this build does there:
//!
//! - **Role that is omitted** (5.2.2 has both): `ultimateReceiver`, which its rule 3 says with MUST. `initialSender` is a role like any
//!   other, and a node acts in it only if it was told so.
//! - **IRIs of roles** (2.1 has `urn:agentic:mesh:role:`, 2.2 `amp://role/`): both are read as the same role, for names beyond the
//!   spec's too; written are tokens.
//! - **Roles that are not recognised** (2.2 lets anybody define some, 5.2.2 takes what is unknown as `ultimateReceiver`): an absolute IRI
//!   is a role of its own, which a node acts in or not; a bare token that the node was not told of is `ultimateReceiver`.
//! - **Table 3, row 2**: "next, not assumed" cannot be, for every intermediary acts in `next` (Table 2). It is read as "not processed".
//! - **Table 3, row 4, and 5.2.1 rule 4 against 2.7.2**: a block for a role that the node does not act in is forwarded, whatever `relay`
//!   says (2.7 rule 1, 2.7.1); one for its own roles that it did not process is forwarded if `relay` is true, and else taken out (2.7.2,
//!   with MUST; 5.2.4 has only SHOULD). Properties that nobody knows are always kept.
//! - **Booleans**: true and false, and 1 and 0 (1.3). The texts "true" and "false" are refused: taken for false, they would make a
//!   mandatory block optional in silence.
//! - **`Header` may be missing** (5.1 and the example of 1.4.1, against 5 rule 7). `Body` may not.
//! - **`version`** is the one key beside the three of 5 (5.1.1). All others, at the top or in `frame`, are refused, not ignored; a
//!   namespace-qualified one (5.1) too. A nested frame is a `frame` with `Header`, `Body` or `MemoryGrams` right below `frame`, `Header`
//!   or `Body`; deeper it is data.
//! - **Which version is which**: major and minor count. A frame that does not say has the latest. A text that is no version is a
//!   `VersionMismatch`, anything but a text is `Sender`. The version is looked at before anything else in the frame.
//! - **Both forms of a header**: entries of `Header` that are objects are blocks (5.2), the rest are fields of the message
//!   (`messageId`, `ttl: 3`, 1.4), which have no role and go on as they are. Entries of `headerBlocks` are blocks, too (1.4), named by
//!   `type`, with their own fields in `content`. A name stands once over both forms (5.2.1), although 2.6 rule 6 speaks of two blocks
//!   of the same name. Blocks are put in as keys; there is no "headers" array (2.7.2.1 rule 4) in the construct of 5.
//! - **`Upgrade`** is the one name that is not in camelCase (5.4.6).
//! - **Qualified names** (2.7.2.1 rule 6): JSON has none; roles are expanded where they are compared, and not in the frame.
//! - **MemoryGrams follow the rules of blocks** (1.4): one that names a role, is mandatory and is sealed by a scheme that the node does
//!   not know ends in `MustUnderstand`, which calls it `memoryGrams`. A node that understands a gram puts it in again when it relays,
//!   as it came; one that names no role is for all, and goes on. Grams are validated at the end of the path (6.0 rule 5); sealed ones
//!   when they are opened; a lone node, as in 1.4, is no snapshot and is let be.
//! - **Faults and MUST**: the order is `VersionMismatch`, `Sender` for what is malformed, `MustUnderstand`, and then the rest, those of modules included.
//! - **Codes** (5.4.6 has five; examples have others): written are the five, with a rule's name or `SecurityViolation...` as subcode;
//!   read are also `Receiver.SecurityViolation` (7.0), `Client.X` and `Server.X` (5.3.1, 5.4.4), and `amp:` before any (1.5.2).
//!   Another code is refused. `amp:TTLExpired` is `Sender` with that subcode, for sent again as it is the message would end again.
//! - **A fault's reason** is a list (5.4.2); the example of 5.3.1 has an object, and is refused.
//! - **A fault that is relayed** loses its `detail` (5.4.5 rule 4) and keeps all else (5.4.1, 5.4.2). Nobody answers a fault with a fault:
//!   that is up to the caller, by [`fault::Fault::read`]. What has a `fault` that breaks 5.4 tells none, and is answered as malformed.
//! - **A fault's node** is an absolute URI of whatever scheme (5.4.3 does not name the one agreed upon).
//! - **Language tags** must be well-formed by BCP 47; whether a language is registered is not looked up.
//! - **Intermediaries and side effects** (7.2 rule 3): `routing` and `audit` are understood by an intermediary only if its operator
//!   with_authorized_blocks it ([`node::GramNode::with_authorized_blocks`]) or the frame's `authorization` block, once validated, does.
//! - **The mark of active intermediaries** (2.7.3) is the block `applied`, for `none`, so that it reaches the end of the path.
//! - **Numbers** (RFC 8785): an integer that a double cannot hold is refused, and so is what is too large for one, or so small that it would
//!   be zero. A decimal is the double nearest to it, as every reader takes it, and is relayed as the shortest text of that: of 22 digits,
//!   17 go on; `-0` goes on as `-0.0`, `1E5` as `100000.0`. Where a whole number is wanted, `3.0` is one (1.3).
//! - **Two MemoryGrams with one id** (6.0 rule 1) in a frame are refused if they differ; the same one twice counts once. An edge's weight
//!   over 1 is refused, though only the appendix says 0 to 1 (`gram.rs`).
//! - **Not twice** (2.7.3 rule 2): an active intermediary does again what it does, for each of its changes leaves what is so already, and
//!   only its mark is not doubled. A mark is not believed: anybody on the way may have written it.
//! - **What a signature covers** (2.7.2.1 rule 9 leaves it open) is in `modules/signature.rs`: all but what the rules of 2.7 let nodes on
//!   the way change. What needs a leave counts as the sender's only where that holds (7.0 rules 1 and 4). **Security failures** (7.0 rule 7) are `Receiver` with the subcode `SecurityViolation.<what>`.
//! - **Replays** (7.3): known by sender and `messageId` or nonce, within a window; what was seen is part of the node.
//! - **What 5.3.1 calls camelCase** for children of the Body is no MUST there, and is not held; keys of `detail` are, by 5.4.5.
//!
//! # Rules
//!
//! What breaks a rule of the structure is told by the name in [`rules::RULES`]; `tests/golden/mesh/invalid` has files that break each,
//! `tests/golden/mesh/spec` the examples of the spec as they are printed. Every MUST and MUST NOT of sections 1 to 3 and 5 to 7:
//!
//! | rule | section | checked in | tests |
//! |---|---|---|---|
//! | `all-musts` | 1.2 | `conformance.rs` | `section_1_2_every_requirement_has_a_test_and_a_table_row` |
//! | `values-explicit` | 1.3 | `frame.rs`, `fault.rs` | `section_1_3_and_5_header_body_and_memory_grams_are_present_and_typed`, `section_5_4_1_the_code_must_have_a_value` |
//! | `process-by-model` | 2.1 | `process.rs` | `section_2_1_and_2_6_and_2_7_every_frame_at_every_node_has_one_outcome` |
//! | `role-token-iri` | 2.1 | `role.rs` | `section_2_1_a_token_maps_to_one_iri` |
//! | `role-resolved` | 2.1 | `role.rs` | `section_2_1_and_2_2_tokens_and_both_iri_families_resolve_to_one_role` |
//! | `role-none` | 2.1; 2.2 | `node.rs` | `section_2_1_and_2_2_a_node_needs_a_uri_and_never_acts_in_none` |
//! | `role-invariant` | 2.2 | `process.rs` | `section_2_2_a_frame_does_not_change_a_node_s_roles` |
//! | `role-next` | 2.2 | `node.rs` | `section_2_2_every_node_acts_in_next_and_only_the_last_as_ultimate_receiver` |
//! | `role-ultimate-receiver` | 2.2 | `node.rs` | `section_2_2_every_node_acts_in_next_and_only_the_last_as_ultimate_receiver` |
//! | `mandatory-or-fault` | 2.4 | `process.rs` | `section_2_6_and_5_2_1_and_5_2_3_and_5_4_8_a_mandatory_block_not_understood_ends_processing`, `section_2_4_a_mandatory_block_for_another_role_is_no_fault` |
//! | `body-children` | 2.5 | `process.rs` | `section_2_5_and_5_4_6_an_unknown_encoding_style_is_a_fault`, `section_2_5_and_2_6_and_5_3_and_5_3_1_a_body_that_violates_its_schema_is_refused` |
//! | `steps-in-sequence` | 2.6 | `process.rs` | `section_2_6_step_7_must_faults_take_precedence` |
//! | `no-body-fault-in-step-3` | 2.6, 3 | `process.rs` | `section_2_6_and_5_2_1_and_5_2_3_and_5_4_8_a_mandatory_block_not_understood_ends_processing` |
//! | `conform-to-the-block` | 2.6, 6 | `modules/` | `section_2_6_and_5_2_1_the_module_validates_its_fields` |
//! | `body-by-2-5` | 2.6, 6 | `process.rs` | `section_2_5_and_2_6_and_5_3_and_5_3_1_a_body_that_violates_its_schema_is_refused` |
//! | `one-fault` | 2.6, 7 | `process.rs` | `section_2_1_and_2_6_and_2_7_every_frame_at_every_node_has_one_outcome`, `section_2_6_and_5_2_1_and_5_2_3_and_5_4_8_a_mandatory_block_not_understood_ends_processing` |
//! | `must-faults-first` | 2.6, 7 | `process.rs` | `section_2_6_step_7_must_faults_take_precedence`, `section_2_6_step_7_an_unauthorized_mandatory_block_precedes_module_faults` |
//! | `forward-all` | 2.7, 1 | `relay.rs` | `section_2_7_and_2_7_2_a_frame_is_relayed_unchanged_except_for_removed_blocks` |
//! | `integrity` | 2.7, 3 | `relay.rs` | `section_2_7_a_forwarding_intermediary_ignores_its_changes`, `section_2_1_and_2_6_and_2_7_every_frame_at_every_node_has_one_outcome` |
//! | `intermediaries-follow-2-6` | 2.7.2 | `process.rs` | `section_2_7_2_an_intermediary_follows_the_processing_model` |
//! | `remove-processed` | 2.7.2, 1 | `relay.rs` | `section_2_7_2_processed_and_ignored_blocks_are_removed_and_relayable_ones_retained`, `table_3_row_1_next_assumed_and_processed_is_not_forwarded_unless_reinserted`, `table_3_row_3_user_defined_assumed_and_processed_is_not_forwarded_unless_reinserted` |
//! | `remove-ignored` | 2.7.2, 2 | `relay.rs` | `section_2_7_2_processed_and_ignored_blocks_are_removed_and_relayable_ones_retained`, `table_3_row_2_next_not_processed_is_forwarded_if_relay`, `table_3_row_4_user_defined_assumed_but_not_processed_is_forwarded_if_relay` |
//! | `retain-relayable` | 2.7.2, 3 | `relay.rs` | `section_2_7_2_processed_and_ignored_blocks_are_removed_and_relayable_ones_retained`, `table_3_row_2_next_not_processed_is_forwarded_if_relay`, `table_3_row_4_user_defined_assumed_but_not_processed_is_forwarded_if_relay` |
//! | `forwarding-features` | 2.7.2 | `modules/` | `section_2_7_1_and_2_7_2_the_block_is_reinserted_with_one_hop_less_in_both_forms`, `section_3_1_1_and_3_3_every_module_declares_itself` |
//! | `active-indicator` | 2.7.3, 1 | `relay.rs` | `section_2_7_3_an_active_intermediary_records_its_changes`, `section_2_7_3_a_forged_record_does_not_prevent_changes` |
//! | `version-semantics` | 2.8 | `version.rs` | `section_2_8_and_5_1_1_versions_match_by_major_and_minor` |
//! | `version-mismatch` | 2.8 | `version.rs` | `section_2_8_the_version_is_checked_before_the_rest_of_the_frame`, `section_5_4_6_a_version_mismatch_carries_the_upgrade_block` |
//! | `malformed-is-sender` | 2.8 | `frame.rs` | `section_2_8_invalid_frames_fault_with_their_rule_and_code` |
//! | `feature-uri` | 3.1.1 | `modules/` | `section_3_1_1_and_3_3_every_module_declares_itself` |
//! | `feature-node-state` | 3.1.1 | `modules/` | `section_3_1_1_and_3_3_every_module_declares_itself` |
//! | `feature-processing` | 3.1.1 | `modules/` | `section_3_1_1_and_3_3_every_module_declares_itself` |
//! | `feature-data` | 3.1.1 | `modules/` | `section_3_1_1_and_3_3_every_module_declares_itself` |
//! | `module-uri` | 3.3 | `modules/` | `section_3_1_1_and_3_3_every_module_declares_itself` |
//! | `module-features` | 3.3 | `modules/` | `section_3_1_1_and_3_3_every_module_declares_itself` |
//! | `module-blocks` | 3.3 | `modules/` | `section_3_1_1_and_3_3_every_module_declares_itself` |
//! | `module-properties` | 3.3 | `modules/`; none has any | `section_3_1_1_and_3_3_every_module_declares_itself` |
//! | `module-body` | 3.3 | `modules/` | `section_3_1_1_and_3_3_every_module_declares_itself` |
//! | `module-interactions` | 3.3 | `modules/` | `section_3_1_1_and_3_3_every_module_declares_itself`, `section_3_3_modules_act_in_the_order_of_their_stages` |
//! | `single-frame-root` | 5, 1 | `frame.rs` | `section_5_a_message_has_one_frame_root` |
//! | `no-extraneous-keys` | 5, 3 | `frame.rs` | `section_5_extraneous_keys_are_refused` |
//! | `exact-json` | 5, 6 | `frame.rs` | `section_5_a_frame_round_trips_in_order` |
//! | `message-schema` | 5, 7 | `frame.rs` | `section_1_3_and_5_header_body_and_memory_grams_are_present_and_typed` |
//! | `extensions-below-the-top` | 5, 8 | `frame.rs` | `section_5_extraneous_keys_are_refused` |
//! | `block-camel-case` | 5.2.1, 1 | `block.rs` | `section_5_2_1_names_are_camel_case`, `section_5_2_1_keys_are_camel_case_and_unique` |
//! | `block-unique` | 5.2.1, 1 | `frame.rs`, `limits.rs` | `section_5_2_1_keys_are_camel_case_and_unique` |
//! | `must-understand-or-reject` | 5.2.1, 3 | `process.rs` | `section_2_6_and_5_2_1_and_5_2_3_and_5_4_8_a_mandatory_block_not_understood_ends_processing` |
//! | `relay-unrecognised` | 5.2.1, 3 | `relay.rs` | `section_5_2_1_and_5_2_4_an_unrecognised_relayable_block_is_forwarded`, `table_3_row_2_next_not_processed_is_forwarded_if_relay` |
//! | `unknown-ignored-and-preserved` | 5.2.1, 4 | `relay.rs` | `section_5_2_1_unknown_blocks_and_properties_are_ignored_and_preserved` |
//! | `core-properties` | 5.2.1, 5 | `block.rs` | `section_5_2_1_core_properties_are_validated`, `section_5_2_1_core_properties_are_validated_in_both_forms` |
//! | `role-default` | 5.2.2, 3 | `block.rs` | `section_5_2_2_to_5_2_4_absent_properties_have_defaults` |
//! | `role-nested` | 5.2.2, 4 | `block.rs` | `section_5_2_2_and_5_2_4_nested_role_and_relay_are_ignored` |
//! | `role-recognised` | 5.2.2, 5 | `role.rs` | `section_5_2_2_an_unrecognised_role_resolves_to_ultimate_receiver` |
//! | `must-understand-boolean` | 5.2.3, 4 | `block.rs` | `section_1_3_and_5_2_3_and_5_2_4_one_and_zero_count_as_booleans` |
//! | `must-understand-reject` | 5.2.3, 5 | `process.rs` | `section_2_6_and_5_2_1_and_5_2_3_and_5_4_8_a_mandatory_block_not_understood_ends_processing` |
//! | `relay-boolean` | 5.2.4, 4 | `block.rs` | `section_1_3_and_5_2_3_and_5_2_4_one_and_zero_count_as_booleans` |
//! | `relay-included` | 5.2.4, 5 | `relay.rs` | `section_5_2_1_and_5_2_4_an_unrecognised_relayable_block_is_forwarded`, `table_3_row_2_next_not_processed_is_forwarded_if_relay` |
//! | `relay-elsewhere` | 5.2.4, 6 | `block.rs` | `section_5_2_2_and_5_2_4_nested_role_and_relay_are_ignored` |
//! | `body-formatting` | 5.3, 4 | `limits.rs` | `section_5_3_valid_frames_are_processed_unchanged` |
//! | `body-schema` | 5.3, 5 | `process.rs` | `section_2_5_and_2_6_and_5_3_and_5_3_1_a_body_that_violates_its_schema_is_refused` |
//! | `body-refused-with-a-fault` | 5.3, 6 | `process.rs` | `section_2_5_and_2_6_and_5_3_and_5_3_1_a_body_that_violates_its_schema_is_refused` |
//! | `body-keys-unique` | 5.3.1, 1 | `limits.rs` | `section_5_3_1_body_keys_are_unique` |
//! | `fault-alone` | 5.3.1, 5 | `process.rs` | `section_5_3_1_only_the_fault_of_a_body_is_read` |
//! | `body-child-schema` | 5.3.1, 6 | `process.rs` | `section_2_5_and_2_6_and_5_3_and_5_3_1_a_body_that_violates_its_schema_is_refused` |
//! | `fault-value` | 5.4.1, 3 | `fault.rs` | `section_5_4_1_the_code_must_have_a_value` |
//! | `fault-subcode` | 5.4.1, 3 | `fault.rs`, `process.rs` | `section_5_4_1_subcodes_are_validated`, `section_5_4_1_and_5_4_5_a_fault_is_checked_against_the_application_s_lists` |
//! | `reason-entry` | 5.4.2, 2 | `fault.rs` | `section_5_4_2_reasons_must_have_a_text_and_a_bcp_47_language` |
//! | `reason-one` | 5.4.2, 4 | `fault.rs` | `section_5_4_2_reasons_must_have_a_text_and_a_bcp_47_language` |
//! | `reason-lang` | 5.4.2, 4 | `fault.rs` | `section_5_4_2_reasons_must_have_a_text_and_a_bcp_47_language` |
//! | `fault-node` | 5.4.3, 3 | `fault.rs`, `process.rs` | `section_5_4_3_a_fault_of_an_intermediary_must_name_its_node`, `section_5_4_3_every_fault_names_its_node` |
//! | `fault-role` | 5.4.4, 4 | `fault.rs` | `section_5_4_4_an_unknown_role_counts_as_ultimate_receiver` |
//! | `fault-detail` | 5.4.5, 5 | `fault.rs`, `process.rs` | `section_5_4_5_detail_is_an_object_with_camel_case_keys`, `section_5_4_1_and_5_4_5_a_fault_is_checked_against_the_application_s_lists` |
//! | `fault-base-code` | 5.4.6, 1 | `fault.rs` | `section_5_4_6_every_spelling_of_a_code_maps_to_a_base_code` |
//! | `fault-code-validated` | 5.4.6, 3 | `fault.rs` | `section_5_4_6_every_spelling_of_a_code_maps_to_a_base_code` |
//! | `must-understand-code` | 5.4.8, 2 | `process.rs` | `section_2_6_and_5_2_1_and_5_2_3_and_5_4_8_a_mandatory_block_not_understood_ends_processing` |
//! | `must-understand-ends-it` | 5.4.8, 5 | `process.rs` | `section_2_6_and_5_2_1_and_5_2_3_and_5_4_8_a_mandatory_block_not_understood_ends_processing` |
//! | `gram-immutable` | 6.0, 1 | `relay.rs`, `gram.rs` | `section_6_0_grams_are_relayed_unchanged`, `section_6_0_different_grams_with_one_id_are_refused` |
//! | `gram-id` | 6.0, 2 | `gram/read.rs` | `section_6_0_grams_are_validated_at_the_ultimate_receiver` |
//! | `gram-timestamp` | 6.0, 2 | `gram/read.rs` | `section_6_0_grams_are_validated_at_the_ultimate_receiver` |
//! | `gram-graph` | 6.0, 5 | `gram/read.rs`, `process.rs` | `section_6_0_grams_are_validated_at_the_ultimate_receiver` |
//! | `trust-before-processing` | 7.0, 1 | `modules/` | `section_7_0_privileges_are_checked_before_sensitive_blocks_and_the_body`, `section_7_0_authorized_content_must_be_signed_by_its_sender`, `section_7_0_a_signature_is_checked_before_the_body`, `section_3_3_modules_act_in_the_order_of_their_stages` |
//! | `security-blocks-unknown` | 7.0, 2 | `process.rs`, `relay.rs` | `section_7_0_unknown_security_blocks_follow_the_same_rules` |
//! | `untrusted-intermediaries` | 7.2, 3 | `process.rs` | `section_7_2_only_trusted_intermediaries_process_blocks_with_side_effects` |
//!
//! # The forwarding table
//!
//! Table 3 of 2.7.1, as [`relay::is_forwarded`] has it:
//!
//! | row | tests |
//! |---|---|
//! | 1: next, assumed, processed: not forwarded unless reinserted | `table_3_row_1_next_assumed_and_processed_is_not_forwarded_unless_reinserted` |
//! | 2: next, not processed: forwarded if relay | `table_3_row_2_next_not_processed_is_forwarded_if_relay` |
//! | 3: user-defined, assumed, processed: not forwarded unless reinserted | `table_3_row_3_user_defined_assumed_and_processed_is_not_forwarded_unless_reinserted` |
//! | 4: user-defined, assumed, not processed: forwarded if relay | `table_3_row_4_user_defined_assumed_but_not_processed_is_forwarded_if_relay` |
//! | 4: user-defined, not assumed: forwarded | `table_3_row_4_user_defined_not_assumed_is_forwarded_and_relay_has_no_effect` |
//! | 5: ultimateReceiver: never an intermediary's | `table_3_row_5_ultimate_receiver_is_never_assumed_by_an_intermediary` |
//! | 6: none: always forwarded | `table_3_row_6_none_is_always_relayed` |
//!
//! # To add a module
//!
//! A file in `modules/` with the table that the others have, a `Module`, its line in `modules/declarations.rs`; if it checks a MUST, a
//! row in `conformance.rs` and above.

pub mod block;
pub mod canonical;
#[cfg(test)]
mod conformance;
pub mod fault;
pub mod frame;
#[cfg(all(test, feature = "orchestrator"))]
mod golden;
pub mod gram;
#[cfg(feature = "orchestrator")]
pub mod http;
pub mod limits;
pub mod modules;
pub mod node;
pub mod process;
#[cfg(all(test, feature = "orchestrator"))]
mod properties;
pub mod relay;
pub mod replay;
pub mod role;
pub mod rules;
pub mod version;
