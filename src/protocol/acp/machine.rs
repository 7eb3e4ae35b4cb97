//! ACP over time.
