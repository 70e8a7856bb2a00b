//! The contents of a table, read by COPY as text under fixed settings.

use super::Case;
use crate::Result;
use postgres::Client;
use std::io::Read;

/// Returns the lines of the rows for which the condition holds, in the given encoding, sorted.
pub fn rows(session: &mut Client, case: &Case, condition: &str, encoding: &str) -> Result<Vec<Vec<u8>>> {
    session.batch_execute(
        "SET search_path = public; SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'postgres'; SET TimeZone = 'UTC';
         SET extra_float_digits = 3; SET bytea_output = 'hex'; SET lc_monetary = 'C'; SET xmloption = 'content'",
    )?;
    let columns: String = session
        .query_one(
            "SELECT string_agg(quote_ident(attname), ', ' ORDER BY attname COLLATE \"C\") FROM pg_attribute
              WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped",
            &[&case.table],
        )?
        .get(0);
    let mut text = Vec::new();
    session
        .copy_out(&format!(
            "COPY (SELECT {columns} FROM {} WHERE {condition}) TO STDOUT (ENCODING '{encoding}')",
            case.table
        ))?
        .read_to_end(&mut text)?;
    let mut lines: Vec<Vec<u8>> = text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    lines.sort();
    Ok(lines)
}

/// Returns how two sets of lines differ, if they do.
pub fn difference(case: &Case, what: &str, left: &[Vec<u8>], right: &[Vec<u8>]) -> Option<String> {
    if left == right {
        return None;
    }
    let only = |these: &[Vec<u8>], those: &[Vec<u8>]| -> Vec<String> {
        let missing = these.iter().filter(|line| !those.contains(line));
        missing.take(5).map(|line| String::from_utf8_lossy(line).into_owned()).collect()
    };
    Some(format!(
        "{} ({}): {what}: {} and {} rows; only in the first {:?}, only in the second {:?}",
        case.table,
        case.source,
        left.len() - 1,
        right.len() - 1,
        only(left, right),
        only(right, left)
    ))
}
