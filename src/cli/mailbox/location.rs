//! Finds the mailbox that a command uses, and opens it.

use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::args::{MailboxLocationArgs, ParticipantArgs};
use crate::cli::context::CommandContext;
use crate::cli::error::CommandError;
use crate::cli::swarm_prefix::SwarmPrefix;
use crate::coordinator::mailbox::{COPY_DIR, MailboxState};
use crate::protocol::mailbox::agent_mailbox::AgentMailbox;
use crate::protocol::mailbox::error::MailboxError;
use crate::protocol::mailbox::layout::AGENTS_DIR;
use crate::protocol::mailbox::roster::RosterEntry;
use crate::protocol::mailbox::store::Mailbox;

/// The private directories of participants on the host, in the swarm's directory.
const READ_STATE_DIR: &str = "mailbox-read";

pub(super) struct MailboxLocation {
    root: PathBuf,
    /// Where the private directories are. `None` if each is in its own outbox.
    private_dir: Option<PathBuf>,
    /// The state of a swarm's mailbox.
    state: MailboxState,
}

impl MailboxLocation {
    pub(super) async fn resolve(args: &MailboxLocationArgs, here: &CommandContext) -> Result<Self, CommandError> {
        if let Some(dir) = &args.dir {
            return Ok(Self { root: here.dir().join(dir), private_dir: None, state: MailboxState::default() });
        }
        let swarm = here.resolve_swarm_dir(args.swarm.as_ref().map(SwarmPrefix::as_str)).await?;
        let root = swarm.path().join(COPY_DIR);
        if !root.is_dir() {
            let error = CommandError::input(format!("swarm {} has no mailbox", swarm.swarm().short()));
            return Err(
                error.with_hint("run it with `longshore run --mailbox`, or name another mailbox with `--dir DIR`")
            );
        }
        let state = MailboxState::read(&swarm.path());
        Ok(Self { root, private_dir: Some(swarm.path().join(READ_STATE_DIR)), state })
    }

    /// Opens the mailbox to read it.
    pub(super) fn open_mailbox(&self) -> Result<Mailbox, CommandError> {
        if !self.root.is_dir() {
            let error = CommandError::input(format!("there is no directory `{}`", self.root.display()));
            return Err(error.with_hint("`longshore mailbox send --dir DIR` creates a mailbox"));
        }
        Ok(Mailbox::open(&self.root)?)
    }

    /// Opens the mailbox for a participant who writes, if only to request missing messages. Nobody else may have the id. See
    /// [`open_as_participant`](Self::open_as_participant) for `rejoin`.
    pub(super) fn open_as_sender(&self, who: &ParticipantArgs, rejoin: bool) -> Result<AgentMailbox, CommandError> {
        if let Some(agent) = self.state.find_sandbox_agent(&who.agent_id) {
            let text = format!("cannot act as `{}`: `{agent}` is the agent of a sandbox", who.agent_id);
            return Err(CommandError::input(text).with_hint("choose another id with `--as ID`; the default is `host`"));
        }
        let agent_mailbox = self.open_as_participant(who, rejoin)?;
        match agent_mailbox.mailbox().roster()?.similar_id(&who.agent_id) {
            Some(taken) => Err(MailboxError::IdTaken { wanted: who.agent_id.clone(), taken }.into()),
            None => Ok(agent_mailbox),
        }
    }

    /// Whether the mailbox belongs to a swarm that will not be resumed.
    pub(super) fn is_swarm_over(&self) -> bool {
        self.private_dir.as_deref().and_then(Path::parent).is_some_and(|swarm| MailboxState::read(swarm).over)
    }

    /// Opens the mailbox for a participant. A mailbox of `--dir` is created if needed, and the participant is registered; with
    /// `rejoin` also after having signed off. A swarm keeps its roster itself.
    pub(super) fn open_as_participant(
        &self,
        who: &ParticipantArgs,
        rejoin: bool,
    ) -> Result<AgentMailbox, CommandError> {
        let me = who.agent_id.clone();
        if let Some(private_dir) = &self.private_dir {
            let private_dir = private_dir.join(me.as_str());
            return Ok(AgentMailbox::new(self.open_mailbox()?, me, &private_dir));
        }
        let mailbox = Mailbox::create(&self.root)?;
        if rejoin || mailbox.roster()?.entry(&me).is_none() {
            // This process ends soon; its parent may stay.
            let pid = rustix::process::getppid().and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok());
            mailbox.register(&RosterEntry::new(me.clone(), who.role.clone(), pid, Timestamp::now()))?;
        }
        mailbox.create_outbox(&me)?;
        let private_dir = self.root.join(AGENTS_DIR).join(me.as_str()).join(".private");
        Ok(AgentMailbox::new(mailbox, me, &private_dir))
    }

    /// Whether the participants keep the roster themselves.
    pub(super) fn is_standalone(&self) -> bool {
        self.private_dir.is_none()
    }
}
