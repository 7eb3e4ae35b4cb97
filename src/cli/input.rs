//! Reads a file, or standard input for `-`, up to a limit.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Whether `path` stands for standard input.
pub(crate) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Reads `path`, or standard input if it is `-`. Input longer than `limit` is cut to `limit + 1` bytes, so that the caller
/// can tell.
pub(crate) fn read_limited(path: impl AsRef<Path>, limit: usize) -> io::Result<Vec<u8>> {
    let path = path.as_ref();
    let mut bytes = Vec::new();
    let limit = limit as u64 + 1;
    if is_stdin(path) {
        io::stdin().lock().take(limit).read_to_end(&mut bytes)?;
    } else {
        File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_are_cut_one_byte_past_the_limit() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        std::fs::write(&path, "12345").expect("written");
        assert_eq!(read_limited(&path, 5).expect("read"), b"12345");
        assert_eq!(read_limited(&path, 3).expect("read"), b"1234");
        assert!(read_limited(dir.path().join("missing"), 3).is_err());
    }
}
