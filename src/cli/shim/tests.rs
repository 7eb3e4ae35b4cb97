//! Where the shim is found, and which files are refused.

use std::ffi::OsString;

use super::*;

/// The header of a program with these segment types.
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
    let dir = tempfile::tempdir().expect("a directory");
    let exe = dir.path().join("target/release/longshore");
    std::fs::create_dir_all(exe.parent().expect("a parent")).expect("made");
    let none = |_: &str| None;
    let missing = find_shim("x86_64", Some(&exe), &none).expect_err("none there").to_string();
    assert!(missing.contains("no static acp-shim") && missing.contains("hint: build it"), "{missing}");
    std::fs::write(dir.path().join("target/release/acp-shim"), elf_header(62, &[3])).expect("written");
    let dynamic = find_shim("x86_64", Some(&exe), &none).expect_err("dynamic").to_string();
    assert!(dynamic.contains("linked dynamically"), "{dynamic}");
    let built = dir.path().join("target/x86_64-unknown-linux-gnu/shim");
    std::fs::create_dir_all(&built).expect("made");
    std::fs::write(built.join("acp-shim"), elf_header(62, &[1])).expect("written");
    assert!(find_shim("x86_64", Some(&exe), &none).is_ok());
    let named = |name: &str| (name == SHIM_ENV_VAR).then(|| OsString::from("/does/not/exist"));
    let wrong = find_shim("x86_64", Some(&exe), &named).expect_err("named").to_string();
    assert!(wrong.contains("/does/not/exist") && wrong.contains(SHIM_ENV_VAR), "{wrong}");
}
