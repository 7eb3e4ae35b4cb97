//! The NDJSON codec: lines of at most 65,536 bytes, both ways.
