//! Finds the static `acp-shim` that goes into the sandboxes.
//!
//! `LONGSHORE_SHIM`, or beside this program, or where cargo puts it, or in `libexec`. A shim that is linked dynamically
//! would run in some images only, so it is passed over. Called by `run.rs` and `doctor.rs`. Must not: run it.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use super::error::CommandError;

/// The environment variable that names one.
pub const SHIM_ENV_VAR: &str = "LONGSHORE_SHIM";

const BUILD_HINT: &str =
    "build it with `scripts/build.sh` and put it beside this program, or set LONGSHORE_SHIM to its path";

/// A shim that will do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShimBinary {
    /// Where it is.
    pub path: PathBuf,
    /// The program itself.
    pub bytes: Vec<u8>,
}

/// Why a file is not a shim that will do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnusableShim {
    /// It is not there, or cannot be read.
    Unreadable(String),
    /// It is no program for Linux.
    NotElf,
    /// It needs libraries that an image may not have.
    DynamicallyLinked,
    /// It is for another processor.
    WrongArch(String),
}

impl fmt::Display for UnusableShim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnusableShim::Unreadable(why) => f.write_str(why),
            UnusableShim::NotElf => f.write_str("is not a Linux program"),
            UnusableShim::DynamicallyLinked => f.write_str("is linked dynamically, and the shim must be static"),
            UnusableShim::WrongArch(arch) => write!(f, "is for {arch}"),
        }
    }
}

/// Finds the shim for an image's architecture. `exe` is this program.
pub fn find_shim(
    arch: &str,
    exe: Option<&Path>,
    lookup: &dyn Fn(&str) -> Option<OsString>,
) -> Result<ShimBinary, CommandError> {
    if let Some(path) = lookup(SHIM_ENV_VAR).filter(|path| !path.is_empty()).map(PathBuf::from) {
        return load_shim(&path, arch).map_err(|unfit| {
            let message = format!("the shim `{}` (from {SHIM_ENV_VAR}) cannot be used: it {unfit}", path.display());
            CommandError::machinery(message).with_hint(format!("a static acp-shim for {arch} is needed: {BUILD_HINT}"))
        });
    }
    let mut seen = Vec::new();
    for path in candidate_paths(arch, exe) {
        match load_shim(&path, arch) {
            Ok(shim) => return Ok(shim),
            Err(UnusableShim::Unreadable(_)) => {}
            Err(unfit) => seen.push(format!("`{}` {unfit}", path.display())),
        }
    }
    let beside = if seen.is_empty() { String::new() } else { format!(" ({})", seen.join("; ")) };
    Err(CommandError::machinery(format!("no static acp-shim for {arch} was found{beside}")).with_hint(BUILD_HINT))
}

fn candidate_paths(arch: &str, exe: Option<&Path>) -> Vec<PathBuf> {
    // A link in a folder of the PATH leads to where the program lies among its files.
    let real = exe.and_then(|exe| exe.canonicalize().ok());
    let mut folders: Vec<PathBuf> = Vec::new();
    for folder in [exe, real.as_deref()].into_iter().flatten().filter_map(Path::parent) {
        if !folders.iter().any(|known| known == folder) {
            folders.push(folder.to_owned());
        }
    }
    let mut paths = Vec::new();
    for folder in folders {
        paths.push(folder.join("acp-shim"));
        paths.push(folder.join(format!("acp-shim-{arch}")));
        for libc in ["gnu", "musl"] {
            // `target/release/longshore` and `target/<triple>/shim/acp-shim`.
            paths.push(folder.join(format!("../{arch}-unknown-linux-{libc}/shim/acp-shim")));
        }
        // `scripts/build.sh`.
        paths.push(folder.join("../dist/acp-shim"));
        paths.push(folder.join("../libexec/longshore/acp-shim"));
        paths.push(folder.join(format!("../libexec/longshore/acp-shim-{arch}")));
    }
    paths
}

fn load_shim(path: &Path, arch: &str) -> Result<ShimBinary, UnusableShim> {
    let bytes = std::fs::read(path).map_err(|error| UnusableShim::Unreadable(format!("cannot be read: {error}")))?;
    check_elf(&bytes, arch)?;
    Ok(ShimBinary { path: path.to_owned(), bytes })
}

/// Looks at the ELF header: a program for this processor without an interpreter.
fn check_elf(bytes: &[u8], arch: &str) -> Result<(), UnusableShim> {
    const PT_INTERP: u32 = 3;
    let number = |at: usize, length: usize| {
        let bytes = bytes.get(at..at.checked_add(length)?)?;
        Some(bytes.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte)))
    };
    // 64 bits, little-endian: all that sandboxes run on.
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return Err(UnusableShim::NotElf);
    }
    let machine = match number(18, 2).ok_or(UnusableShim::NotElf)? {
        62 => "x86_64".to_owned(),
        183 => "aarch64".to_owned(),
        243 => "riscv64".to_owned(),
        other => format!("machine {other}"),
    };
    if machine != arch {
        return Err(UnusableShim::WrongArch(machine));
    }
    let field =
        |at, length| number(at, length).and_then(|value| usize::try_from(value).ok()).ok_or(UnusableShim::NotElf);
    let (offset, size, count) = (field(32, 8)?, field(54, 2)?, field(56, 2)?);
    for header in 0..count {
        let at = header.checked_mul(size).and_then(|at| at.checked_add(offset)).ok_or(UnusableShim::NotElf)?;
        if number(at, 4).ok_or(UnusableShim::NotElf)? == u64::from(PT_INTERP) {
            return Err(UnusableShim::DynamicallyLinked);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header of a program with these segment types.
    fn elf_header(machine: u16, segments: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0u8; 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = segments.len() as u8;
        for segment in segments {
            bytes.extend(segment.to_le_bytes());
            bytes.extend([0; 52]);
        }
        bytes
    }

    #[test]
    fn only_static_binaries_for_the_architecture_are_accepted() {
        assert_eq!(check_elf(&elf_header(62, &[1, 6]), "x86_64"), Ok(()));
        assert_eq!(check_elf(&elf_header(62, &[1, 3]), "x86_64"), Err(UnusableShim::DynamicallyLinked));
        assert_eq!(check_elf(&elf_header(183, &[1]), "x86_64"), Err(UnusableShim::WrongArch("aarch64".into())));
        assert_eq!(check_elf(b"#!/bin/sh", "x86_64"), Err(UnusableShim::NotElf));
        assert_eq!(check_elf(&elf_header(62, &[1, 1])[..80], "x86_64"), Err(UnusableShim::NotElf));
    }

    #[test]
    fn find_shim_searches_beside_the_program_and_in_cargo_target() {
        let folder = tempfile::tempdir().expect("a folder");
        let exe = folder.path().join("target/release/longshore");
        std::fs::create_dir_all(exe.parent().expect("a parent")).expect("made");
        let none = |_: &str| None;
        let missing = find_shim("x86_64", Some(&exe), &none).expect_err("none there").to_string();
        assert!(missing.contains("no static acp-shim") && missing.contains("hint: build it"), "{missing}");
        std::fs::write(folder.path().join("target/release/acp-shim"), elf_header(62, &[3])).expect("written");
        let dynamic = find_shim("x86_64", Some(&exe), &none).expect_err("dynamic").to_string();
        assert!(dynamic.contains("linked dynamically"), "{dynamic}");
        let built = folder.path().join("target/x86_64-unknown-linux-gnu/shim");
        std::fs::create_dir_all(&built).expect("made");
        std::fs::write(built.join("acp-shim"), elf_header(62, &[1])).expect("written");
        assert!(find_shim("x86_64", Some(&exe), &none).is_ok());
        let named = |name: &str| (name == SHIM_ENV_VAR).then(|| OsString::from("/does/not/exist"));
        let wrong = find_shim("x86_64", Some(&exe), &named).expect_err("named").to_string();
        assert!(wrong.contains("/does/not/exist") && wrong.contains(SHIM_ENV_VAR), "{wrong}");
    }
}
