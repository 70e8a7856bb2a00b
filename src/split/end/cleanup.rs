//! Orphans: what splits of a lost master, or of plans that no longer exist, have left on a shard. This runs in the
//! session of the operator.

mod routes;

use super::cleanup::routes::{ShardNames, ShardRoute};
use crate::agent::error::{Result, SplitError};
use crate::agent::state::key_list::{self, KeyList};
use crate::agent::state::side::{self, FoundSide};
use crate::agent::state::{decision, is_gone, master, moved_keys, scope};
use crate::agent::{self, session};
use crate::catalog::database_location::Sameness;
use crate::catalog::guard_record;
use crate::catalog::redirect as stored;
use crate::catalog::redirect::RedirectOwner;
use crate::catalog::shard::{self, Shard};
use crate::catalog::split_ledger;
use crate::catalog::split_state::IS_OVER;
use crate::catalog::{shard_decision, split};
use crate::clean;
use crate::error::{Failure, SqlState};
use crate::remote::Connection;
use crate::server::sql;
use crate::split::install;
use crate::split::plan::copies::{Copies, Is};
use crate::split::redirect::{self, RedirectEnding};

/// The greatest plausible split number: no master has given out a higher one, and as many numbers remain above it.
const HIGHEST: i64 = split::HIGHEST / 2;

/// What was found on a shard and what was done with it.
type Removed = Vec<(String, String)>;

/// Makes sure that the splits of this master get numbers that the shard does not know.
pub fn pass_numbers(connection: &mut Connection, shard: &Shard) -> Result<()> {
    let Some(highest) = highest_number(connection)? else { return Ok(()) };
    if highest > HIGHEST {
        return Err(SplitError::failed(
            SqlState::NOT_IN_STATE,
            format!("shard \"{}\" records split {highest}, which no master has planned", shard.shard_key),
            "Somebody has changed the agent's tables there. Remove what does not belong to a split.",
        ));
    }
    split::number_after(highest);
    Ok(())
}

/// Returns the highest number of a split that the shard knows.
fn highest_number(connection: &mut Connection) -> Result<Option<i64>> {
    let mut highest = side::all(connection)?.into_iter().map(|side| side.id).max();
    for redirect in key_list::redirects(connection)? {
        highest = highest.max(moved_keys::highest_split(connection, &redirect)?);
    }
    Ok(highest.max(decision::highest_split(connection)?))
}

/// Removes every side that no active plan of this master accounts for.
pub fn run(shard_key: &str) -> std::result::Result<Removed, Failure> {
    let shard = shard::by_key(shard_key)?;
    let mut connection = session::open(&shard, "cleanup")?;
    let (removed, kept) = orphans(&mut connection, &shard).map_err(SplitError::into_failure)?;
    split_ledger::close(shard_key, &kept);
    guard_record::forget_left(shard_key);
    // What the shard reports of other shards is its own text.
    Ok(removed
        .into_iter()
        .map(|(object, outcome)| (clean::printable(&object), clean::printable(&outcome)))
        .collect())
}

/// Removes orphans. The agent's schema is dropped with the last split or redirect that a worker ends, which may be
/// just now.
fn orphans(connection: &mut Connection, shard: &Shard) -> Result<(Removed, Vec<i64>)> {
    match remove_orphans(connection, shard) {
        Err(SplitError::Remote(error)) if is_gone(&error) => remove_orphans(connection, shard),
        outcome => outcome,
    }
}

/// Returns what was found, and the splits of which something stays.
fn remove_orphans(connection: &mut Connection, shard: &Shard) -> Result<(Removed, Vec<i64>)> {
    master::check(connection, &split::identity())?;
    let (mut names, mut copies) = (ShardNames::of(shard), Copies::of(shard));
    let (mut removed, mut kept) = (Vec::new(), Vec::new());
    for found in side::all(connection)? {
        let object = format!("{} side of split {}", found.side.as_str(), found.id);
        let accounted = accounted_for(&found);
        let known: Vec<Is> = accounted.iter().map(|there| copies.is(connection, there)).collect();
        let is_copy = !known.is_empty() && known.iter().all(|is| *is == Is::ACopy);
        if !is_copy && !accounted.is_empty() {
            if !known.contains(&Is::It) {
                removed.push((object, may_be(&accounted.join(", "))));
            }
            continue;
        }
        // For a copy, the original refuses clients, and this master knows where the rows are.
        let is_dismissed =
            found.token.as_ref().is_some_and(|token| shard_decision::are_routes_kept(found.id, token));
        let why =
            if is_copy || is_dismissed { None } else { keeps_clients_off(connection, &mut names, &found)? };
        if let Some(why) = why {
            removed.push((object, why));
            kept.push(found.id);
            continue;
        }
        install::drop_side(connection, found.id, found.side)?;
        removed.push((object, "removed".to_owned()));
    }
    for redirect in key_list::redirects(connection)? {
        remove_from_redirect(connection, &mut names, &mut copies, &redirect, &mut removed)?;
    }
    for guard in key_list::guards(connection)? {
        if !is_known(connection, shard, &mut copies, &guard) {
            install::drop_key_guard(connection, &guard)?;
            removed.push((format!("guard of keyspace {}", guard.keyspace), "removed".to_owned()));
        }
    }
    Ok((removed, kept))
}

/// Whether this master tells the guard of new keys there, under any name of the shard, or may do so: if two addresses
/// are perhaps one place, they are not asked. A copy's guard is told nothing.
fn is_known(connection: &mut Connection, shard: &Shard, copies: &mut Copies<'_>, guard: &KeyList) -> bool {
    let there = Shard { namespace: guard.namespace.clone(), ..shard.clone() };
    let known = guard_record::of_keyspace(&guard.keyspace);
    known.iter().any(|one| {
        one.is_at(&there) != Sameness::Different && copies.is(connection, &one.shard_key) != Is::ACopy
    })
}

fn may_be(original: &str) -> String {
    format!("kept: it may belong to shard \"{original}\", which does not answer")
}

/// Removes the entries of splits in a redirect that no active plan of this master accounts for.
fn remove_from_redirect(
    connection: &mut Connection,
    names: &mut ShardNames,
    copies: &mut Copies<'_>,
    redirect: &KeyList,
    removed: &mut Removed,
) -> Result<()> {
    for (id, token) in moved_keys::splits(connection, redirect)? {
        let object = format!("redirect of split {id}");
        let by = RedirectOwner { split: id, token: &token };
        let original = stored::known_at(by);
        match original.as_deref().map(|original| (original, copies.is(connection, original))) {
            Some((_, Is::It)) => continue,
            Some((original, Is::Unknown)) => {
                removed.push((object, may_be(original)));
                continue;
            }
            // The original continues to refuse them; this master's routes show where they are.
            Some((_, Is::ACopy)) => {}
            // The operator has decided so.
            None if shard_decision::are_routes_kept(id, &token) => {}
            None => {
                let (gone, moved_to) = moved_keys::of_split(connection, redirect, by)?;
                let schemas = routes::schemas(connection, &redirect.trigger_prefix())?;
                if let Some(route) = names.route(connection, &gone, &schemas) {
                    removed.push((object, kept(&route, &moved_to)));
                    continue;
                }
            }
        }
        redirect::end(connection, by, &RedirectEnding::All, &mut redirect::commit)?;
        removed.push((object, "removed".to_owned()));
    }
    redirect::tidy(connection, redirect)
}

/// Returns the shards that have it according to the ledger, by any name: one database may have several. Another split
/// of the same number, of a master that is gone, has another token.
fn accounted_for(found: &FoundSide) -> Vec<String> {
    sql::read(
        // Of an ended split, only a side that was declared lost is left.
        &format!(
            "SELECT l.shard_key FROM shardmaster.split_ledger l JOIN shardmaster.split_plan p ON p.id = l.split_id
              WHERE l.split_id = $1 AND l.side = $2 AND l.removed_at IS NULL AND p.token = coalesce($3, p.token)
                AND NOT {IS_OVER}"
        ),
        &[found.id.into(), found.side.as_str().into(), found.token.as_deref().into()],
        |row| row.value(1),
    )
}

/// Whether a redirect of rows that have left must stay because this master routes clients of these keys here: it was
/// restored to a time before they moved.
fn keeps_clients_off(
    connection: &mut Connection,
    names: &mut ShardNames,
    found: &FoundSide,
) -> Result<Option<String>> {
    let Some((moved_to, entries)) = &found.moved else { return Ok(None) };
    let left = scope::read(connection, found.id, *entries)?;
    let schemas = routes::schemas(connection, &agent::trigger_prefix(found.id, found.side))?;
    Ok(names.route(connection, &left, &schemas).map(|route| kept(&route, moved_to)))
}

fn kept(route: &ShardRoute, moved_to: &str) -> String {
    clean::printable(&format!(
        "kept: {} \"{}\" is routed to this shard by keyspace \"{}\", but rows of it have moved to shard \"{moved_to}\"; assign what has moved there with {}(.., force => true), then clean up again",
        route.what, route.entry, route.keyspace, route.assigned_by
    ))
}
