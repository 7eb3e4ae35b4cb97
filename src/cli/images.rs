//! `longshore images`: the images that sandboxes run. Any image with a shell and git will do; this builds the default one
//! from the Dockerfile that is part of the program.

use bytes::Bytes;

use super::args::ImagesCommand;
use super::context::CommandContext;
use super::error::CommandError;
use super::{CommandResult, ExitStatus, print_stderr, print_stdout};
use crate::engine::{Engine, ImageInfo, label};
use crate::report::text::{display_width, pad_to_width, sanitize};

/// The default image's Dockerfile.
const DOCKERFILE: &str = include_str!("../../images/sandbox/Dockerfile");
/// The label that scripts/setup.sh gives what it builds from the same file.
const DOCKERFILE_LABEL: &str = "dev.longshore.dockerfile";

pub async fn images(command: &ImagesCommand, here: &CommandContext) -> CommandResult {
    let engine = here.connect_engine().await?;
    match command {
        ImagesCommand::List => list_images(&*engine).await,
        ImagesCommand::Build { base, tag } => build_image(&*engine, base, tag).await,
    }
}

/// Lists the images built by longshore, by tag.
pub(crate) async fn longshore_images(engine: &dyn Engine) -> Result<Vec<ImageInfo>, CommandError> {
    let mut found = engine.images(label::ROLE).await?;
    for image in engine.images(DOCKERFILE_LABEL).await? {
        if !found.iter().any(|known| known.id == image.id) {
            found.push(image);
        }
    }
    found.sort_by(|a, b| a.tags.cmp(&b.tags));
    Ok(found)
}

async fn list_images(engine: &dyn Engine) -> CommandResult {
    let images = longshore_images(engine).await?;
    if images.is_empty() {
        print_stdout("no images of longshore's: `longshore images build` makes the default one\n")?;
        return Ok(ExitStatus::Success);
    }
    let rows: Vec<[String; 4]> = images
        .iter()
        .map(|image| {
            let name = if image.tags.is_empty() { "<untagged>".to_owned() } else { image.tags.join(", ") };
            let id = image.id.trim_start_matches("sha256:").chars().take(12).collect();
            [name, id, image.arch.clone(), format!("{} MB", image.size / 1_000_000)]
        })
        .collect();
    let head = ["IMAGE", "ID", "ARCH", "SIZE"].map(str::to_owned);
    let mut widths = [0; 4];
    for row in [&head].into_iter().chain(&rows) {
        for (place, cell) in row.iter().enumerate() {
            widths[place] = widths[place].max(display_width(cell));
        }
    }
    let mut text = String::new();
    for row in [&head].into_iter().chain(&rows) {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| pad_to_width(cell, width)).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    print_stdout(&text)?;
    Ok(ExitStatus::Success)
}

async fn build_image(engine: &dyn Engine, base: &str, tag: &str) -> CommandResult {
    let context =
        build_context().map_err(|error| CommandError::machinery("cannot pack the Dockerfile").with_cause(&error))?;
    let args = [("BASE".to_owned(), base.to_owned())];
    let mut progress = |line: &str| {
        let line = sanitize(line);
        if !line.is_empty() {
            print_stderr(&line);
        }
    };
    engine.build_image(tag, context, &args, &mut progress).await.map_err(|error| {
        CommandError::from(error).with_hint(format!(
            "the base image `{base}` must be there or be fetched from a registry: name another with `--base IMAGE` \
             (scripts/setup.sh makes one without a registry)"
        ))
    })?;
    print_stdout(&format!("built {tag} from {base}\n"))?;
    Ok(ExitStatus::Success)
}

/// The tar that the engine builds from: the Dockerfile, and the label by which `images list` and `gc` know the image.
fn build_context() -> std::io::Result<Bytes> {
    let text = format!("{}\nLABEL {}=\"image\"\n", DOCKERFILE.trim_end(), label::ROLE);
    let mut header = tar::Header::new_gnu();
    header.set_size(text.len() as u64);
    header.set_mode(0o644);
    let mut tar = tar::Builder::new(Vec::new());
    tar.append_data(&mut header, "Dockerfile", text.as_bytes())?;
    Ok(tar.into_inner()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn build_context_has_dockerfile_and_label() {
        let bytes = build_context().expect("packed");
        let mut archive = tar::Archive::new(&bytes[..]);
        let mut entries = archive.entries().expect("a tar");
        let mut file = entries.next().expect("one file").expect("readable");
        assert_eq!(file.path().expect("a path").to_str(), Some("Dockerfile"));
        let mut text = String::new();
        file.read_to_string(&mut text).expect("UTF-8");
        assert!(text.contains("ARG BASE") && text.contains("FROM ${BASE}"));
        assert!(text.ends_with("LABEL dev.longshore.role=\"image\"\n"));
    }
}
