//! What must hold of all that is said in AMP.

use std::collections::{BTreeMap, BTreeSet};

use super::super::*;
use crate::protocol::amp::message::{CompletionStatus as Came, Kind, MsgId};
use crate::swarm::word::Word;

/// What was said, and what that had of interest.
#[derive(Default)]
pub(super) struct Said {
    pub(super) words: Vec<Word>,
    ids: BTreeSet<MsgId>,
    acked: BTreeSet<MsgId>,
    results: BTreeMap<MsgId, Came>,
    pub(super) met: BTreeSet<String>,
}

impl Said {
    pub(super) fn meet(&mut self, what: String) {
        self.met.insert(what);
    }

    /// A new message, and those that it refers to.
    fn told<'a>(&mut self, id: &MsgId, refs: impl IntoIterator<Item = &'a MsgId>) {
        let mut seen = BTreeSet::new();
        for earlier in refs {
            assert!(self.ids.contains(earlier), "{id} refers to {earlier}, which nobody said");
            assert_eq!(earlier.task(), id.task(), "{id} refers to another task's");
            assert!(seen.insert(earlier), "{id} refers to {earlier} twice");
        }
        assert!(self.ids.insert(id.clone()), "{id} is told twice");
    }

    pub(super) fn hear(&mut self, effect: &Effect) {
        let Effect::Tell(word) = effect else { return };
        self.words.push((**word).clone());
        match &**word {
            Word::Dispatch(dispatch) => {
                self.told(&dispatch.id, &dispatch.refs);
                assert!(!dispatch.stories.is_empty(), "{dispatch:?}");
            }
            Word::Result(end) => {
                self.told(&end.id, &end.refs);
                assert_eq!(end.status == Came::Complete, end.failure.is_none(), "{end:?}");
                assert_eq!(end.status == Came::Complete, end.commit.is_some(), "{end:?}");
                assert_eq!(end.refs.len(), 1, "the dispatch");
                self.results.insert(end.id.clone(), end.status);
            }
            Word::Request(request) => {
                self.told(&request.id, &request.refs);
                let review = &request.review;
                assert!(self.ids.contains(&review.dispatch) && review.dispatch.kind() == Kind::TaskDispatch);
                assert_eq!(self.results.get(&review.result), Some(&Came::Complete), "{request:?}");
            }
            Word::Verdict { id, refs, .. } => {
                self.told(id, refs);
                assert_eq!(refs.len(), 1, "the request");
            }
            Word::Escalation { id, escalation, .. } => {
                let ok = &escalation.system_state_snapshot.last_successful_msg_id;
                assert!(ok.as_ref().is_none_or(|ok| self.ids.contains(ok)), "{escalation:?}");
                self.told(id, &escalation.affected_msgs);
                self.meet(format!("{:?}", escalation.escalation_type));
            }
            Word::Ack { of, .. } => {
                assert!(self.ids.contains(of), "an ack of {of}, which nobody said");
                assert!(self.acked.insert(of.clone()), "{of} is acked twice");
            }
            Word::Task(_) => {}
        }
    }

    /// The journal, read again, says the same words in the same order.
    pub(super) fn again(&self, rig: &Rig) {
        let mut machine = Machine::new(rig.machine.spec().clone());
        let mut words = self.words.iter();
        for (event, at) in &rig.journal {
            for effect in machine.handle(event, *at) {
                if let Effect::Tell(word) = effect {
                    assert_eq!(words.next(), Some(&*word), "{event:?}");
                }
            }
        }
        assert_eq!(words.next(), None);
    }
}
