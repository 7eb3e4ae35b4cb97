//! Circles of imports: a file that uses another that uses it, directly or round a ring. None may exist, so that each file can be
//! read, moved and tested below those that use it.
//!
//! An edge is a path in product code, resolved through re-exports to the file that defines what it names. A re-export of an item of
//! the module's own children is no edge: it is how a module shows its contents.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::algo::tarjan_scc;
use petgraph::graph::DiGraph;

use crate::tokens::{NamedPath, PathKind, Token, group_end, paths, tokens, without_tests};

/// How many re-exports a path may go through.
const MAX_HOPS: usize = 16;

type ModulePath = Vec<String>;

/// One file of the library.
struct Module {
    file: String,
    paths: Vec<NamedPath>,
    /// What the file defines itself, at any depth of inline modules.
    defined: BTreeSet<String>,
}

/// The library's files by module path, without test modules.
pub struct ModuleTree {
    modules: BTreeMap<ModulePath, Module>,
}

impl ModuleTree {
    /// From each file's path and text. Programs' files are left out: they use the library from outside.
    pub fn new<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let (mut modules, mut test_modules) = (BTreeMap::new(), Vec::new());
        for (file, text) in files {
            let Some(module) = module_path(file) else { continue };
            let (product, tests) = without_tests(&tokens(file, text));
            test_modules.extend(tests.into_iter().map(|name| [module.as_slice(), &[name]].concat()));
            let module_of_file =
                Module { file: file.to_owned(), paths: paths(&product), defined: definitions(&product) };
            modules.insert(module, module_of_file);
        }
        modules.retain(|module, _| !test_modules.iter().any(|test| module.starts_with(test)));
        Self { modules }
    }

    /// Each circle as the files in it.
    pub fn circles(&self) -> Vec<Vec<&str>> {
        let files: Vec<&str> = self.modules.values().map(|module| module.file.as_str()).collect();
        let index: BTreeMap<&ModulePath, u32> = self.modules.keys().zip(0..).collect();
        let edges = self.modules.iter().flat_map(|(module, own)| {
            let targets = own.paths.iter().filter_map(|path| self.target(module, path));
            targets
                .filter(|target| *target != *module)
                .map(|target| (index[module], index[&target]))
                .collect::<Vec<_>>()
        });
        let graph: DiGraph<(), ()> = DiGraph::from_edges(edges);
        let mut circles: Vec<Vec<&str>> =
            tarjan_scc(&graph).iter().map(|circle| circle.iter().map(|node| files[node.index()]).collect()).collect();
        circles.retain(|circle| circle.len() > 1);
        circles.iter_mut().for_each(|circle| circle.sort_unstable());
        circles.sort();
        circles
    }

    /// The module whose file defines what a path of `module` names.
    fn target(&self, module: &[String], path: &NamedPath) -> Option<ModulePath> {
        let absolute = self.absolute(module, &path.segments)?;
        let target = self.resolve(&absolute, MAX_HOPS)?;
        let shows_child = path.kind == PathKind::Reexport && target.starts_with(module) && target.len() > module.len();
        (!shows_child).then_some(target)
    }

    /// A path from the crate's root; none if it leaves the crate.
    fn absolute(&self, module: &[String], segments: &[String]) -> Option<ModulePath> {
        let mut from = module.to_vec();
        let mut rest = segments;
        let mut is_relative = false;
        while let [first, tail @ ..] = rest {
            match first.as_str() {
                "crate" => from.clear(),
                "self" => {}
                "super" => drop(from.pop()),
                _ => break,
            }
            is_relative = true;
            rest = tail;
        }
        let is_child = rest
            .first()
            .is_some_and(|name| self.modules.contains_key(&[&from[..], std::slice::from_ref(name)].concat()));
        (is_relative || is_child).then(|| [&from[..], rest].concat())
    }

    /// The module whose file defines the item of an absolute path.
    fn resolve(&self, path: &[String], hops: usize) -> Option<ModulePath> {
        let depth = (0..=path.len()).rev().find(|&depth| self.modules.contains_key(&path[..depth]))?;
        let (module, rest) = path.split_at(depth);
        let own = &self.modules[module];
        if let Some((name, rest)) = rest.split_first()
            && !own.defined.contains(name)
            && hops > 0
            && let Some(import) = own.paths.iter().find(|path| path.bound_as.as_ref() == Some(name))
            && let Some(absolute) = self.absolute(module, &import.segments)
            && absolute != path
        {
            return self.resolve(&[&absolute[..], rest].concat(), hops - 1);
        }
        Some(module.to_vec())
    }
}

/// `["engine", "depot"]` of `src/engine/depot.rs` and of `src/engine/depot/mod.rs`.
fn module_path(file: &str) -> Option<ModulePath> {
    let inside = file.strip_prefix("src/")?.strip_suffix(".rs")?;
    if inside == "main" || inside.starts_with("bin/") {
        return None;
    }
    let inside = inside.strip_suffix("/mod").unwrap_or(inside);
    Some(if inside == "lib" { Vec::new() } else { inside.split('/').map(str::to_owned).collect() })
}

fn definitions(tokens: &[Token]) -> BTreeSet<String> {
    const KEYWORDS: [&str; 9] = ["struct", "enum", "union", "trait", "type", "fn", "const", "static", "macro_rules"];
    let mut found = BTreeSet::new();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            // Bodies define nothing that a path from outside can name; those of inline modules do.
            Token::Open('{') if !(at >= 2 && tokens[at - 2].is_word("mod")) => at = group_end(tokens, at),
            Token::Word(word) if KEYWORDS.contains(&word.as_str()) => {
                let skip = usize::from(tokens.get(at + 1) == Some(&Token::Punct('!')));
                if let Some(name) = tokens.get(at + 1 + skip).and_then(Token::word) {
                    found.insert(name.to_owned());
                }
                at += 1;
            }
            _ => at += 1,
        }
    }
    found
}

#[test]
fn circles_are_found_through_re_exports() {
    let tree = |files: &[(&str, &str)]| {
        let tree = ModuleTree::new(files.iter().copied());
        tree.circles().into_iter().map(|circle| circle.join(" ")).collect::<Vec<_>>()
    };
    let lib = ("src/lib.rs", "mod a; mod b;");
    assert_eq!(
        tree(&[
            lib,
            ("src/a.rs", "use crate::b::B; pub struct A;"),
            ("src/b.rs", "pub struct B; fn f(_: crate::a::A) {}")
        ]),
        ["src/a.rs src/b.rs"]
    );
    // Through a facade, to the file that defines it.
    let facade = ("src/b/mod.rs", "mod c; mod d; pub use c::C; pub use d::D;");
    assert_eq!(
        tree(&[
            lib,
            facade,
            ("src/b/c.rs", "use super::D; pub struct C;"),
            ("src/b/d.rs", "use super::C; pub struct D;")
        ]),
        ["src/b/c.rs src/b/d.rs"]
    );
    assert!(
        tree(&[lib, facade, ("src/b/c.rs", "use super::D; pub struct C;"), ("src/b/d.rs", "pub struct D;")]).is_empty()
    );
    // A parent that uses its child, and the child what the parent defines.
    assert_eq!(
        tree(&[
            lib,
            ("src/b/mod.rs", "mod c; use c::C; pub struct B(C);"),
            ("src/b/c.rs", "use super::B; pub struct C;")
        ]),
        ["src/b/c.rs src/b/mod.rs"]
    );
    // Tests, comments and literals are no code.
    assert!(
        tree(&[
            lib,
            ("src/a.rs", "use crate::b::B; pub struct A;\n#[cfg(test)] mod tests;"),
            ("src/a/tests.rs", "use super::A;"),
            ("src/b.rs", "// crate::a::A\npub struct B;\n#[cfg(test)] mod tests { use crate::a::A; }"),
        ])
        .is_empty()
    );
}
