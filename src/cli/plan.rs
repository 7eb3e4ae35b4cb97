//! `longshore plan`: shows what `run` would do and what is wrong with the tasks files. Needs neither an engine nor commits.
//!
//! [`load_tasks_files`] and [`plan_options`] are shared with `run/`.

use jiff::Zoned;

use super::args::{CommonPlanArgs, PlanArgs};
use super::context::CommandContext;
use super::error::{CommandError, settings_errors};
use super::settings::{self, Settings};
use super::{CommandResult, ExitStatus, print_stderr, print_stdout};
use crate::plan::{self, Plan, PlanError, PlanOptions};
use crate::report::text::pluralize;
use crate::tasks::{self, TasksError, TasksFile, TasksProblem};

pub(crate) async fn plan(args: &PlanArgs, here: &CommandContext) -> CommandResult {
    // Without a repository, the current directory stands for it.
    let root = match here.discover_repo().await {
        Ok(repo) => repo.root().to_owned(),
        Err(_) => here.dir().to_owned(),
    };
    let mut problems = Vec::new();
    let settings = settings::load(args.settings.0.clone(), Some(&root), &CommandContext::env_var)
        .map_err(|errors| problems.extend(settings_errors(errors)))
        .ok();
    if let Some(Err(error)) = settings.as_ref().map(Settings::agent) {
        problems.push(error.into());
    }
    let files = load_tasks_files(&args.common).map_err(|errors| problems.extend(errors)).ok();
    let plan = files.zip(settings.as_ref()).and_then(|(files, settings)| {
        // Only `run` insists on an agent.
        let options = PlanOptions { has_agent: true, ..plan_options(&args.common, settings) };
        plan::build(files, &root, &options).map_err(|error| problems.extend(plan_errors(&error))).ok()
    });
    CommandError::combine(problems)?;
    let Some(plan) = plan else { return Ok(ExitStatus::Success) };
    print_stdout(&render_plan(&plan, args.json)?)?;
    if settings.is_some_and(|settings| settings.agent.value.is_none()) {
        note_missing_agent(&plan);
    }
    Ok(ExitStatus::Success)
}

fn note_missing_agent(plan: &Plan) {
    let to_run = plan.assignments.iter().flat_map(|assignment| &assignment.stories);
    let count = to_run.filter(|key| plan.story(key).command.is_none()).count();
    if count > 0 {
        let stories = pluralize(count, "story needs", "stories need");
        print_stderr(&format!(
            "note: {stories} an agent: give `longshore run` one with `--agent NAME`, or set `agent` in the config"
        ));
    }
}

fn render_plan(plan: &Plan, json: bool) -> Result<String, CommandError> {
    if !json {
        return Ok(plan::render::to_text(plan));
    }
    let text = serde_json::to_string_pretty(&plan::render::to_json(plan))
        .map_err(|error| CommandError::machinery("cannot write the plan as JSON").with_cause(&error))?;
    Ok(text + "\n")
}

/// Reads the tasks files. Reports the problems of all of them.
pub(crate) fn load_tasks_files(flags: &CommonPlanArgs) -> Result<Vec<(TasksFile, Vec<u8>)>, Vec<CommandError>> {
    let mut files = Vec::new();
    let mut problems = Vec::new();
    for path in &flags.files {
        match tasks::load(path) {
            Ok(file) => files.push(file),
            Err(error) => problems.extend(tasks_errors(&error)),
        }
    }
    if problems.is_empty() { Ok(files) } else { Err(problems) }
}

/// Each problem of a tasks file with its remedy.
fn tasks_errors(error: &TasksError) -> Vec<CommandError> {
    let path = error.path().display();
    let shown = |problem: &TasksProblem| {
        let line = problem.line.map_or(String::new(), |line| format!(":{line}"));
        CommandError::input(format!("{path}{line}: {problem}")).with_hint(problem.kind.remedy())
    };
    error.problems().iter().map(shown).collect()
}

/// Each problem of a plan with its remedy.
pub(crate) fn plan_errors(error: &PlanError) -> Vec<CommandError> {
    error
        .problems()
        .iter()
        .map(|problem| CommandError::input(problem.to_string()).with_hint(problem.kind.remedy()))
        .collect()
}

pub(crate) fn plan_options(flags: &CommonPlanArgs, settings: &Settings) -> PlanOptions {
    PlanOptions {
        fan_out: settings.fan_out.value,
        rerun_done: flags.again,
        branch: flags.branch.clone(),
        year: u16::try_from(Zoned::now().year()).unwrap_or_default(),
        mailbox: settings.mailbox.value,
        has_agent: settings.agent.value.is_some(),
    }
}
