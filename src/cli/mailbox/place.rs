//! Which mailbox is meant, and who one is there.

use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::args::{AsArgs, PlaceArgs};
use crate::cli::args::SwarmName;
use crate::cli::error::Shown;
use crate::cli::here::Here;
use crate::coordinator::mailbox::MailboxState;
use crate::protocol::mailbox::reader::Desk;
use crate::protocol::mailbox::roster::Row;
use crate::protocol::mailbox::store::{AGENTS, Mailbox, MailboxError};

/// A swarm's copy of its mailbox, in its folder.
const COPY: &str = "mailbox";
/// What the people of a swarm's mailbox have read, in its folder.
const PRIVATE: &str = "mailbox-read";

/// A place where a mailbox is.
pub(super) struct Place {
    root: PathBuf,
    /// Where the private folders are; none where each is in its own outbox.
    private: Option<PathBuf>,
    /// How a swarm's mailbox stands.
    standing: MailboxState,
}

impl Place {
    /// What is meant.
    pub(super) async fn of(args: &PlaceArgs, here: &Here) -> Result<Self, Shown> {
        if let Some(dir) = &args.dir {
            return Ok(Self { root: here.folder().join(dir), private: None, standing: MailboxState::default() });
        }
        let swarm = here.swarm(args.swarm.as_ref().map(SwarmName::as_str)).await?;
        let root = swarm.path().join(COPY);
        if !root.is_dir() {
            let shown = Shown::input(format!("swarm {} has no mailbox", swarm.swarm().short()));
            return Err(shown.hint("`longshore run --mailbox` gives a swarm one; `--dir DIR` names any other"));
        }
        let standing = MailboxState::read(&swarm.path());
        Ok(Self { root, private: Some(swarm.path().join(PRIVATE)), standing })
    }

    /// The mailbox, for somebody who only looks.
    pub(super) fn open(&self) -> Result<Mailbox, Shown> {
        if !self.root.is_dir() {
            let shown = Shown::input(format!("there is no folder `{}`", self.root.display()));
            return Err(shown.hint("`longshore mailbox send --dir` makes a mailbox where there is none"));
        }
        Ok(Mailbox::open(&self.root)?)
    }

    /// The desk of somebody who writes, if only to ask for what is missing: nobody else may have the name.
    pub(super) fn own_desk(&self, who: &AsArgs, back: bool) -> Result<Desk, Shown> {
        if let Some(agent) = self.standing.find_sandbox_agent(&who.me) {
            let shown = Shown::input(format!(
                "`{}` is the agent of a sandbox (`{agent}`): nobody on the host speaks for it",
                who.me
            ));
            return Err(shown.hint("choose another id with `--as ID`; without it you are `host`"));
        }
        let desk = self.desk(who, back)?;
        let rows = desk.mailbox().roster()?.rows();
        match rows.into_iter().find(|row| row.id != who.me && row.id.as_str().eq_ignore_ascii_case(who.me.as_str())) {
            Some(row) => Err(MailboxError::IdTaken { wanted: who.me.clone(), taken: row.id }.into()),
            None => Ok(desk),
        }
    }

    /// Nobody goes on with the swarm whose mailbox it is.
    pub(super) fn is_over(&self) -> bool {
        self.private.as_deref().and_then(Path::parent).is_some_and(|swarm| MailboxState::read(swarm).over)
    }

    /// The desk of somebody who takes part. In a folder of one's own choice what lacks is made, and one is registered; who had
    /// signed off is so again with `back`. In a swarm's the swarm keeps the roster.
    pub(super) fn desk(&self, who: &AsArgs, back: bool) -> Result<Desk, Shown> {
        let me = who.me.clone();
        let Some(private) = &self.private else {
            let mailbox = Mailbox::create(&self.root)?;
            if back || mailbox.roster()?.row(&me).is_none() {
                // This program is gone in a moment; whoever called it may stay.
                let pid = rustix::process::getppid().and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok());
                mailbox.register(&Row::new(me.clone(), who.role.clone(), pid, Timestamp::now()))?;
            }
            let private = self.root.join(AGENTS).join(me.as_str()).join(".private");
            mailbox.make_outbox(&me)?;
            return Ok(Desk::new(mailbox, me, &private));
        };
        let private = private.join(me.as_str());
        Ok(Desk::new(self.open()?, me, &private))
    }

    /// Whether the roster is one's own business here.
    pub(super) fn is_folder(&self) -> bool {
        self.private.is_none()
    }
}
