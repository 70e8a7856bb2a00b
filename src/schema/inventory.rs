//! What a shard has of some tables, and of what these need. It reads only catalogs, with the role's login.

use super::blocks;
use super::error;
use super::object::Object;
use crate::catalog::caller::Caller;
use crate::catalog::number_block::{self, GivenBlock};
use crate::catalog::table_policy::{self, ListedTable, TableName};
use crate::catalog::{keyspace, shard};
use crate::error::Failure;
use crate::query::login::{self, Entrance};
use crate::query::opening::Manners;
use crate::query::sessions::QuerySessions;
use crate::remote::fan_out::Question;
use crate::remote::quote::ident;
use crate::remote::template::{fill, sql, text};
use crate::remote::{Connection, RemoteError};
use std::collections::BTreeSet;
use std::time::Duration;

const MEMBERS: &str = include_str!("../../sql/schema/members.sql");
const LAST: &str = include_str!("../../sql/schema/last.sql");
const TYPES: &str = include_str!("../../sql/schema/types.sql");
const PARTS: [&str; 4] = [
    TYPES,
    include_str!("../../sql/schema/tables.sql"),
    include_str!("../../sql/schema/keys.sql"),
    include_str!("../../sql/schema/rights.sql"),
];

/// The objects beside a shard's tables that are not created.
const UNMADE: [&str; 1] = [include_str!("../../sql/schema/unmade.sql")];

/// How long a lock on an existing table is waited for: everybody who comes after waits as well.
pub const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The settings make equal objects have equal texts, and different ones different texts, whatever a login's own
/// settings are. Without JIT, because compiling these queries took a hundred times as long as running them once.
const SETTINGS: &str = "SET jit = off; SET quote_all_identifiers = off; SET transform_null_equals = off; SET default_table_access_method = heap;
    SET check_function_bodies = off; SET search_path = pg_catalog, pg_temp";

/// Some tables on some shards.
pub struct SchemaLook {
    tables: Vec<TableName>,
    pub sessions: QuerySessions,
    /// The numbers that shards have for themselves.
    pub blocks: Vec<GivenBlock>,
}

impl SchemaLook {
    /// Opens sessions for the tables of a keyspace and others beside them, on shards by their keys.
    pub fn open(
        shards: &[&str],
        keyspace: &str,
        also: &[String],
        timeout: Duration,
    ) -> Result<SchemaLook, Failure> {
        let manners = Manners::of_caller();
        let (tables, ways) = Caller::as_owner(|caller| {
            keyspace::find(keyspace)?;
            let tables = tables(keyspace, also)?;
            let role = login::role_of(caller)?;
            let ways = shards.iter().map(|key| {
                let shard = shard::by_key(key)?;
                shard.require_server()?;
                login::entrance(&role, &shard, timeout)
            });
            let ways = ways.collect::<Result<Vec<_>, Failure>>()?;
            Ok::<_, Failure>((tables, ways))
        })?;
        let mut sessions = QuerySessions::open(ways, &[], &manners, timeout, false)?;
        let longest = LONGEST_WAIT.as_millis();
        sessions.ask(Question::of_all(&format!("{SETTINGS}; SET lock_timeout = {longest}")))?;
        Ok(SchemaLook { tables, sessions, blocks: number_block::known() })
    }

    /// Returns the objects of each selected shard, in the order in which they can be created.
    pub fn inventories(&mut self, asks: impl Fn(usize) -> bool) -> Result<Vec<Vec<Object>>, Failure> {
        let tables = self.tables.clone();
        self.inventories_of(&tables, asks)
    }

    /// Returns views, and objects in the same schemas that no selected table needs, for each shard.
    pub fn unmade(&mut self) -> Result<Vec<Vec<Object>>, Failure> {
        let tables = self.tables.clone();
        self.parts_of(&UNMADE, &tables, |_| true)
    }

    /// Returns the objects of the given tables, of each selected shard.
    pub fn inventories_of(
        &mut self,
        tables: &[TableName],
        asks: impl Fn(usize) -> bool,
    ) -> Result<Vec<Vec<Object>>, Failure> {
        self.parts_of(&PARTS, tables, asks)
    }

    fn parts_of(
        &mut self,
        parts: &[&str],
        tables: &[TableName],
        asks: impl Fn(usize) -> bool,
    ) -> Result<Vec<Vec<Object>>, Failure> {
        let mut found: Vec<Vec<(i32, Object)>> = self.sessions.shards().iter().map(|_| Vec::new()).collect();
        for part in parts {
            let questions: Vec<String> =
                self.sessions.shards().iter().map(|entrance| question(part, entrance, tables)).collect();
            let answers = self.sessions.ask(|number| {
                asks(number).then(|| questions.get(number).cloned()).flatten().map(Question::Own)
            })?;
            for ((number, answer), objects) in answers.iter().enumerate().zip(&mut found) {
                let Some(rows) = answer else { continue };
                let key = &self.sessions.shards()[number].shard.shard_key;
                let read = Object::read(rows);
                objects.extend(read.ok_or_else(|| RemoteError::unreadable(key, "what its tables are like"))?);
            }
        }
        let in_order = |(number, mut objects): (usize, Vec<(i32, Object)>)| {
            objects.sort_by_key(|(step, _)| *step);
            let mut objects: Vec<Object> = objects.into_iter().map(|(_, object)| object).collect();
            let key = &self.sessions.shards()[number].shard.shard_key;
            let own: Vec<GivenBlock> =
                self.blocks.iter().filter(|given| given.shard_key == *key).cloned().collect();
            blocks::leave_out(&mut objects, &own);
            objects
        };
        Ok(found.into_iter().enumerate().map(in_order).collect())
    }

    /// Requires that all selected tables are on that shard.
    pub fn require_tables(&self, number: usize, found: &[Object]) -> Result<(), Failure> {
        let entrance = &self.sessions.shards()[number];
        let namespace = &entrance.shard.namespace;
        // The caller's settings decide how names are quoted here, and a table with the name of a catalog is written
        // with its schema.
        let names = found.iter().filter(|object| object.kind == "table");
        let there: BTreeSet<(String, String)> = names
            .filter_map(|object| TableName::parse(&object.name))
            .map(|table| table.on(namespace))
            .collect();
        let is_there = |table: &TableName| there.contains(&table.clone().on(namespace));
        match self.tables.iter().find(|table| !is_there(table)) {
            None => Ok(()),
            Some(table) => Err(error::lacks_table(&entrance.shard.shard_key, &table.quoted())),
        }
    }
}

fn question(part: &str, entrance: &Entrance, tables: &[TableName]) -> String {
    let namespace = &entrance.shard.namespace;
    let place = |table: &TableName| (table.schema.as_ref().unwrap_or(namespace).clone(), table.name.clone());
    let tables: Vec<(String, String)> = tables.iter().map(place).collect();
    filled(part, namespace, &tables, None)
}

/// Fills in tables by schema and name, and functions if their views are requested as well. This also works within a
/// transaction.
fn filled(
    part: &str,
    namespace: &str,
    tables: &[(String, String)],
    functions: Option<&[(String, String)]>,
) -> String {
    let list = |names: &[(String, String)]| {
        let names = names.iter().map(|(schema, name)| serde_json::json!({"nsp": schema, "rel": name}));
        text(serde_json::Value::Array(names.collect()).to_string())
    };
    let with_views = functions.is_some();
    let values = [
        ("tables", list(tables)),
        ("functions", list(functions.unwrap_or_default())),
        ("path", text(path(namespace))),
        ("schema", text(namespace)),
        ("with_views", sql(if with_views { "true" } else { "false" })),
    ];
    let parts = [MEMBERS, part, LAST].map(|part| fill(part, &values)).concat();
    format!("SET search_path = pg_catalog, pg_temp; {parts}")
}

/// Returns what tables and their views need beside themselves: the functions and operators of their schemas, and some
/// other functions. Any session may run it.
pub fn beside(
    session: &mut Connection,
    namespace: &str,
    tables: &[(String, String)],
    functions: &[(String, String)],
) -> Result<Vec<Object>, RemoteError> {
    let [types, mut unmade] = ask(session, [TYPES, UNMADE[0]], namespace, tables, Some(functions))?;
    // A function is written in the same way whether it is needed or not.
    unmade.extend(types.into_iter().filter(|object| object.kind != "function"));
    Ok(unmade)
}

/// Returns the definitions of some tables, with their constraints.
pub fn of_tables(
    session: &mut Connection,
    namespace: &str,
    tables: &[(String, String)],
) -> Result<Vec<Object>, RemoteError> {
    Ok(ask(session, [PARTS[1], PARTS[2]], namespace, tables, None)?.into_iter().flatten().collect())
}

fn ask<const N: usize>(
    session: &mut Connection,
    parts: [&str; N],
    namespace: &str,
    tables: &[(String, String)],
    functions: Option<&[(String, String)]>,
) -> Result<[Vec<Object>; N], RemoteError> {
    session.undone(|session| {
        let mut found = [const { Vec::new() }; N];
        for (part, objects) in parts.iter().zip(&mut found) {
            let rows = session.run(&filled(part, namespace, tables, functions))?;
            let read = Object::read(&rows)
                .ok_or_else(|| RemoteError::unreadable(session.shard(), "what its tables need"))?;
            *objects = read.into_iter().map(|(_, object)| object).collect();
        }
        Ok(found)
    })
}

/// Returns the path for names that are written without a schema.
pub fn path(namespace: &str) -> String {
    format!("{}, pg_temp", ident(namespace))
}

fn tables(keyspace: &str, also: &[String]) -> Result<Vec<TableName>, Failure> {
    let everywhere = table_policy::all(keyspace).into_iter().filter(ListedTable::is_everywhere);
    let names = everywhere.map(|listed| listed.table_name);
    let names: Vec<String> = names.chain(also.iter().cloned()).collect();
    if names.is_empty() {
        return Err(table_policy::no_tables(keyspace));
    }
    let parse = |name: &String| TableName::parse(name).ok_or_else(|| error::not_a_table_name(name));
    names.iter().map(parse).collect()
}
