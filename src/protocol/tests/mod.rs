//! What the tests of several protocols share.

pub(in crate::protocol) mod golden;
