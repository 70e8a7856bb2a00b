//! Splits between servers of different major versions, in both directions and under load. The master has the
//! version that the extension is built for.

use postgres::Client;
use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE, OWNER};
use shardmaster_tests::deployer::{TABLES, ZOO};
use shardmaster_tests::env::is_long_run;
use shardmaster_tests::fixture::{LIMIT, splits_under_load, state_of};
use shardmaster_tests::split::Split;
use shardmaster_tests::verification::verify;
use shardmaster_tests::workload::Sharding;
use shardmaster_tests::zoo::driver::{Driver, ShardDatabase};
use shardmaster_tests::zoo::requirements::ServerFeatures;
use shardmaster_tests::zoo::{Case, values};

/// All tenants of `sharding` start on a server of the master's version. The plans name that server shard_a,
/// and the one of version `major` shard_b.
fn there_and_back(major: u32, sharding: Sharding, there: &str, back: &str) {
    let mut cluster = Cluster::servers(1, &["fsync = off"]).unwrap();
    cluster.add_major(major).unwrap();
    let version = "SELECT current_setting('server_version_num')::int / 10000";
    let found: i32 =
        cluster.servers[1].superuser("postgres").unwrap().query_one(version, &[]).unwrap().get(0);
    assert_eq!(found.cast_unsigned(), major);
    splits_under_load(&cluster, sharding, &[there, back]);
}

/// Returns the versions to try: the first two, which are the oldest and the newest, and all of them in long runs.
fn tried(majors: &[u32]) -> &[u32] {
    if is_long_run() { majors } else { &majors[..2] }
}

fn tenants(major: u32) {
    there_and_back(
        major,
        Sharding::Directory(vec![0; 8]),
        "SELECT shard_split_plan('shard_a', 'shard_b', '{tenant-00,tenant-02,tenant-04,tenant-05}')",
        "SELECT shard_split_plan('shard_b', 'shard_a', '{tenant-02,tenant-05}')",
    );
}

/// The agent has the hash in PL/pgSQL, which must be the same on every version.
fn buckets(major: u32) {
    there_and_back(
        major,
        Sharding::Hash { buckets: 16, shards: 1 },
        "SELECT shard_split_plan('shard_a', 'shard_b', array_agg(b::text), keyspace => 'tenants')
           FROM generate_series(0, 15, 2) b",
        "SELECT shard_split_plan_all('shard_b', 'shard_a', keyspace => 'tenants')",
    );
}

#[test]
fn tenants_to_13_and_back() {
    tenants(13);
}

#[test]
#[ignore = "between the oldest and the newest"]
fn tenants_to_14_and_back() {
    tenants(14);
}

#[test]
#[ignore = "between the oldest and the newest"]
fn tenants_to_16_and_back() {
    tenants(16);
}

#[test]
#[ignore = "between the oldest and the newest"]
fn tenants_to_17_and_back() {
    tenants(17);
}

#[test]
fn tenants_to_18_and_back() {
    tenants(18);
}

#[test]
fn buckets_to_the_oldest_and_back() {
    buckets(13);
}

#[test]
fn buckets_to_the_newest_and_back() {
    buckets(18);
}

/// Before 15, clones of triggers are marked in another way. A partition that is created or attached later
/// captures, guards and redirects all the same.
fn partitions(major: u32) {
    let mut cluster = Cluster::servers(1, &["fsync = off", "shardmaster.tail_interval = 20"]).unwrap();
    cluster.add_major(major).unwrap();
    let run = |server: usize, statements: &str| {
        let mut owner = cluster.servers[server].superuser(DATABASE).unwrap();
        owner.batch_execute(&format!("SET ROLE {OWNER}; {statements}")).unwrap();
    };
    for server in [0, 1] {
        run(
            server,
            "CREATE TABLE items (tenant text, id int, PRIMARY KEY (tenant, id)) PARTITION BY RANGE (id);
             CREATE TABLE items_1 PARTITION OF items FOR VALUES FROM (0) TO (1000) PARTITION BY HASH (tenant);
             CREATE TABLE items_1a PARTITION OF items_1 FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
        );
        run(server, &format!("GRANT ALL ON items TO {CLIENT}"));
    }
    let mut master = cluster.superuser().unwrap();
    master.batch_execute("SELECT shard_table_add('items', 'tenant', key_type => 'text')").unwrap();
    for (tenant, from, to, source, target) in
        [("a", "shard_a", "shard_b", 0, 1), ("b", "shard_b", "shard_a", 1, 0)]
    {
        master.execute("SELECT shard_assign($1, $2)", &[&tenant, &from]).unwrap();
        run(source, &format!("INSERT INTO items SELECT '{tenant}', i FROM generate_series(1, 100) i"));
        let split = Split::plan(&cluster, from, to, &[tenant]).unwrap();
        split.call("start_dual_write").unwrap();
        split.call("run_backfill").unwrap();
        split.wait("cutover_pending", LIMIT).unwrap();
        let name = format!("items_{tenant}");
        let bound = if source == 0 { 1000 } else { 2000 };
        let create = format!(
            "CREATE TABLE {name} (id int NOT NULL, tenant text NOT NULL); GRANT ALL ON {name} TO {CLIENT};
             ALTER TABLE items ATTACH PARTITION {name} FOR VALUES FROM ({bound}) TO ({bound} + 1000)"
        );
        run(target, &create);
        run(source, &create);
        let insert = format!("INSERT INTO {name} (id, tenant) VALUES ({bound}, '{tenant}')");
        let mut early = cluster.servers[target].connect(DATABASE, CLIENT).unwrap();
        assert_eq!(state_of(&early.batch_execute(&insert).unwrap_err()), "SM002");
        let mut client = cluster.servers[source].connect(DATABASE, CLIENT).unwrap();
        client.batch_execute(&insert).unwrap();
        split.call("cutover").unwrap();
        split.wait("completed", LIMIT).unwrap();
        split.finish(LIMIT).unwrap();
        let insert = insert.replace(&format!("({bound},"), &format!("({bound} + 1,"));
        assert_eq!(state_of(&client.batch_execute(&insert).unwrap_err()), "SM001");
        early.batch_execute(&insert).unwrap();
        let count = "SELECT count(*) FROM items WHERE tenant = $1";
        assert_eq!(early.query_one(count, &[&tenant]).unwrap().get::<_, i64>(0), 102);
        split.drop_guard().unwrap();
    }
}

#[test]
fn partitions_on_the_oldest() {
    partitions(13);
}

#[test]
#[ignore = "what differs, does so on 13, too"]
fn partitions_on_14() {
    partitions(14);
}

#[test]
fn partitions_on_the_newest() {
    partitions(18);
}

/// Returns for each table the number of the moving tenant's rows and the sum of their checksums, written as
/// sessions of a verification write them.
fn sums(cluster: &Cluster, place: &ShardDatabase, cases: &[Case]) -> Vec<(String, i64, String)> {
    let mut session = place.session(cluster).unwrap();
    session
        .batch_execute("SET TimeZone = 'UTC'; SET IntervalStyle = 'postgres'; SET extra_float_digits = 3; SET bytea_output = 'hex'")
        .unwrap();
    let mut of = |case: &Case| {
        let query = format!(
            "SELECT count(*), coalesce(sum(hashtextextended(t::text COLLATE \"C\", 0)), 0)::text
               FROM {} t WHERE tenant = 'moves'",
            case.table
        );
        let row = session.query_one(&query, &[]).unwrap();
        (case.source.clone(), row.get(0), row.get(1))
    };
    cases.iter().map(&mut of).collect()
}

/// The oldest version refuses a value of a type that all versions have. The error names the table, and the
/// same call succeeds once such values are gone.
fn knows_no_infinite_number(split: &Split<'_>, cases: &[Case], source: &mut Client) {
    let error = split.wait("cutover_pending", LIMIT).unwrap_err().to_string();
    assert!(error.contains("in table public.value_"), "{error}");
    for case in cases.iter().filter(|case| case.source.contains(" v num")) {
        source.batch_execute(&format!("DELETE FROM {} WHERE v::text ~ 'Infinity'", case.table)).unwrap();
    }
    split.call("run_backfill").unwrap();
}

/// Values of all types have the same checksum on all versions, so a verification need not transfer the rows.
#[test]
fn checksums_are_the_same_on_all_versions() {
    let mut cluster = Cluster::servers(1, &["fsync = off", "shardmaster.tail_interval = 20"]).unwrap();
    let majors = tried(&[18, 13, 14, 16, 17]);
    majors.iter().for_each(|major| cluster.add_major(*major).unwrap());
    let places: Vec<ShardDatabase> =
        (0..=majors.len()).map(|server| ShardDatabase::of(&cluster, server)).collect();
    let mut cases = values::all();
    // PostgreSQL 16 and later write this type differently, so it is refused between them and older versions.
    cases.retain(|case| !case.source.contains("\"char\""));
    for place in &places {
        let has = ServerFeatures::furnish_in_part(&mut place.session(&cluster).unwrap()).unwrap();
        cases = has.keep(cases).unwrap();
    }
    assert!(cases.len() > 50, "{} tables are left", cases.len());
    let mut drive = Driver::new(&cluster, "default");
    let split = drive.plan(&cases, None).unwrap();
    is_verified(&drive, &split, &cases);
    let everything = sums(&cluster, &drive.source, &cases);
    for place in &places[3..] {
        let mut session = place.session(&cluster).unwrap();
        for case in &cases {
            case.create_empty(&mut session).and_then(|()| case.fill(&mut session)).unwrap();
        }
        assert_eq!(sums(&cluster, place, &cases), everything, "on {}", place.shard);
    }

    split.call("rollback").unwrap();
    split.wait("rolled_back", LIMIT).unwrap();
    drive.target = places[2].clone();
    let mut session = drive.target.session(&cluster).unwrap();
    cases.iter().for_each(|case| case.create_empty(&mut session).unwrap());
    let split = Split::plan(&cluster, &drive.source.shard, &drive.target.shard, &["moves"]).unwrap();
    // Values whose meaning depends on the server are compared as well.
    split.accept_remarks().unwrap();
    split.call("start_dual_write").unwrap();
    split.call("run_backfill").unwrap();
    knows_no_infinite_number(&split, &cases, &mut drive.source.session(&cluster).unwrap());
    is_verified(&drive, &split, &cases);
}

/// Copies all rows and compares them twice: by sums as a verification makes them, and by a verification.
fn is_verified(drive: &Driver<'_>, split: &Split<'_>, cases: &[Case]) {
    if split.phase().unwrap() == "planning" {
        split.call("start_dual_write").unwrap();
        split.call("run_backfill").unwrap();
    }
    split.wait("cutover_pending", LIMIT).unwrap();
    let there = sums(drive.cluster, &drive.target, cases);
    assert_eq!(sums(drive.cluster, &drive.source, cases), there);
    assert!(there.iter().all(|(_, rows, _)| *rows > 0), "{there:?}");
    let told = verify(split);
    assert!(told.iter().all(|told| told.status == "passed" && told.rows > 0), "{told:?}");
    assert_eq!(told.len(), cases.len());
}

/// Each version gets the tables of each other one, and describes them in the same way.
#[test]
fn schemas_are_made_on_all_versions() {
    let mut cluster = Cluster::servers(1, &["fsync = off"]).unwrap();
    let majors = tried(&[13, 18, 14, 16, 17]);
    majors.iter().for_each(|major| cluster.add_major(*major).unwrap());
    for server in &cluster.servers {
        let mut client = server.superuser(DATABASE).unwrap();
        client
            .batch_execute(&format!(
                "CREATE ROLE reader LOGIN; CREATE ROLE deployer LOGIN; GRANT {OWNER} TO deployer; GRANT CREATE ON SCHEMA public TO deployer, {OWNER}"
            ))
            .unwrap();
    }
    let mut owner = cluster.servers[0].superuser(DATABASE).unwrap();
    owner.batch_execute(&format!("SET ROLE {OWNER}; {ZOO}")).unwrap();
    let mut master = cluster.superuser().unwrap();
    for table in TABLES {
        master.execute("SELECT shard_table_add($1, 'tenant', key_type => 'text')", &[&table]).unwrap();
    }
    master.batch_execute("SELECT shard_login_set('postgres', 'deployer')").unwrap();
    let shards: Vec<&str> = cluster.shards.iter().map(|shard| shard.key.as_str()).collect();
    let copy = "SELECT count(*) FROM shard_schema_copy($1, $2)";
    let differ = "SELECT kind || ' ' || object || ': ' || coalesce(in_a, '-') || ' | ' || coalesce(in_b, '-') FROM shard_schema_diff($1, $2) WHERE object <> 'SCHEMA (namespace)'";
    // Before PostgreSQL 15 everybody may create objects in the schema public.
    for (number, shard) in shards.iter().enumerate().skip(1) {
        for (from, is_new) in [(shards[0], true), (shards[number - 1], false)] {
            let made = master.query_one(copy, &[&from, shard]).map(|row| row.get::<_, i64>(0));
            let made = made.unwrap_or_else(|error| panic!("{from} to {shard}: {error:?}"));
            assert_eq!((made > 50, made == 0), (is_new, !is_new), "{from} to {shard}: {made}");
            let found: Vec<String> =
                master.query(differ, &[&from, shard]).unwrap().iter().map(|row| row.get(0)).collect();
            assert_eq!(found, Vec::<String>::new(), "{from} and {shard}");
        }
    }
    // Constraints that hold only for new rows are visible from 18 on.
    let newest = 1 + majors.iter().position(|major| *major == 18).unwrap();
    let mut client = cluster.servers[newest].superuser(DATABASE).unwrap();
    client.batch_execute("ALTER TABLE kind ADD note text; ALTER TABLE kind ADD CONSTRAINT has_note NOT NULL note NOT VALID").unwrap();
    let column = "SELECT in_b FROM shard_schema_diff($1, $2) WHERE object = 'kind.note'";
    let found: String = master.query_one(column, &[&shards[0], &shards[newest]]).unwrap().get(0);
    assert_eq!(found, "text NOT NULL NOT VALID");
}
