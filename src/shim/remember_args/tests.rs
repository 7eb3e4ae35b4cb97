//! Arguments of `acp-shim remember`.

use super::*;

fn parsed(line: &str) -> Result<AgentRequest, String> {
    parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
}

#[test]
fn parses_a_note_with_every_option() {
    let line =
        "the parser is slow --type pitfall --importance 0.8 --id parser --about file:src/p.rs --edge parser:lexer:0.5";
    let Ok(AgentRequest::Remember { text, kind, importance, id, about, links }) = parsed(line) else {
        panic!("{line}")
    };
    assert_eq!((text.as_str(), kind.as_deref(), importance), ("the parser is slow", Some("pitfall"), Some(0.8)));
    assert_eq!((id.as_deref(), about), (Some("parser"), vec!["file:src/p.rs".to_owned()]));
    assert_eq!(links, [NoteLink { source: "parser".into(), target: "lexer".into(), weight: 0.5 }]);
}

#[test]
fn parses_edges_and_file_nodes() {
    let edge = |text: &str| parse_edge(text).map(|link| (link.source, link.target, link.weight));
    let is = |source: &str, target: &str, weight| Ok((source.to_owned(), target.to_owned(), weight));
    assert_eq!(edge("a:b"), is("a", "b", 1.0));
    assert_eq!(edge("file:src/a.rs:story:US-001:0.25"), is("file:src/a.rs", "story:US-001", 0.25));
    assert_eq!(edge("Cargo.toml:b"), is("file:Cargo.toml", "b", 1.0), "a file that is there");
    for wrong in ["a", "a:", ":b", "a:b:c", "a:b:2", "a:b:0.5:1", "file:a"] {
        assert!(edge(wrong).is_err(), "{wrong}");
    }
    assert_eq!(to_node_id("./Cargo.toml"), "file:Cargo.toml");
}

#[test]
fn invalid_arguments_are_rejected() {
    for wrong in ["", "--type", "x --importance 2", "x --all", "--id a", "--type note --edge a:b"] {
        assert!(parsed(wrong).is_err(), "{wrong}");
    }
    assert!(parsed(&"x".repeat(MAX_TEXT_CHARS + 1)).is_err());
    assert!(parsed("--edge a:b").is_ok());
    let Ok(AgentRequest::Remember { text, .. }) = parsed("-- --type is a flag") else { panic!("words") };
    assert_eq!(text, "--type is a flag");
}
