//! `longshore stop`: asks the orchestrator of a running swarm to stop, over its control socket.

use super::args::{StopArgs, SwarmName};
use super::error::Shown;
use super::here::Here;
use super::{Outcome, say};
use crate::coordinator::control::{self, ControlCommand, ControlReply};
use crate::swarm::StopLevel;

/// Carries it out.
pub async fn stop(args: &StopArgs, here: &Here) -> Outcome {
    let dir = here.swarm(args.swarm.as_ref().map(SwarmName::as_str)).await?;
    let swarm = dir.swarm();
    if !dir.is_locked()? {
        return Err(
            Shown::input(format!("swarm `{swarm}` is not running")).hint("`longshore status` shows how it ended")
        );
    }
    let level = if args.kill { StopLevel::Kill } else { StopLevel::Graceful };
    match control::send(&dir, &ControlCommand::Stop { level }).await {
        Ok(ControlReply::Accepted) => {
            say(&match level {
                StopLevel::Graceful => format!(
                    "swarm {swarm} stops: nothing new is started, its sandboxes are asked to finish (`--kill` ends them at once)\n"
                ),
                StopLevel::Kill => {
                    format!("swarm {swarm} stops: its sandboxes are killed and their work is salvaged\n")
                }
            })?;
            Ok(0)
        }
        Ok(ControlReply::Refused { problem }) => {
            Err(Shown::machinery(format!("swarm `{swarm}` refused to stop: {problem}")))
        }
        Err(error) => Err(Shown::of(super::error::Kind::Machinery, &error)
            .hint("it may be starting or ending: try again; SIGTERM to its process does the same")),
    }
}
