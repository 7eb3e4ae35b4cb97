//! Checks what must hold before a swarm starts: settings, tasks files, plan, repository, branches, engine, image, shim.
//!
//! Called by `run/mod.rs`; `resume` shares the single checks. Must not: create or change anything.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::unfinished::{UnfinishedSwarm, copy_tasks_files, find_unfinished_swarms};
use crate::cli::args::RunArgs;
use crate::cli::context::CommandContext;
use crate::cli::error::{CommandError, CommandErrorKind, settings_errors};
use crate::cli::plan as plan_command;
use crate::cli::settings::{self, Config, DEFAULT_IMAGE, SettingSource, Settings, SettingsError};
use crate::cli::shim::{ShimBinary, find_shim};
use crate::delivery::{Repo, RepoHead};
use crate::engine::{Engine, EngineInfo, ImageInfo};
use crate::ids::{CommitId, SwarmId};
use crate::plan::{self, Plan};
use crate::protocol::acp::message::{EnvKey, EnvVars};
use crate::state::{Journal, SwarmDir};
use crate::tasks::{DoneStatus, Story, TasksFile};

/// The most bytes of all variables' names and values: they travel in one ACP message of 64 KB, where JSON may double some
/// characters.
const MAX_ENV_BYTES: usize = 32 * 1024;

/// Everything a swarm needs, checked.
pub(crate) struct Preflight {
    pub settings: Settings,
    pub plan: Plan,
    /// The heads of the files' integration branches, one per file.
    pub bases: Vec<CommitId>,
    pub repo: Repo,
    pub engine: Arc<dyn Engine>,
    pub engine_info: EngineInfo,
    /// The id of the sandboxes' image.
    pub image_id: String,
    pub shim: ShimBinary,
    /// The environment of the sandboxes.
    pub env: EnvVars,
    /// Notes for the start: where each branch starts.
    pub start_notes: Vec<String>,
    /// Notes for the start and for the report.
    pub notes: Vec<String>,
    /// What makes the sandboxes less isolated than by default.
    pub relaxations: Vec<String>,
}

/// Checks a run. Reports all problems.
pub(crate) async fn check(args: &RunArgs, here: &CommandContext) -> Result<Preflight, CommandError> {
    let mut problems = Vec::new();
    let repo = collect_error(here.discover_repo().await, &mut problems);
    let root = repo.as_ref().map(Repo::root);
    let loaded = flags_layer(args).and_then(|flags| settings::load(flags, root, &CommandContext::env_var));
    let settings = collect_errors(loaded.map_err(settings_errors), &mut problems);
    let files = collect_errors(plan_command::load_tasks_files(&args.common), &mut problems);
    let build = |files: TasksFiles, settings: &Settings| {
        let options = plan_command::plan_options(&args.common, settings);
        plan::build(files, root.unwrap_or(here.dir()), &options).map_err(|error| plan_command::plan_errors(&error))
    };
    let mut plan = files
        .clone()
        .zip(settings.as_ref())
        .and_then(|(files, settings)| collect_errors(build(files, settings), &mut problems));
    let (mut start_notes, mut notes) = (Vec::new(), Vec::new());
    // Both wait for other programs, so they run side by side.
    let image_name = settings.as_ref().map_or(DEFAULT_IMAGE, |settings| settings.image.value.as_str());
    let (bases, engine) = tokio::join!(
        resolve_bases(repo.as_ref(), plan.as_ref(), &mut start_notes, &mut notes),
        connect_engine_with_image(here, image_name)
    );
    let bases = collect_errors(bases, &mut problems);
    if let (Some(repo), Some(first), Some(bases), Some(mut files), Some(settings)) =
        (&repo, &plan, &bases, files, &settings)
        && !args.common.again
        && let Some(note) = mark_landed(repo, first, bases, &mut files).await?
    {
        start_notes.push(note);
        plan = collect_errors(build(files, settings), &mut problems);
    }
    let engine = collect_error(engine, &mut problems);
    let shim = engine.as_ref().and_then(|(_, _, image)| {
        let exe = CommandContext::current_exe();
        collect_error(find_shim(&image.arch, exe.as_deref(), &CommandContext::env_var), &mut problems)
    });
    problems.extend(settings.as_ref().and_then(blank_verify_error));
    let env = settings.as_ref().and_then(|settings| {
        for named in [settings.agent(), settings.reviewer()] {
            problems.extend(named.err().map(CommandError::from));
        }
        collect_errors(resolve_environment(settings), &mut problems)
    });
    if let (Some((engine, _, _)), Some(settings)) = (&engine, &settings) {
        problems.extend(check_network(engine.as_ref(), &settings.network.value).await.err());
    }
    if let (Some(root), Some(plan)) = (root, &plan) {
        let branches = plan.files.iter().map(|file| file.branch.as_str()).collect();
        problems.extend(conflicting_swarm_error(root, &branches, None));
        let unfinished = find_unfinished_swarms(root, &copy_tasks_files(plan));
        if args.new {
            start_notes.extend(unfinished.iter().map(UnfinishedSwarm::ignored_note));
        } else if !plan.assignments.is_empty() {
            problems.extend(unfinished.iter().map(UnfinishedSwarm::to_error));
        }
    }
    CommandError::combine(problems)?;
    let all = (settings, plan, bases, repo, engine, shim, env);
    let (
        Some(settings),
        Some(plan),
        Some(bases),
        Some(repo),
        Some((engine, engine_info, image)),
        Some(shim),
        Some(env),
    ) = all
    else {
        return Err(CommandError::machinery("a check gave neither a value nor a problem"));
    };
    let relaxations = describe_relaxations(&settings, &engine_info, &env, &plan);
    Ok(Preflight {
        settings,
        plan,
        bases,
        repo,
        engine,
        engine_info,
        image_id: image.id,
        shim,
        env,
        start_notes,
        notes,
        relaxations,
    })
}

/// Tasks files, each with its bytes.
type TasksFiles = Vec<(TasksFile, Vec<u8>)>;

/// Marks the stories that landed before, of the same tasks file and with the same content, as done. Returns a note about them.
async fn mark_landed(
    repo: &Repo,
    plan: &Plan,
    bases: &[CommitId],
    files: &mut TasksFiles,
) -> Result<Option<String>, CommandError> {
    let mut found = Vec::new();
    for ((planned, base), (file, _)) in plan.files.iter().zip(bases).zip(files) {
        if file.stories.iter().all(|story| story.done.is_some()) {
            continue;
        }
        for landed in repo.landed_stories(base, &planned.task_file_path).await? {
            let same = |story: &&mut Story| {
                story.id == landed.id && story.done.is_none() && story.content_hash() == landed.content
            };
            if let Some(story) = file.stories.iter_mut().find(same) {
                story.done = Some(DoneStatus::Completed);
                found.push(story.id.to_string());
            }
        }
    }
    found.sort();
    let shown = match found.as_slice() {
        [] => return Ok(None),
        few if few.len() <= 8 => few.join(", "),
        [first, .., last] => format!("{first} to {last}, {} stories", found.len()),
        [only] => only.clone(),
    };
    Ok(Some(format!("landed before and not changed since: {shown} (`--again` runs them again)")))
}

/// The flags of `run` as a layer of settings. Clap has refused all other invalid flags.
pub(crate) fn flags_layer(args: &RunArgs) -> Result<Config, Vec<SettingsError>> {
    let mut flags = args.settings.0.clone();
    let mut problems = Vec::new();
    for variable in &args.env {
        match &variable.0 {
            Ok(variable) => flags.env.get_or_insert_default().push(variable.clone()),
            Err(error) => problems.push(SettingsError::InvalidVariable(error.clone())),
        }
    }
    if problems.is_empty() { Ok(flags) } else { Err(problems) }
}

fn collect_error<T>(result: Result<T, CommandError>, problems: &mut Vec<CommandError>) -> Option<T> {
    result.map_err(|error| problems.push(error)).ok()
}

fn collect_errors<T>(result: Result<T, Vec<CommandError>>, problems: &mut Vec<CommandError>) -> Option<T> {
    result.map_err(|errors| problems.extend(errors)).ok()
}

/// The commits where each file's stories start, with notes about branches and the working tree.
async fn resolve_bases(
    repo: Option<&Repo>,
    plan: Option<&Plan>,
    start_notes: &mut Vec<String>,
    notes: &mut Vec<String>,
) -> Result<Vec<CommitId>, Vec<CommandError>> {
    let Some(repo) = repo else { return Ok(Vec::new()) };
    let head = repo.head().await.map_err(|error| vec![error.into()])?;
    if repo.is_dirty().await.unwrap_or(false) {
        notes.push("the working tree has uncommitted changes: sandboxes will not see them".to_owned());
    }
    let Some(plan) = plan else { return Ok(Vec::new()) };
    let mut bases = Vec::new();
    let mut problems = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for file in &plan.files {
        let name = file.branch.as_str();
        let is_repeated = seen.contains(&name);
        seen.push(name);
        match resolve_base(repo, &head, name).await {
            Ok((base, note)) => {
                if !is_repeated {
                    start_notes.push(note);
                }
                bases.push(base);
            }
            Err(problem) if !is_repeated => problems.push(problem),
            Err(_) => {}
        }
    }
    if problems.is_empty() { Ok(bases) } else { Err(problems) }
}

async fn resolve_base(repo: &Repo, head: &RepoHead, branch: &str) -> Result<(CommitId, String), CommandError> {
    if let Some(at) = repo.checked_out_at(branch).await? {
        return Err(crate::delivery::DeliveryError::BranchCheckedOut { branch: branch.to_owned(), at }.into());
    }
    if let Some(commit) = repo.branch_head(branch).await? {
        let note = format!("branch {branch} exists: the swarm continues from its head {}", commit.short());
        return Ok((commit, note));
    }
    if let Some(with) = repo.conflicting_branch(branch).await? {
        return Err(crate::delivery::DeliveryError::BranchNameConflict { branch: branch.to_owned(), with }.into());
    }
    let origin =
        head.branch.as_deref().map_or("the detached HEAD".to_owned(), |branch| format!("the head of {branch}"));
    let note = format!("branch {branch} will be created at {}, {origin}", head.commit.short());
    Ok((head.commit.clone(), note))
}

pub(crate) async fn connect_engine_with_image(
    here: &CommandContext,
    image: &str,
) -> Result<(Arc<dyn Engine>, EngineInfo, ImageInfo), CommandError> {
    let engine = here.connect_engine().await?;
    let (info, found) = tokio::join!(engine.info(), engine.image(image));
    let found = found?.ok_or_else(|| missing_image_error(image))?;
    Ok((engine, info?, found))
}

/// Fails if the engine does not have the network.
pub(crate) async fn check_network(engine: &dyn Engine, name: &str) -> Result<(), CommandError> {
    if name == "none" || engine.network_exists(name).await? {
        return Ok(());
    }
    Err(CommandError::machinery(format!("the engine has no network `{name}`"))
        .with_hint("`docker network ls` lists its networks; `none` means no network"))
}

/// The error for a running swarm that lands on one of these branches: each swarm would find the branch moved by the other.
pub(crate) fn conflicting_swarm_error(
    root: &Path,
    branches: &BTreeSet<&str>,
    own: Option<SwarmId>,
) -> Option<CommandError> {
    // Unreadable swarms do not run, or are reported by the code that needs them.
    let swarms = SwarmDir::list(root).unwrap_or_default();
    let live = swarms.iter().filter(|dir| Some(dir.swarm()) != own && dir.is_locked().unwrap_or(false));
    live.filter_map(|dir| Some((dir.swarm(), Journal::read_header(&dir.journal_file()).ok()?))).find_map(
        |(swarm, header)| {
            let file = header.spec.files.iter().find(|file| branches.contains(file.branch.as_str()))?;
            let message = format!("swarm {swarm} is running and lands on branch `{}` too", file.branch);
            let stop = format!("`longshore stop {}`", swarm.short());
            Some(
                CommandError::input(message)
                    .with_hint(format!("wait until it ends, {stop}, or land on another branch (`run --branch NAME`)")),
            )
        },
    )
}

pub(crate) fn missing_image_error(image: &str) -> CommandError {
    let shown = CommandError::machinery(format!("the engine has no image `{image}`"));
    if image == DEFAULT_IMAGE {
        shown
            .with_hint("build it with `longshore images build`, or with scripts/setup.sh if no registry can be reached")
    } else {
        shown.with_hint(format!(
            "pull it with `docker pull {image}`, build it with `docker build -t {image} DIR`, or load it with `docker load`"
        ))
    }
}

/// The error for a blank verify command, which would always pass.
fn blank_verify_error(settings: &Settings) -> Option<CommandError> {
    let verify = &settings.verify;
    verify.value.iter().any(|command| command.trim().is_empty()).then(|| {
        CommandError::input(format!("a verify command is empty (from {})", verify.source))
            .with_hint("it would check nothing: give a command or leave it out")
    })
}

fn resolve_environment(settings: &Settings) -> Result<EnvVars, Vec<CommandError>> {
    let values = settings.resolve_variables(&CommandContext::env_var).map_err(settings_errors)?;
    let size: usize = values.iter().map(|(key, value)| key.len() + value.len()).sum();
    if size > MAX_ENV_BYTES {
        let message =
            format!("the environment of the sandboxes has {size} bytes, and at most {MAX_ENV_BYTES} can be sent");
        return Err(vec![
            CommandError::input(message).with_hint("put large values into files of the repository or the image"),
        ]);
    }
    let mut env = EnvVars::new();
    let mut problems = Vec::new();
    for (key, value) in values {
        let inserted = key.parse::<EnvKey>().and_then(|key| env.insert(key, value));
        if let Err(error) = inserted {
            problems.push(CommandError::from_error(CommandErrorKind::Input, &error));
        }
    }
    if problems.is_empty() { Ok(env) } else { Err(problems) }
}

/// What is less isolated than by default, each with the setting that caused it.
fn describe_relaxations(settings: &Settings, info: &EngineInfo, env: &EnvVars, plan: &Plan) -> Vec<String> {
    let mut list = Vec::new();
    let from = |source: &SettingSource| format!("from {source}");
    if settings.network.value != "none" {
        list.push(format!("network {} ({})", settings.network.value, from(&settings.network.source)));
    }
    if settings.memory.value.0 == 0 {
        list.push(format!("no memory limit ({})", from(&settings.memory.source)));
    }
    if settings.cpus.value.0 == 0 {
        list.push(format!("no CPU limit ({})", from(&settings.cpus.source)));
    }
    if settings.keep.value {
        list.push(format!("containers and volumes are kept ({})", from(&settings.keep.source)));
    }
    if plan.has_mailbox() {
        let from = match settings.mailbox.value {
            Some(_) => from(&settings.mailbox.source),
            None => "from the tasks file".to_owned(),
        };
        list.push(format!("a mailbox that all sandboxes share ({from})"));
    }
    if !env.is_empty() {
        let names: Vec<String> = env
            .names()
            .map(|name| match settings.env.iter().find(|variable| variable.value.key() == name) {
                Some(variable) => format!("{name} ({})", from(&variable.source)),
                None => format!("{name} (from the agent's definition)"),
            })
            .collect();
        list.push(format!("environment variables: {}", names.join(", ")));
    }
    if !info.missing_limits.is_empty() {
        list.push(format!("the engine cannot limit: {}", info.missing_limits.join(", ")));
    }
    list
}
