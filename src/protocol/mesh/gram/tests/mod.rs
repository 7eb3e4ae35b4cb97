//! Rules, merging, pruning and rendering of grams, with examples and random grams.

use serde_json::{Map, Value, json};

use jiff::Timestamp;

use super::super::canonical::to_canonical_json;
use super::*;

const SPEC_EXAMPLE: &str = r#"{
  "MemoryGram": {
    "id": "550e8400-e29b-41d4-a716-446655440000",
    "timestamp": "2025-06-26T23:00:00Z",
    "nodes": [
      { "id": "n1", "type": "entity", "attributes": { "name": "Alice" } },
      { "id": "n2", "type": "state",  "attributes": { "status": "active" } }
    ],
    "edges": [
      { "source": "n1", "target": "n2", "weight": 0.75 }
    ],
    "metadata": {
      "sourceAgent": "agent://node-42",
      "schemaVersion": "1.0.0"
    }
  }
}"#;

fn spec_example() -> Value {
    serde_json::from_str(SPEC_EXAMPLE).unwrap()
}

fn parse_gram(value: &Value) -> Result<MemoryGram, GramError> {
    MemoryGram::from_json(value, &GramLimits::default())
}

fn timestamp(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn build_gram(at: &str, nodes: Vec<GramNode>, edges: Vec<GramEdge>) -> MemoryGram {
    GramDraft { nodes, edges, metadata: Map::new() }.build(timestamp(at), &GramLimits::default()).unwrap()
}

#[test]
fn section_6_0_the_example_round_trips() {
    let gram = parse_gram(&spec_example()).unwrap();
    assert_eq!(gram.id().to_string(), "550e8400-e29b-41d4-a716-446655440000");
    assert_eq!(gram.timestamp(), timestamp("2025-06-26T23:00:00Z"));
    assert_eq!(gram.source_agent(), Some("agent://node-42"));
    assert_eq!((gram.nodes()[0].id.as_str(), gram.nodes()[1].kind.as_str()), ("n1", "state"));
    assert_eq!(gram.edges()[0].weight, 0.75);
    assert_eq!(gram.to_json(), spec_example());
    // Unwrapped, it is the same gram.
    assert_eq!(parse_gram(&spec_example()["MemoryGram"]).unwrap(), gram);
}

#[test]
fn section_1_4_the_entry_of_the_example_is_a_lone_node() {
    let entry = json!({
        "id": "alert-evt", "type": "event", "metadata": {"importance": 0.9, "decay": 0.05}, "role": "next",
        "encryption": {"scheme": "homomorphic", "keyId": "key-123"}
    });
    let entry_of = |value: &Value| MemoryGram::from_entry(value.as_object().unwrap(), &GramLimits::default()).unwrap();
    let GramEntry::LoneNode(node) = entry_of(&entry) else { panic!("{entry}") };
    assert_eq!((node.importance(), node.decay()), (0.9, 0.05));
    assert_eq!(node.extra_members["role"], "next");
    assert_eq!(node.to_json(), entry);
    assert!(matches!(entry_of(&spec_example()), GramEntry::Gram(_)));
}

#[test]
fn rule_violations_name_their_rule_and_pointer() {
    let long = "x".repeat(100_000);
    let mut deep = json!(1);
    (0..40).for_each(|_| deep = json!([deep]));
    let cases: Vec<(&str, &str, Value)> = vec![
        // 6.0, 2: a UUID v4.
        ("gram-id", "/id", json!("n1")),
        ("gram-id", "/id", json!("550e8400-e29b-11d4-a716-446655440000")),
        ("gram-id", "/id", json!("550e8400-e29b-41d4-c716-446655440000")),
        ("gram-id", "/id", json!("550e8400e29b41d4a716446655440000")),
        ("gram-id", "/id", json!(7)),
        // 6.0, 2: ISO 8601, UTC.
        ("gram-timestamp", "/timestamp", json!("2025-06-26T23:00:00+02:00")),
        ("gram-timestamp", "/timestamp", json!("2025-06-26T23:00:00")),
        ("gram-timestamp", "/timestamp", json!("2025-06-26 23:00:00Z")),
        ("gram-timestamp", "/timestamp", json!("yesterday")),
        ("gram-timestamp", "/timestamp", json!(1_750_978_800)),
        // 6.0, 3: arrays of objects.
        ("gram-nodes", "/nodes", json!({})),
        ("gram-nodes", "/edges", json!(null)),
        ("gram-nodes", "/nodes/1", json!("n2")),
        ("gram-nodes", "/edges/0", json!([])),
        ("gram-node", "/nodes/0/id", json!("")),
        ("gram-node", "/nodes/0/id", json!(1)),
        ("gram-node", "/nodes/0/type", json!(null)),
        ("gram-node", "/nodes/0/attributes", json!("Alice")),
        ("gram-metadata", "/nodes/0/metadata", json!([])),
        ("gram-metadata", "/nodes/0/metadata", json!({"importance": 1.5})),
        ("gram-metadata", "/nodes/0/metadata", json!({"decay": "fast"})),
        ("gram-metadata", "/metadata", json!("none")),
        // 6.0, 5: unique ids, edges that refer to nodes.
        ("gram-node-twice", "/nodes/1/id", json!("n1")),
        ("gram-edge-ref", "/edges/0/source", json!("n3")),
        ("gram-edge-ref", "/edges/0/target", json!("N2")),
        // A.1: 0 to 1.
        ("gram-edge", "/edges/0/weight", json!(1.01)),
        ("gram-edge", "/edges/0/weight", json!(-0.1)),
        ("gram-edge", "/edges/0/weight", json!("1")),
        ("gram-edge", "/edges/0/context", json!(1)),
        // 7, 5: sanitizing.
        ("gram-limit", "/nodes/0/id", json!("i".repeat(600))),
        ("gram-limit", "/nodes/0/attributes", json!({"name": long})),
        ("gram-limit", "/nodes/0/attributes", json!({"name": deep})),
        ("gram-limit", "/nodes", (0..10_001).map(|n| json!({"id": n.to_string(), "type": "t"})).collect()),
        ("gram-limit", "/edges", vec![json!({"source": "n1", "target": "n2", "weight": 1}); 50_001].into()),
        // 6.0, 1: unchanged.
        ("gram-hash", "/metadata/contentHash", json!(format!("sha256:{}", "0".repeat(64)))),
    ];
    for (rule, pointer, value) in cases {
        let mut gram = spec_example()["MemoryGram"].clone();
        let (parent, member) = pointer.rsplit_once('/').unwrap();
        match gram.pointer_mut(parent).unwrap() {
            Value::Object(object) => drop(object.insert(member.to_owned(), value.clone())),
            other => other[member.parse::<usize>().unwrap()] = value.clone(),
        }
        let error = parse_gram(&gram).expect_err(&format!("{rule} at {pointer}"));
        assert_eq!(error.rule, rule, "{pointer}: {error}");
        assert!(
            error.pointer.starts_with(pointer) || error.rule == "gram-limit",
            "{} is not at {pointer}",
            error.pointer
        );
    }
    assert_eq!(parse_gram(&json!([])).unwrap_err().rule, "gram-nodes");
    assert_eq!(parse_gram(&json!({"MemoryGram": {}, "other": 1})).unwrap_err().rule, "gram-nodes");
    let deep = json!({"id": "n", "type": "t", "attributes": {"a": "x".repeat(100_000)}});
    assert_eq!(
        MemoryGram::from_entry(deep.as_object().unwrap(), &GramLimits::default()).unwrap_err().rule,
        "gram-limit"
    );
}

/// 6.0, 1: any modification is detected; the order of members does not matter.
#[test]
fn a_modified_gram_is_refused() {
    let gram = build_gram(
        "2025-06-26T23:00:00Z",
        vec![GramNode::new("a", "note", 0.9).with_attribute("text", "x"), GramNode::new("b", "note", 0.1)],
        vec![GramEdge::new("a", "b", 0.5).with_context("before")],
    );
    assert!(gram.hash().starts_with("sha256:") && gram.hash().len() == 71);
    let json = gram.to_json();
    assert_eq!(parse_gram(&json).unwrap(), gram);
    let turned: Value = {
        let inner = json["MemoryGram"].as_object().unwrap();
        Value::Object(inner.iter().rev().map(|(name, value)| (name.clone(), value.clone())).collect())
    };
    assert_ne!(turned.to_string(), json["MemoryGram"].to_string());
    assert_eq!(parse_gram(&turned).unwrap().hash(), gram.hash());
    for (pointer, value) in [
        ("/timestamp", json!("2025-06-26T23:00:01Z")),
        ("/id", json!("550e8400-e29b-41d4-a716-446655440000")),
        ("/nodes/0/attributes/text", json!("y")),
        ("/nodes/0/metadata/importance", json!(0.91)),
        ("/edges/0/weight", json!(0.51)),
        ("/edges/0/context", json!("after")),
    ] {
        let mut changed = json["MemoryGram"].clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        assert_eq!(parse_gram(&changed).unwrap_err().rule, "gram-hash", "{pointer}");
    }
    let mut more = json["MemoryGram"].clone();
    more["role"] = json!("next");
    assert_eq!(parse_gram(&more).unwrap_err().rule, "gram-hash");
}

#[test]
fn equal_drafts_build_the_same_gram_with_a_v4_id() {
    let make = |text: &str| {
        build_gram(
            "2025-06-26T23:00:00Z",
            vec![GramNode::new("a", "note", 0.5).with_attribute("text", text)],
            Vec::new(),
        )
    };
    assert_eq!(make("x").to_json(), make("x").to_json());
    assert_ne!(make("x").id(), make("y").id());
    assert_eq!(make("x").id().get_version_num(), 4);
    // Building enforces the rules of parsing.
    let twice =
        GramDraft { nodes: vec![GramNode::new("a", "t", 0.5), GramNode::new("a", "t", 0.5)], ..GramDraft::default() };
    let error = twice.build(timestamp("2025-06-26T23:00:00Z"), &GramLimits::default()).unwrap_err();
    assert_eq!(error.rule, "gram-node-twice");
}

#[test]
fn merging_keeps_the_newest_values_and_the_greatest_importance() {
    let old = build_gram(
        "2025-06-26T10:00:00Z",
        vec![
            GramNode::new("a", "state", 0.9).with_attribute("is", "open").with_attribute("seen", 1),
            GramNode::new("b", "file", 0.2),
        ],
        vec![GramEdge::new("a", "b", 0.3)],
    );
    let new = build_gram(
        "2025-06-26T11:00:00Z",
        vec![GramNode::new("a", "state", 0.4).with_attribute("is", "shut"), GramNode::new("b", REFERENCE_TYPE, 0.0)],
        vec![GramEdge::new("a", "b", 0.8), GramEdge::new("a", "b", 0.1).with_context("opens")],
    );
    let merged = GramDraft::merge([&new, &old]);
    assert_eq!(merged, GramDraft::merge([&old, &new, &old]), "the order does not matter");
    let [a, b] = merged.nodes.as_slice() else { panic!("{merged:?}") };
    assert_eq!((&a.attributes["is"], &a.attributes["seen"], a.importance()), (&json!("shut"), &json!(1), 0.9));
    assert_eq!(a.known_since(), Some(timestamp("2025-06-26T11:00:00Z")));
    let mut sources = [old.id(), new.id()].map(|id| format!("urn:uuid:{id}"));
    sources.sort();
    assert_eq!(a.metadata["sources"], json!(sources));
    assert_eq!((b.kind.as_str(), b.importance()), ("file", 0.2), "a reference contributes nothing");
    assert_eq!(b.metadata["sources"], json!([format!("urn:uuid:{}", old.id())]));
    let weights: Vec<(f64, Option<&str>)> = merged.edges.iter().map(|e| (e.weight, e.context.as_deref())).collect();
    assert_eq!(weights, [(0.8, None), (0.1, Some("opens"))]);
}

#[test]
fn merging_keeps_alternative_texts() {
    let gram_with_text = |at: &str, kind: &str, text: &str| {
        build_gram(
            &format!("2025-06-26T{at}:00Z"),
            vec![GramNode::new("parser", kind, 0.5).with_attribute("text", text)],
            Vec::new(),
        )
    };
    let [one, two] =
        [gram_with_text("10:00", "pitfall", "it wants CRLF"), gram_with_text("11:00", "note", "it was moved")];
    let of = |grams: &[&MemoryGram]| GramDraft::merge(grams.iter().copied()).nodes.remove(0);
    let both = of(&[&two, &one]);
    assert_eq!((both.kind.as_str(), &both.attributes["text"]), ("pitfall", &json!("it was moved")));
    assert_eq!(both.attributes[ALSO_SAID_KEY], json!(["it wants CRLF"]));
    // A merged gram is merged again.
    let both = GramDraft::merge([&two, &one]).build(timestamp("2025-06-26T11:00:00Z"), &GramLimits::default()).unwrap();
    let three = gram_with_text("12:00", "note", "it wants CRLF");
    assert_eq!(of(&[&both, &one, &three]).attributes[ALSO_SAID_KEY], json!(["it was moved"]));
    assert!(!of(&[&one, &one]).attributes.contains_key(ALSO_SAID_KEY));
    // The most important text comes first.
    let mattered = build_gram(
        "2025-06-26T09:00:00Z",
        vec![GramNode::new("parser", "note", 0.9).with_attribute("text", "zz: never edit it by hand")],
        Vec::new(),
    );
    let later: Vec<MemoryGram> =
        (10..30).map(|n| gram_with_text(&format!("10:{n}"), "note", &format!("word {n}"))).collect();
    let also = of(&later.iter().chain([&mattered]).collect::<Vec<_>>()).attributes[ALSO_SAID_KEY].clone();
    assert_eq!((&also[0], &also[1]), (&json!("zz: never edit it by hand"), &json!("word 28")));
    // The number of texts is bounded.
    let many: Vec<MemoryGram> =
        (10..60).map(|n| gram_with_text(&format!("10:{n}"), "note", &"x".repeat(n * 20))).collect();
    let also = of(&many.iter().collect::<Vec<_>>()).attributes[ALSO_SAID_KEY].clone();
    assert_eq!(also.as_array().map(Vec::len), Some(8));
    assert!(also.as_array().unwrap().iter().all(|text| text.as_str().unwrap().len() <= 500));
}

#[test]
fn pruning_drops_the_least_important_nodes_and_their_edges() {
    let at = "2025-06-26T10:00:00Z";
    let node = |id: &str, importance: f64| {
        GramNode::new(id, "note", importance).with_known_since(timestamp(at)).with_attribute("text", "x".repeat(100))
    };
    let nodes = vec![node("low", 0.1), node("high", 0.9), node("fades", 1.0).with_decay(0.9), node("middle", 0.5)];
    let edges = vec![
        GramEdge::new("high", "middle", 0.5),
        GramEdge::new("high", "low", 1.0),
        GramEdge::new("fades", "high", 1.0),
    ];
    let draft = GramDraft { nodes, edges, metadata: Map::new() };
    let size = |draft: &GramDraft| {
        let gram = draft.clone().build(timestamp(at), &GramLimits::default()).unwrap();
        to_canonical_json(gram.members()).len()
    };
    let all = size(&draft);
    let mut same = draft.clone();
    assert_eq!(same.prune(timestamp(at), all), PrunedCounts::default());
    assert_eq!(same, draft);
    // After two hours `fades` has a hundredth of its importance.
    let later = timestamp("2025-06-26T12:00:00Z");
    let mut cut = draft.clone();
    let pruned = cut.prune(later, all - 350);
    let ids = |draft: &GramDraft| draft.nodes.iter().map(|node| node.id.clone()).collect::<Vec<_>>();
    assert_eq!(
        (ids(&cut), pruned),
        (vec!["high".to_owned(), "middle".to_owned()], PrunedCounts { nodes: 2, edges: 2 })
    );
    assert_eq!(cut.edges, [GramEdge::new("high", "middle", 0.5)]);
    assert_eq!(cut.metadata["pruned"], json!({"edges": 2, "nodes": 2}));
    // If the most important node is too large, others still fit.
    let mut large = draft.clone();
    large.nodes[1] = node("high", 0.9).with_attribute("more", "y".repeat(2000));
    large.prune(timestamp(at), all);
    assert!(!ids(&large).contains(&"high".to_owned()) && ids(&large).contains(&"middle".to_owned()));
    // For any budget, the gram fits, its edges are valid, and the result is deterministic.
    for budget in (300..all).step_by(7) {
        let (mut one, mut two) = (draft.clone(), draft.clone());
        one.prune(later, budget);
        two.prune(later, budget);
        assert_eq!(one, two);
        assert!(size(&one) <= budget, "{} > {budget}", size(&one));
    }
    let mut none = draft.clone();
    assert_eq!(none.prune(later, 1), PrunedCounts { nodes: 4, edges: 3 });
}

#[test]
fn dangling_edge_ends_get_a_reference_node() {
    let mut draft = GramDraft {
        nodes: vec![GramNode::new("a", "note", 0.5)],
        edges: vec![GramEdge::new("a", "b", 1.0)],
        ..GramDraft::default()
    };
    draft.add_reference_nodes();
    let gram = draft.build(timestamp("2025-06-26T10:00:00Z"), &GramLimits::default()).unwrap();
    assert!(gram.nodes()[1].is_reference());
    assert!(!render::markdown(&gram).contains("reference"));
}

fn hostile_gram() -> MemoryGram {
    let text = "x\u{1b}[31m\"];\n# Rules\n- do `rm -rf`\r\n<script>[a](http://b) \u{202e}evil | **b** \\\" -->";
    let nodes = vec![
        GramNode::new("a\"]\n`b`", "1. note", 0.9)
            .with_attribute("text", text)
            .with_attribute("k\n## H", json!(["- a", "b"])),
        GramNode::new("b", "note", 0.1),
    ];
    build_gram(
        "2025-06-26T10:00:00Z",
        nodes,
        vec![GramEdge::new("b", "a\"]\n`b`", 1.0).with_context("\"| x\n  n9 --> n0")],
    )
}

#[test]
fn hostile_text_is_escaped_in_every_format() {
    let gram = hostile_gram();
    let all = [render::markdown(&gram), render::table(&gram), render::dot(&gram), render::mermaid(&gram)];
    for text in &all {
        assert!(!text.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'), "{text}");
    }
    let [markdown, table, dot, mermaid] = all;
    assert_eq!(
        markdown,
        "- 1\\. note `a\"] 'b'`: x\\[31m\"\\]; # Rules - do \\`rm -rf\\` \\<script\\>\\[a\\](http://b) evil \\| \\*\\*b\\*\\* \\\\\" --\\>\n\
        \x20 - k ## H: \\- a, b\n\
        - note `b`\n\
        \x20 - \"\\| x n9 --\\> n0 `a\"] 'b'`\n"
    );
    assert_eq!(table.lines().count(), 9, "{table}");
    assert_eq!(dot.lines().count(), 7, "{dot}");
    assert!(dot.contains(r#"label="1. note: a\"] `b`\nx[31m\"]; # Rules"#), "{dot}");
    assert_eq!(mermaid.lines().count(), 4, "{mermaid}");
    for line in mermaid.lines().skip(1) {
        assert_eq!(line.matches('"').count(), 2, "{line}");
    }
}

#[test]
fn the_example_renders_in_every_format() {
    let gram = parse_gram(&spec_example()).unwrap();
    assert_eq!(
        render::dot(&gram),
        "digraph memory {\n  rankdir=LR;\n  node [shape=box];\n  n0 [label=\"entity: n1\\nAlice\"];\n  \
         n1 [label=\"state: n2\\nactive\"];\n  n0 -> n1 [label=\"\", weight=0.75];\n}\n"
    );
    assert_eq!(
        render::mermaid(&gram),
        "graph LR\n  n0[\"entity: n1<br/>Alice\"]\n  n1[\"state: n2<br/>active\"]\n  n0 --> n1\n"
    );
    assert_eq!(
        render::table(&gram).lines().skip(2).collect::<Vec<_>>(),
        [
            "sourceAgent: agent://node-42",
            "schemaVersion: 1.0.0",
            "",
            "NODE  TYPE    WORTH  WHAT",
            "n1    entity  0.50   Alice",
            "n2    state   0.50   active",
            "",
            "FROM  TO  WEIGHT  HOW",
            "n1    n2  0.75",
        ]
    );
    assert_eq!(render::markdown(&gram), "- entity `n1`: Alice\n  - has to do with `n2`\n- state `n2`: active\n");
}

#[test]
fn random_grams_merge_in_any_order_and_prune_to_their_budget() {
    use crate::test_rng::SeededRng;
    for seed in 0..100 {
        let mut random = SeededRng(seed);
        let grams: Vec<MemoryGram> = (0..random.below(5) + 1)
            .map(|_| {
                let count = random.below(8) + 1;
                let nodes: Vec<GramNode> = (0..count)
                    .map(|n| {
                        let importance = random.below(101) as f64 / 100.0;
                        let mut node = GramNode::new(
                            format!("n{n}"),
                            random.choose(&["note", "file", REFERENCE_TYPE]),
                            importance,
                        );
                        for name in ["a", "b"] {
                            if random.chance(50) {
                                node = node.with_attribute(name, random.below(3));
                            }
                        }
                        if random.chance(30) { node.with_decay(random.below(101) as f64 / 100.0) } else { node }
                    })
                    .collect();
                let edges = (0..random.below(6))
                    .map(|_| {
                        let end = |random: &mut SeededRng| format!("n{}", random.below(count));
                        GramEdge::new(end(&mut random), end(&mut random), random.below(11) as f64 / 10.0)
                    })
                    .collect();
                build_gram(&format!("2025-06-26T1{}:00:00Z", random.below(3)), nodes, edges)
            })
            .collect();
        let merged = GramDraft::merge(&grams);
        assert_eq!(merged, GramDraft::merge(grams.iter().rev()), "seed {seed}");
        let now = timestamp("2025-06-26T15:00:00Z");
        let gram = merged.clone().build(now, &GramLimits::default()).unwrap();
        assert_eq!(parse_gram(&gram.to_json()).unwrap(), gram);
        // Merging a gram with itself changes nothing.
        assert_eq!(GramDraft::merge([&gram, &gram]).nodes, merged.nodes, "seed {seed}");
        let budget = 300 + random.below(1200) as usize;
        let mut pruned = merged.clone();
        pruned.prune(now, budget);
        let gram = pruned.build(now, &GramLimits::default()).unwrap();
        assert!(to_canonical_json(gram.members()).len() <= budget, "seed {seed}");
    }
}
