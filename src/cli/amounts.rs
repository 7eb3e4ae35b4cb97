//! Amounts as people type them, in flags, environment and config alike: `2g`, `30m`, `1.5`.
//!
//! Used by the settings and by other arguments. Must not: know what the amounts are for.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum AmountError {
    #[error("`{0}` is not a size: write a number and a unit, as in `512m` or `2g` (units: b, k, m, g, t)")]
    Size(String),
    #[error("`{0}` is not a duration: write numbers with units, as in `90s`, `30m` or `1h30m` (units: ms, s, m, h, d)")]
    Span(String),
    #[error("`{0}` has no unit: write `{0}s` for seconds or `{0}m` for minutes")]
    MissingUnit(String),
    #[error("`{0}` is not a number of CPUs: write it as in `2` or `1.5`, with at most three decimals")]
    Cpus(String),
}

/// A size in bytes, as in `2g`, `512m`, `1.5G` or `2GiB`. Units are powers of 1024, as Docker's are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub u64);

impl FromStr for Size {
    type Err = AmountError;
    fn from_str(text: &str) -> Result<Self, AmountError> {
        let wrong = || AmountError::Size(text.to_owned());
        let lower = text.trim().to_ascii_lowercase();
        let split = lower.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(lower.len());
        let (number, unit) = lower.split_at(split);
        let shift = match unit.trim() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(wrong()),
        };
        let thousandths = parse_thousandths(number).ok_or_else(wrong)?;
        let bytes = u128::from(thousandths).checked_shl(shift).map(|value| value / 1000).ok_or_else(wrong)?;
        u64::try_from(bytes).map(Size).map_err(|_| wrong())
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1u64 << 40, "t"), (1 << 30, "g"), (1 << 20, "m"), (1 << 10, "k")];
        for (unit, name) in units {
            if self.0 >= unit {
                return if self.0.is_multiple_of(unit) {
                    write!(f, "{}{name}", self.0 / unit)
                } else {
                    // One decimal is enough for people. Nothing parses this back.
                    write!(f, "{:.1}{name}", self.0 as f64 / unit as f64)
                };
            }
        }
        write!(f, "{}", self.0)
    }
}

/// A duration, as in `90s`, `30m`, `2h`, `1h30m` or `500ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span(pub Duration);

impl FromStr for Span {
    type Err = AmountError;
    fn from_str(text: &str) -> Result<Self, AmountError> {
        let wrong = || AmountError::Span(text.to_owned());
        let mut rest = text.trim();
        if !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()) {
            return if rest.bytes().all(|b| b == b'0') {
                Ok(Span(Duration::ZERO))
            } else {
                Err(AmountError::MissingUnit(rest.to_owned()))
            };
        }
        let mut total: u64 = 0;
        let mut smallest = u64::MAX;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
            let (number, tail) = rest.split_at(digits);
            let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(letters);
            let millis: u64 = match unit {
                "ms" => 1,
                "s" | "sec" => 1_000,
                "m" | "min" => 60_000,
                "h" => 3_600_000,
                "d" => 86_400_000,
                _ => return Err(wrong()),
            };
            // Units must get smaller from left to right. `30m1h` is a mistake.
            if millis >= smallest {
                return Err(wrong());
            }
            smallest = millis;
            let thousandths = parse_thousandths(number).ok_or_else(wrong)?;
            let part = thousandths.checked_mul(millis).ok_or_else(wrong)? / 1000;
            total = total.checked_add(part).ok_or_else(wrong)?;
            rest = tail.trim_start();
        }
        if smallest == u64::MAX { Err(wrong()) } else { Ok(Span(Duration::from_millis(total))) }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        if millis == 0 {
            return f.write_str("0s");
        }
        let mut rest = millis;
        for (unit, name) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")] {
            if rest >= unit {
                write!(f, "{}{name}", rest / unit)?;
                rest %= unit;
            }
        }
        Ok(())
    }
}

/// A duration, or `off`, which is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SpanOrOff(pub Duration);

impl FromStr for SpanOrOff {
    type Err = AmountError;
    fn from_str(text: &str) -> Result<Self, AmountError> {
        if text.trim() == "off" { Ok(Self(Duration::ZERO)) } else { text.parse::<Span>().map(|span| Self(span.0)) }
    }
}

impl fmt::Display for SpanOrOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_zero() { f.write_str("off") } else { Span(self.0).fmt(f) }
    }
}

/// A number of CPUs in thousandths, as in `2`, `1.5` or `0.25`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cpus(pub u64);

impl FromStr for Cpus {
    type Err = AmountError;
    fn from_str(text: &str) -> Result<Self, AmountError> {
        let wrong = || AmountError::Cpus(text.to_owned());
        let thousandths = parse_thousandths(text.trim()).ok_or_else(wrong)?;
        if thousandths <= 1_000_000 { Ok(Cpus(thousandths)) } else { Err(wrong()) }
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:03}", self.0 / 1000, self.0 % 1000);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// A decimal number with at most three decimals, in thousandths.
fn parse_thousandths(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(decimals) || decimals.len() > 3 || text.ends_with('.') {
        return None;
    }
    let fraction: u64 = if decimals.is_empty() { 0 } else { format!("{decimals:0<3}").parse().ok()? };
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(fraction)
}

macro_rules! amount_serde {
    ($name:ident, $expecting:literal) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<$name, E> {
                        number.to_string().parse().map_err(E::custom)
                    }
                    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<$name, E> {
                        number.to_string().parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_any(Visitor)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": ["string", "number"], "description": $expecting })
            }
        }
    };
}

amount_serde!(Size, "a size such as `512m` or `2g`");
amount_serde!(Span, "a duration such as `90s`, `30m` or `1h30m`");
amount_serde!(SpanOrOff, "a duration such as `90s`, `30m` or `1h30m`, or `off`");
amount_serde!(Cpus, "a number of CPUs such as `2` or `1.5`");

#[cfg(test)]
mod tests;
