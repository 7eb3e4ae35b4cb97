//! Docker, through bollard.
