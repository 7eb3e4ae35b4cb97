//! AMP in the coordinator: the machine's intents become messages, acks and task files of the SSOT.
//!
//! | file | content |
//! |---|---|
//! | `composer.rs` | composes messages from intents, the plan and the settings |
//! | `ssot_writer.rs` | writes them on a thread of its own |
//! | `escalation_listener.rs` | the interface of `notify/` |

pub(crate) mod composer;
pub(crate) mod escalation_listener;
pub(crate) mod ssot_writer;
