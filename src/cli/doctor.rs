//! `longshore doctor`: checks everything that a run needs, and shows every setting with its source.
//!
//! Exits with 0 if a run could work, 3 if something that it needs is missing, 2 if the settings are invalid. Must not: change
//! anything.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::args::DoctorArgs;
use super::context::CommandContext;
use super::error::{CommandError, settings_errors};
use super::output::to_json;
use super::settings::{self, Config, DEFAULT_IMAGE, SettingRow};
use super::{CommandResult, ExitStatus, print_stdout, shim};
use crate::engine::{Engine, EngineInfo};
use crate::report::table::Table;
use crate::report::text::sanitize;

/// With fewer open files, a large swarm may run out of them.
const MIN_OPEN_FILES: u64 = 1024;
/// With less free space, in bytes, a swarm may run out of it.
const MIN_FREE_BYTES: u64 = 1 << 30;
/// Longer values of settings push their source to the right.
const MAX_VALUE_PADDING: usize = 48;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CheckStatus {
    Passed,
    Note,
    Failed,
}

struct DoctorCheck {
    status: CheckStatus,
    name: &'static str,
    detail: String,
    hint: Option<String>,
}

#[derive(Default)]
struct DoctorReport(Vec<DoctorCheck>);

impl DoctorReport {
    fn add(&mut self, status: CheckStatus, name: &'static str, detail: impl Into<String>, hint: Option<&str>) {
        self.0.push(DoctorCheck { status, name, detail: detail.into(), hint: hint.map(str::to_owned) });
    }

    fn pass(&mut self, name: &'static str, detail: impl Into<String>) {
        self.add(CheckStatus::Passed, name, detail, None);
    }

    /// Adds an error as a failed check: its first line with the first cause, and its hint.
    fn fail(&mut self, name: &'static str, error: &CommandError) {
        let text = error.to_string();
        let mut lines = text.lines().map(str::trim);
        let detail = lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let hint = lines.clone().find_map(|line| line.strip_prefix("hint: "));
        let cause = lines.find_map(|line| line.strip_prefix("caused by: "));
        let detail = cause.map_or(detail.clone(), |cause| format!("{detail}: {cause}"));
        self.add(CheckStatus::Failed, name, detail, hint);
    }

    fn worst_status(&self) -> CheckStatus {
        self.0.iter().map(|check| check.status).max().unwrap_or(CheckStatus::Passed)
    }
}

pub(crate) async fn doctor(args: &DoctorArgs, here: &CommandContext) -> CommandResult {
    let mut report = DoctorReport::default();
    let root = check_repo(here, &mut report).await;
    let flags = Config { image: args.image.clone(), ..Config::default() };
    let loaded = settings::load(flags, root.as_deref(), &CommandContext::env_var);
    let image = match &loaded {
        Ok(settings) => settings.image.value.clone(),
        Err(_) => args.image.clone().unwrap_or_else(|| DEFAULT_IMAGE.to_owned()),
    };
    let arch = check_engine(here, &image, &mut report).await;
    check_shim(&arch, &mut report);
    check_host(root.as_deref().unwrap_or(here.dir()), &mut report);
    let mut text = render_checks(&report);
    let (rows, problems, settings_status) = match loaded {
        Ok(settings) => {
            let problems = settings.agent().err().map(CommandError::from).into_iter().collect();
            (settings.rows(), problems, ExitStatus::Success)
        }
        Err(problems) => (Vec::new(), settings_errors(problems), ExitStatus::InvalidInput),
    };
    let status = match report.worst_status() {
        CheckStatus::Failed => ExitStatus::Machinery,
        _ => settings_status,
    };
    if args.json {
        for problem in &problems {
            report.fail("settings", problem);
        }
        text = render_json_lines(&report, &rows)?;
    } else {
        for problem in &problems {
            let _ = write!(text, "\n{problem}");
        }
        text.push_str(&render_settings(&rows));
    }
    print_stdout(&text)?;
    Ok(status)
}

async fn check_repo(here: &CommandContext, report: &mut DoctorReport) -> Option<PathBuf> {
    let version = tokio::process::Command::new("git").arg("version").output().await;
    if let Ok(output) = &version
        && output.status.success()
    {
        let line = sanitize(&String::from_utf8_lossy(&output.stdout));
        report.pass("git", line);
    } else {
        report.add(CheckStatus::Failed, "git", "cannot run `git`", Some("install git 2.38 or newer"));
        return None;
    }
    let repo = here.discover_repo().await.map_err(|error| report.fail("repository", &error)).ok()?;
    match repo.head().await.map_err(CommandError::from) {
        Ok(head) => {
            let on = head.branch.as_deref().map_or("detached HEAD".to_owned(), |branch| format!("on {branch}"));
            let dirty = if repo.is_dirty().await.unwrap_or(false) {
                ", with uncommitted changes that sandboxes will not see"
            } else {
                ""
            };
            let detail = format!("{} {on} at {}{dirty}", repo.root().display(), head.commit.short());
            report.pass("repository", detail);
        }
        Err(error) => report.fail("repository", &error),
    }
    Some(repo.root().to_owned())
}

/// Checks the engine and its image. Gives the architecture of the sandboxes.
async fn check_engine(here: &CommandContext, image: &str, report: &mut DoctorReport) -> String {
    let connected = async {
        let engine = here.connect_engine().await?;
        let info = engine.info().await?;
        Ok::<_, CommandError>((engine, info))
    };
    let (engine, info) = match connected.await {
        Ok(connected) => connected,
        Err(error) => {
            report.fail("engine", &error);
            return std::env::consts::ARCH.to_owned();
        }
    };
    let EngineInfo {
        name,
        api_version: api,
        endpoint,
        arch,
        cpus,
        memory,
        volume_subpath,
        cgroup_version: cgroup,
        missing_limits,
    } = info;
    report.pass("engine", format!("{name}, API {api}, {arch}"));
    report.pass("endpoint", endpoint);
    let gigabytes = memory as f64 / (1u64 << 30) as f64;
    report.pass("resources", format!("{cpus} CPUs, {gigabytes:.1} GB of memory, cgroup v{cgroup}"));
    if missing_limits.is_empty() {
        report.pass("limits", "memory, CPUs and processes can be limited");
    } else {
        let detail = format!("the engine cannot limit: {}", missing_limits.join(", "));
        let hint = "sandboxes run without these limits; rootless engines need cgroup v2 with delegation";
        report.add(CheckStatus::Note, "limits", detail, Some(hint));
    }
    let volumes = if volume_subpath {
        "a sandbox sees only its own directories"
    } else {
        "sandboxes see the names of each other's directories but cannot open them (API 1.45 hides them)"
    };
    report.pass("volumes", volumes);
    check_image(&*engine, image, report).await.unwrap_or(arch)
}

async fn check_image(engine: &dyn Engine, image: &str, report: &mut DoctorReport) -> Option<String> {
    match engine.image(image).await.map_err(CommandError::from) {
        Ok(Some(found)) => {
            report.pass("image", format!("{image}, {}, {} MB", found.arch, found.size / 1_000_000));
            Some(found.arch)
        }
        Ok(None) => {
            report.fail("image", &super::run::preflight::missing_image_error(image));
            None
        }
        Err(error) => {
            report.fail("image", &error);
            None
        }
    }
}

fn check_shim(arch: &str, report: &mut DoctorReport) {
    match shim::find_shim(arch, CommandContext::current_exe().as_deref(), &CommandContext::env_var) {
        Ok(found) => {
            let detail = format!("{}, static, {arch}, {} KB", found.path.display(), found.bytes.len() / 1024);
            report.pass("shim", detail);
        }
        Err(error) => report.fail("shim", &error),
    }
}

fn check_host(dir: &Path, report: &mut DoctorReport) {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    match limit {
        Some(limit) if limit < MIN_OPEN_FILES => {
            let hint = "each running sandbox takes three: raise the limit with `ulimit -n 4096`";
            report.add(CheckStatus::Note, "open files", format!("at most {limit}"), Some(hint));
        }
        Some(limit) => report.pass("open files", format!("at most {limit}")),
        None => report.pass("open files", "no limit"),
    }
    match rustix::fs::statvfs(dir) {
        Ok(stat) => {
            let free = stat.f_bavail.saturating_mul(stat.f_frsize);
            let detail = format!("{:.1} GB free at {}", free as f64 / (1u64 << 30) as f64, dir.display());
            let (status, hint) = if free < MIN_FREE_BYTES {
                (CheckStatus::Note, Some("make room: results and logs are kept there"))
            } else {
                (CheckStatus::Passed, None)
            };
            report.add(status, "disk", detail, hint);
        }
        Err(error) => report.add(CheckStatus::Note, "disk", format!("cannot be checked: {error}"), None),
    }
}

fn render_checks(report: &DoctorReport) -> String {
    let mut table = Table::without_head();
    for check in &report.0 {
        let mark = match check.status {
            CheckStatus::Passed => "ok  ",
            CheckStatus::Note => "note",
            CheckStatus::Failed => "BAD ",
        };
        table.push([mark.to_owned(), check.name.to_owned(), sanitize(&check.detail)]);
        if let Some(hint) = &check.hint {
            table.push([String::new(), String::new(), format!("hint: {}", sanitize(hint))]);
        }
    }
    table.render()
}

/// A line of `--json`.
#[derive(Serialize)]
struct DoctorJsonLine<'a> {
    /// `check` or `setting`.
    #[serde(rename = "thing")]
    kind: &'a str,
    name: &'a str,
    /// `ok`, `note` or `bad` of a check; the value of a setting.
    #[serde(rename = "verdict")]
    value: &'a str,
    /// The detail of a check; the source of a setting.
    #[serde(rename = "reason")]
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
}

fn render_json_lines(report: &DoctorReport, rows: &[SettingRow]) -> Result<String, CommandError> {
    let checks = report.0.iter().map(|check| DoctorJsonLine {
        kind: "check",
        name: check.name,
        value: match check.status {
            CheckStatus::Passed => "ok",
            CheckStatus::Note => "note",
            CheckStatus::Failed => "bad",
        },
        detail: &check.detail,
        hint: check.hint.as_deref(),
    });
    let settings = rows.iter().map(|row| DoctorJsonLine {
        kind: "setting",
        name: &row.name,
        value: &row.value,
        detail: &row.source,
        hint: None,
    });
    checks.chain(settings).map(|line| Ok(to_json(&line)? + "\n")).collect()
}

fn render_settings(rows: &[SettingRow]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::without_head().pad_at_most(2, MAX_VALUE_PADDING);
    for row in rows {
        // The empty cell indents the row.
        table.push([String::new(), row.name.clone(), sanitize(&row.value), row.source.clone()]);
    }
    format!("\nsettings\n{}", table.render())
}
