//! `longshore mailbox watch`: the conversation as it goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::args::MailboxWatchArgs;
use super::log::{conversation, shown, warn};
use super::place::Place;
use crate::cli::error::Shown;
use crate::cli::here::Here;
use crate::cli::{Outcome, remark, say};
use crate::protocol::mailbox::message::{AgentId, Message, Seq};
use crate::protocol::mailbox::reader::BadFile;
use crate::protocol::mailbox::show;
use crate::protocol::mailbox::store::{Mailbox, Read};
use crate::protocol::mailbox::watch::Watch;

/// How long a file that is no message may be half written.
const TORN: Duration = Duration::from_secs(1);

/// What was told already.
#[derive(Default)]
struct Told {
    messages: BTreeSet<(AgentId, Seq)>,
    /// Files that are no messages, since when they are seen; none: they were named.
    bad: BTreeMap<(AgentId, Seq), Option<Instant>>,
    statuses: BTreeMap<AgentId, String>,
}

/// Carries it out.
pub(super) async fn watch(args: &MailboxWatchArgs, here: &Here) -> Outcome {
    let place = Place::of(&args.place, here).await?;
    let mailbox = place.open()?;
    let mut watch = Watch::new(mailbox.root());
    let mut told = Told::default();
    let mut quiet = !args.all;
    loop {
        let fresh = news(&mailbox, &mut told)?;
        for message in fresh.iter().filter(|_| !quiet) {
            say(&shown(message, args.full, args.place.json))?;
        }
        let gone = statuses(&mailbox, &mut told, quiet || args.place.json)?;
        if gone && fresh.is_empty() {
            remark("everybody is gone");
            return Ok(0);
        }
        quiet = false;
        let again = if told.bad.values().any(Option::is_some) { TORN } else { Duration::from_secs(3600) };
        watch.wait(Instant::now() + if gone { Duration::from_millis(500) } else { again });
    }
}

/// The messages that were not told, as they were said.
fn news(mailbox: &Mailbox, told: &mut Told) -> Result<Vec<Message>, Shown> {
    let mut fresh = Vec::new();
    for agent in mailbox.agents()? {
        for (seq, name) in mailbox.listing(&agent)?.files {
            let key = (agent.clone(), seq);
            if told.messages.contains(&key) || told.bad.get(&key).is_some_and(Option::is_none) {
                continue;
            }
            match mailbox.read(&agent, seq, &name)? {
                Read::Message(message) => {
                    fresh.push(*message);
                    told.bad.remove(&key);
                    told.messages.insert(key);
                }
                Read::Bad(violation) => {
                    let since = told.bad.entry(key).or_insert(Some(Instant::now()));
                    if since.is_some_and(|since| since.elapsed() >= TORN) {
                        *since = None;
                        warn(&[BadFile { agent: agent.clone(), name, violation }]);
                    }
                }
                Read::Missing => {}
            }
        }
    }
    Ok(conversation(mailbox, fresh))
}

/// Tells who comes and goes; whether all who came are gone.
fn statuses(mailbox: &Mailbox, told: &mut Told, quiet: bool) -> Result<bool, Shown> {
    let rows = mailbox.roster()?.rows();
    for row in &rows {
        let status = show::line(row.status.word());
        if told.statuses.insert(row.id.clone(), status.clone()).as_ref() != Some(&status) && !quiet {
            remark(&format!("{} is {status}", row.id));
        }
    }
    Ok(!rows.is_empty() && rows.iter().all(|row| row.status.is_gone()))
}
