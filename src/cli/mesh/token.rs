//! The token that opens a node to others: from a file, or from the environment; never from the command line, which everybody can read.

use std::path::Path;

use crate::cli::error::{Kind, Shown};

/// The variable that has it where no file is named.
pub const VARIABLE: &str = "LONGSHORE_MESH_TOKEN";

/// The token of a file, or of the environment.
pub fn token(file: Option<&Path>) -> Result<Option<String>, Shown> {
    let (text, what) = match file {
        Some(path) => {
            let shown =
                |error| Shown::input(format!("cannot read the token file `{}`", path.display())).caused_by(&error);
            (std::fs::read_to_string(path).map_err(shown)?, format!("the token in `{}`", path.display()))
        }
        None => match std::env::var(VARIABLE) {
            Ok(text) => (text, format!("the token in {VARIABLE}")),
            Err(_) => return Ok(None),
        },
    };
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Shown::new(
            Kind::Input,
            format!("{what} must be visible characters of ASCII, with no space inside"),
        )
        .hint("`openssl rand -hex 32` makes one"));
    }
    Ok(Some(token.to_owned()))
}
