//! The beginning of a check's report: how much would move, how long that takes, how long writers wait. It uses the
//! planner's estimates, counts of small tables, and measured rates of copies (docs/internals/benchmarks.md): it is a
//! guess for choosing a time.

use crate::agent::error::Result;
use crate::agent::observed_side::ObservedSide;
use crate::agent::shape::{Column, TableShape};
use crate::catalog::split::{Plan, PlannedTable};
use crate::guc;
use crate::keys::scope::Scope;
use crate::remote::Connection;
use crate::split::finding::Finding;
use crate::words::counted;
use std::time::{Duration, Instant};

/// The rates of a copy per second, on servers with two processors and readers of their own.
const ROWS: f64 = 200_000.0;
const BYTES: f64 = 50e6;
/// The time that a table takes before its first row is copied.
const TABLE: Duration = Duration::from_millis(100);
/// The parts of a fence's duration: its fixed part, the number of queries to one side, and the time for each table.
const FENCE: Duration = Duration::from_millis(40);
const QUESTIONS: u32 = 20;
const FENCED_TABLE: Duration = Duration::from_millis(3);
const FENCED_ENTRY: Duration = Duration::from_micros(15);

const PAGE: f64 = 8192.0;
/// The size up to which a table is counted: 8 MB.
const FEW_PAGES: f64 = 1024.0;

#[derive(Default)]
pub struct Outlook {
    tables: usize,
    /// The number of routing entries; each changes twice.
    entries: u32,
    rows: f64,
    bytes: f64,
    round_trip: Duration,
    /// The bytes per second that a copy may take. `None` if unlimited.
    most: Option<u64>,
    /// How long the oldest transaction that has written is open on the source.
    oldest: Option<Duration>,
}

/// Returns the estimate. No error here is a finding: what is unknown is left out.
pub fn of(plan: &Plan, source: &mut ObservedSide, target: &mut ObservedSide) -> Option<Outlook> {
    let mut outlook = Outlook {
        tables: plan.tables.len(),
        entries: u32::try_from(plan.entries.len()).unwrap_or(u32::MAX),
        most: guc::max_copy_rate(),
        ..Outlook::default()
    };
    for (policy, shape) in plan.tables.iter().zip(&source.observation.tables) {
        let (rows, bytes) = size(plan, &mut source.session, policy, shape).ok()?;
        outlook.rows += rows;
        outlook.bytes += bytes;
    }
    outlook.round_trip = round_trip(&mut source.session).ok()?.max(round_trip(&mut target.session).ok()?);
    outlook.oldest = oldest_writer(&mut source.session).ok()?;
    Some(outlook)
}

/// Returns the number of rows of the scope in a table, and their bytes.
fn size(
    plan: &Plan,
    session: &mut Connection,
    policy: &PlannedTable,
    shape: &TableShape,
) -> Result<(f64, f64)> {
    let pages: f64 = shape.leaves().iter().map(|leaf| leaf.blocks as f64).sum();
    let Some(column) = shape.column(&policy.shard_by).filter(|_| pages > 0.0) else { return Ok((0.0, 0.0)) };
    let stored = stored(session, shape)?.unwrap_or(pages * PAGE);
    if pages <= FEW_PAGES {
        let (rows, all) = count_rows(plan, session, shape, column)?;
        return Ok((rows, stored * rows / all.max(1.0)));
    }
    let all = expected(session, &format!("SELECT 1 FROM {} t", shape.name))?.max(1.0);
    let moving = match &plan.scope {
        Scope::Buckets { count, buckets, .. } => all * buckets.len() as f64 / f64::from(count.get()),
        Scope::Keys(_) | Scope::Ranges { .. } => {
            let predicate = plan.scope.predicate(column, "t");
            expected(session, &format!("SELECT 1 FROM {} t WHERE {predicate}", shape.name))?
        }
    };
    let rows = moving.min(all);
    Ok((rows, stored * rows / all))
}

/// Counts the rows of the scope, and all rows: small tables often lack statistics.
fn count_rows(
    plan: &Plan,
    session: &mut Connection,
    shape: &TableShape,
    column: &Column,
) -> Result<(f64, f64)> {
    let (functions, predicate) = plan.scope.dry_predicate(column, "t");
    let query = format!(
        "SELECT pg_catalog.count(*) FILTER (WHERE {predicate}), pg_catalog.count(*) FROM {} t",
        shape.name
    );
    let rows = session.undone(|session| session.run(&format!("{functions}; {query}")))?.rows;
    let mut numbers = rows.iter().flatten().map(|cell| cell.as_deref().and_then(|text| text.parse().ok()));
    let mut number = || numbers.next().flatten().unwrap_or(0.0);
    Ok((number(), number()))
}

/// Returns the planner's estimate of the rows.
fn expected(session: &mut Connection, query: &str) -> Result<f64> {
    let plan = session.run(&format!("EXPLAIN (FORMAT JSON) {query}"))?;
    let plan: serde_json::Value =
        plan.scalar().and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default();
    Ok(plan[0]["Plan"]["Plan Rows"].as_f64().unwrap_or(0.0))
}

fn leaves(shape: &TableShape) -> String {
    let oids: Vec<&str> = shape.leaves().iter().map(|leaf| leaf.oid.as_str()).collect();
    format!("'{{{}}}'::pg_catalog.oid[]", oids.join(","))
}

/// Returns the stored bytes, including long values that are stored out of line.
fn stored(session: &mut Connection, shape: &TableShape) -> Result<Option<f64>> {
    let query = format!(
        "SELECT pg_catalog.sum(pg_catalog.pg_table_size(l)) FROM pg_catalog.unnest({}) l",
        leaves(shape)
    );
    Ok(session.run(&query)?.scalar().and_then(|bytes| bytes.parse().ok()))
}

fn round_trip(session: &mut Connection) -> Result<Duration> {
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let asked = Instant::now();
        session.run("")?;
        best = best.min(asked.elapsed());
    }
    Ok(best)
}

fn oldest_writer(session: &mut Connection) -> Result<Option<Duration>> {
    let oldest = session.run(
        "SELECT pg_catalog.max(EXTRACT(epoch FROM pg_catalog.clock_timestamp() - xact_start))
           FROM pg_catalog.pg_stat_activity
          WHERE backend_xid IS NOT NULL AND datname = pg_catalog.current_database()
            AND pid <> pg_catalog.pg_backend_pid()",
    )?;
    let seconds = oldest.scalar().and_then(|text| text.parse::<f64>().ok());
    Ok(seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok()))
}

impl Outlook {
    fn copy(&self) -> Duration {
        let by_rate = self.most.map_or(0.0, |rate| self.bytes / rate as f64);
        let seconds = (self.rows / ROWS).max(self.bytes / BYTES).max(by_rate);
        let tables = TABLE * u32::try_from(self.tables).unwrap_or(u32::MAX);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX).saturating_add(tables)
    }

    fn fence(&self) -> Duration {
        let tables = FENCED_TABLE * u32::try_from(self.tables).unwrap_or(u32::MAX);
        FENCE + self.round_trip * QUESTIONS + tables + FENCED_ENTRY * self.entries
    }

    fn text(&self) -> String {
        let tables = counted(self.tables, "table", "tables");
        let rows = counted(rounded(self.rows), "row", "rows");
        let mut parts = vec![
            format!("about {rows}, {}, in {tables}", bytes(self.bytes)),
            format!("a copy of about {}", time(self.copy())),
            format!("writers wait about {} at the cutover", time(self.fence())),
        ];
        if let Some(oldest) = self.oldest.filter(|oldest| oldest.as_secs() >= 1) {
            parts.push(format!(
                "and for transactions that have written: the oldest on the source has been open for {}",
                time(oldest)
            ));
        }
        parts.join(", ")
    }
}

/// Returns the first line: whether the split may begin, or its phase, and the estimate. `now`: what it does, if it has
/// begun.
pub fn line(findings: &[Finding], outlook: Option<&Outlook>, now: Option<&str>) -> String {
    let wrong = match findings.iter().filter(|finding| !finding.ok).count() {
        0 => None,
        1 => Some("1 finding".to_owned()),
        wrong => Some(format!("{wrong} findings")),
    };
    let standing = match (now, wrong) {
        (None, None) => "ready".to_owned(),
        (None, Some(wrong)) => format!("not ready, {wrong}"),
        (Some(now), None) => now.to_owned(),
        (Some(now), Some(wrong)) => format!("{now}, {wrong}"),
    };
    match outlook {
        Some(outlook) => format!("{standing}: {}", outlook.text()),
        None if now.is_some() => standing,
        None => format!("{standing}: the amount that would move could not be asked"),
    }
}

/// Rounds to two digits, since an estimate has no more.
fn rounded(number: f64) -> u64 {
    let number = number.max(0.0);
    if number < 100.0 {
        return number.round() as u64;
    }
    let unit = 10f64.powf(number.log10().floor() - 1.0);
    ((number / unit).round() * unit) as u64
}

fn bytes(number: f64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    let (mut number, mut unit) = (number / 1024.0, 0);
    while number >= 1024.0 && unit + 1 < UNITS.len() {
        number /= 1024.0;
        unit += 1;
    }
    format!("{} {}", rounded(number.ceil()), UNITS[unit])
}

/// Returns a duration in one unit, rounded up.
fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let (number, unit) = match seconds {
        s if s < 1.0 => (rounded(s * 1000.0), "ms"),
        s if s < 120.0 => (s.ceil() as u64, "s"),
        s if s < 7200.0 => ((s / 60.0).ceil() as u64, "min"),
        s => ((s / 3600.0).ceil() as u64, "h"),
    };
    format!("{number} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_no_more_digits_than_is_known() {
        assert_eq!([0.0, 7.4, 99.0, 12_345.0, 987_654.0].map(rounded), [0, 7, 99, 12_000, 990_000]);
        assert_eq!([0.0, 1.0, 8192.0, 5e6, 7e13].map(bytes), ["0 kB", "1 kB", "8 kB", "5 MB", "64 TB"]);
        let times = [0.0405, 1.2, 119.0, 121.0, 7201.0].map(|s| time(Duration::from_secs_f64(s)));
        assert_eq!(times, ["41 ms", "2 s", "119 s", "3 min", "3 h"]);
    }

    #[test]
    fn the_first_line_says_whether_a_split_may_begin() {
        let outlook = Outlook { tables: 2, rows: 12_345.0, bytes: 5e6, ..Outlook::default() };
        let wrong = || Finding::new("source: version", false, "old", "");
        let text = "about 12000 rows, 5 MB, in 2 tables, a copy of about 300 ms, writers wait about 46 ms at the cutover";
        assert_eq!(line(&[], Some(&outlook), None), format!("ready: {text}"));
        assert_eq!(line(&[wrong(), wrong()], Some(&outlook), None), format!("not ready, 2 findings: {text}"));
        let unknown = "not ready, 1 finding: the amount that would move could not be asked";
        assert_eq!(line(&[wrong()], None, None), unknown);
        assert_eq!(line(&[], Some(&outlook), Some("begun")), format!("begun: {text}"));
        assert_eq!(line(&[wrong()], None, Some("begun")), "begun, 1 finding");
    }

    #[test]
    fn an_old_writer_is_named_with_the_wait() {
        let outlook = Outlook { oldest: Some(Duration::from_secs(90)), tables: 1, ..Outlook::default() };
        assert!(line(&[], Some(&outlook), None).ends_with("the oldest on the source has been open for 90 s"));
    }
}
