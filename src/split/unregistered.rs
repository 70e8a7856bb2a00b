//! Tables of the source that are in no keyspace and seem to hold rows of its keys: a split would leave them behind
//! silently. It asks for each of them to be registered: as sharded, or as one whose rows have no key.

use crate::agent::catalogs;
use crate::agent::error::{Result, SplitError};
use crate::agent::session::Side;
use crate::agent::table_names::TableNames;
use crate::catalog::shard::{Shard, schemas_of_others};
use crate::catalog::split::Plan;
use crate::catalog::table_policy::{self, OtherTable};
use crate::error::SqlState;
use crate::remote::Connection;
use crate::remote::quote::{ident_as_needed, literal, qualified_as_needed, text_array};
use crate::server::txn::in_one;

const UNREGISTERED: &str = include_str!("../../sql/check/unregistered.sql");

/// A table in no keyspace.
pub struct Unregistered {
    /// The name, qualified and quoted.
    pub name: String,
    /// The name as an argument of shard_table_add().
    table_name: String,
    /// A column with the name of the keyspace's shard-by column.
    column: Option<String>,
    /// A table that it references, which leads to one of the keyspace.
    references: Option<String>,
    /// It references a table of the keyspace directly.
    pub is_direct: bool,
}

impl Unregistered {
    pub fn text(&self) -> String {
        let Unregistered { name, column, references, .. } = self;
        match (column, references) {
            (Some(column), _) => {
                format!(
                    "{name} is in no keyspace, and has a column \"{column}\": its rows would be left behind"
                )
            }
            (None, Some(references)) => format!(
                "{name} is in no keyspace, and references {references}, whose rows move: its rows would be left behind"
            ),
            (None, None) => format!("{name} is in no keyspace: its rows would be left behind"),
        }
    }

    /// Returns the hint for an operator who has not begun the split.
    pub fn hint(&self, keyspace: &str) -> String {
        let [table, keyspace] = [&self.table_name, keyspace].map(literal);
        let stays = format!("SELECT shard_table_add({table}, NULL, {keyspace}, policy => 'global')");
        match &self.column {
            Some(column) => format!(
                "SELECT shard_table_add({table}, {}, {keyspace}) makes its rows move with their keys. If they belong to no key, {stays} leaves them where they are.",
                literal(column)
            ),
            None => format!(
                "Give it the shard-by column, for example with shard_table_derive(), and add it with shard_table_add(), so that its rows move with their keys. If they belong to no key, {stays} leaves them where they are."
            ),
        }
    }
}

/// Returns those of a side, by the tables that are registered now.
pub fn find(connection: &mut Connection, plan: &Plan, side: Side) -> Result<Vec<Unregistered>> {
    let shard = side.shard(plan);
    let [schemas, names, columns] = TableNames::keyed_lists(plan, side);
    let ((others, keyless), of_others) = in_one(|| (registered(plan, shard), schemas_of_others(shard)));
    let known = others.into_iter().map(|table| (table.schema, table.name));
    let (known_schemas, known_names): (Vec<String>, Vec<String>) = known.chain(keyless).unzip();
    let [known_schemas, known_names, of_others] =
        [known_schemas, known_names, of_others].map(|list| text_array(&list));
    let lists = [schemas, names, columns, known_schemas, known_names, of_others];
    let rows = connection.query(UNREGISTERED, &catalogs::given(&lists))?;
    Ok(rows.rows.iter().map(|row| from_row(&shard.namespace, row)).collect())
}

/// Returns the tables that policies name apart from the plan's: those of other keyspaces, and by schema and name on a
/// shard those of this one that do not move. To be called in a transaction.
pub fn registered(plan: &Plan, shard: &Shard) -> (Vec<OtherTable>, Vec<(String, String)>) {
    let shards = [plan.source.shard_key.as_str(), plan.target.shard_key.as_str()];
    let others = table_policy::of_other_keyspaces(&plan.keyspace, shards);
    let keyless = table_policy::keyless(&plan.keyspace).into_iter().map(|table| {
        let schema = table.name.schema.unwrap_or_else(|| shard.namespace.clone());
        (schema, table.name.name)
    });
    (others, keyless.collect())
}

fn from_row(namespace: &str, row: &[Option<String>]) -> Unregistered {
    let cell = |n: usize| row.get(n).cloned().flatten();
    let (schema, name) = (cell(1).unwrap_or_default(), cell(2).unwrap_or_default());
    let table_name =
        if schema == namespace { ident_as_needed(&name) } else { qualified_as_needed(&schema, &name) };
    Unregistered {
        name: cell(0).unwrap_or_default(),
        table_name,
        column: cell(3),
        references: cell(4),
        is_direct: cell(5).as_deref() == Some("t"),
    }
}

/// Refuses tables that were added since the check, before the cutover of a running split decides, whose tables do not
/// change.
pub fn require_none_before_cutover(connection: &mut Connection, plan: &Plan) -> Result<()> {
    require_none(find(connection, plan, Side::Source)?, plan, "shard_split_cutover")
}

/// Refuses such tables before anything is deleted. A table that references one of the keyspace directly is checked by
/// its rows.
pub fn require_none_before_finish(connection: &mut Connection, plan: &Plan) -> Result<()> {
    let mut found = find(connection, plan, Side::Source)?;
    found.retain(|table| table.column.is_some() || !table.is_direct);
    require_none(found, plan, "shard_split_finish")
}

/// `then`: the call that continues.
fn require_none(found: Vec<Unregistered>, plan: &Plan, then: &str) -> Result<()> {
    let Some(first) = found.first() else { return Ok(()) };
    let more = match found.len() {
        1 => String::new(),
        n => format!(" (and {} more)", n - 1),
    };
    let (table, keyspace) = (literal(&first.table_name), literal(&plan.keyspace));
    Err(SplitError::failed(
        SqlState::NOT_IN_STATE,
        format!("shard \"{}\": {}{more}", plan.source.shard_key, first.text()),
        format!(
            "If its rows belong to no key: SELECT shard_table_add({table}, NULL, {keyspace}, policy => 'global'), then SELECT {then}({}). Otherwise take the split back, add the table as sharded and move it again.",
            plan.id
        ),
    ))
}
