//! The Agentic Mesh Protocol: frames that carry tasks, header blocks for the nodes on their path, and memory that travels with them.
//!
//! Bytes become a [`frame::Frame`], which [`process::process`] turns at a [`node::Node`] into a processed or relayed frame, or a
//! [`fault::Fault`]. Used by `coordinator/`, `handoff/`, `shim/` and `cli/`, which do the I/O, and by the binding in `http`. Except for
//! `http`, must not: do I/O, read a clock, or keep state between frames.
//!
//! | file | content |
//! |---|---|
//! | [`limits`], [`syntax`] | bytes to JSON values within limits; lexical forms |
//! | [`frame`], [`block`] | the validated frame and its header blocks; unknown content is kept |
//! | [`version`], [`role`] | versions and roles |
//! | [`node`] | a node, its modules, and the context of processing |
//! | [`process`], [`relay`], [`change`] | the processing model, forwarding, changes of active intermediaries |
//! | [`modules`] | header blocks that this build processes by itself, each with its specification |
//! | [`fault`], [`fault_codec`], [`rules`] | faults as values and frames; names of the rules |
//! | [`gram`] | MemoryGrams |
//! | [`canonical`], [`replay`] | RFC 8785; replay memory |
//! | `http` | the HTTP binding (section 4) |
//!
//! # Choices
//!
//! Where the draft contradicts itself or is silent, this build behaves as follows:
//!
//! - **Omitted role** (5.2.2 has two defaults): `ultimateReceiver`, by its rule 3 (MUST). A node acts in `initialSender` only if configured.
//! - **Role IRIs** (2.1 has `urn:agentic:mesh:role:`, 2.2 `amp://role/`): equivalent, also for custom names. Tokens are written.
//! - **Unknown roles** (2.2 allows custom roles, 5.2.2 maps unknown ones to `ultimateReceiver`): an absolute IRI is a role of its own; an
//!   unregistered token is `ultimateReceiver`.
//! - **Table 3, row 2**: "next, not assumed" is impossible, as every node acts in `next` (Table 2); read as "not processed".
//! - **Table 3, row 4, and 5.2.1 rule 4 against 2.7.2**: a block for a role that the node does not act in is always forwarded (2.7 rule 1,
//!   2.7.1); an unprocessed block for its own roles is forwarded if `relay` is true and removed otherwise (2.7.2, MUST). Unknown
//!   properties are always kept.
//! - **Booleans**: true and false, or 1 and 0 (1.3). The strings "true" and "false" are refused; reading them as false would silently
//!   make a mandatory block optional.
//! - **`Header` is optional** (5.1 and the example of 1.4.1, against 5 rule 7); `Body` is not.
//! - **`version`** is the only key besides the three of 5 (5.1.1). Other keys at the top or in `frame`, qualified ones included (5.1), are
//!   refused. A nested frame is a `frame` with `Header`, `Body` or `MemoryGrams` directly below `frame`, `Header` or `Body`; deeper, it is
//!   data.
//! - **Version comparison**: by major and minor. A frame without a version has the latest. An invalid version string is a
//!   `VersionMismatch`, another type a `Sender` fault. The version is checked first.
//! - **Two block forms**: objects in `Header` are blocks (5.2), other entries are message fields (`messageId`, `ttl: 3`, 1.4), which have
//!   no role and are forwarded. Entries of `headerBlocks` are blocks too (1.4), named by `type`, with their fields in `content`. Names are
//!   unique over both forms (5.2.1), although 2.6 rule 6 mentions two blocks of one name. New blocks are keys; the construct of 5 has no
//!   "headers" array (2.7.2.1 rule 4).
//! - **`Upgrade`** is the only name that is not in camelCase (5.4.6).
//! - **Qualified names** (2.7.2.1 rule 6): JSON has none; roles are expanded for comparison, not in the frame.
//! - **MemoryGrams follow the rules of blocks** (1.4): a mandatory gram with a role, encrypted by an unknown scheme, is a `MustUnderstand`
//!   fault for `memoryGrams`. A node reinserts unchanged the grams that it understands; a gram without a role is for every node. Grams are
//!   validated at the end of the path (6.0 rule 5), encrypted ones after decryption; a lone node (1.4) is not a snapshot and is ignored.
//! - **Order of faults**: `VersionMismatch`, malformed content, `MustUnderstand`, then the others, including those of modules.
//! - **Codes** (5.4.6 has five, examples have more): written are the five, with a rule's name or `SecurityViolation...` as subcode; also
//!   read are `Receiver.SecurityViolation` (7.0), `Client.X` and `Server.X` (5.3.1, 5.4.4), and a leading `amp:` (1.5.2). `amp:TTLExpired`
//!   is a subcode of `Sender`, as resending the message unchanged fails again.
//! - **A fault's reason** is a list (5.4.2); the object in the example of 5.3.1 is refused.
//! - **A relayed fault** loses its `detail` (5.4.5 rule 4) and nothing else (5.4.1, 5.4.2). A fault is never answered with a fault; the
//!   caller ensures that with [`fault::Fault::from_frame`]. A `fault` that breaks 5.4 is no fault, and is answered as malformed.
//! - **A fault's node** is an absolute URI of any scheme (5.4.3 does not name one).
//! - **Language tags** must be well-formed (BCP 47); they need not be registered.
//! - **Intermediaries and side effects** (7.2 rule 3): an intermediary understands `routing` and `audit` only if its operator
//!   ([`node::Node::with_authorized_blocks`]) or a validated `authorization` block permits it.
//! - **The record of active intermediaries** (2.7.3) is the block `applied` with the role `none`, so that it reaches the end of the path.
//! - **Numbers** (RFC 8785): integers that a double cannot hold, and numbers out of a double's range, are refused. Decimals are relayed as
//!   the shortest form of the nearest double; `-0` becomes `-0.0`. Where an integer is expected, `3.0` is one (1.3).
//! - **Two MemoryGrams with one id** (6.0 rule 1) are refused if they differ, and count once otherwise. Weights over 1 are refused, although
//!   only the appendix limits them.
//! - **Idempotence** (2.7.3 rule 2): an active intermediary applies its changes again without effect, and does not repeat its record. It
//!   never trusts a record, as anyone on the path may have written it.
//! - **Signed content** (open in 2.7.2.1 rule 9) is everything but what nodes may change by 2.7; see `modules/signature.rs`. Actions that
//!   need permission require that signature (7.0 rules 1 and 4). **Security failures** (7.0 rule 7) are `Receiver` faults with the subcode
//!   `SecurityViolation.<check>`.
//! - **Replays** (7.3): detected by sender and `messageId` or nonce within a window; the replay memory is part of the node.
//! - **Children of the Body** need not be in camelCase (5.3.1 has no MUST); keys of a fault's `detail` must be (5.4.5).
//!
//! # Rules
//!
//! Faults name broken rules by [`rules::RULES`]. `tests/golden/mesh/invalid` has files that break each of them, `tests/golden/mesh/spec`
//! the examples of the spec as printed. Every MUST and MUST NOT of sections 1 to 3 and 5 to 7:
//!
//! | rule | section | checked in | tests |
//! |---|---|---|---|
//! | `all-musts` | 1.2 | `tests/conformance.rs` | `section_1_2_every_requirement_has_a_test_and_a_table_row` |
//! | `values-explicit` | 1.3 | `frame.rs`, `fault_codec.rs` | `section_1_3_and_5_header_body_and_memory_grams_are_present_and_typed`, `section_5_4_1_the_code_must_have_a_value` |
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
//! | `fault-value` | 5.4.1, 3 | `fault_codec.rs` | `section_5_4_1_the_code_must_have_a_value` |
//! | `fault-subcode` | 5.4.1, 3 | `fault_codec.rs`, `process.rs` | `section_5_4_1_subcodes_are_validated`, `section_5_4_1_and_5_4_5_a_fault_is_checked_against_the_application_s_lists` |
//! | `reason-entry` | 5.4.2, 2 | `fault_codec.rs` | `section_5_4_2_reasons_must_have_a_text_and_a_bcp_47_language` |
//! | `reason-one` | 5.4.2, 4 | `fault_codec.rs` | `section_5_4_2_reasons_must_have_a_text_and_a_bcp_47_language` |
//! | `reason-lang` | 5.4.2, 4 | `fault_codec.rs` | `section_5_4_2_reasons_must_have_a_text_and_a_bcp_47_language` |
//! | `fault-node` | 5.4.3, 3 | `fault_codec.rs`, `process.rs` | `section_5_4_3_a_fault_of_an_intermediary_must_name_its_node`, `section_5_4_3_every_fault_names_its_node` |
//! | `fault-role` | 5.4.4, 4 | `fault_codec.rs` | `section_5_4_4_an_unknown_role_counts_as_ultimate_receiver` |
//! | `fault-detail` | 5.4.5, 5 | `fault_codec.rs`, `process.rs` | `section_5_4_5_detail_is_an_object_with_camel_case_keys`, `section_5_4_1_and_5_4_5_a_fault_is_checked_against_the_application_s_lists` |
//! | `fault-base-code` | 5.4.6, 1 | `fault_codec.rs` | `section_5_4_6_every_spelling_of_a_code_maps_to_a_base_code` |
//! | `fault-code-validated` | 5.4.6, 3 | `fault_codec.rs` | `section_5_4_6_every_spelling_of_a_code_maps_to_a_base_code` |
//! | `must-understand-code` | 5.4.8, 2 | `process.rs` | `section_2_6_and_5_2_1_and_5_2_3_and_5_4_8_a_mandatory_block_not_understood_ends_processing` |
//! | `must-understand-ends-it` | 5.4.8, 5 | `process.rs` | `section_2_6_and_5_2_1_and_5_2_3_and_5_4_8_a_mandatory_block_not_understood_ends_processing` |
//! | `gram-immutable` | 6.0, 1 | `relay.rs`, `process.rs` | `section_6_0_grams_are_relayed_unchanged`, `section_6_0_different_grams_with_one_id_are_refused` |
//! | `gram-id` | 6.0, 2 | `gram/memory_gram.rs` | `section_6_0_grams_are_validated_at_the_ultimate_receiver` |
//! | `gram-timestamp` | 6.0, 2 | `gram/memory_gram.rs` | `section_6_0_grams_are_validated_at_the_ultimate_receiver` |
//! | `gram-graph` | 6.0, 5 | `gram/memory_gram.rs`, `process.rs` | `section_6_0_grams_are_validated_at_the_ultimate_receiver` |
//! | `trust-before-processing` | 7.0, 1 | `modules/` | `section_7_0_privileges_are_checked_before_sensitive_blocks_and_the_body`, `section_7_0_authorized_content_must_be_signed_by_its_sender`, `section_7_0_a_signature_is_checked_before_the_body`, `section_3_3_modules_act_in_the_order_of_their_stages` |
//! | `security-blocks-unknown` | 7.0, 2 | `process.rs`, `relay.rs` | `section_7_0_unknown_security_blocks_follow_the_same_rules` |
//! | `untrusted-intermediaries` | 7.2, 3 | `process.rs` | `section_7_2_only_trusted_intermediaries_process_blocks_with_side_effects` |
//!
//! # The forwarding table
//!
//! Table 3 of 2.7.1, implemented by [`relay::is_forwarded`]:
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
//! Write a file in `modules/` with the specification table of the others and a [`node::Module`], add it to
//! `modules/tests/declarations.rs`, and if it checks a MUST, add a row to the table above.

#![expect(missing_docs, reason = "public for the integration tests only; names that explain themselves need no text")]

pub(crate) mod block;
pub(crate) mod canonical;
pub(crate) mod change;
pub mod fault;
pub(crate) mod fault_codec;
pub mod frame;
pub mod gram;
#[cfg(feature = "orchestrator")]
pub(crate) mod http;
pub mod limits;
pub mod modules;
pub mod node;
pub mod process;
pub(crate) mod relay;
pub(crate) mod replay;
pub(crate) mod role;
pub mod rules;
pub(crate) mod syntax;
#[cfg(test)]
mod tests;
pub(crate) mod version;
