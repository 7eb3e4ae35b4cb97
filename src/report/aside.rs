//! Writing aside: a thread of its own writes, so that a reader that is slow, or stands still, holds nothing else up.
//!
//! Used by `json.rs` and `plain.rs`. Lines wait in memory, in their order, as long as they must. Must not: make its caller
//! wait but in [`Aside::close`], and there for [`DRAIN_LIMIT`] at most.

use std::io::{self, ErrorKind, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::Trouble;

/// How long the end waits for what is not written yet.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// What the thread needs.
const STACK: usize = 128 * 1024;

/// A writer on a thread of its own.
pub(super) struct Aside {
    /// Gone when it is closed.
    lines: Option<Sender<Vec<u8>>>,
    /// Hangs up when the last line is written.
    drained: Receiver<()>,
    trouble: Trouble,
    limit: Duration,
}

impl Aside {
    /// Writes to `writer`, and flushes it after each line. What goes wrong is noted in `trouble`; the lines after it are tried all the same.
    pub(super) fn new(mut writer: impl Write + Send + 'static, trouble: Trouble) -> Self {
        let (lines, queue) = channel::<Vec<u8>>();
        let (done, drained) = channel::<()>();
        let noted = trouble.clone();
        let write = move || {
            // Dropped when the thread ends, however it does.
            let _done = done;
            for line in queue {
                if let Err(error) = writer.write_all(&line).and_then(|()| writer.flush()) {
                    noted.note(error);
                }
            }
        };
        let thread = std::thread::Builder::new().name("report".to_owned()).stack_size(STACK).spawn(write);
        if let Err(error) = thread {
            trouble.note(error);
        }
        Self { lines: Some(lines), drained, trouble, limit: DRAIN_LIMIT }
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
            && self.drained.recv_timeout(self.limit) == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
        {
            self.trouble.note(io::Error::new(ErrorKind::TimedOut, "its reader stands still"));
        }
    }
}

impl Drop for Aside {
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
    pub(in crate::report) struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Kept {
        pub(in crate::report) fn text(&self) -> String {
            String::from_utf8(self.0.lock().expect("no panic").clone()).expect("UTF-8")
        }
    }

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Writes nothing before the other end is dropped.
    pub(in crate::report) struct Blocked(pub(in crate::report) Receiver<()>, pub(in crate::report) Kept);

    impl Write for Blocked {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            self.1.write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_goes_on_gets_all_lines_in_their_order() {
        let (go, blocked) = channel();
        let (kept, trouble) = (Kept::default(), Trouble::default());
        let mut aside = Aside::new(Blocked(blocked, kept.clone()), trouble.clone());
        let lines: Vec<String> = (0..1000).map(|number| format!("{number}\n")).collect();
        lines.iter().for_each(|line| aside.write(line.clone().into_bytes()));
        assert_eq!(kept.text(), "");
        drop(go);
        aside.close();
        assert_eq!(kept.text(), lines.concat());
        assert!(trouble.error().is_none());
    }

    #[test]
    fn one_that_stands_still_does_not_hold_the_end_up_and_is_told_of() {
        let (_go, blocked) = channel();
        let trouble = Trouble::default();
        let mut aside = Aside::new(Blocked(blocked, Kept::default()), trouble.clone());
        aside.limit = Duration::from_millis(50);
        aside.write(b"line\n".to_vec());
        let began = Instant::now();
        aside.close();
        assert!(began.elapsed() < Duration::from_secs(4));
        assert_eq!(trouble.error().map(io::Error::kind), Some(ErrorKind::TimedOut));
    }

    #[test]
    fn what_cannot_be_written_is_noted_by_the_end() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
        let trouble = Trouble::default();
        let mut aside = Aside::new(full, trouble.clone());
        aside.write(b"line\n".to_vec());
        aside.close();
        assert_eq!(trouble.error().map(io::Error::kind), Some(ErrorKind::StorageFull));
    }
}
