//! Sequences from which a keyspace's clients draw by name.

use super::on_primary;
use crate::catalog::caller::Caller;
use crate::catalog::table_policy::TableName;
use crate::catalog::{keyspace, sequence};
use crate::error::{Failure, SqlState, invalid, required};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// SECURITY INVOKER: a caller who names a sequence of the master's own database needs the right to set it.
#[pg_extern(volatile, parallel_unsafe)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_sequence_add(
    sequence: Option<String>,
    keyspace: default!(Option<String>, "'default'"),
) -> Result<(), ErrorReport> {
    on_primary("shard_sequence_add")?;
    let (name, keyspace) = (parse(sequence)?, required(keyspace, "keyspace")?);
    Ok(Caller::as_owner(|caller| {
        let keyspace = keyspace::find(&keyspace)?.name;
        if sequence::insert(&keyspace, &name, caller) {
            Ok(())
        } else {
            Err(Failure::new(
                SqlState::DUPLICATE_OBJECT,
                format!("sequence \"{}\" is already in keyspace \"{keyspace}\"", name.quoted()),
            ))
        }
    })?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_sequence_drop(
    sequence: Option<String>,
    keyspace: default!(Option<String>, "'default'"),
) -> Result<(), ErrorReport> {
    on_primary("shard_sequence_drop")?;
    let (name, keyspace) = (parse(sequence)?, required(keyspace, "keyspace")?);
    let keyspace = keyspace::find(&keyspace).map_err(Failure::from)?.name;
    if sequence::delete(&keyspace, &name) {
        return Ok(());
    }
    Err(Failure::new(
        SqlState::UNDEFINED_OBJECT,
        format!("sequence \"{}\" is not in keyspace \"{keyspace}\"", name.quoted()),
    )
    .hint("SELECT * FROM shard_sequences() lists those that were added.")
    .into())
}

fn parse(sequence: Option<String>) -> Result<TableName, Failure> {
    let text = required(sequence, "sequence")?;
    TableName::parse(&text).ok_or_else(|| {
        invalid("sequence", "it has more parts than a schema and a name")
            .hint("Give name or schema.name, quoted as in SQL.")
    })
}

#[pg_extern(volatile, parallel_safe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
#[allow(clippy::type_complexity)]
pub fn shard_sequences(
    keyspace: default!(Option<String>, "'default'"),
) -> Result<TableIterator<'static, (name!(sequence_name, String), name!(added_by, String))>, ErrorReport> {
    let keyspace = keyspace::find(&required(keyspace, "keyspace")?).map_err(Failure::from)?;
    let rows = sequence::of(&keyspace.name).into_iter().map(|named| (named.quoted(), named.named_by));
    Ok(TableIterator::new(rows.collect::<Vec<_>>()))
}

extension_sql_file!(
    "../../sql/comments/sequence.sql",
    name = "comments_sequence",
    requires = [shard_sequence_add, shard_sequence_drop, shard_sequences]
);
