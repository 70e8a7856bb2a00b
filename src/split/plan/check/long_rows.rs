//! Rows that are longer, as COPY writes them, than a split permits: they would stop the copy hours later. The search
//! is bounded: it reads only tables that can have such a row by what they have stored out of line, uses the lengths of
//! values, and takes a few seconds.

use crate::agent::catalogs;
use crate::agent::error::Result;
use crate::agent::session::Side;
use crate::agent::shape::Column;
use crate::agent::table_names::TableNames;
use crate::catalog::split::Plan;
use crate::guc;
use crate::remote::Connection;
use crate::remote::quote::{ident, literal};
use crate::split::finding::Finding;
use crate::split::table::columns::ColumnSource;
use crate::split::table::{self, SplitTable};
use std::time::{Duration, Instant};

const TOASTED: &str = include_str!("../../../../sql/check/toasted.sql");

/// The greatest ratio of a value's length to its stored size, however well it was compressed.
const COMPRESSED: u64 = 256;
/// The limits for one table, and for all.
const EACH: Duration = Duration::from_secs(3);
const ALL: Duration = Duration::from_secs(10);
/// The server writes no longer row.
const MOST: u64 = 1 << 30;

pub fn check(plan: &Plan, source: &mut Connection, target: &mut Connection) -> Result<Vec<Finding>> {
    let limit = guc::max_row_bytes();
    let candidates = candidates(plan, source, limit)?;
    if candidates.is_empty() {
        return Ok(Vec::new());
    }
    let tables = table::load(plan, source, target)?;
    let began = Instant::now();
    let mut findings = Vec::new();
    for position in candidates {
        let Some(table) = tables.get(position).filter(|_| began.elapsed() < ALL) else { break };
        if let Some(bytes) = longest(plan, source, table, limit)?.filter(|bytes| *bytes > limit) {
            findings.push(finding(table, bytes, limit));
        }
    }
    Ok(findings)
}

/// Returns tables that may have such a row.
fn candidates(plan: &Plan, source: &mut Connection, limit: u64) -> Result<Vec<usize>> {
    let lists = TableNames::of(plan, Side::Source).lists();
    let rows = catalogs::ask(source, TOASTED, &catalogs::given(&lists))?;
    let may = |(position, bytes): (String, String)| {
        let bytes: u64 = bytes.parse().ok()?;
        position.parse().ok().filter(|_| bytes.saturating_mul(COMPRESSED) > limit)
    };
    Ok(rows.pairs().filter_map(may).collect())
}

/// Returns the bytes of the longest row of the scope, or None if finding it took too long.
fn longest(plan: &Plan, source: &mut Connection, table: &SplitTable, limit: u64) -> Result<Option<u64>> {
    let Some(by) = table.source.column(&table.policy.shard_by) else { return Ok(None) };
    let (functions, predicate) = plan.scope.dry_predicate(by, "t");
    let sizes: Vec<String> = table
        .pairs
        .iter()
        .filter_map(|pair| match &pair.source {
            ColumnSource::Column(name) => table.source.column(name),
            ColumnSource::Expression(_) => None,
        })
        .map(|column| size(column, table.is_binary(), limit))
        .collect();
    let query = format!(
        "SELECT pg_catalog.max({}) FROM {} t WHERE {predicate}",
        sizes.join(" + "),
        table.source.name
    );
    let found = source.undone_within(EACH, &functions, &query)?;
    Ok(found.and_then(|found| found.scalar()?.parse().ok()))
}

/// Returns SQL for the bytes of a value in a COPY. A text's length is known without reading it; values of other types
/// are converted if they may be long.
fn size(column: &Column, is_binary: bool, limit: u64) -> String {
    let name = format!("t.{}", ident(&column.name));
    let stored = format!("pg_catalog.pg_column_size({name})");
    let size = match column.base.as_str() {
        "text" | "character varying" => format!("pg_catalog.octet_length({name}::pg_catalog.text)"),
        // In text form each byte has two digits.
        "bytea" if is_binary => format!("pg_catalog.octet_length({name}::pg_catalog.bytea)"),
        "bytea" => format!("pg_catalog.octet_length({name}::pg_catalog.bytea)::pg_catalog.int8 * 2"),
        _ if column.builtin => format!(
            "CASE WHEN {stored} > {} THEN pg_catalog.octet_length({name}::pg_catalog.text) ELSE {stored} END",
            limit / COMPRESSED
        ),
        _ => stored,
    };
    format!("coalesce(({size})::pg_catalog.int8, 0)")
}

fn finding(table: &SplitTable, bytes: u64, limit: u64) -> Finding {
    let mb = |bytes: u64| (bytes >> 20) + 1;
    // Line ends and the like take two bytes of a text.
    let wanted = mb(bytes + bytes / 20);
    let detail = format!(
        "{}: a row of about {} MB moves, shardmaster.max_row_size is {} MB",
        table.source.name,
        mb(bytes),
        limit >> 20
    );
    let hint = if wanted <= MOST >> 20 {
        format!(
            "ALTER SYSTEM SET shardmaster.max_row_size = {}; SELECT pg_reload_conf(). A worker needs twice as much memory.",
            literal(&format!("{wanted}MB"))
        )
    } else {
        "The server writes no row of more than 1 GB. Make the row shorter, or leave a column out with shard_split_map().".to_owned()
    };
    Finding::new("source: long rows", false, detail, &hint)
}
