//! How errors are printed, and which exit status they give.

use std::io;

use super::*;
use crate::engine::EngineError;

#[test]
fn error_causes_and_hint_are_printed_on_separate_lines() {
    let error = EngineError::Unreachable {
        endpoint: "unix:///var/run/docker.sock".to_owned(),
        source: Box::new(io::Error::new(io::ErrorKind::NotFound, "no such file")),
    };
    let shown = CommandError::from(error);
    let text = shown.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "error: no engine answers at `unix:///var/run/docker.sock`");
    assert_eq!(lines[1], "  caused by: no such file");
    assert!(lines[2].starts_with("  hint: start Docker"), "{text}");
    assert_eq!(shown.exit_status(), ExitStatus::Machinery);
}

#[test]
fn invalid_input_takes_precedence_for_the_exit_code() {
    let both = CommandError::combine(vec![
        CommandError::machinery("no engine"),
        CommandError::input("no file").with_hint("make one"),
    ]);
    let both = both.expect_err("two problems");
    assert_eq!(both.exit_status(), ExitStatus::InvalidInput);
    assert_eq!(both.to_string(), "error: no engine\nerror: no file\n  hint: make one\n");
    assert!(CommandError::combine(Vec::new()).is_ok());
}

#[test]
fn broken_pipe_prints_nothing_and_exits_0() {
    let shown = CommandError::from(io::Error::from(io::ErrorKind::BrokenPipe));
    assert!(shown.is_output_closed());
    assert_eq!((shown.exit_status(), shown.to_string().as_str()), (ExitStatus::Success, ""));
    let full = CommandError::from(io::Error::from(io::ErrorKind::StorageFull));
    assert_eq!(full.exit_status(), ExitStatus::Machinery);
}

#[test]
fn quoted_text_is_stripped_of_control_characters() {
    assert_eq!(CommandError::input("a\u{1b}[31mb\nc").to_string(), "error: ab\n    c\n");
}
