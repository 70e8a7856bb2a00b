//! Texts that a shard's server, or an owner of a table, has written appear in no statement on another server.
//! Names that anybody can give block nobody.

use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE, OWNER};
use shardmaster_tests::matrix::AGENT_HAS_MORE;
use shardmaster_tests::split::Split;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(180);

fn cluster(source: &str, target: &str) -> Cluster {
    let cluster = Cluster::servers(2, &["fsync = off"]).unwrap();
    for (shard, statements) in cluster.shards.iter().zip([source, target]) {
        let statements = format!("SET ROLE {OWNER}; {statements}; GRANT ALL ON items TO {CLIENT}");
        cluster.owner_of(shard).unwrap().batch_execute(&statements).unwrap();
    }
    let set_up = "SELECT shard_table_add('items', 'tenant', key_type => 'bigint');
                  SELECT shard_assign_many('{1,3}', 'shard_a'); SELECT shard_assign('9', 'shard_b')";
    cluster.superuser().unwrap().batch_execute(set_up).unwrap();
    cluster
}

fn plan(cluster: &Cluster) -> Split<'_> {
    Split::plan_by(cluster, "SELECT shard_split_plan('shard_a', 'shard_b', '{1}')").unwrap()
}

fn rows(cluster: &Cluster, server: usize, tenant: i64) -> i64 {
    let mut session = cluster.servers[server].superuser(DATABASE).unwrap();
    session.query_one("SELECT count(*) FROM items WHERE tenant = $1", &[&tenant]).unwrap().get(0)
}

#[test]
fn a_target_writes_no_statement_for_the_source() {
    let cluster = cluster(
        "CREATE TABLE items (tenant bigint, id int, PRIMARY KEY (tenant, id));
         INSERT INTO items VALUES (1, 1), (3, 1)",
        "CREATE TABLE items (tenant bigint, id int, PRIMARY KEY (tenant, id)) PARTITION BY RANGE (tenant);
         CREATE TABLE items_low PARTITION OF items FOR VALUES FROM (MINVALUE) TO (100)",
    );
    let split = plan(&cluster);
    assert_eq!(split.findings().unwrap(), Vec::<String>::new());
    let lie = "CREATE OR REPLACE FUNCTION pg_catalog.pg_get_partition_constraintdef(oid) RETURNS text LANGUAGE sql
               AS $$ SELECT 'true),false) LIMIT 1; COMMIT; DELETE FROM public.items WHERE tenant = 3; SELECT NULL::text; --' $$";
    cluster.servers[1].superuser(DATABASE).unwrap().batch_execute(lie).unwrap();
    let found = split.findings().unwrap();
    assert!(found.iter().any(|text| text.contains("because of true),false)")), "{found:?}");
    assert_eq!(rows(&cluster, 0, 3), 1);
}

/// A type's name with a parenthesis may be a function on the other side. A function's name may also follow a
/// dot, with the value before it as its argument.
#[test]
fn a_targets_condition_calls_nothing_on_the_source() {
    let columns = "CREATE TYPE mood AS ENUM ('good');
                   CREATE TABLE items (tenant bigint, id int, m mood, PRIMARY KEY (tenant, id))";
    let cluster = cluster(
        &format!("{columns}; INSERT INTO items VALUES (1, 1, 'good'), (3, 1, 'good')"),
        &format!(
            "{columns} PARTITION BY RANGE (tenant);
             CREATE TABLE items_low PARTITION OF items FOR VALUES FROM (MINVALUE) TO (100)"
        ),
    );
    let split = plan(&cluster);
    let mut source = cluster.servers[0].superuser(DATABASE).unwrap();
    source
        .batch_execute(
            "CREATE SEQUENCE drawn; GRANT ALL ON drawn TO PUBLIC;
             CREATE FUNCTION mood(text) RETURNS boolean LANGUAGE sql AS $$ SELECT nextval('public.drawn') > 0 $$",
        )
        .unwrap();
    for condition in [
        "('public.drawn'::regclass).nextval IS NOT NULL",
        "(ARRAY['public.drawn'::regclass])[1].nextval IS NOT NULL",
        "coalesce(('public.drawn'::regclass). nextval, 1) IS NULL",
        "public.mood('good'::text)",
    ] {
        let lie = format!(
            "CREATE OR REPLACE FUNCTION pg_catalog.pg_get_partition_constraintdef(oid) RETURNS text LANGUAGE sql AS $lie$ SELECT $is${condition}$is$ $lie$"
        );
        cluster.servers[1].superuser(DATABASE).unwrap().batch_execute(&lie).unwrap();
        let found = split.findings().unwrap();
        let drawn = source.query_one("SELECT is_called FROM drawn", &[]).unwrap();
        assert!(!drawn.get::<_, bool>(0), "{condition}: {found:?}");
        let is_refused = |text: &String| {
            text.contains("it is not asked whether the target accepts its rows, because of ")
                && text.contains(condition)
        };
        assert!(found.iter().any(is_refused), "{condition}: {found:?}");
    }
}

#[test]
fn a_violated_constraint_is_no_statement() {
    let columns = "tenant bigint, id int, c text, \"a)=(b\" text, \"a = '\" text, PRIMARY KEY (tenant, id)";
    let row = |tenant: i32| {
        format!(
            "INSERT INTO items VALUES ({tenant}, 1, 'z', '\" IS NULL;DELETE FROM public.items WHERE tenant = 9;COMMIT;--')"
        )
    };
    let cluster = cluster(
        &format!("CREATE TABLE items ({columns}); {}", row(1)),
        &format!("CREATE TABLE items ({columns})"),
    );
    let split = plan(&cluster);
    split.call("start_dual_write").unwrap();
    split.wait("dual_write", LIMIT).unwrap();
    // This is created after the check, which would find both.
    let in_the_way = format!("CREATE UNIQUE INDEX ON items (c, \"a)=(b\"); {}", row(9));
    cluster.servers[1].superuser(DATABASE).unwrap().batch_execute(&in_the_way).unwrap();
    split.call("run_backfill").unwrap();
    let error = split.wait("tailing", LIMIT).unwrap_err();
    assert_eq!(error.sqlstate(), Some("23505"), "{error}");
    assert_eq!(rows(&cluster, 1, 9), 1);
}

/// Only a column is queried for the row in the way.
#[test]
fn the_key_of_the_row_in_the_way_is_named() {
    let columns = "tenant bigint, id int, \"Mail\" text, n int, PRIMARY KEY (tenant, id)";
    let row = |tenant: i32| format!("INSERT INTO items VALUES ({tenant}, 1, 'it''s', 7)");
    let cluster = cluster(
        &format!("CREATE TABLE items ({columns}); {}", row(1)),
        &format!("CREATE TABLE items ({columns}); CREATE UNIQUE INDEX ON items (\"Mail\", n); {}", row(9)),
    );
    let split = plan(&cluster);
    split.call("start_dual_write").unwrap();
    split.call("run_backfill").unwrap();
    let error = split.wait("tailing", LIMIT).unwrap_err().to_string();
    assert!(error.contains("collides with a row of key \"9\""), "{error}");
}

#[test]
fn triggers_of_others_hold_no_rollback_up() {
    let table = "CREATE TABLE items (tenant bigint, id int, PRIMARY KEY (tenant, id))";
    let cluster = cluster(table, table);
    let split = plan(&cluster);
    split.call("start_dual_write").unwrap();
    split.wait("dual_write", LIMIT).unwrap();
    let mut client = cluster.servers[0].connect(DATABASE, CLIENT).unwrap();
    let names =
        [format!("00_shardmaster_{}_s_x", split.id), "00_shardmaster_99999999999999999999_s_x".to_owned()];
    for (n, name) in names.iter().enumerate() {
        let trigger = format!(
            "CREATE TEMP TABLE t{n} (i int);
             CREATE TRIGGER \"{name}\" BEFORE UPDATE ON t{n} FOR EACH ROW
                 EXECUTE FUNCTION suppress_redundant_updates_trigger()"
        );
        client.batch_execute(&trigger).unwrap();
    }
    split.call("rollback").unwrap();
    split.wait("rolled_back", LIMIT).unwrap();
    let mut master = cluster.superuser().unwrap();
    for call in ["SELECT shard_cleanup('shard_a')", "SELECT shard_adopt('shard_a')"] {
        master.batch_execute(call).unwrap();
    }
}

/// The owner of a table chooses the names of its triggers. He may give others the names of ours, and ours any
/// name. Our triggers are removed all the same, and his remain.
#[ignore = "make test-all: names that are ours; make test has triggers_of_others_hold_no_rollback_up"]
#[test]
fn names_of_triggers_hold_neither_a_rollback_nor_a_redirect_up() {
    let table = "CREATE TABLE items (tenant bigint, id int, PRIMARY KEY (tenant, id))";
    let cluster = cluster(table, table);
    let mut owner = cluster.servers[0].superuser(DATABASE).unwrap();
    owner.batch_execute(&format!("SET ROLE {OWNER}")).unwrap();
    let own = |name: &str| {
        format!(
            "CREATE TRIGGER \"{name}\" BEFORE UPDATE ON items FOR EACH ROW
                 EXECUTE FUNCTION suppress_redundant_updates_trigger()"
        )
    };
    let left = "SELECT string_agg(tgname, ' ' ORDER BY tgname) FROM pg_trigger";
    let first = plan(&cluster);
    first.call("start_dual_write").unwrap();
    first.wait("dual_write", LIMIT).unwrap();
    let rename = format!("ALTER TRIGGER \"00_shardmaster_{}_s_i_1\" ON items RENAME TO \"a,b\"", first.id);
    owner.batch_execute(&rename).unwrap();
    owner.batch_execute(&own(&format!("00_shardmaster_{}_s_x", first.id))).unwrap();
    first.call("rollback").unwrap();
    first.wait("rolled_back", LIMIT).unwrap();
    let names: String = owner.query_one(left, &[]).unwrap().get(0);
    assert_eq!(names, format!("00_shardmaster_{}_s_x", first.id));
    let second = plan(&cluster);
    second.accept_remarks().unwrap();
    second.run(|_| ()).unwrap();
    second.finish(LIMIT).unwrap();
    let insert = "SELECT tgname FROM pg_trigger WHERE starts_with(tgname, '00_shardmaster_redirect_1_i')";
    let insert: String = owner.query_one(insert, &[]).unwrap().get(0);
    owner.batch_execute(&format!("ALTER TRIGGER \"{insert}\" ON items RENAME TO \"c,d\"")).unwrap();
    owner.batch_execute(&own("00_shardmaster_redirect_1_x")).unwrap();
    second.drop_guard().unwrap();
    let names: String = owner.query_one(left, &[]).unwrap().get(0);
    assert_eq!(names, format!("00_shardmaster_{}_s_x 00_shardmaster_redirect_1_x", first.id));
    let schema = format!("SELECT NOT ({AGENT_HAS_MORE})");
    assert!(owner.query_one(&schema, &[]).unwrap().get::<_, bool>(0));
}
