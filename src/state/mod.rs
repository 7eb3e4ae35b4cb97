//! What is kept on disk of a swarm.
