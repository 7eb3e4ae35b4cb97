//! Finds the static `acp-shim` that goes into the sandboxes.
//!
//! It looks at `LONGSHORE_SHIM`, beside this program, where cargo puts it, and in `libexec`. A dynamically linked shim would run
//! in some images only, so it is skipped. Must not: run the shim.

use std::path::{Path, PathBuf};

use thiserror::Error;

use super::error::CommandError;
use super::settings::EnvLookup;

const SHIM_ENV_VAR: &str = "LONGSHORE_SHIM";

const BUILD_HINT: &str =
    "build it with `scripts/build.sh`, and put it beside this program or set LONGSHORE_SHIM to its path";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShimBinary {
    pub path: PathBuf,
    pub bytes: Vec<u8>,
}

/// Why a file cannot be used as the shim. The texts follow the file's name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
enum UnusableShim {
    #[error("cannot be read: {0}")]
    Unreadable(String),
    #[error("is not a Linux program")]
    NotElf,
    /// It needs libraries that an image may not have.
    #[error("is linked dynamically, and the shim must be static")]
    DynamicallyLinked,
    #[error("is for {0}")]
    WrongArch(String),
}

/// Finds the shim for an image's architecture. `exe` is the path of this program.
pub(crate) fn find_shim(arch: &str, exe: Option<&Path>, lookup: EnvLookup<'_>) -> Result<ShimBinary, CommandError> {
    if let Some(path) = lookup(SHIM_ENV_VAR).filter(|path| !path.is_empty()).map(PathBuf::from) {
        return load_shim(&path, arch).map_err(|unusable| {
            let message = format!("the shim `{}` (from {SHIM_ENV_VAR}) cannot be used: it {unusable}", path.display());
            CommandError::machinery(message)
                .with_hint(format!("longshore needs a static acp-shim for {arch}: {BUILD_HINT}"))
        });
    }
    let mut seen = Vec::new();
    for path in candidate_paths(arch, exe) {
        match load_shim(&path, arch) {
            Ok(shim) => return Ok(shim),
            Err(UnusableShim::Unreadable(_)) => {}
            Err(unusable) => seen.push(format!("`{}` {unusable}", path.display())),
        }
    }
    let beside = if seen.is_empty() { String::new() } else { format!(" ({})", seen.join("; ")) };
    Err(CommandError::machinery(format!("no static acp-shim for {arch} was found{beside}")).with_hint(BUILD_HINT))
}

fn candidate_paths(arch: &str, exe: Option<&Path>) -> Vec<PathBuf> {
    // A link in the PATH leads to where the program is installed.
    let real = exe.and_then(|exe| exe.canonicalize().ok());
    let mut dirs: Vec<PathBuf> = Vec::new();
    for dir in [exe, real.as_deref()].into_iter().flatten().filter_map(Path::parent) {
        if !dirs.iter().any(|known| known == dir) {
            dirs.push(dir.to_owned());
        }
    }
    let mut paths = Vec::new();
    for dir in dirs {
        paths.push(dir.join("acp-shim"));
        paths.push(dir.join(format!("acp-shim-{arch}")));
        for libc in ["gnu", "musl"] {
            // `target/release/longshore` and `target/<triple>/shim/acp-shim`.
            paths.push(dir.join(format!("../{arch}-unknown-linux-{libc}/shim/acp-shim")));
        }
        // `scripts/build.sh`.
        paths.push(dir.join("../dist/acp-shim"));
        paths.push(dir.join("../libexec/longshore/acp-shim"));
        paths.push(dir.join(format!("../libexec/longshore/acp-shim-{arch}")));
    }
    paths
}

fn load_shim(path: &Path, arch: &str) -> Result<ShimBinary, UnusableShim> {
    let bytes = std::fs::read(path).map_err(|error| UnusableShim::Unreadable(error.to_string()))?;
    check_elf(&bytes, arch)?;
    Ok(ShimBinary { path: path.to_owned(), bytes })
}

/// Checks the ELF header: a program for `arch` without an interpreter.
fn check_elf(bytes: &[u8], arch: &str) -> Result<(), UnusableShim> {
    const PT_INTERP: u32 = 3;
    let read_number = |at: usize, length: usize| {
        let bytes = bytes.get(at..at.checked_add(length)?)?;
        Some(bytes.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte)))
    };
    // Sandboxes run on 64-bit little-endian machines only.
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return Err(UnusableShim::NotElf);
    }
    let machine = match read_number(18, 2).ok_or(UnusableShim::NotElf)? {
        62 => "x86_64".to_owned(),
        183 => "aarch64".to_owned(),
        243 => "riscv64".to_owned(),
        other => format!("machine {other}"),
    };
    if machine != arch {
        return Err(UnusableShim::WrongArch(machine));
    }
    let field =
        |at, length| read_number(at, length).and_then(|value| usize::try_from(value).ok()).ok_or(UnusableShim::NotElf);
    let (offset, size, count) = (field(32, 8)?, field(54, 2)?, field(56, 2)?);
    for header in 0..count {
        let at = header.checked_mul(size).and_then(|at| at.checked_add(offset)).ok_or(UnusableShim::NotElf)?;
        if read_number(at, 4).ok_or(UnusableShim::NotElf)? == u64::from(PT_INTERP) {
            return Err(UnusableShim::DynamicallyLinked);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
