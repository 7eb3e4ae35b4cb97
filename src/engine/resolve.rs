//! Which engine: contexts, `DOCKER_HOST`.
