//! `longshore doctor`: checks all that a run needs, and shows every setting with its source.
//!
//! Exit code 0 where a run could work, 3 where something it needs is missing, 2 where the settings are wrong. Must not:
//! change anything.

use std::fmt::Write;
use std::path::Path;

use serde::Serialize;

use super::args::DoctorArgs;
use super::config::Config;
use super::context::{CommandContext, settings_errors};
use super::error::{CommandError, CommandErrorKind};
use super::settings;
use super::{CommandResult, print_stdout, shim};
use crate::engine::{Engine, EngineInfo};
use crate::report::text::{display_width, pad_to_width, sanitize};

/// The number of open files below which a large swarm may run out of them.
const MIN_OPEN_FILES: u64 = 1024;
/// The free space below which a swarm may run out of it, in bytes.
const MIN_FREE_BYTES: u64 = 1 << 30;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    fn add(&mut self, grade: CheckStatus, name: &'static str, detail: impl Into<String>, hint: Option<&str>) {
        let hint = hint.map(str::to_owned);
        self.0.push(DoctorCheck { status: grade, name, detail: detail.into(), hint });
    }

    /// A shown error as a finding: its first line, and its hint.
    fn add_error(&mut self, grade: CheckStatus, name: &'static str, error: &CommandError) {
        let text = error.to_string();
        let mut lines = text.lines().map(str::trim);
        let detail = lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let hint = lines.clone().find_map(|line| line.strip_prefix("hint: ")).map(str::to_owned);
        let cause = lines.find_map(|line| line.strip_prefix("caused by: "));
        let detail = cause.map_or(detail.clone(), |cause| format!("{detail}: {cause}"));
        self.0.push(DoctorCheck { status: grade, name, detail, hint });
    }

    fn worst_status(&self) -> CheckStatus {
        self.0.iter().map(|check| check.status).max_by_key(|grade| *grade as u8).unwrap_or(CheckStatus::Passed)
    }
}

/// Carries it out.
pub async fn doctor(args: &DoctorArgs, here: &CommandContext) -> CommandResult {
    let mut findings = DoctorReport::default();
    let root = check_repo(here, &mut findings).await;
    let flags = Config { image: args.image.clone(), ..Config::default() };
    let loaded = settings::load(flags, root.as_deref(), &CommandContext::env_var);
    let image = match &loaded {
        Ok(settings) => settings.image.value.clone(),
        Err(_) => args.image.clone().unwrap_or_else(|| settings::DEFAULT_IMAGE.to_owned()),
    };
    let arch = check_engine(here, &image, &mut findings).await;
    check_shim(&arch, &mut findings);
    check_host(root.as_deref().unwrap_or(here.dir()), &mut findings);
    let mut text = render_checks(&findings);
    let mut rows = Vec::new();
    let (problems, settings_code) = match loaded {
        Ok(settings) => {
            rows = settings.rows();
            (settings.agent().err().map(CommandError::from).into_iter().collect(), 0)
        }
        Err(problems) => (settings_errors(problems), 2),
    };
    for problem in &problems {
        let _ = write!(text, "\n{problem}");
    }
    if !rows.is_empty() {
        text.push_str(&render_settings(&rows));
    }
    let code = if findings.worst_status() == CheckStatus::Failed { 3 } else { settings_code };
    if args.json {
        for problem in &problems {
            findings.add_error(CheckStatus::Failed, "settings", problem);
        }
        text = render_json_lines(&findings, &rows)?;
    }
    print_stdout(&text)?;
    Ok(code)
}

async fn check_repo(here: &CommandContext, findings: &mut DoctorReport) -> Option<std::path::PathBuf> {
    let version = tokio::process::Command::new("git").arg("version").output().await;
    if let Ok(output) = &version
        && output.status.success()
    {
        let line = sanitize(&String::from_utf8_lossy(&output.stdout));
        findings.add(CheckStatus::Passed, "git", line, None);
    } else {
        findings.add(CheckStatus::Failed, "git", "`git` cannot be run", Some("install git 2.38 or newer"));
        return None;
    }
    let repo = match here.discover_repo().await {
        Ok(repo) => repo,
        Err(error) => {
            findings.add_error(CheckStatus::Failed, "repository", &error);
            return None;
        }
    };
    match repo.head().await.map_err(CommandError::from) {
        Ok(head) => {
            let on = head.branch.as_deref().map_or("detached HEAD".to_owned(), |branch| format!("on {branch}"));
            let dirty =
                if repo.is_dirty().await.unwrap_or(false) { ", with changes that sandboxes will not see" } else { "" };
            let detail = format!("{} {on} at {}{dirty}", repo.root().display(), head.commit.short());
            findings.add(CheckStatus::Passed, "repository", detail, None);
        }
        Err(error) => findings.add_error(CheckStatus::Failed, "repository", &error),
    }
    Some(repo.root().to_owned())
}

/// The checks of the engine and its image. Gives the architecture that the shim must have.
async fn check_engine(here: &CommandContext, image: &str, findings: &mut DoctorReport) -> String {
    let host = std::env::consts::ARCH.to_owned();
    let engine = match here.connect_engine().await {
        Ok(engine) => engine,
        Err(error) => {
            findings.add_error(CheckStatus::Failed, "engine", &error);
            return host;
        }
    };
    let info = match engine.info().await.map_err(CommandError::from) {
        Ok(info) => info,
        Err(error) => {
            findings.add_error(CheckStatus::Failed, "engine", &error);
            return host;
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
    findings.add(CheckStatus::Passed, "engine", format!("{name}, API {api}, {arch}"), None);
    findings.add(CheckStatus::Passed, "endpoint", endpoint, None);
    let gigabytes = memory as f64 / (1u64 << 30) as f64;
    findings.add(
        CheckStatus::Passed,
        "resources",
        format!("{cpus} CPUs, {gigabytes:.1} GB of memory, cgroup v{cgroup}"),
        None,
    );
    if missing_limits.is_empty() {
        findings.add(CheckStatus::Passed, "limits", "memory, CPUs and processes can be limited", None);
    } else {
        let detail = format!("the engine cannot limit: {}", missing_limits.join(", "));
        let hint = "sandboxes run without these limits; rootless engines need cgroup v2 with delegation";
        findings.add(CheckStatus::Note, "limits", detail, Some(hint));
    }
    let volumes = if volume_subpath {
        "a sandbox sees its own folders only"
    } else {
        "sandboxes see the names of each other's folders, and cannot open them (API 1.45 hides them)"
    };
    findings.add(CheckStatus::Passed, "volumes", volumes, None);
    check_image(&*engine, image, findings).await.unwrap_or(arch)
}

async fn check_image(engine: &dyn Engine, image: &str, findings: &mut DoctorReport) -> Option<String> {
    match engine.image(image).await.map_err(CommandError::from) {
        Ok(Some(found)) => {
            findings.add(
                CheckStatus::Passed,
                "image",
                format!("{image}, {}, {} MB", found.arch, found.size / 1_000_000),
                None,
            );
            Some(found.arch)
        }
        Ok(None) => {
            let error = super::run::preflight::missing_image_error(image);
            findings.add_error(CheckStatus::Failed, "image", &error);
            None
        }
        Err(error) => {
            findings.add_error(CheckStatus::Failed, "image", &error);
            None
        }
    }
}

fn check_shim(arch: &str, findings: &mut DoctorReport) {
    match shim::find_shim(arch, CommandContext::current_exe().as_deref(), &CommandContext::env_var) {
        Ok(found) => {
            let detail = format!("{}, static, {arch}, {} KB", found.path.display(), found.bytes.len() / 1024);
            findings.add(CheckStatus::Passed, "shim", detail, None);
        }
        Err(error) => findings.add_error(CheckStatus::Failed, "shim", &error),
    }
}

fn check_host(folder: &Path, findings: &mut DoctorReport) {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    match limit {
        Some(limit) if limit < MIN_OPEN_FILES => {
            let hint = "each running sandbox takes three: `ulimit -n 4096`";
            findings.add(CheckStatus::Note, "open files", format!("at most {limit}"), Some(hint));
        }
        Some(limit) => findings.add(CheckStatus::Passed, "open files", format!("at most {limit}"), None),
        None => findings.add(CheckStatus::Passed, "open files", "no limit", None),
    }
    match rustix::fs::statvfs(folder) {
        Ok(stat) => {
            let free = stat.f_bavail.saturating_mul(stat.f_frsize);
            let detail = format!("{:.1} GB free at {}", free as f64 / (1u64 << 30) as f64, folder.display());
            let (grade, hint) = if free < MIN_FREE_BYTES {
                (CheckStatus::Note, Some("results and logs are kept there"))
            } else {
                (CheckStatus::Passed, None)
            };
            findings.add(grade, "disk", detail, hint);
        }
        Err(error) => findings.add(CheckStatus::Note, "disk", format!("cannot be looked at: {error}"), None),
    }
}

fn render_checks(findings: &DoctorReport) -> String {
    let mut out = String::new();
    let names = findings.0.iter().map(|check| check.name.len()).max().unwrap_or_default();
    for check in &findings.0 {
        let mark = match check.status {
            CheckStatus::Passed => "ok  ",
            CheckStatus::Note => "note",
            CheckStatus::Failed => "BAD ",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{mark}  {}  {}", pad_to_width(check.name, names), sanitize(&check.detail));
        if let Some(hint) = &check.hint {
            let _ = writeln!(out, "      {}  hint: {}", pad_to_width("", names), sanitize(hint));
        }
    }
    out
}

/// A line of `--json`.
#[derive(Serialize)]
struct DoctorJsonLine<'a> {
    /// `check` or `setting`.
    #[serde(rename = "thing")]
    kind: &'a str,
    name: &'a str,
    /// Of a check `ok`, `note` or `bad`; a setting's value.
    #[serde(rename = "verdict")]
    value: &'a str,
    /// What was seen; where a setting came from.
    #[serde(rename = "reason")]
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
}

fn render_json_lines(findings: &DoctorReport, rows: &[(String, String, String)]) -> Result<String, CommandError> {
    let checks = findings.0.iter().map(|check| DoctorJsonLine {
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
    let settings = rows.iter().map(|(name, verdict, reason)| DoctorJsonLine {
        kind: "setting",
        name,
        value: verdict,
        detail: reason,
        hint: None,
    });
    let mut out = String::new();
    for line in checks.chain(settings) {
        out.push_str(
            &serde_json::to_string(&line)
                .map_err(|error| CommandError::from_error(CommandErrorKind::Machinery, &error))?,
        );
        out.push('\n');
    }
    Ok(out)
}

fn render_settings(rows: &[(String, String, String)]) -> String {
    let columns =
        |get: fn(&(String, String, String)) -> &str| rows.iter().map(|row| display_width(get(row))).max().unwrap_or(0);
    let (names, values) = (columns(|row| &row.0), columns(|row| &row.1).min(48));
    let mut out = String::from("\nsettings\n");
    for (name, value, source) in rows {
        let _ = writeln!(out, "  {}  {}  {source}", pad_to_width(name, names), pad_to_width(&sanitize(value), values));
    }
    out
}
