//! Checks of the binding's specification in the documentation of `http/mod.rs`.

use super::super::syntax::is_iri;
use super::super::tests::{sections_without_test, table_rows};
use super::binding::BINDING_FEATURES;

#[test]
fn section_3_2_and_4_and_4_2_the_binding_specification_is_complete() {
    let text = include_str!("../mod.rs");
    let wanted = [
        // 4
        "# Feature support",
        "# Transport mapping",
        "# Contract enforcement",
        "# Failure handling",
        "# Implementation requirements",
        // 4.2
        "# Message exchange patterns",
        "# State (4.2) and dependencies of features",
        "streaming semantics",
        "`application/amp+json`",
        // 3.2
        "| URI |",
        "| lifecycle |",
        "| causal links |",
        "| termination |",
        "| additional messages |",
        "| faults |",
        // 7.3
        "# Security",
        "**Replay.**",
        "**Interactions.**",
        "**Ports.**",
    ];
    for wanted in wanted {
        assert!(text.lines().any(|line| line.starts_with("//!") && line.contains(wanted)), "{wanted}");
    }
    for feature in BINDING_FEATURES {
        assert!(is_iri(feature), "{feature}");
    }
}

#[test]
fn section_1_2_every_rule_of_the_binding_has_a_test() {
    let sources = [
        include_str!("../status.rs"),
        include_str!("../../../../../tests/it/offline/mesh/http.rs"),
        include_str!("../../../../../tests/it/offline/mesh/line.rs"),
        include_str!("../../../../../tests/it/offline/mesh/table.rs"),
        include_str!("mod.rs"),
    ];
    let rows = table_rows(include_str!("../mod.rs"));
    assert_eq!(rows.len(), 10);
    for row in rows {
        for name in &row.tests {
            assert!(sources.iter().any(|source| source.contains(&format!("fn {name}()"))), "{name}");
        }
        let uncovered = sections_without_test(row.sections, &row.tests);
        assert!(uncovered.is_empty(), "{}: no test names {uncovered:?}", row.name);
    }
}
