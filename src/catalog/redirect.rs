//! Rows of `shardmaster.redirect`: the entries of finished splits that their source still refuses. The redirect that
//! an entry belongs to is found by the place of the source, not by its name.

use super::keyspace::{self, Keyspace};
use super::routing::RoutedEntries;
use super::shard::{self, Shard};
use super::split_ledger;
use super::split_state::{IS_ACTIVE, RESTS, end};
use crate::catalog::database_location;
use crate::catalog::database_location::Sameness;
use crate::guc;
use crate::keys::interval::Interval;
use crate::keys::ordered::Ordered;
use crate::keys::scope::Scope;
use crate::server::{sql, wake};
use std::collections::{BTreeMap, BTreeSet};

/// The split that entries of a redirect belong to. A split and its reverse split have one token; splits of another
/// master may have the same numbers.
#[derive(Clone, Copy)]
pub struct RedirectOwner<'a> {
    pub split: i64,
    pub token: &'a str,
}

/// Records the entries of a split at the moment it is finished.
pub fn record(split: i64) {
    sql::write(
        "INSERT INTO shardmaster.redirect (split_id, keyspace, key)
         SELECT k.split_id, k.keyspace, k.key FROM shardmaster.split_key k WHERE k.split_id = $1
         ON CONFLICT DO NOTHING",
        &[split.into()],
    );
    end::redirects(split);
}

/// What happens to entries that a redirect must admit again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then<'a> {
    /// The redirect admits them already.
    Forget,
    /// A worker tells the redirect.
    End,
    /// A worker first asks whether this shard is where the redirect is.
    Ask(&'a str),
    /// They lead to another place by now: what was to end stays.
    Keep,
}

/// Removes entries that a split has brought back to a shard, whose redirect has admitted them.
pub fn came_back(keyspace: &str, names: &[String], shard: &Shard) {
    if !any_stands(keyspace) {
        return;
    }
    // The lock keeps assignments from reading or changing the entries meanwhile.
    let Ok(keyspace) = keyspace::lock(keyspace) else { return };
    take_out(&keyspace, names, shard, Then::Forget);
}

/// Handles entries that are assigned to shards: what refuses them there ends with the commit of
/// this transaction.
pub fn assigned(keyspace: &Keyspace, entries: RoutedEntries<'_>) {
    if !any_stands(&keyspace.name) {
        return;
    }
    for (shard_key, names) in entries.by_shard() {
        let Ok(shard) = shard::by_key(shard_key) else { continue };
        take_out(keyspace, &names, &shard, Then::End);
    }
}

fn any_stands(keyspace: &str) -> bool {
    sql::exists(
        "SELECT 1 FROM shardmaster.split_plan WHERE keyspace = $1 AND redirect_since IS NOT NULL LIMIT 1",
        &[keyspace.into()],
    )
}

/// Returns three lists of splits of a keyspace: those whose redirect is where a shard is; those where it may be, since
/// the shards have two addresses and no server is asked here; and others of whose redirect something is to end.
fn splits_at(keyspace: &str, shard: &Shard) -> [Vec<i64>; 3] {
    let sources: Vec<(i64, String, bool)> = sql::read(
        "SELECT id, source_shard, redirect_ending FROM shardmaster.split_plan WHERE keyspace = $1 AND redirect_since IS NOT NULL",
        &[keyspace.into()],
        |row| (row.value(1), row.value(2), row.value(3)),
    );
    let mut known: BTreeMap<String, Sameness> = BTreeMap::new();
    let (mut there, mut perhaps, mut elsewhere) = (Vec::new(), Vec::new(), Vec::new());
    for (id, source, is_ending) in sources {
        let sameness = known.entry(source).or_insert_with_key(|source| {
            shard::by_key(source)
                .map_or(Sameness::Different, |source| database_location::compare(&source, shard))
        });
        match sameness {
            Sameness::Same => there.push(id),
            Sameness::Unknown => perhaps.push(id),
            Sameness::Different if is_ending => elsewhere.push(id),
            Sameness::Different => {}
        }
    }
    [there, perhaps, elsewhere]
}

/// Stops the refusal of entries that lead to a shard again.
fn take_out(keyspace: &Keyspace, names: &[String], shard: &Shard, then: Then<'_>) {
    let [there, perhaps, elsewhere] = splits_at(&keyspace.name, shard);
    for (splits, then) in [(there, then), (perhaps, Then::Ask(&shard.shard_key)), (elsewhere, Then::Keep)] {
        for split in take_out_of(keyspace, names, splits, then) {
            match then {
                Then::Forget => forget_if_over(split),
                Then::End | Then::Ask(_) => call_worker(split),
                // The worker is called already, and finds nothing.
                Then::Keep => {}
            }
        }
    }
}

fn call_worker(split: i64) {
    end::end_redirect(split);
    wake::split_on_commit(split);
}

/// Returns those of the splits that it concerns.
fn take_out_of(keyspace: &Keyspace, names: &[String], splits: Vec<i64>, then: Then<'_>) -> Vec<i64> {
    if splits.is_empty() {
        return splits;
    }
    match keyspace.strategy.order() {
        None => take_out_named(splits, names, then),
        Some(of) => {
            let back: Vec<Interval> = names.iter().filter_map(|name| Interval::parse(name, of)).collect();
            splits.into_iter().filter(|split| cut_out(*split, &keyspace.name, of, &back, then)).collect()
        }
    }
}

fn take_out_named(splits: Vec<i64>, names: &[String], then: Then<'_>) -> Vec<i64> {
    let (splits, names) = (splits.into(), names.to_vec().into());
    let id = |row: sql::Row<'_>| row.value(1);
    let concerned: Vec<i64> = match then {
        Then::Forget => sql::write_returning(
            "DELETE FROM shardmaster.redirect WHERE split_id = ANY ($1) AND key = ANY ($2) RETURNING split_id",
            &[splits, names],
            id,
        ),
        Then::End => sql::write_returning(
            "UPDATE shardmaster.redirect SET ending = true, asked_of = NULL WHERE split_id = ANY ($1) AND key = ANY ($2) RETURNING split_id",
            &[splits, names],
            id,
        ),
        Then::Ask(shard) => sql::write_returning(
            "UPDATE shardmaster.redirect SET ending = false, asked_of = $3 WHERE split_id = ANY ($1) AND key = ANY ($2) RETURNING split_id",
            &[splits, names, shard.into()],
            id,
        ),
        Then::Keep => sql::write_returning(
            "UPDATE shardmaster.redirect SET ending = false, asked_of = NULL
              WHERE split_id = ANY ($1) AND key = ANY ($2) AND (ending OR asked_of IS NOT NULL) RETURNING split_id",
            &[splits, names],
            id,
        ),
    };
    concerned.into_iter().collect::<BTreeSet<i64>>().into_iter().collect()
}

/// How an entry is marked.
#[derive(Clone, PartialEq, Eq)]
struct Mark {
    ending: bool,
    asked_of: Option<String>,
}

/// Cuts intervals out of the ranges of a split; the rest of each range stays. Whether the split has such ranges.
fn cut_out(split: i64, keyspace: &str, of: Ordered, back: &[Interval], then: Then<'_>) -> bool {
    let rows: Vec<(String, Mark)> = sql::read(
        "SELECT key, ending, asked_of FROM shardmaster.redirect WHERE split_id = $1",
        &[split.into()],
        |row| (row.value(1), Mark { ending: row.value(2), asked_of: row.get(3) }),
    );
    let mut concerned = false;
    for (name, mark) in rows {
        let Some(range) = Interval::parse(&name, of) else { continue };
        let taken: Vec<Interval> = back.iter().filter_map(|part| range.intersection(part, of)).collect();
        let marked = match then {
            Then::Forget => None,
            Then::End => Some(Mark { ending: true, asked_of: None }),
            Then::Ask(shard) => Some(Mark { ending: false, asked_of: Some(shard.to_owned()) }),
            Then::Keep => Some(Mark { ending: false, asked_of: None }),
        };
        if taken.is_empty() || marked.as_ref() == Some(&mark) {
            continue;
        }
        concerned = true;
        let mut left = vec![range];
        for part in &taken {
            left = left.iter().flat_map(|range| range.without(part, of)).collect();
        }
        sql::write(
            "DELETE FROM shardmaster.redirect WHERE split_id = $1 AND key = $2",
            &[split.into(), name.into()],
        );
        insert(split, keyspace, of, &left, mark);
        if let Some(marked) = marked {
            insert(split, keyspace, of, &taken, marked);
        }
    }
    concerned
}

fn insert(split: i64, keyspace: &str, of: Ordered, ranges: &[Interval], mark: Mark) {
    let names: Vec<String> = ranges.iter().map(|range| range.name(of)).collect();
    sql::write(
        "INSERT INTO shardmaster.redirect (split_id, keyspace, key, ending, asked_of) SELECT $1, $2, unnest($3), $4, $5
         ON CONFLICT (split_id, key) DO UPDATE SET ending = EXCLUDED.ending, asked_of = EXCLUDED.asked_of",
        &[split.into(), keyspace.into(), names.into(), mark.ending.into(), mark.asked_of.into()],
    );
}

/// Returns shards that were assigned entries of a split's redirect and that may be where it is.
pub fn asked(split: i64) -> Vec<String> {
    sql::read_column(
        "SELECT DISTINCT asked_of FROM shardmaster.redirect WHERE split_id = $1 AND asked_of IS NOT NULL ORDER BY 1",
        &[split.into()],
    )
}

/// Records whether the shard is where a split's redirect is. If it is, the entries that were assigned to it came back;
/// otherwise their redirect stays.
pub fn answered(split: i64, shard: &str, is_there: bool) {
    sql::write(
        "UPDATE shardmaster.redirect SET ending = ending OR $3, asked_of = NULL WHERE split_id = $1 AND asked_of = $2",
        &[split.into(), shard.into(), is_there.into()],
    );
}

/// The part of a split's redirect that a worker must end.
#[derive(Clone, PartialEq, Eq)]
pub enum ToEnd {
    Nothing,
    /// The redirect is older than shardmaster.redirect_retention.
    All,
    /// These entries were assigned again to the place that they had left.
    Named(Vec<String>),
}

pub fn to_end(split: i64) -> ToEnd {
    let is_expired = sql::read_one(
        &format!("SELECT coalesce({}, false) FROM shardmaster.split_plan p WHERE p.id = $1", is_expired()),
        &[split.into()],
        |row| row.value::<bool>(1),
    );
    if is_expired == Some(true) {
        return ToEnd::All;
    }
    let names: Vec<String> = sql::read_column(
        "SELECT key FROM shardmaster.redirect WHERE split_id = $1 AND ending ORDER BY key",
        &[split.into()],
    );
    if names.is_empty() { ToEnd::Nothing } else { ToEnd::Named(names) }
}

/// Removes entries that have ended. What was marked meanwhile stays marked.
pub fn ended(split: i64, names: &[String]) {
    sql::write(
        "DELETE FROM shardmaster.redirect WHERE split_id = $1 AND key = ANY ($2)",
        &[split.into(), names.to_vec().into()],
    );
    end::redirect_ended(split);
    forget_if_over(split);
}

/// Forgets entries that are to stay but which the shard no longer refuses. `there` is what it refuses of the split's.
/// Returns how many were forgotten.
pub fn forget_all_but(split: i64, there: Option<&Scope>) -> usize {
    let stay: Vec<String> = sql::read_column(
        "SELECT key FROM shardmaster.redirect WHERE split_id = $1 AND NOT ending AND asked_of IS NULL",
        &[split.into()],
    );
    // On the shard, values of char(n) have lost their trailing blanks.
    let without_blanks = |name: &str| name.trim_end_matches(' ').to_owned();
    let named: BTreeSet<String> = match there {
        Some(Scope::Keys(names) | Scope::Buckets { buckets: names, .. }) => {
            names.iter().map(|name| without_blanks(name)).collect()
        }
        Some(Scope::Ranges { .. }) | None => BTreeSet::new(),
    };
    let is_there = |name: &String| match there {
        None => false,
        Some(Scope::Keys(_) | Scope::Buckets { .. }) => named.contains(&without_blanks(name)),
        Some(Scope::Ranges { of, ranges }) => Interval::parse(name, *of)
            .is_none_or(|entry| ranges.iter().any(|range| range.intersection(&entry, *of).is_some())),
    };
    let gone: Vec<String> = stay.into_iter().filter(|name| !is_there(name)).collect();
    if !gone.is_empty() {
        ended(split, &gone);
    }
    gone.len()
}

/// Removes all entries of a split's redirect, which has ended.
pub fn all_ended(split: i64) {
    sql::write("DELETE FROM shardmaster.redirect WHERE split_id = $1", &[split.into()]);
    forget_if_over(split);
}

fn forget_if_over(split: i64) {
    if end::redirect_is_over(split) {
        split_ledger::removed(split, None);
    }
}

/// Returns the sources of finished splits that refuse something.
pub fn shards() -> Vec<String> {
    let query = "SELECT DISTINCT p.source_shard FROM shardmaster.split_plan p
                  WHERE p.redirect_since IS NOT NULL AND EXISTS (SELECT 1 FROM shardmaster.redirect r WHERE r.split_id = p.id)
                  ORDER BY 1";
    sql::read_column(query, &[])
}

/// Returns the splits with a redirect on a shard.
pub fn splits_of_shard(shard_key: &str) -> Vec<i64> {
    sql::read_column(
        "SELECT id FROM shardmaster.split_plan WHERE source_shard = $1 AND redirect_since IS NOT NULL ORDER BY id",
        &[shard_key.into()],
    )
}

/// Returns the splits with a redirect on a shard, each with its beginning.
pub fn since_of_shard(shard_key: &str) -> Vec<(i64, String)> {
    sql::read(
        "SELECT id, pg_catalog.date_trunc('second', redirect_since)::text FROM shardmaster.split_plan
          WHERE source_shard = $1 AND redirect_since IS NOT NULL ORDER BY id",
        &[shard_key.into()],
        |row| (row.value(1), row.value(2)),
    )
}

/// Returns the splits with a redirect that a table's triggers read, whatever its entry is by then.
pub fn splits_of_table(keyspace: &str, table: &str) -> Vec<i64> {
    sql::read_column(
        "SELECT p.id FROM shardmaster.split_plan p JOIN shardmaster.split_table t ON t.split_id = p.id
          WHERE p.keyspace = $1 AND t.table_name = $2 AND p.redirect_since IS NOT NULL ORDER BY p.id",
        &[keyspace.into(), table.into()],
    )
}

/// Returns the shard that refuses keys of a split for a reason that this master knows. A split that the master has
/// lost may have been the reverse split of one that it has.
pub fn known_at(by: RedirectOwner<'_>) -> Option<String> {
    sql::read_one(
        &format!(
            "SELECT source_shard FROM shardmaster.split_plan
              WHERE token = $1 AND (redirect_since IS NOT NULL OR {IS_ACTIVE}) AND NOT {RESTS}
              ORDER BY id = $2 DESC, id DESC LIMIT 1"
        ),
        &[by.token.into(), by.split.into()],
        |row| row.value(1),
    )
}

fn is_expired() -> String {
    guc::redirect_retention().map_or("false".to_owned(), |retention| {
        format!("p.redirect_since <= pg_catalog.clock_timestamp() - interval '{} s'", retention.as_secs())
    })
}

/// SQL condition: a worker has to end something of a finished plan `p`. A shard that was unreachable is asked again
/// after a pause that grows with each attempt, so that others do not wait behind one that does not return.
pub fn is_due() -> String {
    format!(
        "coalesce(p.finished_at IS NOT NULL AND (p.redirect_ending AND p.redirect_since IS NOT NULL OR {})
             AND coalesce(p.watched_at <= pg_catalog.clock_timestamp()
                                           - interval '10 s' * least(greatest(p.attempts, 1), 12), true), false)",
        is_expired()
    )
}
