//! The epoch from which identifiers count: a date in the settings.

use super::error;
use crate::error::Failure;
use crate::guc;
use std::cell::OnceCell;

/// In milliseconds of Unix time. The setting is fixed at the server's start.
pub fn unix_epoch() -> Result<u64, Failure> {
    thread_local! {
        static EPOCH: OnceCell<u64> = const { OnceCell::new() };
    }
    EPOCH.with(|epoch| match epoch.get() {
        Some(epoch) => Ok(*epoch),
        None => {
            let text = guc::snowflake_epoch();
            let parsed = parse(&text).ok_or_else(|| error::invalid_epoch(&text))?;
            Ok(*epoch.get_or_init(|| parsed))
        }
    })
}

/// Parses a date, as of 00:00 UTC.
fn parse(text: &str) -> Option<u64> {
    let mut parts = text.trim().splitn(3, '-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let february = if leap(year) { 29 } else { 28 };
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let length = *months.get(usize::try_from(month).ok()?.checked_sub(1)?)?;
    if !(1970..=9999).contains(&year) || !(1..=length).contains(&day) {
        return None;
    }
    let years: u64 = (1970..year).map(|year| if leap(year) { 366 } else { 365 }).sum();
    let before: u64 = months.iter().take(usize::try_from(month).ok()? - 1).sum();
    Some((years + before + day - 1) * 86_400_000)
}

#[cfg(test)]
mod tests {
    use super::parse;
    use shardmaster_client::snowflake::DEFAULT_EPOCH;

    #[test]
    fn dates_are_read_as_the_calendar_has_them() {
        assert_eq!(parse("1970-01-01"), Some(0));
        assert_eq!(parse("2024-01-01"), Some(DEFAULT_EPOCH));
        assert_eq!(parse("2024-03-01"), Some(DEFAULT_EPOCH + 60 * 86_400_000));
        for wrong in
            ["", "2024", "2024-13-01", "2024-02-30", "2023-02-29", "1969-12-31", "2024-01-00", "x-y-z"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
