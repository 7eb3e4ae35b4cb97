//! Tests of `multipart.rs`.
