//! Which assignments must not run side by side, by the globs of the paths that their stories touch.
//!
//! The test is conservative: it says that two globs may overlap unless what stands before their first special character
//! keeps them apart. `src/api/**` and `src/web/**` are apart; `src/*.rs` and `src/*.md` are not. A glob without special
//! characters also stands for everything below it, so that `src/api` means the folder. Being wrong costs time, never work:
//! at worst two assignments run one after the other.
//!
//! Called by `build.rs`.

use globset::GlobBuilder;

use super::problem::PlanDefect;

/// The paths that a glob can match, as far as its beginning tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reach {
    /// This path, and everything below it.
    Below(String),
    /// Every path that begins with this text.
    Beginning(String),
}

impl Reach {
    /// The reach of a glob as a tasks file has it.
    pub fn of(glob: &str) -> Result<Self, PlanDefect> {
        let outside = glob.starts_with('/') || glob.split('/').any(|part| part == "..");
        if outside {
            return Err(PlanDefect::GlobOutside { glob: glob.to_owned() });
        }
        GlobBuilder::new(glob)
            .build()
            .map_err(|error| PlanDefect::BadGlob { glob: glob.to_owned(), problem: error.kind().to_string() })?;
        let glob = plain_path(glob);
        Ok(match glob.find(['*', '?', '[', ']', '{', '}', '\\']) {
            Some(special) => Self::Beginning(glob[..special].to_owned()),
            None => Self::Below(glob.trim_end_matches('/').to_owned()),
        })
    }

    /// Whether some path may be in both.
    pub fn may_overlap(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Below(one), Self::Below(two)) => is_at_or_below(one, two) || is_at_or_below(two, one),
            (Self::Below(path), Self::Beginning(text)) | (Self::Beginning(text), Self::Below(path)) => {
                path.starts_with(text.as_str()) || is_at_or_below(text, path)
            }
            (Self::Beginning(one), Self::Beginning(two)) => {
                one.starts_with(two.as_str()) || two.starts_with(one.as_str())
            }
        }
    }
}

/// The path without `./` before it and `.` or nothing between its slashes.
fn plain_path(glob: &str) -> String {
    let parts = glob.split('/').filter(|part| !part.is_empty() && *part != ".");
    let mut path = parts.collect::<Vec<_>>().join("/");
    // `src/` and `src/.` are about what is below `src`, not about paths that begin with these letters.
    if !path.is_empty() && (glob.ends_with('/') || glob.ends_with("/.")) {
        path.push('/');
    }
    path
}

fn is_at_or_below(path: &str, folder: &str) -> bool {
    folder.is_empty() || path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether two lists of globs may overlap. An empty list touches nothing that is known, and is kept apart from nothing.
pub(super) fn may_overlap(one: &[Reach], two: &[Reach]) -> bool {
    one.iter().any(|reach| two.iter().any(|other| reach.may_overlap(other)))
}

#[cfg(test)]
mod tests {
    use globset::Glob;
    use proptest::prelude::*;

    use super::*;

    fn reach(glob: &str) -> Reach {
        Reach::of(glob).expect("a glob")
    }

    #[test]
    fn overlaps() {
        for (one, two, expected) in [
            ("src/a.rs", "src/a.rs", true),
            ("src/a.rs", "src/b.rs", false),
            ("src/api", "src/api/mod.rs", true),
            ("src/api", "src/api2/mod.rs", false),
            ("src/api/", "src/api/mod.rs", true),
            ("./src//api/.", "src/api/mod.rs", true),
            ("src/api", "src/api/**", true),
            ("src/api/**", "src/web/**", false),
            ("src/**", "src/web/x", true),
            ("src/*", "src", true),
            ("src/a*", "src/abc", true),
            ("src/ab*", "src/a", false),
            ("src/ab*", "src/a*", true),
            ("src/*.rs", "src/*.md", true),
            ("**/x", "docs/y", true),
            ("{a,b}/x", "c/x", true),
            (".", "src", true),
        ] {
            assert_eq!(reach(one).may_overlap(&reach(two)), expected, "{one} {two}");
            assert_eq!(reach(two).may_overlap(&reach(one)), expected, "{two} {one}");
        }
    }

    #[test]
    fn globs_are_refused_with_the_reason() {
        for (glob, expected) in [
            ("src/[a", "the glob `src/[a` cannot be read: unclosed character class; missing ']'"),
            (
                "src/{a",
                "the glob `src/{a` cannot be read: unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)",
            ),
            ("/etc/passwd", "the glob `/etc/passwd` leaves the repository"),
            ("a/../../b", "the glob `a/../../b` leaves the repository"),
        ] {
            assert_eq!(Reach::of(glob).expect_err("refused").to_string(), expected);
        }
    }

    proptest! {
        /// Where two globs match the same path, they are never said to be apart.
        #[test]
        fn never_apart_where_a_path_is_in_both(
            one in "[ab*?/]{1,6}", two in "[ab*?/]{1,6}", path in "[ab]{1,2}(/[ab]{1,2}){0,2}"
        ) {
            let matches = |glob: &str| Glob::new(glob).is_ok_and(|glob| glob.compile_matcher().is_match(&path));
            if matches(&one) && matches(&two) && let (Ok(first), Ok(second)) = (Reach::of(&one), Reach::of(&two)) {
                prop_assert!(first.may_overlap(&second), "{one} {two} {path}");
            }
        }
    }
}
