//! The flags of settings, as a layer.

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::declaration::Config;
use super::layers::SettingVisitor;
use super::setting::{Setting, SettingValue};

/// The settings flags of `plan`.
pub(crate) type PlanFlags = SettingFlags<true>;
/// The settings flags of `run`.
pub(crate) type RunFlags = SettingFlags<false>;

/// Flags as typed. `PLAN_ONLY` leaves out those that `plan` does not have.
#[derive(Debug, Clone, Default)]
pub(crate) struct SettingFlags<const PLAN_ONLY: bool>(pub Config);

impl<const PLAN_ONLY: bool> Args for SettingFlags<PLAN_ONLY> {
    fn augment_args(command: Command) -> Command {
        struct Flags(Vec<Arg>, bool);
        impl SettingVisitor for Flags {
            fn visit<T: SettingValue>(&mut self, setting: &Setting<T>) -> Option<T> {
                self.0.extend(setting.arg().filter(|_| setting.has_flag(self.1)));
                None
            }
        }
        let mut flags = Flags(Vec::new(), PLAN_ONLY);
        Config::visit(&mut flags);
        command.args(flags.0)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const PLAN_ONLY: bool> FromArgMatches for SettingFlags<PLAN_ONLY> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Self::from_arg_matches_mut(&mut matches.clone())
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, clap::Error> {
        struct Matches<'a>(&'a mut ArgMatches, bool);
        impl SettingVisitor for Matches<'_> {
            fn visit<T: SettingValue>(&mut self, setting: &Setting<T>) -> Option<T> {
                setting.has_flag(self.1).then(|| setting.read_flag(self.0)).flatten()
            }
        }
        Ok(Self(Config::visit(&mut Matches(matches, PLAN_ONLY))))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
