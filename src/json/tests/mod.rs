//! Tests of the JSON tree and its parser.

mod deserialize;
pub(crate) mod parser;
