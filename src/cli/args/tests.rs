//! The definition of the command line, and what it parses.

use clap::CommandFactory;

use super::*;
use crate::cli::amounts::{Cpus, SpanOrOff};
use crate::plan::FanOut;

#[test]
fn clap_definition_is_valid() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_and_flag_has_help() {
    fn check(command: &clap::Command) {
        for argument in command.get_arguments() {
            assert!(argument.get_help().is_some(), "{} {}", command.get_name(), argument.get_id());
        }
        for below in command.get_subcommands() {
            assert!(below.get_about().is_some(), "{}", below.get_name());
            check(below);
        }
    }
    check(&Cli::command());
}

#[test]
fn run_parses_its_flags() {
    let line = "longshore run a.json b.json --max 3 --fan-out file --image i --agent x --verify true --verify ls \
                --network bridge --memory 512m --cpus 1.5 --timeout 90s --idle-timeout off --retries 0 --keep --yes --json --again \
                --write-back --env A=1 --env B --grace 2s";
    let cli = Cli::try_parse_from(line.split_whitespace()).expect("a good command line");
    let CliCommand::Run(run) = cli.command else { panic!("run") };
    assert_eq!(run.common.files.len(), 2);
    assert_eq!(run.env.len(), 2);
    assert!(run.yes && run.write_back && run.json && run.common.again);
    let settings = run.settings.0;
    assert_eq!(settings.max, Some(3));
    assert_eq!(settings.fan_out, Some(FanOut::File));
    assert_eq!(settings.verify.expect("given"), ["true", "ls"]);
    assert_eq!(settings.memory, Some(Size(512 << 20)));
    assert_eq!(settings.cpus, Some(Cpus(1500)));
    assert_eq!(settings.idle_timeout, Some(SpanOrOff(std::time::Duration::ZERO)));
    assert_eq!((settings.keep, settings.mailbox, settings.timeout.is_some()), (Some(true), None, true));
}
