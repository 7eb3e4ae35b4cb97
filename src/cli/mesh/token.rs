//! The token that opens a node to others: from a file, or from the environment; never from the command line, which everybody can read.

use std::path::Path;

use crate::cli::error::{CommandError, CommandErrorKind};

/// The variable that has it where no file is named.
pub const TOKEN_ENV_VAR: &str = "LONGSHORE_MESH_TOKEN";

/// The token of a file, or of the environment.
pub fn load_token(file: Option<&Path>) -> Result<Option<String>, CommandError> {
    let (text, what) = match file {
        Some(path) => {
            let shown = |error| {
                CommandError::input(format!("cannot read the token file `{}`", path.display())).with_cause(&error)
            };
            (std::fs::read_to_string(path).map_err(shown)?, format!("the token in `{}`", path.display()))
        }
        None => match std::env::var(TOKEN_ENV_VAR) {
            Ok(text) => (text, format!("the token in {TOKEN_ENV_VAR}")),
            Err(_) => return Ok(None),
        },
    };
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(CommandError::new(
            CommandErrorKind::Input,
            format!("{what} must be visible characters of ASCII, with no space inside"),
        )
        .with_hint("`openssl rand -hex 32` makes one"));
    }
    Ok(Some(token.to_owned()))
}
