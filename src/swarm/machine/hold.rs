//! Why an assignment waits for the admin.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::protocol::amp::message::MsgId;

/// Why an assignment waits for the admin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminHold {
    pub kind: HoldKind,
    /// The escalation that reports it.
    pub escalation_id: Option<MsgId>,
    /// The escalation's description.
    pub reason: String,
    /// Since when, counted from the swarm's beginning.
    pub since: Duration,
}

/// The kinds of wait for the admin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "WaitKind")]
pub enum HoldKind {
    /// A story of high risk has no approval.
    Approval,
    /// The work was rejected too often (`hallucination_lock`).
    Locked,
    /// The reviewer's confidence in the verdict is too low.
    LowConfidence,
    /// No review gave a verdict.
    NoVerdict,
    /// The sandbox is paused.
    Suspended,
}

impl HoldKind {
    /// The label for people.
    pub fn label(self) -> &'static str {
        match self {
            HoldKind::Approval => "awaiting approval",
            HoldKind::Locked => "locked",
            HoldKind::LowConfidence => "verdict unsure",
            HoldKind::NoVerdict => "no verdict",
            HoldKind::Suspended => "suspended",
        }
    }
}
