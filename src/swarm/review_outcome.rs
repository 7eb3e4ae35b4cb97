//! What a review came to, as the journal keeps it: made by `coordinator/review.rs` out of what a reviewer's sandbox left, read
//! by AMP's rules and looked at by git. Must not: hold anything that was believed unseen.

use serde::{Deserialize, Serialize};

use crate::ids::CommitId;
use crate::protocol::amp::message::ReviewVerdict;
use crate::verdict::Failure;

/// A verdict, or why there is none. The verdict counts for the commit that was under review and no other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReviewOutcome {
    /// The verdict, which breaks no rule of AMP's; none where there is a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<ReviewVerdict>,
    /// What the reviewer mended: there with `approved_with_fix`, and only then. It is on the host, under the attempt's result
    /// ref.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<ReviewFix>,
    /// Why there is no verdict. `stopped_by_user`, and the causes of the machinery's class, are not the reviewer's doing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// A reviewer's fix, by git's word and not by the reviewer's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReviewFix {
    /// A descendant of the commit under review.
    pub commit: CommitId,
    /// Why it goes beyond what a reviewer may mend (spec 04, "Direct Fix Scope"): the verdict is to be treated as a rejection
    /// with this as its issue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "refused")]
    pub scope_violation: Option<String>,
}

impl ReviewOutcome {
    /// A review without a verdict.
    pub fn failed(failure: Failure) -> Self {
        Self { verdict: None, fix: None, failure: Some(failure) }
    }
}
