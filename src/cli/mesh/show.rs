//! `longshore mesh show`: shows MemoryGrams of the SSOT, a file or standard input.

use std::path::Path;

use serde_json::Value;

use super::args::MeshShowArgs;
use crate::cli::context::CommandContext;
use crate::cli::error::CommandError;
use crate::cli::input::read_limited;
use crate::cli::{CommandResult, ExitStatus, print_stdout};
use crate::delivery::{DeliveryError, Repo};
use crate::handoff::story_knowledge;
use crate::protocol::amp::store::Ssot;
use crate::protocol::mesh::frame::Frame;
use crate::protocol::mesh::gram::{GramDraft, GramEntry, GramLimits, MemoryGram, render};
use crate::protocol::mesh::limits;

const MAX_INPUT_BYTES: usize = 8 << 20;

pub(super) async fn show(args: &MeshShowArgs, context: &CommandContext) -> CommandResult {
    let grams = if args.what == "-" {
        read_grams(&args.what, "standard input")?
    } else if Path::new(&args.what).is_file() {
        read_grams(&args.what, &args.what)?
    } else {
        vec![load_story_gram(&args.what, context).await?]
    };
    let text = if args.json {
        match grams.as_slice() {
            [one] => format!("{:#}\n", one.to_json()),
            several => several.iter().map(|gram| format!("{}\n", gram.to_json())).collect(),
        }
    } else if args.dot || args.mermaid || args.markdown {
        // Merge several into one graph.
        let one = match grams.as_slice() {
            [one] => one.clone(),
            several => story_knowledge::merge_grams(several, "urn:longshore:show", Vec::new(), usize::MAX)
                .ok_or_else(|| CommandError::input("no MemoryGram found"))?,
        };
        match (args.dot, args.mermaid) {
            (true, _) => render::dot(&one),
            (_, true) => render::mermaid(&one),
            _ => render::markdown(&one),
        }
    } else {
        grams.iter().map(render::table).collect::<Vec<_>>().join("\n")
    };
    print_stdout(&text)?;
    Ok(ExitStatus::Success)
}

/// Reads a gram, a list of grams, or the grams of a frame. Lone nodes become one gram.
fn read_grams(path: &str, name: &str) -> Result<Vec<MemoryGram>, CommandError> {
    let bytes = read_limited(path, MAX_INPUT_BYTES)
        .map_err(|error| CommandError::input(format!("cannot read `{name}`")).with_cause(&error))?;
    if bytes.len() > MAX_INPUT_BYTES {
        return Err(CommandError::input(format!("`{name}` is larger than {} MB", MAX_INPUT_BYTES >> 20)));
    }
    let value: Value = serde_json::from_slice(&bytes)
        .map_err(|error| CommandError::input(format!("`{name}` is not JSON")).with_cause(&error))?;
    let entries = match value {
        Value::Object(object) if object.contains_key("frame") => {
            let frame = Frame::parse(&bytes, &limits::FrameLimits::default())
                .map_err(|fault| CommandError::input(format!("`{name}` is not a frame: {fault}")))?;
            frame.memory_grams.unwrap_or_default()
        }
        Value::Object(object) => vec![object],
        Value::Array(entries) => entries
            .into_iter()
            .filter_map(|entry| match entry {
                Value::Object(object) => Some(object),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    };
    if entries.is_empty() {
        return Err(CommandError::input(format!("no MemoryGram found in `{name}`")));
    }
    let mut grams = Vec::new();
    let mut lone = GramDraft::default();
    for (index, entry) in entries.iter().enumerate() {
        let read = MemoryGram::from_entry(entry, &GramLimits::default()).map_err(|error| {
            CommandError::input(format!("MemoryGram {} of `{name}` is invalid: {error}", index + 1))
        })?;
        match read {
            GramEntry::Gram(gram) => grams.push(gram),
            GramEntry::LoneNode(node) => lone.nodes.push(node),
        }
    }
    if !lone.nodes.is_empty() {
        let built = lone.build(jiff::Timestamp::now(), &GramLimits::default());
        grams.push(built.map_err(|error| CommandError::input(format!("the nodes of `{name}` are invalid: {error}")))?);
    }
    Ok(grams)
}

/// Loads the memory of `[SWARM/][FILE/]STORY` from the SSOT. A single prefix may be either.
async fn load_story_gram(what: &str, context: &CommandContext) -> Result<MemoryGram, CommandError> {
    let repo = Repo::discover(context.dir()).await.map_err(|error| match error {
        DeliveryError::NotARepo { path } => CommandError::input(format!(
            "there is no file `{what}`, and `{}` is in no git repository with the memory of a story",
            path.display()
        ))
        .with_hint("run inside a git repository, or use `-C DIR`"),
        error => error.into(),
    })?;
    let ssot = Ssot::open_read_only(repo.root());
    let candidates: Vec<(Option<&str>, String)> = match what.split('/').collect::<Vec<_>>()[..] {
        [story] => vec![(None, story.to_owned())],
        [one, story] => vec![(Some(one), story.to_owned()), (None, format!("{one}-{story}"))],
        [swarm, file, story] => vec![(Some(swarm), format!("{file}-{story}"))],
        _ => Vec::new(),
    };
    let newest = match candidates.as_slice() {
        [(Some(_), _)] | [] => None,
        [(None, _)] => Some(context.resolve_swarm_dir(None).await?.swarm()),
        _ => context.resolve_swarm_dir(None).await.ok().map(|dir| dir.swarm()),
    };
    let mut found = Vec::new();
    for id in ssot.memory_swarms()? {
        let names = ssot.memory_names(id)?;
        for (swarm, story) in &candidates {
            let wanted = match swarm {
                Some(prefix) => prefix.len() >= 4 && id.to_string().starts_with(&prefix.to_lowercase()),
                None => newest == Some(id),
            };
            let end = format!("-{}", story.to_uppercase());
            let same = names.iter().filter(|name| name.eq_ignore_ascii_case(story) || name.ends_with(&end));
            found.extend(same.filter(|_| wanted).map(|name| (id, name.clone())));
        }
    }
    found.sort();
    found.dedup();
    match found.as_slice() {
        [(id, name)] => {
            let gram = ssot.memory(*id, name)?;
            gram.ok_or_else(|| CommandError::input(format!("the memory of `{what}` is corrupt")))
        }
        [] => Err(CommandError::input(format!("there is no file `{what}`, and no memory of a story with that name"))
            .with_hint("a story has a memory once it has landed; `longshore status` lists those")),
        several => {
            let names: Vec<String> = several.iter().map(|(id, name)| format!("{}/{name}", id.short())).collect();
            Err(CommandError::input(format!("`{what}` is ambiguous: {}", names.join(", "))))
        }
    }
}
