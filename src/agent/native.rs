//! Capture by a native function, if the source has this extension: what it can capture, how it is made, and its
//! triggers. These have no condition: for a statement of one row, setting up a condition costs more than the function
//! does.

use super::error::Result;
use super::shape::{Column, TableShape};
use super::state::queue;
use super::{SAMPLE, TriggerEvent, WatchedTable, trigger_function, trigger_functions, trigger_prefix};
use crate::agent::session::Side;
use crate::catalog::split::Plan;
use crate::keys::ordered::Ordered;
use crate::keys::scope::Scope;
use crate::native::MOST_BYTES;
use crate::remote::Connection;
use crate::remote::quote::ident;
use crate::remote::template::{fill, number as whole, sql, word};

const NATIVE: &str = include_str!("../../sql/agent/native.sql");
const INSTALLED: &str = include_str!("../../sql/agent/installed_native.sql");
const MADE: &str = include_str!("../../sql/agent/made_native.sql");

/// Whether a shard has the extension that makes such functions, for this session.
pub fn is_installed(connection: &mut Connection) -> Result<bool> {
    let answer = connection.query(INSTALLED, &[Some(env!("CARGO_PKG_VERSION"))])?;
    Ok(answer.is_true())
}

/// Returns the ordinals of a split's tables whose functions are native, which only sources have.
pub fn made(connection: &mut Connection, split: i64, side: Side) -> Result<Vec<i32>> {
    if side == Side::Target {
        return Ok(Vec::new());
    }
    let rows = connection.query(MADE, &[Some(&trigger_functions(split, side))])?;
    Ok(rows.rows.iter().flatten().flatten().filter_map(|ordinal| ordinal.parse().ok()).collect())
}

/// Returns the type that a column's values have for a native function.
fn order(by: &Column) -> Option<Ordered> {
    match by.base.as_str() {
        "smallint" | "integer" | "bigint" => Some(Ordered::BigInt),
        "text" | "character varying" => Some(Ordered::Text),
        "uuid" => Some(Ordered::Uuid),
        _ => None,
    }
}

/// Whether changes of a table can be captured by a native function: equal keys must have equal bytes, and the keys
/// must fit into a session's memory. On the source of a reverse split the mover writes, and only a condition excludes
/// it without a cost for each row.
pub fn suits(plan: &Plan, table: &TableShape, by: &Column) -> bool {
    let bytes = |keys: &[String]| keys.iter().map(|key| key.len().max(16) + 32).sum::<usize>();
    let is_known = match &plan.scope {
        Scope::Keys(keys) => bytes(keys) <= MOST_BYTES,
        Scope::Buckets { of, buckets, .. } => order(by) == Some(*of) && bytes(buckets) <= MOST_BYTES,
        Scope::Ranges { .. } => false,
    };
    let is_plain = |column: &Column| column.collation.is_none() && column.generated.is_none();
    let key: Option<Vec<&Column>> = table.key().iter().map(|name| table.column(name)).collect();
    is_known
        && plan.reverse_of.is_none()
        && order(by).is_some()
        && is_plain(by)
        && key.is_some_and(|key| key.iter().all(|column| is_plain(column) && number(column).is_some()))
        && number(by).is_some()
}

fn number(column: &Column) -> Option<i16> {
    column.attribute().parse().ok()
}

/// Makes the trigger function of a table a native one, if possible.
pub fn function(plan: &Plan, ordinal: i32) -> String {
    fill(
        NATIVE,
        &[
            ("function", word(trigger_function(plan.id, Side::Source, ordinal))),
            ("split", whole(plan.id)),
            ("ordinal", whole(ordinal)),
            ("queue_sizes", sql(queue::sizes(plan))),
            ("sample", whole(SAMPLE)),
            ("sequence", word(queue::sequence(plan.id))),
        ],
    )
}

/// Returns a trigger for rows. Columns are given by their numbers in this table, so that renaming one breaks no
/// writer.
pub fn trigger(plan: &Plan, watched: WatchedTable<'_>, event: TriggerEvent) -> String {
    let WatchedTable { shape, shard_by: by, ordinal, .. } = watched;
    let table = &shape.name;
    let buckets = match &plan.scope {
        Scope::Buckets { count, .. } => count.get(),
        Scope::Keys(_) | Scope::Ranges { .. } => 0,
    };
    let key = shape.key().iter().filter_map(|name| shape.column(name));
    let numbers = std::iter::once(by).chain(key.clone()).filter_map(number);
    let arguments: Vec<String> = numbers.map(|number| format!("'{number}'")).collect();
    let prefix = trigger_prefix(plan.id, Side::Source);
    let name = ident(&super::trigger_name(plan.id, Side::Source, ordinal, event));
    let function = trigger_function(plan.id, Side::Source, ordinal);
    let trigger = format!(
        "CREATE TRIGGER {name} AFTER {} ON {table} FOR EACH ROW
             EXECUTE FUNCTION shardmaster_agent.{function}('{buckets}', {});
         ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name};",
        event.name(),
        arguments.join(", ")
    );
    if event != TriggerEvent::Insert {
        return trigger;
    }
    // This trigger never fires. Its condition keeps these columns from being dropped or changed to another type, as
    // the conditions of other captures do.
    let keeper = ident(&format!("{prefix}c_{ordinal}"));
    let is_null: Vec<String> =
        std::iter::once(by).chain(key).map(|column| format!("NEW.{} IS NULL", ident(&column.name))).collect();
    format!(
        "DROP TRIGGER IF EXISTS {keeper} ON {table};
         CREATE TRIGGER {keeper} AFTER INSERT ON {table} FOR EACH ROW WHEN ({})
             EXECUTE FUNCTION shardmaster_agent.{function}();
         ALTER TABLE {table} DISABLE TRIGGER {keeper};
         {trigger}",
        is_null.join(" AND ")
    )
}
