//! The rules of how sandboxes and swarms end, one by one.
