//! The socket on which `acp-shim task|progress|fail|remember|mail`, run by an agent, reach the shim: one JSON object a line, one
//! answer.
//!
//! Started by `serve.rs`; asked by `socket_client.rs`. To add a subcommand: a variant of [`AgentRequest`], its arm in [`AgentRequests::handle_request`], and its
//! arguments in `socket_client.rs`. Must not: trust who asks: it is whatever the agent runs.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

use super::progress::ProgressReporter;
use super::tail;
use crate::handoff::agent_notes::{AgentNote, AgentNotes, NoteLink};
use crate::wire::MAX_LINE_BYTES;

/// How long a caller may take to say what it wants.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// What can be asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum AgentRequest {
    /// The story that is being worked on.
    Task,
    /// Say this about the work.
    Progress {
        /// What to say.
        text: String,
    },
    /// Keep this for the stories that come after.
    Remember {
        /// What was learned; empty for edges alone.
        #[serde(default)]
        text: String,
        /// What kind of thing it is.
        #[serde(default)]
        kind: Option<String>,
        /// From 0 to 1.
        #[serde(default)]
        importance: Option<f64>,
        /// The node's id.
        #[serde(default)]
        id: Option<String>,
        /// What it is about.
        #[serde(default)]
        about: Vec<String>,
        /// Edges between nodes.
        #[serde(default)]
        links: Vec<NoteLink>,
    },
    /// The story cannot be done, for this reason.
    Fail {
        /// Why.
        text: String,
    },
    /// Somebody else's message is waited for: nothing to say, and no hang.
    Waiting,
}

/// What is answered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentResponse {
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The story.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskCard>,
}

/// A story, as an agent sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskCard {
    /// `US-001`.
    pub id: String,
    /// Short.
    pub title: String,
    /// May be empty.
    pub description: String,
    /// The branch to work on.
    pub branch: String,
    /// In words.
    pub acceptance_criteria: Vec<CriterionCard>,
    /// May be empty.
    pub notes: String,
    /// Commands that will be run to check the work.
    pub verify: Vec<String>,
    /// What went wrong the time before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_failure: Option<String>,
    /// What the admin said about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guidance: Vec<String>,
}

/// An acceptance criterion, as an agent sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CriterionCard {
    /// Its id.
    pub id: String,
    /// Its words.
    pub text: String,
    /// What will be run to check it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_command: Option<String>,
}

/// The story that answers are about, and what was said of it. Cheap to clone.
#[derive(Clone, Default)]
pub struct AgentRequests {
    current_story: Arc<Mutex<Option<CurrentStory>>>,
    report_count: Arc<AtomicU64>,
}

struct CurrentStory {
    card: TaskCard,
    progress: ProgressReporter,
    give_up_reason: Option<String>,
    agent_notes: AgentNotes,
}

impl AgentRequests {
    /// From now on it is this story.
    pub fn begin_story(&self, card: TaskCard, progress: ProgressReporter) {
        *self.lock() = Some(CurrentStory { card, progress, give_up_reason: None, agent_notes: AgentNotes::default() });
    }

    /// The reason with which the agent gave up, if it did.
    pub fn give_up_reason(&self) -> Option<String> {
        self.lock().as_ref().and_then(|current| current.give_up_reason.clone())
    }

    /// How often agents have reported progress so far.
    pub fn report_count(&self) -> u64 {
        self.report_count.load(Ordering::Relaxed)
    }

    /// No story any more. Gives what its agent said that it learned.
    pub fn end_story(&self) -> AgentNotes {
        self.lock().take().map(|current| current.agent_notes).unwrap_or_default()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<CurrentStory>> {
        self.current_story.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle_request(&self, ask: AgentRequest) -> AgentResponse {
        let mut current = self.lock();
        let Some(current) = current.as_mut() else {
            return error_response("no story is being worked on now");
        };
        match ask {
            AgentRequest::Waiting => {
                self.report_count.fetch_add(1, Ordering::Relaxed);
                AgentResponse::default()
            }
            AgentRequest::Task => AgentResponse { task: Some(current.card.clone()), error: None },
            AgentRequest::Progress { text } => match clean_text(&text) {
                Some(text) => {
                    self.report_count.fetch_add(1, Ordering::Relaxed);
                    current.progress.report(&text);
                    AgentResponse::default()
                }
                None => error_response("the text is empty"),
            },
            AgentRequest::Remember { text, kind, importance, id, about, links } => {
                let note = clean_note(&text).map(|text| AgentNote {
                    id,
                    kind: kind.unwrap_or_else(|| "note".to_owned()),
                    text,
                    importance,
                    about,
                    at: jiff::Timestamp::now().to_string(),
                });
                if note.is_none() && links.is_empty() {
                    return error_response("the text is empty");
                }
                self.report_count.fetch_add(1, Ordering::Relaxed);
                // All of it or nothing.
                let mut remembered = current.agent_notes.clone();
                let kept = note.map_or(Ok(()), |note| remembered.add_note(note));
                match kept.and_then(|()| links.into_iter().try_for_each(|link| remembered.add_link(link))) {
                    Ok(()) => {
                        current.agent_notes = remembered;
                        AgentResponse::default()
                    }
                    Err(problem) => error_response(&problem),
                }
            }
            AgentRequest::Fail { text } => match clean_text(&text) {
                Some(text) => {
                    current.progress.report(&format!("gives up: {text}"));
                    current.give_up_reason = Some(text);
                    AgentResponse::default()
                }
                None => error_response("the text is empty"),
            },
        }
    }
}

fn error_response(error: &str) -> AgentResponse {
    AgentResponse { error: Some(error.into()), task: None }
}

/// Text of an agent, as it may be shown: each line cleaned, 2000 characters in all.
fn clean_text(text: &str) -> Option<String> {
    let lines: Vec<String> = text.lines().map(|line| tail::sanitize_line(line.as_bytes())).collect();
    let text: String = lines.join("\n").trim().chars().take(2000).collect();
    (!text.is_empty()).then_some(text)
}

/// What an agent learned: whole lines, without control characters. How long it may be is [`AgentNotes`]'s to say.
fn clean_note(text: &str) -> Option<String> {
    let text: String = text.chars().filter(|c| *c == '\n' || !c.is_control()).collect();
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Opens the socket and answers on it, each caller in a task of its own, until the runtime ends.
pub fn serve(path: &Path, desk: AgentRequests) -> std::io::Result<()> {
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path)?;
    tokio::spawn(async move {
        // An error here is a lack of descriptors: it passes.
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let desk = desk.clone();
                    tokio::spawn(async move {
                        let _ = tokio::time::timeout(CONNECTION_TIMEOUT, handle_connection(stream, desk)).await;
                    });
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    });
    Ok(())
}

async fn handle_connection(stream: UnixStream, desk: AgentRequests) -> std::io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = Vec::new();
    BufReader::new(read.take(MAX_LINE_BYTES as u64 + 1)).read_until(b'\n', &mut line).await?;
    let reply = match serde_json::from_slice(&line) {
        Ok(ask) => desk.handle_request(ask),
        Err(error) => error_response(&format!("not understood: {error}")),
    };
    let mut answer = serde_json::to_vec(&reply).map_err(std::io::Error::other)?;
    answer.push(b'\n');
    write.write_all(&answer).await
}
