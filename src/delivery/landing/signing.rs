//! The settings with which git signs commits: the user's.
//!
//! Called by `write.rs` for `[git] sign`. A program that the repository's own config names is not run; the key may be the
//! repository's.

use crate::delivery::error::DeliveryError;
use crate::delivery::repo::Repo;

/// Settings that name a program: the key, its other name, and the program that git runs without it.
const PROGRAMS: [(&str, &str, &str); 4] = [
    ("gpg.program", "gpg.openpgp.program", "gpg"),
    ("gpg.x509.program", "", "gpgsm"),
    ("gpg.ssh.program", "", "ssh-keygen"),
    ("gpg.ssh.defaultkeycommand", "", ""),
];

pub(super) struct SigningConfig {
    overrides: Vec<String>,
}

impl SigningConfig {
    /// Reads the config with the scope of each setting.
    pub(super) async fn read(repo: &Repo) -> Result<Self, DeliveryError> {
        let args = ["config", "--null", "--show-scope", "--get-regexp", r"^gpg\."];
        let output = repo.git("read how to sign", args).accept_codes(&[0, 1]).run().await?;
        let text = output.text();
        let mut fields = text.split('\0');
        let mut settings = Vec::new();
        while let (Some(scope), Some(setting)) = (fields.next(), fields.next()) {
            let (key, value) = setting.split_once('\n').unwrap_or((setting, ""));
            settings.push((scope.to_owned(), key.to_owned(), value.to_owned()));
        }
        Ok(Self::from_settings(&settings))
    }

    /// From `(scope, key, value)` in git's order.
    fn from_settings(settings: &[(String, String, String)]) -> Self {
        let mut overrides = Vec::new();
        for (key, synonym, default) in PROGRAMS {
            let (of_repo, of_user): (Vec<_>, Vec<_>) = settings
                .iter()
                .filter(|(_, found, _)| found == key || found == synonym)
                .partition(|(scope, _, _)| matches!(scope.as_str(), "local" | "worktree"));
            if !of_repo.is_empty() {
                let value = of_user.last().map_or(default, |(_, _, value)| value);
                overrides.push(format!("{key}={value}"));
            }
        }
        Self { overrides }
    }

    /// Arguments before the subcommand.
    pub(super) fn args(&self) -> Vec<&str> {
        self.overrides.iter().flat_map(|setting| ["-c", setting.as_str()]).collect()
    }
}

#[cfg(test)]
mod tests;
