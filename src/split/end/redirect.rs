//! Redirects on the shards: what finish enters, what comes back, how they end. Invariant: a
//! key is refused by its split's own triggers until every table has those of the redirect,
//! and triggers go only while nothing has left. Each part can be repeated.

use crate::agent::error::{Result, SplitError};
use crate::agent::filter::Filter;
use crate::agent::observe;
use crate::agent::redirect::{self as agent_redirect, Facts, Redirect};
use crate::agent::session::Side;
use crate::agent::shape::{Column, TableShape};
use crate::agent::state::{self, tenure};
use crate::agent::types::Family;
use crate::catalog::split::Plan;
use crate::error::SqlState;
use crate::keys::interval::Interval;
use crate::keys::key_type::KeyType;
use crate::keys::ordered::Ordered;
use crate::keys::scope::Scope;
use crate::keys::strategy::Strategy;
use crate::remote::quote::literal;
use crate::remote::{Connection, number};
use crate::split::injection_points::{self, reach};
use crate::split::install::{self, triggers};

pub mod contents;

/// Whether the agent of this database knows redirects.
fn is_known(connection: &mut Connection) -> Result<bool> {
    Ok(state::has(connection, "redirect")?)
}

/// The redirects of the database.
pub fn all(connection: &mut Connection) -> Result<Vec<Redirect>> {
    if !is_known(connection)? {
        return Ok(Vec::new());
    }
    let rows = connection
        .run("SELECT id, namespace, keyspace, entries FROM shardmaster_agent.redirect ORDER BY id")?;
    Ok(rows.rows.iter().filter_map(|row| from_row(row)).collect())
}

fn from_row(row: &[Option<String>]) -> Option<Redirect> {
    let [Some(id), Some(namespace), Some(keyspace), Some(entries)] = row else { return None };
    Some(Redirect {
        id: id.parse().ok()?,
        namespace: namespace.clone(),
        keyspace: keyspace.clone(),
        entries: Strategy::of_entries(entries)?,
    })
}

/// The one of a namespace and keyspace, whatever the shard is called.
pub fn find(
    connection: &mut Connection,
    namespace: &str,
    keyspace: &str,
    entries: Strategy,
) -> Result<Option<Redirect>> {
    let found = all(connection)?;
    let is_it = |r: &Redirect| r.namespace == namespace && r.keyspace == keyspace && r.entries == entries;
    Ok(found.into_iter().find(is_it))
}

/// The routing version with which a plan's keys have left, if the source's redirect knows
/// them.
pub fn known_version(source: &mut Connection, plan: &Plan) -> Result<Option<i64>> {
    let entries = plan.scope.strategy();
    let Some(redirect) = find(source, &plan.source.namespace, &plan.keyspace, entries)? else {
        return Ok(None);
    };
    let rows = source.query(
        &format!("SELECT max(version) FROM {} WHERE token = $1", redirect.table()),
        &[Some(&plan.token)],
    )?;
    Ok(rows.scalar().and_then(|version| version.parse().ok()))
}

/// Enters the plan's keys and creates the triggers that are missing.
pub fn install(source: &mut Connection, plan: &Plan, generation: i64, version: i64) -> Result<()> {
    let observed = observe::observe(source, plan, Side::Source)?;
    let mut tables: Vec<(&TableShape, &Column)> = Vec::new();
    for (policy, shape) in plan.tables.iter().zip(&observed.tables) {
        // What was dropped has no writers.
        if shape.oid.is_none() {
            continue;
        }
        let column = shape.column(&policy.shard_by).ok_or_else(|| {
            SplitError::failed(
                SqlState::parse("42703"),
                format!(
                    "table {} of shard \"{}\" has no column \"{}\"",
                    shape.name, plan.source.shard_key, policy.shard_by
                ),
                "Give the column its name back, then call shard_split_finish again.",
            )
        })?;
        tables.push((shape, column));
    }
    let columns: Vec<&Column> = tables.iter().map(|(_, column)| *column).collect();
    let redirect = enter(source, plan, generation, version, &columns)?;
    reach(injection_points::FINISH_ENTERED)?;
    if let Some(redirect) = redirect {
        for (shape, column) in tables {
            triggers::install_redirect(source, &redirect, shape, column)?;
            reach(injection_points::FINISH_TRIGGER)?;
        }
    }
    Ok(())
}

/// In one transaction: the redirect, what has left, and the look-ups that know it. None:
/// the source has none of the tables any more.
fn enter(
    source: &mut Connection,
    plan: &Plan,
    generation: i64,
    version: i64,
    columns: &[&Column],
) -> Result<Option<Redirect>> {
    let Some(first) = columns.first() else { return Ok(None) };
    tenure::begin_as(source, plan.id, Side::Source, generation)?;
    install::bootstrap(source)?;
    let redirect = ensure(source, plan, first)?;
    let facts = Facts { shard: &plan.target.shard_key, version, split: plan.id, token: &plan.token };
    match &plan.scope {
        Scope::Keys(keys) => {
            let keys = comparable(keys, plan.key_type);
            source.run(&redirect.insert_named(&keys, first, &facts))?;
        }
        Scope::Buckets { buckets, .. } => {
            source.run(&redirect.insert_named(buckets, first, &facts))?;
        }
        Scope::Ranges { of, ranges } => {
            cut_out(source, &redirect, *of, ranges, "true")?;
            let facts = format!("{}, clock_timestamp()", facts.list());
            source.run(&redirect.insert_ranges(ranges, *of, &facts))?;
        }
    }
    if let Some(functions) = plan.scope.functions() {
        source.run(functions)?;
    }
    write_look_ups(source, &redirect, columns)?;
    source.run(&format!("ANALYZE {}", redirect.table()))?;
    source.run("COMMIT")?;
    Ok(Some(redirect))
}

/// Values of char(n) are compared without the blanks behind them.
fn comparable(keys: &[String], key_type: Option<KeyType>) -> Vec<String> {
    match key_type {
        Some(KeyType::Char) => keys.iter().map(|key| key.trim_end_matches(' ').to_owned()).collect(),
        Some(
            KeyType::SmallInt
            | KeyType::Integer
            | KeyType::BigInt
            | KeyType::Numeric
            | KeyType::Text
            | KeyType::VarChar
            | KeyType::Uuid,
        )
        | None => keys.to_vec(),
    }
}

/// The plan's redirect, created if there is none. The caller holds the bootstrap's lock.
fn ensure(source: &mut Connection, plan: &Plan, column: &Column) -> Result<Redirect> {
    let entries = plan.scope.strategy();
    source.query(
        "INSERT INTO shardmaster_agent.redirect (namespace, keyspace, entries) VALUES ($1, $2, $3)
         ON CONFLICT DO NOTHING",
        &[Some(&plan.source.namespace), Some(&plan.keyspace), Some(&entries.entries())],
    )?;
    let found = find(source, &plan.source.namespace, &plan.keyspace, entries)?;
    let redirect = found.ok_or_else(|| SplitError::Retry("the redirect of the source".into()))?;
    source.run(&redirect.create_table(column))?;
    Ok(redirect)
}

/// Those who write look-ups have the bootstrap's lock. This one is for who cuts ranges, and
/// for who must find nothing: no key leaves and none comes back meanwhile; writers only read.
fn lock_entries(connection: &mut Connection, redirect: &Redirect) -> Result<()> {
    connection.run(&format!("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE", redirect.table()))?;
    Ok(())
}

/// Writes the look-up anew for each type of column: those that there are, and the given
/// ones. The number in their texts is that of the row from this commit on.
fn write_look_ups(connection: &mut Connection, redirect: &Redirect, columns: &[&Column]) -> Result<()> {
    let version = connection.run(&format!(
        "UPDATE shardmaster_agent.redirect SET version = version + 1 WHERE id = {} RETURNING version",
        redirect.id
    ))?;
    let version = version.scalar().and_then(|version| version.parse().ok()).unwrap_or(0);
    let mut types = known_types(connection, redirect)?;
    for column in columns {
        if !types.iter().any(|known| known.base == column.base) {
            types.push(agent_redirect::column_type(&column.base, column.is_enum));
        }
    }
    for column in &types {
        let filter = filter(connection, redirect, column)?;
        connection.run(&redirect.look_up(column, version, &filter))?;
    }
    Ok(())
}

/// The types of column for which there is a look-up.
fn known_types(connection: &mut Connection, redirect: &Redirect) -> Result<Vec<Column>> {
    let rows = connection.query(
        "SELECT format_type(t.oid, -1), t.typtype = 'e'
           FROM pg_proc p JOIN pg_type t ON t.oid = p.proargtypes[0]
          WHERE p.pronamespace = 'shardmaster_agent'::regnamespace AND p.proname = $1 ORDER BY t.oid",
        &[Some(&redirect.function())],
    )?;
    let columns = rows.rows.into_iter().filter_map(|row| match row.as_slice() {
        [Some(base), Some(is_enum)] => Some(agent_redirect::column_type(base, is_enum == "t")),
        _ => None,
    });
    Ok(columns.collect())
}

/// What the look-up lets through without a query, for one type of column.
fn filter(connection: &mut Connection, redirect: &Redirect, column: &Column) -> Result<String> {
    let table = redirect.table();
    match redirect.entries {
        Strategy::Directory => filter_of_keys(connection, &table, column),
        Strategy::Hash { of, buckets: count } => {
            let rows = connection.run(&format!("SELECT key FROM {table}"))?;
            let buckets: Vec<String> = rows.rows.into_iter().flatten().flatten().collect();
            Ok(agent_redirect::filter_of_bits(&Filter::of_buckets(of, count, &buckets)))
        }
        Strategy::Range { of } => {
            // Of the table's own column, not of the text of that name.
            let rows = connection.run(&format!(
                "SELECT lower::text, upper::text FROM {table} l ORDER BY l.lower NULLS FIRST"
            ))?;
            let ranges: Vec<Interval> = rows.rows.into_iter().filter_map(interval).collect();
            Ok(agent_redirect::filter_of_ranges(&ranges, of))
        }
    }
}

fn interval(row: Vec<Option<String>>) -> Option<Interval> {
    <[_; 2]>::try_from(row).ok().map(|[lower, upper]| Interval { lower, upper })
}

/// Made of the hashes that this server gives the keys; a number that an integer cannot be
/// is no column's of integers.
fn filter_of_keys(connection: &mut Connection, table: &str, column: &Column) -> Result<String> {
    let (hash, fits) = match column.family() {
        Some(Family::Integer) => (
            "pg_catalog.hashint8extended({}::pg_catalog.int8, 0)",
            "key = trunc(key) AND key BETWEEN -9223372036854775808 AND 9223372036854775807",
        ),
        Some(Family::Numeric) => ("pg_catalog.hash_numeric_extended({}, 0)", "true"),
        Some(Family::Text) => ("pg_catalog.hashtextextended({}::pg_catalog.text, 0)", "true"),
        // Not a cast: whoever owns an enum could have made one.
        Some(Family::Enum(_)) => ("pg_catalog.hashtextextended(pg_catalog.format('%s', {}), 0)", "true"),
        Some(Family::Uuid) => ("pg_catalog.uuid_hash_extended({}, 0)", "true"),
        None => return Ok("true".to_owned()),
    };
    let query = format!("SELECT count(*) FROM {table}");
    let count = connection.count("the number of keys that have left", &query)?;
    let mut filter = Filter::by_hash(hash, usize::try_from(count).unwrap_or(usize::MAX));
    let positions =
        connection.run(&format!("SELECT {} FROM {table} WHERE {fits}", filter.position("key")))?;
    for row in positions.rows {
        if let [Some(position)] = row.as_slice() {
            filter.set(position.parse().unwrap_or(0));
        }
    }
    Ok(agent_redirect::filter_of_bits(&filter))
}

/// Takes ranges out of what has left, of the rows that a condition names; what of them lies
/// outside stays. In a transaction.
fn cut_out(
    connection: &mut Connection,
    redirect: &Redirect,
    of: Ordered,
    back: &[Interval],
    condition: &str,
) -> Result<()> {
    lock_entries(connection, redirect)?;
    let table = redirect.table();
    let rows = connection.run(&format!(
        "SELECT ctid, format('%L, %s, %s, %L, %L::timestamptz', shard, version, split_id, token, since),
                lower::text, upper::text FROM {table} WHERE {condition}"
    ))?;
    for row in rows.rows {
        let Ok([Some(row_id), Some(facts), lower, upper]) = <[_; 4]>::try_from(row) else { continue };
        let range = Interval { lower, upper };
        let mut left = vec![range.clone()];
        for interval in back {
            left = left.iter().flat_map(|part| part.without(interval, of)).collect();
        }
        if left == [range] {
            continue;
        }
        connection.run(&format!("DELETE FROM {table} WHERE ctid = {}", literal(&row_id)))?;
        if !left.is_empty() {
            connection.run(&redirect.insert_ranges(&left, of, &facts))?;
        }
    }
    Ok(())
}

/// Takes what comes back out of a redirect, in the open transaction that lets clients write
/// it here. The look-ups go on as they are: what is not in the table they let through.
pub fn release(connection: &mut Connection, redirect: &Redirect, plan: &Plan) -> Result<()> {
    match &plan.scope {
        Scope::Keys(keys) => {
            let keys = comparable(keys, plan.key_type);
            connection.run(&redirect.delete_named(&keys, "true"))?;
        }
        Scope::Buckets { buckets, .. } => {
            connection.run(&redirect.delete_named(buckets, "true"))?;
        }
        Scope::Ranges { of, ranges } => cut_out(connection, redirect, *of, ranges, "true")?,
    }
    Ok(())
}

/// What ends of what a split has taken away.
pub enum Ending<'a> {
    All,
    /// Keys, buckets, or parts of ranges, by their names.
    Named(&'a [String], Option<KeyType>),
}

/// Commits what has ended, or says that it is not to end after all: then nothing has.
pub type Commit<'a> = &'a mut dyn FnMut(&mut Connection) -> Result<bool>;

/// Where nobody has another word.
pub fn commit(connection: &mut Connection) -> Result<bool> {
    connection.run("COMMIT")?;
    Ok(true)
}

/// Ends what a split, known by its token, has left in a database; triggers and tables go
/// with the last entry, the agent's schema with the last redirect. False: it stays.
pub fn end(
    connection: &mut Connection,
    token: &str,
    ending: &Ending<'_>,
    commit: Commit<'_>,
) -> Result<bool> {
    for redirect in all(connection)? {
        if count(connection, &redirect, Some(token))? > 0 {
            take_out(connection, &redirect, token, ending)?;
            if !commit(connection)? {
                connection.run("ROLLBACK")?;
                return Ok(false);
            }
        }
        tidy(connection, &redirect)?;
    }
    Ok(true)
}

fn count(connection: &mut Connection, redirect: &Redirect, token: Option<&str>) -> Result<i64> {
    let rows = connection.query(
        &format!("SELECT count(*) FROM {} WHERE token = coalesce($1, token)", redirect.table()),
        &[token],
    )?;
    Ok(number::count(connection.shard(), "the number of keys that have left", rows.scalar())?)
}

/// In a transaction, which stays open.
fn take_out(
    connection: &mut Connection,
    redirect: &Redirect,
    token: &str,
    ending: &Ending<'_>,
) -> Result<()> {
    connection.run("BEGIN")?;
    install::bootstrap(connection)?;
    let own = format!("token = {}", literal(token));
    match (ending, redirect.entries) {
        (Ending::All, _) => {
            connection.run(&format!("DELETE FROM {} WHERE {own}", redirect.table()))?;
        }
        (Ending::Named(names, key_type), Strategy::Directory) => {
            connection.run(&redirect.delete_named(&comparable(names, *key_type), &own))?;
        }
        (Ending::Named(names, _), Strategy::Hash { .. }) => {
            connection.run(&redirect.delete_named(names, &own))?;
        }
        (Ending::Named(names, _), Strategy::Range { of }) => {
            let back: Vec<Interval> = names.iter().filter_map(|name| Interval::parse(name, of)).collect();
            cut_out(connection, redirect, of, &back, &own)?;
        }
    }
    write_look_ups(connection, redirect, &[])
}

/// After a split that has brought keys here is finished: the look-ups forget them.
pub fn forget_released(connection: &mut Connection, plan: &Plan) -> Result<()> {
    let entries = plan.scope.strategy();
    let Some(redirect) = find(connection, &plan.target.namespace, &plan.keyspace, entries)? else {
        return Ok(());
    };
    connection.run("BEGIN")?;
    install::bootstrap(connection)?;
    // Another session may have ended it meanwhile.
    if is_there(connection, &redirect)? {
        write_look_ups(connection, &redirect, &[])?;
    }
    connection.run("COMMIT")?;
    tidy(connection, &redirect)
}

fn is_there(connection: &mut Connection, redirect: &Redirect) -> Result<bool> {
    let rows = connection.query("SELECT to_regclass($1)", &[Some(&redirect.table())])?;
    Ok(rows.scalar().is_some())
}

/// Drops the redirects that refuse nothing any more.
pub fn tidy_all(connection: &mut Connection) -> Result<()> {
    all(connection)?.iter().try_for_each(|redirect| tidy(connection, redirect))
}

/// Drops a redirect that refuses nothing any more.
pub fn tidy(connection: &mut Connection, redirect: &Redirect) -> Result<()> {
    if !is_there(connection, redirect)? || count(connection, redirect, None)? > 0 {
        return Ok(());
    }
    match triggers::drop_redirect(connection, redirect) {
        // Keys have left meanwhile, or somebody else was faster.
        Err(SplitError::Remote(error)) if error.is("55006") || error.is("42P01") => return Ok(()),
        other => other?,
    }
    connection.run("BEGIN")?;
    install::bootstrap(connection)?;
    if is_there(connection, redirect)? {
        drop_objects(connection, redirect)?;
    }
    install::drop_unused_schema(connection)?;
    connection.run("COMMIT")?;
    Ok(())
}

fn drop_objects(connection: &mut Connection, redirect: &Redirect) -> Result<()> {
    lock_entries(connection, redirect)?;
    let is_used = connection.query(
        &format!(
            "SELECT EXISTS (SELECT 1 FROM {})
                 OR EXISTS (SELECT 1 FROM pg_trigger t WHERE {})",
            redirect.table(),
            triggers::OF_REDIRECT
        ),
        &[Some(&redirect.function())],
    )?;
    if is_used.scalar() == Some("t") {
        return Ok(());
    }
    for column in known_types(connection, redirect)? {
        for function in [redirect.function(), redirect.filter_function()] {
            connection.run(&format!("DROP FUNCTION shardmaster_agent.{function}({})", column.base))?;
        }
    }
    connection.run(&format!(
        "DROP TABLE {}; DELETE FROM shardmaster_agent.redirect WHERE id = {}",
        redirect.table(),
        redirect.id
    ))?;
    Ok(())
}
