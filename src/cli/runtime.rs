//! The async runtime and the diagnostics of the program itself.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use super::error::CommandError;
use crate::state::SwarmDir;

/// Builds the async runtime. A swarm needs `several_threads`, because its loop blocks a thread while it writes the journal.
pub(crate) fn build_runtime(several_threads: bool) -> Result<tokio::runtime::Runtime, CommandError> {
    let mut builder = if several_threads {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        // The work is mostly waiting, and each thread costs memory.
        builder.worker_threads(std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 4));
        builder
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    builder
        .enable_all()
        .build()
        .map_err(|error| CommandError::machinery("cannot start the async runtime").with_cause(&error))
}

/// Logs to standard error if `LONGSHORE_LOG` is set (`debug`, `longshore=trace`).
pub(crate) fn init_stderr_logging() {
    let Ok(filter) = EnvFilter::try_from_env("LONGSHORE_LOG") else { return };
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colour).with_writer(std::io::stderr).try_init();
}

/// Logs to a file of the swarm: while a swarm runs, the terminal belongs to the report. A file that cannot be opened is
/// ignored, because a swarm does not need it.
pub(crate) fn init_file_logging(dir: &SwarmDir) {
    let path = dir.logs_dir().join("longshore.log");
    let Ok(file) = std::fs::OpenOptions::new().create(true).append(true).open(path) else { return };
    let filter = EnvFilter::try_from_env("LONGSHORE_LOG").unwrap_or_else(|_| EnvFilter::new("warn,longshore=info"));
    let file = std::sync::Mutex::new(file);
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(file).try_init();
}
