//! `longshore stop`: asks the orchestrator of a running swarm, over its control socket, to stop.

use super::args::StopArgs;
use super::context::CommandContext;
use super::error::{CommandError, CommandErrorKind};
use super::swarm_prefix::SwarmPrefix;
use super::{CommandResult, ExitStatus, print_stdout};
use crate::coordinator::control::{self, ControlCommand, ControlReply};
use crate::swarm::StopLevel;

pub(crate) async fn stop(args: &StopArgs, here: &CommandContext) -> CommandResult {
    let dir = here.resolve_swarm_dir(args.swarm.as_ref().map(SwarmPrefix::as_str)).await?;
    let swarm = dir.swarm();
    if !dir.is_locked()? {
        return Err(CommandError::input(format!("swarm `{swarm}` is not running"))
            .with_hint("`longshore status` shows how it ended"));
    }
    let level = if args.kill { StopLevel::Kill } else { StopLevel::Graceful };
    match control::send(&dir, &ControlCommand::Stop { level }).await {
        Ok(ControlReply::Accepted) => {
            let consequence = match level {
                StopLevel::Graceful => "its sandboxes are asked to finish (`--kill` ends them at once)",
                StopLevel::Kill => "its sandboxes are killed and their work is salvaged",
            };
            print_stdout(&format!("stopping swarm {swarm}: {consequence}\n"))?;
            Ok(ExitStatus::Success)
        }
        Ok(ControlReply::Refused { problem }) => {
            Err(CommandError::machinery(format!("swarm `{swarm}` refused to stop: {problem}")))
        }
        Err(error) => Err(CommandError::from_error(CommandErrorKind::Machinery, &error)
            .with_hint("it may be starting or ending: try again, or send SIGTERM to its process")),
    }
}
