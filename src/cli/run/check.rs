//! Everything that must hold before a swarm begins: settings, tasks files, plan, repository, branches, engine, image, shim.
//!
//! Called by `run/mod.rs`. All problems are collected. Must not: make or change anything.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::earlier;
use crate::cli::args::RunArgs;
use crate::cli::error::{Kind, Shown};
use crate::cli::here::{Here, settings_problems};
use crate::cli::settings::{self, DEFAULT_IMAGE, Settings, Source};
use crate::cli::{plan as plan_command, shim};
use crate::delivery::{Head, Repo};
use crate::engine::{Engine, EngineInfo, ImageInfo};
use crate::ids::{CommitId, SwarmId};
use crate::plan::{self, Plan};
use crate::protocol::acp::message::{EnvKey, EnvVars};
use crate::state::{Journal, SwarmDir};

/// The most bytes that the variables' names and values may have together: they travel in one ACP message of 64 KB, where
/// JSON may double some characters.
const ENV_MAX: usize = 32 * 1024;

/// All that a swarm needs, checked.
pub struct Checked {
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
    pub info: EngineInfo,
    /// The image.
    pub image: ImageInfo,
    /// The shim.
    pub shim: shim::Shim,
    /// The sandboxes' environment.
    pub env: EnvVars,
    /// Worth knowing before it begins: where each branch starts.
    pub opening: Vec<String>,
    /// Worth knowing before it begins and when it is over.
    pub notes: Vec<String>,
    /// What makes the sandboxes less closed than the defaults.
    pub relaxations: Vec<String>,
}

/// Checks.
pub async fn check(args: &RunArgs, here: &Here) -> Result<Checked, Shown> {
    let mut problems = Vec::new();
    let repo = kept(here.repo().await, &mut problems);
    let root = repo.as_ref().map(Repo::root);
    let loaded = settings::run_flags(args).and_then(|flags| settings::load(flags, root, &Here::lookup));
    let settings = match loaded {
        Ok(settings) => Some(settings),
        Err(faults) => {
            problems.extend(settings_problems(faults));
            None
        }
    };
    let files = plan_command::read(&args.plan).map_err(|faults| problems.extend(faults)).ok();
    let plan = match (files, &settings) {
        (Some(files), Some(settings)) => {
            let options = plan_command::options(&args.plan, settings);
            let built = plan::build(files, root.unwrap_or(here.folder()), &options);
            built.map_err(|error| problems.extend(plan_command::plan_problems(&error))).ok()
        }
        _ => None,
    };
    let (mut opening, mut notes) = (Vec::new(), Vec::new());
    // The rest takes its time in other programs: side by side.
    let image_name = settings.as_ref().map_or(DEFAULT_IMAGE, |settings| settings.image.value.as_str());
    let (branches, engine) =
        tokio::join!(branches(repo.as_ref(), plan.as_ref(), &mut opening, &mut notes), engine(here, image_name));
    let bases = branches.map_err(|faults| problems.extend(faults)).ok();
    let engine = kept(engine, &mut problems);
    let shim = engine
        .as_ref()
        .and_then(|(_, _, image)| kept(shim::find(&image.arch, Here::exe().as_deref(), &Here::lookup), &mut problems));
    problems.extend(settings.as_ref().and_then(blank_check));
    let env = settings.as_ref().and_then(|settings| {
        for named in [settings.agent(), settings.reviewer()] {
            problems.extend(named.err().map(Shown::from));
        }
        environment(settings).map_err(|faults| problems.extend(faults)).ok()
    });
    if let (Some((engine, _, _)), Some(settings)) = (&engine, &settings) {
        problems.extend(network(engine.as_ref(), &settings.network.value).await.err());
    }
    if let (Some(root), Some(plan)) = (root, &plan) {
        let branches = plan.files.iter().map(|file| file.branch.as_str()).collect();
        problems.extend(another_swarm(root, &branches, None));
        let unfinished = earlier::unfinished(root, &earlier::copies(plan));
        if args.new {
            opening.extend(unfinished.iter().map(earlier::Unfinished::passed_over));
        } else if !plan.assignments.is_empty() {
            problems.extend(unfinished.iter().map(earlier::Unfinished::refusal));
        }
    }
    Shown::all(problems)?;
    let all = (settings, plan, bases, repo, engine, shim, env);
    let (Some(settings), Some(plan), Some(bases), Some(repo), Some((engine, info, image)), Some(shim), Some(env)) = all
    else {
        // Each of them is there, or is a problem.
        return Err(Shown::machinery("a check gave neither a value nor a problem"));
    };
    let relaxations = relaxations(&settings, &info, &env, &plan);
    Ok(Checked { settings, plan, bases, repo, engine, info, image, shim, env, opening, notes, relaxations })
}

fn kept<T>(result: Result<T, Shown>, problems: &mut Vec<Shown>) -> Option<T> {
    result.map_err(|error| problems.push(error)).ok()
}

/// Where each file's stories start, and what there is to say about branches and working tree.
async fn branches(
    repo: Option<&Repo>,
    plan: Option<&Plan>,
    opening: &mut Vec<String>,
    notes: &mut Vec<String>,
) -> Result<Vec<CommitId>, Vec<Shown>> {
    let Some(repo) = repo else { return Ok(Vec::new()) };
    let head = repo.head().await.map_err(|error| vec![error.into()])?;
    if repo.dirty().await.unwrap_or(false) {
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
        match base(repo, &head, name).await {
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

async fn base(repo: &Repo, head: &Head, branch: &str) -> Result<(CommitId, String), Shown> {
    if let Some(at) = repo.checked_out_at(branch).await? {
        return Err(crate::delivery::DeliveryError::CheckedOut { branch: branch.to_owned(), at }.into());
    }
    if let Some(commit) = repo.branch_head(branch).await? {
        let note = format!("branch {branch} exists: the swarm goes on from its head {}", commit.short());
        return Ok((commit, note));
    }
    if let Some(with) = repo.branch_clash(branch).await? {
        return Err(crate::delivery::DeliveryError::BranchClash { branch: branch.to_owned(), with }.into());
    }
    let whence =
        head.branch.as_deref().map_or("the detached HEAD".to_owned(), |branch| format!("the head of {branch}"));
    let note = format!("branch {branch} will be made at {}, {whence}", head.commit.short());
    Ok((head.commit.clone(), note))
}

pub(crate) async fn engine(here: &Here, image: &str) -> Result<(Arc<dyn Engine>, EngineInfo, ImageInfo), Shown> {
    let engine = here.engine().await?;
    let (info, found) = tokio::join!(engine.info(), engine.image(image));
    let found = found?.ok_or_else(|| image_missing(image))?;
    Ok((engine, info?, found))
}

/// Whether the engine has the network.
pub(crate) async fn network(engine: &dyn Engine, name: &str) -> Result<(), Shown> {
    if name == "none" || engine.network_exists(name).await? {
        return Ok(());
    }
    Err(Shown::machinery(format!("the engine has no network `{name}`"))
        .hint("`docker network ls` lists those that it has; `none` is no network"))
}

/// A live swarm that lands on one of these branches: each would find the branch moved by the other.
pub(crate) fn another_swarm(root: &Path, branches: &BTreeSet<&str>, own: Option<SwarmId>) -> Option<Shown> {
    // What cannot be read is no swarm that runs, or will be told by what needs it.
    let swarms = SwarmDir::list(root).unwrap_or_default();
    let live = swarms.iter().filter(|dir| Some(dir.swarm()) != own && dir.is_locked().unwrap_or(false));
    live.filter_map(|dir| Some((dir.swarm(), Journal::read_header(&dir.journal_file()).ok()?))).find_map(
        |(swarm, header)| {
            let file = header.spec.files.iter().find(|file| branches.contains(file.branch.as_str()))?;
            let message = format!("swarm {swarm} is running, and lands on the branch `{}` too", file.branch);
            let stop = format!("`longshore stop {}`", swarm.short());
            Some(
                Shown::input(message)
                    .hint(format!("wait for its end, {stop}, or land on another branch (`run --branch NAME`)")),
            )
        },
    )
}

/// The engine does not have the image.
pub fn image_missing(image: &str) -> Shown {
    let shown = Shown::machinery(format!("the engine has no image `{image}`"));
    if image == DEFAULT_IMAGE {
        shown.hint("`longshore images build` builds it (or scripts/setup.sh, where no registry can be reached)")
    } else {
        shown.hint(format!(
            "`docker pull {image}`, or build it; `longshore images build --tag NAME` builds the default one"
        ))
    }
}

/// A verify command of blanks alone would pass whatever the story did.
fn blank_check(settings: &Settings) -> Option<Shown> {
    let verify = &settings.verify;
    verify.value.iter().any(|command| command.trim().is_empty()).then(|| {
        Shown::input(format!("a verify command is empty (from {})", verify.source))
            .hint("it would check nothing: give a command, or leave it out")
    })
}

/// The variables with their values.
fn environment(settings: &Settings) -> Result<EnvVars, Vec<Shown>> {
    let values = settings.variables(&Here::lookup).map_err(settings_problems)?;
    let size: usize = values.iter().map(|(key, value)| key.len() + value.len()).sum();
    if size > ENV_MAX {
        let message = format!("the environment for the sandboxes has {size} bytes, and at most {ENV_MAX} can be sent");
        return Err(vec![Shown::input(message).hint("send the large values as files of the repository or the image")]);
    }
    let mut env = EnvVars::new();
    let mut problems = Vec::new();
    for (key, value) in values {
        let inserted = key.parse::<EnvKey>().and_then(|key| env.insert(key, value));
        if let Err(error) = inserted {
            problems.push(Shown::of(Kind::Input, &error));
        }
    }
    if problems.is_empty() { Ok(env) } else { Err(problems) }
}

/// What is less closed than the defaults, each with the setting that made it so.
fn relaxations(settings: &Settings, info: &EngineInfo, env: &EnvVars, plan: &Plan) -> Vec<String> {
    let mut list = Vec::new();
    let from = |source: &Source| format!("from {source}");
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
    async fn a_network_that_is_not_there() {
        let engine = FakeEngine::new(|_| async { 0 }).with_network("build");
        assert!(network(&engine, "none").await.is_ok() && network(&engine, "build").await.is_ok());
        assert_eq!(network(&engine, "bulid").await.expect_err("not there").exit_code(), 3);
    }

    fn swarm_on(root: &Path, branch: &str) -> SwarmDir {
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
    fn one_live_swarm_a_branch() {
        let root = tempfile::tempdir().expect("a folder");
        let asked = |branch: &str, own| another_swarm(root.path(), &BTreeSet::from([branch]), own);
        assert!(asked("feat/a", None).is_none(), "no swarm at all");
        let (dir, other) = (swarm_on(root.path(), "feat/a"), swarm_on(root.path(), "feat/b"));
        let lock = dir.lock().expect("free");
        let _other = other.lock().expect("free");
        let refused = asked("feat/a", None).expect("refused");
        assert_eq!(refused.exit_code(), 2);
        assert!(asked("feat/c", None).is_none() && asked("feat/a", Some(dir.swarm())).is_none());
        drop(lock);
        assert!(asked("feat/a", None).is_none(), "it is over");
    }
}
