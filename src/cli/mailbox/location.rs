//! Which mailbox is meant, and who one is there.

use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::args::{MailboxLocationArgs, ParticipantArgs};
use crate::cli::context::CommandContext;
use crate::cli::error::CommandError;
use crate::cli::swarm_prefix::SwarmPrefix;
use crate::coordinator::mailbox::MailboxState;
use crate::protocol::mailbox::agent_mailbox::AgentMailbox;
use crate::protocol::mailbox::roster::RosterEntry;
use crate::protocol::mailbox::store::{AGENTS_DIR, Mailbox, MailboxError};

/// A swarm's copy of its mailbox, in its folder.
const MAILBOX_DIR: &str = "mailbox";
/// What the people of a swarm's mailbox have read, in its folder.
const READ_STATE_DIR: &str = "mailbox-read";

/// A place where a mailbox is.
pub(super) struct MailboxLocation {
    root: PathBuf,
    /// Where the private folders are; none where each is in its own outbox.
    private_dir: Option<PathBuf>,
    /// How a swarm's mailbox stands.
    state: MailboxState,
}

impl MailboxLocation {
    /// What is meant.
    pub(super) async fn resolve(args: &MailboxLocationArgs, here: &CommandContext) -> Result<Self, CommandError> {
        if let Some(dir) = &args.dir {
            return Ok(Self { root: here.dir().join(dir), private_dir: None, state: MailboxState::default() });
        }
        let swarm = here.resolve_swarm_dir(args.swarm.as_ref().map(SwarmPrefix::as_str)).await?;
        let root = swarm.path().join(MAILBOX_DIR);
        if !root.is_dir() {
            let shown = CommandError::input(format!("swarm {} has no mailbox", swarm.swarm().short()));
            return Err(shown.with_hint("`longshore run --mailbox` gives a swarm one; `--dir DIR` names any other"));
        }
        let standing = MailboxState::read(&swarm.path());
        Ok(Self { root, private_dir: Some(swarm.path().join(READ_STATE_DIR)), state: standing })
    }

    /// The mailbox, for somebody who only looks.
    pub(super) fn open_mailbox(&self) -> Result<Mailbox, CommandError> {
        if !self.root.is_dir() {
            let shown = CommandError::input(format!("there is no folder `{}`", self.root.display()));
            return Err(shown.with_hint("`longshore mailbox send --dir` makes a mailbox where there is none"));
        }
        Ok(Mailbox::open(&self.root)?)
    }

    /// The desk of somebody who writes, if only to ask for what is missing: nobody else may have the name.
    pub(super) fn open_as_sender(&self, who: &ParticipantArgs, back: bool) -> Result<AgentMailbox, CommandError> {
        if let Some(agent) = self.state.find_sandbox_agent(&who.agent_id) {
            let shown = CommandError::input(format!(
                "`{}` is the agent of a sandbox (`{agent}`): nobody on the host speaks for it",
                who.agent_id
            ));
            return Err(shown.with_hint("choose another id with `--as ID`; without it you are `host`"));
        }
        let desk = self.open_as_participant(who, back)?;
        let rows = desk.mailbox().roster()?.entries();
        match rows
            .into_iter()
            .find(|row| row.id != who.agent_id && row.id.as_str().eq_ignore_ascii_case(who.agent_id.as_str()))
        {
            Some(row) => Err(MailboxError::IdTaken { wanted: who.agent_id.clone(), taken: row.id }.into()),
            None => Ok(desk),
        }
    }

    /// Nobody goes on with the swarm whose mailbox it is.
    pub(super) fn is_swarm_over(&self) -> bool {
        self.private_dir.as_deref().and_then(Path::parent).is_some_and(|swarm| MailboxState::read(swarm).over)
    }

    /// The desk of somebody who takes part. In a folder of one's own choice what lacks is made, and one is registered; who had
    /// signed off is so again with `back`. In a swarm's the swarm keeps the roster.
    pub(super) fn open_as_participant(&self, who: &ParticipantArgs, back: bool) -> Result<AgentMailbox, CommandError> {
        let me = who.agent_id.clone();
        let Some(private) = &self.private_dir else {
            let mailbox = Mailbox::create(&self.root)?;
            if back || mailbox.roster()?.entry(&me).is_none() {
                // This program is gone in a moment; whoever called it may stay.
                let pid = rustix::process::getppid().and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok());
                mailbox.register(&RosterEntry::new(me.clone(), who.role.clone(), pid, Timestamp::now()))?;
            }
            let private = self.root.join(AGENTS_DIR).join(me.as_str()).join(".private");
            mailbox.create_outbox(&me)?;
            return Ok(AgentMailbox::new(mailbox, me, &private));
        };
        let private = private.join(me.as_str());
        Ok(AgentMailbox::new(self.open_mailbox()?, me, &private))
    }

    /// Whether the roster is one's own business here.
    pub(super) fn is_standalone(&self) -> bool {
        self.private_dir.is_none()
    }
}
