//! Random changes of routing: after any sequence of assignments, splits, merges and rollbacks, every key is
//! routed to one shard, and every old version gives the same answers as before.

use postgres::Client;
use shardmaster_tests::cluster::{Cluster, DATABASE, OWNER};
use shardmaster_tests::env::at_most;
use shardmaster_tests::random::{Random, seed};
use shardmaster_tests::server::Server;
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(180);
const SHARDS: [&str; 3] = ["shard_a", "shard_b", "shard_c"];
/// The keys are numbers in all three keyspaces.
const KEYS: i64 = 40;
const BUCKETS: i32 = 8;

/// The shard of each key.
type Policy = BTreeMap<i64, String>;

/// One keyspace, and its expected routes.
struct Walk<'a> {
    cluster: &'a Cluster,
    client: Client,
    random: Random,
    keyspace: &'static str,
    now: Policy,
    version: i64,
    versions: BTreeMap<i64, Policy>,
    /// Keys that a split has moved, by the version that it made.
    moved: BTreeMap<i64, BTreeSet<i64>>,
    trail: Vec<String>,
}

impl<'a> Walk<'a> {
    fn new(cluster: &'a Cluster, keyspace: &'static str, seed: u64) -> Walk<'a> {
        let mut walk = Walk {
            cluster,
            client: cluster.superuser().unwrap(),
            random: Random::new(seed),
            keyspace,
            now: Policy::new(),
            version: 0,
            versions: BTreeMap::new(),
            moved: BTreeMap::new(),
            trail: Vec::new(),
        };
        walk.version = walk.ask_version();
        walk.now = walk.read();
        walk.versions.insert(walk.version, walk.now.clone());
        walk
    }

    fn ask_version(&mut self) -> i64 {
        self.client.query_one("SELECT shard_routing_version($1)", &[&self.keyspace]).unwrap().get(0)
    }

    /// Returns the master's routes of all keys, for writing and for reading.
    fn read(&mut self) -> Policy {
        let query = "SELECT k, shard_of(k::text, 'write', $1), shard_of(k::text, 'read', $1)
                       FROM generate_series(0, $2::bigint - 1) k";
        let rows = self.client.query(query, &[&self.keyspace, &KEYS]).unwrap();
        let same = |row: &postgres::Row| assert_eq!(row.get::<_, String>(1), row.get::<_, String>(2));
        rows.iter().inspect(|row| same(row)).map(|row| (row.get(0), row.get(1))).collect()
    }

    /// Chooses keys that form an entry, or a sequence of ranges, and returns how calls name them.
    fn some(&mut self) -> (Vec<i64>, String) {
        let key = self.random.below(KEYS as usize) as i64;
        match self.keyspace {
            "d" => (vec![key], format!("'{key}'")),
            "h" => {
                let query =
                    "SELECT shard_for($1::bigint, $2), array_agg(k) FROM generate_series(0, $3::bigint - 1) k
                              WHERE shard_for(k, $2) = shard_for($1::bigint, $2)";
                let row = self.client.query_one(query, &[&key, &BUCKETS, &KEYS]).unwrap();
                (row.get(1), row.get::<_, i32>(0).to_string())
            }
            _ => {
                let end = key + 1 + self.random.below((KEYS - key) as usize) as i64;
                ((key..end).collect(), format!("'{key}', '{end}'"))
            }
        }
    }

    fn step(&mut self) {
        match self.random.below(8) {
            0..3 => self.assign(),
            3..5 => self.split(),
            5 => self.merge(),
            6 => self.roll_back(),
            _ => self.join(),
        }
    }

    fn assign(&mut self) {
        let (keys, name) = self.some();
        let shard = *self.random.one_of(&SHARDS);
        let function = match self.keyspace {
            "d" => "shard_assign",
            "h" => "shard_assign_bucket",
            _ => "shard_assign_range",
        };
        let force = self.random.below(2) == 0;
        let elsewhere = keys.iter().any(|key| self.now[key] != shard);
        let query = format!("SELECT {function}({name}, '{shard}', '{}', {force})", self.keyspace);
        let told = self.client.query_one(&query, &[]);
        self.trail.push(query);
        assert_eq!(told.is_ok(), force || !elsewhere, "{:?}", self.trail);
        if told.is_ok() {
            for key in keys {
                self.now.insert(key, shard.to_owned());
            }
        }
        self.check();
    }

    fn split(&mut self) {
        let (keys, name) = self.some();
        let source = self.now[&keys[0]].clone();
        let target = *self.random.one_of(&SHARDS);
        let keyspace = self.keyspace;
        let query = match keyspace {
            "r" => format!("SELECT shard_split_plan_range('{source}', '{target}', {name}, keyspace => 'r')"),
            _ => format!(
                "SELECT shard_split_plan('{source}', '{target}', ARRAY[{name}]::text[], keyspace => '{keyspace}')"
            ),
        };
        let possible = source != target && keys.iter().all(|key| self.now[key] == source);
        self.run_split(&query, possible, keys.into_iter().collect(), target);
    }

    fn merge(&mut self) {
        let (source, target) = (*self.random.one_of(&SHARDS), *self.random.one_of(&SHARDS));
        let keys: BTreeSet<i64> =
            self.now.iter().filter(|(_, shard)| *shard == source).map(|(key, _)| *key).collect();
        // There may be only a bucket without a key of ours, or the range beyond the keys.
        if keys.is_empty() {
            return;
        }
        let query =
            format!("SELECT shard_split_plan_all('{source}', '{target}', keyspace => '{}')", self.keyspace);
        self.run_split(&query, source != target, keys, target);
    }

    fn run_split(&mut self, query: &str, possible: bool, keys: BTreeSet<i64>, target: &str) {
        let planned = Split::plan_by(self.cluster, query);
        self.trail.push(query.to_owned());
        assert_eq!(planned.is_ok(), possible, "{:?} {:?}", self.trail, planned.err());
        let Ok(split) = planned else { return };
        self.check();
        if self.random.below(4) == 0 {
            split.call("rollback").unwrap();
            split.wait("rolled_back", LIMIT).unwrap();
        } else {
            split.run(|_| ()).unwrap();
            split.finish(LIMIT).unwrap();
            split.drop_guard().unwrap();
            for key in &keys {
                self.now.insert(*key, target.to_owned());
            }
            let version = self.ask_version();
            self.moved.insert(version, keys);
        }
        self.check();
    }

    fn roll_back(&mut self) {
        let known: Vec<i64> = self.versions.keys().copied().collect();
        let version = *self.random.one_of(&known);
        let then = self.versions[&version].clone();
        let moved_since: BTreeSet<i64> =
            self.moved.range(version + 1..).flat_map(|(_, keys)| keys.iter().copied()).collect();
        let refused = moved_since.iter().any(|key| then[key] != self.now[key]);
        let query = format!("SELECT shard_routing_rollback({version}, '{}')", self.keyspace);
        let told = self.client.query_one(&query, &[]);
        self.trail.push(query);
        match told {
            Ok(_) => {
                assert!(!refused, "{:?}", self.trail);
                self.now = then;
            }
            // The model does not know buckets and ranges without a key of ours.
            Err(error) => {
                assert_eq!(error.code().map(|code| code.code()), Some("55000"), "{:?} {error}", self.trail);
                assert!(refused || self.keyspace != "d", "{:?} {error}", self.trail);
            }
        }
        self.check();
    }

    fn join(&mut self) {
        if self.keyspace == "r" {
            self.client.batch_execute("SELECT shard_join_ranges('r')").unwrap();
            self.trail.push("join".into());
            self.check();
        }
    }

    /// Checks that the master's routes are the model's, now and in every version.
    fn check(&mut self) {
        assert_eq!(self.read(), self.now, "{:?}", self.trail);
        let version = self.ask_version();
        assert!(version <= self.version + 1, "{:?}: {} -> {version}", self.trail, self.version);
        self.version = version;
        self.versions.insert(version, self.now.clone());
        let query = "SELECT v, k, shard_route_at(k::text, v, $1)
                       FROM unnest($2::bigint[]) v, generate_series(0, $3::bigint - 1) k";
        let known: Vec<i64> = self.versions.keys().copied().collect();
        for row in self.client.query(query, &[&self.keyspace, &known, &KEYS]).unwrap() {
            let (version, key, shard): (i64, i64, String) = (row.get(0), row.get(1), row.get(2));
            assert_eq!(self.versions[&version][&key], shard, "key {key} in {version}: {:?}", self.trail);
        }
        let history = "SELECT count(*) = max(version) AND min(version) = 1 FROM shardmaster.routing_version WHERE keyspace = $1";
        assert!(self.client.query_one(history, &[&self.keyspace]).unwrap().get::<_, bool>(0));
    }
}

fn cluster() -> Cluster {
    let cluster = Cluster::namespaces(3, &["fsync = off", "shardmaster.tail_interval = 20"]).unwrap();
    for shard in &cluster.shards {
        cluster
            .owner_of(shard)
            .unwrap()
            .batch_execute(&format!("SET ROLE {OWNER}; CREATE TABLE d (k bigint PRIMARY KEY); CREATE TABLE h (k bigint PRIMARY KEY); CREATE TABLE r (k bigint PRIMARY KEY)"))
            .unwrap();
    }
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(&format!(
            "SELECT shard_keyspace_add('d', 'directory', key_type => 'bigint');
             SELECT shard_assign_many(array_agg(k::text), 'shard_a', 'd') FROM generate_series(0, {KEYS} - 1) k;
             SELECT shard_keyspace_add('h', 'hash', {BUCKETS}, 'bigint');
             SELECT shard_keyspace_add('r', 'range', key_type => 'bigint');
             SELECT shard_assign_range(NULL, NULL, 'shard_a', 'r');
             SELECT shard_table_add(k, 'k', k) FROM unnest('{{d,h,r}}'::text[]) k"
        ))
        .unwrap();
    cluster
}

#[test]
fn every_version_answers_as_it_did() {
    let cluster = cluster();
    let seed = seed();
    for (n, keyspace) in ["d", "h", "r"].into_iter().enumerate() {
        let mut walk = Walk::new(&cluster, keyspace, seed.wrapping_add(n as u64));
        for _ in 0..at_most(4).min(40) {
            walk.step();
        }
    }
}

/// Eight sessions make assignments during a split. The versions have no gaps.
#[test]
fn concurrent_changes_have_a_version_each() {
    let cluster = cluster();
    let split = Split::plan_by(
        &cluster,
        "SELECT shard_split_plan_range('shard_a', 'shard_b', '-100', '-50', keyspace => 'r')",
    )
    .unwrap();
    let told: Vec<i64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8_i64)
            .map(|session| {
                let cluster = &cluster;
                scope.spawn(move || {
                    let mut client = cluster.superuser().unwrap();
                    let assign =
                        "SELECT shard_assign_range($1::bigint::text, ($1 + 1)::text, 'shard_c', 'r', true)";
                    let keys = (0..15).map(|n| session * 1_000 + 2 * n);
                    keys.map(|key| client.query_one(assign, &[&key]).unwrap().get(0)).collect::<Vec<i64>>()
                })
            })
            .collect();
        split.run(|_| ()).unwrap();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(told.iter().collect::<BTreeSet<_>>().len(), 8 * 15);
    let query = "SELECT count(*), max(version), count(*) FILTER (WHERE split_id IS NOT NULL)
                   FROM shardmaster.routing_version WHERE keyspace = 'r'";
    let row = cluster.superuser().unwrap().query_one(query, &[]).unwrap();
    // The versions are the first one, the cut, the split's, and all of these.
    let counts: (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
    assert_eq!(counts, (123, 123, 1));
}

/// A standby of the master routes, and a change is visible with the commit that it replays, even in a session
/// that caches its routes.
#[test]
fn a_standby_routes_as_the_master_does() {
    let cluster = cluster();
    let mut standby = Server::standby_of(&cluster.master, "standby").unwrap();
    standby.run().unwrap();
    let mut there = standby.superuser(DATABASE).unwrap();
    let mut master = cluster.superuser().unwrap();
    let ask = "SELECT shard_of('7', keyspace => 'd'), shard_of('7', keyspace => 'r')";
    for shard in SHARDS.iter().cycle().skip(1).take(7) {
        let assign = "SELECT shard_assign('7', $1, 'd', true), shard_assign_range('0', '20', $1, 'r', true)";
        master.query_one(assign, &[shard]).unwrap();
        let lsn: String = master.query_one("SELECT pg_current_wal_lsn()::text", &[]).unwrap().get(0);
        let replayed = format!("SELECT pg_last_wal_replay_lsn() >= '{lsn}'");
        wait::until_true(&mut there, "the replay", LIMIT, &replayed).unwrap();
        let row = there.query_one(ask, &[]).unwrap();
        assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), (*shard, *shard));
    }
}
