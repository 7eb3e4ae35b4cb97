//! Roles and message types: who may send what to whom (spec, "01" to "05").

use std::time::Duration;

use crate::protocol::wire_enum::wire_enum;

wire_enum! {
    /// A sender or receiver.
    pub enum AmpRole {
        /// The person.
        Admin = "admin",
        /// The orchestrator.
        Coordinator = "coordinator",
        /// A sandbox that works on stories.
        Executor = "executor",
        /// A sandbox that reviews.
        Reviewer = "reviewer",
        /// A mechanism of the orchestrator, such as a timeout. Sends only.
        System = "system",
    }
}

wire_enum! {
    /// The five message types, in the spec's order.
    pub enum AmpMessageType {
        TaskDispatch = "task_dispatch",
        TaskResult = "task_result",
        ReviewRequest = "review_request",
        ReviewVerdict = "review_verdict",
        Escalation = "escalation",
    }
}

impl AmpMessageType {
    /// The default time for an ack. `None` for an escalation: the admin answers it in their own time.
    pub fn ack_timeout(self) -> Option<Duration> {
        let seconds = match self {
            AmpMessageType::TaskDispatch => 300,
            AmpMessageType::TaskResult => 120,
            AmpMessageType::ReviewRequest => 600,
            AmpMessageType::ReviewVerdict => 60,
            AmpMessageType::Escalation => return None,
        };
        Some(Duration::from_secs(seconds))
    }

    /// The allowed pairs of sender and receiver. The admin sends guidance as a dispatch to the coordinator.
    pub fn routes(self) -> &'static [(AmpRole, AmpRole)] {
        use AmpRole::{Admin, Coordinator, Executor, Reviewer, System};
        match self {
            AmpMessageType::TaskDispatch => &[(Coordinator, Executor), (Admin, Coordinator)],
            AmpMessageType::TaskResult => &[(Executor, Coordinator)],
            AmpMessageType::ReviewRequest => &[(Coordinator, Reviewer)],
            AmpMessageType::ReviewVerdict => &[(Reviewer, Coordinator)],
            AmpMessageType::Escalation => {
                &[(Coordinator, Admin), (Reviewer, Admin), (Executor, Admin), (System, Admin)]
            }
        }
    }
}
