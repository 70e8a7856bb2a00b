//! Keyspaces and the tables in them.

use super::{buckets, error, guarded, name_list, new_table};
use crate::agent::new_table::SaidByShards;
use crate::catalog::caller::Caller;
use crate::catalog::in_use::{self, KeyspaceSplit};
use crate::catalog::keyspace::{self, Keyspace, LockedKeyspace, UnknownKeyspace};
use crate::catalog::split;
use crate::catalog::table_policy::{self, ListedTable, Policy, ShardByColumn, TableName};
use crate::catalog::{guard_record, job};
use crate::catalog::{local, lookup};
use crate::catalog::{misplaced_run, name};
use crate::catalog::{redirect, reference};
use crate::catalog::{routing, shard};
use crate::error::{Failure, SqlState, notice, required};
use crate::keys::key_type::KeyType;
use crate::keys::strategy::{MissingArgument, Strategy, StrategyKind};
use crate::server::wake;
use crate::words::listed;
use pgrx::prelude::*;
use std::num::NonZeroU32;

/// The arguments of strategies besides the type of their keys; a directory takes neither.
pub struct StrategyArguments {
    /// The number of buckets of a hash keyspace. `None` for as many as shards.
    pub buckets: Option<i32>,
    /// The shards of its buckets, in turn. `None` for all active servers.
    pub shards: Option<Vec<Option<String>>>,
}

pub fn add(
    name: &str,
    strategy: &str,
    key_type: pg_sys::Oid,
    rest: StrategyArguments,
) -> Result<(), Failure> {
    if let Some(problem) = name::problem(name) {
        return Err(error::invalid("keyspace", problem));
    }
    let key_type = KeyType::from_oid(key_type)?;
    let plan = plan(strategy, key_type, rest)?;
    require_new(name)?;
    if !keyspace::insert(name, key_type, plan.strategy) {
        return Err(error::keyspace_exists(name));
    }
    if plan.shards.is_empty() {
        return Ok(());
    }
    let keyspace = keyspace::lock(name)?;
    buckets::assign_in_turn(&keyspace, &plan.shards)
}

/// Requires a new name. No other session gives the name to a keyspace before the transaction ends.
pub fn require_new(name: &str) -> Result<(), Failure> {
    lookup::lock_names();
    match keyspace::find(name) {
        Err(UnknownKeyspace::Nothing(_)) => Ok(()),
        Ok(_) | Err(UnknownKeyspace::Lookup { .. }) => Err(error::keyspace_exists(name)),
    }
}

/// A keyspace's strategy, and the shards of its buckets.
struct Layout {
    strategy: Strategy,
    shards: Vec<String>,
}

fn plan(strategy: &str, key_type: KeyType, rest: StrategyArguments) -> Result<Layout, Failure> {
    let Some(kind) = StrategyKind::from_name(strategy) else {
        let problem =
            format!("\"{strategy}\" is not one of {}, \"{}\"", StrategyKind::names(), lookup::STRATEGY);
        return Err(error::invalid("strategy", problem));
    };
    match kind.with(key_type.ordered(), None) {
        Ok(strategy) => {
            let problem = format!("a keyspace with the strategy \"{}\" has none", strategy.name());
            match (&rest.buckets, &rest.shards) {
                (None, None) => Ok(Layout { strategy, shards: Vec::new() }),
                (Some(_), _) => Err(error::invalid("buckets", problem)),
                (None, Some(_)) => Err(error::invalid("shards", problem)),
            }
        }
        Err(MissingArgument::Order) => Err(no_order(key_type)),
        Err(MissingArgument::Buckets) => {
            let (buckets, shards) = in_buckets(rest)?;
            let strategy = kind.with(key_type.ordered(), Some(buckets)).map_err(|_| no_order(key_type))?;
            Ok(Layout { strategy, shards })
        }
    }
}

fn no_order(key_type: KeyType) -> Failure {
    let problem = format!("keys of a hash or range keyspace cannot be of type {}", key_type.as_str());
    error::invalid("key_type", problem)
}

/// Returns how many buckets there are, and the shards that get them in turn.
fn in_buckets(rest: StrategyArguments) -> Result<(NonZeroU32, Vec<String>), Failure> {
    let shards = match rest.shards {
        Some(shards) => shards
            .into_iter()
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| error::invalid("shards", "it contains a NULL"))?,
        None => shard::active_servers(),
    };
    let buckets = rest.buckets.unwrap_or_else(|| i32::try_from(shards.len()).unwrap_or(i32::MAX));
    let is_possible = |n: &u32| (1..=buckets::MAX_BUCKETS).contains(n);
    match u32::try_from(buckets).ok().filter(is_possible).and_then(NonZeroU32::new) {
        Some(buckets) => Ok((buckets, shards)),
        None => {
            let most = buckets::MAX_BUCKETS;
            let problem = format!("{buckets} is not between 1 and {most}");
            Err(error::invalid("buckets", problem))
        }
    }
}

pub fn drop(name: &str) -> Result<(), Failure> {
    let keyspace = keyspace::lock(name)?;
    if name == keyspace::DEFAULT {
        return Err(error::default_keyspace());
    }
    check_not_in_use(&keyspace)?;
    let in_use = |by: String| error::keyspace_in_use(name, &by);
    if let Some(guard) = guard_record::of_keyspace(name).first() {
        return Err(in_use(format!("shard \"{}\" has a guard of it", guard.shard_key))
            .hint("Remove it with shard_guard_remove()."));
    }
    if let Some(policy) = table_policy::all(name).first() {
        return Err(in_use(format!("table \"{}\" is in it", policy.table_name))
            .hint("Remove its tables with shard_table_drop()."));
    }
    // In the other strategies nothing can be unassigned.
    let assigned = if keyspace.strategy.is_directory() { routing::any_current_key(name) } else { None };
    if let Some(key) = assigned {
        return Err(
            in_use(format!("key \"{key}\" is assigned in it")).hint("Remove its keys with shard_unassign().")
        );
    }
    if let Some(lookup) = lookup::of_keyspace(name, None).first() {
        return Err(in_use(format!("lookup index \"{lookup}\" leads to its keys"))
            .hint("Drop its lookup indexes with shard_table_drop() and shard_keyspace_drop()."));
    }
    if reference::any_of_keyspace(name) {
        return Err(in_use("the copies of its reference tables are being removed from shards".into())
            .hint("Call it again after a moment. shard_status() shows what it waits for. If a shard does not answer, wait for it, or drop it."));
    }
    if keyspace::has_splits(&keyspace) {
        return Err(in_use("it has splits, which are kept for audit".into()));
    }
    for shard in guard_record::forget_left_of_keyspace(&keyspace) {
        guarded::is_left(&shard, name);
    }
    keyspace::delete(&keyspace);
    Ok(())
}

fn check_not_in_use(keyspace: &Keyspace) -> Result<(), Failure> {
    match in_use::split_of_keyspace(&keyspace.name) {
        Some(split) => Err(error::keyspace_in_split(&keyspace.name, split)),
        None => check_no_run(&keyspace.name),
    }
}

fn check_no_run(keyspace: &str) -> Result<(), Failure> {
    match misplaced_run::of_keyspace(keyspace) {
        Some(run) => Err(error::keyspace_in_run(keyspace, run)),
        None => Ok(()),
    }
}

pub fn parse_table(text: &str) -> Result<TableName, Failure> {
    let problem = || format!("\"{text}\" is not a name or schema.name");
    TableName::parse(text).ok_or_else(|| error::invalid("table_name", problem()))
}

/// Checks the schema of a table. In a shard that is a schema of this very database a split works with the rights of
/// the extension's owner: nobody may read or fill a catalog through it, or a table of another role.
pub fn check_schema(table: &TableName, caller: &Caller) -> Result<(), Failure> {
    let Some(schema) = table.schema.as_deref() else { return Ok(()) };
    let is_ours = ["shardmaster", "shardmaster_agent", "information_schema"].contains(&schema);
    if is_ours || schema.starts_with("pg_") {
        let problem = format!("\"{schema}\" is a schema of the server or of this extension");
        return Err(error::invalid("table_name", problem));
    }
    if caller.is_superuser() || !local::has_schema(schema) || caller.owns(schema) {
        return Ok(());
    }
    Err(Failure::new(
        SqlState::INSUFFICIENT_PRIVILEGE,
        format!("permission denied to use tables of schema \"{schema}\""),
    )
    .hint("The master's own database has a schema of this name, which may be a shard. Only its owner, or a superuser, may add its tables."))
}

/// A table with the arguments of shard_table_add().
pub struct NewTable<'a> {
    pub name: &'a str,
    pub shard_by: Option<&'a str>,
    pub keyspace: &'a str,
    pub key_type: Option<pg_sys::Oid>,
    pub policy: &'a str,
    pub origin: Option<String>,
}

pub fn table_add(new: &NewTable<'_>, caller: &Caller) -> Result<(), Failure> {
    let table = parse_table(new.name)?;
    let said = ask_shards(new, &table, caller)?;
    let keyspace = keyspace::lock(new.keyspace)?;
    check_schema(&table, caller)?;
    let policy = parse_policy(new.policy)?;
    let column = match policy {
        Policy::Sharded => Some(shard_by(new)?),
        Policy::Reference | Policy::Global => {
            require_no_key(new)?;
            None
        }
    };
    check_origin(new, policy)?;
    check_free_for(policy, &keyspace)?;
    let column_type = column.as_ref().map(|column| type_of(&table, column)).transpose()?.flatten();
    if let Some((keyspace, known)) = table_policy::find_other(&keyspace, &table) {
        return Err(error::table_exists_as(&keyspace, &table.quoted(), &known));
    }
    if policy == Policy::Sharded {
        settle_key_type(&keyspace, new.key_type, column_type)?;
    }
    let listed =
        ListedTable { table_name: table.quoted(), shard_by: column, policy, origin: new.origin.clone() };
    if !table_policy::insert(&keyspace, &listed, caller) {
        return Err(error::table_exists(&keyspace.name, &table.quoted()));
    }
    if let Some(origin) = &new.origin {
        reference::add(&keyspace, origin, &table);
        wake::coordinator_on_commit();
    }
    new_table::tell(&said, &table, &keyspace.name);
    Ok(())
}

/// Asks the shards about a table, before anything is locked, since a shard may be slow. Errors of the call itself come
/// first.
fn ask_shards(new: &NewTable<'_>, table: &TableName, caller: &Caller) -> Result<SaidByShards, Failure> {
    let keyspace = keyspace::find(new.keyspace)?;
    check_schema(table, caller)?;
    // This is checked again under its lock: if the keyspace is in use now, asking a slow shard is useless.
    let policy = parse_policy(new.policy)?;
    check_free_for(policy, &keyspace)?;
    check_filled(&keyspace, table)?;
    let all = shard::all().into_iter();
    let (shards, column) = match policy {
        Policy::Sharded => (all.collect(), Some(shard_by(new)?)),
        Policy::Reference => (all.filter(|at| Some(&at.shard_key) == new.origin.as_ref()).collect(), None),
        // Only the application knows where the table is.
        Policy::Global => return Ok(SaidByShards::Fits),
    };
    let said = new_table::look(table, column.as_deref(), shards);
    new_table::require(&said, table, column.as_deref())?;
    Ok(said)
}

/// Checks that the keyspace is free for a table of this policy. A table on one server stays there, whatever moves.
fn check_free_for(policy: Policy, keyspace: &Keyspace) -> Result<(), Failure> {
    match policy {
        Policy::Sharded | Policy::Reference => check_not_planned(keyspace),
        Policy::Global => check_no_run(&keyspace.name),
    }
}

/// Refuses a table whose derived column is not complete: its rows without a value would belong to no key.
fn check_filled(keyspace: &Keyspace, table: &TableName) -> Result<(), Failure> {
    match job::open_of(&keyspace.name, &table.quoted()) {
        Some((id, ..)) => Err(error::job_of_table(&table.quoted(), id)),
        None => Ok(()),
    }
}

/// Refuses a planned keyspace: a plan has the tables of the moment of its creation.
fn check_not_planned(keyspace: &Keyspace) -> Result<(), Failure> {
    let Some(split) = in_use::split_of_keyspace(&keyspace.name) else {
        return check_no_run(&keyspace.name);
    };
    let in_split = error::keyspace_in_split(&keyspace.name, split);
    if !in_use::is_planned(split) {
        return Err(in_split);
    }
    Err(in_split.hint(format!(
        "It has not begun. CALL shard_split_run({split}, 'rolled_back') ends it. Once the table is added, SELECT shard_split_start_dual_write({split}) runs it with all tables of the keyspace."
    )))
}

fn parse_policy(text: &str) -> Result<Policy, Failure> {
    Policy::from_name(text)
        .ok_or_else(|| error::invalid("policy", format!("\"{text}\" is not one of {}", Policy::names())))
}

fn shard_by(new: &NewTable<'_>) -> Result<String, Failure> {
    let column = table_policy::parse_column(&required(new.shard_by.map(str::to_owned), "shard_by")?);
    if column.is_empty() {
        return Err(error::invalid("shard_by", "a column's name is needed"));
    }
    Ok(column)
}

/// Requires that no key is given: the rows of such a table have none.
fn require_no_key(new: &NewTable<'_>) -> Result<(), Failure> {
    let problem = || format!("a table with the policy \"{}\" has none", new.policy);
    match (new.shard_by, new.key_type) {
        (None, None) => Ok(()),
        (Some(_), _) => Err(error::invalid("shard_by", problem())),
        (None, Some(_)) => Err(error::invalid("key_type", problem())),
    }
}

fn check_origin(new: &NewTable<'_>, policy: Policy) -> Result<(), Failure> {
    match (policy, &new.origin) {
        (Policy::Reference, Some(origin)) => {
            let shard = shard::by_key(origin)?;
            Ok(shard.require_server()?)
        }
        (Policy::Reference, None) => {
            Err(error::invalid("origin", "the origin is needed: the shard whose rows the others copy"))
        }
        (Policy::Sharded | Policy::Global, None) => Ok(()),
        (Policy::Sharded | Policy::Global, Some(_)) => {
            let problem = format!("a table with the policy \"{}\" has none", policy.as_str());
            Err(error::invalid("origin", problem))
        }
    }
}

/// Returns the type of the shard-by column, if this database has the table.
fn type_of(table: &TableName, column: &str) -> Result<Option<pg_sys::Oid>, Failure> {
    match table_policy::column_here(table, column) {
        ShardByColumn::TableUnknown => Ok(None),
        ShardByColumn::Missing => Err(error::unknown_column(&table.quoted(), column)),
        ShardByColumn::Type(oid) => Ok(Some(oid)),
    }
}

/// Determines the key type. The caller's type overrides the column's; the first known type becomes the keyspace's
/// permanently. If none is known (the table is only on other servers), keys are taken as text, and a later table may
/// still determine it.
fn settle_key_type(
    keyspace: &LockedKeyspace,
    given: Option<pg_sys::Oid>,
    column: Option<pg_sys::Oid>,
) -> Result<(), Failure> {
    let given = given.map(KeyType::from_oid).transpose()?;
    let column = match given {
        None => column.map(KeyType::from_oid).transpose()?,
        Some(_) => None,
    };
    let Some(wanted) = given.or(column) else {
        if keyspace.key_type.is_none() {
            notice_unknown_type();
        }
        return Ok(());
    };
    match keyspace.key_type {
        None => {
            check_keys_canonical(keyspace, wanted)?;
            keyspace::set_key_type(keyspace, wanted);
            Ok(())
        }
        Some(is) if is.takes(wanted, keyspace.strategy.is_directory()) => Ok(()),
        Some(is) if given.is_none() && is.is_text() => {
            let message = format!(
                "the shard-by column is of type {}, but keys of keyspace \"{}\" are of type {}",
                wanted.as_str(),
                keyspace.name,
                is.as_str()
            );
            ereport!(PgLogLevel::WARNING, PgSqlErrorCode::ERRCODE_WARNING, message);
            Ok(())
        }
        Some(is) => Err(error::other_key_type(&keyspace.name, is, wanted)),
    }
}

fn notice_unknown_type() {
    notice(
        "the table is not in this database: keys are taken as text",
        "If the shard-by column is not text, pass its type as key_type, for example key_type => 'bigint'.",
    );
}

/// Requires that keys which were assigned as text are in the canonical form of the type.
fn check_keys_canonical(keyspace: &LockedKeyspace, key_type: KeyType) -> Result<(), Failure> {
    if key_type == KeyType::Text {
        return Ok(());
    }
    for key in routing::current_keys(&keyspace.name) {
        let canonical = key_type.canonical(&key).into_owned();
        if canonical != key {
            return Err(error::key_not_canonical(&keyspace.name, &key, key_type, &canonical));
        }
    }
    Ok(())
}

/// Removes the table from splits that have not begun; they move the other tables.
fn leave_plans(keyspace: &LockedKeyspace, table: &TableName) -> Result<(), Failure> {
    let holders = in_use::holders_of_table(&keyspace.name, &table.quoted());
    let in_split = |split| error::keyspace_in_split(&keyspace.name, split);
    for KeyspaceSplit { split, is_planned, has_table, has_others } in holders {
        match (is_planned, has_table, has_others) {
            (false, ..) => return Err(in_split(split)),
            (true, true, false) => {
                return Err(in_split(split).hint(format!(
                    "The plan has no other table. End it with CALL shard_split_run({split}, 'rolled_back')."
                )));
            }
            (true, true, true) => split::forget_table(split, &table.quoted()),
            (true, false, _) => {}
        }
    }
    check_no_run(&keyspace.name)
}

pub fn table_drop(table: &str, keyspace: &str) -> Result<(), Failure> {
    let keyspace = keyspace::lock(keyspace)?;
    let table = parse_table(table)?;
    leave_plans(&keyspace, &table)?;
    let splits = redirect::splits_of_table(&keyspace.name, &table.quoted());
    if !splits.is_empty() {
        return Err(error::table_redirected(&keyspace.name, &table.quoted(), &listed(splits)));
    }
    let guarded = guard_record::shards_of_table(&keyspace.name, &table.quoted());
    if !guarded.is_empty() {
        let shards = name_list(guarded.iter().map(String::as_str));
        return Err(error::table_guarded(&keyspace.name, &table.quoted(), &shards));
    }
    if let Some(lookup) = lookup::of_keyspace(&keyspace.name, Some(&table.quoted())).first() {
        let by = format!("lookup index \"{lookup}\" uses table \"{}\"", table.quoted());
        return Err(error::keyspace_in_use(&keyspace.name, &by)
            .hint("First remove the table from the lookup index with shard_table_drop()."));
    }
    if !table_policy::delete(&keyspace, &table) {
        return Err(error::unknown_table(&keyspace.name, &table.quoted()));
    }
    reference::remove(&keyspace, &table);
    wake::coordinator_on_commit();
    Ok(())
}
