//! `longshore ssot validate`: validates messages and acks from any source against AMP/1.0.
//!
//! Each file has one message, or one ack, which has the key `ack_of`. Only the first broken rule of a file is reported. In an SSOT
//! directory, only `messages` and `acks` are read. Exit code 2 if a rule is broken.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::args::SsotValidateArgs;
use crate::cli::error::CommandError;
use crate::cli::input::read_limited;
use crate::cli::{CommandResult, ExitStatus, print_stdout};
use crate::protocol::amp::message::{Ack, AmpMessage};
use crate::protocol::amp::rules::{self, AmpViolation, MAX_MESSAGE_BYTES};
use crate::report::text::{pluralize, sanitize};

/// The kind of a valid file.
enum ValidDocument {
    Message,
    Ack,
}

pub(super) fn validate(args: &SsotValidateArgs) -> CommandResult {
    let (mut text, mut messages, mut acks, mut broken) = (String::new(), 0, 0, 0);
    for path in expand_paths(&args.files)? {
        let name = if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() };
        let bytes = read_limited(&path, MAX_MESSAGE_BYTES).map_err(|error| read_error(&name, &error))?;
        match validate_document(&bytes) {
            Ok(ValidDocument::Message) => messages += 1,
            Ok(ValidDocument::Ack) => acks += 1,
            Err(AmpViolation { rule, field, problem }) => {
                broken += 1;
                // Writing to a string cannot fail.
                let _ = if args.json {
                    writeln!(text, "{}", json!({ "file": name, "rule": rule, "field": field, "problem": problem }))
                } else {
                    writeln!(text, "{}: {field}: {} (rule `{rule}`)", sanitize(&name), sanitize(&problem))
                };
            }
        }
    }
    if !args.json {
        let (messages, acks) = (pluralize(messages, "message", "messages"), pluralize(acks, "ack", "acks"));
        let broken = pluralize(broken, "file breaks a rule", "files break a rule");
        let _ = writeln!(text, "{messages} and {acks} break none; {broken}");
    }
    print_stdout(&text)?;
    Ok(if broken > 0 { ExitStatus::InvalidInput } else { ExitStatus::Success })
}

fn read_error(name: &str, error: &io::Error) -> CommandError {
    CommandError::input(format!("cannot read `{name}`")).with_cause(error)
}

/// Expands directories to the sorted files below them.
fn expand_paths(typed: &[PathBuf]) -> Result<Vec<PathBuf>, CommandError> {
    let mut files = Vec::new();
    let mut wrong = Vec::new();
    for path in typed {
        if path == Path::new("-") || !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let mut found = Vec::new();
        let ssot = ["messages", "acks"].map(|folder| path.join(folder));
        let folders = if ssot.iter().all(|folder| folder.is_dir()) { ssot.to_vec() } else { vec![path.clone()] };
        for folder in folders {
            if let Err((folder, error)) = collect_json_files(&folder, &mut found) {
                wrong.push(read_error(&folder.display().to_string(), &error));
            }
        }
        if found.is_empty() {
            wrong.push(CommandError::input(format!("there is no .json file below `{}`", path.display())));
        }
        found.sort();
        files.append(&mut found);
    }
    CommandError::combine(wrong)?;
    Ok(files)
}

/// Does not follow links to directories, which may form cycles.
fn collect_json_files(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), (PathBuf, io::Error)> {
    let at = |error| (folder.to_owned(), error);
    for entry in fs::read_dir(folder).map_err(at)? {
        let entry = entry.map_err(at)?;
        let path = entry.path();
        if entry.file_type().map_err(at)?.is_dir() {
            collect_json_files(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "json") && path.is_file() {
            found.push(path);
        }
    }
    Ok(())
}

fn validate_document(bytes: &[u8]) -> Result<ValidDocument, AmpViolation> {
    let wrong = |rule, problem| AmpViolation { rule, field: "message".to_owned(), problem };
    if bytes.len() > MAX_MESSAGE_BYTES {
        return Err(wrong(rules::SIZE, format!("must have at most {MAX_MESSAGE_BYTES} bytes")));
    }
    let text = str::from_utf8(bytes)
        .map_err(|error| wrong(rules::JSON, format!("not UTF-8 from byte {} on", error.valid_up_to())))?;
    let value: Option<serde_json::Value> = serde_json::from_str(text).ok();
    if value.is_some_and(|value| value.get("ack_of").is_some() && value.get("msg_id").is_none()) {
        Ack::parse(text).map(|_| ValidDocument::Ack)
    } else {
        AmpMessage::parse(text).map(|_| ValidDocument::Message)
    }
}
