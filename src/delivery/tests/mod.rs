//! Support for the tests of `delivery/`: repositories in temporary directories, and the clock beside real processes.

pub(super) mod landing_repo;
pub(super) mod paused_clock;
pub(super) mod scratch_repo;
