//! Random swarms.
