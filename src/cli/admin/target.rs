//! From what was typed to what is meant: a swarm, as it stands with the decisions that wait, and a task of it.

use jiff::Timestamp;

use super::args::AdminTargetArgs;
use super::pending_decisions;
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
    /// By the journal.
    pub(super) machine: SwarmMachine,
    /// With what was decided since; the same where an orchestrator runs, which has taken all in.
    pub(super) machine_with_pending: SwarmMachine,
    /// What was decided, and waits to be taken in.
    pub(super) pending: Vec<TaskDecision>,
    /// An orchestrator runs it.
    pub(super) live: bool,
}

impl AdminContext {
    /// Of this swarm; the newest where none is named.
    pub(super) async fn resolve(here: &CommandContext, swarm: Option<&SwarmPrefix>) -> Result<Self, CommandError> {
        let repo = here.discover_repo().await?;
        let dir = SwarmDir::resolve(repo.root(), swarm.map(SwarmPrefix::as_str))?;
        Self::load(repo, dir)
    }

    fn load(repo: Repo, dir: SwarmDir) -> Result<Self, CommandError> {
        let live = dir.is_locked()?;
        let recovered = recover(&dir)?;
        let ssot = Ssot::open_read_only(repo.root());
        let (waiting, then) = match live {
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
            machine_with_pending: then,
            pending: waiting,
            live,
        })
    }

    /// When the swarm began.
    pub(super) fn started(&self) -> Timestamp {
        self.header.started
    }

    /// The decision about a task that waits to be taken in, the newest.
    pub(super) fn pending_decision(&self, task: &AssignmentId) -> Option<&TaskDecision> {
        self.pending.iter().rfind(|decision| decision.task == *task)
    }
}

/// What a command is about.
pub(super) struct ResolvedTarget {
    pub(super) context: AdminContext,
    pub(super) target: DecisionTarget,
    pub(super) task: AssignmentId,
    /// The escalation that was named.
    pub(super) escalation: Option<AmpMessage>,
}

/// Finds what was typed.
pub(super) async fn resolve_target(
    args: &AdminTargetArgs,
    here: &CommandContext,
) -> Result<ResolvedTarget, CommandError> {
    let typed = args.target.trim();
    let repo = here.discover_repo().await?;
    if let Ok(id) = typed.parse::<MsgId>() {
        if id.message_type() != AmpMessageType::Escalation {
            return Err(CommandError::input(format!("`{id}` is a {}, and no escalation", id.message_type()))
                .with_hint(format!("name its task: `longshore admin show {}`", id.task_id())));
        }
        let Some(message) = Ssot::open_read_only(repo.root()).message(&id)? else {
            return Err(CommandError::input(format!("there is no escalation `{id}`"))
                .with_hint("`longshore admin list --all` lists those that there are"));
        };
        let scene = load_task_context(repo, id.task_id(), args.swarm.as_ref())?;
        return Ok(ResolvedTarget {
            context: scene,
            task: id.task_id().clone(),
            target: DecisionTarget::Escalation(id),
            escalation: Some(message),
        });
    }
    if let Ok(task) = typed.parse::<AssignmentId>() {
        let scene = load_task_context(repo, &task, args.swarm.as_ref())?;
        return Ok(ResolvedTarget {
            context: scene,
            target: DecisionTarget::Task(task.clone()),
            task,
            escalation: None,
        });
    }
    let scene = AdminContext::load(
        repo.clone(),
        SwarmDir::resolve(repo.root(), args.swarm.as_ref().map(SwarmPrefix::as_str))?,
    )?;
    let swarm = scene.dir.swarm();
    let found: Vec<_> = scene.names.find(typed).into_iter().cloned().collect();
    match &found[..] {
        [] => {
            let all = scene.machine.spec().stories.iter().map(|story| scene.names.label(&story.key));
            let all = all.take(20).collect::<Vec<_>>().join(", ");
            Err(CommandError::input(format!("swarm `{swarm}` has no story, task or escalation `{typed}`"))
                .with_hint(format!("its stories are {all}")))
        }
        [story] => match scene.machine.story(story).and_then(|view| view.assignment.clone()) {
            Some(task) => Ok(ResolvedTarget {
                target: DecisionTarget::Story(story.clone()),
                task,
                context: scene,
                escalation: None,
            }),
            None => Err(CommandError::input(format!(
                "`{typed}` was done before the swarm began: there is nothing to decide"
            ))),
        },
        several => Err(CommandError::input(format!("`{typed}` is a story of {} tasks files", several.len()))
            .with_hint(format!("name it as one of {}", scene.names.joined_labels(several).replace(", ", " or ")))),
    }
}

/// The swarm that has this task: task numbers are the repo's.
fn load_task_context(
    repo: Repo,
    task: &AssignmentId,
    swarm: Option<&SwarmPrefix>,
) -> Result<AdminContext, CommandError> {
    let dir = match (swarm, Ssot::open_read_only(repo.root()).task_file(task)?) {
        (None, Some(file)) => SwarmDir::open(repo.root(), file.swarm_id)?,
        (named, _) => SwarmDir::resolve(repo.root(), named.map(SwarmPrefix::as_str))?,
    };
    let scene = AdminContext::load(repo, dir)?;
    if scene.machine.assignment_spec(task).is_none() {
        let tasks = &scene.machine.spec().assignments;
        let between = match (tasks.first(), tasks.last()) {
            (Some(first), Some(last)) => format!("its tasks are {} to {}", first.id, last.id),
            _ => "it has none".to_owned(),
        };
        return Err(
            CommandError::input(format!("swarm `{}` has no task `{task}`", scene.dir.swarm())).with_hint(between)
        );
    }
    Ok(scene)
}
