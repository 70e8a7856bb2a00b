//! The keys of a shard with most rows or bytes, or most writes: from its tables and its statistics, by randomly chosen
//! pages. So a table of any size takes as long as one of some dozens of megabytes.

use super::login::{self, LoginWay};
use super::opening::Manners;
use super::run::chosen;
use super::sessions::QuerySessions;
use super::top_answer::{self, KeyEstimate, TableFacts};
use crate::catalog::caller::Caller;
use crate::catalog::keyspace::{self, Keyspace};
use crate::catalog::routing_history;
use crate::catalog::table_policy::{self, TableName, TablePolicy};
use crate::error::Failure;
use crate::named_enum::named_enum;
use crate::remote::fan_out::Question;
use crate::remote::quote::{ident, literal};
use crate::remote::result::Rows;
use crate::remote::template::{fill, name, number, sql, word};
use std::time::Duration;

/// The greatest number of pages of all tables of a shard that are read.
const MOST_PAGES: f64 = 8192.0;
/// The least number of pages of each table that are read, if it has so many.
const LEAST_PAGES: f64 = 128.0;
/// The number of rows of a table, the last written ones, by which its writes are attributed.
const YOUNGEST: usize = 2000;

named_enum! {
    /// The order of the keys.
    pub enum TopOrder {
        Rows = "rows",
        Bytes = "bytes",
        Writes = "writes",
    }
}

impl TopOrder {
    fn of(self, found: &KeyEstimate) -> i64 {
        match self {
            TopOrder::Rows => found.rows,
            TopOrder::Bytes => found.bytes,
            TopOrder::Writes => found.writes,
        }
    }
}

pub struct TopQuery<'a> {
    pub keyspace: &'a str,
    /// `None` for all active shards; one that does not answer is then reported.
    pub shard: Option<&'a str>,
    pub most: usize,
    pub by: TopOrder,
    /// How long each shard is waited for, in total.
    pub timeout: Duration,
}

/// A key of a shard, and the shard of its route.
pub struct Top {
    pub shard: String,
    pub found: KeyEstimate,
    pub routed_to: Option<String>,
}

/// A shard that has not answered.
pub struct Silent {
    pub shard: String,
    pub why: Failure,
}

/// What is known before a shard is asked.
struct PreparedTop {
    keyspace: Keyspace,
    policies: Vec<TablePolicy>,
    ways: Vec<LoginWay>,
}

impl TopQuery<'_> {
    pub fn ask(&self) -> Result<(Vec<Top>, Vec<Silent>), Failure> {
        let prepared = self.prepare()?;
        let mut sessions = self.open(prepared.ways)?;
        let places: Vec<(String, String)> = sessions
            .shards()
            .iter()
            .map(|entrance| (entrance.shard.shard_key.clone(), entrance.shard.namespace.clone()))
            .collect();
        let namespace = |number: usize| places.get(number).map_or("", |place| place.1.as_str());
        let facts = sessions.ask(|number| {
            let question = facts_question(&prepared.policies, namespace(number));
            Some(Question::Own(format!("{} {question}", self.settings())))
        })?;
        let facts: Vec<Vec<TableFacts>> = facts.iter().map(|rows| facts_of(rows.as_ref())).collect();
        let answers = sessions.ask(|number| {
            let facts = facts.get(number).filter(|facts| !facts.is_empty())?;
            Some(Question::Own(self.question(&prepared.policies, namespace(number), facts)))
        })?;
        let mut all = Vec::new();
        for ((shard, _), rows) in places.iter().zip(&answers) {
            let Some(rows) = rows else { continue };
            let found = top_answer::read(shard, rows, prepared.keyspace.key_type())?;
            all.extend(found.into_iter().map(|found| Top { shard: shard.clone(), found, routed_to: None }));
        }
        let shard_of = |number: usize| places.get(number).map_or(String::new(), |place| place.0.clone());
        let silent = sessions.failures().into_iter();
        let silent = silent.map(|(number, why)| Silent { shard: shard_of(number), why }).collect();
        Ok((self.chosen(&prepared.keyspace, all), silent))
    }

    fn prepare(&self) -> Result<PreparedTop, Failure> {
        Caller::as_owner(|caller| {
            let keyspace = keyspace::find(self.keyspace)?;
            let policies = table_policy::require(self.keyspace)?;
            let role = login::role_of(caller)?;
            let named = self.shard.map(|shard| [shard.to_owned()]);
            let shards = chosen(named.as_ref().map(|names| names.as_slice()))?;
            let ways = shards.iter().map(|shard| login::entrance(&role, shard, self.timeout));
            Ok(PreparedTop { keyspace, policies, ways: ways.collect::<Result<_, _>>()? })
        })
    }

    fn open(&self, ways: Vec<LoginWay>) -> Result<QuerySessions, Failure> {
        let manners = Manners::of_caller();
        match self.shard {
            Some(_) => QuerySessions::open(ways, &[], &manners, self.timeout, false),
            None => QuerySessions::open_each(ways, &manners, self.timeout),
        }
    }

    /// Returns the settings. The server stops automatically when the client is gone; rows that a policy hides are an
    /// error, and not just not counted.
    fn settings(&self) -> String {
        format!(
            "SET search_path = pg_catalog, pg_temp; SET row_security = off; SET default_transaction_read_only = on;
             SET statement_timeout = {};",
            self.timeout.as_millis().min(i32::MAX as u128)
        )
    }

    /// Returns the question. Each table gets its share of the pages by its size.
    fn question(&self, policies: &[TablePolicy], namespace: &str, facts: &[TableFacts]) -> String {
        let all: f64 = facts.iter().map(|facts| facts.pages).sum();
        let table = |facts: &TableFacts| {
            let policy = policies.get(facts.number)?;
            let pages = (MOST_PAGES * facts.pages / all.max(1.0)).max(LEAST_PAGES);
            let part = (pages / facts.pages.max(1.0)).min(1.0);
            Some(table_question(policy, namespace, facts, part))
        };
        let tables: Vec<String> = facts.iter().filter_map(table).collect();
        fill(
            include_str!("../../sql/query/top_shard.sql"),
            &[
                ("by", word(self.by.as_str())),
                ("tables", sql(tables.join("\nUNION ALL\n"))),
                ("most", number(self.most as u64)),
            ],
        )
    }

    /// Returns the keys with most of all shards.
    fn chosen(&self, keyspace: &Keyspace, mut all: Vec<Top>) -> Vec<Top> {
        all.sort_by(|a, b| {
            let first = self.by.of(&b.found).cmp(&self.by.of(&a.found));
            first.then_with(|| (&a.shard, &a.found.key).cmp(&(&b.shard, &b.found.key)))
        });
        all.truncate(self.most);
        // A text that is no key of the keyspace has no route.
        let is_key = |top: &&mut Top| top.found.is_key;
        let keys: Vec<String> =
            all.iter().filter(|top| top.found.is_key).map(|top| top.found.key.clone()).collect();
        let routes = Caller::as_owner(|_| {
            let version = keyspace::latest_version(self.keyspace);
            routing_history::shards_at(keyspace, &keys, version)
        });
        for (top, route) in all.iter_mut().filter(is_key).zip(routes) {
            top.routed_to = route;
        }
        all
    }
}

/// Returns a table's name for a statement that searches no schema of the shard.
fn qualified(policy: &TablePolicy, namespace: &str) -> Option<String> {
    let name = TableName::parse(&policy.table_name)?;
    let schema = name.schema.as_deref().unwrap_or(namespace);
    Some(format!("{}.{}", ident(schema), ident(&name.name)))
}

fn facts_question(policies: &[TablePolicy], namespace: &str) -> String {
    let row = |(number, policy): (usize, &TablePolicy)| {
        Some(format!("({number}, {})", literal(&qualified(policy, namespace)?)))
    };
    let tables: Vec<String> = policies.iter().enumerate().filter_map(row).collect();
    fill(include_str!("../../sql/query/top_facts.sql"), &[("tables", sql(tables.join(", ")))])
}

fn facts_of(rows: Option<&Rows>) -> Vec<TableFacts> {
    rows.map(|rows| rows.rows.iter().filter_map(|row| TableFacts::read(row)).collect()).unwrap_or_default()
}

fn table_question(policy: &TablePolicy, namespace: &str, facts: &TableFacts, part: f64) -> String {
    let page = if part < 1.0 {
        "(r.ctid::pg_catalog.text::pg_catalog.point)[0]"
    } else {
        // All of it is read, so no error must be estimated.
        "NULL::pg_catalog.int8"
    };
    let column = ident(&policy.shard_by);
    fill(
        include_str!("../../sql/query/top_table.sql"),
        &[
            ("table", sql(qualified(policy, namespace).unwrap_or_default())),
            ("key", sql(format!("r.{column}::pg_catalog.text COLLATE \"C\""))),
            ("column", name(&policy.shard_by)),
            ("payload", sql(facts.payload.as_str())),
            ("part", sql(format!("{part:.9}::pg_catalog.float8"))),
            ("percent", sql(format!("{:.7}", part * 100.0))),
            // The same pages are read both times.
            ("seed", number(1)),
            ("page", sql(page)),
            ("bytes", sql(format!("{:.0}::pg_catalog.float8", facts.bytes))),
            ("writes", sql(format!("{:.0}::pg_catalog.float8", facts.writes))),
            ("youngest", number(YOUNGEST as u64)),
        ],
    )
}
