//! Task numbers: a task's id is its own in the whole SSOT, whichever swarm has it.
//!
//! `numbers/<year>` has the next free number of that year. It is written and synced under a lock before a number is given
//! out, and what is there already counts, if it says more: a lost file costs nothing but what was never used.

use crate::ids::AssignmentId;

use super::Ssot;
use super::error::{SsotError, SsotResult};

/// Ids have at most nine digits.
const MAX_TASK_NUMBER: u32 = 999_999_999;

impl Ssot {
    /// The first of `count` task numbers of a year that nobody else has, and nobody else will get. From 1.
    pub fn allocate_task_numbers(&self, year: u16, count: u32) -> SsotResult<u32> {
        let _lock = self.files.lock("numbers/lock")?;
        let path = self.files.path(format!("numbers/{year:04}"));
        let text = self.files.read(&path)?.unwrap_or_default();
        let noted = std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1_u32);
        let first = noted.max(self.highest_used_number(year)?.saturating_add(1));
        let next = first.checked_add(count).filter(|next| *next <= MAX_TASK_NUMBER + 1);
        let next = next.ok_or(SsotError::TaskNumbersExhausted { year, count })?;
        self.files.replace(&path, format!("{next}\n").as_bytes())?;
        self.files.sync()?;
        Ok(first)
    }

    fn highest_used_number(&self, year: u16) -> SsotResult<u32> {
        let begin = format!("T-{year:04}-");
        let mut highest = 0;
        let tasks = self.files.file_names(&self.files.path("tasks"))?;
        for name in tasks.into_iter().chain(self.files.file_names(&self.files.path("messages"))?) {
            let id: Option<AssignmentId> = name.strip_suffix(".json").unwrap_or(&name).parse().ok();
            let number = id.and_then(|id| id.as_str().strip_prefix(&begin)?.parse().ok());
            highest = highest.max(number.unwrap_or(0));
        }
        Ok(highest)
    }
}
