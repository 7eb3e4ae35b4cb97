//! Enums whose variants are words of a protocol.

/// A word that is none of an enum's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be one of `{}`, found `{found}`", expected.join("`, `"))]
pub struct UnknownWord {
    pub(in crate::protocol) expected: Vec<&'static str>,
    /// Shortened and escaped.
    pub(in crate::protocol) found: String,
}

/// Declares an enum of `Variant = "word"`: `ALL`, `as_str`, `Display` and `FromStr` by the word, which is also the serde name.
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)* }) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
        $(#[$meta])*
        pub enum $name {
            $($(#[$variant_meta])* #[serde(rename = $word)] $variant,)*
        }

        impl $name {
            /// All of them, in order.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$variant),*];

            /// The word on the wire.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::protocol::words::UnknownWord;
            fn from_str(word: &str) -> Result<Self, Self::Err> {
                Self::ALL.into_iter().find(|known| known.as_str() == word).ok_or_else(|| {
                    $crate::protocol::words::UnknownWord {
                        expected: Self::ALL.map(Self::as_str).to_vec(),
                        found: $crate::json::text::excerpt(word),
                    }
                })
            }
        }
    };
}
pub(in crate::protocol) use words;
