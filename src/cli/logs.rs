//! `longshore logs`: prints the output of a story's sandbox, from `logs/<assignment>.log`.
//!
//! On a terminal, control characters are removed; elsewhere the output is unchanged.

use std::fs::File;
use std::io::{IsTerminal, Read, Seek, SeekFrom, Write, stdout};
use std::path::Path;
use std::time::Duration;

use super::args::LogsArgs;
use super::context::CommandContext;
use super::error::CommandError;
use super::swarm_prefix::SwarmPrefix;
use super::{CommandResult, ExitStatus, print_stdout};
use crate::ids::AssignmentId;
use crate::report::StoryLabels;
use crate::report::text::sanitize;
use crate::state::recovery::replay;
use crate::state::{Journal, SwarmDir};

/// Interval between reads of a followed log.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

pub async fn logs(args: &LogsArgs, here: &CommandContext) -> CommandResult {
    let (swarm, what) = match &args.names[..] {
        [] => (None, None),
        // A swarm prefix is never a valid story or assignment id.
        [one] => match one.parse::<SwarmPrefix>() {
            Ok(swarm) => (Some(swarm), None),
            Err(_) => (None, Some(one)),
        },
        [swarm, what] => (Some(swarm.parse::<SwarmPrefix>().map_err(CommandError::input)?), Some(what)),
        _ => return Err(CommandError::input("at most a swarm, and a story or assignment of it")),
    };
    let Some(what) = what else {
        return list_logs(&here.resolve_swarm_dir(swarm.as_ref().map(SwarmPrefix::as_str)).await?);
    };
    let dir = here.resolve_swarm_dir(swarm.as_ref().map(SwarmPrefix::as_str)).await?;
    let assignment = resolve_assignment(&dir, what)?;
    let path = dir.log_file(&assignment);
    let may_appear = args.follow && dir.is_locked()?;
    if !path.exists() && !may_appear {
        let hint = if has_run(&dir, Some(&assignment))? {
            format!("its sandbox has run: `{}` was removed since, or could not be written", path.display())
        } else {
            "its sandbox has not started; `longshore status` shows the state of the swarm".to_owned()
        };
        return Err(
            CommandError::input(format!("there is no log of {assignment} in swarm `{}`", dir.swarm())).with_hint(hint)
        );
    }
    let mut printer = LogPrinter { sanitize: stdout().is_terminal(), partial_line: Vec::new() };
    let mut offset = match args.tail {
        Some(lines) if path.exists() => tail_offset(&path, lines).map_err(|error| read_error(&path, &error))?,
        _ => 0,
    };
    loop {
        // Checked before reading, so that output written before the swarm's end is not missed.
        let live = args.follow && dir.is_locked()?;
        offset = print_from(&path, offset, &mut printer)?;
        if !live {
            printer.finish()?;
            return Ok(ExitStatus::Success);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Lists the existing logs with their stories and sizes.
fn list_logs(dir: &SwarmDir) -> CommandResult {
    let spec = Journal::read_header(&dir.journal_file())?.spec;
    let names = StoryLabels::from_spec(&spec);
    let mut text = format!("logs of swarm {}\n", dir.swarm());
    let mut found = false;
    for assignment in &spec.assignments {
        let path = dir.log_file(&assignment.id);
        let Ok(meta) = path.metadata() else { continue };
        found = true;
        let stories = names.joined_labels(&assignment.stories);
        text.push_str(&format!("  {}  {stories}  {} bytes  {}\n", assignment.id, meta.len(), path.display()));
    }
    if !found {
        text.push_str(&match has_run(dir, None)? {
            true => {
                format!("  none: what was in `{}` was removed, or could not be written\n", dir.logs_dir().display())
            }
            false => "  none yet: no sandbox has started\n".to_owned(),
        });
    }
    print_stdout(&text)?;
    Ok(ExitStatus::Success)
}

/// Whether a sandbox of this assignment, or any sandbox, has run.
fn has_run(dir: &SwarmDir, assignment: Option<&AssignmentId>) -> Result<bool, CommandError> {
    let machine = replay(Journal::read(&dir.journal_file())?).machine;
    let mut attempts = machine.attempts();
    let asked = |id: &AssignmentId| assignment.is_none_or(|assignment| assignment == id);
    Ok(attempts.any(|view| asked(&view.id.assignment) && view.started.is_some()))
}

/// Finds an assignment by its id, or by the label or id of one of its stories.
fn resolve_assignment(dir: &SwarmDir, what: &str) -> Result<AssignmentId, CommandError> {
    let spec = Journal::read(&dir.journal_file())?.header.spec;
    if let Ok(id) = what.parse::<AssignmentId>()
        && spec.assignments.iter().any(|assignment| assignment.id == id)
    {
        return Ok(id);
    }
    let names = StoryLabels::from_spec(&spec);
    let found = names.find(what);
    match &found[..] {
        [] => {
            let known: Vec<&str> = spec.stories.iter().map(|story| names.label(&story.key)).take(20).collect();
            Err(CommandError::input(format!("swarm `{}` has no story or assignment `{what}`", dir.swarm()))
                .with_hint(format!("its stories are {}", known.join(", "))))
        }
        [story] => names.assignment_of(story).cloned().ok_or_else(|| {
            CommandError::input(format!("story `{what}` was not run in swarm `{}`: it was done before", dir.swarm()))
        }),
        several => {
            let labels: Vec<&str> = several.iter().map(|key| names.label(key)).collect();
            Err(CommandError::input(format!("several tasks files have a story `{what}`"))
                .with_hint(format!("name one of {}", labels.join(", "))))
        }
    }
}

fn read_error(path: &Path, error: &std::io::Error) -> CommandError {
    CommandError::machinery(format!("cannot read `{}`", path.display())).with_cause(error)
}

/// Prints the file from `offset` on and returns the offset of its end. A missing file counts as empty.
fn print_from(path: &Path, offset: u64, printer: &mut LogPrinter) -> Result<u64, CommandError> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(offset),
        Err(error) => return Err(read_error(path, &error)),
    };
    file.seek(SeekFrom::Start(offset)).map_err(|error| read_error(path, &error))?;
    let mut at = offset;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer).map_err(|error| read_error(path, &error))? {
            0 => return Ok(at),
            length => {
                at += length as u64;
                printer.print(&buffer[..length])?;
            }
        }
    }
}

/// Where the last `lines` lines begin, found from the end.
fn tail_offset(path: &Path, lines: usize) -> std::io::Result<u64> {
    const BLOCK: u64 = 64 * 1024;
    let mut file = File::open(path)?;
    let mut end = file.metadata()?.len();
    let mut wanted = lines;
    let mut last = true;
    let mut block = Vec::new();
    while end > 0 {
        let start = end.saturating_sub(BLOCK);
        block.clear();
        file.seek(SeekFrom::Start(start))?;
        (&file).take(end - start).read_to_end(&mut block)?;
        for index in (0..block.len()).rev() {
            // The newline that ends the last line begins no other.
            if block[index] == b'\n' && !std::mem::take(&mut last) {
                wanted = wanted.saturating_sub(1);
                if wanted == 0 {
                    return Ok(start + index as u64 + 1);
                }
            } else if lines == 0 {
                return Ok(end);
            }
            last = false;
        }
        end = start;
    }
    Ok(0)
}

/// Bytes to standard output: as they are, or line by line without what could drive a terminal.
struct LogPrinter {
    sanitize: bool,
    partial_line: Vec<u8>,
}

impl LogPrinter {
    fn print(&mut self, bytes: &[u8]) -> Result<(), CommandError> {
        let mut out = stdout().lock();
        if !self.sanitize {
            out.write_all(bytes)?;
            out.flush()?;
            return Ok(());
        }
        self.partial_line.extend_from_slice(bytes);
        while let Some(end) = self.partial_line.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.partial_line.drain(..=end).collect();
            writeln!(out, "{}", sanitize(&String::from_utf8_lossy(&line)))?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), CommandError> {
        if !self.partial_line.is_empty() {
            writeln!(stdout(), "{}", sanitize(&String::from_utf8_lossy(&self.partial_line)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_offset_finds_the_last_lines() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let text: String = (0..30_000).map(|number| format!("line {number}\n")).collect();
        std::fs::write(&path, &text).expect("written");
        let tail = |lines| text[tail_offset(&path, lines).expect("read") as usize..].to_owned();
        assert_eq!(tail(1), "line 29999\n");
        assert_eq!(tail(2), "line 29998\nline 29999\n");
        assert_eq!(tail(20_000).lines().count(), 20_000);
        assert_eq!(tail(40_000), text);
        assert_eq!(tail(0), "");
        std::fs::write(&path, "a\nb").expect("written");
        assert_eq!(tail_offset(&path, 1).expect("read"), 2);
        std::fs::write(&path, "").expect("written");
        assert_eq!(tail_offset(&path, 5).expect("read"), 0);
    }
}
