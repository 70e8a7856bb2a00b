//! `shard_status()`: whether everything is in place for splits to run automatically.

use crate::catalog::reference;
use crate::catalog::shard_decision::{self, Decision};
use crate::catalog::waiting_split;
use crate::catalog::{execution, guard_record};
use crate::catalog::{keychain, lookup};
use crate::error::{Failure, told};
use crate::execution::orphans;
use crate::guc;
use crate::keychain::{encrypt, master_key};
use crate::placement::sweep;
use crate::server::preload::preloaded;
use crate::server::process::WorkerKind;
use crate::server::{database as this_database, sql};
use crate::words::counted;
use crate::worker::services::SERVICES;
use crate::worker::{lock, splits};
use pgrx::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The library's own version; the extension's SQL may have another one.
const LIBRARY_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The item, what is known of it, and whether it is in order.
pub type Item = (String, String, bool);

fn item(name: impl Into<String>, value: impl Into<String>, ok: bool) -> Item {
    (name.into(), value.into(), ok)
}

/// Returns one row for each item that must be in order, and one for each unfinished split.
#[pg_extern(volatile, parallel_restricted, security_definer)]
#[search_path(pg_catalog, pg_temp)]
fn shard_status() -> TableIterator<'static, (name!(item, String), name!(value, String), name!(ok, bool))> {
    TableIterator::new(items())
}

pub fn items() -> Vec<Item> {
    let mut items = vec![version(), preload(), database()];
    items.extend([worker(WorkerKind::Launcher), worker(WorkerKind::Coordinator)]);
    items.extend(SERVICES.iter().filter(|service| (service.has_work)()).map(|service| worker(service.kind)));
    items.extend([split_workers(), slots()]);
    items.extend(leases());
    items.extend(credentials());
    items.extend(decisions());
    items.extend(splits());
    items.extend(executions());
    items.extend(lookups_of_shards());
    items.extend(references());
    items.extend(guards());
    named_once(items)
}

/// Merges items of the same name, because monitoring by name expects each name once: an item that is being removed and
/// its successor may share one.
fn named_once(items: Vec<Item>) -> Vec<Item> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut once: Vec<Item> = Vec::with_capacity(items.len());
    for (name, value, ok) in items {
        if let Some(same) = seen.get(&name).and_then(|at| once.get_mut(*at)) {
            same.1 = format!("{}; {value}", same.1);
            same.2 &= ok;
            continue;
        }
        seen.insert(name.clone(), once.len());
        once.push((name, value, ok));
    }
    once
}

fn version() -> Item {
    let extension: String = sql::read_one(
        "SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'shardmaster'",
        &[],
        |row| row.value(1),
    )
    .unwrap_or_default();
    if extension == LIBRARY_VERSION {
        return item("version", extension, true);
    }
    let value = format!(
        "extension {extension}, library {LIBRARY_VERSION}: run ALTER EXTENSION shardmaster UPDATE; if that does not help, restart the server"
    );
    item("version", value, false)
}

fn preload() -> Item {
    if preloaded() {
        item("preload", "shardmaster is in shared_preload_libraries", true)
    } else {
        let todo = "no: add shardmaster to shared_preload_libraries and restart the server; until then a \
                    worker that ends early is not restarted";
        item("preload", todo, false)
    }
}

fn database() -> Item {
    let (served, this) = (guc::database(), this_database::name());
    if served == this {
        item("database", served, true)
    } else {
        let value =
            format!("shardmaster.database is \"{served}\": set it to \"{this}\" and restart the server");
        item("database", value, false)
    }
}

/// Returns the one process of its kind, and its last sign of life.
fn worker(kind: WorkerKind) -> Item {
    let found = sql::read_one(
        "SELECT pid, pg_catalog.to_char(state_change, 'YYYY-MM-DD HH24:MI:SS TZ'), query
           FROM pg_catalog.pg_stat_activity
          WHERE backend_type = $1 AND (datname IS NULL OR datname = pg_catalog.current_database())",
        &[kind.name().into()],
        |row| (row.value::<i32>(1), row.get::<String>(2), row.get::<String>(3)),
    );
    let name = match kind {
        WorkerKind::Launcher => "launcher",
        WorkerKind::Coordinator => "coordinator",
        WorkerKind::LeaseExpirer => "lease expirer",
        WorkerKind::TwoPhaseRecovery => "two-phase recovery",
        WorkerKind::LookupWorker => "lookup worker",
        WorkerKind::References => "reference-table worker",
        WorkerKind::Inquirer => "inquirer",
        WorkerKind::Jobs => "worker of jobs",
        WorkerKind::Split(_) => "split worker",
    };
    match found {
        Some((pid, Some(seen), doing)) => {
            // A caller who can ask sees the extension: it has just been created.
            let doing = match doing.unwrap_or_default() {
                text if text == splits::WAITS_FOR_EXTENSION => "about to read the new extension".to_owned(),
                text => text,
            };
            item(name, format!("pid {pid}, last sign of life {seen}: {doing}"), true)
        }
        // There is no sign of life to read if track_activities is off.
        Some((pid, None, _)) => item(name, format!("pid {pid}"), true),
        None if standby() => item(name, "not running on a standby", true),
        None => item(name, "not running", false),
    }
}

/// Whether this is a standby. Workers run only where the catalog can be written.
fn standby() -> bool {
    // SAFETY: this reads the state of the server.
    unsafe { pg_sys::RecoveryInProgress() }
}

fn split_workers() -> Item {
    let (with_work, running) = (splits::with_work(), lock::holders().len());
    let wanted = if standby() { 0 } else { with_work.len().min(guc::max_split_workers()) };
    let value = format!(
        "{running} running, {} with work, at most {} at a time",
        counted(with_work.len(), "split", "splits"),
        guc::max_split_workers()
    );
    item("split workers", value, running >= wanted)
}

/// Whether the server has slots for the workers that do not run yet. Only running workers can be counted: one that
/// waits for its restart may have a slot too.
fn slots() -> Item {
    let used: i64 = sql::read_one(
        "SELECT count(*) FROM pg_catalog.pg_stat_activity
          WHERE backend_type NOT IN ('client backend', 'autovacuum launcher', 'autovacuum worker', 'archiver',
                'background writer', 'checkpointer', 'startup', 'walreceiver', 'walsender', 'walwriter',
                'standalone backend', 'slotsync worker', 'io worker', 'walsummarizer')",
        &[],
        |row| row.value(1),
    )
    .unwrap_or(0);
    // SAFETY: this is a plain setting of the server.
    let limit = i64::from(unsafe { pg_sys::max_worker_processes });
    let running = lock::holders().len();
    let missing = guc::max_split_workers().saturating_sub(running) as i64;
    let free = limit - used;
    let value = format!("{free} of {limit} free, {missing} more split workers may be started");
    if free >= missing {
        item("max_worker_processes", value, true)
    } else {
        item("max_worker_processes", format!("{value}: increase it and restart the server"), false)
    }
}

/// Returns leases that have run out and should have been expired by now.
fn leases() -> Option<Item> {
    let late = sweep::lateness()?;
    let wanted = guc::lease_sweep_interval();
    let value = format!(
        "one expired {late:.0} s ago and still occupies its slot: the lease expirer runs every {:.0} s",
        wanted.as_secs_f64()
    );
    let bound = 2.0 * wanted.as_secs_f64() + SWEEP_GRACE;
    (late > bound && !standby()).then(|| item("leases", value, false))
}

/// In seconds: the time that a sweep may take beyond the time between two sweeps.
const SWEEP_GRACE: f64 = 5.0;

/// Whether the credentials of shards can be decrypted here. A master that was restored or promoted on another machine
/// may lack its key.
fn credentials() -> Option<Item> {
    let all = keychain::list();
    if all.is_empty() {
        return None;
    }
    let keys = match master_key::all() {
        Ok(keys) => keys,
        Err(failure) => return Some(item("keychain", failure.in_one_line(), false)),
    };
    let is_wrong = |listed: &keychain::ListedCredential| {
        let credential = &listed.credential;
        encrypt::open(&keys, &credential.alias, &credential.kind, &credential.sealed).err()
    };
    let wrong: Vec<Failure> = all.iter().filter_map(is_wrong).collect();
    let first = keys.first().map(encrypt::MasterKey::id).unwrap_or_default();
    let others = all.iter().filter(|listed| encrypt::key_id(&listed.credential.sealed) != first).count();
    let texts: Vec<&str> = wrong.iter().map(|failure| failure.message.as_str()).collect();
    Some(match wrong.first() {
        Some(failure) => item("keychain", told(&texts.join("; "), failure.hint.as_deref()), false),
        None if others > 0 => {
            let value = format!(
                "{} credentials, {others} of them not encrypted with master key {first}: call shard_keychain_rotate()",
                all.len()
            );
            item("keychain", value, true)
        }
        None => item(
            "keychain",
            format!("{}, encrypted with master key {first}", counted(all.len(), "credential", "credentials")),
            true,
        ),
    })
}

/// Returns decisions that shards know and this master does not, and shards that could not be asked for theirs.
fn decisions() -> Vec<Item> {
    if !shard_decision::is_here() {
        return Vec::new();
    }
    let mut by_keyspace: BTreeMap<String, Vec<(String, Decision)>> = BTreeMap::new();
    for (shard, decision) in shard_decision::lost() {
        by_keyspace.entry(decision.keyspace.clone()).or_default().push((shard, decision));
    }
    let lost = by_keyspace.into_iter().filter_map(|(keyspace, lost)| {
        let (shards, decisions): (BTreeSet<String>, Vec<Decision>) = lost.into_iter().unzip();
        let shards: Vec<String> = shards.iter().map(|shard| format!("\"{shard}\"")).collect();
        let value = format!(
            "{}, as shard {} records and this master does not: SELECT * FROM shard_adopt(dry_run => true)",
            shard_decision::told_shortly(&decisions)?,
            shards.join(" and ")
        );
        Some(item(format!("routing of keyspace \"{keyspace}\""), value, false))
    });
    let silent = shard_decision::not_answered().into_iter().map(|(shard, why)| {
        item(format!("decisions of shard \"{shard}\""), format!("not known: {why}"), false)
    });
    lost.chain(silent).collect()
}

fn splits() -> Vec<Item> {
    let describe = |split: splits::Unfinished| {
        let error = split.error.map(|text| format!(": {text}"));
        let wanting = waiting_split::of_split(split.id);
        let waits = wanting.as_ref().map(|why| format!(", waits for {why}"));
        let fence = split.fenced_for.filter(|seconds| *seconds > LATE);
        let fenced = fence.map(|seconds| format!(", has kept writers waiting for {seconds:.0} s"));
        let more: String = [error, waits, fenced].into_iter().flatten().collect();
        let is_wanting = wanting.is_some() && waiting_split::starts_by_call(split.id);
        let ok = split.activity != "failed" && !is_wanting && fence.is_none();
        item(format!("split {}", split.id), format!("{}, {}{more}", split.phase, split.activity), ok)
    };
    splits::unfinished().into_iter().map(describe).collect()
}

/// Returns remains of statements in two phases: they hold locks on their shards.
fn executions() -> Vec<Item> {
    let describe = |id: i64| {
        let places: Vec<String> = execution::list(Some(id))
            .into_iter()
            .filter(|place| matches!(place.state.as_str(), "running" | "prepared" | "committing"))
            .map(|place| {
                let why = place.message.map(|text| format!(": {text}")).unwrap_or_default();
                format!("{} on shard \"{}\"{why}", place.state, place.shard)
            })
            .collect();
        item(format!("execution {id}"), places.join("; "), false)
    };
    // A standby does not see which session carries one out.
    let left = if standby() { Vec::new() } else { orphans() };
    left.into_iter().map(describe).collect()
}

/// In seconds: a change that has waited for longer is late.
const LATE: f64 = 60.0;

/// Returns lookup indexes that are not filled, or are late, and the remains of removed ones.
fn lookups_of_shards() -> Vec<Item> {
    let describe = |shown: lookup::ShownLookup| {
        let name = format!("lookup index \"{}\" on shard \"{}\"", shown.lookup, shown.shard_key?);
        let lag = shown.lag_seconds.filter(|_| shown.waiting.unwrap_or(0) > 0).unwrap_or(0.0);
        let why = shown.error.map(|text| format!(": {text}")).unwrap_or_default();
        let state = shown.state.unwrap_or_default();
        let value = format!(
            "{state}, pending changes: {}, the oldest for {lag:.0} s{why}",
            shown.waiting.unwrap_or(0)
        );
        Some(item(name, value, !shown.is_failing && lag < LATE))
    };
    let left = lookup::removals().into_iter().map(|removal| {
        let why = removal.error.map(|text| format!(": {text}")).unwrap_or_default();
        let name = format!("former lookup index \"{}\" on shard \"{}\"", removal.lookup, removal.shard_key);
        item(name, format!("to be removed{why}"), why.is_empty())
    });
    lookup::shown().into_iter().filter_map(describe).chain(left).collect()
}

/// Returns shards that do not follow the origin of their reference tables.
fn references() -> Vec<Item> {
    let describe = |behind: reference::ListedReference| {
        let why = behind.error.map(|text| format!(": {text}")).unwrap_or_default();
        let name = format!("reference table {} on shard {}", behind.table_name, behind.shard);
        item(name, format!("{}{why}", behind.state), behind.state != "failed" && behind.state != "away")
    };
    let is_behind = |listed: &reference::ListedReference| listed.state != "following";
    let behind = reference::list(None).into_iter().filter(is_behind).map(describe);
    behind.chain(reference::dropped().into_iter().map(dropped_reference)).collect()
}

/// Returns a table that was removed from a keyspace, and is still on shards.
fn dropped_reference(dropped: reference::DroppedReference) -> Item {
    let reference::DroppedReference { keyspace, table_name: table, waits_for } = dropped;
    let is_well = waits_for.is_none();
    let why = waits_for.map(|text| format!(", which waits for this: {text}")).unwrap_or_default();
    let name = format!("reference table {table}, removed from keyspace {keyspace}");
    item(name, format!("is being removed from its shards{why}"), is_well)
}

/// Returns key guards that differ from what their shards need.
fn guards() -> Vec<Item> {
    let describe = |guard: guard_record::ListedGuard| {
        let name = format!("guard of keyspace \"{}\" on shard \"{}\"", guard.keyspace, guard.shard);
        let todo = match guard.state.as_str() {
            "removing" => "call shard_guard_remove() again, unless a session is running it".to_owned(),
            "left" => "removed by force: shard_cleanup() removes what is left on the shard".to_owned(),
            "partial" => {
                format!("CALL shard_guard_install() again: {} came since", guard.not_guarded.join(", "))
            }
            _ => "call shard_guard_install() again, unless a session is running it".to_owned(),
        };
        item(name, format!("{}: {todo}", guard.state), false)
    };
    guard_record::not_standing().into_iter().map(describe).collect()
}
