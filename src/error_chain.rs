//! Renders an error with its sources in one line. Used wherever an error is logged or becomes evidence.

use std::error::Error;

/// `error` and its sources, joined by `: `. A source that repeats what is already there is left out.
pub(crate) fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let words = source.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        next = source.source();
    }
    text
}
