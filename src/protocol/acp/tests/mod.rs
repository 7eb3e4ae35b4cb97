//! Tests of ACP: golden files, encoder, sessions and URLs.

mod encode;
mod golden;
mod machine;
mod urls;
