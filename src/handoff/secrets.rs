//! Keeps the values of environment variables out of everything that is written or passed on.
//!
//! Used by `shim/` for evidence and verdicts, and by `coordinator/` for what one sandbox passes to another. Must not: keep a value.

/// Names and values of variables whose values must not be shown.
pub type Secrets = [(String, String)];

/// A shorter value is matched as a whole word only: it would occur everywhere.
const MIN_SUBSTRING_LEN: usize = 4;

/// Replaces the values of variables in a text, or in a word of a command line, by their names.
pub fn redact(word: &str, secrets: &Secrets) -> String {
    let mut text = word.to_owned();
    // Longest first: one value may contain another.
    let mut order: Vec<&(String, String)> = secrets.iter().filter(|(_, value)| !value.is_empty()).collect();
    order.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
    for (name, value) in order {
        let shown = format!("${name}");
        if value.len() >= MIN_SUBSTRING_LEN {
            text = text.replace(value.as_str(), &shown);
        } else if text == *value {
            text = shown;
        } else if let Some(before) = text.strip_suffix(value.as_str()).filter(|before| before.ends_with('=')) {
            text = format!("{before}{shown}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redact_replaces_variable_values() {
        let secrets = [("TOKEN", "s3cret"), ("LONG", "s3cret-and-more"), ("MODE", "1"), ("NONE", "")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        for (word, wanted) in [
            ("Bearer s3cret", "Bearer $TOKEN"),
            ("s3cret-and-more", "$LONG"),
            ("--mode=1", "--mode=$MODE"),
            ("1", "$MODE"),
            ("file-1.txt", "file-1.txt"),
        ] {
            assert_eq!(redact(word, &secrets), wanted);
        }
    }
}
