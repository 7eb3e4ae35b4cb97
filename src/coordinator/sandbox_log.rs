//! A sandbox's log: its stderr in a bounded file, and the last lines as evidence. Used by `output_reader.rs`. Must not: fail or wait
//! because of the disk; a reader that stops blocks the sandbox.

use std::collections::VecDeque;
use std::io::Write as _;
use std::path::Path;

use jiff::Timestamp;

use crate::ids::AttemptId;

/// The lines of stderr that are kept as evidence, and the characters of each.
const TAIL_LINES: usize = 50;
const TAIL_CHARS: usize = 500;
/// The size limit of a log file. Later output is read and dropped.
const MAX_LOG_BYTES: u64 = 64 * 1024 * 1024;

pub(super) struct SandboxLog {
    file: Option<std::fs::File>,
    bytes_written: u64,
    lines: VecDeque<String>,
    partial: Vec<u8>,
}

impl SandboxLog {
    pub fn open(path: &Path, attempt: &AttemptId) -> Self {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        if let Err(error) = &file {
            tracing::warn!(path = %path.display(), %error, "cannot write a sandbox's log");
        }
        let mut log = Self { file: file.ok(), bytes_written: 0, lines: VecDeque::new(), partial: Vec::new() };
        log.note(&format!("{attempt} begins"));
        log
    }

    /// Writes a line of longshore itself.
    pub fn note(&mut self, text: &str) {
        let line = format!("[longshore {:.0}] {text}\n", Timestamp::now());
        self.append(line.as_bytes());
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.append(bytes);
        for &byte in bytes {
            if byte == b'\n' {
                self.close_line();
            } else if self.partial.len() < TAIL_CHARS * 4 {
                self.partial.push(byte);
            }
        }
    }

    fn append(&mut self, bytes: &[u8]) {
        let Some(file) = &mut self.file else { return };
        self.bytes_written += bytes.len() as u64;
        let result = if self.bytes_written > MAX_LOG_BYTES {
            let text = format!("\n[longshore] the log is cut here: over {MAX_LOG_BYTES} bytes\n");
            let last = file.write_all(text.as_bytes());
            self.file = None;
            last
        } else {
            file.write_all(bytes)
        };
        if let Err(error) = result {
            tracing::warn!(%error, "cannot write a sandbox's log; continuing without it");
            self.file = None;
        }
    }

    fn close_line(&mut self) {
        let text: String = String::from_utf8_lossy(&self.partial).chars().take(TAIL_CHARS).collect();
        self.partial.clear();
        if self.lines.len() == TAIL_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(text);
    }

    pub fn tail(mut self) -> Vec<String> {
        if !self.partial.is_empty() {
            self.close_line();
        }
        self.lines.into()
    }
}
