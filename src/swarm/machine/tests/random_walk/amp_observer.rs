//! Checks all AMP intents.

use std::collections::{BTreeMap, BTreeSet};

use super::super::*;
use crate::protocol::amp::message::{AmpMessageType, MsgId, SubtaskCompletionStatus};
use crate::swarm::amp_intent::AmpIntent;

/// The intents so far, and what they covered.
#[derive(Default)]
pub(super) struct AmpObserver {
    pub(super) intents: Vec<AmpIntent>,
    ids: BTreeSet<MsgId>,
    acked: BTreeSet<MsgId>,
    results: BTreeMap<MsgId, SubtaskCompletionStatus>,
    pub(super) covered: BTreeSet<String>,
}

impl AmpObserver {
    pub(super) fn mark_covered(&mut self, what: String) {
        self.covered.insert(what);
    }

    /// Checks the id of a new message and those that it refers to.
    fn check_new_message<'a>(&mut self, id: &MsgId, refs: impl IntoIterator<Item = &'a MsgId>) {
        let mut seen = BTreeSet::new();
        for earlier in refs {
            assert!(self.ids.contains(earlier), "{id} refers to {earlier}, which was never sent");
            assert_eq!(earlier.task_id(), id.task_id(), "{id} refers to another task's");
            assert!(seen.insert(earlier), "{id} refers to {earlier} twice");
        }
        assert!(self.ids.insert(id.clone()), "{id} is sent twice");
    }

    pub(super) fn observe_effect(&mut self, effect: &Effect) {
        let Effect::SendAmp(intent) = effect else { return };
        self.intents.push((**intent).clone());
        match &**intent {
            AmpIntent::Dispatch(dispatch) => {
                self.check_new_message(&dispatch.id, &dispatch.refs);
                assert!(!dispatch.stories.is_empty(), "{dispatch:?}");
            }
            AmpIntent::Result(result) => {
                self.check_new_message(&result.id, &result.refs);
                assert_eq!(result.status == SubtaskCompletionStatus::Complete, result.failure.is_none(), "{result:?}");
                assert_eq!(result.status == SubtaskCompletionStatus::Complete, result.commit.is_some(), "{result:?}");
                assert_eq!(result.refs.len(), 1, "the dispatch");
                self.results.insert(result.id.clone(), result.status);
            }
            AmpIntent::ReviewRequest(request) => {
                self.check_new_message(&request.id, &request.refs);
                let review = &request.review;
                assert!(
                    self.ids.contains(&review.dispatch)
                        && review.dispatch.message_type() == AmpMessageType::TaskDispatch
                );
                assert_eq!(self.results.get(&review.result), Some(&SubtaskCompletionStatus::Complete), "{request:?}");
            }
            AmpIntent::Verdict { id, refs, .. } => {
                self.check_new_message(id, refs);
                assert_eq!(refs.len(), 1, "the request");
            }
            AmpIntent::Escalation { id, escalation, .. } => {
                let ok = &escalation.system_state_snapshot.last_successful_msg_id;
                assert!(ok.as_ref().is_none_or(|ok| self.ids.contains(ok)), "{escalation:?}");
                self.check_new_message(id, &escalation.affected_msgs);
                self.mark_covered(format!("{:?}", escalation.escalation_type));
            }
            AmpIntent::Ack { of, .. } => {
                assert!(self.ids.contains(of), "an ack of {of}, which was never sent");
                assert!(self.acked.insert(of.clone()), "{of} is acked twice");
            }
            AmpIntent::TaskUpdate(_) => {}
        }
    }

    /// A replay of the journal sends the same intents in the same order.
    pub(super) fn check_replay(&self, rig: &MachineHarness) {
        let mut machine = SwarmMachine::new(rig.machine.spec().clone());
        let mut intents = self.intents.iter();
        for (event, at) in &rig.journal {
            for effect in machine.handle(event, *at) {
                if let Effect::SendAmp(intent) = effect {
                    assert_eq!(intents.next(), Some(&*intent), "{event:?}");
                }
            }
        }
        assert_eq!(intents.next(), None);
    }
}
