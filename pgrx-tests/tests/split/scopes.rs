//! Splits of every scope under load: buckets, ranges, and everything on a shard.

use shardmaster_tests::cluster::{Cluster, DATABASE, MOVER, OWNER};
use shardmaster_tests::fixture::{load, splits_under_load as under_load, to_pending};
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use shardmaster_tests::workload::{Sharding, Workload};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(300);

/// Returns the number of rows that a shard holds.
fn rows(cluster: &Cluster, shard: usize) -> i64 {
    let query = "SELECT count(*) FROM accounts";
    cluster.owner_of(&cluster.shards[shard]).unwrap().query_one(query, &[]).unwrap().get(0)
}

fn entries(cluster: &Cluster) -> Vec<(Option<String>, Option<String>, String)> {
    let query = "SELECT lower, upper, write_shard FROM shard_entries('tenants')";
    let rows = cluster.superuser().unwrap().query(query, &[]).unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

#[test]
#[ignore = "make test-all: servers of one version; make test has split::major_versions::buckets_to_the_oldest_and_back"]
fn buckets_move_and_some_come_back() {
    let cluster = Cluster::servers(2, &[]).unwrap();
    // The tenants are in 6 of the buckets.
    let sharding = Sharding::Hash { buckets: 16, shards: 1 };
    under_load(
        &cluster,
        sharding,
        &[
            "SELECT shard_split_plan('shard_a', 'shard_b', array_agg(b::text), keyspace => 'tenants')
               FROM generate_series(0, 15, 2) b",
            "SELECT shard_split_plan('shard_b', 'shard_a', array_agg(b::text), keyspace => 'tenants')
               FROM generate_series(0, 15, 4) b",
        ],
    );
    let query = "SELECT write_shard, count(*) FROM shard_entries('tenants') GROUP BY 1 ORDER BY 1";
    let found = cluster.superuser().unwrap().query(query, &[]).unwrap();
    let found: Vec<(String, i64)> = found.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(found, [("shard_a".to_owned(), 12), ("shard_b".to_owned(), 4)]);
}

#[test]
#[ignore = "make test-all: no guards; make test has routing::guard_splits::a_range_goes_between_guarded_namespaces_and_a_part_comes_back"]
fn a_range_is_cut_out_and_a_part_of_it_comes_back() {
    let cluster = Cluster::namespaces(2, &[]).unwrap();
    under_load(
        &cluster,
        Sharding::Range(vec![]),
        &[
            "SELECT shard_split_plan_range('shard_a', 'shard_b', 'tenant-02', 'tenant-06', keyspace => 'tenants')",
            "SELECT shard_split_plan_range('shard_b', 'shard_a', 'tenant-03', 'tenant-05', keyspace => 'tenants')",
        ],
    );
    let bound = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let expected = [
        ("", "tenant-02", "shard_a"),
        ("tenant-02", "tenant-03", "shard_b"),
        ("tenant-03", "tenant-05", "shard_a"),
        ("tenant-05", "tenant-06", "shard_b"),
        ("tenant-06", "", "shard_a"),
    ];
    let expected: Vec<_> = expected.iter().map(|(l, u, s)| (bound(l), bound(u), (*s).to_owned())).collect();
    assert_eq!(entries(&cluster), expected);
}

#[test]
#[ignore = "make test-all: a whole shard; make test has split::major_versions::buckets_to_the_newest_and_back"]
fn two_shards_become_one() {
    let cluster = Cluster::servers(2, &[]).unwrap();
    let merge = "SELECT shard_split_plan_all('shard_b', 'shard_a', keyspace => 'tenants')";
    under_load(&cluster, Sharding::Range(vec!["tenant-03", "tenant-05", "tenant-06"]), &[merge]);
    assert_eq!(rows(&cluster, 1), 0);
    cluster.superuser().unwrap().batch_execute("SELECT shard_join_ranges('tenants')").unwrap();
    assert_eq!(entries(&cluster), [(None, None, "shard_a".to_owned())]);
    let nothing = Split::plan_by(&cluster, merge).err().unwrap();
    assert_eq!(nothing.sqlstate(), Some("22023"), "{nothing}");
}

#[test]
#[ignore = "make test-all: a shard that is emptied; make test has split::major_versions::buckets_to_the_newest_and_back"]
fn a_whole_shard_moves_to_a_new_server() {
    let cluster = Cluster::servers(2, &[]).unwrap();
    under_load(
        &cluster,
        Sharding::Directory(vec![0; 8]),
        &["SELECT shard_split_plan_all('shard_a', 'shard_b', 'the old server goes')"],
    );
    assert_eq!(rows(&cluster, 0), 0);
}

#[test]
#[ignore = "make test-all: three shards; make test has split::major_versions::buckets_to_the_newest_and_back"]
fn several_shards_one_after_the_other_into_one() {
    let cluster = Cluster::servers(3, &[]).unwrap();
    under_load(
        &cluster,
        Sharding::Hash { buckets: 8, shards: 2 },
        &[
            "SELECT shard_split_plan_all('shard_a', 'shard_c', keyspace => 'tenants')",
            "SELECT shard_split_plan_all('shard_b', 'shard_c', keyspace => 'tenants')",
        ],
    );
    assert_eq!((rows(&cluster, 0), rows(&cluster, 1)), (0, 0));
}

/// The target's tables are newer. They have wider types, a column with a default, one that is computed from
/// the source's row, and one column less.
#[test]
fn tables_migrate_on_the_way() {
    let cluster = Cluster::servers(2, &[]).unwrap();
    let mut workload = Workload::prepare(&cluster, load(Sharding::Directory(vec![0; 8]))).unwrap();
    let alter = |shard: usize, statements: &str| {
        let mut owner = cluster.owner_of(&cluster.shards[shard]).unwrap();
        owner.batch_execute(&format!("SET ROLE {OWNER}; {statements}")).unwrap();
    };
    alter(0, "ALTER TABLE orders ADD legacy text DEFAULT 'old'");
    alter(
        1,
        "ALTER TABLE accounts ADD added text NOT NULL DEFAULT 'new', ALTER code TYPE varchar, ALTER amount TYPE numeric;
         ALTER TABLE orders ADD label text",
    );
    workload.start();
    workload.wait_for(500, LIMIT).unwrap();
    let split =
        Split::plan(&cluster, "shard_a", "shard_b", &["tenant-00", "tenant-02", "tenant-04"]).unwrap();
    let refused = || split.findings().unwrap().join("; ");
    assert!(refused().contains("column \"legacy\" is missing on the target"), "{}", refused());
    let map = |column: &str, expression: Option<&str>| {
        let query = "SELECT shard_split_map($1, 'orders', $2, $3)";
        cluster.superuser().unwrap().execute(query, &[&split.id, &column, &expression]).map(drop)
    };
    map("no_such_column", None).unwrap();
    assert!(refused().contains("is mapped, but on neither side"), "{}", refused());
    map("no_such_column", Some("no_such_column")).unwrap();
    map("legacy", None).unwrap();
    map("label", Some("'order ' || no_such_column")).unwrap();
    assert!(refused().contains("no_such_column"), "{}", refused());
    map("label", Some("'order ' || ref")).unwrap();
    // The only finding left is that the target does not round amounts.
    assert!(split.findings().unwrap().iter().all(|found| found.contains("\"amount\"")), "{}", refused());
    split.accept_remarks().unwrap();
    assert_eq!(refused(), "");
    split.run(|_| ()).unwrap();
    let reverse = format!("SELECT shard_split_reverse({})", split.id);
    let no_way_back = cluster.superuser().unwrap().batch_execute(&reverse).unwrap_err();
    let why = no_way_back.as_db_error().and_then(|error| error.hint()).unwrap_or_default();
    assert!(why.contains("Columns of table orders are mapped"), "{no_way_back:?}");
    let late = map("label", None).unwrap_err();
    assert_eq!(late.code().map(|code| code.code().to_owned()).as_deref(), Some("55000"));
    workload.wait_for(300, LIMIT).unwrap();
    split.finish(LIMIT).unwrap();
    workload.stop().unwrap();
    let report = workload.report(&cluster).unwrap();
    assert!(report.is_clean(), "{report}");
    // Rows that were copied or changed by the split have computed values; clients write their own.
    let mut target = cluster.owner_of(&cluster.shards[1]).unwrap();
    let query = "SELECT count(*) FILTER (WHERE label IS NOT NULL) > 2000,
                        count(*) FILTER (WHERE label <> 'order ' || ref),
                        (SELECT count(*) FROM accounts WHERE added <> 'new') FROM orders";
    let row = target.query_one(query, &[]).unwrap();
    assert_eq!((row.get::<_, bool>(0), row.get::<_, i64>(1), row.get::<_, i64>(2)), (true, 0, 0));
}

/// Returns the schemas whose hash the mover's sessions on a shard call.
fn hashes(cluster: &Cluster, shard: usize) -> Vec<String> {
    let query = "SELECT DISTINCT substring(prosrc FROM 'THEN (.*)\\.shard_for') FROM pg_proc
                  WHERE proname = 'shard_for' AND pronamespace::regnamespace::text LIKE 'pg_temp%'";
    let rows = cluster.servers[shard].superuser(DATABASE).unwrap().query(query, &[]).unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

const INSTALLED: &str = include_str!("../../../sql/agent/installed_hash.sql");

/// The owner of an extension's schema on a shard may give its name to another schema. The mover calls
/// functions only in schemas of a superuser or its own.
fn only_of_trusted_schemas(cluster: &Cluster) {
    let mut admin = cluster.servers[0].superuser(DATABASE).unwrap();
    let mut mover = cluster.servers[0].connect(DATABASE, MOVER).unwrap();
    let own = Some("\"its own\"".to_owned());
    let mut cases =
        vec![("postgres".to_owned(), own.clone()), (OWNER.to_owned(), None), (MOVER.to_owned(), own.clone())];
    let version: String = admin.query_one("SHOW server_version_num", &[]).unwrap().get(0);
    if version.parse::<u32>().unwrap() >= 140_000 {
        cases.push((format!("pg_database_owner; ALTER DATABASE {DATABASE} OWNER TO postgres"), own));
        cases.push((format!("pg_database_owner; ALTER DATABASE {DATABASE} OWNER TO {OWNER}"), None));
    }
    let database = "SELECT datdba::regrole::text FROM pg_database WHERE datname = current_database()";
    let before: String = admin.query_one(database, &[]).unwrap().get(0);
    for (owner, taken) in cases {
        admin.batch_execute(&format!("ALTER SCHEMA \"its own\" OWNER TO {owner}")).unwrap();
        admin.batch_execute(&format!("GRANT USAGE ON SCHEMA \"its own\" TO {MOVER}")).unwrap();
        let found = mover.query_opt(INSTALLED, &[]).unwrap().map(|row| row.get::<_, String>(0));
        assert_eq!(found, taken, "{owner}");
    }
    admin
        .batch_execute(&format!(
            "ALTER SCHEMA \"its own\" OWNER TO postgres; ALTER DATABASE {DATABASE} OWNER TO {before};
             GRANT USAGE ON SCHEMA \"its own\" TO {MOVER}"
        ))
        .unwrap();
}

/// A shard that has the extension hashes with it, until it is dropped.
#[test]
#[ignore = "make test-all: hashing alone; make test has split::native_capture::no_change_goes_by_whatever_is_done_to_table_and_function"]
fn an_extension_on_a_shard_may_go_while_buckets_move() {
    let cluster = Cluster::servers(2, &[]).unwrap();
    let mut shard = cluster.servers[0].superuser(DATABASE).unwrap();
    shard
        .batch_execute("CREATE SCHEMA \"its own\"; CREATE EXTENSION shardmaster SCHEMA \"its own\"")
        .unwrap();
    shard.batch_execute(&format!("GRANT USAGE ON SCHEMA \"its own\" TO {MOVER}")).unwrap();
    only_of_trusted_schemas(&cluster);
    // The other shard has the extension, too, in a schema of another role.
    cluster.servers[1]
        .superuser(DATABASE)
        .unwrap()
        .batch_execute(&format!(
            "CREATE SCHEMA others; CREATE EXTENSION shardmaster SCHEMA others; ALTER SCHEMA others OWNER TO {OWNER};
             GRANT USAGE ON SCHEMA others TO {MOVER}"
        ))
        .unwrap();
    let sharding = Sharding::Hash { buckets: 16, shards: 1 };
    let mut workload = Workload::prepare(&cluster, load(sharding)).unwrap();
    workload.start();
    let plan = "SELECT shard_split_plan('shard_a', 'shard_b', array_agg(b::text), keyspace => 'tenants')
                  FROM generate_series(0, 15, 2) b";
    let split = Split::plan_by(&cluster, plan).unwrap();
    to_pending(&split);
    assert_eq!(
        (hashes(&cluster, 0), hashes(&cluster, 1)),
        (vec!["\"its own\"".into()], vec!["shardmaster_agent".into()])
    );
    shard.batch_execute("DROP EXTENSION shardmaster").unwrap();
    wait::until("the agent's hash", LIMIT, || {
        Ok((hashes(&cluster, 0) == ["shardmaster_agent"]).then_some(()))
    })
    .unwrap();
    workload.wait_for(300, LIMIT).unwrap();
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    workload.wait_for(300, LIMIT).unwrap();
    split.finish(LIMIT).unwrap();
    workload.stop().unwrap();
    let report = workload.report(&cluster).unwrap();
    assert!(report.is_clean(), "{report}");
}

/// Two splits bring back two parts of a range at once. Each leaves the part of the redirect that the other one needs.
#[test]
#[ignore = "make test-all: two splits at once; make test has routing::guard_splits::a_range_goes_between_guarded_namespaces_and_a_part_comes_back"]
fn two_parts_of_a_range_come_back_at_once() {
    let cluster = Cluster::servers(2, &["fsync = off"]).unwrap();
    for shard in &cluster.shards {
        let table = format!("SET ROLE {OWNER}; CREATE TABLE numbers (id bigint PRIMARY KEY)");
        cluster.owner_of(shard).unwrap().batch_execute(&table).unwrap();
    }
    let mut master = cluster.superuser().unwrap();
    let set_up = "SELECT shard_keyspace_add('numbers', 'range', key_type => 'bigint');
                  SELECT shard_assign_range(NULL, NULL, 'shard_a', 'numbers');
                  SELECT shard_table_add('numbers', 'id', 'numbers')";
    master.batch_execute(set_up).unwrap();
    let plan = |from: &str, to: &str, lower: i32, upper: i32| {
        let query = "SELECT shard_split_plan_range($1, $2, $3, $4, keyspace => 'numbers')";
        let arguments: [&(dyn postgres::types::ToSql + Sync); 4] =
            [&from, &to, &lower.to_string(), &upper.to_string()];
        Split::of(&cluster, cluster.superuser().unwrap().query_one(query, &arguments).unwrap().get(0))
    };
    let away = plan("shard_a", "shard_b", 0, 100);
    away.run(|_| ()).unwrap();
    away.finish(LIMIT).unwrap();
    let back = [plan("shard_b", "shard_a", 0, 50), plan("shard_b", "shard_a", 50, 100)];
    for split in &back {
        to_pending(split);
    }
    cluster.hold("cutover_decided").unwrap();
    for split in &back {
        split.call("cutover").unwrap();
    }
    for split in &back {
        split.wait_held("cutover_decided", LIMIT).unwrap();
    }
    // Both have to wait for the redirect's table, so they reach it at the same time.
    let guard = "shardmaster_agent.left_1";
    let mut shard = cluster.owner_of(&cluster.shards[0]).unwrap();
    let mut lock = shard.transaction().unwrap();
    lock.batch_execute(&format!("LOCK TABLE {guard} IN SHARE ROW EXCLUSIVE MODE")).unwrap();
    cluster.fault("").unwrap();
    let waiting =
        format!("SELECT count(*) = 2 FROM pg_locks WHERE relation = '{guard}'::regclass AND NOT granted");
    let mut watch = cluster.owner_of(&cluster.shards[0]).unwrap();
    wait::until_true(&mut watch, "both splits at the redirect", LIMIT, &waiting).unwrap();
    lock.commit().unwrap();
    for split in &back {
        split.wait("completed", LIMIT).unwrap();
    }
    let left: i64 = watch.query_one(&format!("SELECT count(*) FROM {guard}"), &[]).unwrap().get(0);
    assert_eq!(left, 0);
}
