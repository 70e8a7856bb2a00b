//! Numbers as people read them.

/// 1234567 becomes 1,234,567.
pub fn count(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if number < 0 { format!("-{grouped}") } else { grouped }
}

/// Returns the number with its noun.
pub fn counted(number: i64, one: &str, more: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { more })
}

/// Returns three significant digits, with the unit that fits.
fn scaled(number: f64, step: f64, units: &[&str]) -> String {
    let mut rest = number;
    let mut units = units.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    // A number that would be shown as a thousand becomes one of the next unit.
    while rest.abs() >= step * 0.9995 {
        let Some(next) = units.next() else { break };
        (rest, unit) = (rest / step, next);
    }
    let tenths = (rest * 10.0).round();
    let decimals = if rest.abs() >= 99.95 || tenths % 10.0 == 0.0 { 0 } else { 1 };
    format!("{rest:.decimals$}{unit}")
}

pub fn bytes(number: f64) -> String {
    scaled(number, 1024.0, &[" B", " kB", " MB", " GB", " TB", " PB"])
}

/// Returns a rough number such as 12.3k, for figures that change while people read them.
pub fn rough(number: f64) -> String {
    scaled(number, 1000.0, &["", "k", "M", "G", "T"])
}

pub fn percent(part: f64) -> String {
    match part {
        part if part > 0.0 && part < 0.1 => "< 0.1 %".to_owned(),
        part if part >= 9.95 || part.fract() == 0.0 => format!("{part:.0} %"),
        part => format!("{part:.1} %"),
    }
}

/// Returns a time in seconds, in its two greatest units.
pub fn duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0);
    if seconds < 0.9995 {
        return format!("{:.0} ms", seconds * 1000.0);
    }
    if seconds < 59.95 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as i64;
    let (days, hours, minutes) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes} min {} s", whole % 60),
        (0, _) => format!("{hours} h {minutes} min"),
        _ => format!("{} d {hours} h", count(days)),
    }
}

/// Returns seconds since 1970 as a day and a time, in UTC.
pub fn moment(epoch: f64) -> String {
    let seconds = epoch.floor() as i64;
    let (year, month, day) = civil(seconds.div_euclid(86_400));
    let time = seconds.rem_euclid(86_400);
    format!("{year}-{month:02}-{day:02} {:02}:{:02}:{:02}", time / 3600, time / 60 % 60, time % 60)
}

/// Returns the day of the Gregorian calendar this many days after 1970 began. It uses eras of 400 years that begin in
/// March, so that a leap day is the last day of a year.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let is_next = month >= 10;
    (year + era * 400 + i64::from(is_next), if is_next { month - 9 } else { month + 3 }, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_unit_that_fits() {
        assert_eq!(
            [count(0), count(999), count(-1000), count(1_234_567)],
            ["0", "999", "-1,000", "1,234,567"]
        );
        assert_eq!(
            [bytes(0.0), bytes(1023.9), bytes(1536.0), bytes(5e9)],
            ["0 B", "1 kB", "1.5 kB", "4.7 GB"]
        );
        assert_eq!(
            [rough(999.0), rough(999.9), rough(12_345.0), rough(2e18)],
            ["999", "1k", "12.3k", "2000000T"]
        );
        assert_eq!(
            [percent(0.0), percent(0.01), percent(3.25), percent(99.9)],
            ["0 %", "< 0.1 %", "3.2 %", "100 %"]
        );
    }

    #[test]
    fn times_have_two_units() {
        let shown = [0.0, 0.0434, 0.9999, 59.94, 59.99, 3599.6, 90_061.0].map(duration);
        assert_eq!(shown, ["0 ms", "43 ms", "1.0 s", "59.9 s", "1 min 0 s", "1 h 0 min", "1 d 1 h"]);
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        assert_eq!(moment(0.0), "1970-01-01 00:00:00");
        assert_eq!(moment(951_782_400.0), "2000-02-29 00:00:00");
        assert_eq!(moment(1_798_761_599.9), "2026-12-31 23:59:59");
        assert_eq!(moment(-1.0), "1969-12-31 23:59:59");
    }
}
