//! Words and numbers as people write them.

use std::time::Duration;

/// `text` without what would start a new line or steer a terminal: parts of it come from outside.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A number with its unit: `500ms`, `10s`, `2m`, `1h`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| "expected a number and a unit, as 10s")?;
    let milliseconds: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(format!("unit {unit:?} is none of ms, s, m, h")),
    };
    let total = number.checked_mul(milliseconds).filter(|total| *total <= LONGEST);
    total
        .filter(|total| *total > 0)
        .map(Duration::from_millis)
        .ok_or_else(|| "a duration is longer than nothing and at most a year".to_owned())
}

/// A year in milliseconds: a longer wait is a typing error.
const LONGEST: u64 = 365 * 24 * 3_600_000;

/// The two leading units: `45s`, `12m3s`, `3h0m`, `5d7h`.
pub(crate) fn age(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m{}s", seconds % 60),
        3600..86_400 => format!("{hours}h{}m", minutes % 60),
        _ => format!("{days}d{}h", hours % 24),
    }
}

/// An empty text on the wire means "not given".
pub(crate) fn given(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        for bad in ["", "10", "s", "1.5s", "-1s", "10 s", "0s", "99999999999999999999s", "9999999h"]
        {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_age_shows_its_two_leading_units() {
        let ages = [0, 59, 60, 754, 3600, 11_000, 86_400, 457_200].map(age);
        assert_eq!(ages, ["0s", "59s", "1m0s", "12m34s", "1h0m", "3h3m", "1d0h", "5d7h"]);
    }

    #[test]
    fn a_text_from_outside_cannot_steer_the_terminal() {
        assert_eq!(one_line("a\x1b[31m\nb"), "a\u{fffd}[31m\u{fffd}b");
    }
}
