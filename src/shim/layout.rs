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
        Self::at(layout::ROOT)
    }
}

impl Layout {
    /// The volumes below this folder; [`layout::ROOT`] in a container.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn below(&self, absolute: &str) -> PathBuf {
        let relative =
            Path::new(absolute).strip_prefix(layout::ROOT).expect("every path of the layout is below its root");
        self.root.join(relative)
    }

    /// The objects volume.
    pub fn objects(&self) -> PathBuf {
        self.below(layout::OBJECTS)
    }

    /// The bare repository whose objects the clones borrow.
    pub fn objects_repo(&self) -> PathBuf {
        self.below(layout::OBJECTS_REPO)
    }

    /// The folder of the shim itself.
    pub fn bin(&self) -> PathBuf {
        self.below(layout::BIN)
    }

    /// The *in* volume.
    pub fn inbox(&self) -> PathBuf {
        self.below(layout::IN)
    }

    /// The *work* volume.
    pub fn work(&self) -> PathBuf {
        self.below(layout::WORK)
    }

    /// The *mailbox* volume.
    pub fn mailbox(&self) -> PathBuf {
        self.below(layout::MAILBOX)
    }

    /// `IN/<folder>/assignment.json`.
    pub fn assignment(&self, folder: &str) -> PathBuf {
        self.inbox().join(folder).join(layout::ASSIGNMENT_FILE)
    }

    /// `IN/<folder>/dispatch.json`.
    pub fn dispatch(&self, folder: &str) -> PathBuf {
        self.inbox().join(folder).join(layout::DISPATCH_FILE)
    }

    /// What a story is given to remember.
    pub fn memory(&self, folder: &str) -> PathBuf {
        self.work().join(folder).join(layout::MEMORY_DIR)
    }

    /// The tasks file with this relative path, as delivered.
    pub fn tasks_file(&self, folder: &str, relative: &str) -> PathBuf {
        self.inbox().join(folder).join(layout::TASKS_DIR).join(relative)
    }

    /// The clone.
    pub fn repo(&self, folder: &str) -> PathBuf {
        self.work().join(folder).join(layout::REPO_DIR)
    }

    /// The folder of the socket and of the prompts.
    pub fn run(&self, folder: &str) -> PathBuf {
        self.work().join(folder).join(layout::RUN_DIR)
    }

    /// The socket of the subcommands.
    pub fn socket(&self, folder: &str) -> PathBuf {
        self.run(folder).join(layout::SOCKET)
    }

    /// What comes out.
    pub fn out(&self, folder: &str) -> PathBuf {
        self.work().join(folder).join(layout::OUT_DIR)
    }
}
