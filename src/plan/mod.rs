//! From tasks files to a plan.
