//! The repo in, the commits out.
