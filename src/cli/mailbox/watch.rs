//! `longshore mailbox watch`: the conversation as it goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::args::MailboxWatchArgs;
use super::location::MailboxLocation;
use super::log::{format_message, sort_chronologically, warn_bad_files};
use crate::cli::context::CommandContext;
use crate::cli::error::CommandError;
use crate::cli::{CommandResult, ExitStatus, print_stderr, print_stdout};
use crate::protocol::mailbox::agent_mailbox::InvalidFile;
use crate::protocol::mailbox::message::{AgentId, MailboxMessage, Seq};
use crate::protocol::mailbox::show;
use crate::protocol::mailbox::store::{Mailbox, ReadOutcome};
use crate::protocol::mailbox::watch::MailboxWatcher;

/// How long a file that is no message may be half written.
const PARTIAL_WRITE_GRACE: Duration = Duration::from_secs(1);

/// What was told already.
#[derive(Default)]
struct WatchState {
    messages: BTreeSet<(AgentId, Seq)>,
    /// Files that are no messages, since when they are seen; none: they were named.
    bad_files: BTreeMap<(AgentId, Seq), Option<Instant>>,
    statuses: BTreeMap<AgentId, String>,
}

/// Carries it out.
pub(super) async fn watch(args: &MailboxWatchArgs, here: &CommandContext) -> CommandResult {
    let place = MailboxLocation::resolve(&args.location, here).await?;
    let mailbox = place.open_mailbox()?;
    let mut watch = MailboxWatcher::new(mailbox.root());
    let mut told = WatchState::default();
    let mut quiet = !args.all;
    loop {
        let fresh = read_new_messages(&mailbox, &mut told)?;
        for message in fresh.iter().filter(|_| !quiet) {
            print_stdout(&format_message(message, args.full, args.location.json))?;
        }
        let gone = report_status_changes(&mailbox, &mut told, quiet || args.location.json)?;
        if gone && fresh.is_empty() {
            print_stderr("everybody is gone");
            return Ok(ExitStatus::Success);
        }
        quiet = false;
        let again =
            if told.bad_files.values().any(Option::is_some) { PARTIAL_WRITE_GRACE } else { Duration::from_secs(3600) };
        watch.wait(Instant::now() + if gone { Duration::from_millis(500) } else { again });
    }
}

/// The messages that were not told, as they were said.
fn read_new_messages(mailbox: &Mailbox, told: &mut WatchState) -> Result<Vec<MailboxMessage>, CommandError> {
    let mut fresh = Vec::new();
    for agent in mailbox.agents()? {
        for (seq, name) in mailbox.list_outbox(&agent)?.files {
            let key = (agent.clone(), seq);
            if told.messages.contains(&key) || told.bad_files.get(&key).is_some_and(Option::is_none) {
                continue;
            }
            match mailbox.read_message(&agent, seq, &name)? {
                ReadOutcome::Message(message) => {
                    fresh.push(*message);
                    told.bad_files.remove(&key);
                    told.messages.insert(key);
                }
                ReadOutcome::Invalid(violation) => {
                    let since = told.bad_files.entry(key).or_insert(Some(Instant::now()));
                    if since.is_some_and(|since| since.elapsed() >= PARTIAL_WRITE_GRACE) {
                        *since = None;
                        warn_bad_files(&[InvalidFile { agent: agent.clone(), name, violation }]);
                    }
                }
                ReadOutcome::Missing => {}
            }
        }
    }
    Ok(sort_chronologically(mailbox, fresh))
}

/// Tells who comes and goes; whether all who came are gone.
fn report_status_changes(mailbox: &Mailbox, told: &mut WatchState, quiet: bool) -> Result<bool, CommandError> {
    let rows = mailbox.roster()?.entries();
    for row in &rows {
        let status = show::single_line(row.status.word());
        if told.statuses.insert(row.id.clone(), status.clone()).as_ref() != Some(&status) && !quiet {
            print_stderr(&format!("{} is {status}", row.id));
        }
    }
    Ok(!rows.is_empty() && rows.iter().all(|row| row.status.is_gone()))
}
