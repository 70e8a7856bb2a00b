//! The point where to cut a range: in the middle of its keys, or of its rows.

use super::{error, ranges};
use crate::agent::error::SplitError;
use crate::agent::table_names::TableNames;
use crate::agent::{reading, session};
use crate::catalog::caller::Caller;
use crate::catalog::keyspace::{self, Keyspace};
use crate::catalog::table_policy::{self, TablePolicy};
use crate::catalog::{routing, shard, trusted_owner};
use crate::error::{Failure, SqlState};
use crate::keys::interval::Interval;
use crate::keys::ordered::Ordered;
use crate::keys::scope::Scope;
use crate::remote::Connection;
use crate::remote::quote::{ident, literal};

/// The approximate number of a table's rows that are read; for larger tables a sample of blocks is read.
const SAMPLE: f64 = 200_000.0;
/// The greatest number of bytes of a proposed key.
const LONGEST_KEY: usize = 1 << 20;

/// Returns a key that divides the range into halves.
pub fn propose(
    keyspace: &str,
    lower: Option<&str>,
    upper: Option<&str>,
    by: &str,
    caller: &Caller,
) -> Result<String, Failure> {
    let keyspace = keyspace::find(keyspace)?;
    let of = ranges::order(&keyspace)?;
    let range = Interval::new(keyspace.key_type(), lower, upper)?;
    let found = match by {
        "keyspace" => of.middle(range.lower.as_deref(), range.upper.as_deref()),
        "rows" => by_rows(&keyspace, of, &range, caller)?,
        other => {
            let problem = format!("\"{other}\" is not one of \"keyspace\", \"rows\"");
            return Err(error::invalid("by", problem));
        }
    };
    let inside = |key: &String| {
        let above = Interval { lower: range.lower.clone(), upper: Some(key.clone()) };
        let below = Interval { lower: Some(key.clone()), upper: range.upper.clone() };
        !above.is_empty(of) && !below.is_empty(of)
    };
    found.filter(inside).ok_or_else(|| {
        Failure::new(SqlState::NOT_IN_STATE, format!("no key divides range {} by {by}", range.name(of)))
            .hint("Give the bounds with shard_split_plan_range().")
    })
}

/// Returns the median of the shard-by columns, asked of the one shard that holds the range.
fn by_rows(
    keyspace: &Keyspace,
    of: Ordered,
    range: &Interval,
    caller: &Caller,
) -> Result<Option<String>, Failure> {
    let entries = routing::ranges(&keyspace.name, of, range);
    let Some(first) = entries.first() else {
        return Err(error::unknown_range(&keyspace.name, &range.name(of)));
    };
    if let Some(other) = entries.iter().find(|entry| entry.shard != first.shard) {
        let problem = format!("the range is on \"{}\" and \"{}\"", first.shard, other.shard);
        return Err(error::invalid("upper", problem));
    }
    let policies = table_policy::list(&keyspace.name);
    check_shown(&policies, caller)?;
    let shard = shard::by_key(&first.shard)?;
    let mut connection = session::open(&shard, "midpoint")?;
    let scope = keyspace.strategy.scope(&[range.name(of)]);
    let tables: Vec<(String, String, String)> = policies
        .into_iter()
        .filter_map(|policy| {
            let name = table_policy::TableName::parse(&policy.table_name)?;
            Some((name.schema.unwrap_or_else(|| shard.namespace.clone()), name.name, policy.shard_by))
        })
        .collect();
    if tables.is_empty() {
        return Ok(None);
    }
    // A query over them runs their code, already while it is planned.
    let names: TableNames = tables.iter().map(|(schema, name, _)| (schema.clone(), name.clone())).collect();
    let collate = if of == Ordered::Text { " COLLATE pg_catalog.\"C\"" } else { "" };
    let rows = reading::within(&mut connection, &names, &trusted_owner::of(&shard), |connection| {
        let mut parts = Vec::new();
        for (schema, name, shard_by) in &tables {
            let table = format!("{}.{}", ident(schema), ident(name));
            parts.push(sample(connection, &table, shard_by, &scope, of)?);
        }
        Ok(connection.run(&format!(
            "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY k{collate})::text FROM ({}) rows",
            parts.join(" UNION ALL ")
        ))?)
    })
    .map_err(|error| {
        let is_transient = error.is_transient();
        let failure = error.into_failure();
        if is_transient && failure.hint.is_none() {
            failure.hint("This may be temporary. Ask again, or use by => 'keyspace'.")
        } else {
            failure
        }
    })?;
    // A compromised shard may return anything: no routing entry has such a long name.
    Ok(rows.scalar().filter(|key| key.len() <= LONGEST_KEY).map(str::to_owned))
}

/// Checks that the column may be shown: a caller who asks for ever smaller ranges sees every value of the column. If a
/// superuser has named it, it holds keys, which operators may see; if another role has named it, it may be any column
/// that the mover can read.
fn check_shown(policies: &[TablePolicy], caller: &Caller) -> Result<(), Failure> {
    if caller.is_superuser() {
        return Ok(());
    }
    match policies.iter().find(|policy| !policy.by_superuser) {
        None => Ok(()),
        Some(TablePolicy { table_name, shard_by, .. }) => Err(Failure::new(
            SqlState::INSUFFICIENT_PRIVILEGE,
            format!("permission denied to see column \"{shard_by}\" of table \"{table_name}\""),
        )
        .hint("Other roles see keys only of tables that a superuser added with shard_table_add(). A superuser can call this function, or add the table. Or use by => 'keyspace'.")),
    }
}

/// Returns the shard-by column of the rows in the range.
fn sample(
    connection: &mut Connection,
    table: &str,
    column: &str,
    scope: &Scope,
    of: Ordered,
) -> Result<String, SplitError> {
    let estimate = connection.run(&format!(
        "SELECT coalesce(sum(greatest(c.reltuples, 0)), 0) FROM pg_class c
          WHERE c.oid IN (SELECT {t}::regclass UNION SELECT relid FROM pg_partition_tree({t}::regclass))",
        t = literal(table)
    ))?;
    let rows: f64 = estimate.scalar().and_then(|text| text.parse().ok()).unwrap_or(0.0);
    let sampled = if rows > SAMPLE {
        format!(" TABLESAMPLE SYSTEM ({})", 100.0 * SAMPLE / rows)
    } else {
        String::new()
    };
    let value = format!("t.{}", ident(column));
    Ok(format!("SELECT {value}::{} AS k FROM {table} t{sampled} WHERE {}", of.as_str(), scope.holds(&value)))
}
