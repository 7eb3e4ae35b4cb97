//! Continuing after an orchestrator or the engine was away.
//!
//! | file | content |
//! |---|---|
//! | `resume.rs` | which sandboxes of a resumed swarm are adopted |
//! | `reconcile.rs` | what the engine has against what the machine knows |
//! | `rescue.rs` | saves the work of a dead swarm, for `longshore gc` |

pub(crate) mod reconcile;
pub(crate) mod rescue;
pub(crate) mod resume;
