//! Compares the guards on a shard with those that this master knows, for `shard_check()`.

use crate::agent::check::{ShardFinding, found};
use crate::agent::error::{Result, SplitError};
use crate::agent::session;
use crate::agent::state::is_gone;
use crate::agent::state::key_list::{self, KeyList};
use crate::catalog::database_location::Sameness;
use crate::catalog::guard_record;
use crate::catalog::guard_record::GuardRecord;
use crate::catalog::shard::{self, Shard};
use crate::catalog::table_policy::TableName;
use crate::clean;
use crate::error::Failure;
use crate::remote::{Connection, number};
use crate::split::table::triggers;
use crate::words::{counted, listed};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A person waits for the result at a terminal.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

const UNKNOWN: &str = "shard_guard_install() lists there what this master routes to it, and shard_cleanup() removes the guard. Until then keys that are not on its list are refused.";
const ASLEEP: &str = "Run ALTER TABLE ... ENABLE ALWAYS TRIGGER for each. Then shard_misplaced() finds the rows they let pass, and shard_split_diagnose() those of an open split.";
const MISSING: &str = "it does not exist";
const AGAIN: &str = "Call shard_guard_install() again, or shard_guard_remove().";

/// Returns a finding for each guard, and none if the shard does not answer.
pub fn run(shard_key: &str) -> std::result::Result<Vec<ShardFinding>, Failure> {
    let shard = shard::by_key(shard_key)?;
    let Ok(mut session) = session::open_within(&shard, "check", LONGEST_WAIT) else { return Ok(Vec::new()) };
    session.set_deadline(Some(Instant::now() + LONGEST_WAIT));
    let mut all = look(&mut session, &shard).map_err(SplitError::into_failure)?;
    all.extend(asleep(&mut session).map_err(SplitError::into_failure)?);
    Ok(all)
}

/// Returns a finding for triggers of splits, guards and others that somebody has disabled: the changes that they
/// should record or refuse pass.
fn asleep(session: &mut Connection) -> Result<Option<ShardFinding>> {
    let answer = session.run(
        "SELECT count(*) OVER (), format('%I on %s', t.tgname, t.tgrelid::regclass) FROM pg_trigger t
          WHERE starts_with(t.tgname, '00_shardmaster') AND t.tgenabled <> 'A' AND NOT t.tgisinternal
          ORDER BY 2 LIMIT 5",
    )?;
    let named: Vec<&str> = answer.rows.iter().filter_map(|row| row.get(1)?.as_deref()).collect();
    let Some(first) = answer.rows.first() else { return Ok(None) };
    let count = number::count(
        session.shard(),
        "the number of triggers",
        first.first().and_then(|cell| cell.as_deref()),
    )?;
    let detail =
        format!("{} do not always fire: {}", counted(count, "trigger", "triggers"), named.join(", "));
    Ok(Some(found("triggers", false, detail, ASLEEP)))
}

fn look(session: &mut Connection, shard: &Shard) -> Result<Vec<ShardFinding>> {
    let there: Vec<KeyList> =
        key_list::guards(session)?.into_iter().filter(|guard| guard.namespace == shard.namespace).collect();
    let known = guard_record::keyspaces_of_shard(&shard.shard_key);
    let keyspaces: BTreeSet<String> = there.iter().map(|guard| guard.keyspace.clone()).chain(known).collect();
    let mut all = Vec::new();
    for keyspace in keyspaces {
        let is_it =
            |guard: &GuardRecord| guard.shard_key == shard.shard_key || guard.is_at(shard) == Sameness::Same;
        let known = guard_record::look_of_keyspace(&keyspace).into_iter().find(is_it);
        let there = there.iter().find(|guard| guard.keyspace == keyspace);
        let item = clean::printable(&format!("guard of keyspace \"{keyspace}\""));
        all.push(match (there, known) {
            (Some(_), None) => found(&item, false, "this master does not know it".to_owned(), UNKNOWN),
            (None, Some(_)) => found(&item, false, MISSING.to_owned(), AGAIN),
            (Some(there), Some(known)) => compared(session, shard, &item, there, &known)?,
            // The guard was abandoned, and does not exist.
            (None, None) => continue,
        });
    }
    Ok(all)
}

fn compared(
    session: &mut Connection,
    shard: &Shard,
    item: &str,
    there: &KeyList,
    known: &GuardRecord,
) -> Result<ShardFinding> {
    let rows = match session.run(&format!("SELECT count(*) FROM {}", there.table())) {
        // Another session has removed it just now.
        Err(error) if is_gone(&error) => return Ok(found(item, false, MISSING.to_owned(), AGAIN)),
        rows => rows?,
    };
    let entries = number::count(session.shard(), "the number of entries on a guard's list", rows.scalar())?;
    let guarded: BTreeSet<(String, String)> = triggers::guarded_tables(session, there)?.into_iter().collect();
    let named = |table: &&String| TableName::of(table).on(&shard.namespace);
    let (with, without): (Vec<&String>, Vec<&String>) =
        known.tables.iter().partition(|table| guarded.contains(&named(table)));
    let mut detail = format!(
        "{} on its list; tables with its triggers: {}",
        counted(entries, "entry", "entries"),
        listed(&with)
    );
    if !without.is_empty() {
        detail.push_str(&format!("; without: {}", listed(&without)));
    }
    Ok(found(item, without.is_empty() && known.is_whole(), detail, AGAIN))
}
