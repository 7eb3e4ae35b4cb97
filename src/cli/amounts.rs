//! Amounts as people type them, in flags, environment and config alike: `2g`, `30m`, `1.5`.
//!
//! Used by `args.rs` and `config.rs`. Must not: know what the amounts are for.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// Why a text is not an amount.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AmountError {
    /// Not a size.
    #[error("`{0}` is not a size: write a number and a unit, as in `512m` or `2g` (units: b, k, m, g, t)")]
    Size(String),
    /// Not a duration.
    #[error("`{0}` is not a duration: write numbers with units, as in `90s`, `30m` or `1h30m` (units: ms, s, m, h, d)")]
    Span(String),
    /// A duration without a unit.
    #[error("`{0}` has no unit: write `{0}s` for seconds or `{0}m` for minutes")]
    MissingUnit(String),
    /// Not a number of processors.
    #[error("`{0}` is not a number of CPUs: write it as in `2` or `1.5`, with at most three decimals")]
    Cpus(String),
}

/// A size in bytes. `2g`, `512m`, `1.5G`, `2GiB`; units count in 1024s, as Docker's do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

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
                    // For people: one decimal is enough, and the exact number is never read back from here.
                    write!(f, "{:.1}{name}", self.0 as f64 / unit as f64)
                };
            }
        }
        write!(f, "{}", self.0)
    }
}

/// A length of time. `90s`, `30m`, `2h`, `1h30m`, `500ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

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
            // Units fall from left to right, so that `30m1h` is caught as the slip that it is.
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

/// A length of time as [`Span`], or `off`, which is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpanOrOff(pub Duration);

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

/// Processors, in thousandths. `2`, `1.5`, `0.25`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpus(pub u64);

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
mod tests {
    use super::*;

    #[test]
    fn sizes_parse_and_display() {
        let table = [
            ("0", 0),
            ("512", 512),
            ("1k", 1024),
            ("512m", 512 << 20),
            ("2g", 2 << 30),
            ("2G", 2 << 30),
            ("2GiB", 2 << 30),
            ("2 gb", 2 << 30),
            ("1.5g", 3 << 29),
            ("1t", 1 << 40),
        ];
        for (text, bytes) in table {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for wrong in ["", "g", "-1g", "2x", "1.g", "1.2345g", "2g2", "99999999999999999999", "20000000t", "١g"] {
            assert!(matches!(wrong.parse::<Size>(), Err(AmountError::Size(_))), "{wrong}");
        }
        assert_eq!(Size(2 << 30).to_string(), "2g");
        assert_eq!(Size(3 << 29).to_string(), "1.5g");
        assert_eq!(Size(100).to_string(), "100");
    }

    #[test]
    fn durations_parse_and_display() {
        let table = [
            ("90s", 90_000),
            ("30m", 1_800_000),
            ("2h", 7_200_000),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            ("1.5h", 5_400_000),
            ("250ms", 250),
            ("0", 0),
            ("1d", 86_400_000),
        ];
        for (text, millis) in table {
            assert_eq!(text.parse(), Ok(Span(Duration::from_millis(millis))), "{text}");
        }
        assert_eq!("30".parse::<Span>(), Err(AmountError::MissingUnit("30".into())));
        for wrong in ["", "m", "-3s", "3w", "30m1h", "1s1s", "s3", "1..5s"] {
            assert!(matches!(wrong.parse::<Span>(), Err(AmountError::Span(_))), "{wrong}");
        }
        assert_eq!(Span(Duration::from_secs(5400)).to_string(), "1h30m");
        assert_eq!(Span(Duration::ZERO).to_string(), "0s");
    }

    #[test]
    fn off_parses_as_zero_duration() {
        for (text, seconds, shown) in [("off", 0, "off"), ("0", 0, "off"), ("90s", 90, "1m30s")] {
            let span: SpanOrOff = text.parse().expect("good");
            assert_eq!((span.0.as_secs(), span.to_string().as_str()), (seconds, shown), "{text}");
        }
        assert_eq!("30".parse::<SpanOrOff>(), Err(AmountError::MissingUnit("30".into())));
    }

    #[test]
    fn cpus_parse_and_display() {
        for (text, thousandths) in [("1", 1000), ("1.5", 1500), ("0.25", 250), ("0", 0)] {
            assert_eq!(text.parse(), Ok(Cpus(thousandths)), "{text}");
        }
        for wrong in ["", "-1", "one", "1.2345", ".5", "1e3", "99999"] {
            assert!(wrong.parse::<Cpus>().is_err(), "{wrong}");
        }
        assert_eq!(Cpus(1500).to_string(), "1.5");
        assert_eq!(Cpus(2000).to_string(), "2");
        assert_eq!(Cpus(10_000).to_string(), "10");
    }
}
