//! Whether all of the SSOT is sound: `longshore ssot check`, and tests after a swarm.
//!
//! Reads every file. Must not: mend anything ([`Ssot::reindex`] mends the index).

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::error::SsotResult;
use super::files::torn;
use super::memory::MEMORY;
use super::{AdminDecision, DecisionId, Refused, Ssot, SsotError, TaskFile, other_id};
use crate::ids::{AssignmentId, SwarmId};
use crate::protocol::amp::message::{Ack, Kind, Message, MsgId, Payload};
use crate::protocol::mesh::gram::{GramLimits, MemoryGram};

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where: a path below the SSOT's folder.
    pub path: PathBuf,
    /// How bad it is.
    pub weight: Weight,
    /// What is wrong, as a fragment.
    pub problem: String,
}

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// It may be right: an ack that is overdue, a file of somebody else's.
    Warning,
    /// It must not be.
    Error,
}

/// What was found so far.
struct Check<'s> {
    ssot: &'s Ssot,
    now: Timestamp,
    /// The messages that read well: their ids, and to what time they are to be acknowledged.
    messages: HashMap<MsgId, Option<Timestamp>>,
    /// What refers to what.
    references: Vec<(MsgId, &'static str, MsgId)>,
    acks: HashSet<MsgId>,
    problems: Vec<Problem>,
}

impl Ssot {
    /// Everything that is wrong, by path. `now` tells which acks are overdue.
    pub fn check(&self, now: Timestamp) -> SsotResult<Vec<Problem>> {
        let mut check = Check {
            ssot: self,
            now,
            messages: HashMap::new(),
            references: Vec::new(),
            acks: HashSet::new(),
            problems: Vec::new(),
        };
        let tasks = check.tasks()?;
        check.messages(&tasks)?;
        check.acks()?;
        check.references();
        check.overdue();
        check.index()?;
        check.errors()?;
        check.decisions()?;
        check.memory()?;
        check.problems.sort_by(|a, b| (&a.path, b.weight, &a.problem).cmp(&(&b.path, a.weight, &b.problem)));
        Ok(check.problems)
    }
}

impl Check<'_> {
    fn tasks(&mut self) -> SsotResult<HashSet<AssignmentId>> {
        let mut tasks = HashSet::new();
        for name in self.names("tasks")? {
            let path = format!("tasks/{name}");
            let Some(id) = name.strip_suffix(".json").and_then(|id| id.parse::<AssignmentId>().ok()) else {
                self.foreign(&path);
                continue;
            };
            if let Some(file) = self.json::<TaskFile>(&path)? {
                if file.task_id != id {
                    self.error(&path, format!("it is of task `{}`", file.task_id));
                }
                tasks.insert(id);
            }
        }
        Ok(tasks)
    }

    fn messages(&mut self, tasks: &HashSet<AssignmentId>) -> SsotResult<()> {
        for (task, names) in self.by_task("messages")? {
            if !tasks.contains(&task) {
                self.error(format!("messages/{task}"), "the task has no file in `tasks`");
            }
            for name in names {
                let path = format!("messages/{task}/{name}");
                let Some(id) = self.id_of(&task, &name, &path) else { continue };
                let Some(text) = self.text(&path)? else { continue };
                match Message::read(&text) {
                    Err(violation) => self.error(&path, violation),
                    Ok(message) if *message.id() != id => self.error(&path, other_id(message.id())),
                    Ok(message) => self.take(message),
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, message: Message) {
        let id = message.id();
        let mut refers = |field, to: &MsgId| self.references.push((id.clone(), field, to.clone()));
        message.context_ref().iter().for_each(|to| refers("context_ref", to));
        match message.payload() {
            Payload::Request(request) => {
                refers("original_dispatch_ref", &request.original_dispatch_ref);
                refers("task_result_ref", &request.task_result_ref);
            }
            Payload::Escalation(escalation) => {
                escalation.affected_msgs.iter().for_each(|to| refers("affected_msgs", to));
                let last = &escalation.system_state_snapshot.last_successful_msg_id;
                last.iter().for_each(|to| refers("last_successful_msg_id", to));
            }
            Payload::Dispatch(_) | Payload::Result(_) | Payload::Verdict(_) => {}
        }
        let due = message.ack_timeout().filter(|_| message.requires_ack());
        let due = due.and_then(|after| message.at().checked_add(after).ok());
        self.messages.insert(id.clone(), due);
    }

    fn acks(&mut self) -> SsotResult<()> {
        for (task, names) in self.by_task("acks")? {
            for name in names {
                let path = format!("acks/{task}/{name}");
                let Some(id) = self.id_of(&task, &name, &path) else { continue };
                let Some(text) = self.text(&path)? else { continue };
                match Ack::read(&text) {
                    Err(violation) => self.error(&path, violation),
                    Ok(ack) if ack.ack_of != id => self.error(&path, other_id(&ack.ack_of)),
                    Ok(ack) => {
                        // One that cannot be read has its own problem already.
                        let message = self.ssot.message(&id).ok().flatten();
                        match message {
                            None if !self.messages.contains_key(&id) => self.error(&path, "there is no such message"),
                            Some(message) if message.to() != ack.by => {
                                self.error(&path, "it is not by the one whom the message is for");
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

    fn references(&mut self) {
        for (from, field, to) in std::mem::take(&mut self.references) {
            if !self.messages.contains_key(&to) {
                self.error(
                    format!("messages/{}/{from}.json", from.task()),
                    format!("`{field}` names `{to}`, which is not there"),
                );
            }
        }
    }

    fn overdue(&mut self) {
        let overdue = self.messages.iter().filter(|(id, _)| !self.acks.contains(*id));
        let overdue = overdue.filter_map(|(id, due)| due.filter(|due| *due < self.now).map(|due| (id.clone(), due)));
        for (id, due) in overdue.collect::<Vec<_>>() {
            let seconds = self.now.duration_since(due).as_secs();
            let path = format!("messages/{}/{id}.json", id.task());
            self.found(path, Weight::Warning, format!("its ack is overdue by {seconds} s"));
        }
    }

    fn index(&mut self) -> SsotResult<()> {
        let markers: HashSet<MsgId> = self.ssot.markers()?.into_iter().collect();
        let open = self.messages.keys().filter(|id| id.kind() == Kind::Escalation && !self.acks.contains(*id));
        let missing: Vec<MsgId> = open.filter(|id| !markers.contains(*id)).cloned().collect();
        for id in missing {
            self.error(format!("index/open/{id}"), "it is not there, and the escalation is open");
        }
        for id in markers {
            if self.acks.contains(&id) {
                self.found(format!("index/open/{id}"), Weight::Warning, "the escalation is answered");
            }
        }
        Ok(())
    }

    fn errors(&mut self) -> SsotResult<()> {
        for name in self.names("errors")? {
            let path = format!("errors/{name}");
            let bytes = self.ssot.files.read(&self.ssot.files.path(&path))?.unwrap_or_default();
            for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty()) {
                if let Err(error) = serde_json::from_slice::<Refused>(line) {
                    self.found(&path, Weight::Warning, format!("line {}: {error}", number + 1));
                }
            }
        }
        Ok(())
    }

    fn decisions(&mut self) -> SsotResult<()> {
        let mut ids: HashSet<DecisionId> = HashSet::new();
        for folder in self.names("decisions")? {
            let Ok(swarm) = folder.parse::<SwarmId>() else {
                if folder != "lock" {
                    self.foreign(format!("decisions/{folder}"));
                }
                continue;
            };
            for name in self.names(&format!("decisions/{swarm}"))? {
                let path = format!("decisions/{swarm}/{name}");
                let Some(decision) = self.json::<AdminDecision>(&path)? else { continue };
                if decision.swarm != swarm {
                    self.error(&path, format!("it is for swarm `{}`", decision.swarm));
                }
                if !ids.insert(decision.id) {
                    self.error(&path, "its id is another decision's too");
                }
            }
        }
        Ok(())
    }

    fn memory(&mut self) -> SsotResult<()> {
        for folder in self.names(MEMORY)? {
            let Ok(swarm) = folder.parse::<SwarmId>() else {
                self.foreign(format!("{MEMORY}/{folder}"));
                continue;
            };
            for name in self.names(&format!("{MEMORY}/{swarm}"))? {
                let path = format!("{MEMORY}/{swarm}/{name}");
                let Some(value) = self.json::<serde_json::Value>(&path)? else { continue };
                if let Err(error) = MemoryGram::from_json(&value, &GramLimits::default()) {
                    self.error(&path, error);
                }
            }
        }
        Ok(())
    }

    /// The names in each task's folder.
    fn by_task(&mut self, folder: &str) -> SsotResult<Vec<(AssignmentId, Vec<String>)>> {
        let mut found = Vec::new();
        for name in self.names(folder)? {
            match name.parse::<AssignmentId>() {
                Ok(task) => {
                    let names = self.names(&format!("{folder}/{task}"))?;
                    found.push((task, names));
                }
                Err(_) => self.foreign(format!("{folder}/{name}")),
            }
        }
        Ok(found)
    }

    /// The id that a file is named by.
    fn id_of(&mut self, task: &AssignmentId, name: &str, path: &str) -> Option<MsgId> {
        let id = name.strip_suffix(".json").and_then(|id| id.parse::<MsgId>().ok()).filter(|id| id.task() == task);
        if id.is_none() {
            self.foreign(path);
        }
        id
    }

    fn names(&self, folder: &str) -> SsotResult<Vec<String>> {
        let mut names = self.ssot.files.names(&self.ssot.files.path(folder))?;
        names.sort();
        Ok(names)
    }

    /// What is in a file, if it is whole.
    fn text(&mut self, path: &str) -> SsotResult<Option<String>> {
        let bytes = self.ssot.files.read(&self.ssot.files.path(path))?;
        let text = bytes.filter(|bytes| !torn(bytes)).and_then(|bytes| String::from_utf8(bytes).ok());
        if text.is_none() {
            self.error(path, "it is torn: no JSON, or not all of it");
        }
        Ok(text)
    }

    fn json<T: serde::de::DeserializeOwned>(&mut self, path: &str) -> SsotResult<Option<T>> {
        match self.ssot.files.read_json(&self.ssot.files.path(path)) {
            Ok(Some(value)) => return Ok(Some(value)),
            Ok(None) => self.error(path, "it is torn: no JSON, or not all of it"),
            Err(SsotError::Damaged { problem, .. }) => self.error(path, problem),
            Err(error) => return Err(error),
        }
        Ok(None)
    }

    fn foreign(&mut self, path: impl AsRef<Path>) {
        self.found(path, Weight::Warning, "it is none of longshore's files");
    }

    fn error(&mut self, path: impl AsRef<Path>, problem: impl ToString) {
        self.found(path, Weight::Error, problem);
    }

    fn found(&mut self, path: impl AsRef<Path>, weight: Weight, problem: impl ToString) {
        self.problems.push(Problem { path: path.as_ref().to_owned(), weight, problem: problem.to_string() });
    }
}
