//! What the user sees of a swarm: while it runs ([`Reporter`]) and when it is over (`summary.rs`, `report_file.rs`).
//!
//! [`Announcement`](crate::swarm::Announcement) -> `report_line.rs` (a sentence) -> `plain.rs` (a line an event) or `progress.rs`
//! (bars, the only user of indicatif); or -> `event.rs` (the versioned wire form) -> `json.rs`. Lines are written on a thread of
//! their own (`background_writer.rs`). Called by `cli/` (chooses the mode, prints the summary) and by `coordinator/` (announces).
//! Must not: fail a swarm. A closed terminal, or a full disk under a redirected output, loses lines and nothing else; the end of
//! the swarm reports that events were lost ([`FirstWriteError`]).

mod background_writer;
pub mod event;
pub mod json;
pub mod plain;
pub mod progress;
pub mod report_file;
pub mod report_line;
mod report_mode;
mod reporter;
pub mod story_labels;
pub mod summary;
pub mod table;
pub mod text;
mod text_style;

pub use background_writer::FirstWriteError;
pub use report_mode::{ReportMode, new_reporter};
pub use reporter::Reporter;
pub use story_labels::StoryLabels;
pub use text_style::TextStyle;
