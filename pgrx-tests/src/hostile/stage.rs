//! Two shards on which everything that has a name has a hostile one: databases, schemas, roles, tables,
//! columns, types, constraints and keys.

use super::sql::outside_quotes;
use super::texts::{MARK, NAMES, all, ident, literal, value};
use crate::Result;
use crate::cluster::{CLIENT, Cluster, DATABASE, OWNER, create_database};
use crate::server::Server;
use postgres::Client;

/// The shards, and the keyspace of their tables.
pub const SHARDS: [&str; 2] = [NAMES[0], NAMES[1]];
pub const KEYSPACE: &str = NAMES[4];
/// Two other keyspaces of one table each: one of ranges, and one whose keys are of an enum.
pub const RANGES: &str = NAMES[5];
pub const KINDS: &str = NAMES[3];
/// The databases, schemas and movers of the two shards.
const DATABASES: [&str; 2] = [NAMES[3], NAMES[1]];
const NAMESPACES: [&str; 2] = [NAMES[2], NAMES[0]];
const MOVERS: [&str; 2] = [NAMES[1], NAMES[5]];
const TRACKED: [&str; 3] =
    ["pg_stat_statements.track = all", "pg_stat_statements.max = 10000", "fsync = off"];

pub struct Table {
    pub name: &'static str,
    pub by: &'static str,
    pub id: &'static str,
    pub payload: &'static str,
}

pub struct HostileCluster {
    pub cluster: Cluster,
    pub keys: Vec<&'static str>,
    pub tables: Vec<Table>,
}

/// Returns tables that use the texts. No two columns of a table have the same one.
fn tables() -> Vec<Table> {
    let texts = all();
    let text = |number: usize| texts[number % texts.len()];
    let table = |n: usize| Table { name: text(n), by: text(n + 7), id: text(n + 11), payload: text(n + 16) };
    (0..texts.len()).step_by(3).map(table).collect()
}

fn keyspace_of(number: usize) -> &'static str {
    match number {
        1 => KINDS,
        3 => RANGES,
        _ => KEYSPACE,
    }
}

impl HostileCluster {
    /// Returns the tables of the first keyspace.
    pub fn of_keyspace(&self) -> impl Iterator<Item = &Table> {
        self.tables.iter().enumerate().filter(|(n, _)| keyspace_of(*n) == KEYSPACE).map(|(_, table)| table)
    }

    pub fn new() -> Result<HostileCluster> {
        let mut config = vec!["shared_preload_libraries = 'shardmaster, pg_stat_statements'"];
        config.extend(TRACKED);
        config.push("shardmaster.tail_interval = 20");
        let mut cluster = Cluster::servers(0, &config)?;
        cluster.superuser()?.batch_execute("CREATE EXTENSION pg_stat_statements")?;
        for side in [0, 1] {
            let mut config = vec!["shared_preload_libraries = 'pg_stat_statements'"];
            config.extend(TRACKED);
            cluster.servers.push(Server::start(["a", "b"][side], &config)?);
        }
        let stage = HostileCluster { cluster, keys: all(), tables: tables() };
        for side in [0, 1] {
            stage.prepare(side)?;
        }
        stage.register()?;
        Ok(stage)
    }

    /// Opens a superuser's session in a shard's database.
    pub fn on(&self, side: usize) -> Result<Client> {
        self.cluster.servers[side].superuser(DATABASES[side])
    }

    /// Opens a client's session in a shard's database.
    pub fn client(&self, side: usize) -> Result<Client> {
        self.cluster.servers[side].connect(DATABASES[side], CLIENT)
    }

    pub fn table(&self, table: &Table, side: usize) -> String {
        format!("{}.{}", ident(NAMESPACES[side]), ident(table.name))
    }

    fn prepare(&self, side: usize) -> Result<()> {
        let server = &self.cluster.servers[side];
        create_database(server)?;
        let (database, mover, schema) =
            (ident(DATABASES[side]), ident(MOVERS[side]), ident(NAMESPACES[side]));
        server.superuser(DATABASE)?.batch_execute(&format!(
            "CREATE ROLE {mover} LOGIN; GRANT {OWNER}, pg_monitor TO {mover};
             GRANT SET ON PARAMETER session_replication_role TO {mover}"
        ))?;
        server.superuser(DATABASE)?.batch_execute(&format!("CREATE DATABASE {database}"))?;
        let mut owner = self.on(side)?;
        owner.batch_execute(&format!(
            "CREATE EXTENSION pg_stat_statements; GRANT CREATE, TEMP ON DATABASE {database} TO {mover};
             CREATE SCHEMA {schema}; GRANT USAGE, CREATE ON SCHEMA {schema} TO {OWNER};
             GRANT USAGE ON SCHEMA {schema} TO {CLIENT};
             GRANT CREATE ON SCHEMA public TO {OWNER}; SET ROLE {OWNER}; SET search_path = {schema}"
        ))?;
        let labels: Vec<String> = self.keys.iter().map(|key| literal(key)).collect();
        let kind = format!("public.{}", ident(&format!("{} type", NAMES[3])));
        owner.batch_execute(&format!("CREATE TYPE {kind} AS ENUM ({})", labels.join(", ")))?;
        for (number, table) in self.tables.iter().enumerate() {
            let by_type = if number == 1 { kind.as_str() } else { "text" };
            owner.batch_execute(&definition(table, by_type, number == 2))?;
            if side == 0 {
                self.fill(&mut owner, table, by_type)?;
            }
        }
        Ok(())
    }

    fn fill(&self, owner: &mut Client, table: &Table, by_type: &str) -> Result<()> {
        let (name, by, id, payload) =
            (ident(table.name), ident(table.by), ident(table.id), ident(table.payload));
        let values: Vec<String> =
            self.keys.iter().map(|key| format!("({}::{by_type})", literal(key))).collect();
        let fill = format!(
            "INSERT INTO {name} ({by}, {id}, {payload}) SELECT key, i, i || key::text
               FROM (VALUES {}) k (key), generate_series(1, 5) i",
            values.join(", ")
        );
        Ok(owner.batch_execute(&fill)?)
    }

    fn register(&self) -> Result<()> {
        let mut master = self.cluster.superuser()?;
        self.add_shards(&mut master)?;
        for keyspace in [KEYSPACE, KINDS] {
            master.execute("SELECT shard_keyspace_add($1, 'directory')", &[&keyspace])?;
        }
        master.execute("SELECT shard_keyspace_add($1, 'range')", &[&RANGES])?;
        for (number, table) in self.tables.iter().enumerate() {
            let keyspace = keyspace_of(number);
            let by = ident(table.by);
            master.execute("SELECT shard_table_add($1, $2, $3)", &[&ident(table.name), &by, &keyspace])?;
        }
        let assign = "SELECT shard_assign_many($1, $2, $3, reason => $4)";
        for keyspace in [KEYSPACE, KINDS] {
            master.execute(assign, &[&self.keys, &SHARDS[0], &keyspace, &NAMES[0]])?;
        }
        master.execute("SELECT shard_assign_range(NULL, NULL, $1, $2)", &[&SHARDS[0], &RANGES])?;
        Ok(())
    }

    /// Adds the shards to a master that does not know them.
    pub fn add_shards(&self, master: &mut Client) -> Result<()> {
        for side in [0, 1] {
            let conninfo = format!(
                "host={} port=5432 dbname={} user={}",
                self.cluster.servers[side].socket_dir().display(),
                value(DATABASES[side]),
                value(MOVERS[side])
            );
            let add = "SELECT shard_add($1, $2, namespace => $3)";
            master.execute(add, &[&SHARDS[side], &conninfo, &NAMESPACES[side]])?;
        }
        Ok(())
    }

    /// Checks everything that a server has run and has: no text was executed.
    pub fn look(&self, client: &mut Client, what: &str) -> Result<()> {
        for row in client.query("SELECT query FROM pg_stat_statements", &[])? {
            let query: String = row.get(0);
            if outside_quotes(&query).contains(MARK) {
                return Err(format!("{what} has run: {query}").into());
            }
        }
        let made = "SELECT relname::text FROM pg_class WHERE relname ~ '^pwned(_[0-9]+)?$'
                    UNION ALL SELECT proname FROM pg_proc WHERE proname ~ '^pwned'
                    UNION ALL SELECT rolname FROM pg_roles WHERE rolname ~ '^pwned'";
        match client.query(made, &[])?.first() {
            Some(row) => Err(format!("{what} has {}", row.get::<_, String>(0)).into()),
            None => Ok(()),
        }
    }
}

fn definition(table: &Table, by_type: &str, is_partitioned: bool) -> String {
    let (name, by, id, payload) = (ident(table.name), ident(table.by), ident(table.id), ident(table.payload));
    let default = literal(table.payload);
    let serial = if is_partitioned { "int" } else { "bigint GENERATED BY DEFAULT AS IDENTITY" };
    let body = format!(
        "CREATE TABLE {name} ({by} {by_type}, {id} int, {payload} text DEFAULT {default}, \"#\" {serial},
                              PRIMARY KEY ({by}, {id}),
                              CONSTRAINT {payload} CHECK ({payload} <> {default}))"
    );
    let parts = if is_partitioned {
        let part = |number: usize| {
            let leaf = ident(&format!("{} leaf", NAMES[number]));
            format!(
                "; CREATE TABLE {leaf} PARTITION OF {name} FOR VALUES WITH (MODULUS 2, REMAINDER {number})"
            )
        };
        format!(" PARTITION BY HASH ({by}){}{}", part(0), part(1))
    } else {
        String::new()
    };
    format!("{body}{parts}; GRANT SELECT, INSERT, UPDATE, DELETE ON {name} TO {CLIENT}")
}
