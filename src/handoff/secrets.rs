//! Values of environment variables, kept out of what is written down and passed on.
//!
//! Used by `shim/` for what it saw, and by `coordinator/` for what is handed from one sandbox to another. Must not: keep a value.

/// Names and values of variables that must not be shown.
pub type Secrets = [(String, String)];

/// A value shorter than this is looked for as a whole word only: it would be found everywhere.
const MIN_SUBSTRING_LEN: usize = 4;

/// A word of a command line, or a text, with the names of variables in the place of their values.
pub fn redact(word: &str, secrets: &Secrets) -> String {
    let mut text = word.to_owned();
    // Longest first: one value may hold another.
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
