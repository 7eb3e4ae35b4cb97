//! Speaks to a depot.
