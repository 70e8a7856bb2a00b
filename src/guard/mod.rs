//! Key guards: a shard refuses rows of keys that it never had, if an operator requests it.
//! Invariant: its list is never narrower than the routes that lead there.
//!
//! 1. A row of the master records the guard, and is committed under the keyspace's lock: from now on, a session that
//!    routes something to the shard tells the shard first, if that has a list.
//! 2. The shard gets an empty list.
//! 3. Sessions that looked for the list before it existed have committed.
//! 4. All routes are listed; new ones list themselves.
//! 5. Only then are the triggers created, table by table.
//!
//! Each step is committed before the next one and can be repeated, so after any interruption the same call continues;
//! an incomplete guard refuses nobody.

mod error;
mod fit;
pub mod inspect;
pub mod points;
mod shared;

use crate::agent::error::{Result, SplitError};
use crate::agent::one_database::shares_locks;
use crate::agent::state::key_list::{self, KeyList, ListMode};
use crate::agent::state::{allowed_keys, master};
use crate::agent::{key_guard, schema, session};
use crate::catalog::database_location::Sameness;
use crate::catalog::guard_record;
use crate::catalog::guard_record::{GuardRecord, GuardStage};
use crate::catalog::keyspace::{self, Keyspace};
use crate::catalog::shard::{self, Shard};
use crate::catalog::{event, outdated, split, table_policy};
use crate::error::Failure;
use crate::remote::Connection;
use crate::routing::after_start;
use crate::server::injection::{Point, reach_in_session};
use crate::split::install;
use crate::split::table::triggers;
use fit::{GuardedTable, GuardedTables};
use std::collections::BTreeSet;

/// The number of entries in one step, so that no transaction of the master is open for long.
const ENTRIES_AT_ONCE: i64 = 20_000;

/// Begins to install a guard, or to go through an existing one again. Known obstacles are reported before the shard
/// has to be asked.
pub fn begin(shard_key: &str, keyspace: &str) -> std::result::Result<(), Failure> {
    let shard = shard::by_key(shard_key)?;
    if !shard.holds_rows() {
        return Err(error::holds_no_rows(&shard.shard_key, &shard.kind));
    }
    let of = keyspace::find(keyspace)?;
    open(&shard)
        .and_then(|mut session| {
            shared::require_none(&mut session, &shard, &of)?;
            GuardedTables::look(&mut session, &shard, &of)
        })
        .map_err(SplitError::into_failure)?;
    // This row is locked first, as the guard's steps do.
    let _ = guard_record::lock(keyspace, shard_key);
    let keyspace = after_start::lock(keyspace)?;
    // Otherwise its list would lack keys that have come to the shard.
    outdated::require_current(&keyspace.name)?;
    guard_record::begin(&keyspace, shard_key);
    Ok(())
}

/// Begins to remove a guard. With `force`, the shard is not asked, and the guard is only forgotten here.
pub fn begin_removal(shard_key: &str, keyspace: &str, force: bool) -> std::result::Result<(), Failure> {
    let guard =
        guard_record::lock(keyspace, shard_key).ok_or_else(|| error::no_guard(shard_key, keyspace))?;
    if force {
        guard_record::set_stage(&guard, GuardStage::Left, None);
        told(&guard, "forgotten");
    } else {
        guard_record::set_stage(&guard, GuardStage::Going, None)
    }
    Ok(())
}

/// Does the next step, which the caller commits. Returns false if everything is done. `removes` is the purpose of the
/// call: if somebody has requested the opposite meanwhile, each call refuses to do the other's work or to report its
/// own as done.
pub fn step(shard_key: &str, keyspace: &str, removes: bool) -> std::result::Result<bool, Failure> {
    let Some(guard) = guard_record::lock(keyspace, shard_key) else {
        return if removes { Ok(false) } else { Err(error::gone(shard_key, keyspace)) };
    };
    if guard.is_new {
        return Err(error::not_committed());
    }
    if removes != (guard.stage == GuardStage::Going) {
        return Err(error::opposed(shard_key, keyspace, removes));
    }
    let (shard, of) = (shard::by_key(shard_key)?, keyspace::find(keyspace)?);
    let next = match guard.stage {
        GuardStage::Begun => make(&guard, &shard, &of),
        GuardStage::Made => return wait_for_others(&guard),
        GuardStage::Listing => list(&guard, &shard, &of),
        GuardStage::Fitting => fit(&guard, &shard, &of),
        GuardStage::Stands => Ok(false),
        GuardStage::Going => remove(&guard, &shard),
        GuardStage::Left => Err(error::no_guard(shard_key, keyspace).into()),
    };
    next.map_err(|error| {
        let mut failure = error.into_failure();
        failure.hint.get_or_insert_with(|| "After that the same call continues where it was.".to_owned());
        failure
    })
}

/// Opens a session on a shard, which must belong to this master.
fn open(shard: &Shard) -> Result<Connection> {
    let mut session = session::open(shard, "guard")?;
    master::check(&mut session, &split::identity())?;
    Ok(session)
}

/// Creates the guard and its empty list.
fn make(guard: &GuardRecord, shard: &Shard, keyspace: &Keyspace) -> Result<bool> {
    reach(points::BEGUN)?;
    let mut session = open(shard)?;
    shared::require_none(&mut session, shard, keyspace)?;
    let tables = GuardedTables::look(&mut session, shard, keyspace)?;
    drop_unfit(&mut session, shard, keyspace, &tables)?;
    let identity = split::identity();
    session.run("BEGIN")?;
    schema::bootstrap(&mut session)?;
    master::insert(&mut session, &identity)?;
    master::check(&mut session, &identity)?;
    let place = [shard.namespace.as_str(), keyspace.name.as_str(), shard.shard_key.as_str()];
    key_list::insert(&mut session, ListMode::Allow, place, keyspace.strategy)?;
    let there = there(&mut session, shard, keyspace)?;
    if there.shard != shard.shard_key {
        require_own(&mut session, shard, &there)?;
        key_list::rename(&mut session, &there, &shard.shard_key)?;
    }
    if let Some(first) = tables.first() {
        key_list::create_entries(&mut session, &there, &first.column)?;
    }
    schema::commit(&mut session)?;
    guard_record::set_stage(guard, GuardStage::Made, None);
    reach(points::MADE)?;
    Ok(true)
}

/// Drops a guard from an earlier installation, with its triggers first, if the type of its keys differs from that of
/// the tables: every writer that looks into such a list would fail.
fn drop_unfit(
    session: &mut Connection,
    shard: &Shard,
    keyspace: &Keyspace,
    tables: &GuardedTables,
) -> Result<()> {
    let Some(first) = tables.first() else { return Ok(()) };
    let Some(there) = key_list::find_guard(session, &shard.namespace, &keyspace.name)? else { return Ok(()) };
    allowed_keys::require_same(&there, keyspace.strategy)?;
    if allowed_keys::list_fits(session, &there, &first.column)? {
        return Ok(());
    }
    if there.shard != shard.shard_key {
        require_own(session, shard, &there)?;
    }
    install::drop_key_guard(session, &there)
}

/// Requires that the guard may be dropped. If the guard belongs to the same place under another name, it is removed
/// under that name; a copy of another shard, or a shard with a new name, takes it over.
fn require_own(session: &mut Connection, shard: &Shard, there: &KeyList) -> Result<()> {
    let Some(guard) = guard_record::lock(&there.keyspace, &there.shard) else { return Ok(()) };
    let is_it = match guard.is_at(shard) {
        Sameness::Same => true,
        Sameness::Different => false,
        Sameness::Unknown => shares_locks(session, &shard::by_key(&there.shard).map_err(Failure::from)?)?,
    };
    if is_it { Err(error::other_name(&shard.shard_key, &there.shard).into()) } else { Ok(()) }
}

fn there(session: &mut Connection, shard: &Shard, keyspace: &Keyspace) -> Result<KeyList> {
    let found = key_list::find_guard(session, &shard.namespace, &keyspace.name)?;
    let found = found.ok_or_else(|| error::gone(&shard.shard_key, &keyspace.name))?;
    allowed_keys::require_same(&found, keyspace.strategy)?;
    Ok(found)
}

/// Waits until sessions that held the keyspace's lock while there was no list have committed or aborted.
fn wait_for_others(guard: &GuardRecord) -> std::result::Result<bool, Failure> {
    keyspace::lock(&guard.keyspace)?;
    guard_record::set_stage(guard, GuardStage::Listing, None);
    Ok(true)
}

/// Lists what is routed to the place, in the order of the names: entries that are added or changed behind the reader
/// list themselves, by the same name. Ranges get other names when they are cut or joined, so all of them are read at
/// once. Keys that active splits bring, or may return, come first.
fn list(guard: &GuardRecord, shard: &Shard, keyspace: &Keyspace) -> Result<bool> {
    let mut session = open(shard)?;
    let place = names_of_place(&mut session, guard, shard);
    let behind = guard.listed_to.as_deref();
    let most = keyspace.strategy.order().is_none().then_some(ENTRIES_AT_ONCE);
    let routed = guard_record::routed(&keyspace.name, &place, behind, most);
    let mut names =
        if behind.is_none() { guard_record::of_splits(&keyspace.name, &place) } else { Vec::new() };
    names.extend(routed.iter().cloned());
    let there = there(&mut session, shard, keyspace)?;
    session.run("BEGIN")?;
    key_guard::add(&mut session, &there, &names, keyspace.key_type)?;
    session.run("COMMIT")?;
    let is_whole = most.is_none_or(|most| (routed.len() as i64) < most);
    if is_whole {
        session.run(&format!("ANALYZE {}", there.table()))?;
        guard_record::set_stage(guard, GuardStage::Fitting, None);
    } else {
        guard_record::set_stage(guard, GuardStage::Listing, routed.last().map(String::as_str));
    }
    reach(points::LISTED)?;
    Ok(true)
}

/// Returns all names of the place: the servers behind other addresses are asked. A silent one may be the same place,
/// so what is routed to it is listed. Those that are elsewhere are recorded, so that sessions which assign to them
/// need not ask.
fn names_of_place(session: &mut Connection, guard: &GuardRecord, shard: &Shard) -> Vec<String> {
    let [there, perhaps] = guard.beside();
    let mut names = vec![shard.shard_key.clone()];
    names.extend(there.into_iter().map(|shard| shard.shard_key));
    let mut apart = Vec::new();
    for other in perhaps {
        match shares_locks(session, &other) {
            Ok(false) => apart.push(other),
            Ok(true) | Err(_) => names.push(other.shard_key),
        }
    }
    if !apart.is_empty() {
        guard_record::add_apart(guard, &apart);
    }
    names
}

/// Keeps tables that get triggers in their keyspace from now on: in another keyspace they would still refuse rows by
/// the routes of this one.
fn hold_tables(guard: &GuardRecord) -> std::result::Result<bool, Failure> {
    let keyspace = keyspace::lock(&guard.keyspace)?;
    let now = table_policy::list(&keyspace.name).into_iter().map(|policy| policy.table_name);
    let tables: BTreeSet<String> = guard.tables.iter().cloned().chain(now).collect();
    guard_record::set_tables(guard, &tables.into_iter().collect::<Vec<_>>());
    guard_record::set_stage(guard, GuardStage::Fitting, Some(""));
    Ok(true)
}

/// Creates the triggers of the next table, in the order of their names; after the last one, the guard is complete.
fn fit(guard: &GuardRecord, shard: &Shard, keyspace: &Keyspace) -> Result<bool> {
    let Some(done) = guard.listed_to.as_deref() else { return Ok(hold_tables(guard)?) };
    let mut session = open(shard)?;
    let there = there(&mut session, shard, keyspace)?;
    let tables = GuardedTables::look(&mut session, shard, keyspace)?;
    let is_next =
        |name: &str| name.as_bytes() > done.as_bytes() && guard.tables.iter().any(|held| held == name);
    let Some(GuardedTable { name, shape, column }) = tables.iter().find(|table| is_next(&table.name)) else {
        let shapes: Vec<_> = tables.iter().map(|table| &table.shape).collect();
        triggers::drop_strays(&mut session, &there, &shapes)?;
        guard_record::set_stage(guard, GuardStage::Stands, None);
        told(guard, "stands");
        return Ok(false);
    };
    if !allowed_keys::list_fits(&mut session, &there, column)? {
        return Err(error::other_list(&shard.shard_key, name, &column.type_name).into());
    }
    session.run("BEGIN")?;
    schema::bootstrap(&mut session)?;
    key_guard::write_allowed(&mut session, &there, column)?;
    session.run("COMMIT")?;
    triggers::install_key_guard(&mut session, &there, &[(shape, column)], || Ok(()))?;
    guard_record::set_stage(guard, GuardStage::Fitting, Some(name));
    reach(points::FITTED)?;
    Ok(true)
}

fn remove(guard: &GuardRecord, shard: &Shard) -> Result<bool> {
    let mut session = open(shard)?;
    if let Some(there) = key_list::find_guard(&mut session, &shard.namespace, &guard.keyspace)? {
        install::drop_key_guard(&mut session, &there)?;
    }
    reach(points::REMOVED)?;
    guard_record::delete(&guard.keyspace, &guard.shard_key);
    told(guard, "removed");
    Ok(false)
}

fn told(guard: &GuardRecord, status: &str) {
    event::notify(&serde_json::json!({
        "event": "guard", "shard": guard.shard_key, "keyspace": guard.keyspace, "status": status
    }));
}

fn reach(point: &'static Point) -> Result<()> {
    Ok(reach_in_session(point)?)
}
