//! longshore.
fn main() {}
