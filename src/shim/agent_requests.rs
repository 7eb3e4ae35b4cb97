//! The socket on which `acp-shim task|progress|fail|remember|mail`, run by an agent, reach the shim: one JSON object per line, one
//! response.
//!
//! Started by `setup.rs`; `socket_client.rs` is the client. To add a subcommand: add a variant of [`AgentRequest`], its arm in
//! [`AgentRequests::handle_request`], and its arguments in `socket_client.rs`. Must not: trust the client, which is whatever the agent
//! runs.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

use super::progress::ProgressReporter;
use super::tail;
use super::task_card::TaskCard;
use crate::handoff::agent_notes::{AgentNote, AgentNotes, NoteLink};
use crate::json::text::take_chars;
use crate::wire::MAX_LINE_BYTES;

/// How long a client may take to send its request.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// The most characters of an agent's text that are shown.
const MAX_SHOWN_CHARS: usize = 2000;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum AgentRequest {
    /// Returns the current story.
    Task,
    Progress {
        text: String,
    },
    /// Keeps a note for later stories.
    Remember {
        /// Empty if there are only links.
        #[serde(default)]
        text: String,
        #[serde(default)]
        kind: Option<String>,
        #[serde(default)]
        importance: Option<f64>,
        #[serde(default)]
        id: Option<String>,
        #[serde(default)]
        about: Vec<String>,
        #[serde(default)]
        links: Vec<NoteLink>,
    },
    /// Gives the story up.
    Fail {
        text: String,
    },
    /// The agent waits for a message, so its silence is no hang.
    Waiting,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentResponse {
    /// Why the request was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskCard>,
}

/// Handles requests about the current story. Cheap to clone.
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
    pub fn begin_story(&self, card: TaskCard, progress: ProgressReporter) {
        *self.lock() = Some(CurrentStory { card, progress, give_up_reason: None, agent_notes: AgentNotes::default() });
    }

    /// Why the agent gave up, if it did.
    pub fn give_up_reason(&self) -> Option<String> {
        self.lock().as_ref().and_then(|current| current.give_up_reason.clone())
    }

    /// How often agents have reported progress.
    pub fn report_count(&self) -> u64 {
        self.report_count.load(Ordering::Relaxed)
    }

    /// Ends the current story, and returns its agent's notes.
    pub fn end_story(&self) -> AgentNotes {
        self.lock().take().map(|current| current.agent_notes).unwrap_or_default()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<CurrentStory>> {
        self.current_story.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles a request, and returns the story if it asks for it.
    fn handle_request(&self, request: AgentRequest) -> Result<Option<TaskCard>, String> {
        let mut current = self.lock();
        let current = current.as_mut().ok_or("no story is running")?;
        match request {
            AgentRequest::Task => return Ok(Some(current.card.clone())),
            AgentRequest::Waiting => self.count_report(),
            AgentRequest::Progress { text } => {
                let text = clean_text(&text)?;
                self.count_report();
                current.progress.report(&text);
            }
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
                    return Err(EMPTY_TEXT.to_owned());
                }
                self.count_report();
                // All or nothing.
                let mut notes = current.agent_notes.clone();
                note.map_or(Ok(()), |note| notes.add_note(note))?;
                links.into_iter().try_for_each(|link| notes.add_link(link))?;
                current.agent_notes = notes;
            }
            AgentRequest::Fail { text } => {
                let text = clean_text(&text)?;
                current.progress.report(&format!("gives up: {text}"));
                current.give_up_reason = Some(text);
            }
        }
        Ok(None)
    }

    fn count_report(&self) {
        self.report_count.fetch_add(1, Ordering::Relaxed);
    }
}

const EMPTY_TEXT: &str = "the text is empty";

/// An agent's text without control characters, at most [`MAX_SHOWN_CHARS`].
fn clean_text(text: &str) -> Result<String, String> {
    let lines: Vec<String> = text.lines().map(|line| tail::sanitize_line(line.as_bytes())).collect();
    let text = lines.join("\n");
    let text = take_chars(text.trim(), MAX_SHOWN_CHARS);
    if text.is_empty() { Err(EMPTY_TEXT.to_owned()) } else { Ok(text.to_owned()) }
}

/// An agent's note without control characters. [`AgentNotes`] limits its length.
fn clean_note(text: &str) -> Option<String> {
    let text: String = text.chars().filter(|c| *c == '\n' || !c.is_control()).collect();
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Opens the socket and serves each client in a task of its own until the runtime ends.
pub fn serve(path: &Path, requests: AgentRequests) -> std::io::Result<()> {
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path)?;
    tokio::spawn(async move {
        // `accept` fails for lack of descriptors, which passes.
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let requests = requests.clone();
                    tokio::spawn(async move {
                        let _ = tokio::time::timeout(CONNECTION_TIMEOUT, handle_connection(stream, requests)).await;
                    });
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    });
    Ok(())
}

async fn handle_connection(stream: UnixStream, requests: AgentRequests) -> std::io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = Vec::new();
    BufReader::new(read.take(MAX_LINE_BYTES as u64 + 1)).read_until(b'\n', &mut line).await?;
    let handled = match serde_json::from_slice(&line) {
        Ok(request) => requests.handle_request(request),
        Err(error) => Err(format!("invalid request: {error}")),
    };
    let response = match handled {
        Ok(task) => AgentResponse { task, error: None },
        Err(error) => AgentResponse { task: None, error: Some(error) },
    };
    let mut line = serde_json::to_vec(&response).map_err(std::io::Error::other)?;
    line.push(b'\n');
    write.write_all(&line).await
}
