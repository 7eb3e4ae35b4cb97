//! How amounts are parsed and shown.

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
