//! Tests of `role.rs`.

use super::*;

#[test]
fn section_2_1_and_2_2_tokens_and_both_iri_families_resolve_to_one_role() {
    let registry = RoleRegistry::default();
    for (token, role) in CORE_TOKENS {
        for text in [token.to_owned(), format!("{URN_PREFIX}{token}"), format!("{AMP_PREFIX}{token}")] {
            assert_eq!(registry.resolve(&text), Some(role.clone()), "{text}");
        }
        assert_eq!(role.token(), token);
    }
    let manager = registry.resolve("amp://role/manager");
    assert!(manager.is_some());
    assert_eq!(manager, registry.resolve("urn:agentic:mesh:role:manager"));
}

#[test]
fn section_2_1_tokens_are_case_sensitive() {
    for text in ["Next", "NEXT", "ultimatereceiver", "urn:agentic:mesh:role:Next"] {
        assert_ne!(RoleRegistry::default().resolve_or_ultimate_receiver(text), Role::Next, "{text}");
    }
}

#[test]
fn section_2_1_a_token_maps_to_one_iri() {
    let mut registry = RoleRegistry::default();
    assert_eq!(registry.register_token("cache", "amp://example.org/cache"), Ok(()));
    assert_eq!(registry.register_token("cache", "amp://example.org/cache"), Ok(()));
    assert_eq!(registry.resolve("cache"), Some(Role::Custom("amp://example.org/cache".to_owned())));
    assert_eq!(
        registry.resolve_or_ultimate_receiver("amp://example.org/cache"),
        registry.resolve_or_ultimate_receiver("cache")
    );
    for (token, iri) in
        [("cache", "amp://example.org/other"), ("next", "amp://x/y"), ("", "amp://x/y"), ("a:b", "amp://x/y")]
    {
        assert_eq!(registry.register_token(token, iri), Err(RoleError::InvalidToken(token.to_owned())), "{token}");
    }
    for iri in ["cache", "amp://role/none", "amp://role/", "no iri"] {
        assert_eq!(registry.register_token("other", iri), Err(RoleError::UnknownRole(iri.to_owned())), "{iri}");
    }
}

#[test]
fn section_5_2_2_an_unrecognised_role_resolves_to_ultimate_receiver() {
    for text in ["manager", "", "amp://role/", "two words", "http://a b"] {
        assert_eq!(RoleRegistry::default().resolve(text), None, "{text}");
        assert_eq!(RoleRegistry::default().resolve_or_ultimate_receiver(text), Role::UltimateReceiver, "{text}");
    }
    let iri = "amp://example.org/finance/accountManager";
    assert_eq!(RoleRegistry::default().resolve_or_ultimate_receiver(iri), Role::Custom(iri.to_owned()));
}
