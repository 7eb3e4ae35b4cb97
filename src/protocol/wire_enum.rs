//! Enums that the wire represents by name: the macro [`wire_enum`] and the error for an unknown name.

/// The error for a name that is none of an enum's variants.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be one of `{}`, found `{found}`", expected.join("`, `"))]
pub struct UnknownName {
    pub(in crate::protocol) expected: Vec<&'static str>,
    /// Shortened and escaped.
    pub(in crate::protocol) found: String,
}

/// Declares an enum of `Variant = "name"` with `ALL`, `as_str`, `Display` and `FromStr`. The name is also the serde name.
macro_rules! wire_enum {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $wire_name:literal,)* }) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
        $(#[$meta])*
        pub enum $name {
            $($(#[$variant_meta])* #[serde(rename = $wire_name)] $variant,)*
        }

        impl $name {
            /// All variants, in order of declaration.
            pub const ALL: [Self; [$($wire_name),*].len()] = [$(Self::$variant),*];

            /// The name on the wire.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $wire_name,)*
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::protocol::wire_enum::UnknownName;
            fn from_str(name: &str) -> Result<Self, Self::Err> {
                Self::ALL.into_iter().find(|known| known.as_str() == name).ok_or_else(|| {
                    $crate::protocol::wire_enum::UnknownName {
                        expected: Self::ALL.map(Self::as_str).to_vec(),
                        found: $crate::json::text::excerpt(name),
                    }
                })
            }
        }
    };
}
pub(in crate::protocol) use wire_enum;
