//! Writing aside: a thread of its own writes, so that a reader that is slow, or stands still, holds nothing else up.
//!
//! Used by `json.rs` and `plain.rs`. Lines wait in memory, in their order, as long as they must. Must not: make its caller
//! wait but in [`BackgroundWriter::close`], and there for [`DRAIN_TIMEOUT`] at most.

use std::io::{self, ErrorKind, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::FirstWriteError;

/// How long the end waits for what is not written yet.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// What the thread needs.
const THREAD_STACK_BYTES: usize = 128 * 1024;

/// A writer on a thread of its own.
pub(super) struct BackgroundWriter {
    /// Gone when it is closed.
    lines: Option<Sender<Vec<u8>>>,
    /// Hangs up when the last line is written.
    drained: Receiver<()>,
    first_error: FirstWriteError,
    drain_timeout: Duration,
}

impl BackgroundWriter {
    /// Writes to `writer`, and flushes it after each line. What goes wrong is noted in `trouble`; the lines after it are tried all the same.
    pub(super) fn new(mut writer: impl Write + Send + 'static, trouble: FirstWriteError) -> Self {
        let (lines, queue) = channel::<Vec<u8>>();
        let (done, drained) = channel::<()>();
        let noted = trouble.clone();
        let write = move || {
            // Dropped when the thread ends, however it does.
            let _done = done;
            for line in queue {
                if let Err(error) = writer.write_all(&line).and_then(|()| writer.flush()) {
                    noted.record(error);
                }
            }
        };
        let thread = std::thread::Builder::new().name("report".to_owned()).stack_size(THREAD_STACK_BYTES).spawn(write);
        if let Err(error) = thread {
            trouble.record(error);
        }
        Self { lines: Some(lines), drained, first_error: trouble, drain_timeout: DRAIN_TIMEOUT }
    }

    /// Takes a line, with its newline. Never waits.
    pub(super) fn write(&mut self, line: Vec<u8>) {
        if let Some(lines) = &self.lines {
            // Without its thread all is lost, and that is noted.
            let _ = lines.send(line);
        }
    }

    /// Waits until all is written, but not for long.
    pub(super) fn close(&mut self) {
        if self.lines.take().is_some()
            && self.drained.recv_timeout(self.drain_timeout) == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
        {
            self.first_error.record(io::Error::new(ErrorKind::TimedOut, "its reader stands still"));
        }
    }
}

impl Drop for BackgroundWriter {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Instant;

    use super::*;

    /// Keeps what is written.
    #[derive(Clone, Default)]
    pub(in crate::report) struct CapturedLines(Arc<Mutex<Vec<u8>>>);

    impl CapturedLines {
        pub(in crate::report) fn text(&self) -> String {
            String::from_utf8(self.0.lock().expect("no panic").clone()).expect("UTF-8")
        }
    }

    impl Write for CapturedLines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Writes nothing before the other end is dropped.
    pub(in crate::report) struct BlockingWriter(
        pub(in crate::report) Receiver<()>,
        pub(in crate::report) CapturedLines,
    );

    impl Write for BlockingWriter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            self.1.write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn all_lines_are_written_in_order() {
        let (go, blocked) = channel();
        let (kept, trouble) = (CapturedLines::default(), FirstWriteError::default());
        let mut aside = BackgroundWriter::new(BlockingWriter(blocked, kept.clone()), trouble.clone());
        let lines: Vec<String> = (0..1000).map(|number| format!("{number}\n")).collect();
        lines.iter().for_each(|line| aside.write(line.clone().into_bytes()));
        assert_eq!(kept.text(), "");
        drop(go);
        aside.close();
        assert_eq!(kept.text(), lines.concat());
        assert!(trouble.error().is_none());
    }

    #[test]
    fn close_times_out_on_a_blocked_writer_and_records_it() {
        let (_go, blocked) = channel();
        let trouble = FirstWriteError::default();
        let mut aside = BackgroundWriter::new(BlockingWriter(blocked, CapturedLines::default()), trouble.clone());
        aside.drain_timeout = Duration::from_millis(50);
        aside.write(b"line\n".to_vec());
        let began = Instant::now();
        aside.close();
        assert!(began.elapsed() < Duration::from_secs(4));
        assert_eq!(trouble.error().map(io::Error::kind), Some(ErrorKind::TimedOut));
    }

    #[test]
    fn write_errors_are_recorded_by_close() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
        let trouble = FirstWriteError::default();
        let mut aside = BackgroundWriter::new(full, trouble.clone());
        aside.write(b"line\n".to_vec());
        aside.close();
        assert_eq!(trouble.error().map(io::Error::kind), Some(ErrorKind::StorageFull));
    }
}
