//! Tests of `node.rs`.

use super::*;

#[test]
fn section_2_1_and_2_2_a_node_needs_a_uri_and_never_acts_in_none() {
    assert_eq!(Node::ultimate_receiver("node-17").map(|_| ()), Err(NodeError::InvalidUri("node-17".to_owned())));
    for kind in [NodeKind::UltimateReceiver, NodeKind::ForwardingIntermediary, NodeKind::ActiveIntermediary] {
        let node = Node::new("agent://node-17", kind).expect("a node");
        assert!(!node.acts_in_role(&Role::None));
        for none in ["none", "amp://role/none", "urn:agentic:mesh:role:none"] {
            assert_eq!(node.clone().with_role(none).map(|_| ()), Err(NodeError::Role(RoleError::NoneRole)), "{none}");
        }
    }
}

#[test]
fn section_2_2_every_node_acts_in_next_and_only_the_last_as_ultimate_receiver() {
    for (kind, ultimate) in [
        (NodeKind::UltimateReceiver, true),
        (NodeKind::ForwardingIntermediary, false),
        (NodeKind::ActiveIntermediary, false),
    ] {
        let node = Node::new("agent://node-17", kind).expect("a node");
        assert!(node.acts_in_role(&Role::Next));
        assert_eq!(node.acts_in_role(&Role::UltimateReceiver), ultimate);
        assert_eq!(node.acts_in_role(&Role::Intermediary), !ultimate);
        let other = if ultimate { "intermediary" } else { "ultimateReceiver" };
        assert_eq!(node.with_role(other).map(|_| ()), Err(NodeError::Role(RoleError::FixedByNodeKind(other))));
    }
}

#[test]
fn section_2_2_a_node_may_act_in_custom_roles() {
    let mut node = Node::forwarding_intermediary("agent://b").expect("a node");
    node.role_registry.register_token("cache", "amp://example.org/cache").expect("a token");
    assert!(node.clone().with_role("manager").is_err());
    let node = node.with_role("cache").and_then(|node| node.with_role("initialSender")).expect("roles");
    assert!(node.acts_in_role(&Role::Custom("amp://example.org/cache".to_owned())));
    assert!(node.acts_in_role(&Role::InitialSender));
}
