//! RFC 3339 date-times as the protocols have them.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

/// Parses an RFC 3339 date-time. jiff's own parser accepts more forms, such as one without seconds. A leap second counts as the
/// second before it; digits below the nanosecond are dropped.
pub(in crate::protocol) fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let number = |from: usize, length: usize| {
        bytes
            .get(from..from + length)?
            .iter()
            .try_fold(0_i16, |number, digit| digit.is_ascii_digit().then(|| number * 10 + i16::from(digit - b'0')))
    };
    let two = |from: usize| number(from, 2).and_then(|number| i8::try_from(number).ok());
    let is = |at: usize, one_of: &[u8]| bytes.get(at).is_some_and(|byte| one_of.contains(byte));
    let separated = is(4, b"-") && is(7, b"-") && is(10, b"Tt") && is(13, b":") && is(16, b":");
    if !separated {
        return None;
    }
    let (mut nanosecond, mut at) = (0_i32, 19);
    if is(at, b".") {
        let digits = bytes[20..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        for place in 0..9 {
            let digit = if place < digits { bytes[20 + place] - b'0' } else { 0 };
            nanosecond = nanosecond * 10 + i32::from(digit);
        }
        at += 1 + digits;
    }
    let offset = if is(at, b"Zz") && bytes.len() == at + 1 {
        Offset::UTC
    } else if is(at, b"+-") && is(at + 3, b":") && bytes.len() == at + 6 {
        let (hours, minutes) = (two(at + 1)?, two(at + 4)?);
        if hours > 23 || minutes > 59 {
            return None;
        }
        let seconds = i32::from(hours) * 3600 + i32::from(minutes) * 60;
        Offset::from_seconds(if bytes[at] == b'-' { -seconds } else { seconds }).ok()?
    } else {
        return None;
    };
    let second = match two(17)? {
        60 => 59,
        second => second,
    };
    let civil = DateTime::new(number(0, 4)?, two(5)?, two(8)?, two(11)?, two(14)?, second, nanosecond).ok()?;
    offset.to_timestamp(civil).ok()
}
