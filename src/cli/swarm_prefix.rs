//! A swarm as the user names it on the command line.

use std::str::FromStr;

use crate::ids::SwarmId;

/// A swarm's id or the start of it: at least four hexadecimal digits or `-`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SwarmPrefix(String);

impl SwarmPrefix {
    pub(crate) fn matches(&self, swarm: &SwarmId) -> bool {
        swarm.to_string().starts_with(&self.0)
    }

    /// The prefix in lower case.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SwarmPrefix {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        if (4..=36).contains(&lower.len()) && lower.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-') {
            Ok(Self(lower))
        } else {
            Err("name a swarm by its id, or at least the first four characters of it".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swarm_prefix_matches_swarm_ids() {
        let swarm: SwarmId = "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d".parse().expect("valid");
        assert!("a1b2".parse::<SwarmPrefix>().expect("valid").matches(&swarm));
        assert!("A1B2C3D4-e5f6".parse::<SwarmPrefix>().expect("valid").matches(&swarm));
        assert!(!"b1b2".parse::<SwarmPrefix>().expect("valid").matches(&swarm));
        assert!("a1".parse::<SwarmPrefix>().is_err());
        assert!("US-001".parse::<SwarmPrefix>().is_err());
    }
}
