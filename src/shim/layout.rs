//! The paths of [`handoff::layout`](crate::handoff::layout) below a root that tests can choose.
//!
//! Used by everything in `shim/`. Must not: touch the disk.

use std::path::{Path, PathBuf};

use crate::handoff::layout;

/// Where the three volumes are mounted.
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
    /// The volumes below this folder; [`layout::ROOT`] in a container.
    pub fn with_root(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn resolve(&self, absolute: &str) -> PathBuf {
        let relative =
            Path::new(absolute).strip_prefix(layout::ROOT).expect("every path of the layout is below its root");
        self.root.join(relative)
    }

    /// The objects volume.
    pub fn objects_volume(&self) -> PathBuf {
        self.resolve(layout::OBJECTS)
    }

    /// The bare repository whose objects the clones borrow.
    pub fn objects_repo(&self) -> PathBuf {
        self.resolve(layout::OBJECTS_REPO)
    }

    /// The folder of the shim itself.
    pub fn bin_dir(&self) -> PathBuf {
        self.resolve(layout::BIN)
    }

    /// The *in* volume.
    pub fn in_volume(&self) -> PathBuf {
        self.resolve(layout::IN)
    }

    /// The *work* volume.
    pub fn work_volume(&self) -> PathBuf {
        self.resolve(layout::WORK)
    }

    /// The *mailbox* volume.
    pub fn mailbox_volume(&self) -> PathBuf {
        self.resolve(layout::MAILBOX)
    }

    /// `IN/<folder>/assignment.json`.
    pub fn assignment_file(&self, folder: &str) -> PathBuf {
        self.in_volume().join(folder).join(layout::ASSIGNMENT_FILE)
    }

    /// `IN/<folder>/dispatch.json`.
    pub fn dispatch_file(&self, folder: &str) -> PathBuf {
        self.in_volume().join(folder).join(layout::DISPATCH_FILE)
    }

    /// What a story is given to remember.
    pub fn memory_dir(&self, folder: &str) -> PathBuf {
        self.work_volume().join(folder).join(layout::MEMORY_DIR)
    }

    /// The tasks file with this relative path, as delivered.
    pub fn tasks_file(&self, folder: &str, relative: &str) -> PathBuf {
        self.in_volume().join(folder).join(layout::TASKS_DIR).join(relative)
    }

    /// The clone.
    pub fn repo_dir(&self, folder: &str) -> PathBuf {
        self.work_volume().join(folder).join(layout::REPO_DIR)
    }

    /// The folder of the socket and of the prompts.
    pub fn run_dir(&self, folder: &str) -> PathBuf {
        self.work_volume().join(folder).join(layout::RUN_DIR)
    }

    /// The socket of the subcommands.
    pub fn socket_path(&self, folder: &str) -> PathBuf {
        self.run_dir(folder).join(layout::SOCKET_FILE)
    }

    /// What comes out.
    pub fn out_dir(&self, folder: &str) -> PathBuf {
        self.work_volume().join(folder).join(layout::OUT_DIR)
    }
}
