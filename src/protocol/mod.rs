//! The protocols that agents speak, one folder each: `message.rs` (what can be said), `machine.rs` (what it means over
//! time), `store.rs` (where it lands), where it has them.

pub mod acp;
