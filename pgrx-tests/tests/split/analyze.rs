//! The target's tables have statistics when its clients arrive.

use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::fixture::{LIMIT, by_superuser, cluster_of, plan, source};

const TABLES: &str = "
    CREATE TABLE items (tenant text, id int, val text, code int, PRIMARY KEY (tenant, id));
    CREATE TABLE days (tenant text, day int, PRIMARY KEY (tenant, day)) PARTITION BY RANGE (day);
    CREATE TABLE days_1 PARTITION OF days FOR VALUES FROM (0) TO (100);
    CREATE TABLE days_2 PARTITION OF days FOR VALUES FROM (100) TO (200);
    CREATE TABLE big (tenant text, id int, val text, PRIMARY KEY (tenant, id));
    CREATE TABLE held (tenant text, id int, PRIMARY KEY (tenant, id))";

/// Returns the tables that have statistics on the target.
fn analyzed(cluster: &Cluster) -> String {
    let query = "SELECT string_agg(DISTINCT tablename::text, ' ') FROM pg_stats WHERE schemaname = 'public'";
    let mut target = cluster.servers[1].superuser(DATABASE).unwrap();
    target.query_one(query, &[]).unwrap().get::<_, Option<String>>(0).unwrap_or_default()
}

#[test]
fn the_target_has_statistics_before_its_clients_come() {
    let cluster = cluster_of(&["autovacuum = off", "shardmaster.remote_timeout = '10s'"], TABLES);
    let fill = "INSERT INTO days SELECT 'moves', i FROM generate_series(0, 199) i;
                INSERT INTO held SELECT 'moves', i FROM generate_series(0, 199) i;
                INSERT INTO big SELECT 'moves', i, repeat('x', 100) FROM generate_series(1, 100) i";
    source(&cluster).batch_execute(fill).unwrap();
    // About a hundredth of this table is new.
    by_superuser(
        &cluster,
        1,
        "INSERT INTO big SELECT 'other', i, repeat('x', 100) FROM generate_series(1, 20000) i; ANALYZE big",
    );
    let last = "SELECT pg_stat_get_last_analyze_time('big'::regclass)::text";
    let mut target = cluster.servers[1].superuser(DATABASE).unwrap();
    let before: String = target.query_one(last, &[]).unwrap().get(0);
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute("SELECT shard_table_add(t, 'tenant', key_type => 'text') FROM unnest('{days,big,held}'::text[]) t")
        .unwrap();
    // A lock keeps one of the tables from being analyzed. The cutover does not wait, and the history reports it.
    let split = plan(&cluster);
    split.call("start_dual_write").unwrap();
    split.wait("dual_write", LIMIT).unwrap();
    let mut holder = cluster.servers[1].superuser(DATABASE).unwrap();
    holder.batch_execute("BEGIN; LOCK TABLE held IN SHARE UPDATE EXCLUSIVE MODE").unwrap();
    split.run(|_| ()).unwrap();
    let events = split.events().unwrap();
    assert!(events.contains("table public.held of the target was not analyzed"), "{events}");
    assert!(events.contains("lock timeout"), "{events}");
    assert_eq!(analyzed(&cluster), "big days days_1 days_2 items");
    assert_eq!(target.query_one(last, &[]).unwrap().get::<_, String>(0), before);
    let plan_of = "EXPLAIN SELECT * FROM items WHERE tenant = 'moves'";
    let rows: String =
        target.query(plan_of, &[]).unwrap().iter().map(|row| row.get::<_, String>(0)).collect();
    assert!(rows.contains("rows=300"), "{rows}");
    holder.batch_execute("ROLLBACK").unwrap();
    split.finish(LIMIT).unwrap();
}
