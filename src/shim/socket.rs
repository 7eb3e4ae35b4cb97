//! The socket on which `acp-shim task|progress|fail|remember|mail`, run by an agent, reach the shim: one JSON object a line, one
//! answer.
//!
//! Started by `serve.rs`; asked by `ask.rs`. To add a subcommand: a variant of [`Ask`], its arm in [`Desk::answer`], and its
//! arguments in `ask.rs`. Must not: trust who asks: it is whatever the agent runs.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

use super::progress::Progress;
use super::tail;
use crate::handoff::remembered::{Link, Note, Remembered};
use crate::wire::MAX_LINE_BYTES;

/// How long a caller may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(10);

/// What can be asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum Ask {
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
        links: Vec<Link>,
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
pub struct Reply {
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
pub struct Desk {
    current: Arc<Mutex<Option<Current>>>,
    reports: Arc<AtomicU64>,
}

struct Current {
    card: TaskCard,
    progress: Progress,
    given_up: Option<String>,
    remembered: Remembered,
}

impl Desk {
    /// From now on it is this story.
    pub fn open(&self, card: TaskCard, progress: Progress) {
        *self.lock() = Some(Current { card, progress, given_up: None, remembered: Remembered::default() });
    }

    /// The reason with which the agent gave up, if it did.
    pub fn given_up(&self) -> Option<String> {
        self.lock().as_ref().and_then(|current| current.given_up.clone())
    }

    /// How often agents have reported progress so far.
    pub fn reports(&self) -> u64 {
        self.reports.load(Ordering::Relaxed)
    }

    /// No story any more. Gives what its agent said that it learned.
    pub fn close(&self) -> Remembered {
        self.lock().take().map(|current| current.remembered).unwrap_or_default()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, ask: Ask) -> Reply {
        let mut current = self.lock();
        let Some(current) = current.as_mut() else {
            return refusal("no story is being worked on now");
        };
        match ask {
            Ask::Waiting => {
                self.reports.fetch_add(1, Ordering::Relaxed);
                Reply::default()
            }
            Ask::Task => Reply { task: Some(current.card.clone()), error: None },
            Ask::Progress { text } => match said(&text) {
                Some(text) => {
                    self.reports.fetch_add(1, Ordering::Relaxed);
                    current.progress.tell(&text);
                    Reply::default()
                }
                None => refusal("the text is empty"),
            },
            Ask::Remember { text, kind, importance, id, about, links } => {
                let note = learned(&text).map(|text| Note {
                    id,
                    kind: kind.unwrap_or_else(|| "note".to_owned()),
                    text,
                    importance,
                    about,
                    at: jiff::Timestamp::now().to_string(),
                });
                if note.is_none() && links.is_empty() {
                    return refusal("the text is empty");
                }
                self.reports.fetch_add(1, Ordering::Relaxed);
                // All of it or nothing.
                let mut remembered = current.remembered.clone();
                let kept = note.map_or(Ok(()), |note| remembered.note(note));
                match kept.and_then(|()| links.into_iter().try_for_each(|link| remembered.link(link))) {
                    Ok(()) => {
                        current.remembered = remembered;
                        Reply::default()
                    }
                    Err(problem) => refusal(&problem),
                }
            }
            Ask::Fail { text } => match said(&text) {
                Some(text) => {
                    current.progress.tell(&format!("gives up: {text}"));
                    current.given_up = Some(text);
                    Reply::default()
                }
                None => refusal("the text is empty"),
            },
        }
    }
}

fn refusal(error: &str) -> Reply {
    Reply { error: Some(error.into()), task: None }
}

/// Text of an agent, as it may be shown: each line cleaned, 2000 characters in all.
fn said(text: &str) -> Option<String> {
    let lines: Vec<String> = text.lines().map(|line| tail::clean(line.as_bytes())).collect();
    let text: String = lines.join("\n").trim().chars().take(2000).collect();
    (!text.is_empty()).then_some(text)
}

/// What an agent learned: whole lines, without control characters. How long it may be is [`Remembered`]'s to say.
fn learned(text: &str) -> Option<String> {
    let text: String = text.chars().filter(|c| *c == '\n' || !c.is_control()).collect();
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Opens the socket and answers on it, each caller in a task of its own, until the runtime ends.
pub fn serve(path: &Path, desk: Desk) -> std::io::Result<()> {
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path)?;
    tokio::spawn(async move {
        // An error here is a lack of descriptors: it passes.
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let desk = desk.clone();
                    tokio::spawn(async move {
                        let _ = tokio::time::timeout(PATIENCE, attend(stream, desk)).await;
                    });
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    });
    Ok(())
}

async fn attend(stream: UnixStream, desk: Desk) -> std::io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = Vec::new();
    BufReader::new(read.take(MAX_LINE_BYTES as u64 + 1)).read_until(b'\n', &mut line).await?;
    let reply = match serde_json::from_slice(&line) {
        Ok(ask) => desk.answer(ask),
        Err(error) => refusal(&format!("not understood: {error}")),
    };
    let mut answer = serde_json::to_vec(&reply).map_err(std::io::Error::other)?;
    answer.push(b'\n');
    write.write_all(&answer).await
}
