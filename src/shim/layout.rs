//! The paths of [`handoff::layout`](crate::handoff::layout) below a root that tests can choose. Must not: access the disk.

use std::path::{Path, PathBuf};

use crate::handoff::layout;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
}

impl Default for Layout {
    fn default() -> Self {
        Self::with_root(layout::ROOT)
    }
}

impl Layout {
    /// Volumes below `root`, which is [`layout::ROOT`] in a container.
    pub fn with_root(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn resolve(&self, absolute: &str) -> PathBuf {
        let relative =
            Path::new(absolute).strip_prefix(layout::ROOT).expect("every path of the layout is below its root");
        self.root.join(relative)
    }

    pub fn objects_volume(&self) -> PathBuf {
        self.resolve(layout::OBJECTS)
    }

    pub fn objects_repo(&self) -> PathBuf {
        self.resolve(layout::OBJECTS_REPO)
    }

    pub fn bin_dir(&self) -> PathBuf {
        self.resolve(layout::BIN)
    }

    pub fn in_volume(&self) -> PathBuf {
        self.resolve(layout::IN)
    }

    pub fn work_volume(&self) -> PathBuf {
        self.resolve(layout::WORK)
    }

    pub fn mailbox_volume(&self) -> PathBuf {
        self.resolve(layout::MAILBOX)
    }

    pub fn assignment_file(&self, attempt_dir: &str) -> PathBuf {
        self.in_volume().join(attempt_dir).join(layout::ASSIGNMENT_FILE)
    }

    pub fn dispatch_file(&self, attempt_dir: &str) -> PathBuf {
        self.in_volume().join(attempt_dir).join(layout::DISPATCH_FILE)
    }

    pub fn memory_dir(&self, attempt_dir: &str) -> PathBuf {
        self.work_volume().join(attempt_dir).join(layout::MEMORY_DIR)
    }

    /// The tasks file with this path relative to the repo.
    pub fn tasks_file(&self, attempt_dir: &str, relative: &str) -> PathBuf {
        self.in_volume().join(attempt_dir).join(layout::TASKS_DIR).join(relative)
    }

    pub fn repo_dir(&self, attempt_dir: &str) -> PathBuf {
        self.work_volume().join(attempt_dir).join(layout::REPO_DIR)
    }

    pub fn run_dir(&self, attempt_dir: &str) -> PathBuf {
        self.work_volume().join(attempt_dir).join(layout::RUN_DIR)
    }

    pub fn socket_path(&self, attempt_dir: &str) -> PathBuf {
        self.run_dir(attempt_dir).join(layout::SOCKET_FILE)
    }

    pub fn out_dir(&self, attempt_dir: &str) -> PathBuf {
        self.work_volume().join(attempt_dir).join(layout::OUT_DIR)
    }
}
