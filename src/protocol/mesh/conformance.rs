//! Every MUST and MUST NOT of the spec's sections 1 to 3 and 5 to 7: where it is checked, and by which tests. The table in the module's
//! documentation is this one; tests hold that it is, and that the tests are there.
//!
//! Section 4, and what section 3 says of bindings and message exchange patterns, is for bindings, and in their documentation.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Name, section with the number of the rule in it, where it is checked, tests.
type SpecRequirement = (&'static str, &'static str, &'static str, &'static [&'static str]);

const REQUIREMENTS: &[SpecRequirement] = &[
    ("all-musts", "1.2", "`conformance.rs`", &["section_1_2_every_must_has_a_test_and_a_row_in_the_table"]),
    (
        "values-explicit",
        "1.3",
        "`frame.rs`, `fault.rs`",
        &["section_1_3_and_5_presence_and_types_of_header_body_and_memory_grams", "section_5_4_1_the_code_has_a_value"],
    ),
    (
        "process-by-model",
        "2.1",
        "`process.rs`",
        &["section_2_1_and_2_6_and_2_7_any_frame_at_any_node_ends_in_one_outcome"],
    ),
    ("role-token-iri", "2.1", "`role.rs`", &["section_2_1_a_token_maps_to_one_iri"]),
    ("role-resolved", "2.1", "`role.rs`", &["section_2_1_and_2_2_tokens_and_both_families_of_iris_are_the_same_role"]),
    ("role-none", "2.1; 2.2", "`node.rs`", &["section_2_1_and_2_2_a_node_has_a_uri_and_never_acts_in_none"]),
    ("role-invariant", "2.2", "`process.rs`", &["section_2_2_a_frame_does_not_change_the_roles_of_a_node"]),
    ("role-next", "2.2", "`node.rs`", &["section_2_2_who_acts_in_next_and_who_as_the_ultimate_receiver"]),
    ("role-ultimate-receiver", "2.2", "`node.rs`", &["section_2_2_who_acts_in_next_and_who_as_the_ultimate_receiver"]),
    (
        "mandatory-or-fault",
        "2.4",
        "`process.rs`",
        &[
            "section_2_6_and_5_2_1_and_5_2_3_and_5_4_8_a_mandatory_block_that_is_not_understood_ends_it",
            "section_2_4_a_mandatory_block_for_others_is_no_fault",
        ],
    ),
    (
        "body-children",
        "2.5",
        "`process.rs`",
        &[
            "section_2_5_and_5_4_6_an_encoding_that_is_not_known",
            "section_2_5_and_2_6_and_5_3_and_5_3_1_a_body_that_does_not_fit_its_schema_is_refused",
        ],
    ),
    ("steps-in-sequence", "2.6", "`process.rs`", &["section_2_6_step_7_a_fault_with_must_comes_first"]),
    (
        "no-body-fault-in-step-3",
        "2.6, 3",
        "`process.rs`",
        &["section_2_6_and_5_2_1_and_5_2_3_and_5_4_8_a_mandatory_block_that_is_not_understood_ends_it"],
    ),
    ("conform-to-the-block", "2.6, 6", "`modules/`", &["section_2_6_and_5_2_1_the_module_validates_its_fields"]),
    (
        "body-by-2-5",
        "2.6, 6",
        "`process.rs`",
        &["section_2_5_and_2_6_and_5_3_and_5_3_1_a_body_that_does_not_fit_its_schema_is_refused"],
    ),
    (
        "one-fault",
        "2.6, 7",
        "`process.rs`",
        &[
            "section_2_1_and_2_6_and_2_7_any_frame_at_any_node_ends_in_one_outcome",
            "section_2_6_and_5_2_1_and_5_2_3_and_5_4_8_a_mandatory_block_that_is_not_understood_ends_it",
        ],
    ),
    (
        "must-faults-first",
        "2.6, 7",
        "`process.rs`",
        &[
            "section_2_6_step_7_a_fault_with_must_comes_first",
            "section_2_6_step_7_a_mandatory_block_without_leave_comes_before_what_a_module_refuses",
        ],
    ),
    (
        "forward-all",
        "2.7, 1",
        "`relay.rs`",
        &["section_2_7_and_2_7_2_what_is_relayed_is_what_came_less_what_the_table_takes_out"],
    ),
    (
        "integrity",
        "2.7, 3",
        "`relay.rs`",
        &[
            "section_2_7_a_forwarding_intermediary_changes_nothing_of_its_own",
            "section_2_1_and_2_6_and_2_7_any_frame_at_any_node_ends_in_one_outcome",
        ],
    ),
    ("intermediaries-follow-2-6", "2.7.2", "`process.rs`", &["section_2_7_2_an_intermediary_follows_the_same_steps"]),
    (
        "remove-processed",
        "2.7.2, 1",
        "`relay.rs`",
        &[
            "section_2_7_2_the_processed_and_the_ignored_are_removed_and_the_relayable_retained",
            "table_3_row_1_next_assumed_and_processed_is_not_forwarded_unless_reinserted",
            "table_3_row_3_user_defined_assumed_and_processed_is_not_forwarded_unless_reinserted",
        ],
    ),
    (
        "remove-ignored",
        "2.7.2, 2",
        "`relay.rs`",
        &[
            "section_2_7_2_the_processed_and_the_ignored_are_removed_and_the_relayable_retained",
            "table_3_row_2_next_not_processed_is_forwarded_if_relay",
            "table_3_row_4_user_defined_assumed_but_not_processed_is_forwarded_if_relay",
        ],
    ),
    (
        "retain-relayable",
        "2.7.2, 3",
        "`relay.rs`",
        &[
            "section_2_7_2_the_processed_and_the_ignored_are_removed_and_the_relayable_retained",
            "table_3_row_2_next_not_processed_is_forwarded_if_relay",
            "table_3_row_4_user_defined_assumed_but_not_processed_is_forwarded_if_relay",
        ],
    ),
    (
        "forwarding-features",
        "2.7.2",
        "`modules/`",
        &[
            "section_2_7_1_and_2_7_2_the_block_is_put_in_again_with_one_hop_less_in_both_forms",
            "section_3_1_1_and_3_3_every_module_says_what_it_is",
        ],
    ),
    (
        "active-indicator",
        "2.7.3, 1",
        "`relay.rs`",
        &[
            "section_2_7_3_an_active_intermediary_marks_what_it_changed",
            "section_2_7_3_a_mark_that_somebody_forged_keeps_nothing_from_being_changed",
        ],
    ),
    ("version-semantics", "2.8", "`version.rs`", &["section_2_8_and_5_1_1_which_versions_are_supported"]),
    (
        "version-mismatch",
        "2.8",
        "`version.rs`",
        &[
            "section_2_8_the_version_comes_before_all_else_of_the_frame",
            "section_5_4_6_a_version_mismatch_carries_the_upgrade_block",
        ],
    ),
    (
        "malformed-is-sender",
        "2.8",
        "`frame.rs`",
        &["section_2_8_the_invalid_are_told_by_their_rule_and_what_is_malformed_is_the_senders"],
    ),
    ("feature-uri", "3.1.1", "`modules/`", &["section_3_1_1_and_3_3_every_module_says_what_it_is"]),
    ("feature-node-state", "3.1.1", "`modules/`", &["section_3_1_1_and_3_3_every_module_says_what_it_is"]),
    ("feature-processing", "3.1.1", "`modules/`", &["section_3_1_1_and_3_3_every_module_says_what_it_is"]),
    ("feature-data", "3.1.1", "`modules/`", &["section_3_1_1_and_3_3_every_module_says_what_it_is"]),
    ("module-uri", "3.3", "`modules/`", &["section_3_1_1_and_3_3_every_module_says_what_it_is"]),
    ("module-features", "3.3", "`modules/`", &["section_3_1_1_and_3_3_every_module_says_what_it_is"]),
    ("module-blocks", "3.3", "`modules/`", &["section_3_1_1_and_3_3_every_module_says_what_it_is"]),
    ("module-properties", "3.3", "`modules/`; none has any", &["section_3_1_1_and_3_3_every_module_says_what_it_is"]),
    ("module-body", "3.3", "`modules/`", &["section_3_1_1_and_3_3_every_module_says_what_it_is"]),
    (
        "module-interactions",
        "3.3",
        "`modules/`",
        &["section_3_1_1_and_3_3_every_module_says_what_it_is", "section_3_3_modules_act_in_the_order_of_their_stages"],
    ),
    ("single-frame-root", "5, 1", "`frame.rs`", &["section_5_one_frame_root"]),
    ("no-extraneous-keys", "5, 3", "`frame.rs`", &["section_5_no_extraneous_keys"]),
    ("exact-json", "5, 6", "`frame.rs`", &["section_5_what_a_frame_says_comes_back_in_its_order"]),
    ("message-schema", "5, 7", "`frame.rs`", &["section_1_3_and_5_presence_and_types_of_header_body_and_memory_grams"]),
    ("extensions-below-the-top", "5, 8", "`frame.rs`", &["section_5_no_extraneous_keys"]),
    (
        "block-camel-case",
        "5.2.1, 1",
        "`block.rs`",
        &["section_5_2_1_names_are_camel_case", "section_5_2_1_keys_are_camel_case_and_stand_once"],
    ),
    ("block-unique", "5.2.1, 1", "`frame.rs`, `limits.rs`", &["section_5_2_1_keys_are_camel_case_and_stand_once"]),
    (
        "must-understand-or-reject",
        "5.2.1, 3",
        "`process.rs`",
        &["section_2_6_and_5_2_1_and_5_2_3_and_5_4_8_a_mandatory_block_that_is_not_understood_ends_it"],
    ),
    (
        "relay-unrecognised",
        "5.2.1, 3",
        "`relay.rs`",
        &[
            "section_5_2_1_and_5_2_4_an_unrecognised_block_that_is_relayable_is_forwarded",
            "table_3_row_2_next_not_processed_is_forwarded_if_relay",
        ],
    ),
    (
        "unknown-ignored-and-preserved",
        "5.2.1, 4",
        "`relay.rs`",
        &["section_5_2_1_unknown_blocks_and_properties_are_ignored_and_preserved"],
    ),
    (
        "core-properties",
        "5.2.1, 5",
        "`block.rs`",
        &["section_5_2_1_core_properties_are_validated", "section_5_2_1_core_properties_are_validated_in_both_forms"],
    ),
    ("role-default", "5.2.2, 3", "`block.rs`", &["section_5_2_2_to_5_2_4_defaults"]),
    ("role-nested", "5.2.2, 4", "`block.rs`", &["section_5_2_2_and_5_2_4_nested_role_and_relay_are_ignored"]),
    ("role-recognised", "5.2.2, 5", "`role.rs`", &["section_5_2_2_what_is_not_recognised_is_the_ultimate_receiver"]),
    (
        "must-understand-boolean",
        "5.2.3, 4",
        "`block.rs`",
        &["section_1_3_and_5_2_3_and_5_2_4_one_and_zero_are_true_and_false"],
    ),
    (
        "must-understand-reject",
        "5.2.3, 5",
        "`process.rs`",
        &["section_2_6_and_5_2_1_and_5_2_3_and_5_4_8_a_mandatory_block_that_is_not_understood_ends_it"],
    ),
    ("relay-boolean", "5.2.4, 4", "`block.rs`", &["section_1_3_and_5_2_3_and_5_2_4_one_and_zero_are_true_and_false"]),
    (
        "relay-included",
        "5.2.4, 5",
        "`relay.rs`",
        &[
            "section_5_2_1_and_5_2_4_an_unrecognised_block_that_is_relayable_is_forwarded",
            "table_3_row_2_next_not_processed_is_forwarded_if_relay",
        ],
    ),
    ("relay-elsewhere", "5.2.4, 6", "`block.rs`", &["section_5_2_2_and_5_2_4_nested_role_and_relay_are_ignored"]),
    ("body-formatting", "5.3, 4", "`limits.rs`", &["section_5_3_the_valid_are_processed_and_come_back_the_same"]),
    (
        "body-schema",
        "5.3, 5",
        "`process.rs`",
        &["section_2_5_and_2_6_and_5_3_and_5_3_1_a_body_that_does_not_fit_its_schema_is_refused"],
    ),
    (
        "body-refused-with-a-fault",
        "5.3, 6",
        "`process.rs`",
        &["section_2_5_and_2_6_and_5_3_and_5_3_1_a_body_that_does_not_fit_its_schema_is_refused"],
    ),
    ("body-keys-unique", "5.3.1, 1", "`limits.rs`", &["section_5_3_1_body_keys_stand_once"]),
    ("fault-alone", "5.3.1, 5", "`process.rs`", &["section_5_3_1_a_fault_is_read_and_nothing_else_of_the_body"]),
    (
        "body-child-schema",
        "5.3.1, 6",
        "`process.rs`",
        &["section_2_5_and_2_6_and_5_3_and_5_3_1_a_body_that_does_not_fit_its_schema_is_refused"],
    ),
    ("fault-value", "5.4.1, 3", "`fault.rs`", &["section_5_4_1_the_code_has_a_value"]),
    (
        "fault-subcode",
        "5.4.1, 3",
        "`fault.rs`, `process.rs`",
        &["section_5_4_1_subcodes_are_validated", "section_5_4_1_and_5_4_5_a_fault_fits_the_application_s_lists"],
    ),
    ("reason-entry", "5.4.2, 2", "`fault.rs`", &["section_5_4_2_reasons_have_a_text_and_a_bcp_47_language"]),
    ("reason-one", "5.4.2, 4", "`fault.rs`", &["section_5_4_2_reasons_have_a_text_and_a_bcp_47_language"]),
    ("reason-lang", "5.4.2, 4", "`fault.rs`", &["section_5_4_2_reasons_have_a_text_and_a_bcp_47_language"]),
    (
        "fault-node",
        "5.4.3, 3",
        "`fault.rs`, `process.rs`",
        &["section_5_4_3_an_intermediary_names_its_node", "section_5_4_3_every_fault_says_its_node"],
    ),
    ("fault-role", "5.4.4, 4", "`fault.rs`", &["section_5_4_4_a_role_that_is_not_known_is_the_ultimate_receiver"]),
    (
        "fault-detail",
        "5.4.5, 5",
        "`fault.rs`, `process.rs`",
        &[
            "section_5_4_5_detail_is_an_object_with_camel_case_keys",
            "section_5_4_1_and_5_4_5_a_fault_fits_the_application_s_lists",
        ],
    ),
    (
        "fault-base-code",
        "5.4.6, 1",
        "`fault.rs`",
        &["section_5_4_6_codes_are_of_the_base_set_however_they_are_written"],
    ),
    (
        "fault-code-validated",
        "5.4.6, 3",
        "`fault.rs`",
        &["section_5_4_6_codes_are_of_the_base_set_however_they_are_written"],
    ),
    (
        "must-understand-code",
        "5.4.8, 2",
        "`process.rs`",
        &["section_2_6_and_5_2_1_and_5_2_3_and_5_4_8_a_mandatory_block_that_is_not_understood_ends_it"],
    ),
    (
        "must-understand-ends-it",
        "5.4.8, 5",
        "`process.rs`",
        &["section_2_6_and_5_2_1_and_5_2_3_and_5_4_8_a_mandatory_block_that_is_not_understood_ends_it"],
    ),
    (
        "gram-immutable",
        "6.0, 1",
        "`relay.rs`, `gram.rs`",
        &["section_6_0_grams_are_relayed_as_they_came", "section_6_0_two_grams_with_one_id_are_the_same_or_refused"],
    ),
    ("gram-id", "6.0, 2", "`gram/read.rs`", &["section_6_0_grams_are_validated_where_they_are_presented"]),
    ("gram-timestamp", "6.0, 2", "`gram/read.rs`", &["section_6_0_grams_are_validated_where_they_are_presented"]),
    (
        "gram-graph",
        "6.0, 5",
        "`gram/read.rs`, `process.rs`",
        &["section_6_0_grams_are_validated_where_they_are_presented"],
    ),
    (
        "trust-before-processing",
        "7.0, 1",
        "`modules/`",
        &[
            "section_7_0_privileges_are_known_before_sensitive_blocks_and_the_body",
            "section_7_0_what_needs_a_leave_counts_only_as_its_sender_signed_it",
            "section_7_0_a_signature_is_checked_before_the_body",
            "section_3_3_modules_act_in_the_order_of_their_stages",
        ],
    ),
    (
        "security-blocks-unknown",
        "7.0, 2",
        "`process.rs`, `relay.rs`",
        &["section_7_0_security_blocks_that_are_not_known_follow_the_same_rules"],
    ),
    (
        "untrusted-intermediaries",
        "7.2, 3",
        "`process.rs`",
        &["section_7_2_blocks_with_side_effects_are_for_trusted_intermediaries"],
    ),
];

/// The rows of the forwarding table (2.7.1, Table 3), and the tests of each.
const TABLE_3: &[(&str, &[&str])] = &[
    (
        "1: next, assumed, processed: not forwarded unless reinserted",
        &["table_3_row_1_next_assumed_and_processed_is_not_forwarded_unless_reinserted"],
    ),
    ("2: next, not processed: forwarded if relay", &["table_3_row_2_next_not_processed_is_forwarded_if_relay"]),
    (
        "3: user-defined, assumed, processed: not forwarded unless reinserted",
        &["table_3_row_3_user_defined_assumed_and_processed_is_not_forwarded_unless_reinserted"],
    ),
    (
        "4: user-defined, assumed, not processed: forwarded if relay",
        &["table_3_row_4_user_defined_assumed_but_not_processed_is_forwarded_if_relay"],
    ),
    (
        "4: user-defined, not assumed: forwarded",
        &["table_3_row_4_user_defined_not_assumed_is_forwarded_and_relay_has_no_effect"],
    ),
    (
        "5: ultimateReceiver: never an intermediary's",
        &["table_3_row_5_ultimate_receiver_is_never_assumed_by_an_intermediary"],
    ),
    ("6: none: always forwarded", &["table_3_row_6_none_is_always_relayed"]),
];

fn collect_source_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() { collect_source_files(&path, found) } else { found.push(path) }
    }
}

/// The sections that a test's name begins with: `section_2_1_and_5_2_3_what` has 2.1 and 5.2.3.
fn sections_in_test_name(test: &str) -> BTreeSet<String> {
    let mut sections = BTreeSet::new();
    let mut rest = test.strip_prefix("section_").unwrap_or_default();
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(rest.len());
        let section = rest[..end].trim_end_matches('_').replace('_', ".");
        if section.is_empty() {
            return sections;
        }
        sections.insert(section);
        let more = rest[end..].strip_prefix("and_").or_else(|| rest[end..].strip_prefix("to_"));
        rest = more.unwrap_or_default();
    }
}

/// Those of a row's sections (`2.1; 5.2.3, 4`, the number of the rule behind the comma) that none of its tests has in its name.
pub(super) fn sections_without_test(sections: &str, tests: &[&str]) -> Vec<String> {
    let all: BTreeSet<String> = tests.iter().flat_map(|test| sections_in_test_name(test)).collect();
    let of_row = sections.split(';').map(|section| section.split(',').next().unwrap_or_default().trim().to_owned());
    of_row.filter(|section| !all.contains(section)).collect()
}

#[test]
fn section_1_2_sections_without_a_test_are_detected() {
    assert_eq!(
        sections_in_test_name("section_2_1_and_5_2_3_to_7_what_and_8"),
        ["2.1", "5.2.3", "7"].map(str::to_owned).into()
    );
    assert!(sections_in_test_name("table_3_row_1").is_empty() && sections_in_test_name("section_").is_empty());
    assert_eq!(sections_without_test("2.1; 5.2, 3; 6.0", &["section_2_1_x", "section_5_2_1_y"]), ["5.2", "6.0"]);
    assert!(sections_without_test("2.6, 3", &["section_2_6_step_3_x"]).is_empty());
}

fn format_test_names(tests: &[&str]) -> String {
    tests.iter().map(|test| format!("`{test}`")).collect::<Vec<_>>().join(", ")
}

#[test]
fn section_1_2_every_requirement_has_a_test_and_a_table_row() {
    let mut files = Vec::new();
    collect_source_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/protocol/mesh"), &mut files);
    let mut there = BTreeSet::new();
    for text in files.iter().map(|file| fs::read_to_string(file).expect("UTF-8")) {
        let mut lines = text.lines().map(str::trim);
        while let Some(line) = lines.next() {
            // The name of a test stands below its attribute; proptest has its tests inside of a macro.
            if line == "#[test]" {
                let name = lines.next().and_then(|line| line.strip_prefix("fn ")?.split('(').next());
                there.extend(name.map(str::to_owned));
            }
        }
    }
    let listed = REQUIREMENTS.iter().flat_map(|(.., tests)| *tests).chain(TABLE_3.iter().flat_map(|(_, tests)| *tests));
    let missing: BTreeSet<&str> = listed.filter(|test| !there.contains(**test)).copied().collect();
    assert!(missing.is_empty(), "these tests are not there: {missing:#?}");
    let names: BTreeSet<&str> = REQUIREMENTS.iter().map(|(name, ..)| *name).collect();
    assert_eq!(names.len(), REQUIREMENTS.len(), "a name stands twice");
    let unnamed: Vec<String> = REQUIREMENTS
        .iter()
        .flat_map(|(name, section, _, tests)| {
            sections_without_test(section, tests).into_iter().map(move |s| format!("{name} {s}"))
        })
        .collect();
    assert!(unnamed.is_empty(), "no test of theirs names these sections: {unnamed:#?}");

    let rules = REQUIREMENTS.iter().map(|(name, section, place, tests)| {
        format!("//! | `{name}` | {section} | {place} | {} |", format_test_names(tests))
    });
    let rows = TABLE_3.iter().map(|(row, tests)| format!("//! | {row} | {} |", format_test_names(tests)));
    let wanted: Vec<String> = rules.chain(rows).collect();
    let docs = include_str!("mod.rs");
    let is_row = |line: &&str| {
        line.starts_with("//! | ") && line.contains(" | `") && (line.contains("section_") || line.contains("table_3"))
    };
    let found: Vec<&str> = docs.lines().filter(is_row).collect();
    assert!(found == wanted, "the tables of mod.rs must be:\n{}", wanted.join("\n"));
}
