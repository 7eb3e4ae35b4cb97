//! Checks the whole SSOT: `longshore ssot check`, and tests after a swarm.
//!
//! Reads every file. Must not: repair anything ([`Ssot::rebuild_index`] repairs the index).

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::decisions::{AdminDecision, DecisionId};
use super::error::{SsotError, SsotResult};
use super::error_log::RejectedMessage;
use super::files::is_torn;
use super::ssot::{MEMORY_DIR, Ssot, id_mismatch};
use super::task_file::TaskFile;
use crate::ids::{AssignmentId, SwarmId};
use crate::protocol::amp::message::{Ack, AmpMessage, AmpMessageType, MsgId, Payload};
use crate::protocol::mesh::gram::{GramLimits, MemoryGram};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SsotProblem {
    /// Relative to the SSOT.
    pub path: PathBuf,
    pub severity: ProblemSeverity,
    /// A fragment.
    pub problem: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemSeverity {
    /// Possibly right: an overdue ack, a foreign file.
    Warning,
    Error,
}

struct SsotChecker<'s> {
    ssot: &'s Ssot,
    now: Timestamp,
    /// The valid messages, with the deadline of their acks.
    messages: HashMap<MsgId, Option<Timestamp>>,
    /// Referring message, field, referenced message.
    references: Vec<(MsgId, &'static str, MsgId)>,
    acks: HashSet<MsgId>,
    problems: Vec<SsotProblem>,
}

impl Ssot {
    /// All problems, by path. `now` decides which acks are overdue.
    pub fn check(&self, now: Timestamp) -> SsotResult<Vec<SsotProblem>> {
        let mut check = SsotChecker {
            ssot: self,
            now,
            messages: HashMap::new(),
            references: Vec::new(),
            acks: HashSet::new(),
            problems: Vec::new(),
        };
        let tasks = check.check_tasks()?;
        check.check_messages(&tasks)?;
        check.check_acks()?;
        check.check_references();
        check.check_overdue_acks();
        check.check_index()?;
        check.check_error_log()?;
        check.check_decisions()?;
        check.check_memory()?;
        check.problems.sort_by(|a, b| (&a.path, b.severity, &a.problem).cmp(&(&b.path, a.severity, &b.problem)));
        Ok(check.problems)
    }
}

impl SsotChecker<'_> {
    fn check_tasks(&mut self) -> SsotResult<HashSet<AssignmentId>> {
        let mut tasks = HashSet::new();
        for name in self.file_names("tasks")? {
            let path = format!("tasks/{name}");
            let Some(id) = name.strip_suffix(".json").and_then(|id| id.parse::<AssignmentId>().ok()) else {
                self.report_foreign(&path);
                continue;
            };
            if let Some(file) = self.read_json::<TaskFile>(&path)? {
                if file.task_id != id {
                    self.report_error(&path, format!("it is for task `{}`", file.task_id));
                }
                tasks.insert(id);
            }
        }
        Ok(tasks)
    }

    fn check_messages(&mut self, tasks: &HashSet<AssignmentId>) -> SsotResult<()> {
        for (task, names) in self.names_by_task("messages")? {
            if !tasks.contains(&task) {
                self.report_error(format!("messages/{task}"), "the task has no file in `tasks`");
            }
            for name in names {
                let path = format!("messages/{task}/{name}");
                let Some(id) = self.parse_file_id(&task, &name, &path) else { continue };
                let Some(text) = self.read_text(&path)? else { continue };
                match AmpMessage::parse(&text) {
                    Err(violation) => self.report_error(&path, violation),
                    Ok(message) if *message.id() != id => self.report_error(&path, id_mismatch(message.id())),
                    Ok(message) => self.add_message(message),
                }
            }
        }
        Ok(())
    }

    fn add_message(&mut self, message: AmpMessage) {
        let id = message.id();
        let mut refers = |field, to: &MsgId| self.references.push((id.clone(), field, to.clone()));
        message.context_ref().iter().for_each(|to| refers("context_ref", to));
        match message.payload() {
            Payload::ReviewRequest(request) => {
                refers("original_dispatch_ref", &request.original_dispatch_ref);
                refers("task_result_ref", &request.task_result_ref);
            }
            Payload::Escalation(escalation) => {
                escalation.affected_msgs.iter().for_each(|to| refers("affected_msgs", to));
                let last = &escalation.system_state_snapshot.last_successful_msg_id;
                last.iter().for_each(|to| refers("last_successful_msg_id", to));
            }
            Payload::TaskDispatch(_) | Payload::TaskResult(_) | Payload::ReviewVerdict(_) => {}
        }
        let due = message.ack_timeout().filter(|_| message.requires_ack());
        let due = due.and_then(|after| message.timestamp().checked_add(after).ok());
        self.messages.insert(id.clone(), due);
    }

    fn check_acks(&mut self) -> SsotResult<()> {
        for (task, names) in self.names_by_task("acks")? {
            for name in names {
                let path = format!("acks/{task}/{name}");
                let Some(id) = self.parse_file_id(&task, &name, &path) else { continue };
                let Some(text) = self.read_text(&path)? else { continue };
                match Ack::parse(&text) {
                    Err(violation) => self.report_error(&path, violation),
                    Ok(ack) if ack.ack_of != id => self.report_error(&path, id_mismatch(&ack.ack_of)),
                    Ok(ack) => {
                        // An unreadable message has a problem of its own already.
                        let message = self.ssot.message(&id).ok().flatten();
                        match message {
                            None if !self.messages.contains_key(&id) => {
                                self.report_error(&path, "there is no such message")
                            }
                            Some(message) if message.to() != ack.by => {
                                self.report_error(&path, "it is not by the message's receiver");
                            }
                            _ => {}
                        }
                        self.acks.insert(id);
                    }
                }
            }
        }
        Ok(())
    }

    fn check_references(&mut self) {
        for (from, field, to) in std::mem::take(&mut self.references) {
            if !self.messages.contains_key(&to) {
                self.report_error(
                    format!("messages/{}/{from}.json", from.task_id()),
                    format!("`{field}` names `{to}`, which does not exist"),
                );
            }
        }
    }

    fn check_overdue_acks(&mut self) {
        let overdue = self.messages.iter().filter(|(id, _)| !self.acks.contains(*id));
        let overdue = overdue.filter_map(|(id, due)| due.filter(|due| *due < self.now).map(|due| (id.clone(), due)));
        for (id, due) in overdue.collect::<Vec<_>>() {
            let seconds = self.now.duration_since(due).as_secs();
            let path = format!("messages/{}/{id}.json", id.task_id());
            self.report(path, ProblemSeverity::Warning, format!("its ack is overdue by {seconds} s"));
        }
    }

    fn check_index(&mut self) -> SsotResult<()> {
        let markers: HashSet<MsgId> = self.ssot.open_markers()?.into_iter().collect();
        let open = self
            .messages
            .keys()
            .filter(|id| id.message_type() == AmpMessageType::Escalation && !self.acks.contains(*id));
        let missing: Vec<MsgId> = open.filter(|id| !markers.contains(*id)).cloned().collect();
        for id in missing {
            self.report_error(format!("index/open/{id}"), "it is missing, and the escalation is open");
        }
        for id in markers {
            if self.acks.contains(&id) {
                self.report(format!("index/open/{id}"), ProblemSeverity::Warning, "the escalation is answered");
            }
        }
        Ok(())
    }

    fn check_error_log(&mut self) -> SsotResult<()> {
        for name in self.file_names("errors")? {
            let path = format!("errors/{name}");
            let bytes = self.ssot.files.read(&self.ssot.files.path(&path))?.unwrap_or_default();
            for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty()) {
                if let Err(error) = serde_json::from_slice::<RejectedMessage>(line) {
                    self.report(&path, ProblemSeverity::Warning, format!("line {}: {error}", number + 1));
                }
            }
        }
        Ok(())
    }

    fn check_decisions(&mut self) -> SsotResult<()> {
        let mut ids: HashSet<DecisionId> = HashSet::new();
        for dir in self.file_names("decisions")? {
            let Ok(swarm) = dir.parse::<SwarmId>() else {
                if dir != "lock" {
                    self.report_foreign(format!("decisions/{dir}"));
                }
                continue;
            };
            for name in self.file_names(&format!("decisions/{swarm}"))? {
                let path = format!("decisions/{swarm}/{name}");
                let Some(decision) = self.read_json::<AdminDecision>(&path)? else { continue };
                if decision.swarm != swarm {
                    self.report_error(&path, format!("it is for swarm `{}`", decision.swarm));
                }
                if !ids.insert(decision.id) {
                    self.report_error(&path, "another decision has the same id");
                }
            }
        }
        Ok(())
    }

    fn check_memory(&mut self) -> SsotResult<()> {
        for dir in self.file_names(MEMORY_DIR)? {
            let Ok(swarm) = dir.parse::<SwarmId>() else {
                self.report_foreign(format!("{MEMORY_DIR}/{dir}"));
                continue;
            };
            for name in self.file_names(&format!("{MEMORY_DIR}/{swarm}"))? {
                let path = format!("{MEMORY_DIR}/{swarm}/{name}");
                let Some(value) = self.read_json::<serde_json::Value>(&path)? else { continue };
                if let Err(error) = MemoryGram::from_json(&value, &GramLimits::default()) {
                    self.report_error(&path, error);
                }
            }
        }
        Ok(())
    }

    /// The file names in each task's directory.
    fn names_by_task(&mut self, dir: &str) -> SsotResult<Vec<(AssignmentId, Vec<String>)>> {
        let mut found = Vec::new();
        for name in self.file_names(dir)? {
            match name.parse::<AssignmentId>() {
                Ok(task) => {
                    let names = self.file_names(&format!("{dir}/{task}"))?;
                    found.push((task, names));
                }
                Err(_) => self.report_foreign(format!("{dir}/{name}")),
            }
        }
        Ok(found)
    }

    fn parse_file_id(&mut self, task: &AssignmentId, name: &str, path: &str) -> Option<MsgId> {
        let id = name.strip_suffix(".json").and_then(|id| id.parse::<MsgId>().ok()).filter(|id| id.task_id() == task);
        if id.is_none() {
            self.report_foreign(path);
        }
        id
    }

    fn file_names(&self, dir: &str) -> SsotResult<Vec<String>> {
        let mut names = self.ssot.files.file_names(&self.ssot.files.path(dir))?;
        names.sort();
        Ok(names)
    }

    /// The text of a file, unless it is torn.
    fn read_text(&mut self, path: &str) -> SsotResult<Option<String>> {
        let bytes = self.ssot.files.read(&self.ssot.files.path(path))?;
        let text = bytes.filter(|bytes| !is_torn(bytes)).and_then(|bytes| String::from_utf8(bytes).ok());
        if text.is_none() {
            self.report_error(path, "it is torn: not complete JSON");
        }
        Ok(text)
    }

    fn read_json<T: serde::de::DeserializeOwned>(&mut self, path: &str) -> SsotResult<Option<T>> {
        match self.ssot.files.read_json(&self.ssot.files.path(path)) {
            Ok(Some(value)) => return Ok(Some(value)),
            Ok(None) => self.report_error(path, "it is torn: not complete JSON"),
            Err(SsotError::Damaged { problem, .. }) => self.report_error(path, problem),
            Err(error) => return Err(error),
        }
        Ok(None)
    }

    fn report_foreign(&mut self, path: impl AsRef<Path>) {
        self.report(path, ProblemSeverity::Warning, "it is not a file of longshore");
    }

    fn report_error(&mut self, path: impl AsRef<Path>, problem: impl ToString) {
        self.report(path, ProblemSeverity::Error, problem);
    }

    fn report(&mut self, path: impl AsRef<Path>, severity: ProblemSeverity, problem: impl ToString) {
        self.problems.push(SsotProblem { path: path.as_ref().to_owned(), severity, problem: problem.to_string() });
    }
}
