//! Queries to a shard for the pairs that it has rows with.

use crate::agent::error::{Result, SplitError};
use crate::agent::lookup::WatchedColumn;
use crate::catalog::lookup::LookupSource;
use crate::catalog::lookup_entry::LookupPair;
use crate::catalog::shard::{self, Shard};
use crate::error::{Failure, SqlState};
use crate::lookups::columns::ComparedAs;
use crate::lookups::session::LookupSessions;
use crate::remote::Connection;
use crate::remote::quote::{ident, text_array};
use crate::server::txn::transaction;

const TYPES: &str = include_str!("../../sql/lookup/types.sql");

/// Returns which of the pairs a shard has, or None if it has no such table, and so no rows.
pub fn ask(
    sessions: &mut LookupSessions,
    source: &LookupSource,
    shard_key: &str,
    pairs: &[&LookupPair],
) -> Result<Option<Vec<bool>>> {
    let shard = transaction(|| shard::by_key(shard_key)).map_err(Failure::from)?;
    let watched = source.on(&shard);
    let mut found = vec![false; pairs.len()];
    let asked: Vec<NumberedPair<'_>> = pairs.iter().copied().enumerate().collect();
    if !find(sessions, &shard, &watched, &asked, &mut found)? {
        return Ok(None);
    }
    // Rows of transactions that commit without waiting for the disk were seen all the same, so the log is flushed.
    let flush = "BEGIN; SELECT pg_logical_emit_message(true, 'shardmaster', ''); COMMIT";
    sessions.of(&shard)?.run(flush)?;
    sessions.succeeded(shard_key);
    Ok(Some(found))
}

/// A pair, with its number.
type NumberedPair<'a> = (usize, &'a LookupPair);

/// Marks those that have a row. The pairs are halved if the shard's encoding lacks a character of one: no row has that
/// one, and the others are asked for all the same. Returns false if there is no such table.
fn find(
    sessions: &mut LookupSessions,
    shard: &Shard,
    watched: &WatchedColumn,
    asked: &[NumberedPair<'_>],
    found: &mut [bool],
) -> Result<bool> {
    const NO_SUCH_LETTER: &str = "22P05";
    let answer = sessions.reading(shard, watched, |connection| {
        let Some(types) = types(connection, watched)? else { return Ok(None) };
        // Pairs that no row can have are not asked for.
        let possible = asked
            .iter()
            .copied()
            .filter(|(_, pair)| types.key.may_have(&pair.key) && types.by.may_have(&pair.owner));
        let possible: Vec<NumberedPair<'_>> = possible.collect();
        let (keys, owners): (Vec<String>, Vec<String>) =
            possible.iter().map(|(_, pair)| (pair.key.clone(), pair.owner.clone())).unzip();
        let lists = [text_array(&keys), text_array(&owners)];
        match connection.query(&query(watched, &types), &[Some(&lists[0]), Some(&lists[1])]) {
            Err(error) if error.is(NO_SUCH_LETTER) => Ok(Some((possible, None))),
            answer => Ok(Some((possible, Some(answer?)))),
        }
    })?;
    let Some((possible, answer)) = answer else { return Ok(false) };
    let Some(answer) = answer else {
        let (first, second) = possible.split_at(possible.len() / 2);
        return if first.is_empty() {
            Ok(true)
        } else {
            Ok(find(sessions, shard, watched, first, found)?
                && find(sessions, shard, watched, second, found)?)
        };
    };
    for number in answer.rows.iter().flatten().flatten() {
        let place = number.parse::<usize>().ok().and_then(|n| possible.get(n.checked_sub(1)?));
        if let Some(cell) = place.and_then(|(place, _)| found.get_mut(*place)) {
            *cell = true;
        }
    }
    Ok(true)
}

/// How both columns are compared.
struct Types {
    key: ComparedAs,
    by: ComparedAs,
    /// Whether an index leads with the keys.
    has_index: bool,
}

/// Returns a query for those of the pairs that exist, by their numbers. A key has few rows, while an owner may have
/// all of them, whatever the planner assumes: if there is an index of keys, the owner is compared in a way that no
/// index serves.
fn query(watched: &WatchedColumn, types: &Types) -> String {
    let by = format!("t.{}", ident(&watched.shard_by));
    let is_owners = if types.has_index {
        format!("NOT {by} IS DISTINCT FROM w.owner::{}", types.by.cast)
    } else {
        format!("{by} = w.owner::{}", types.by.cast)
    };
    format!(
        "SELECT w.n FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (key, owner, n)
          WHERE EXISTS (SELECT 1 FROM {} t WHERE t.{} = w.key::{} AND {is_owners})",
        watched.qualified(),
        ident(&watched.column),
        types.key.cast
    )
}

/// Returns how both columns are compared, or None if there is no such table.
fn types(connection: &mut Connection, watched: &WatchedColumn) -> Result<Option<Types>> {
    let parameters = [watched.qualified(), watched.column.clone(), watched.shard_by.clone()];
    let parameters: Vec<Option<&str>> = parameters.iter().map(|text| Some(text.as_str())).collect();
    let answer = connection.query(TYPES, &parameters)?;
    let Some(row) = answer.rows.first() else { return Ok(None) };
    let compared = |name: Option<&Option<String>>| ComparedAs::by_name(name?.as_deref()?);
    match (compared(row.first()), compared(row.get(1))) {
        (Some(key), Some(by)) => {
            let has_index = row.get(2).is_some_and(|answer| answer.as_deref() == Some("t"));
            Ok(Some(Types { key, by, has_index }))
        }
        _ => Err(SplitError::failed(
            SqlState::UNSUPPORTED,
            format!(
                "table {} of shard \"{}\" cannot have a lookup index as it is",
                watched.qualified(),
                connection.shard()
            ),
            "Values of its column or its shard-by column cannot be found by their type. Change the type there, or remove the table with shard_table_drop().",
        )),
    }
}
