//! Takes tables of the zoo through a split, and changes their rows at each moment.

use super::requirements::ServerFeatures;
use super::{Case, add_maps, add_tables, comparison};
use crate::cluster::{Cluster, DATABASE, MOVER};
use crate::split::Split;
use crate::{Error, Result, wait};
use postgres::Client;
use std::time::Duration;

pub const LIMIT: Duration = Duration::from_secs(300);

/// A shard: a database of one of the cluster's servers.
#[derive(Clone, Debug)]
pub struct ShardDatabase {
    pub shard: String,
    pub server: usize,
    pub database: String,
    pub encoding: String,
}

impl ShardDatabase {
    /// Returns the shard of one of the cluster's servers.
    pub fn of(cluster: &Cluster, server: usize) -> ShardDatabase {
        let shard = cluster.shards[server].key.clone();
        ShardDatabase { shard, server, database: DATABASE.into(), encoding: "UTF8".into() }
    }

    /// Creates a database with another encoding, and a shard in it.
    pub fn create(cluster: &Cluster, server: usize, encoding: &str) -> Result<ShardDatabase> {
        let name = format!("{}_{server}", encoding.to_lowercase());
        let place =
            ShardDatabase { shard: name.clone(), server, database: name.clone(), encoding: encoding.into() };
        let at = &cluster.servers[server];
        let mut admin = at.superuser("postgres")?;
        admin.batch_execute(&format!(
            "CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'"
        ))?;
        admin.batch_execute(&format!("GRANT CREATE, TEMP ON DATABASE {name} TO {MOVER}"))?;
        crate::cluster::prepare_shard(&mut at.superuser(&name)?, "public")?;
        cluster.superuser()?.execute("SELECT shard_add($1, $2)", &[&name, &at.conninfo(&name, MOVER)])?;
        Ok(place)
    }

    pub fn session(&self, cluster: &Cluster) -> Result<Client> {
        let mut session = cluster.servers[self.server].superuser(&self.database)?;
        // Literals have the form in which the zoo contains them.
        session.batch_execute(
            "SET search_path = public; SET standard_conforming_strings = on; SET array_nulls = on; SET DateStyle = 'ISO, YMD'",
        )?;
        Ok(session)
    }

    /// Creates the extensions and nondeterministic collations that the server has.
    pub fn furnish(&self, cluster: &Cluster) -> Result<ServerFeatures> {
        ServerFeatures::furnish(&mut self.session(cluster)?)
    }
}

/// Makes both servers of a cluster, with extensions and collations.
pub fn furnished() -> Result<(Cluster, ServerFeatures)> {
    let cluster = cluster()?;
    let has = ShardDatabase::of(&cluster, 0).furnish(&cluster)?;
    ShardDatabase::of(&cluster, 1).furnish(&cluster)?;
    Ok((cluster, has))
}

/// Makes the servers of the zoo.
pub fn cluster() -> Result<Cluster> {
    Cluster::servers(
        2,
        &[
            "fsync = off",
            "shardmaster.tail_interval = 100",
            "shardmaster.cutover_timeout = '120s'",
            "max_locks_per_transaction = 1000",
        ],
    )
}

/// Tables of one keyspace that move from one shard to another.
pub struct Driver<'a> {
    pub cluster: &'a Cluster,
    pub keyspace: &'a str,
    pub source: ShardDatabase,
    pub target: ShardDatabase,
    /// Settings of the sessions that change rows.
    pub writer: &'static str,
}

impl<'a> Driver<'a> {
    /// Makes a driver from the first server to the second.
    pub fn new(cluster: &'a Cluster, keyspace: &'a str) -> Driver<'a> {
        Driver {
            cluster,
            keyspace,
            source: ShardDatabase::of(cluster, 0),
            target: ShardDatabase::of(cluster, 1),
            writer: "",
        }
    }

    /// Makes the tables with rows, and plans the split of the tenant 'moves', or the split of the query.
    pub fn plan(&self, cases: &[Case], query: Option<&str>) -> Result<Split<'a>> {
        for case in cases {
            case.create(&mut self.source.session(self.cluster)?, &mut self.target.session(self.cluster)?)?;
        }
        add_tables(self.cluster, self.keyspace, cases)?;
        let (source, target, keyspace) = (&self.source.shard, &self.target.shard, self.keyspace);
        let tenants =
            format!("SELECT shard_split_plan('{source}', '{target}', '{{moves}}', keyspace => '{keyspace}')");
        if query.is_none() {
            let assign = "SELECT shard_assign_many('{moves,stays}', $1, keyspace => $2)";
            self.cluster.superuser()?.execute(assign, &[source, &keyspace])?;
        }
        let split = Split::plan_by(self.cluster, query.unwrap_or(&tenants))?;
        add_maps(self.cluster, split.id, cases)?;
        split.accept_remarks()?;
        Ok(split)
    }

    /// Runs the changes of each table at a moment, in an ordinary session.
    pub fn change(&self, cases: &[Case], moment: usize) -> Result<()> {
        let mut source = self.source.session(self.cluster)?;
        source.batch_execute(self.writer)?;
        cases.iter().try_for_each(|case| case.change(&mut source, moment))
    }

    /// Takes the tables through the whole split. An error says which rows are wrong. `moved` is a condition
    /// on the shard-by column {by}. Returns how many rows the first window after the copy and the window
    /// after the fence moved. Their number decides which method a window uses
    /// (src/split/copy/small_batch.rs).
    pub fn run(&self, split: &Split<'_>, cases: &[Case], moved: &str) -> Result<[i64; 2]> {
        let found = split.findings()?;
        if !found.is_empty() {
            return Err(format!("refused: {}", found.join("; ")).into());
        }
        split.call("start_dual_write")?;
        split.wait("dual_write", LIMIT)?;
        self.change(cases, 0)?;
        split.call("run_backfill")?;
        split.wait("cutover_pending", LIMIT)?;
        split.call("pause")?;
        wait::until("the split to rest", LIMIT, || {
            Ok((split.metric::<String>("activity")? == "paused").then_some(()))
        })?;
        self.change(cases, 1)?;
        let followed = self.waiting()?;
        split.call("resume")?;
        split.wait_settled(LIMIT)?;
        self.cluster.hold("cutover_disabled")?;
        split.call("cutover")?;
        split.wait_held("cutover_disabled", LIMIT)?;
        self.change(cases, 2)?;
        let fenced = self.waiting()?;
        self.cluster.fault("")?;
        split.wait("completed", LIMIT)?;
        cases.iter().try_for_each(|case| self.require_moved(case, moved))?;
        let stays = format!("({moved}) IS NOT TRUE");
        let equal: Vec<Case> = cases.iter().filter(|case| case.maps.is_empty()).cloned().collect();
        let source = self.held(&self.source, &equal, moved)?;
        if let Some((case, _)) = equal.iter().zip(&source).find(|(_, rows)| rows.len() < 2) {
            return Err(format!("{} has no rows: {}", case.table, case.source).into());
        }
        let mut wrong =
            differences(&equal, "source, target", &source, &self.held(&self.target, &equal, moved)?);
        let staying = self.held(&self.source, cases, &stays)?;
        split.finish(LIMIT)?;
        let none = vec![vec![Vec::new()]; cases.len()];
        wrong.extend(differences(cases, "left", &none, &self.held(&self.source, cases, moved)?));
        wrong.extend(differences(cases, "staying", &staying, &self.held(&self.source, cases, &stays)?));
        wrong.extend(differences(cases, "came along", &none, &self.held(&self.target, cases, &stays)?));
        if wrong.is_empty() { Ok([followed, fenced]) } else { Err(Error::from(wrong.join("\n"))) }
    }

    /// Returns the number of changed rows that wait in the source's queues.
    fn waiting(&self) -> Result<i64> {
        let queues = "SELECT oid::regclass::text FROM pg_class
                       WHERE relnamespace = 'shardmaster_agent'::regnamespace AND relname LIKE 'queue%' AND relkind = 'r'";
        let mut source = self.source.session(self.cluster)?;
        let mut rows = 0;
        for queue in source.query(queues, &[])? {
            let count = format!("SELECT count(*) FROM {}", queue.get::<_, &str>(0));
            rows += source.query_one(&count, &[])?.get::<_, i64>(0);
        }
        Ok(rows)
    }

    /// Checks that the source tells writers of the rows that they have moved.
    fn require_moved(&self, case: &Case, moved: &str) -> Result<()> {
        let (table, written) = (&case.table, case.written);
        let moved = moved.replace("{by}", case.shard_by);
        let write = format!("UPDATE {table} SET {written} = {written} WHERE {moved}");
        match self.source.session(self.cluster)?.batch_execute(&write).map_err(Error::from) {
            Err(error) if error.sqlstate() == Some("SM001") => Ok(()),
            Err(error) => Err(error.context(table)),
            Ok(()) => Err(format!("{table}: the source takes writes of rows that have moved").into()),
        }
    }

    /// Returns the contents of each table on a side.
    fn held(&self, place: &ShardDatabase, cases: &[Case], condition: &str) -> Result<Vec<Vec<Vec<u8>>>> {
        let mut session = place.session(self.cluster)?;
        // If both encodings are equal, the contents are compared byte by byte.
        let same = self.source.encoding == self.target.encoding;
        let encoding = if same { place.encoding.as_str() } else { "UTF8" };
        let of = |case: &Case| {
            comparison::rows(&mut session, case, &condition.replace("{by}", case.shard_by), encoding)
        };
        cases.iter().map(of).collect()
    }
}

fn differences(cases: &[Case], what: &str, left: &[Vec<Vec<u8>>], right: &[Vec<Vec<u8>>]) -> Vec<String> {
    let all = cases.iter().zip(left.iter().zip(right));
    all.filter_map(|(case, (left, right))| comparison::difference(case, what, left, right)).collect()
}

/// Conditions on the tenant.
pub const MOVES: &str = "{by} = 'moves'";
