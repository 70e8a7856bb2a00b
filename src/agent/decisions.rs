//! What a shard knows of decided cutovers: from the states of its sides, from its redirects, and from its permanent
//! notes: the last decision of each keyspace that it took part in, and those before it, of any shards. A decision is
//! identified by a split's number and token together: a version alone does not suffice, since a restored master
//! reaches it again.

use super::error::{Result, SplitError};
use super::session::Side;
use super::state::key_list::{self, KeyList};
use super::state::side::SideState;
use super::state::{self, LONGEST, MANY, decision, is_gone};
use crate::agent::state::moved_keys;
use crate::catalog::outdated;
use crate::catalog::redirect::RedirectOwner;
use crate::catalog::shard::Shard;
use crate::catalog::shard_decision::{self, Decision};
use crate::clean;
use crate::error::SqlState;
use crate::keys::scope::{Scope, ScopeEntries};
use crate::keys::strategy::Strategy;
use crate::remote::Connection;
use crate::remote::quote::literal;
use crate::server::txn;
use pgrx::pg_sys;
use std::collections::BTreeMap;

/// The records by which a shard knows a decision: the redirect of what has left it, the state of a side, the permanent
/// note.
const REDIRECT: &str = "redirect";
const SIDE: &str = "side";
pub const NOTE: &str = "note";
/// The record of decisions before that one, as a master has told the shard.
pub const EARLIER: &str = "earlier";

/// The side of a decision that a shard was told of and took no part in.
const NEITHER: &str = "neither";

/// Where the keys of a decision are read.
enum DecisionKeys {
    Side(Strategy),
    Left(KeyList),
    Noted,
    Earlier,
}

/// Returns the decisions that the shard knows and this master does not, each once, with their keys.
pub fn unknown(connection: &mut Connection, shard: &Shard) -> Result<Vec<Decision>> {
    match read_unknown(connection, shard) {
        // The last keys of a redirect, or a side, were removed by another session just now.
        Err(SplitError::Remote(error)) if is_gone(&error) => read_unknown(connection, shard),
        unknown => unknown,
    }
}

fn read_unknown(connection: &mut Connection, shard: &Shard) -> Result<Vec<Decision>> {
    let mut unknown: Vec<Decision> = Vec::new();
    for (mut decision, keys) in unknown_heads(connection, shard)? {
        decision.keys = match keys {
            Some(DecisionKeys::Side(of)) => Some(of_scope(connection, &decision, of)?),
            Some(DecisionKeys::Left(redirect)) => {
                let by = RedirectOwner { split: decision.split_id, token: &decision.token };
                Some(names(&moved_keys::of_split(connection, &redirect, by)?.0))
            }
            Some(DecisionKeys::Noted) => decision::keys(connection, &shard.namespace, &decision.keyspace)?,
            Some(DecisionKeys::Earlier) => {
                let Decision { keyspace, split_id, token, .. } = &decision;
                decision::earlier_keys(connection, &shard.namespace, keyspace, *split_id, token)?
            }
            None => None,
        };
        unknown.push(decision);
    }
    Ok(unknown)
}

/// Refuses a shard that knows a decision of a split of which this master has no plan that has begun. The decision is
/// stored: from then on the keyspace is closed to writers, whichever session has asked.
pub fn require_known(connection: &mut Connection, shard: &Shard) -> Result<()> {
    let heads = unknown_heads(connection, shard)?;
    let lost = heads.iter().map(|(decision, _)| decision);
    let Some(lost) = lost.into_iter().find(|d| !txn::in_one(|| shard_decision::is_of_begun_plan(d))) else {
        return Ok(());
    };
    let said = format!(
        "shard \"{}\" records that {}, and this master does not know it",
        shard.shard_key,
        lost.told()
    );
    let unknown = unknown(connection, shard)?;
    txn::in_one(|| keep(shard, &unknown));
    Err(SplitError::failed(SqlState::NOT_IN_STATE, said, outdated::ADOPT))
}

/// Stores unknown decisions, if writes are possible.
pub fn keep(shard: &Shard, unknown: &[Decision]) {
    // SAFETY: these read the state of the server and of the transaction.
    let is_writable = unsafe { !pg_sys::RecoveryInProgress() && !pg_sys::XactReadOnly };
    if is_writable && shard_decision::is_here() {
        shard_decision::store(&shard.shard_key, unknown);
    }
}

/// Returns unknown decisions without their keys. If a shard knows one from several records, the first of them is used
/// to read the keys.
fn unknown_heads(
    connection: &mut Connection,
    shard: &Shard,
) -> Result<Vec<(Decision, Option<DecisionKeys>)>> {
    let mut all: Vec<(Decision, Option<DecisionKeys>)> = of_redirects(connection, shard)?;
    all.extend(of_sides(connection, shard)?);
    all.extend(noted(connection, shard)?);
    all.extend(earlier(connection, shard)?);
    let heads: Vec<&Decision> = all.iter().map(|(decision, _)| decision).collect();
    let known = txn::in_one(|| shard_decision::known_of(&heads));
    let mut unknown: Vec<(Decision, Option<DecisionKeys>)> = Vec::new();
    for ((decision, keys), _) in all.into_iter().zip(known).filter(|(_, known)| !known) {
        match unknown.iter_mut().find(|(other, _)| other.is_of_same_split(&decision)) {
            // A side that a finish has left has no keys, but the note may have them.
            Some((known, known_keys)) => {
                known.learn_keyspace(&decision);
                if known_keys.is_none() {
                    known.key_count = known.key_count.max(decision.key_count);
                    *known_keys = keys;
                }
            }
            None => unknown.push((decision, keys)),
        }
    }
    Ok(unknown)
}

fn names(scope: &Scope) -> Vec<String> {
    match scope.entries() {
        ScopeEntries::Named(names) => names.to_vec(),
        ScopeEntries::Ranges(of, ranges) => ranges.iter().map(|range| range.name(of)).collect(),
    }
}

/// Returns the decisions of what its redirects still refuse.
fn of_redirects(connection: &mut Connection, shard: &Shard) -> Result<Vec<(Decision, Option<DecisionKeys>)>> {
    let mut found = Vec::new();
    for redirect in key_list::redirects(connection)?.into_iter().filter(|r| r.namespace == shard.namespace) {
        for moved in moved_keys::decisions(connection, &redirect)? {
            let decision = Decision {
                keyspace: clean::message(&redirect.keyspace),
                split_id: moved.split,
                token: moved.token,
                version: moved.version,
                from_shard: shard.shard_key.clone(),
                to_shard: moved.to_shard,
                side: Side::Source.as_str().to_owned(),
                said_by: REDIRECT.to_owned(),
                entries: redirect.entries.entries(),
                ..Decision::default()
            };
            found.push((decision, Some(DecisionKeys::Left(redirect.clone()))));
        }
    }
    Ok(found)
}

/// Returns the decisions of the sides that have moved, opened, or been left.
fn of_sides(connection: &mut Connection, shard: &Shard) -> Result<Vec<(Decision, Option<DecisionKeys>)>> {
    let decided =
        [SideState::Moved, SideState::Open, SideState::Left].map(|state| literal(state.as_str())).join(", ");
    let rows = state::ask(
        connection,
        "side",
        &format!(
            "SELECT left(keyspace, {LONGEST}), split_id, left(token, {LONGEST}), side, version, left(other_shard, {LONGEST}),
                    left(entries, {LONGEST}), state
               FROM shardmaster_agent.side
              WHERE namespace = $1 AND state IN ({decided}) AND version IS NOT NULL ORDER BY version DESC LIMIT {MANY}"
        ),
        &[Some(&shard.namespace)],
    )?;
    let read = |row: Vec<Option<String>>| {
        let [keyspace, split, token, side, version, other, entries, state] = <[_; 8]>::try_from(row).ok()?;
        let side = Side::named(&side?);
        let decision = of_side(
            shard,
            side,
            &clean::message(&other?),
            Decision {
                keyspace: clean::message(&keyspace?),
                split_id: split?.parse().ok()?,
                token: clean::message(&token?),
                version: version?.parse().ok()?,
                said_by: SIDE.to_owned(),
                entries: clean::message(&entries?),
                ..Decision::default()
            },
        );
        // After a finish only the note contains the moved keys.
        let has_scope = state? != SideState::Left.as_str();
        let keys = Strategy::of_entries(&decision.entries).filter(|_| has_scope).map(DecisionKeys::Side);
        Some((decision, keys))
    };
    Ok(rows.rows.into_iter().filter_map(read).collect())
}

fn of_side(shard: &Shard, side: Side, other: &str, decision: Decision) -> Decision {
    let own = shard.shard_key.clone();
    let (from_shard, to_shard) = match side {
        Side::Source => (own, other.to_owned()),
        Side::Target => (other.to_owned(), own),
    };
    Decision { from_shard, to_shard, side: side.as_str().to_owned(), ..decision }
}

/// Returns what the scope of a side still has: keys that were moved back or moved on are no longer in it.
fn of_scope(connection: &mut Connection, decision: &Decision, of: Strategy) -> Result<Vec<String>> {
    let side = Side::named(&decision.side);
    Ok(names(&state::scope::of_side(connection, decision.split_id, side, of)?))
}

/// Returns the permanent notes.
fn noted(connection: &mut Connection, shard: &Shard) -> Result<Vec<(Decision, Option<DecisionKeys>)>> {
    let noted = decision::all(connection, &shard.namespace)?;
    let decision = |noted: decision::Noted| {
        let decision::Noted { side, other, decision } = noted;
        let decision = Decision { said_by: NOTE.to_owned(), ..decision };
        (of_side(shard, side, &other, decision), Some(DecisionKeys::Noted))
    };
    Ok(noted.into_iter().map(decision).collect())
}

/// Returns what the shard was told of earlier decisions, which may be of other shards.
fn earlier(connection: &mut Connection, shard: &Shard) -> Result<Vec<(Decision, Option<DecisionKeys>)>> {
    let told = decision::earlier(connection, &shard.namespace)?;
    let decision = |told: Decision| {
        let own = &shard.shard_key;
        let side = if told.from_shard == *own {
            Side::Source.as_str()
        } else if told.to_shard == *own {
            Side::Target.as_str()
        } else {
            NEITHER
        };
        let decision = Decision { side: side.to_owned(), said_by: EARLIER.to_owned(), ..told };
        (decision, Some(DecisionKeys::Earlier))
    };
    Ok(told.into_iter().map(decision).collect())
}

/// Returns the last version of each keyspace in which the shard knows that it took part.
pub fn last_versions(connection: &mut Connection, shard: &Shard) -> Result<BTreeMap<String, i64>> {
    let noted = decision::all(connection, &shard.namespace)?;
    Ok(noted.into_iter().map(|noted| (noted.decision.keyspace, noted.decision.version)).collect())
}
