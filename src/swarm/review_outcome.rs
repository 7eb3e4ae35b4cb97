//! The outcome of a review, as the journal keeps it. `coordinator/collect/review.rs` makes it from the output of a reviewer's sandbox,
//! after it checked the verdict against AMP's rules and the fix with git.

use serde::{Deserialize, Serialize};

use crate::ids::CommitId;
use crate::protocol::amp::message::ReviewVerdict;
use crate::verdict::Failure;

/// A verdict, or the reason why there is none. The verdict only counts for the commit that was under review.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReviewOutcome {
    /// A verdict that breaks no rule of AMP; `None` if there is a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<ReviewVerdict>,
    /// The reviewer's fix, with `approved_with_fix` only. The attempt's result ref keeps it on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<ReviewFix>,
    /// Why there is no verdict. `stopped_by_user` and the machinery's causes are not the reviewer's fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// A reviewer's fix, as git sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReviewFix {
    /// A descendant of the commit under review.
    pub commit: CommitId,
    /// Why it exceeds what a reviewer may fix (spec 04, "Direct Fix Scope"): the verdict counts as a rejection with this issue.
    #[serde(rename = "refused", default, skip_serializing_if = "Option::is_none")]
    pub scope_violation: Option<String>,
}

impl ReviewOutcome {
    /// A review without a verdict.
    pub fn failed(failure: Failure) -> Self {
        Self { verdict: None, fix: None, failure: Some(failure) }
    }
}
