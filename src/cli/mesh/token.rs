//! Bearer tokens, from a file or the environment; never from the command line, which other users can read.

use std::path::Path;

use crate::cli::error::{CommandError, CommandErrorKind};

pub const TOKEN_ENV_VAR: &str = "LONGSHORE_MESH_TOKEN";

/// Reads the token from a file, or else from [`TOKEN_ENV_VAR`].
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
            format!("{what} must consist of visible ASCII characters without spaces"),
        )
        .with_hint("create one with `openssl rand -hex 32`"));
    }
    Ok(Some(token.to_owned()))
}
