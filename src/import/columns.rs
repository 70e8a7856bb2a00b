//! The columns of a shard's tables, as this server can have them: with each type that is certain to be alike on both,
//! and otherwise as texts. Of a shard's answers, only names become part of a statement, in quotes.

use super::error;
use crate::catalog::table_policy::TableName;
use crate::error::Failure;
use crate::query::between::Hidden;
use crate::query::run::{Query, QueryEvent, Statement};
use crate::remote::fan_out::ShardRow;
use crate::remote::template::{fill, texts};
use crate::server::sql;
use pgrx::spi::quote_identifier;
use std::time::Duration;

/// The columns of one table.
pub struct TableColumns(pub Vec<ImportColumn>);

#[derive(Clone, PartialEq, Eq)]
pub struct ImportColumn {
    pub name: String,
    /// The type in SQL, with its collation.
    pub kind: String,
}

/// The greatest length of a name of a shard, and the greatest number of columns of a table.
const NAME: usize = 63;
const MOST: usize = 1600;

/// Returns the columns of tables as one shard has them, in their order.
pub fn of_shard(
    shard: &str,
    keyspace: &str,
    tables: &[TableName],
    timeout: Duration,
) -> Result<Vec<TableColumns>, Failure> {
    let statement = |namespace: &str, _: &[&Hidden]| {
        let schemas = tables.iter().map(|table| table.schema.clone().unwrap_or_else(|| namespace.to_owned()));
        let names = tables.iter().map(|table| table.name.clone());
        let places = [("schemas", texts(schemas)), ("names", texts(names))];
        fill(include_str!("../../sql/import/columns.sql"), &places)
    };
    let mut running = Query {
        statement: Statement::Made(&statement),
        select: "*",
        then: "",
        keyspace,
        first_schema: None,
        shards: Some(&[shard.to_owned()]),
        timeout,
        reports: false,
        whole: false,
    }
    .begin()?;
    let mut found: Vec<Vec<ImportColumn>> = tables.iter().map(|_| Vec::new()).collect();
    while let Some(event) = running.next() {
        let row = match event {
            QueryEvent::Row(_, row) => row,
            QueryEvent::Failed(_, failure) => return Err(failure),
        };
        let read = of_row(&row).and_then(|(number, column)| Some((found.get_mut(number)?, column)));
        let Some((columns, column)) = read.filter(|(columns, _)| columns.len() < MOST) else {
            return Err(error::unreadable(shard));
        };
        columns.push(column);
    }
    for (table, columns) in tables.iter().zip(&found) {
        if columns.is_empty() {
            return Err(error::not_on_shard(shard, &table.quoted()));
        }
    }
    Ok(found.into_iter().map(TableColumns).collect())
}

fn of_row(row: &ShardRow) -> Option<(usize, ImportColumn)> {
    let text = |column| row.value(column).map(|value| value.to_string_lossy().into_owned());
    let number = text(0)?.parse::<usize>().ok()?.checked_sub(1)?;
    let name = text(1).filter(|name| !name.is_empty() && name.len() <= NAME)?;
    let kind = text(2).and_then(|number| number.parse().ok());
    let modifier = text(3).and_then(|modifier| modifier.parse().ok()).unwrap_or(-1);
    let collation = text(4);
    Some((number, ImportColumn { name, kind: kind_of(kind, modifier, collation.as_deref()) }))
}

/// Returns the type in SQL. It uses no operator of the caller's. A type that is built into the server has the same
/// number everywhere; one that only a newer server has is unknown here.
fn kind_of(number: Option<u32>, modifier: i32, collation: Option<&str>) -> String {
    let known = number.filter(|number| *number < pgrx::pg_sys::FirstGenbkiObjectId).and_then(|number| {
        sql::read_one(
            "SELECT pg_catalog.format_type(oid, $2), typcollation OPERATOR(pg_catalog.<>) 0 FROM pg_catalog.pg_type
              WHERE oid OPERATOR(pg_catalog.=) $1 AND typtype OPERATOR(pg_catalog.=) ANY ('{b,r,m}'::pg_catalog.\"char\"[])
                AND typisdefined",
            &[pgrx::pg_sys::Oid::from(number).into(), modifier.into()],
            |row| (row.value::<String>(1), row.value::<bool>(2)),
        )
    });
    let (kind, is_text) = known.unwrap_or_else(|| ("text".to_owned(), true));
    match collation.filter(|_| is_text) {
        Some(collation @ ("C" | "POSIX")) => {
            format!("{kind} COLLATE pg_catalog.{}", quote_identifier(collation))
        }
        _ => kind,
    }
}
