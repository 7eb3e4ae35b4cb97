//! `longshore mailbox watch`: prints the conversation as it happens.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::args::MailboxWatchArgs;
use super::location::MailboxLocation;
use super::log::{format_message, sort_chronologically, warn_invalid_files};
use crate::cli::context::CommandContext;
use crate::cli::error::CommandError;
use crate::cli::{CommandResult, ExitStatus, print_stderr, print_stdout};
use crate::protocol::mailbox::message::{AgentId, MailboxMessage, Seq};
use crate::protocol::mailbox::outbox::{InvalidFile, ReadOutcome};
use crate::protocol::mailbox::show;
use crate::protocol::mailbox::store::Mailbox;
use crate::protocol::mailbox::watch::MailboxWatcher;

/// How long an invalid file may be half written.
const PARTIAL_WRITE_GRACE: Duration = Duration::from_secs(1);
/// How long the last message may arrive after all agents are gone.
const FINAL_MESSAGE_GRACE: Duration = Duration::from_millis(500);

/// What was printed already.
#[derive(Default)]
struct WatchState {
    messages: BTreeSet<(AgentId, Seq)>,
    /// Invalid files, and since when. `None`: reported.
    invalid: BTreeMap<(AgentId, Seq), Option<Instant>>,
    statuses: BTreeMap<AgentId, String>,
}

pub(super) async fn watch(args: &MailboxWatchArgs, here: &CommandContext) -> CommandResult {
    let mailbox = MailboxLocation::resolve(&args.location, here).await?.open_mailbox()?;
    let mut watch = MailboxWatcher::new(mailbox.root());
    let mut state = WatchState::default();
    let mut quiet = !args.all;
    loop {
        let new = state.read_new_messages(&mailbox)?;
        for message in new.iter().filter(|_| !quiet) {
            print_stdout(&format_message(message, args.full, args.location.json))?;
        }
        let all_gone = state.report_statuses(&mailbox, quiet || args.location.json)?;
        if all_gone && new.is_empty() {
            print_stderr("all agents are gone");
            return Ok(ExitStatus::Success);
        }
        quiet = false;
        let timeout = if all_gone {
            FINAL_MESSAGE_GRACE
        } else if state.invalid.values().any(Option::is_some) {
            PARTIAL_WRITE_GRACE
        } else {
            Duration::from_secs(3600)
        };
        watch.wait(Instant::now() + timeout);
    }
}

impl WatchState {
    /// The messages that were not printed yet, in the order of the conversation.
    fn read_new_messages(&mut self, mailbox: &Mailbox) -> Result<Vec<MailboxMessage>, CommandError> {
        let mut new = Vec::new();
        for agent in mailbox.agents()? {
            for (seq, name) in mailbox.list_outbox(&agent)?.files {
                let key = (agent.clone(), seq);
                if self.messages.contains(&key) || self.invalid.get(&key).is_some_and(Option::is_none) {
                    continue;
                }
                match mailbox.read_message(&agent, seq, &name)? {
                    ReadOutcome::Message(message) => {
                        new.push(*message);
                        self.invalid.remove(&key);
                        self.messages.insert(key);
                    }
                    ReadOutcome::Invalid(violation) => {
                        let since = self.invalid.entry(key).or_insert(Some(Instant::now()));
                        if since.is_some_and(|since| since.elapsed() >= PARTIAL_WRITE_GRACE) {
                            *since = None;
                            warn_invalid_files(&[InvalidFile { agent: agent.clone(), name, violation }]);
                        }
                    }
                    ReadOutcome::Missing => {}
                }
            }
        }
        Ok(sort_chronologically(mailbox, new))
    }

    /// Prints changes of statuses. Returns whether all participants are gone.
    fn report_statuses(&mut self, mailbox: &Mailbox, quiet: bool) -> Result<bool, CommandError> {
        let rows = mailbox.roster()?.entries();
        for row in &rows {
            let status = show::single_line(row.status.word());
            if self.statuses.insert(row.id.clone(), status.clone()).as_ref() != Some(&status) && !quiet {
                print_stderr(&format!("{} is {status}", row.id));
            }
        }
        Ok(!rows.is_empty() && rows.iter().all(|row| row.status.is_gone()))
    }
}
