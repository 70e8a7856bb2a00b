//! A statement that all shards run at once. One shard answers for each key: what a split has on two shards is left out
//! on the one that does not answer. If this changes before all shards have their snapshots, they are asked again.

use super::between::{self, Between, Hidden};
use super::encoding;
use super::error;
use super::login::{self, LoginWay};
use super::opening::Manners;
use super::sessions::QuerySessions;
use crate::catalog::caller::Caller;
use crate::catalog::shard::{self, Shard};
use crate::catalog::table_policy::{self, TableName};
use crate::catalog::{database_location, keyspace};
use crate::error::{Failure, on_standby, restricted};
use crate::remote::fan_out::{NextRow, Question, ShardRow};
use crate::remote::quote::array_literal;
use crate::remote::result::Rows;
use crate::server::sql;
use crate::words::listed;
use pgrx::pg_sys;
use std::collections::BTreeSet;
use std::time::Duration;

/// How often splits may change the places of rows before all shards have their snapshots.
const TRIES: u32 = 10;

/// What all shards run.
#[derive(Clone, Copy)]
pub enum Statement<'a> {
    /// A caller's statement.
    Given(&'a str),
    /// A statement for a shard's namespace that names tables with their schemas, except those that the shard's session
    /// sees by their plain names without the rows that its shard does not answer for.
    Made(&'a dyn Fn(&str, &[&Hidden]) -> String),
    /// Such a statement over these tables, of which a shard may lack some: it gets the positions of these.
    Over(&'a [TableName], &'a OverTables<'a>),
}

/// A statement for a namespace, by the tables that its session sees without hidden rows, and by positions of missing
/// tables.
pub type OverTables<'a> = dyn Fn(&str, &[&Hidden], &[usize]) -> String + 'a;

pub struct Query<'a> {
    pub statement: Statement<'a>,
    /// What each row is, of `FROM (statement) AS answer`.
    pub select: &'a str,
    /// What follows that.
    pub then: &'a str,
    pub keyspace: &'a str,
    /// The schema in which unqualified names are searched before each shard's namespace.
    pub first_schema: Option<&'a str>,
    /// `None` for all active shards.
    pub shards: Option<&'a [String]>,
    /// How long each shard is waited for, in total.
    pub timeout: Duration,
    /// A failed shard is a row, and no error.
    pub reports: bool,
    /// Rows that policies of a table would hide from the login are an error (42501), and each shard reports which
    /// database it is.
    pub whole: bool,
}

/// Running statements, whose rows arrive.
pub struct RunningQuery {
    sessions: QuerySessions,
    /// The database of each of them, if that was asked.
    databases: Vec<Option<String>>,
    /// The columns of shards that have no more rows.
    columns: Vec<(usize, ShardRow)>,
    /// Positions of tables that each of them lacks, if some may be missing.
    missing: Vec<Vec<usize>>,
    /// Characters of the statement that each one's encoding lacks.
    letters: Vec<BTreeSet<char>>,
    /// A text that no row contains.
    nothing: String,
}

/// The next result.
pub enum QueryEvent {
    /// A row of the shard with this number.
    Row(usize, ShardRow),
    /// A shard that has failed, with or without rows before.
    Failed(String, Failure),
}

impl Query<'_> {
    /// Begins the query. Returns once all shards have their snapshots and work.
    pub fn begin(&self) -> Result<RunningQuery, Failure> {
        for _ in 0..TRIES {
            if let Some(running) = self.attempt()? {
                return Ok(running);
            }
        }
        Err(error::restless(TRIES))
    }

    /// Tries once. Returns None if a split has changed the places of rows meanwhile.
    fn attempt(&self) -> Result<Option<RunningQuery>, Failure> {
        let QueryTargets { shards: ways, schemas, manners, between } = self.prepare()?;
        let sessions = QuerySessions::open(ways, &schemas, &manners, self.timeout, self.reports)?;
        let mut running = RunningQuery {
            sessions,
            databases: Vec::new(),
            columns: Vec::new(),
            missing: Vec::new(),
            letters: Vec::new(),
            nothing: encoding::nothing(),
        };
        running.look_for_letters(self)?;
        if let Statement::Over(tables, _) = self.statement {
            running.look_for(tables)?;
        }
        let texts = running.hide(self, &between)?;
        if self.whole {
            let question = format!("SET row_security = off; {}", database_location::ITSELF);
            let answers = running.sessions.ask(Question::of_all(&question))?;
            let text = |answer: Option<Rows>| answer.and_then(|rows| rows.scalar().map(str::to_owned));
            running.databases = answers.into_iter().map(text).collect();
        }
        running.take_snapshots()?;
        let now = Caller::as_owner(|_| between::now())?;
        if now.mark != between.mark {
            return Ok(None);
        }
        running.sessions.fan.stream(&texts);
        Ok(Some(running))
    }

    fn prepare(&self) -> Result<QueryTargets, Failure> {
        let manners = Manners::of_caller().with_first(self.first_schema);
        Caller::as_owner(|caller| {
            keyspace::find(self.keyspace)?;
            let role = login::role_of(caller)?;
            // This is read before the shards: one that is added later has nothing.
            let between = between::now()?;
            let shards = chosen(self.shards)?;
            let shards = shards
                .iter()
                .map(|shard| login::entrance(&role, shard, self.timeout))
                .collect::<Result<_, _>>()?;
            Ok(QueryTargets { shards, schemas: schemas_of(self.keyspace), manners, between })
        })
    }

    /// Returns the statement. `seen`: tables that a shard has hidden rows of, and that its session sees without these.
    fn statement(&self, namespace: &str, seen: &[&Hidden], missing: &[usize]) -> String {
        match self.statement {
            Statement::Given(text) => {
                text.trim_end_matches(|c: char| c == ';' || c.is_whitespace()).to_owned()
            }
            Statement::Made(of) => of(namespace, seen),
            Statement::Over(_, of) => of(namespace, seen, missing),
        }
    }

    /// Returns the text with the statement on lines of its own, so that a comment at its end ends there. Whatever it
    /// contains, the result is only a query.
    fn text(&self, statement: &str) -> String {
        format!("SELECT {} FROM (\n{statement}\n) AS answer{}", self.select, self.then)
    }

    /// Whether it may contain ONLY for a table.
    fn says_only(&self) -> bool {
        matches!(self.statement, Statement::Given(text) if between::says_only(text))
    }
}

struct QueryTargets {
    shards: Vec<LoginWay>,
    /// The schemas of tables that are in a schema of their own.
    schemas: Vec<String>,
    manners: Manners,
    between: Between,
}

/// Returns the named shards, or else all active ones.
pub fn chosen(names: Option<&[String]>) -> Result<Vec<Shard>, Failure> {
    let all = || shard::all().into_iter().filter(Shard::holds_rows);
    let Some(names) = names else { return Ok(all().filter(Shard::is_active).collect()) };
    if names.is_empty() {
        return Err(error::no_shard());
    }
    let mut shards: Vec<Shard> = Vec::new();
    for name in names {
        let shard = shard::by_key(name)?;
        shard.require_server()?;
        if !shard.is_active() {
            return Err(error::disabled(&shard.shard_key));
        }
        // If it is named twice, it is asked once.
        if shards.iter().all(|known| known.id != shard.id) {
            shards.push(shard);
        }
    }
    Ok(shards)
}

/// Returns the schemas of a keyspace's tables that are in one of their own.
pub fn schemas_of(keyspace: &str) -> Vec<String> {
    let names = table_policy::all(keyspace)
        .into_iter()
        .filter_map(|policy| TableName::parse(&policy.table_name)?.schema);
    let mut schemas: Vec<String> = names.collect();
    schemas.sort();
    schemas.dedup();
    schemas
}

/// Requires a suitable session, before anything of a call is checked; errors have the function's name.
pub fn require_fit(function: &'static str) -> Result<(), Failure> {
    // SAFETY: these read the state of the server and of the transaction.
    let (is_standby, is_restricted) =
        unsafe { (pg_sys::RecoveryInProgress(), pg_sys::InSecurityRestrictedOperation()) };
    if is_standby {
        return Err(on_standby(function));
    }
    if is_restricted {
        return Err(restricted(function));
    }
    if sql::keeps_its_snapshot() {
        return Err(error::keeps_snapshot(function));
    }
    Ok(())
}

impl RunningQuery {
    /// Hides rows that a shard does not answer for from its session. A statement that could see them all the same is
    /// refused. Returns what each of them must run.
    fn hide(&mut self, query: &Query<'_>, between: &Between) -> Result<Vec<String>, Failure> {
        let shards = self.sessions.shards().iter();
        let hidden: Vec<Option<&Vec<Hidden>>> =
            shards.map(|entrance| between.hidden.get(&entrance.shard.shard_key)).collect();
        let of = |number: usize| hidden.get(number).copied().flatten();
        if hidden.iter().all(Option::is_none) {
            return Ok(self.texts(query, |_| Vec::new()));
        }
        let columns =
            self.sessions.ask(|number| Some(Question::Own(between::columns_question(of(number)?))))?;
        self.require_readable(query, &columns)?;
        let read = |number: usize| Some((of(number)?, columns.get(number)?.as_ref()?));
        self.sessions.ask(|number| {
            let (tables, columns) = read(number)?;
            Some(Question::Own(between::shadows(tables, columns)))
        })?;
        let seen = |number| read(number).map(|(tables, columns)| between::seen(tables, columns));
        let texts = self.texts(query, |number| seen(number).unwrap_or_default());
        // The view contains all of it: rows may be ordered by a function of the whole row.
        let view = |text: &String| {
            format!("CREATE TEMP VIEW {} AS SELECT 1 AS one FROM ({text}) AS asked", between::ASKED)
        };
        self.sessions.ask(|number| of(number).and(texts.get(number)).map(view).map(Question::Single))?;
        self.require_nothing_past(query, &hidden)?;
        Ok(texts)
    }

    /// Makes a column that the login may not read the server's own error, as without a split, and not the error of a
    /// missing column. The server reports this for a statement that it only explains.
    fn require_readable(&mut self, query: &Query<'_>, columns: &[Option<Rows>]) -> Result<(), Failure> {
        let lacks = |number: usize| columns.get(number)?.as_ref().filter(|rows| between::lacks_columns(rows));
        if (0..columns.len()).all(|number| lacks(number).is_none()) {
            return Ok(());
        }
        let texts = self.texts(query, |_| Vec::new());
        let explain = |text: &String| Question::Single(format!("EXPLAIN {text}"));
        let own = |text: &str| Some(Question::Own(text.to_owned()));
        self.sessions.ask(|number| lacks(number).and(own("BEGIN READ ONLY")))?;
        self.sessions.ask(|number| lacks(number).and(texts.get(number)).map(explain))?;
        self.sessions.ask(|number| lacks(number).and(own("ROLLBACK"))).map(drop)
    }

    fn texts<'h>(&self, query: &Query<'_>, seen: impl Fn(usize) -> Vec<&'h Hidden>) -> Vec<String> {
        let shards = self.sessions.shards().iter().enumerate();
        let missing = |number: usize| self.missing.get(number).map(Vec::as_slice).unwrap_or_default();
        shards
            .map(|(number, entrance)| {
                let statement = query.statement(&entrance.shard.namespace, &seen(number), missing(number));
                query.text(&self.readable(query, number, statement))
            })
            .collect()
    }

    fn require_nothing_past(
        &mut self,
        query: &Query<'_>,
        hidden: &[Option<&Vec<Hidden>>],
    ) -> Result<(), Failure> {
        let of = |number: usize| hidden.get(number).copied().flatten();
        let found = self.sessions.ask(|number| Some(Question::Own(between::reads_past(of(number)?))))?;
        for ((entrance, tables), found) in self.sessions.shards().iter().zip(hidden).zip(&found) {
            let Some(tables) = tables else { continue };
            let read = found.as_ref().and_then(|rows| rows.scalar()).map(str::to_owned);
            if let Some(what) = read.or_else(|| query.says_only().then(|| "ONLY".to_owned())) {
                let splits = listed(between::splits(tables));
                return Err(error::reads_past(&entrance.shard.shard_key, &what, &splits));
            }
        }
        Ok(())
    }

    /// Takes the snapshots: the first query of a transaction takes its snapshot.
    fn take_snapshots(&mut self) -> Result<(), Failure> {
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT 1";
        self.sessions.ask(Question::of_all(begin)).map(drop)
    }

    /// Returns what comes next, or None once all shards have answered.
    pub fn next(&mut self) -> Option<QueryEvent> {
        loop {
            match self.sessions.fan.next()? {
                (number, NextRow::Row(row)) => return Some(QueryEvent::Row(number, row)),
                (number, NextRow::Failed(error)) => {
                    let (shard, failure) = self.sessions.failure(number, error);
                    return Some(QueryEvent::Failed(shard, failure));
                }
                (number, NextRow::Columns(row)) => {
                    if self.columns.iter().all(|(known, _)| *known != number) {
                        self.columns.push((number, row));
                    }
                }
                (_, NextRow::End) => {}
            }
        }
    }

    /// Returns the columns of shards that have no more rows, or had none.
    pub fn take_columns(&mut self) -> Vec<(usize, ShardRow)> {
        std::mem::take(&mut self.columns)
    }

    /// Determines which characters of the statement each shard's encoding lacks.
    fn look_for_letters(&mut self, query: &Query<'_>) -> Result<(), Failure> {
        let questions: Vec<Option<String>> = self
            .sessions
            .shards()
            .iter()
            .enumerate()
            .map(|(number, entrance)| {
                if !self.sessions.is_narrow(number) {
                    return None;
                }
                let letters = encoding::letters(&query.statement(&entrance.shard.namespace, &[], &[]));
                (!letters.is_empty()).then(|| encoding::question(&letters))
            })
            .collect();
        if questions.iter().all(Option::is_none) {
            return Ok(());
        }
        let answers = self.sessions.ask(Question::of_each(&questions))?;
        let lacks = |rows: &Rows| rows.scalar().map(encoding::answer).unwrap_or_default();
        self.letters = answers.iter().map(|rows| rows.as_ref().map(lacks).unwrap_or_default()).collect();
        Ok(())
    }

    /// Returns the statement as the shard can read it: no row contains what is compared with characters that its
    /// encoding lacks.
    fn readable(&self, query: &Query<'_>, number: usize, statement: String) -> String {
        let Some(lacks) = self.letters.get(number).filter(|lacks| !lacks.is_empty()) else {
            return statement;
        };
        match query.statement {
            Statement::Given(_) => encoding::compared(&statement, lacks, &self.nothing).unwrap_or(statement),
            Statement::Made(_) => encoding::replaced(&statement, lacks, &self.nothing),
            Statement::Over(..) => statement,
        }
    }

    /// Determines which of the tables each shard lacks.
    fn look_for(&mut self, tables: &[TableName]) -> Result<(), Failure> {
        let questions: Vec<String> = self
            .sessions
            .shards()
            .iter()
            .map(|entrance| {
                let own = &entrance.shard.namespace;
                let schema = |table: &TableName| table.schema.clone().unwrap_or_else(|| own.clone());
                let schemas: Vec<String> = tables.iter().map(schema).collect();
                let names: Vec<String> = tables.iter().map(|table| table.name.clone()).collect();
                format!(
                    "SELECT w.ord FROM ROWS FROM (pg_catalog.unnest({}::pg_catalog.text[]), pg_catalog.unnest({}::pg_catalog.text[]))
                              WITH ORDINALITY AS w (nsp, rel, ord)
                      WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
                                         WHERE n.nspname::pg_catalog.text OPERATOR(pg_catalog.=) w.nsp AND c.relname::pg_catalog.text OPERATOR(pg_catalog.=) w.rel)",
                    array_literal(&schemas),
                    array_literal(&names)
                )
            })
            .collect();
        let answers = self.sessions.ask(|number| questions.get(number).cloned().map(Question::Own))?;
        let positions = |rows: &Rows| {
            let cells = rows.rows.iter().flatten().flatten();
            cells.filter_map(|cell| cell.parse::<usize>().ok()?.checked_sub(1)).collect()
        };
        self.missing = answers.iter().map(|rows| rows.as_ref().map(positions).unwrap_or_default()).collect();
        Ok(())
    }

    /// Returns the shards with the positions of tables that they lack.
    pub fn missing(&self) -> impl Iterator<Item = (&str, &[usize])> {
        let shards = self.sessions.shards().iter().zip(&self.missing);
        shards.map(|(entrance, missing)| (entrance.shard.shard_key.as_str(), missing.as_slice()))
    }

    pub fn reports(&self) -> bool {
        self.sessions.reports()
    }

    /// Returns the database of a shard by its name, or None if it was not asked.
    pub fn database(&self, shard: &str) -> Option<&str> {
        let number = self.sessions.shards().iter().position(|entrance| entrance.shard.shard_key == shard)?;
        self.databases.get(number)?.as_deref()
    }

    pub fn shard(&self, number: usize) -> &str {
        self.sessions.shards().get(number).map_or("", |entrance| &entrance.shard.shard_key)
    }
}
