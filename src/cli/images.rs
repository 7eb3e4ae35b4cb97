//! `longshore images`: the images that sandboxes run. Any image with a shell and git will do; this builds the default one
//! from the Dockerfile that is part of the program.

use bytes::Bytes;

use super::args::ImagesCommand;
use super::error::Shown;
use super::here::Here;
use super::{Outcome, remark, say};
use crate::engine::{Engine, ImageInfo, label};
use crate::report::text::{display_width, pad_to_width, sanitize};

/// The default image's Dockerfile.
const DOCKERFILE: &str = include_str!("../../images/sandbox/Dockerfile");
/// The label that scripts/setup.sh gives what it builds from the same file.
const DOCKERFILE_LABEL: &str = "dev.longshore.dockerfile";

/// Carries it out.
pub async fn images(command: &ImagesCommand, here: &Here) -> Outcome {
    let engine = here.engine().await?;
    match command {
        ImagesCommand::List => list(&*engine).await,
        ImagesCommand::Build { base, tag } => build(&*engine, base, tag).await,
    }
}

/// The images of ours, by tag.
pub(crate) async fn ours(engine: &dyn Engine) -> Result<Vec<ImageInfo>, Shown> {
    let mut found = engine.images(label::ROLE).await?;
    for image in engine.images(DOCKERFILE_LABEL).await? {
        if !found.iter().any(|known| known.id == image.id) {
            found.push(image);
        }
    }
    found.sort_by(|a, b| a.tags.cmp(&b.tags));
    Ok(found)
}

async fn list(engine: &dyn Engine) -> Outcome {
    let images = ours(engine).await?;
    if images.is_empty() {
        say("no images of longshore's: `longshore images build` makes the default one\n")?;
        return Ok(0);
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
    say(&text)?;
    Ok(0)
}

async fn build(engine: &dyn Engine, base: &str, tag: &str) -> Outcome {
    let context = context().map_err(|error| Shown::machinery("cannot pack the Dockerfile").caused_by(&error))?;
    let args = [("BASE".to_owned(), base.to_owned())];
    let mut progress = |line: &str| {
        let line = sanitize(line);
        if !line.is_empty() {
            remark(&line);
        }
    };
    engine.build_image(tag, context, &args, &mut progress).await.map_err(|error| {
        Shown::from(error).hint(format!(
            "the base image `{base}` must be there or be fetched from a registry: name another with `--base IMAGE` \
             (scripts/setup.sh makes one without a registry)"
        ))
    })?;
    say(&format!("built {tag} from {base}\n"))?;
    Ok(0)
}

/// The tar that the engine builds from: the Dockerfile, and the label by which `images list` and `gc` know the image.
fn context() -> std::io::Result<Bytes> {
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
    fn the_context_has_the_dockerfile_and_the_label() {
        let bytes = context().expect("packed");
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
