//! Everything before a sandbox runs. Called by `session.rs` and `effects.rs`.
//!
//! | file | content |
//! |---|---|
//! | `sandbox_spec.rs` | an attempt's files, container and task-request |
//! | `admission.rs` | delays starts while the engine is short of memory or disk |
//! | `objects_volume.rs` | keeps the objects volume complete |
//! | `review_diff.rs` | the diff under review, as a file |
//! | `create_container.rs` | creates the container |

pub(crate) mod admission;
pub(crate) mod create_container;
pub(crate) mod objects_volume;
pub(crate) mod review_diff;
pub(crate) mod sandbox_spec;
