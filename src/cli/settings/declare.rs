//! The macro behind `declaration.rs`. From one entry a setting it makes the config file's struct, the merged struct, and
//! everything that goes through all settings.

/// Declares the settings of one table of the config file. An entry is
///
/// ```text
/// /// Help of the flag and description in the schema
/// name: Type, default(value), flag("--name <VALUE>"), ...;
/// ```
///
/// where `default(value)` gives a merged field `Sourced<Type>`, and `unset("shown if unset")` gives
/// `Sourced<Option<Type>>`. What follows are methods of [`Setting`](super::setting::Setting). `tables` are tables declared by
/// another invocation; `collected` are fields whose layers are merged by a function of their own.
macro_rules! settings {
    (
        $(#[doc = $config_doc:literal])+
        $Config:ident => $Merged:ident, at $table:tt
        {$(
            #[doc = $help:literal]
            $(#[$attribute:meta])*
            $field:ident: $ty:ty, $kind:ident($($value:tt)*) $(, $method:ident($($args:tt)*))*;
        )*}
        $(tables {$( $(#[doc = $sub_doc:literal])+ $sub:ident: $SubConfig:ident => $SubMerged:ident; )*})?
        $(collected {$(
            #[doc = $collected_help:literal]
            $collected:ident: $Written:ty => $Collected:ty, $merge:path;
        )*})?
    ) => {
        $(#[doc = $config_doc])+
        #[derive(Debug, Clone, Default, PartialEq, serde::Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub(crate) struct $Config {
            $( #[doc = $help] $(#[$attribute])* pub $field: Option<$ty>, )*
            $($( #[doc = $collected_help] pub $collected: $Written, )*)?
            $($( $(#[doc = $sub_doc])+ pub $sub: $SubConfig, )*)?
        }

        /// The merged layers.
        #[derive(Debug, Clone, PartialEq)]
        pub(crate) struct $Merged {
            $( pub $field: Sourced<settings!(@type $kind $ty)>, )*
            $($( pub $collected: $Collected, )*)?
            $($( pub $sub: $SubMerged, )*)?
        }

        impl $Config {
            $(
                pub(super) fn $field() -> Setting<$ty> {
                    Setting::<$ty>::new(settings!(@key $table $field), $help)
                        .$kind($($value)*)$(.$method($($args)*))*
                }
            )*

            /// Makes a layer of the values that `visitor` gives.
            pub(super) fn visit(visitor: &mut impl SettingVisitor) -> Self {
                Self {
                    $( $field: visitor.visit(&Self::$field()), )*
                    $($( $collected: Default::default(), )*)?
                    $($( $sub: $SubConfig::visit(visitor), )*)?
                }
            }
        }

        impl $Merged {
            pub(super) fn merge(layers: &[SettingsLayer<Config>]) -> Self {
                Self {
                    $( $field: settings!(
                        @merge $kind($($value)*)
                        find_value(layers, &$Config::$field(), |config| settings!(@field config $table $field).clone())
                    ), )*
                    $($( $collected: $merge(layers, |config| &config.$collected), )*)?
                    $($( $sub: $SubMerged::merge(layers), )*)?
                }
            }

            pub(super) fn add_problems(&self, problems: &mut Vec<SettingsError>) {
                $( problems.extend(
                    $Config::$field().problem(settings!(@value $kind self.$field), &self.$field.source)
                ); )*
                $($( self.$sub.add_problems(problems); )*)?
            }

            pub(super) fn add_rows(&self, rows: &mut Vec<SettingRow>) {
                $( rows.push(SettingRow {
                    name: $Config::$field().name.to_owned(),
                    value: $Config::$field().show_value(settings!(@value $kind self.$field)),
                    source: self.$field.source.to_string(),
                }); )*
                $($( self.$sub.add_rows(rows); )*)?
            }
        }
    };
    (@key [] $field:ident) => { stringify!($field) };
    (@key [$table:ident] $field:ident) => { concat!(stringify!($table), ".", stringify!($field)) };
    (@field $config:ident [] $field:ident) => { $config.$field };
    (@field $config:ident [$table:ident] $field:ident) => { $config.$table.$field };
    (@type default $ty:ty) => { $ty };
    (@type unset $ty:ty) => { Option<$ty> };
    (@value default $field:expr) => { Some(&$field.value) };
    (@value unset $field:expr) => { $field.value.as_ref() };
    (@merge default($($value:tt)*) $found:expr) => {
        $found.unwrap_or_else(|| Sourced { value: ($($value)*).into(), source: SettingSource::Default })
    };
    (@merge unset($($text:tt)*) $found:expr) => {
        match $found {
            Some(Sourced { value, source }) => Sourced { value: Some(value), source },
            None => Sourced { value: None, source: SettingSource::Default },
        }
    };
}

pub(super) use settings;
