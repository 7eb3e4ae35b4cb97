//! `longshore plan`: what `run` would do, and everything that is wrong with the files. Runs nothing, and needs neither an
//! engine nor commits.
//!
//! [`load_tasks_files`] and [`plan_options`] are shared with `run/`.

use jiff::Zoned;

use super::args::{CommonPlanArgs, FanOutArg};
use super::context::{CommandContext, settings_errors};
use super::error::CommandError;
use super::settings::{self, Settings};
use super::{CommandResult, print_stderr, print_stdout};
use crate::plan::{self, FanOut, Plan, PlanError, PlanOptions};
use crate::report::text::pluralize;
use crate::tasks::{self, TasksError, TasksFile, TasksProblem};

/// Carries it out.
pub async fn plan(flags: &CommonPlanArgs, here: &CommandContext) -> CommandResult {
    // A file can be planned before there is a repo: then the current folder stands for it.
    let root = match here.discover_repo().await {
        Ok(repo) => repo.root().to_owned(),
        Err(_) => here.dir().to_owned(),
    };
    let mut problems = Vec::new();
    let settings = match settings::load(settings::plan_layer(flags), Some(&root), &CommandContext::env_var) {
        Ok(settings) => Some(settings),
        Err(faults) => {
            problems.extend(settings_errors(faults));
            None
        }
    };
    if let Some(Err(error)) = settings.as_ref().map(Settings::agent) {
        problems.push(error.into());
    }
    let plan = match (load_tasks_files(flags), &settings) {
        (Ok(files), Some(settings)) => {
            // What runs the stories can be settled later; `run` insists.
            let options = PlanOptions { has_agent: true, ..plan_options(flags, settings) };
            match plan::build(files, &root, &options) {
                Ok(plan) => Some(plan),
                Err(error) => {
                    problems.extend(plan_errors(&error));
                    None
                }
            }
        }
        (Ok(_), None) => None,
        (Err(faults), _) => {
            problems.extend(faults);
            None
        }
    };
    CommandError::combine(problems)?;
    let Some(plan) = plan else { return Ok(0) };
    print_stdout(&render_plan(&plan, flags.json)?)?;
    if settings.is_some_and(|settings| settings.agent.value.is_none()) {
        note_missing_agent(&plan);
    }
    Ok(0)
}

/// Says which stories have nothing to run them yet.
fn note_missing_agent(plan: &Plan) {
    let to_run = plan.assignments.iter().flat_map(|assignment| &assignment.stories);
    let number = to_run.filter(|key| plan.story(key).command.is_none()).count();
    if number > 0 {
        let stories = pluralize(number, "story needs", "stories need");
        print_stderr(&format!(
            "note: {stories} an agent: `longshore run` wants `--agent NAME`, or `agent` in the config"
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

/// Reads the tasks files; the problems of all of them.
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
        CommandError::input(format!("{path}{line}: {problem}")).with_hint(problem.defect.remedy())
    };
    error.problems().iter().map(shown).collect()
}

/// Each problem of a plan with its remedy.
pub(crate) fn plan_errors(error: &PlanError) -> Vec<CommandError> {
    error
        .problems()
        .iter()
        .map(|problem| CommandError::input(problem.to_string()).with_hint(problem.defect.remedy()))
        .collect()
}

/// The choices that planning needs.
pub(crate) fn plan_options(flags: &CommonPlanArgs, settings: &Settings) -> PlanOptions {
    PlanOptions {
        fan_out: match settings.fan_out.value {
            FanOutArg::Story => FanOut::Story,
            FanOutArg::File => FanOut::File,
        },
        rerun_done: flags.again,
        branch: flags.branch.clone(),
        year: u16::try_from(Zoned::now().year()).unwrap_or_default(),
        mailbox: settings.mailbox.value,
        has_agent: settings.agent.value.is_some(),
    }
}
