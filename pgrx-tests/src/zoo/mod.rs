//! A zoo of tables: every type, key and shape that moves, and every one that the check refuses. Each is data.
//! The code that drives and compares them shares nothing with the engine.

pub mod comparison;
pub mod driver;
pub mod keys;
pub mod newer_versions;
pub mod refusals;
pub mod requirements;
pub mod settings;
pub mod shapes;
pub mod values;

use crate::cluster::{CLIENT, Cluster, OWNER};
use crate::{Error, Result};

/// The moments at which the rows of a table are changed: before its chunk, after it, and at the fence.
pub const MOMENTS: usize = 3;

/// One table of the zoo. {t} stands for its name in its statements.
#[derive(Clone, Debug)]
pub struct Case {
    /// The name, as SQL writes it.
    pub table: String,
    pub shard_by: &'static str,
    /// The column that writers set: the shard-by column, or the one from which it is generated.
    pub written: &'static str,
    pub source: String,
    pub target: String,
    /// Statements that insert rows of the tenants 'moves' and 'stays'.
    pub fill: Vec<String>,
    pub changes: [Vec<String>; MOMENTS],
    /// Expressions of computed columns, or `None` for columns that are left out.
    pub maps: Vec<(&'static str, Option<&'static str>)>,
    /// The check that refuses the table, or `None` if it moves.
    pub refused: Option<&'static str>,
    /// The first major version that supports the table.
    pub since: u32,
}

pub const TENANTS: [&str; 2] = ["moves", "stays"];

fn quoted(literal: &str) -> String {
    format!("'{}'", literal.replace('\'', "''"))
}

impl Case {
    /// Makes a table with the same shape on both sides.
    pub fn table(table: &str, ddl: &str) -> Case {
        Case {
            table: table.into(),
            shard_by: "tenant",
            written: "tenant",
            source: ddl.into(),
            target: ddl.into(),
            fill: Vec::new(),
            changes: [const { Vec::new() }; MOMENTS],
            maps: Vec::new(),
            refused: None,
            since: 13,
        }
    }

    /// Makes a table with columns after `tenant text, id int` in the key. Its rows and changes are made by
    /// `columns = expressions over i`.
    pub fn shape(table: &str, ddl: &str, columns: &str, expressions: &str) -> Case {
        let rows = |from: i32, to: i32| {
            format!(
                "INSERT INTO {{t}} (tenant, id{columns}) SELECT tenant, i{expressions}
                   FROM unnest('{{moves,stays}}'::text[]) tenant, generate_series({from}, {to}) i"
            )
        };
        let mut case = Case::table(table, ddl);
        case.fill = vec![rows(1, 40)];
        for (moment, changes) in case.changes.iter_mut().enumerate() {
            let from = 100 * (i32::try_from(moment).unwrap_or(0) + 1);
            *changes = vec![
                rows(from, from + 9),
                format!("UPDATE {{t}} SET id = id + 1000 WHERE id % 10 = {moment} AND id < 1000"),
                format!("DELETE FROM {{t}} WHERE id % 10 = {}", moment + 4),
            ];
        }
        case
    }

    pub fn on_target(mut self, ddl: &str) -> Case {
        self.target = ddl.into();
        self
    }

    pub fn by(mut self, column: &'static str) -> Case {
        self.shard_by = column;
        self.written_in(column)
    }

    /// Sets the column to which a shape's statements write the tenant.
    pub fn written_in(mut self, column: &'static str) -> Case {
        self.written = column;
        for statement in self.fill.iter_mut().chain(self.changes.iter_mut().flatten()) {
            *statement = statement.replace("(tenant,", &format!("({column},"));
        }
        self
    }

    pub fn map(mut self, column: &'static str, expression: &'static str) -> Case {
        self.maps.push((column, Some(expression)));
        self
    }

    pub fn left_out(mut self, column: &'static str) -> Case {
        self.maps.push((column, None));
        self
    }

    pub fn refused(mut self, check: &'static str) -> Case {
        self.refused = Some(check);
        self
    }

    pub fn since(mut self, major: u32) -> Case {
        self.since = major;
        self
    }

    fn with_name(&self, statement: &str) -> String {
        statement.replace("{t}", &self.table)
    }

    /// Makes the table on both sides, as the application's owner.
    pub fn create(&self, source: &mut postgres::Client, target: &mut postgres::Client) -> Result<()> {
        self.define(source, &self.source)?;
        self.create_empty(target)?;
        self.fill(source)
    }

    /// Inserts its first rows, of both tenants.
    pub fn fill(&self, session: &mut postgres::Client) -> Result<()> {
        self.run(session, &self.fill)
    }

    /// Makes the table on a target alone.
    pub fn create_empty(&self, target: &mut postgres::Client) -> Result<()> {
        self.define(target, &self.target)
    }

    fn define(&self, session: &mut postgres::Client, ddl: &str) -> Result<()> {
        let ddl = format!(
            "SET ROLE {OWNER}; {ddl}; GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON {{t}} TO {CLIENT}; RESET ROLE"
        );
        session.batch_execute(&self.with_name(&ddl)).map_err(|e| self.said(e, &ddl))
    }

    /// Runs its changes at a moment, in one transaction.
    pub fn change(&self, source: &mut postgres::Client, moment: usize) -> Result<()> {
        self.run(source, self.changes.get(moment).map_or(&[], Vec::as_slice))
    }

    fn run(&self, session: &mut postgres::Client, statements: &[String]) -> Result<()> {
        if statements.is_empty() {
            return Ok(());
        }
        let all = format!("BEGIN; {}; COMMIT", statements.join("; "));
        session.batch_execute(&self.with_name(&all)).map_err(|e| self.said(e, &all))
    }

    fn said(&self, error: postgres::Error, statement: &str) -> Error {
        Error::from(error).context(&format!("table {}: {statement}", self.table))
    }
}

/// Adds the tables to a keyspace.
pub fn add_tables(cluster: &Cluster, keyspace: &str, cases: &[Case]) -> Result<()> {
    let mut master = cluster.superuser()?;
    for case in cases {
        // A keyspace with a key type of its own has it already. Otherwise it is text.
        let query = "SELECT shard_table_add($1, $2, keyspace => $3,
                            key_type => CASE $3 WHEN 'default' THEN 'text'::regtype END)";
        master.execute(query, &[&case.table, &case.shard_by, &keyspace]).map_err(|e| case.said(e, query))?;
    }
    Ok(())
}

/// Sets how the columns of tables are computed in one split.
pub fn add_maps(cluster: &Cluster, split: i64, cases: &[Case]) -> Result<()> {
    let mut master = cluster.superuser()?;
    for case in cases {
        for (column, expression) in &case.maps {
            let query = "SELECT shard_split_map($1, $2, $3, $4)";
            master
                .execute(query, &[&split, &case.table, column, expression])
                .map_err(|e| case.said(e, query))?;
        }
    }
    Ok(())
}
