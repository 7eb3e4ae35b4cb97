//! The depot over pipes.
