//! Frame versions, and the check against the versions that a node supports (2.8, 5.1.1, 5.4.6).
//!
//! `frame.rs` checks the version before anything else of a frame. Versions of modules are not handled here.

use serde_json::json;

use super::fault::{Fault, FaultCode};
use crate::json::text::excerpt;

/// Versions that a node supports, best first. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupportedVersions(Vec<String>);

impl Default for SupportedVersions {
    fn default() -> Self {
        Self(vec!["1.0".to_owned()])
    }
}

impl SupportedVersions {
    pub fn all(&self) -> &[String] {
        &self.0
    }

    /// The latest version that is also in `others`.
    pub fn latest_common(&self, others: &[String]) -> Option<String> {
        let has = |version: &&String| {
            others.iter().any(|other| {
                parse_major_minor(other).is_some() && parse_major_minor(other) == parse_major_minor(version)
            })
        };
        self.0.iter().filter(has).max_by_key(|version| parse_major_minor(version)).cloned()
    }

    /// Refuses an unsupported version. Only major and minor count: `1.0` and `1.0.7` are the same version.
    pub fn check_supported(&self, version: Option<&str>) -> Result<(), Box<Fault>> {
        let Some(version) = version else { return Ok(()) };
        if parse_major_minor(version)
            .is_some_and(|found| self.0.iter().any(|known| parse_major_minor(known) == Some(found)))
        {
            return Ok(());
        }
        let versions = self.0.join(", ");
        let text = format!("version `{}` of the frame is not supported; supported: {versions}", excerpt(version));
        let mut fault = Fault::new(FaultCode::VersionMismatch, text).with_detail("supportedVersions", json!(self.0));
        fault.supported_versions.clone_from(&self.0);
        Err(fault)
    }
}

impl FromIterator<String> for SupportedVersions {
    /// Drops invalid versions; yields the default if none is left.
    fn from_iter<T: IntoIterator<Item = String>>(versions: T) -> Self {
        let known: Vec<String> = versions.into_iter().filter(|version| parse_major_minor(version).is_some()).collect();
        if known.is_empty() { Self::default() } else { Self(known) }
    }
}

/// Major and minor of a release, as 2.8 and 5.1.1 write them: `1.0` or `1.0.0`. Pre-releases are not accepted.
fn parse_major_minor(version: &str) -> Option<(u64, u64)> {
    let version = version.split('+').next()?;
    let number = |part: &str| {
        let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        (digits && (part == "0" || !part.starts_with('0'))).then(|| part.parse().ok())?
    };
    let parts: Vec<u64> = version.split('.').map(number).collect::<Option<_>>()?;
    matches!(parts.len(), 2 | 3).then(|| (parts[0], parts[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_2_8_and_5_1_1_versions_match_by_major_and_minor() {
        let versions = SupportedVersions::default();
        for good in [None, Some("1.0"), Some("1.0.0"), Some("1.0.9"), Some("1.0.0+build.5")] {
            assert!(versions.check_supported(good).is_ok(), "{good:?}");
        }
        for bad in ["1.1", "2.0", "0.1", "1", "", "1.0.0-draft", "01.0", "1.0.0.0", "one", "1.x", "v1.0"] {
            let fault = versions.check_supported(Some(bad)).expect_err(bad);
            assert_eq!(
                (fault.code, fault.supported_versions.as_slice()),
                (FaultCode::VersionMismatch, versions.all()),
                "{bad}"
            );
        }
    }

    #[test]
    fn section_5_1_1_a_frame_without_a_version_has_the_latest() {
        let versions: SupportedVersions = ["1.0", "2.1", "1.10", "x"].map(str::to_owned).into_iter().collect();
        assert_eq!(versions.latest_common(versions.all()).as_deref(), Some("2.1"));
        assert_eq!(versions.all().len(), 3);
        assert!(versions.check_supported(Some("1.10.2")).is_ok() && versions.check_supported(Some("1.1")).is_err());
        assert_eq!(SupportedVersions::from_iter(["x".to_owned()]), SupportedVersions::default());
    }
}
