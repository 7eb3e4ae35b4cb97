//! `longshore plan`: what `run` would do, and everything that is wrong with the files. Runs nothing, and needs neither an
//! engine nor commits.
//!
//! [`read`] and [`options`] are shared with `run/`.

use jiff::Zoned;

use super::args::{FanOutArg, PlanFlags};
use super::error::Shown;
use super::here::{Here, settings_problems};
use super::settings::{self, Settings};
use super::{Outcome, remark, say};
use crate::plan::{self, FanOut, Plan, PlanError, PlanOptions};
use crate::report::text::pluralize;
use crate::tasks::{self, TasksError, TasksFile, TasksProblem};

/// Carries it out.
pub async fn plan(flags: &PlanFlags, here: &Here) -> Outcome {
    // A file can be planned before there is a repo: then the current folder stands for it.
    let root = match here.repo().await {
        Ok(repo) => repo.root().to_owned(),
        Err(_) => here.folder().to_owned(),
    };
    let mut problems = Vec::new();
    let settings = match settings::load(settings::plan_flags(flags), Some(&root), &Here::lookup) {
        Ok(settings) => Some(settings),
        Err(faults) => {
            problems.extend(settings_problems(faults));
            None
        }
    };
    if let Some(Err(error)) = settings.as_ref().map(Settings::agent) {
        problems.push(error.into());
    }
    let plan = match (read(flags), &settings) {
        (Ok(files), Some(settings)) => {
            // What runs the stories can be settled later; `run` insists.
            let options = PlanOptions { has_agent: true, ..options(flags, settings) };
            match plan::build(files, &root, &options) {
                Ok(plan) => Some(plan),
                Err(error) => {
                    problems.extend(plan_problems(&error));
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
    Shown::all(problems)?;
    let Some(plan) = plan else { return Ok(0) };
    say(&shown(&plan, flags.json)?)?;
    if settings.is_some_and(|settings| settings.agent.value.is_none()) {
        without_agent(&plan);
    }
    Ok(0)
}

/// Says which stories have nothing to run them yet.
fn without_agent(plan: &Plan) {
    let to_run = plan.assignments.iter().flat_map(|assignment| &assignment.stories);
    let number = to_run.filter(|key| plan.story(key).command.is_none()).count();
    if number > 0 {
        let stories = pluralize(number, "story needs", "stories need");
        remark(&format!("note: {stories} an agent: `longshore run` wants `--agent NAME`, or `agent` in the config"));
    }
}

fn shown(plan: &Plan, json: bool) -> Result<String, Shown> {
    if !json {
        return Ok(plan::render::to_text(plan));
    }
    let text = serde_json::to_string_pretty(&plan::render::to_json(plan))
        .map_err(|error| Shown::machinery("cannot write the plan as JSON").caused_by(&error))?;
    Ok(text + "\n")
}

/// Reads the tasks files; the problems of all of them.
pub(crate) fn read(flags: &PlanFlags) -> Result<Vec<(TasksFile, Vec<u8>)>, Vec<Shown>> {
    let mut files = Vec::new();
    let mut problems = Vec::new();
    for path in &flags.files {
        match tasks::load(path) {
            Ok(file) => files.push(file),
            Err(error) => problems.extend(tasks_problems(&error)),
        }
    }
    if problems.is_empty() { Ok(files) } else { Err(problems) }
}

/// Each problem of a tasks file with its remedy.
fn tasks_problems(error: &TasksError) -> Vec<Shown> {
    let path = error.path().display();
    let shown = |problem: &TasksProblem| {
        let line = problem.line.map_or(String::new(), |line| format!(":{line}"));
        Shown::input(format!("{path}{line}: {problem}")).hint(problem.defect.remedy())
    };
    error.problems().iter().map(shown).collect()
}

/// Each problem of a plan with its remedy.
pub(crate) fn plan_problems(error: &PlanError) -> Vec<Shown> {
    error.problems().iter().map(|problem| Shown::input(problem.to_string()).hint(problem.defect.remedy())).collect()
}

/// The choices that planning needs.
pub(crate) fn options(flags: &PlanFlags, settings: &Settings) -> PlanOptions {
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
