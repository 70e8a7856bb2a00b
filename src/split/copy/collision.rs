//! A key that is taken on the target by a row outside the scope: the owner of that row decides whether the split waits
//! for another one or needs an operator.

use crate::agent::error::{Result, SplitError};
use crate::agent::session::{self, Side};
use crate::catalog::split::Plan;
use crate::catalog::{in_use, keyspace, routing};
use crate::error::{Failure, SqlState};
use crate::remote::RemoteError;
use crate::remote::quote::ident;
use crate::server::txn::transaction;
use crate::split::engine::StepMode;
use crate::split::table::{SplitTable, computed};
use crate::split::{aborted, untrusted_code};
use std::time::Duration;

/// How long the locks of the target's tables are waited for before the conflicting row is read.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The SQLSTATE of a row that fits no partition, and of one that violates a constraint, which is then named.
pub const NO_PLACE: &str = "23514";

/// Turns a violation of a constraint on the target into its consequence; other errors stay as they are.
fn explain(error: RemoteError, plan: &Plan, table: &SplitTable, mode: StepMode) -> SplitError {
    let said = error.detail.clone().unwrap_or_default();
    let error = computed::without_values(error, &table.target.name, &table.policy);
    if error.is(NO_PLACE) {
        let is_computed = table.policy.maps.iter().any(|map| map.expression.is_some());
        return match error.constraint {
            // Once a partition for it exists the split continues.
            None if !is_computed => SplitError::Reshaped(no_place(&error, table)),
            None | Some(_) => SplitError::Failed(broken_constraint(&error, table)),
        };
    }
    if !error.is("23505") {
        return error.into();
    }
    let detail = error.detail.clone().unwrap_or_default();
    // If the value is computed, whose row has it is not reported either.
    let is_computed = |name: &&str| {
        let maps = table.policy.maps.iter().filter(|map| map.expression.is_some());
        maps.map(|map| &map.column).any(|column| column == name || ident(column) == *name)
    };
    let key = taken_key(&said).filter(|(columns, _)| !columns.iter().any(is_computed));
    if mode.is_last() {
        // Writers wait: the next step reads whose row it is.
        return SplitError::Aborted(aborted::row_in_the_way(&table.target.name, &error.shard));
    }
    let found = match key.map(|key| find(plan, table, key)) {
        Some(Ok(found)) => found,
        Some(Err(error)) if error.is_transient() => return error,
        Some(Err(_)) | None => CollidingRow::Unknown,
    };
    let whose = match whose(plan, table, &found, &error.shard) {
        Ok(whose) => whose,
        Err(wait) => return wait,
    };
    SplitError::Failed(
        Failure::new(
            SqlState::parse("23505"),
            format!(
                "table {}: a row of the moving keys collides with {whose} on shard \"{}\": {}",
                table.target.name, error.shard, error.message
            ),
        )
        .detail(detail)
        .hint(format!(
            "Make keys unique across shards, for example by adding \"{}\" to them, or move the other row. Then resume the split.",
            table.policy.shard_by
        )),
    )
}

/// Explains an error that does not name its table.
pub fn explain_of(plan: &Plan, table: &SplitTable, mode: StepMode, error: RemoteError) -> SplitError {
    explain(error.of_table(&table.source.name), plan, table, mode)
}

/// Describes in words whose row it is. It is an error if the row goes, or changes, with the steps of another split.
fn whose(
    plan: &Plan,
    table: &SplitTable,
    found: &CollidingRow,
    shard: &str,
) -> std::result::Result<String, SplitError> {
    Ok(match found {
        CollidingRow::Unknown => {
            if let Some(other) = split_of_table(plan, table) {
                // It may be one of that split's rows.
                return Err(SplitError::Retry(format!(
                    "split {other}, which moves rows of table {}: one of them may be the conflicting row on shard \"{}\"",
                    table.target.name, shard
                )));
            }
            "a row whose key is not known".to_owned()
        }
        CollidingRow::WithoutKey => "a row without a key".to_owned(),
        CollidingRow::Of(owner) => {
            let entry = transaction(|| entry_of(&plan.keyspace, owner));
            let is_ours = entry.as_ref().is_some_and(|entry| plan.entries.contains(entry));
            if let Some((other, key)) = entry.and_then(|entry| split_of(plan, entry)) {
                // The row goes, or changes, with the steps of that split.
                return Err(SplitError::Retry(format!(
                    "split {other}, which moves key \"{key}\": a row of it on shard \"{}\" conflicts in table {}",
                    shard, table.target.name
                )));
            }
            if is_ours {
                "another row of the moving keys".to_owned()
            } else {
                format!("a row of key \"{owner}\"")
            }
        }
    })
}

/// Returns the error for a row without a partition. The check has found a partition for each row: this row came later.
fn no_place(error: &RemoteError, table: &SplitTable) -> Failure {
    let text = format!(
        "table {}: a row of the moving keys has no partition on shard \"{}\": {}",
        table.target.name, error.shard, error.message
    );
    Failure::new(SqlState::parse(NO_PLACE), text)
        .hint("Create the missing partition on the target. Then the split continues automatically.")
}

/// Returns the error for a violated constraint. The check has compared the constraints of both sides, and found a
/// partition for each row: this row came later, or is computed.
fn broken_constraint(error: &RemoteError, table: &SplitTable) -> Failure {
    let failure = Failure::new(
        SqlState::parse(NO_PLACE),
        format!(
            "table {}: a row of the moving keys is refused on shard \"{}\": {}",
            table.target.name, error.shard, error.message
        ),
    )
    .hint("Drop the constraint on the target, change the row on the source, or create the missing partition on the target. Then resume the split.");
    match &error.detail {
        Some(detail) => failure.detail(detail.clone()),
        None => failure,
    }
}

/// Parses the columns and values in a unique violation's DETAIL, whose words depend on the server's language: `... (a,
/// b)=(1, x) ...`.
fn taken_key(detail: &str) -> Option<(Vec<&str>, Vec<&str>)> {
    let (before, after) = detail.split_once(")=(")?;
    let columns = &before[before.find('(')? + 1..];
    let values = &after[..after.rfind(')')?];
    let columns: Vec<&str> = columns.split(", ").collect();
    let values: Vec<&str> = if columns.len() == 1 { vec![values] } else { values.split(", ").collect() };
    (columns.len() == values.len()).then_some((columns, values))
}

/// What is known of the row that has the key.
enum CollidingRow {
    /// The DETAIL does not identify the row, because the index is over an expression or the values are ambiguous; or
    /// the row is gone since.
    Unknown,
    WithoutKey,
    Of(String),
}

/// Reads the shard key of the row that has the key, in a session of its own: the step's session is in the middle of a
/// COPY.
fn find(plan: &Plan, table: &SplitTable, key: (Vec<&str>, Vec<&str>)) -> Result<CollidingRow> {
    let (columns, values) = key;
    // The DETAIL contains names and values as the owner of the table and its clients have written them: a name that is
    // no column is not used, and values are parameters.
    let known = |name: &str| {
        table
            .target
            .columns()
            .iter()
            .map(|column| ident(&column.name))
            .find(|quoted| quoted == name || quoted.trim_matches('"') == name)
    };
    let same = columns
        .iter()
        .enumerate()
        .map(|(n, column)| known(column).map(|column| format!("{column} = ${}", n + 1)))
        .collect::<Option<Vec<String>>>();
    let Some(same) = same else { return Ok(CollidingRow::Unknown) };
    let values: Vec<Option<&str>> = values.into_iter().map(Some).collect();
    let mut session = session::open_mover(plan, Side::Target, "collision")?;
    let query = format!(
        "SELECT {}::text FROM {} WHERE {} LIMIT 2",
        ident(&table.policy.shard_by),
        table.target.name,
        same.join(" AND ")
    );
    // The step may hold locks whose release another session waits for, while this one would wait for that session.
    let rows =
        untrusted_code::reading_within(LONGEST_WAIT, &mut session, plan, Side::Target, |session, _| {
            Ok(session.query(&query, &values)?)
        })?;
    // With a partial index there may be two rows, and the DETAIL does not tell which one it is.
    Ok(match rows.rows.as_slice() {
        [row] => match row.first() {
            Some(Some(owner)) => CollidingRow::Of(owner.clone()),
            Some(None) => CollidingRow::WithoutKey,
            None => CollidingRow::Unknown,
        },
        _ => CollidingRow::Unknown,
    })
}

/// Returns the routing entry that a value of a shard-by column belongs to.
fn entry_of(keyspace: &str, value: &str) -> Option<String> {
    let keyspace = keyspace::find(keyspace).ok()?;
    routing::entry_of(&keyspace, &keyspace.key_type().canonical(value))
}

/// Returns another active split that moves the entry.
fn split_of(plan: &Plan, entry: String) -> Option<(i64, String)> {
    transaction(|| in_use::split_of_keys(&plan.keyspace, &[entry]))
        .filter(|(split, _)| *split != plan.id && !waits_for_us(plan.id, *split))
}

/// Whether another split waits for this one. Splits that wait for each other's rows in a ring would wait for ever: the
/// one that finds this reports it to its operator.
fn waits_for_us(split: i64, other: i64) -> bool {
    transaction(|| in_use::waits_for(other, split))
}

/// Returns another active split with rows of the table on the target.
fn split_of_table(plan: &Plan, table: &SplitTable) -> Option<i64> {
    transaction(|| in_use::split_of_table(&plan.keyspace, &table.policy.table_name, &plan.target, plan.id))
        .filter(|other| !waits_for_us(plan.id, *other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_taken_key_is_read_in_any_language() {
        let one = taken_key("Key (id)=(2) already exists.");
        assert_eq!(one, Some((vec!["id"], vec!["2"])));
        let two = taken_key("Schlüssel »(tenant, \"Code\")=(a, b)« existiert bereits.");
        assert_eq!(two, Some((vec!["tenant", "\"Code\""], vec!["a", "b"])));
        let comma = taken_key("Key (name)=(a, b (c)) already exists.");
        assert_eq!(comma, Some((vec!["name"], vec!["a, b (c)"])));
        assert_eq!(taken_key("Key (a, b)=(x, y, z) already exists."), None);
        assert_eq!(taken_key(""), None);
    }
}
