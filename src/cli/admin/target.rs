//! Resolves the target of a command: a swarm with its pending decisions, and one of its tasks.

use jiff::Timestamp;

use super::args::AdminTargetArgs;
use super::pending::pending_decisions;
use crate::cli::context::CommandContext;
use crate::cli::error::CommandError;
use crate::cli::swarm_prefix::SwarmPrefix;
use crate::delivery::Repo;
use crate::ids::AssignmentId;
use crate::protocol::amp::message::{AmpMessage, AmpMessageType, MsgId};
use crate::protocol::amp::store::{DecisionTarget, Ssot};
use crate::report::StoryLabels;
use crate::state::recovery::recover;
use crate::state::{JournalHeader, SwarmDir};
use crate::swarm::{SwarmMachine, TaskDecision};

/// A swarm as the admin sees it.
pub(super) struct AdminContext {
    pub(super) repo: Repo,
    pub(super) ssot: Ssot,
    pub(super) dir: SwarmDir,
    pub(super) header: JournalHeader,
    pub(super) names: StoryLabels,
    /// State from the journal.
    pub(super) machine: SwarmMachine,
    /// State with the pending decisions applied; equals `machine` while an orchestrator runs.
    pub(super) machine_with_pending: SwarmMachine,
    /// Recorded decisions that are not yet applied.
    pub(super) pending: Vec<TaskDecision>,
    /// Whether an orchestrator runs the swarm.
    pub(super) live: bool,
}

impl AdminContext {
    /// Loads this swarm, or the newest swarm by default.
    pub(super) async fn resolve(here: &CommandContext, swarm: Option<&SwarmPrefix>) -> Result<Self, CommandError> {
        let repo = here.discover_repo().await?;
        let dir = SwarmDir::resolve(repo.root(), swarm.map(SwarmPrefix::as_str))?;
        Self::load(repo, dir)
    }

    fn load(repo: Repo, dir: SwarmDir) -> Result<Self, CommandError> {
        let live = dir.is_locked()?;
        let recovered = recover(&dir)?;
        let ssot = Ssot::open_read_only(repo.root());
        let (pending, with_pending) = match live {
            true => (Vec::new(), recovered.machine.clone()),
            false => pending_decisions(&ssot, &recovered.machine)?,
        };
        let names = StoryLabels::from_spec(&recovered.header.spec);
        Ok(Self {
            repo,
            ssot,
            dir,
            header: recovered.header,
            names,
            machine: recovered.machine,
            machine_with_pending: with_pending,
            pending,
            live,
        })
    }

    pub(super) fn started(&self) -> Timestamp {
        self.header.started
    }

    /// The newest pending decision about a task.
    pub(super) fn pending_decision(&self, task: &AssignmentId) -> Option<&TaskDecision> {
        self.pending.iter().rfind(|decision| decision.task == *task)
    }
}

/// The resolved target of a command.
pub(super) struct ResolvedTarget {
    pub(super) context: AdminContext,
    pub(super) target: DecisionTarget,
    pub(super) task: AssignmentId,
    /// The escalation, if the target is one.
    pub(super) escalation: Option<AmpMessage>,
}

/// Resolves the typed target.
pub(super) async fn resolve_target(
    args: &AdminTargetArgs,
    here: &CommandContext,
) -> Result<ResolvedTarget, CommandError> {
    let typed = args.target.trim();
    let repo = here.discover_repo().await?;
    if let Ok(id) = typed.parse::<MsgId>() {
        if id.message_type() != AmpMessageType::Escalation {
            return Err(CommandError::input(format!("`{id}` is a {}, not an escalation", id.message_type()))
                .with_hint(format!("name its task: `longshore admin show {}`", id.task_id())));
        }
        let Some(message) = Ssot::open_read_only(repo.root()).message(&id)? else {
            return Err(CommandError::input(format!("there is no escalation `{id}`"))
                .with_hint("`longshore admin list --all` lists all escalations"));
        };
        let context = load_task_context(repo, id.task_id(), args.swarm.as_ref())?;
        return Ok(ResolvedTarget {
            context,
            task: id.task_id().clone(),
            target: DecisionTarget::Escalation(id),
            escalation: Some(message),
        });
    }
    if let Ok(task) = typed.parse::<AssignmentId>() {
        let context = load_task_context(repo, &task, args.swarm.as_ref())?;
        return Ok(ResolvedTarget { context, target: DecisionTarget::Task(task.clone()), task, escalation: None });
    }
    let context = AdminContext::load(
        repo.clone(),
        SwarmDir::resolve(repo.root(), args.swarm.as_ref().map(SwarmPrefix::as_str))?,
    )?;
    let swarm = context.dir.swarm();
    let found: Vec<_> = context.names.find(typed).into_iter().cloned().collect();
    match &found[..] {
        [] => {
            let all = context.machine.spec().stories.iter().map(|story| context.names.label(&story.key));
            let all = all.take(20).collect::<Vec<_>>().join(", ");
            Err(CommandError::input(format!("swarm `{swarm}` has no story, task or escalation `{typed}`"))
                .with_hint(format!("its stories are {all}")))
        }
        [story] => match context.machine.story(story).and_then(|view| view.assignment.clone()) {
            Some(task) => {
                Ok(ResolvedTarget { target: DecisionTarget::Story(story.clone()), task, context, escalation: None })
            }
            None => Err(CommandError::input(format!(
                "`{typed}` was done before the swarm began: there is nothing to decide"
            ))),
        },
        several => Err(CommandError::input(format!("`{typed}` is a story of {} tasks files", several.len()))
            .with_hint(format!("name it as one of {}", context.names.joined_labels(several).replace(", ", " or ")))),
    }
}

/// Loads the swarm that has this task; task numbers are unique in the repository.
fn load_task_context(
    repo: Repo,
    task: &AssignmentId,
    swarm: Option<&SwarmPrefix>,
) -> Result<AdminContext, CommandError> {
    let dir = match (swarm, Ssot::open_read_only(repo.root()).task_file(task)?) {
        (None, Some(file)) => SwarmDir::open(repo.root(), file.swarm_id)?,
        (named, _) => SwarmDir::resolve(repo.root(), named.map(SwarmPrefix::as_str))?,
    };
    let context = AdminContext::load(repo, dir)?;
    if context.machine.assignment_spec(task).is_none() {
        let tasks = &context.machine.spec().assignments;
        let between = match (tasks.first(), tasks.last()) {
            (Some(first), Some(last)) => format!("its tasks are {} to {}", first.id, last.id),
            _ => "it has none".to_owned(),
        };
        return Err(
            CommandError::input(format!("swarm `{}` has no task `{task}`", context.dir.swarm())).with_hint(between)
        );
    }
    Ok(context)
}
