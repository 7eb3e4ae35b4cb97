//! `longshore doctor`: checks all that a run needs, and shows every setting with its source.
//!
//! Exit code 0 where a run could work, 3 where something it needs is missing, 2 where the settings are wrong. Must not:
//! change anything.

use std::fmt::Write;
use std::path::Path;

use serde::Serialize;

use super::args::DoctorArgs;
use super::config::Config;
use super::error::{Kind, Shown};
use super::here::{Here, settings_problems};
use super::settings;
use super::{Outcome, say, shim};
use crate::engine::{Engine, EngineInfo};
use crate::report::text::{display_width, pad_to_width, sanitize};

/// The number of open files below which a large swarm may run out of them.
const FILES_WANTED: u64 = 1024;
/// The free space below which a swarm may run out of it, in bytes.
const SPACE_WANTED: u64 = 1 << 30;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grade {
    Good,
    Note,
    Bad,
}

struct Check {
    grade: Grade,
    name: &'static str,
    detail: String,
    hint: Option<String>,
}

#[derive(Default)]
struct Findings(Vec<Check>);

impl Findings {
    fn add(&mut self, grade: Grade, name: &'static str, detail: impl Into<String>, hint: Option<&str>) {
        let hint = hint.map(str::to_owned);
        self.0.push(Check { grade, name, detail: detail.into(), hint });
    }

    /// A shown error as a finding: its first line, and its hint.
    fn fault(&mut self, grade: Grade, name: &'static str, error: &Shown) {
        let text = error.to_string();
        let mut lines = text.lines().map(str::trim);
        let detail = lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let hint = lines.clone().find_map(|line| line.strip_prefix("hint: ")).map(str::to_owned);
        let cause = lines.find_map(|line| line.strip_prefix("caused by: "));
        let detail = cause.map_or(detail.clone(), |cause| format!("{detail}: {cause}"));
        self.0.push(Check { grade, name, detail, hint });
    }

    fn worst(&self) -> Grade {
        self.0.iter().map(|check| check.grade).max_by_key(|grade| *grade as u8).unwrap_or(Grade::Good)
    }
}

/// Carries it out.
pub async fn doctor(args: &DoctorArgs, here: &Here) -> Outcome {
    let mut findings = Findings::default();
    let root = repo(here, &mut findings).await;
    let flags = Config { image: args.image.clone(), ..Config::default() };
    let loaded = settings::load(flags, root.as_deref(), &Here::lookup);
    let image = match &loaded {
        Ok(settings) => settings.image.value.clone(),
        Err(_) => args.image.clone().unwrap_or_else(|| settings::DEFAULT_IMAGE.to_owned()),
    };
    let arch = engine(here, &image, &mut findings).await;
    shim_check(&arch, &mut findings);
    host(root.as_deref().unwrap_or(here.folder()), &mut findings);
    let mut text = shown(&findings);
    let mut rows = Vec::new();
    let (problems, settings_code) = match loaded {
        Ok(settings) => {
            rows = settings.rows();
            (settings.agent().err().map(Shown::from).into_iter().collect(), 0)
        }
        Err(problems) => (settings_problems(problems), 2),
    };
    for problem in &problems {
        let _ = write!(text, "\n{problem}");
    }
    if !rows.is_empty() {
        text.push_str(&table(&rows));
    }
    let code = if findings.worst() == Grade::Bad { 3 } else { settings_code };
    if args.json {
        for problem in &problems {
            findings.fault(Grade::Bad, "settings", problem);
        }
        text = lines(&findings, &rows)?;
    }
    say(&text)?;
    Ok(code)
}

async fn repo(here: &Here, findings: &mut Findings) -> Option<std::path::PathBuf> {
    let version = tokio::process::Command::new("git").arg("version").output().await;
    if let Ok(output) = &version
        && output.status.success()
    {
        let line = sanitize(&String::from_utf8_lossy(&output.stdout));
        findings.add(Grade::Good, "git", line, None);
    } else {
        findings.add(Grade::Bad, "git", "`git` cannot be run", Some("install git 2.38 or newer"));
        return None;
    }
    let repo = match here.repo().await {
        Ok(repo) => repo,
        Err(error) => {
            findings.fault(Grade::Bad, "repository", &error);
            return None;
        }
    };
    match repo.head().await.map_err(Shown::from) {
        Ok(head) => {
            let on = head.branch.as_deref().map_or("detached HEAD".to_owned(), |branch| format!("on {branch}"));
            let dirty =
                if repo.dirty().await.unwrap_or(false) { ", with changes that sandboxes will not see" } else { "" };
            let detail = format!("{} {on} at {}{dirty}", repo.root().display(), head.commit.short());
            findings.add(Grade::Good, "repository", detail, None);
        }
        Err(error) => findings.fault(Grade::Bad, "repository", &error),
    }
    Some(repo.root().to_owned())
}

/// The checks of the engine and its image. Gives the architecture that the shim must have.
async fn engine(here: &Here, image: &str, findings: &mut Findings) -> String {
    let host = std::env::consts::ARCH.to_owned();
    let engine = match here.engine().await {
        Ok(engine) => engine,
        Err(error) => {
            findings.fault(Grade::Bad, "engine", &error);
            return host;
        }
    };
    let info = match engine.info().await.map_err(Shown::from) {
        Ok(info) => info,
        Err(error) => {
            findings.fault(Grade::Bad, "engine", &error);
            return host;
        }
    };
    let EngineInfo { name, api, endpoint, arch, cpus, memory, volume_subpath, cgroup, missing_limits } = info;
    findings.add(Grade::Good, "engine", format!("{name}, API {api}, {arch}"), None);
    findings.add(Grade::Good, "endpoint", endpoint, None);
    let gigabytes = memory as f64 / (1u64 << 30) as f64;
    findings.add(Grade::Good, "resources", format!("{cpus} CPUs, {gigabytes:.1} GB of memory, cgroup v{cgroup}"), None);
    if missing_limits.is_empty() {
        findings.add(Grade::Good, "limits", "memory, CPUs and processes can be limited", None);
    } else {
        let detail = format!("the engine cannot limit: {}", missing_limits.join(", "));
        let hint = "sandboxes run without these limits; rootless engines need cgroup v2 with delegation";
        findings.add(Grade::Note, "limits", detail, Some(hint));
    }
    let volumes = if volume_subpath {
        "a sandbox sees its own folders only"
    } else {
        "sandboxes see the names of each other's folders, and cannot open them (API 1.45 hides them)"
    };
    findings.add(Grade::Good, "volumes", volumes, None);
    image_check(&*engine, image, findings).await.unwrap_or(arch)
}

async fn image_check(engine: &dyn Engine, image: &str, findings: &mut Findings) -> Option<String> {
    match engine.image(image).await.map_err(Shown::from) {
        Ok(Some(found)) => {
            findings.add(Grade::Good, "image", format!("{image}, {}, {} MB", found.arch, found.size / 1_000_000), None);
            Some(found.arch)
        }
        Ok(None) => {
            let error = super::run::check::image_missing(image);
            findings.fault(Grade::Bad, "image", &error);
            None
        }
        Err(error) => {
            findings.fault(Grade::Bad, "image", &error);
            None
        }
    }
}

fn shim_check(arch: &str, findings: &mut Findings) {
    match shim::find(arch, Here::exe().as_deref(), &Here::lookup) {
        Ok(found) => {
            let detail = format!("{}, static, {arch}, {} KB", found.path.display(), found.bytes.len() / 1024);
            findings.add(Grade::Good, "shim", detail, None);
        }
        Err(error) => findings.fault(Grade::Bad, "shim", &error),
    }
}

fn host(folder: &Path, findings: &mut Findings) {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    match limit {
        Some(limit) if limit < FILES_WANTED => {
            let hint = "each running sandbox takes three: `ulimit -n 4096`";
            findings.add(Grade::Note, "open files", format!("at most {limit}"), Some(hint));
        }
        Some(limit) => findings.add(Grade::Good, "open files", format!("at most {limit}"), None),
        None => findings.add(Grade::Good, "open files", "no limit", None),
    }
    match rustix::fs::statvfs(folder) {
        Ok(stat) => {
            let free = stat.f_bavail.saturating_mul(stat.f_frsize);
            let detail = format!("{:.1} GB free at {}", free as f64 / (1u64 << 30) as f64, folder.display());
            let (grade, hint) = if free < SPACE_WANTED {
                (Grade::Note, Some("results and logs are kept there"))
            } else {
                (Grade::Good, None)
            };
            findings.add(grade, "disk", detail, hint);
        }
        Err(error) => findings.add(Grade::Note, "disk", format!("cannot be looked at: {error}"), None),
    }
}

fn shown(findings: &Findings) -> String {
    let mut out = String::new();
    let names = findings.0.iter().map(|check| check.name.len()).max().unwrap_or_default();
    for check in &findings.0 {
        let mark = match check.grade {
            Grade::Good => "ok  ",
            Grade::Note => "note",
            Grade::Bad => "BAD ",
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
struct Line<'a> {
    /// `check` or `setting`.
    thing: &'a str,
    name: &'a str,
    /// Of a check `ok`, `note` or `bad`; a setting's value.
    verdict: &'a str,
    /// What was seen; where a setting came from.
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
}

fn lines(findings: &Findings, rows: &[(String, String, String)]) -> Result<String, Shown> {
    let checks = findings.0.iter().map(|check| Line {
        thing: "check",
        name: check.name,
        verdict: match check.grade {
            Grade::Good => "ok",
            Grade::Note => "note",
            Grade::Bad => "bad",
        },
        reason: &check.detail,
        hint: check.hint.as_deref(),
    });
    let settings =
        rows.iter().map(|(name, verdict, reason)| Line { thing: "setting", name, verdict, reason, hint: None });
    let mut out = String::new();
    for line in checks.chain(settings) {
        out.push_str(&serde_json::to_string(&line).map_err(|error| Shown::of(Kind::Machinery, &error))?);
        out.push('\n');
    }
    Ok(out)
}

fn table(rows: &[(String, String, String)]) -> String {
    let columns =
        |get: fn(&(String, String, String)) -> &str| rows.iter().map(|row| display_width(get(row))).max().unwrap_or(0);
    let (names, values) = (columns(|row| &row.0), columns(|row| &row.1).min(48));
    let mut out = String::from("\nsettings\n");
    for (name, value, source) in rows {
        let _ = writeln!(out, "  {}  {}  {source}", pad_to_width(name, names), pad_to_width(&sanitize(value), values));
    }
    out
}
