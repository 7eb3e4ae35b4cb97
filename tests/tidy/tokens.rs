//! Rust source as words and punctuation. Comments and the contents of literals are gone, so a rule sees only code.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A token; groups are flattened to their delimiters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    Word(String),
    Punct(char),
    Open(char),
    Close(char),
}

impl Token {
    pub fn is_word(&self, word: &str) -> bool {
        matches!(self, Self::Word(own) if own == word)
    }

    pub fn word(&self) -> Option<&str> {
        match self {
            Self::Word(word) => Some(word),
            _ => None,
        }
    }
}

/// The tokens of a file.
///
/// # Panics
/// If `text` is no Rust.
pub fn tokens(path: &str, text: &str) -> Vec<Token> {
    let stream: TokenStream = text.parse().unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut found = Vec::new();
    flatten(stream, &mut found);
    found
}

fn flatten(stream: TokenStream, into: &mut Vec<Token>) {
    for tree in stream {
        match tree {
            TokenTree::Ident(ident) => into.push(Token::Word(ident.to_string())),
            TokenTree::Punct(punct) => into.push(Token::Punct(punct.as_char())),
            TokenTree::Literal(_) => into.push(Token::Punct('"')),
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ('(', ')'),
                    Delimiter::Bracket => ('[', ']'),
                    Delimiter::Brace | Delimiter::None => ('{', '}'),
                };
                into.push(Token::Open(open));
                flatten(group.stream(), into);
                into.push(Token::Close(close));
            }
        }
    }
}

/// The index behind the group that opens at `open`.
pub fn group_end(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token {
            Token::Open(_) => depth += 1,
            Token::Close(_) => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// An attribute's words: `cfg test` of `#[cfg(test)]`, and the index behind it.
fn attribute(tokens: &[Token], at: usize) -> Option<(Vec<&str>, usize)> {
    if tokens.get(at) != Some(&Token::Punct('#')) || tokens.get(at + 1) != Some(&Token::Open('[')) {
        return None;
    }
    let end = group_end(tokens, at + 1);
    Some((tokens[at + 1..end].iter().filter_map(Token::word).collect(), end))
}

/// Splits off `#[cfg(test)]` modules: the rest, and the names of those that are files of their own.
pub fn without_tests(tokens: &[Token]) -> (Vec<Token>, Vec<String>) {
    let (mut product, mut test_files) = (Vec::with_capacity(tokens.len()), Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        if let Some((words, end)) = attribute(tokens, at)
            && words.first() == Some(&"cfg")
            && words.contains(&"test")
            && !words.contains(&"not")
            && let Some((name, end)) = module(tokens, end)
        {
            if tokens[end - 1] == Token::Punct(';') {
                test_files.push(name.to_owned());
            }
            at = end;
            continue;
        }
        product.push(tokens[at].clone());
        at += 1;
    }
    (product, test_files)
}

/// The module that is declared at `at`, behind its attributes and visibility: its name, and the index behind it.
fn module(tokens: &[Token], mut at: usize) -> Option<(&str, usize)> {
    while let Some((_, end)) = attribute(tokens, at) {
        at = end;
    }
    if tokens.get(at)?.is_word("pub") {
        at += 1;
        if tokens.get(at) == Some(&Token::Open('(')) {
            at = group_end(tokens, at);
        }
    }
    if !tokens.get(at)?.is_word("mod") {
        return None;
    }
    let name = tokens.get(at + 1)?.word()?;
    let end = match tokens.get(at + 2)? {
        Token::Open(_) => group_end(tokens, at + 2),
        _ => at + 3,
    };
    Some((name, end))
}

/// A path that code names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPath {
    pub segments: Vec<String>,
    /// What a `use` binds it to.
    pub bound_as: Option<String>,
    pub kind: PathKind,
}

/// Where a path stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    /// In an expression, a type or a macro.
    Inline,
    /// In a private `use`.
    Import,
    /// In a `pub use` of any visibility.
    Reexport,
}

/// Every path of more than one segment, and every path of a `use`, with its braces taken apart.
pub fn paths(tokens: &[Token]) -> Vec<NamedPath> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at].is_word("use") {
            let end = (at..tokens.len()).find(|&end| tokens[end] == Token::Punct(';')).unwrap_or(tokens.len());
            let kind = if is_public(&tokens[..at]) { PathKind::Reexport } else { PathKind::Import };
            use_tree(&tokens[at + 1..end], &[], kind, &mut found);
            at = end;
        } else if let Some((segments, end)) = inline_path(tokens, at) {
            if segments.len() > 1 {
                found.push(NamedPath { segments, bound_as: None, kind: PathKind::Inline });
            }
            at = end;
        } else {
            at += 1;
        }
    }
    found
}

/// Whether what follows is `pub`, of any visibility.
fn is_public(before: &[Token]) -> bool {
    let before = match before {
        [rest @ .., Token::Close(')')] => {
            let open = rest.iter().rposition(|token| *token == Token::Open('('));
            open.map_or(before, |open| &rest[..open])
        }
        _ => before,
    };
    before.last().is_some_and(|token| token.is_word("pub"))
}

fn is_separator(tokens: &[Token], at: usize) -> bool {
    tokens.get(at) == Some(&Token::Punct(':')) && tokens.get(at + 1) == Some(&Token::Punct(':'))
}

fn inline_path(tokens: &[Token], start: usize) -> Option<(Vec<String>, usize)> {
    let first = tokens[start].word()?;
    let mut segments = vec![first.to_owned()];
    let mut at = start + 1;
    while is_separator(tokens, at) {
        let Some(segment) = tokens.get(at + 2).and_then(Token::word) else { break };
        segments.push(segment.to_owned());
        at += 3;
    }
    // A field or method is no path.
    let is_member = start > 0 && tokens[start - 1] == Token::Punct('.');
    Some((if is_member { Vec::new() } else { segments }, at))
}

fn use_tree(tokens: &[Token], prefix: &[String], kind: PathKind, found: &mut Vec<NamedPath>) {
    let mut segments = prefix.to_vec();
    let mut at = if is_separator(tokens, 0) { 2 } else { 0 };
    while let Some(token) = tokens.get(at) {
        match token {
            Token::Word(word) if word == "as" => {
                let alias = tokens.get(at + 1).and_then(Token::word).unwrap_or("_");
                return found.push(NamedPath { segments, bound_as: Some(alias.to_owned()), kind });
            }
            Token::Word(word) => segments.push(word.clone()),
            Token::Punct('*') => segments.push("*".to_owned()),
            Token::Open(_) => {
                let inside = &tokens[at + 1..group_end(tokens, at) - 1];
                return split_at_commas(inside).for_each(|part| use_tree(part, &segments, kind, found));
            }
            _ => {}
        }
        at += 1;
    }
    if segments.len() > prefix.len() {
        if segments.len() > 1 && segments.last().is_some_and(|last| last == "self") {
            segments.pop();
        }
        found.push(NamedPath { bound_as: segments.last().cloned(), segments, kind });
    }
}

fn split_at_commas(tokens: &[Token]) -> impl Iterator<Item = &[Token]> {
    let mut depth = 0;
    tokens.split(move |token| {
        match token {
            Token::Open(_) => depth += 1,
            Token::Close(_) => depth -= 1,
            _ => {}
        }
        depth == 0 && *token == Token::Punct(',')
    })
}
