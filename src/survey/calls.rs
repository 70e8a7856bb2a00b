//! The calls and statements that a survey proposes. Calls of this extension run on the master, all else on the shard.

use super::tables::{SurveyKey, SurveyTable, SurveyUnique, SurveyedDatabase, TenantColumn};
use super::text::sql_name;
use crate::remote::quote::{array_of, literal};

/// The types that a keyspace of a lookup index may have.
const LOOKED_UP: [&str; 7] =
    ["smallint", "integer", "bigint", "numeric", "text", "uuid", "character varying"];

/// Gives each shard numbers of its own.
pub const SPREAD: &str = "SELECT * FROM shard_sequences_spread()";
/// The beginning of a call that gives a table a primary key.
pub const IDENTIFY: &str = "SELECT shard_table_identify(";

pub fn add_sharded(table: &SurveyTable, column: &str) -> String {
    format!("SELECT shard_table_add({}, {})", literal(&table.shown), literal(column))
}

pub fn add_reference(table: &SurveyTable, shard: &str) -> String {
    format!(
        "SELECT shard_table_add({}, NULL, policy => 'reference', origin => {})",
        literal(&table.shown),
        literal(shard)
    )
}

pub fn add_global(table: &SurveyTable) -> String {
    format!("SELECT shard_table_add({}, NULL, policy => 'global')", literal(&table.shown))
}

/// Gives a table the tenant of the table that a key leads to. That one gets it first, if it does not have it. The
/// second call is refused until the first one's job has ended.
pub fn add_column(
    database: &SurveyedDatabase,
    table: &SurveyTable,
    key: &SurveyKey,
    tenant: &TenantColumn,
) -> Option<String> {
    let parent = database.table(key.to?)?;
    let of_parent = parent.column.as_ref().map_or(tenant.name.as_str(), |column| column.name.as_str());
    let through: Vec<String> = key.columns.iter().map(|column| column.from.clone()).collect();
    let value = (of_parent != tenant.name).then_some(of_parent);
    let derive = derive(table, &tenant.name, &through, value, "");
    Some(format!("{derive}; {}", add_sharded(table, &tenant.name)))
}

/// Gives a table a column with the value of the row that a key leads to.
pub fn derive(
    table: &SurveyTable,
    column: &str,
    through: &[String],
    value: Option<&str>,
    keyspace: &str,
) -> String {
    let is_plain = through.iter().all(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
    let through = match is_plain {
        true => format!("{{{}}}", through.join(",")),
        false => array_of(through.iter().map(|name| Some(name.as_str()))),
    };
    let value = value.map_or(String::new(), |value| format!(", value_column => {}", literal(value)));
    format!(
        "SELECT shard_table_derive({}, {}, {}{value}{keyspace})",
        literal(&table.shown),
        literal(column),
        literal(&through)
    )
}

/// Returns the type of a keyspace's keys for a family of types.
pub fn key_type(family: Option<&str>) -> &'static str {
    match family {
        Some("integer") => "bigint",
        Some("numeric") => "numeric",
        Some("uuid") => "uuid",
        _ => "text",
    }
}

fn joined(key: &SurveyKey, to: &str, from: &str) -> String {
    let equal = key
        .columns
        .iter()
        .map(|column| format!("{to}.{} = {from}.{}", sql_name(&column.to), sql_name(&column.from)));
    equal.collect::<Vec<_>>().join(" AND ")
}

/// Makes columns refuse NULL.
pub fn refuse_null<'a>(table: &SurveyTable, columns: impl IntoIterator<Item = &'a str>) -> String {
    let columns: Vec<String> =
        columns.into_iter().map(|column| format!("ALTER COLUMN {} SET NOT NULL", sql_name(column))).collect();
    format!("ALTER TABLE {} {}", table.written(), columns.join(", "))
}

/// Finds rows without a tenant.
pub fn find_null(table: &SurveyTable, column: &str) -> String {
    format!("SELECT * FROM {} WHERE {} IS NULL", table.written(), sql_name(column))
}

/// Finds rows with another tenant than the row at the end of a path.
pub fn find_differing(
    database: &SurveyedDatabase,
    from: usize,
    best: &[usize],
    other: &[usize],
) -> Option<String> {
    let table = database.table(from)?;
    let (first, tenant) = path_joins(database, from, best, "p")?;
    let (second, other) = path_joins(database, from, other, "q")?;
    Some(format!("SELECT t.* FROM {} t{first}{second} WHERE {tenant} <> {other}", table.written()))
}

fn path_joins(
    database: &SurveyedDatabase,
    from: usize,
    path: &[usize],
    name: &str,
) -> Option<(String, String)> {
    let (mut joins, mut before, mut end) = (String::new(), "t".to_owned(), from);
    for (place, key) in path.iter().enumerate() {
        let key = database.keys.get(*key)?;
        let alias = format!("{name}{}", place + 1);
        end = key.to?;
        joins.push_str(&format!(
            " JOIN {} {alias} ON {}",
            database.table(end)?.written(),
            joined(key, &alias, &before)
        ));
        before = alias;
    }
    let column = database.table(end)?.column.as_ref()?;
    Some((joins, format!("{before}.{}", sql_name(&column.name))))
}

/// Drops a foreign key, and finds the rows that it would have refused.
pub fn drop_key(table: &SurveyTable, key: &SurveyKey) -> String {
    let present: Vec<String> =
        key.columns.iter().map(|column| format!("t.{} IS NOT NULL", sql_name(&column.from))).collect();
    format!(
        "ALTER TABLE {name} DROP CONSTRAINT {}; SELECT count(*) FROM {name} t WHERE {} AND NOT EXISTS (SELECT FROM {} p WHERE {})",
        sql_name(&key.name),
        present.join(" AND "),
        key.to_name,
        joined(key, "p", "t"),
        name = table.written()
    )
}

/// Gives a table a primary key.
pub fn add_primary_key(table: &SurveyTable) -> String {
    format!("{IDENTIFY}{})", literal(&table.shown))
}

/// Makes values unique over all shards: one column by a lookup index, others with the tenant.
pub fn make_unique(table: &SurveyTable, key: &SurveyUnique, tenant: &str) -> Option<String> {
    let names: Option<Vec<&str>> = key.columns.iter().map(|column| column.name.as_deref()).collect();
    // An index over expressions, or over some of the rows, is made by a person.
    let names = names.filter(|_| !key.is_partial)?;
    if let ([name], [column]) = (names.as_slice(), key.columns.as_slice())
        && let Some(type_name) = column.type_name.as_deref().filter(|name| LOOKED_UP.contains(name))
    {
        let keyspace = literal(&format!("{}_{name}", table.name));
        let type_name = if type_name == "character varying" { "text" } else { type_name };
        return Some(format!(
            "SELECT shard_keyspace_add({keyspace}, 'lookup', key_type => '{type_name}', of => 'default'); SELECT shard_table_add({}, {}, {keyspace})",
            literal(&table.shown),
            literal(name)
        ));
    }
    let columns: Vec<String> = std::iter::once(tenant).chain(names).map(sql_name).collect();
    let way = if table.is_partitioned { "" } else { "CONCURRENTLY " };
    Some(format!("CREATE UNIQUE INDEX {way}ON {} ({})", table.written(), columns.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::make_unique;
    use crate::survey::tables::{SurveyTable, SurveyUnique, UniqueColumn, ValueSource};

    fn table() -> SurveyTable {
        SurveyTable {
            schema: "public".to_owned(),
            name: "t".to_owned(),
            shown: "t".to_owned(),
            ..SurveyTable::default()
        }
    }

    fn key(columns: &[&str]) -> SurveyUnique {
        let column = |name: &&str| UniqueColumn {
            name: Some((*name).to_owned()),
            plain: Some(true),
            type_name: Some("text".to_owned()),
            source: ValueSource::Client,
        };
        SurveyUnique {
            index: "i".to_owned(),
            is_primary: false,
            is_partial: false,
            columns: columns.iter().map(column).collect(),
        }
    }

    #[test]
    fn one_column_gets_a_lookup_index_and_others_the_tenant() {
        let one = make_unique(&table(), &key(&["a"]), "tenant").unwrap();
        assert!(one.contains("'t_a', 'lookup', key_type => 'text'"));
        let two = make_unique(&table(), &key(&["a", "b"]), "tenant").unwrap();
        assert_eq!(two, "CREATE UNIQUE INDEX CONCURRENTLY ON public.t (tenant, a, b)");
    }
}
