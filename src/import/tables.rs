//! Foreign tables for the tables of a keyspace: they are created if there are none, and changed if shards have other
//! columns now, with the caller's rights and in the caller's transaction.

use super::columns::{self, ImportColumn, TableColumns};
use super::error;
use super::options::Options;
use crate::catalog::caller::Caller;
use crate::catalog::table_policy::{self, TableName};
use crate::catalog::{keyspace, local};
use crate::error::Failure;
use crate::query::run;
use crate::remote::quote::literal;
use crate::server::{settings, sql};
use pgrx::pg_sys;
use pgrx::spi::{Spi, quote_identifier};
use std::time::Duration;

/// The outcome for one table.
pub struct Imported {
    pub table: String,
    pub change: &'static str,
}

pub struct Import<'a> {
    pub keyspace: &'a str,
    /// The schema of the foreign tables.
    pub schema: &'a str,
    /// The shard whose columns they get; `None` for the first active one.
    pub shard: Option<String>,
    pub timeout: Duration,
}

impl Import<'_> {
    pub fn run(&self) -> Result<Vec<Imported>, Failure> {
        let (tables, from) = Caller::as_owner(|_| self.prepare())?;
        let columns = columns::of_shard(&from, self.keyspace, &tables, self.timeout)?;
        // Names of types are those of the server, and a backslash is an ordinary character.
        let plain = [(c"search_path", c"pg_catalog, pg_temp"), (c"standard_conforming_strings", c"on")];
        settings::with(&plain, || {
            if !local::has_schema(self.schema) {
                execute(&format!("CREATE SCHEMA {}", quote_identifier(self.schema)));
            }
            tables.iter().zip(&columns).map(|(table, columns)| self.make(table, columns)).collect()
        })
    }

    fn prepare(&self) -> Result<(Vec<TableName>, String), Failure> {
        keyspace::find(self.keyspace)?;
        let policies = table_policy::list(self.keyspace);
        let tables: Vec<TableName> =
            policies.iter().filter_map(|policy| TableName::parse(&policy.table_name)).collect();
        if tables.is_empty() {
            return Err(table_policy::no_tables(self.keyspace));
        }
        for (number, table) in tables.iter().enumerate() {
            if let Some(other) = tables[..number].iter().find(|other| other.name == table.name) {
                return Err(error::same_name(&other.quoted(), &table.quoted()));
            }
        }
        let named = self.shard.as_ref().map(|shard| vec![shard.clone()]);
        let shards = run::chosen(named.as_deref())?;
        let first = shards.into_iter().next().ok_or_else(error::no_active_shard)?;
        Ok((tables, first.shard_key))
    }

    fn make(&self, table: &TableName, columns: &TableColumns) -> Result<Imported, Failure> {
        let name = format!("{}.{}", quote_identifier(self.schema), quote_identifier(&table.name));
        let change = match found(self.schema, &table.name) {
            None => {
                execute(&self.statement(&name, table, columns));
                "created"
            }
            Some(there) if self.is_ours(there, table)? => {
                let statements = differences(&name, &columns_there(there), &columns.0);
                statements.iter().for_each(|statement| execute(statement));
                if statements.is_empty() { "unchanged" } else { "altered" }
            }
            Some(_) => return Err(error::name_taken(&name)),
        };
        Ok(Imported { table: name, change })
    }

    fn statement(&self, name: &str, table: &TableName, columns: &TableColumns) -> String {
        let list: Vec<String> = columns
            .0
            .iter()
            .map(|column| format!("{} {}", quote_identifier(&column.name), column.kind))
            .collect();
        format!(
            "CREATE FOREIGN TABLE {name} ({}) SERVER shardmaster OPTIONS (keyspace {}, table_name {})",
            list.join(", "),
            literal(self.keyspace),
            literal(&table.quoted())
        )
    }

    /// Whether this is a foreign table of this wrapper for the same table that nobody else owns or inherits from: a
    /// change of its columns would run code of others.
    fn is_ours(&self, relation: pg_sys::Oid, table: &TableName) -> Result<bool, Failure> {
        let is_of_wrapper = sql::exists(
            "SELECT 1 FROM pg_foreign_table f JOIN pg_foreign_server s ON s.oid = f.ftserver
                      JOIN pg_foreign_data_wrapper w ON w.oid = s.srvfdw
                      JOIN pg_class c ON c.oid = f.ftrelid JOIN pg_roles r ON r.oid = c.relowner
              WHERE f.ftrelid = $1 AND w.fdwname = 'shardmaster' AND r.rolname = current_user
                AND NOT EXISTS (SELECT 1 FROM pg_inherits i WHERE c.oid IN (i.inhparent, i.inhrelid))",
            &[relation.into()],
        );
        if !is_of_wrapper {
            return Ok(false);
        }
        // SAFETY: this runs in a transaction, and it is a foreign table.
        let options = unsafe { Options::of(relation) }?;
        Ok(options.keyspace == self.keyspace && options.table == table.quoted())
    }
}

fn execute(statement: &str) {
    if let Err(error) = Spi::run(statement) {
        pgrx::error!("{error}");
    }
}

fn found(schema: &str, name: &str) -> Option<pg_sys::Oid> {
    sql::read_one(
        "SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
          WHERE n.nspname = $1 AND c.relname = $2",
        &[schema.into(), name.into()],
        |row| row.value(1),
    )
}

fn columns_there(relation: pg_sys::Oid) -> Vec<ImportColumn> {
    sql::read(
        "SELECT a.attname::text, format_type(a.atttypid, a.atttypmod),
                (SELECT ' COLLATE pg_catalog.' || quote_ident(c.collname) FROM pg_collation c
                  WHERE c.oid = a.attcollation AND c.collname IN ('C', 'POSIX') AND c.collnamespace = 'pg_catalog'::regnamespace)
           FROM pg_attribute a WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
        &[relation.into()],
        |row| ImportColumn {
            name: row.value(1),
            kind: row.value::<String>(2) + row.get::<String>(3).as_deref().unwrap_or_default(),
        },
    )
}

/// Returns the statements that turn the existing columns into the wanted ones. If a view needs a column that is
/// dropped or changes its type, the server raises an error.
fn differences(table: &str, there: &[ImportColumn], wanted: &[ImportColumn]) -> Vec<String> {
    let of =
        |columns: &[ImportColumn], name: &str| columns.iter().find(|column| column.name == name).cloned();
    let alter = |what: String| format!("ALTER FOREIGN TABLE {table} {what}");
    let mut statements = Vec::new();
    for column in there.iter().filter(|column| of(wanted, &column.name).is_none()) {
        statements.push(alter(format!("DROP COLUMN {}", quote_identifier(&column.name))));
    }
    for column in wanted {
        let name = quote_identifier(&column.name);
        match of(there, &column.name) {
            None => statements.push(alter(format!("ADD COLUMN {name} {}", column.kind))),
            Some(known) if known.kind != column.kind => {
                statements.push(alter(format!("ALTER COLUMN {name} TYPE {}", column.kind)));
            }
            Some(_) => {}
        }
    }
    statements
}
