//! `longshore stop`: asks the orchestrator of a running swarm to stop, over its control socket.

use super::args::{StopArgs, SwarmPrefix};
use super::context::CommandContext;
use super::error::CommandError;
use super::{CommandResult, print_stdout};
use crate::coordinator::control::{self, ControlCommand, ControlReply};
use crate::swarm::StopLevel;

/// Carries it out.
pub async fn stop(args: &StopArgs, here: &CommandContext) -> CommandResult {
    let dir = here.resolve_swarm_dir(args.swarm.as_ref().map(SwarmPrefix::as_str)).await?;
    let swarm = dir.swarm();
    if !dir.is_locked()? {
        return Err(CommandError::input(format!("swarm `{swarm}` is not running"))
            .with_hint("`longshore status` shows how it ended"));
    }
    let level = if args.kill { StopLevel::Kill } else { StopLevel::Graceful };
    match control::send(&dir, &ControlCommand::Stop { level }).await {
        Ok(ControlReply::Accepted) => {
            print_stdout(&match level {
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
            Err(CommandError::machinery(format!("swarm `{swarm}` refused to stop: {problem}")))
        }
        Err(error) => Err(CommandError::from_error(super::error::CommandErrorKind::Machinery, &error)
            .with_hint("it may be starting or ending: try again; SIGTERM to its process does the same")),
    }
}
