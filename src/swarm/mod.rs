//! The pure core: what a swarm does, as a machine. Events in (`event.rs`), effects out (`effect.rs`), deadlines in between;
//! no I/O, no clock. `coordinator/` owns the one machine and is its only caller; `state/` replays a journal through it.
//!
//! The journal is the list of events that the machine was given, with their times: replaying them through a new machine of
//! the same [`SwarmSpec`] gives the same machine again. So every decision must follow from the spec, the events and their
//! times.
//!
//! `machine.rs` lists the rules: scheduling and slots, landing and bisection, reviews, timers. `swarm_outcome.rs` has how a swarm ends,
//! `spec.rs` its limits.
//!
//! To add an event: a variant in `event.rs`, its arm in `machine/events.rs`, a test in `machine/tests/`.

pub mod amp_intent;
pub mod announcement;
pub mod effect;
pub mod event;
mod index;
pub mod machine;
pub mod review_outcome;
pub mod spec;
pub mod swarm_outcome;

pub use amp_intent::AmpIntent;
pub use announcement::{Announcement, StoryRef};
pub use effect::{CandidateSpec, CheckSpec, CollectMode, Effect, MergeSpec};
pub use event::{
    CheckOutcome, CheckableCommit, CheckedCriteria, ContainerExit, Event, Leftover, MachineryFault, StopLevel,
    TaskAction, TaskDecision,
};
pub use machine::{
    AdminHold, AttemptPhase, AttemptRole, AttemptView, ContainerStatus, HoldKind, StoryProgress, StoryView,
    SwarmMachine,
};
pub use review_outcome::{ReviewFix, ReviewOutcome};
pub use spec::{
    AckTimeouts, AmpSpec, AssignmentSpec, LandingSpec, StorySpec, SwarmLimits, SwarmSpec, TasksFileSpec,
    default_liveness_timeout,
};
pub use swarm_outcome::SwarmOutcome;
