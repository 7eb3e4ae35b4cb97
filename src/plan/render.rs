//! Renders a plan as text for people and as JSON for programs.
//!
//! Called by `cli/` for `longshore plan`, and for `run` before it asks whether to go on. Must not: print, or know how
//! wide a terminal is.

use std::fmt::Write as _;

use super::document::PlanDocument;
use super::model::{FanOut, Plan, PlannedFile};
use crate::ids::StoryKey;
use crate::swarm::AssignmentSpec;
use crate::tasks::{DoneStatus, RiskLevel, Shape};

/// The width at which lists wrap, in characters.
const MAX_WIDTH: usize = 100;

/// Renders the plan as a [`PlanDocument`].
pub fn to_json(plan: &Plan) -> serde_json::Value {
    serde_json::to_value(PlanDocument::from_plan(plan)).expect("the document has no map whose keys are not text")
}

/// The schema of [`to_json`].
pub fn schema() -> schemars::Schema {
    schemars::schema_for!(PlanDocument)
}

/// Renders the plan for a terminal or a log; ends with a newline.
pub fn to_text(plan: &Plan) -> String {
    let mut out = PlanText::default();
    for (index, file) in (0_u16..).zip(&plan.files) {
        write_header(&mut out, plan, index, file);
    }
    match plan.fan_out {
        FanOut::Story => write_waves(&mut out, plan),
        FanOut::File => write_sandboxes(&mut out, plan),
    }
    write_done(&mut out, plan);
    write_totals(&mut out, plan);
    out.0
}

#[derive(Default)]
struct PlanText(String);

impl PlanText {
    fn push_line(&mut self, text: impl AsRef<str>) {
        self.0.push_str(text.as_ref().trim_end());
        self.0.push('\n');
    }

    /// `first` and then the items, separated by commas, with further lines under the first item.
    fn push_list(&mut self, first: &str, items: &[String]) {
        let indent = " ".repeat(first.chars().count());
        let mut line = first.to_owned();
        for (number, item) in items.iter().enumerate() {
            let comma = if number + 1 < items.len() { "," } else { "" };
            let full = line.chars().count() + item.chars().count() + 2 > MAX_WIDTH;
            if full && line.trim_end().len() > first.trim_end().len() {
                self.push_line(&line);
                line = indent.clone();
            }
            let _ = write!(line, "{item}{comma} ");
        }
        self.push_line(&line);
    }
}

fn write_header(out: &mut PlanText, plan: &Plan, index: u16, file: &PlannedFile) {
    let stories = file.tasks.stories.len();
    let to_run = plan.stories.iter().filter(|story| story.key.file == index && story.done.is_none()).count();
    let shape = match file.tasks.shape {
        Shape::Canonical => "",
        Shape::Passes => ", older shape with `passes`",
        Shape::Ralph => ", Ralph shape",
    };
    out.push_line(&file.tasks.title);
    let name = if plan.files.len() > 1 { format!(" (here: {})", file.slug) } else { String::new() };
    out.push_line(format!("  file      {}{name}{shape}", file.tasks.path.display()));
    out.push_line(format!("  branch    {}", file.branch));
    let rest = match (to_run, stories - to_run) {
        (_, 0) => "all to run".to_owned(),
        (0, _) => "none to run".to_owned(),
        (to_run, done) => format!("{to_run} to run, {done} already done"),
    };
    out.push_line(format!("  stories   {stories}, {rest}"));
    for (number, command) in file.tasks.verify.iter().enumerate() {
        out.push_line(format!("  {}    {}", if number == 0 { "verify" } else { "      " }, truncate(command, 80)));
    }
    out.push_line("");
}

fn write_waves(out: &mut PlanText, plan: &Plan) {
    let width = plan.waves.iter().flatten().map(|key| plan.label(key).len()).max().unwrap_or(0);
    for (number, wave) in plan.waves.iter().enumerate() {
        out.push_line(format!("wave {} ({})", number + 1, pluralize(wave.len(), "story", "stories")));
        for key in wave {
            let assignment = plan.assignments.iter().find(|assignment| assignment.stories.contains(key));
            let id = assignment.map(|assignment| assignment.id.to_string()).unwrap_or_default();
            let title = truncate(&plan.story(key).title, 90);
            out.push_line(format!("  {:width$}  {id}  {title}", plan.label(key)));
            out.push_list(&" ".repeat(width + 4), &story_details(plan, key, assignment));
            if let Some(assignment) = assignment {
                out.push_line(format!("  {:width$}  on {}", "", assignment.branch));
            }
        }
        out.push_line("");
    }
}

fn write_sandboxes(out: &mut PlanText, plan: &Plan) {
    for assignment in &plan.assignments {
        let stories = pluralize(assignment.stories.len(), "story", "stories, one after the other");
        out.push_line(format!("sandbox {} ({stories})", assignment.id));
        out.push_line(format!("  on {}", assignment.branch));
        if let Some(agent) = agent_label(plan, assignment) {
            out.push_line(format!("  in the mailbox {agent}"));
        }
        if !assignment.exclusive_with.is_empty() {
            out.push_list(
                "  not beside ",
                &assignment.exclusive_with.iter().map(ToString::to_string).collect::<Vec<_>>(),
            );
        }
        let width = assignment.stories.iter().map(|key| plan.label(key).len()).max().unwrap_or(0);
        for key in &assignment.stories {
            out.push_line(format!("  {:width$}  {}", plan.label(key), truncate(&plan.story(key).title, 90)));
            out.push_list(&" ".repeat(width + 4), &story_details(plan, key, None));
        }
        out.push_line("");
    }
}

/// A story's command, checks and dependencies.
fn story_details(plan: &Plan, key: &StoryKey, assignment: Option<&AssignmentSpec>) -> Vec<String> {
    let story = plan.story(key);
    let mut details = Vec::new();
    details.push(match &story.command {
        Some(command) => match command.trim().lines().count() {
            1 => format!("runs `{}`", truncate(command.trim(), 60)),
            lines => format!("runs a command of {lines} lines"),
        },
        None => "runs the agent".to_owned(),
    });
    if let Some(source) = &story.source_id {
        details.push(format!("`{}` in the file", truncate(source, 40)));
    }
    let checked = story.criteria.iter().filter(|criterion| criterion.test_command.is_some()).count();
    match (story.criteria.len(), checked) {
        (0, _) => {}
        (all, 0) => details.push(pluralize(all, "criterion", "criteria")),
        (all, checked) => details.push(format!("{} ({checked} checked)", pluralize(all, "criterion", "criteria"))),
    }
    if !story.verify.is_empty() {
        details.push(pluralize(story.verify.len(), "verify command of its own", "verify commands of its own"));
    }
    if story.risk != RiskLevel::Low {
        let word = if story.risk == RiskLevel::High { "high" } else { "medium" };
        details.push(format!("{word} risk"));
    }
    if !story.depends_on.is_empty() {
        details.push(format!("after {}", join_ids(&story.depends_on)));
    }
    details.extend(
        assignment.and_then(|assignment| agent_label(plan, assignment)).map(|agent| format!("in the mailbox {agent}")),
    );
    let apart = assignment.map(|assignment| assignment.exclusive_with.as_slice()).unwrap_or_default();
    if !apart.is_empty() {
        let others = plan.assignments.iter().filter(|other| apart.contains(&other.id));
        let stories: Vec<String> = others.flat_map(|other| &other.stories).map(|key| plan.label(key)).collect();
        details.push(format!("not beside {}", join_ids(&stories)));
    }
    details
}

/// The id and role of an assignment's agent in the mailbox.
fn agent_label(plan: &Plan, assignment: &AssignmentSpec) -> Option<String> {
    let index = plan.assignments.iter().position(|one| one.id == assignment.id)?;
    plan.agents.get(index).map(|agent| format!("{} ({})", agent.id, agent.role))
}

fn write_done(out: &mut PlanText, plan: &Plan) {
    let of = |kind: DoneStatus| -> Vec<String> {
        let stories = plan.stories.iter().filter(|story| story.done == Some(kind));
        stories.map(|story| plan.label(&story.key)).collect()
    };
    let (completed, skipped) = (of(DoneStatus::Completed), of(DoneStatus::Skipped));
    if completed.is_empty() && skipped.is_empty() {
        return;
    }
    out.push_line("not run, because the file says that they are done (`--again` runs them too)");
    if !completed.is_empty() {
        out.push_list("  completed  ", &completed);
    }
    if !skipped.is_empty() {
        out.push_list("  skipped    ", &skipped);
    }
    out.push_line("");
}

fn write_totals(out: &mut PlanText, plan: &Plan) {
    if plan.assignments.is_empty() {
        out.push_line("nothing to run");
        return;
    }
    let stories = pluralize(plan.waves.iter().map(Vec::len).sum(), "story", "stories");
    let sandboxes = pluralize(plan.assignments.len(), "sandbox", "sandboxes");
    let waves = match plan.fan_out {
        FanOut::Story => format!(", {}", pluralize(plan.waves.len(), "wave", "waves")),
        FanOut::File => String::new(),
    };
    let limit = plan.max_concurrency().map(|max| format!(", at most {max} at once")).unwrap_or_default();
    out.push_line(format!("{stories} in {sandboxes}{waves}{limit}"));
}

fn pluralize(number: usize, one: &str, more: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { more })
}

fn join_ids(ids: &[impl ToString]) -> String {
    let shown: Vec<String> = ids.iter().take(8).map(ToString::to_string).collect();
    let more = ids.len() - shown.len();
    if more > 0 { format!("{} and {more} more", shown.join(" ")) } else { shown.join(" ") }
}

/// Truncates text to one line of at most `most` characters.
fn truncate(text: &str, most: usize) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.chars().count() <= most { line } else { line.chars().take(most - 3).chain("...".chars()).collect() }
}
