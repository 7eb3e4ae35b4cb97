//! Writes lines on a thread of its own, so that a slow or blocked reader delays nothing else.
//!
//! Used by `json.rs` and `plain.rs`. Lines wait in memory, in order. Must not: block its caller, except in
//! [`BackgroundWriter::close`], and there for [`DRAIN_TIMEOUT`] at most.

use std::io::{self, ErrorKind, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long `close` waits for lines that are not written yet.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
const THREAD_STACK_BYTES: usize = 128 * 1024;

/// The first failed write of a stream, if any. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct FirstWriteError(Arc<OnceLock<io::Error>>);

impl FirstWriteError {
    /// A closed pipe does not count.
    pub fn error(&self) -> Option<&io::Error> {
        self.0.get()
    }

    fn record(&self, error: io::Error) {
        if error.kind() != ErrorKind::BrokenPipe {
            let _ = self.0.set(error);
        }
    }
}

pub(super) struct BackgroundWriter {
    /// `None` once closed.
    lines: Option<Sender<Vec<u8>>>,
    /// Disconnects when the last line is written.
    drained: Receiver<()>,
    first_error: FirstWriteError,
    drain_timeout: Duration,
}

impl BackgroundWriter {
    /// Writes to `writer` and flushes it after each line. The first failure is recorded in `first_error`; later lines are still tried.
    pub(super) fn new(mut writer: impl Write + Send + 'static, first_error: FirstWriteError) -> Self {
        let (lines, queue) = channel::<Vec<u8>>();
        let (done, drained) = channel::<()>();
        let recorded = first_error.clone();
        let write = move || {
            // Dropped however the thread ends.
            let _done = done;
            for line in queue {
                if let Err(error) = writer.write_all(&line).and_then(|()| writer.flush()) {
                    recorded.record(error);
                }
            }
        };
        let thread = std::thread::Builder::new().name("report".to_owned()).stack_size(THREAD_STACK_BYTES).spawn(write);
        if let Err(error) = thread {
            first_error.record(error);
        }
        Self { lines: Some(lines), drained, first_error, drain_timeout: DRAIN_TIMEOUT }
    }

    /// Takes a line, with its newline. Never waits.
    pub(super) fn write(&mut self, line: Vec<u8>) {
        if let Some(lines) = &self.lines {
            // Without the thread the line is lost; that was recorded when the thread failed to start.
            let _ = lines.send(line);
        }
    }

    /// Waits until all lines are written, for [`DRAIN_TIMEOUT`] at most.
    pub(super) fn close(&mut self) {
        if self.lines.take().is_some()
            && self.drained.recv_timeout(self.drain_timeout) == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
        {
            self.first_error.record(io::Error::new(ErrorKind::TimedOut, "the reader has stopped reading"));
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
        let (output, first_error) = (CapturedLines::default(), FirstWriteError::default());
        let mut writer = BackgroundWriter::new(BlockingWriter(blocked, output.clone()), first_error.clone());
        let lines: Vec<String> = (0..1000).map(|number| format!("{number}\n")).collect();
        lines.iter().for_each(|line| writer.write(line.clone().into_bytes()));
        assert_eq!(output.text(), "");
        drop(go);
        writer.close();
        assert_eq!(output.text(), lines.concat());
        assert!(first_error.error().is_none());
    }

    #[test]
    fn close_times_out_on_a_blocked_writer_and_records_it() {
        let (_go, blocked) = channel();
        let first_error = FirstWriteError::default();
        let mut writer = BackgroundWriter::new(BlockingWriter(blocked, CapturedLines::default()), first_error.clone());
        writer.drain_timeout = Duration::from_millis(50);
        writer.write(b"line\n".to_vec());
        let began = Instant::now();
        writer.close();
        assert!(began.elapsed() < Duration::from_secs(4));
        assert_eq!(first_error.error().map(io::Error::kind), Some(ErrorKind::TimedOut));
    }

    #[test]
    fn write_errors_are_recorded_by_close() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
        let first_error = FirstWriteError::default();
        let mut writer = BackgroundWriter::new(full, first_error.clone());
        writer.write(b"line\n".to_vec());
        writer.close();
        assert_eq!(first_error.error().map(io::Error::kind), Some(ErrorKind::StorageFull));
    }
}
