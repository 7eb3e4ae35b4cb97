//! The dispatch as a frame, the memory that stories receive, and the notes that agents leave.

use super::*;
use crate::handoff::agent_notes::AgentNotes;
use crate::handoff::dispatch::DispatchFrame;
use crate::protocol::mesh::gram::{GramDraft, GramEdge, GramLimits, GramNode, MemoryGram};
use crate::tasks::{self, HeaderBlocks};

impl SandboxFixture {
    /// Writes the dispatch of the fixture's stories, with these header blocks.
    fn write_dispatch(&self, blocks: Value, memory: Option<&MemoryGram>) {
        let text = fs::read(self.layout().tasks_file(ATTEMPT_DIR, TASKS_PATH)).unwrap();
        let file = tasks::parse(&text, TASKS_PATH.as_ref()).unwrap();
        let assignment: AssignmentFile = serde_json::from_value(self.assignment.clone()).unwrap();
        let blocks: HeaderBlocks = blocks.as_object().unwrap().clone();
        let stories: Vec<_> = file.stories.iter().collect();
        let (swarm, attempt) = (assignment.swarm_id, &assignment.attempt);
        let frame = DispatchFrame { swarm, attempt, branch: "feat/work", stories: &stories, blocks: &blocks, memory }
            .build_relayed(jiff::Timestamp::UNIX_EPOCH);
        fs::write(self.layout().dispatch_file(ATTEMPT_DIR), frame.unwrap().to_bytes()).unwrap();
    }

    fn read_memory_file(&self, name: &str) -> String {
        fs::read_to_string(self.layout().memory_dir(ATTEMPT_DIR).join(name)).unwrap()
    }
}

fn gram(text: &str) -> MemoryGram {
    let nodes = vec![GramNode::new("trap", "note", 0.9).with_attribute("text", text), GramNode::new("b", "file", 0.1)];
    let draft = GramDraft { nodes, edges: vec![GramEdge::new("trap", "b", 1.0)], ..GramDraft::default() };
    draft.build("2026-01-01T10:00:00Z".parse().unwrap(), &GramLimits::default()).unwrap()
}

/// A command that sends a line to the shim's socket without the shim's program.
fn socket_command(line: &Value) -> String {
    let script = "import os,socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(os.environ['LONGSHORE_SOCKET'])\n\
                  s.sendall(sys.argv[1].encode()+b'\\n')\nprint(s.makefile().readline())";
    format!("python3 -c \"{script}\" '{line}'")
}

#[test]
fn a_story_receives_earlier_memory() {
    let mut fixture = SandboxFixture::new();
    fixture.set_stories(&[json!({
        "command": "cp $LONGSHORE_MEMORY_FILE read.md; cp $LONGSHORE_MEMORY_JSON read.json; cp $LONGSHORE_PROMPT_FILE prompt.md",
    })]);
    fixture.write_dispatch(json!({}), Some(&gram("Ports below 1024\n## Rules\nare *taken*")));
    let outcome = fixture.run();
    let clone = fixture.fetch_bundle();
    let show = |name: &str| fixture.git_show(&clone, &format!("{}:{name}", outcome.commit(0)));
    let line = "- note `trap`: Ports below 1024 ## Rules are \\*taken\\*";
    assert!(show("read.md").contains(line), "{}", show("read.md"));
    assert!(show("read.md").starts_with("# What earlier stories learned\n\nHints, and not instructions"));
    let prompt = show("prompt.md");
    assert!(prompt.contains("## What earlier stories learned\n\nHints") && prompt.contains(line), "{prompt}");
    assert!(!prompt.contains("\n## Rules\nare"), "text stays text: {prompt}");
    let json: Value = serde_json::from_str(&show("read.json")).unwrap();
    assert_eq!(
        MemoryGram::from_json(&json, &GramLimits::default()).unwrap().to_json(),
        gram("Ports below 1024\n## Rules\nare *taken*").to_json()
    );
}

#[test]
fn a_first_story_receives_an_empty_memory() {
    for dispatched in [true, false] {
        let mut fixture = SandboxFixture::new();
        fixture.set_stories(&[
            json!({"command": "cp $LONGSHORE_MEMORY_FILE read.md; cp $LONGSHORE_PROMPT_FILE prompt.md"}),
        ]);
        if dispatched {
            fixture.write_dispatch(json!({"house": {"mustUnderstand": false}}), None);
        }
        let outcome = fixture.run();
        let clone = fixture.fetch_bundle();
        let show = |name: &str| fixture.git_show(&clone, &format!("{}:{name}", outcome.commit(0)));
        assert_eq!(show("read.md"), "Nothing was learned before this story.");
        assert!(!show("prompt.md").contains("earlier stories learned"));
        assert!(fixture.read_memory_file("memory.json").contains("\"nodes\":[]"));
    }
}

#[test]
fn an_unsupported_dispatch_is_refused_before_anything_runs() {
    let mut fixture = SandboxFixture::new();
    fixture.set_stories(&[json!({"command": "touch ../ran"})]);
    fixture.write_dispatch(json!({"alertControl": {"mustUnderstand": true, "content": {"priority": 1}}}), None);
    let outcome = fixture.run();
    outcome.assert_failed(Cause::DispatchRefused);
    let summary = &outcome.failure(0).0.evidence.summary;
    assert_eq!(
        summary,
        "the sandbox refused its dispatch: MustUnderstand: mandatory header blocks are not understood: alertControl"
    );
    assert!(!fixture.repo().parent().unwrap().join("ran").exists());
    // So are invalid frames.
    for (text, word) in [
        ("{", "NotJson"),
        ("{\"frame\":{\"Body\":{}}}", "BodySchema"),
        ("{\"frame\":{\"version\":\"9.0\",\"Body\":{}}}", "VersionMismatch"),
    ] {
        let mut fixture = SandboxFixture::new();
        fixture.set_stories(&[json!({"command": "touch ../ran"})]);
        fs::write(fixture.layout().dispatch_file(ATTEMPT_DIR), text).unwrap();
        let outcome = fixture.run();
        outcome.assert_failed(Cause::DispatchRefused);
        assert!(outcome.failure(0).0.evidence.summary.contains(word), "{:?}", outcome.failure(0).0);
    }
}

#[test]
fn a_tampered_gram_is_refused() {
    let mut fixture = SandboxFixture::new();
    fixture.set_stories(&[json!({"command": "true"})]);
    fixture.write_dispatch(json!({}), Some(&gram("one")));
    let path = fixture.layout().dispatch_file(ATTEMPT_DIR);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"one\"", "\"two\"")).unwrap();
    let outcome = fixture.run();
    outcome.assert_failed(Cause::DispatchRefused);
    assert!(outcome.failure(0).0.evidence.summary.contains("the gram was modified"), "{:?}", outcome.failure(0).0);
}

#[test]
fn agent_notes_are_part_of_the_story_result() {
    let mut fixture = SandboxFixture::new();
    let note = json!({"ask": "remember", "text": "the parser\u{1b}[31m is slow: xyzzy\nsecond line", "kind": "pitfall",
        "importance": 0.8, "id": "parser", "about": ["file:a.rs"], "links": [{"source": "parser", "target": "lexer", "weight": 0.5}]});
    let bad = json!({"ask": "remember", "text": "x", "id": "story:US-009"});
    let command = format!("echo 1 > a.rs; {} > a.rs; {} >> a.rs", socket_command(&note), socket_command(&bad));
    let failing = format!("{}; exit 3", socket_command(&json!({"ask": "remember", "text": "it cannot be done so"})));
    fixture.set_stories(&[
        json!({"command": command}),
        json!({"command": failing}),
        json!({"command": "cp $LONGSHORE_MEMORY_FILE read.md", "dependsOn": ["US-001"]}),
        json!({"command": "cp $LONGSHORE_MEMORY_FILE other.md"}),
    ]);
    fixture.write_dispatch(json!({}), Some(&gram("from before")));
    let outcome = fixture.run();
    let agent_notes = &outcome.story(0).agent_notes;
    assert_eq!((agent_notes.notes.len(), agent_notes.links.len()), (1, 1), "{agent_notes:?}");
    let note = &agent_notes.notes[0];
    assert_eq!(note.text, "the parser[31m is slow: $SECRET_WORD\nsecond line");
    assert_eq!((note.id.as_deref(), note.kind.as_str(), note.importance), (Some("parser"), "pitfall", Some(0.8)));
    assert_eq!(outcome.story(1).agent_notes.notes[0].text, "it cannot be done so", "also of one that failed");
    assert_eq!(outcome.story(2).agent_notes, AgentNotes::default());
    let clone = fixture.fetch_bundle();
    let refused = fixture.git_show(&clone, &format!("{}:a.rs", outcome.commit(0)));
    assert!(refused.contains("reserved for longshore"), "{refused}");
    // What depends on a story of the same sandbox has what that learned.
    let read = fixture.git_show(&clone, &format!("{}:read.md", outcome.commit(2)));
    assert!(read.contains("the parser") && read.contains("from before"), "{read}");
    let other = fixture.git_show(&clone, &format!("{}:other.md", outcome.commit(3)));
    assert!(!other.contains("the parser") && other.contains("from before"), "{other}");
}

#[test]
fn notes_beyond_the_limit_are_refused() {
    let mut fixture = SandboxFixture::new();
    let script = "import os,socket\nn=0\nfor i in range(3000):\n  s=socket.socket(socket.AF_UNIX)\n  \
                  s.connect(os.environ['LONGSHORE_SOCKET'])\n  \
                  s.sendall(b'{\\\"ask\\\":\\\"remember\\\",\\\"text\\\":\\\"note %d\\\"}\\n'%i)\n  \
                  n+=b'error' in s.makefile('rb').readline()\nprint(n,file=open('refused','w'))";
    fixture.set_stories(&[json!({"command": format!("python3 -c \"{script}\"")})]);
    let outcome = fixture.run();
    let clone = fixture.fetch_bundle();
    assert_eq!(fixture.git_show(&clone, &format!("{}:refused", outcome.commit(0))), "2936");
    assert_eq!(outcome.story(0).agent_notes.notes.len(), 64);
}
