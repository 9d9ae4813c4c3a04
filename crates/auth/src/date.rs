//! Dates of RFC 3339 as moments.

use rethread_proto::clock::Wall;
use toml_datetime::{Datetime, Offset};

/// Reads a date with a time and an offset, such as `2027-01-31T12:00:00Z`. `None` if it is another text, or before 1970.
pub fn parse_date(text: &str) -> Option<Wall> {
    let Datetime {
        date: Some(date),
        time: Some(time),
        offset: Some(offset),
    } = text.parse().ok()?
    else {
        return None;
    };
    let offset_minutes = match offset {
        Offset::Z => 0,
        Offset::Custom { minutes } => i64::from(minutes),
    };
    let days = days_since_1970(i64::from(date.year), i64::from(date.month), i64::from(date.day));
    let minutes = days * 1440 + i64::from(time.hour) * 60 + i64::from(time.minute) - offset_minutes;
    let seconds = minutes * 60 + i64::from(time.second.unwrap_or(0));
    let millis = i64::from(time.nanosecond.unwrap_or(0) / 1_000_000);
    u64::try_from(seconds * 1000 + millis).ok().map(Wall::from_millis)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. Years begin in March, so that the leap day is the last one.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auth_18_dates_need_a_time_and_an_offset() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2000-02-29T12:00:00Z", Some(951_825_600)),
            ("2024-12-31T23:59:59Z", Some(1_735_689_599)),
            ("2026-07-28T02:00:00+02:00", Some(1_785_196_800)),
            ("2026-07-27T19:00:00-05:00", Some(1_785_196_800)),
            ("2026-07-28", None),
            ("2026-07-28T00:00:00", None),
            ("2026-02-30T00:00:00Z", None),
            ("1969-12-31T23:59:59Z", None),
            ("tomorrow", None),
            ("", None),
        ] {
            let expected = seconds.map(|seconds: u64| Wall::from_millis(seconds * 1000));
            assert_eq!(parse_date(text), expected, "{text}");
        }
    }
}
