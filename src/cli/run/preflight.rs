//! Everything that must hold before a swarm begins: settings, tasks files, plan, repository, branches, engine, image, shim.
//!
//! Called by `run/mod.rs`. All problems are collected. Must not: make or change anything.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::unfinished;
use crate::cli::args::RunArgs;
use crate::cli::context::{CommandContext, settings_errors};
use crate::cli::error::{CommandError, CommandErrorKind};
use crate::cli::settings::{self, DEFAULT_IMAGE, SettingSource, Settings};
use crate::cli::{plan as plan_command, shim};
use crate::delivery::{Repo, RepoHead};
use crate::engine::{Engine, EngineInfo, ImageInfo};
use crate::ids::{CommitId, SwarmId};
use crate::plan::{self, Plan};
use crate::protocol::acp::message::{EnvKey, EnvVars};
use crate::state::{Journal, SwarmDir};

/// The most bytes that the variables' names and values may have together: they travel in one ACP message of 64 KB, where
/// JSON may double some characters.
const MAX_ENV_BYTES: usize = 32 * 1024;

/// All that a swarm needs, checked.
pub struct Preflight {
    /// The settings.
    pub settings: Settings,
    /// The plan.
    pub plan: Plan,
    /// The heads of the files' integration branches, one a file.
    pub bases: Vec<CommitId>,
    /// The repository.
    pub repo: Repo,
    /// The engine.
    pub engine: Arc<dyn Engine>,
    /// What the engine is.
    pub engine_info: EngineInfo,
    /// The image.
    pub image: ImageInfo,
    /// The shim.
    pub shim: shim::ShimBinary,
    /// The sandboxes' environment.
    pub env: EnvVars,
    /// Worth knowing before it begins: where each branch starts.
    pub start_notes: Vec<String>,
    /// Worth knowing before it begins and when it is over.
    pub notes: Vec<String>,
    /// What makes the sandboxes less closed than the defaults.
    pub relaxations: Vec<String>,
}

/// Checks.
pub async fn check(args: &RunArgs, here: &CommandContext) -> Result<Preflight, CommandError> {
    let mut problems = Vec::new();
    let repo = collect_error(here.discover_repo().await, &mut problems);
    let root = repo.as_ref().map(Repo::root);
    let loaded = settings::run_layer(args).and_then(|flags| settings::load(flags, root, &CommandContext::env_var));
    let settings = match loaded {
        Ok(settings) => Some(settings),
        Err(faults) => {
            problems.extend(settings_errors(faults));
            None
        }
    };
    let files = plan_command::load_tasks_files(&args.plan).map_err(|faults| problems.extend(faults)).ok();
    let plan = match (files, &settings) {
        (Some(files), Some(settings)) => {
            let options = plan_command::plan_options(&args.plan, settings);
            let built = plan::build(files, root.unwrap_or(here.dir()), &options);
            built.map_err(|error| problems.extend(plan_command::plan_errors(&error))).ok()
        }
        _ => None,
    };
    let (mut opening, mut notes) = (Vec::new(), Vec::new());
    // The rest takes its time in other programs: side by side.
    let image_name = settings.as_ref().map_or(DEFAULT_IMAGE, |settings| settings.image.value.as_str());
    let (branches, engine) = tokio::join!(
        resolve_bases(repo.as_ref(), plan.as_ref(), &mut opening, &mut notes),
        connect_engine_with_image(here, image_name)
    );
    let bases = branches.map_err(|faults| problems.extend(faults)).ok();
    let engine = collect_error(engine, &mut problems);
    let shim = engine.as_ref().and_then(|(_, _, image)| {
        collect_error(
            shim::find_shim(&image.arch, CommandContext::current_exe().as_deref(), &CommandContext::env_var),
            &mut problems,
        )
    });
    problems.extend(settings.as_ref().and_then(blank_verify_error));
    let env = settings.as_ref().and_then(|settings| {
        for named in [settings.agent(), settings.reviewer()] {
            problems.extend(named.err().map(CommandError::from));
        }
        resolve_environment(settings).map_err(|faults| problems.extend(faults)).ok()
    });
    if let (Some((engine, _, _)), Some(settings)) = (&engine, &settings) {
        problems.extend(check_network(engine.as_ref(), &settings.network.value).await.err());
    }
    if let (Some(root), Some(plan)) = (root, &plan) {
        let branches = plan.files.iter().map(|file| file.branch.as_str()).collect();
        problems.extend(conflicting_swarm_error(root, &branches, None));
        let unfinished = unfinished::find_unfinished_swarms(root, &unfinished::copy_tasks_files(plan));
        if args.new {
            opening.extend(unfinished.iter().map(unfinished::UnfinishedSwarm::ignored_note));
        } else if !plan.assignments.is_empty() {
            problems.extend(unfinished.iter().map(unfinished::UnfinishedSwarm::to_error));
        }
    }
    CommandError::combine(problems)?;
    let all = (settings, plan, bases, repo, engine, shim, env);
    let (Some(settings), Some(plan), Some(bases), Some(repo), Some((engine, info, image)), Some(shim), Some(env)) = all
    else {
        // Each of them is there, or is a problem.
        return Err(CommandError::machinery("a check gave neither a value nor a problem"));
    };
    let relaxations = describe_relaxations(&settings, &info, &env, &plan);
    Ok(Preflight {
        settings,
        plan,
        bases,
        repo,
        engine,
        engine_info: info,
        image,
        shim,
        env,
        start_notes: opening,
        notes,
        relaxations,
    })
}

fn collect_error<T>(result: Result<T, CommandError>, problems: &mut Vec<CommandError>) -> Option<T> {
    result.map_err(|error| problems.push(error)).ok()
}

/// Where each file's stories start, and what there is to say about branches and working tree.
async fn resolve_bases(
    repo: Option<&Repo>,
    plan: Option<&Plan>,
    opening: &mut Vec<String>,
    notes: &mut Vec<String>,
) -> Result<Vec<CommitId>, Vec<CommandError>> {
    let Some(repo) = repo else { return Ok(Vec::new()) };
    let head = repo.head().await.map_err(|error| vec![error.into()])?;
    if repo.is_dirty().await.unwrap_or(false) {
        notes.push("the working tree has changes that are not committed: sandboxes will not see them".to_owned());
    }
    let Some(plan) = plan else { return Ok(Vec::new()) };
    let mut bases = Vec::new();
    let mut problems = Vec::new();
    let mut told: Vec<&str> = Vec::new();
    for file in &plan.files {
        let name = file.branch.as_str();
        let again = told.contains(&name);
        told.push(name);
        match resolve_base(repo, &head, name).await {
            Ok((base, note)) => {
                if !again {
                    opening.push(note);
                }
                bases.push(base);
            }
            Err(problem) if !again => problems.push(problem),
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
        let note = format!("branch {branch} exists: the swarm goes on from its head {}", commit.short());
        return Ok((commit, note));
    }
    if let Some(with) = repo.conflicting_branch(branch).await? {
        return Err(crate::delivery::DeliveryError::BranchNameConflict { branch: branch.to_owned(), with }.into());
    }
    let whence =
        head.branch.as_deref().map_or("the detached HEAD".to_owned(), |branch| format!("the head of {branch}"));
    let note = format!("branch {branch} will be made at {}, {whence}", head.commit.short());
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

/// Whether the engine has the network.
pub(crate) async fn check_network(engine: &dyn Engine, name: &str) -> Result<(), CommandError> {
    if name == "none" || engine.network_exists(name).await? {
        return Ok(());
    }
    Err(CommandError::machinery(format!("the engine has no network `{name}`"))
        .with_hint("`docker network ls` lists those that it has; `none` is no network"))
}

/// A live swarm that lands on one of these branches: each would find the branch moved by the other.
pub(crate) fn conflicting_swarm_error(
    root: &Path,
    branches: &BTreeSet<&str>,
    own: Option<SwarmId>,
) -> Option<CommandError> {
    // What cannot be read is no swarm that runs, or will be told by what needs it.
    let swarms = SwarmDir::list(root).unwrap_or_default();
    let live = swarms.iter().filter(|dir| Some(dir.swarm()) != own && dir.is_locked().unwrap_or(false));
    live.filter_map(|dir| Some((dir.swarm(), Journal::read_header(&dir.journal_file()).ok()?))).find_map(
        |(swarm, header)| {
            let file = header.spec.files.iter().find(|file| branches.contains(file.branch.as_str()))?;
            let message = format!("swarm {swarm} is running, and lands on the branch `{}` too", file.branch);
            let stop = format!("`longshore stop {}`", swarm.short());
            Some(
                CommandError::input(message)
                    .with_hint(format!("wait for its end, {stop}, or land on another branch (`run --branch NAME`)")),
            )
        },
    )
}

/// The engine does not have the image.
pub fn missing_image_error(image: &str) -> CommandError {
    let shown = CommandError::machinery(format!("the engine has no image `{image}`"));
    if image == DEFAULT_IMAGE {
        shown.with_hint("`longshore images build` builds it (or scripts/setup.sh, where no registry can be reached)")
    } else {
        shown.with_hint(format!(
            "`docker pull {image}`, or build it; `longshore images build --tag NAME` builds the default one"
        ))
    }
}

/// A verify command of blanks alone would pass whatever the story did.
fn blank_verify_error(settings: &Settings) -> Option<CommandError> {
    let verify = &settings.verify;
    verify.value.iter().any(|command| command.trim().is_empty()).then(|| {
        CommandError::input(format!("a verify command is empty (from {})", verify.source))
            .with_hint("it would check nothing: give a command, or leave it out")
    })
}

/// The variables with their values.
fn resolve_environment(settings: &Settings) -> Result<EnvVars, Vec<CommandError>> {
    let values = settings.resolve_variables(&CommandContext::env_var).map_err(settings_errors)?;
    let size: usize = values.iter().map(|(key, value)| key.len() + value.len()).sum();
    if size > MAX_ENV_BYTES {
        let message =
            format!("the environment for the sandboxes has {size} bytes, and at most {MAX_ENV_BYTES} can be sent");
        return Err(vec![
            CommandError::input(message).with_hint("send the large values as files of the repository or the image"),
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

/// What is less closed than the defaults, each with the setting that made it so.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::fake::FakeEngine;
    use crate::state::JournalHeader;
    use crate::state::journal::JOURNAL_VERSION;
    use crate::swarm::{SwarmLimits, SwarmSpec, TasksFileSpec};

    #[tokio::test]
    async fn missing_network_is_an_error() {
        let engine = FakeEngine::new(|_| async { 0 }).with_network("build");
        assert!(check_network(&engine, "none").await.is_ok() && check_network(&engine, "build").await.is_ok());
        assert_eq!(check_network(&engine, "bulid").await.expect_err("not there").exit_code(), 3);
    }

    fn create_swarm_on(root: &Path, branch: &str) -> SwarmDir {
        let file = TasksFileSpec {
            path: "a.json".to_owned(),
            slug: "a".to_owned(),
            title: "A".to_owned(),
            branch: branch.parse().expect("valid"),
            base: "0123456789".repeat(4).parse().expect("valid"),
        };
        let limits = SwarmLimits {
            max_sandboxes: 1,
            retries: 0,
            machinery_retries: 0,
            backoff: std::time::Duration::ZERO,
            story_timeout: std::time::Duration::ZERO,
            idle_timeout: std::time::Duration::ZERO,
            slack: std::time::Duration::ZERO,
            grace_period: std::time::Duration::ZERO,
            max_bad_records: 1,
            liveness_timeout: crate::swarm::default_liveness_timeout(),
        };
        let swarm = SwarmId::random();
        let header = JournalHeader {
            schema_version: JOURNAL_VERSION,
            program_version: String::new(),
            swarm_id: swarm,
            started: jiff::Timestamp::UNIX_EPOCH,
            spec: SwarmSpec {
                swarm,
                files: vec![file],
                stories: Vec::new(),
                assignments: Vec::new(),
                limits,
                amp: None,
            },
            settings: serde_json::Value::Null,
            tasks: Vec::new(),
        };
        let dir = SwarmDir::create(root, swarm).expect("made");
        Journal::create(&dir.journal_file(), &header).expect("begun");
        dir
    }

    #[test]
    fn a_branch_allows_one_live_swarm() {
        let root = tempfile::tempdir().expect("a folder");
        let asked = |branch: &str, own| conflicting_swarm_error(root.path(), &BTreeSet::from([branch]), own);
        assert!(asked("feat/a", None).is_none(), "no swarm at all");
        let (dir, other) = (create_swarm_on(root.path(), "feat/a"), create_swarm_on(root.path(), "feat/b"));
        let lock = dir.lock().expect("free");
        let _other = other.lock().expect("free");
        let refused = asked("feat/a", None).expect("refused");
        assert_eq!(refused.exit_code(), 2);
        assert!(asked("feat/c", None).is_none() && asked("feat/a", Some(dir.swarm())).is_none());
        drop(lock);
        assert!(asked("feat/a", None).is_none(), "it is over");
    }
}
