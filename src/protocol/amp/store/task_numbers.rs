//! Task numbers: a task's id is unique in the whole SSOT.
//!
//! `numbers/<year>` has the next free number of the year. It is written and synced under a lock before a number is returned.
//! Existing tasks count too, so that a lost file does no harm.

use crate::ids::AssignmentId;

use super::error::{SsotError, SsotResult};
use super::ssot::Ssot;

/// Ids have at most nine digits.
const MAX_TASK_NUMBER: u32 = 999_999_999;

impl Ssot {
    /// Allocates `count` task numbers of a year and returns the first. They start at 1.
    pub fn allocate_task_numbers(&self, year: u16, count: u32) -> SsotResult<u32> {
        let _lock = self.files.lock("numbers/lock")?;
        let path = self.files.path(format!("numbers/{year:04}"));
        let text = self.files.read(&path)?.unwrap_or_default();
        let recorded = std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1_u32);
        let first = recorded.max(self.highest_used_number(year)?.saturating_add(1));
        let next = first.checked_add(count).filter(|next| *next <= MAX_TASK_NUMBER + 1);
        let next = next.ok_or(SsotError::TaskNumbersExhausted { year, count })?;
        self.files.replace(&path, format!("{next}\n").as_bytes())?;
        self.files.sync()?;
        Ok(first)
    }

    fn highest_used_number(&self, year: u16) -> SsotResult<u32> {
        let prefix = format!("T-{year:04}-");
        let mut highest = 0;
        let tasks = self.files.file_names(&self.files.path("tasks"))?;
        for name in tasks.into_iter().chain(self.files.file_names(&self.files.path("messages"))?) {
            let id: Option<AssignmentId> = name.strip_suffix(".json").unwrap_or(&name).parse().ok();
            let number = id.and_then(|id| id.as_str().strip_prefix(&prefix)?.parse().ok());
            highest = highest.max(number.unwrap_or(0));
        }
        Ok(highest)
    }
}
