//! Finds the static `acp-shim` that goes into the sandboxes.
//!
//! `LONGSHORE_SHIM`, or beside this program, or where cargo puts it, or in `libexec`. A shim that is linked dynamically
//! would run in some images only, so it is passed over. Called by `run.rs` and `doctor.rs`. Must not: run it.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use super::error::Shown;

/// The environment variable that names one.
pub const VARIABLE: &str = "LONGSHORE_SHIM";

const BUILD: &str =
    "build it with `scripts/build.sh` and put it beside this program, or set LONGSHORE_SHIM to its path";

/// A shim that will do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shim {
    /// Where it is.
    pub path: PathBuf,
    /// The program itself.
    pub bytes: Vec<u8>,
}

/// Why a file is not a shim that will do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// It is not there, or cannot be read.
    Unreadable(String),
    /// It is no program for Linux.
    NotElf,
    /// It needs libraries that an image may not have.
    Dynamic,
    /// It is for another processor.
    Arch(String),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::Unreadable(why) => f.write_str(why),
            Unfit::NotElf => f.write_str("is not a Linux program"),
            Unfit::Dynamic => f.write_str("is linked dynamically, and the shim must be static"),
            Unfit::Arch(arch) => write!(f, "is for {arch}"),
        }
    }
}

/// Finds the shim for an image's architecture. `exe` is this program.
pub fn find(arch: &str, exe: Option<&Path>, lookup: &dyn Fn(&str) -> Option<OsString>) -> Result<Shim, Shown> {
    if let Some(path) = lookup(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from) {
        return load(&path, arch).map_err(|unfit| {
            let message = format!("the shim `{}` (from {VARIABLE}) cannot be used: it {unfit}", path.display());
            Shown::machinery(message).hint(format!("a static acp-shim for {arch} is needed: {BUILD}"))
        });
    }
    let mut seen = Vec::new();
    for path in candidates(arch, exe) {
        match load(&path, arch) {
            Ok(shim) => return Ok(shim),
            Err(Unfit::Unreadable(_)) => {}
            Err(unfit) => seen.push(format!("`{}` {unfit}", path.display())),
        }
    }
    let beside = if seen.is_empty() { String::new() } else { format!(" ({})", seen.join("; ")) };
    Err(Shown::machinery(format!("no static acp-shim for {arch} was found{beside}")).hint(BUILD))
}

fn candidates(arch: &str, exe: Option<&Path>) -> Vec<PathBuf> {
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

fn load(path: &Path, arch: &str) -> Result<Shim, Unfit> {
    let bytes = std::fs::read(path).map_err(|error| Unfit::Unreadable(format!("cannot be read: {error}")))?;
    check(&bytes, arch)?;
    Ok(Shim { path: path.to_owned(), bytes })
}

/// Looks at the ELF header: a program for this processor without an interpreter.
fn check(bytes: &[u8], arch: &str) -> Result<(), Unfit> {
    const PT_INTERP: u32 = 3;
    let number = |at: usize, length: usize| {
        let bytes = bytes.get(at..at.checked_add(length)?)?;
        Some(bytes.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte)))
    };
    // 64 bits, little-endian: all that sandboxes run on.
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return Err(Unfit::NotElf);
    }
    let machine = match number(18, 2).ok_or(Unfit::NotElf)? {
        62 => "x86_64".to_owned(),
        183 => "aarch64".to_owned(),
        243 => "riscv64".to_owned(),
        other => format!("machine {other}"),
    };
    if machine != arch {
        return Err(Unfit::Arch(machine));
    }
    let field = |at, length| number(at, length).and_then(|value| usize::try_from(value).ok()).ok_or(Unfit::NotElf);
    let (offset, size, count) = (field(32, 8)?, field(54, 2)?, field(56, 2)?);
    for header in 0..count {
        let at = header.checked_mul(size).and_then(|at| at.checked_add(offset)).ok_or(Unfit::NotElf)?;
        if number(at, 4).ok_or(Unfit::NotElf)? == u64::from(PT_INTERP) {
            return Err(Unfit::Dynamic);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header of a program with these segment types.
    fn elf(machine: u16, segments: &[u32]) -> Vec<u8> {
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
    fn only_static_programs_for_the_processor_will_do() {
        assert_eq!(check(&elf(62, &[1, 6]), "x86_64"), Ok(()));
        assert_eq!(check(&elf(62, &[1, 3]), "x86_64"), Err(Unfit::Dynamic));
        assert_eq!(check(&elf(183, &[1]), "x86_64"), Err(Unfit::Arch("aarch64".into())));
        assert_eq!(check(b"#!/bin/sh", "x86_64"), Err(Unfit::NotElf));
        assert_eq!(check(&elf(62, &[1, 1])[..80], "x86_64"), Err(Unfit::NotElf));
    }

    #[test]
    fn it_is_looked_for_beside_the_program_and_where_cargo_puts_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let exe = folder.path().join("target/release/longshore");
        std::fs::create_dir_all(exe.parent().expect("a parent")).expect("made");
        let none = |_: &str| None;
        let missing = find("x86_64", Some(&exe), &none).expect_err("none there").to_string();
        assert!(missing.contains("no static acp-shim") && missing.contains("hint: build it"), "{missing}");
        std::fs::write(folder.path().join("target/release/acp-shim"), elf(62, &[3])).expect("written");
        let dynamic = find("x86_64", Some(&exe), &none).expect_err("dynamic").to_string();
        assert!(dynamic.contains("linked dynamically"), "{dynamic}");
        let built = folder.path().join("target/x86_64-unknown-linux-gnu/shim");
        std::fs::create_dir_all(&built).expect("made");
        std::fs::write(built.join("acp-shim"), elf(62, &[1])).expect("written");
        assert!(find("x86_64", Some(&exe), &none).is_ok());
        let named = |name: &str| (name == VARIABLE).then(|| OsString::from("/does/not/exist"));
        let wrong = find("x86_64", Some(&exe), &named).expect_err("named").to_string();
        assert!(wrong.contains("/does/not/exist") && wrong.contains(VARIABLE), "{wrong}");
    }
}
