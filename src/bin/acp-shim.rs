//! acp-shim.
fn main() {}
