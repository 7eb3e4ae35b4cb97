//! Which assignments must not run side by side, by the globs of the paths that their stories touch.
//!
//! The test is conservative: it says that two globs may overlap unless what stands before their first special character
//! keeps them apart. `src/api/**` and `src/web/**` are apart; `src/*.rs` and `src/*.md` are not. A glob without special
//! characters also stands for everything below it, so that `src/api` means the folder. Being wrong costs time, never work:
//! at worst two assignments run one after the other.
//!
//! Called by `build.rs`.

use globset::GlobBuilder;

use super::error::PlanProblemKind;

/// The paths that a glob can match, judged by its literal prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathScope {
    /// This path, and everything below it.
    Subtree(String),
    /// Every path that begins with this text.
    Prefix(String),
}

impl PathScope {
    /// Parses a glob from a tasks file.
    pub fn from_glob(glob: &str) -> Result<Self, PlanProblemKind> {
        let outside = glob.starts_with('/') || glob.split('/').any(|part| part == "..");
        if outside {
            return Err(PlanProblemKind::GlobOutsideRepo { glob: glob.to_owned() });
        }
        GlobBuilder::new(glob).build().map_err(|error| PlanProblemKind::InvalidGlob {
            glob: glob.to_owned(),
            problem: error.kind().to_string(),
        })?;
        let glob = normalize_path(glob);
        Ok(match glob.find(['*', '?', '[', ']', '{', '}', '\\']) {
            Some(special) => Self::Prefix(glob[..special].to_owned()),
            None => Self::Subtree(glob.trim_end_matches('/').to_owned()),
        })
    }

    /// Whether some path may be in both.
    pub fn may_overlap(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Subtree(one), Self::Subtree(two)) => is_at_or_below(one, two) || is_at_or_below(two, one),
            (Self::Subtree(path), Self::Prefix(text)) | (Self::Prefix(text), Self::Subtree(path)) => {
                path.starts_with(text.as_str()) || is_at_or_below(text, path)
            }
            (Self::Prefix(one), Self::Prefix(two)) => one.starts_with(two.as_str()) || two.starts_with(one.as_str()),
        }
    }
}

/// The path without `./` before it and `.` or nothing between its slashes.
fn normalize_path(glob: &str) -> String {
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

/// Whether two lists of scopes may overlap. An empty list overlaps with nothing.
pub(super) fn any_overlap(one: &[PathScope], two: &[PathScope]) -> bool {
    one.iter().any(|scope| two.iter().any(|other| scope.may_overlap(other)))
}

#[cfg(test)]
mod tests {
    use globset::Glob;
    use proptest::prelude::*;

    use super::*;

    fn scope(glob: &str) -> PathScope {
        PathScope::from_glob(glob).expect("a glob")
    }

    #[test]
    fn overlapping_scopes_are_detected() {
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
            assert_eq!(scope(one).may_overlap(&scope(two)), expected, "{one} {two}");
            assert_eq!(scope(two).may_overlap(&scope(one)), expected, "{two} {one}");
        }
    }

    #[test]
    fn invalid_globs_are_rejected_with_a_reason() {
        for (glob, expected) in [
            ("src/[a", "the glob `src/[a` cannot be read: unclosed character class; missing ']'"),
            (
                "src/{a",
                "the glob `src/{a` cannot be read: unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)",
            ),
            ("/etc/passwd", "the glob `/etc/passwd` leaves the repository"),
            ("a/../../b", "the glob `a/../../b` leaves the repository"),
        ] {
            assert_eq!(PathScope::from_glob(glob).expect_err("refused").to_string(), expected);
        }
    }

    proptest! {
        /// Where two globs match the same path, their scopes overlap.
        #[test]
        fn globs_that_match_the_same_path_overlap(
            one in "[ab*?/]{1,6}", two in "[ab*?/]{1,6}", path in "[ab]{1,2}(/[ab]{1,2}){0,2}"
        ) {
            let matches = |glob: &str| Glob::new(glob).is_ok_and(|glob| glob.compile_matcher().is_match(&path));
            if matches(&one) && matches(&two) && let (Ok(first), Ok(second)) = (PathScope::from_glob(&one), PathScope::from_glob(&two)) {
                prop_assert!(first.may_overlap(&second), "{one} {two} {path}");
            }
        }
    }
}
