//! Redirects: they refuse clients with a stale route on a shard that keys have left for good. Tests their
//! cost for the keys that stay, too.

use postgres::Client;
use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE, OWNER};
use shardmaster_tests::env::is_long_run;
use shardmaster_tests::fixture::{
    LIMIT, by_owner, client, cluster, cluster_of, finished, forget_splits, insert, outcome, plan, source,
};
use shardmaster_tests::matrix::{AGENT_HAS_MORE, leftovers};
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use std::thread;

fn agent_objects(cluster: &Cluster) -> (i64, i64) {
    let query = "SELECT (SELECT count(*) FROM pg_trigger WHERE tgname LIKE '%shardmaster%'),
                        (SELECT count(*) FROM pg_class c WHERE c.relnamespace = to_regnamespace('shardmaster_agent')
                            AND c.relkind IN ('r', 'S'))
                      + (SELECT count(*) FROM pg_proc p WHERE p.pronamespace = to_regnamespace('shardmaster_agent'))";
    let row = source(cluster).query_one(query, &[]).unwrap();
    (row.get(0), row.get(1))
}

/// The cost of a write does not grow with the number of keys that have left.
#[test]
#[ignore = "make test-all: many splits; make test has a_stale_client_is_told_where_the_key_is"]
fn many_finished_splits_leave_as_much_as_one() {
    let splits = if is_long_run() { 30 } else { 8 };
    let cluster = cluster(&[]);
    let mut master = cluster.superuser().unwrap();
    let mut after_one = None;
    for number in 0..splits {
        let tenant = format!("tenant {number}");
        master.execute("SELECT shard_assign($1, 'shard_a')", &[&tenant]).unwrap();
        client(&cluster).batch_execute(&insert(&tenant, 1)).unwrap();
        finished(&Split::plan(&cluster, "shard_a", "shard_b", &[&tenant]).unwrap());
        let objects = agent_objects(&cluster);
        assert_eq!(objects.0, 4, "triggers after {} splits", number + 1);
        assert_eq!(*after_one.get_or_insert(objects), objects);
    }
    let mut client = client(&cluster);
    for number in 0..splits {
        assert_eq!(outcome(&mut client, &insert(&format!("tenant {number}"), 2)), "SM001");
    }
    client.batch_execute(&insert("stays", 9001)).unwrap();
    let query = "SELECT count(*), sum(keys)::bigint FROM shard_guards() WHERE state = 'redirect' AND shard_key = 'shard_a'";
    let row = master.query_one(query, &[]).unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (i64::from(splits), i64::from(splits)));
}

/// An insert, an update to the key and of its rows, and a delete. Writes of keys that stay are accepted.
#[test]
fn a_stale_client_is_told_where_the_key_is() {
    let cluster = cluster(&[]);
    let notes = format!(
        "CREATE TABLE notes (tenant text, id int, PRIMARY KEY (tenant, id)); GRANT ALL ON notes TO {CLIENT}"
    );
    [0, 1].iter().for_each(|server| by_owner(&cluster, *server, &notes));
    cluster.superuser().unwrap().batch_execute("SELECT shard_table_add('notes', 'tenant')").unwrap();
    finished(&plan(&cluster));
    let mut client = client(&cluster);
    assert_eq!(outcome(&mut client, "INSERT INTO notes VALUES ('moves', 1)"), "SM001");
    client.batch_execute("INSERT INTO notes VALUES ('stays', 1)").unwrap();
    let error = client.batch_execute(&insert("moves", 9001)).unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(
        (error.code().code(), error.message()),
        ("SM001", "key \"moves\" has moved to shard \"shard_b\"")
    );
    let detail = error.detail().unwrap_or_default().to_owned();
    assert!(detail.contains("\"shard\" : \"shard_b\"") && detail.contains("\"routing_version\""), "{detail}");
    assert!(error.hint().is_some());
    assert_eq!(
        outcome(&mut client, "UPDATE items SET tenant = 'moves' WHERE tenant = 'stays' AND id = 1"),
        "SM001"
    );
    client.batch_execute("UPDATE items SET val = 'y' WHERE tenant = 'stays'").unwrap();
    client.batch_execute("DELETE FROM items WHERE tenant = 'stays' AND id = 3").unwrap();
    // A row of the key that was inserted without the redirect can be neither changed nor deleted.
    source(&cluster)
        .batch_execute("ALTER TABLE items DISABLE TRIGGER ALL; INSERT INTO items VALUES ('moves', 2, 'x', 2)")
        .unwrap();
    let mut owner = source(&cluster);
    let triggers =
        "SELECT tgname FROM pg_trigger WHERE tgname LIKE '%shardmaster%' AND tgrelid = 'items'::regclass";
    for row in owner.query(triggers, &[]).unwrap() {
        let trigger: String = row.get(0);
        source(&cluster)
            .batch_execute(&format!("ALTER TABLE items ENABLE ALWAYS TRIGGER \"{trigger}\""))
            .unwrap();
    }
    for statement in [
        "DELETE FROM items WHERE id = 2",
        "UPDATE items SET val = 'y' WHERE id = 2",
        "UPDATE items SET tenant = 'stays' WHERE tenant = 'moves'",
    ] {
        assert_eq!(outcome(&mut client, statement), "SM001", "{statement}");
    }
}

/// Another session ends the last redirect, and drops the agent's schema with it, after a check has found one of the
/// tables and before it reads it.
#[test]
fn tables_of_the_agent_that_go_meanwhile_stop_no_check() {
    let cluster = cluster(&[]);
    finished(&plan(&cluster));
    let back = Split::plan(&cluster, "shard_b", "shard_a", &["moves"]).unwrap();
    let mut other = source(&cluster);
    let left = "SELECT format('left_%s', id) FROM shardmaster_agent.key_list";
    let left: String = other.query_one(left, &[]).unwrap().get(0);
    for table in [left.as_str(), "key_list", "decision", "side", "master"] {
        let table = format!("shardmaster_agent.{table}");
        other.batch_execute(&format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")).unwrap();
        let findings = thread::scope(|scope| {
            let check = scope.spawn(|| back.findings());
            let waits = format!(
                "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE relation = '{table}'::regclass AND NOT granted)"
            );
            wait::until_true(&mut source(&cluster), "the check to read the table", LIMIT, &waits).unwrap();
            other.batch_execute(&format!("DROP TABLE {table}; COMMIT")).unwrap();
            check.join().unwrap()
        });
        assert_eq!(findings.unwrap(), Vec::<String>::new(), "{table}");
    }
}

/// The writer's settings do not affect the redirect: neither its search_path nor its own types, operators and
/// functions.
#[test]
#[ignore = "make test-all: redirects; make test has routing::key_guards::a_writers_names_do_not_matter_to_a_guard"]
fn a_writers_names_do_not_matter() {
    let cluster = cluster(&[]);
    finished(&plan(&cluster));
    source(&cluster)
        .batch_execute(
            "CREATE SCHEMA hostile; GRANT USAGE ON SCHEMA hostile TO PUBLIC;
             CREATE DOMAIN hostile.text AS pg_catalog.text CHECK (false);
             CREATE DOMAIN hostile.int8 AS pg_catalog.int8 CHECK (false);
             CREATE FUNCTION hostile.never(pg_catalog.text, pg_catalog.text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
             CREATE OPERATOR hostile.= (FUNCTION = hostile.never, LEFTARG = pg_catalog.text, RIGHTARG = pg_catalog.text);
             CREATE OPERATOR hostile.<> (FUNCTION = hostile.never, LEFTARG = pg_catalog.text, RIGHTARG = pg_catalog.text);
             CREATE FUNCTION hostile.current_setting(pg_catalog.text, boolean) RETURNS pg_catalog.text LANGUAGE sql AS $$SELECT 'x'$$"
        )
        .unwrap();
    for path in ["hostile, pg_catalog, public", "''"] {
        for isolation in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
            let mut client = client(&cluster);
            client.batch_execute(&format!("SET search_path = {path}; SET standard_conforming_strings = off; SET escape_string_warning = off")).unwrap();
            let write = |tenant: &str| {
                format!(
                    "BEGIN ISOLATION LEVEL {isolation};
                     INSERT INTO public.items VALUES ('{tenant}', 9001, 'x', 9001); ROLLBACK"
                )
            };
            assert_eq!(outcome(&mut client, &write("moves")), "SM001", "{path} {isolation}");
            assert_eq!(outcome(&mut client, &write("stays")), "ok", "{path} {isolation}");
        }
    }
}

/// A shard is a place and not a name: keys come back to the same schema under another name.
#[test]
#[ignore = "make test-all: a split that brings them back; make test has routing::address_aliases::keys_that_are_assigned_to_another_address_of_their_old_shard_are_let_in"]
fn keys_come_back_to_the_place_under_another_name() {
    let cluster = cluster(&[]);
    let mut master = cluster.superuser().unwrap();
    let first = plan(&cluster);
    finished(&first);
    let again = format!("connect_timeout=7 {}", cluster.servers[0].conninfo(DATABASE, "mover"));
    master.execute("SELECT shard_add('again', $1)", &[&again]).unwrap();
    let back = Split::plan(&cluster, "shard_b", "again", &["moves"]).unwrap();
    back.run(|_| ()).unwrap();
    let mut client = client(&cluster);
    assert_eq!(outcome(&mut client, &insert("moves", 9001)), "ok");
    back.finish(LIMIT).unwrap();
    assert_eq!(outcome(&mut client, &insert("moves", 9003)), "ok");
    let guards = "SELECT count(*) FROM shard_guards() WHERE split_id = $1";
    assert_eq!(master.query_one(guards, &[&first.id]).unwrap().get::<_, i64>(0), 0);
    // Nothing is refused any more, so nothing is left.
    assert_eq!(leftovers(&mut source(&cluster)).unwrap(), Vec::<String>::new());
}

/// A living split is no orphan, whatever its shard is called.
#[test]
#[ignore = "make test-all: another name; make test has check::refusals::a_new_master_cleans_up_after_a_lost_one"]
fn cleanup_under_another_name_leaves_a_living_split_alone() {
    let cluster = cluster(&["shardmaster.watch_interval = 0"]);
    let finished_one = plan(&cluster);
    finished(&finished_one);
    let mut master = cluster.superuser().unwrap();
    let split = Split::plan(&cluster, "shard_a", "shard_b", &["stays"]).unwrap();
    split.run(|_| ()).unwrap();
    for (server, name) in [(0, "again_a"), (1, "again_b")] {
        let conninfo = format!("connect_timeout=7 {}", cluster.servers[server].conninfo(DATABASE, "mover"));
        master.execute("SELECT shard_add($1, $2)", &[&name, &conninfo]).unwrap();
        assert_eq!(master.query("SELECT * FROM shard_cleanup($1)", &[&name]).unwrap().len(), 0, "{name}");
    }
    let mut client = client(&cluster);
    assert_eq!(outcome(&mut client, &insert("stays", 9001)), "SM001");
    assert_eq!(outcome(&mut client, &insert("moves", 9001)), "SM001");
    split.finish(LIMIT).unwrap();
    assert_eq!(outcome(&mut client, &insert("stays", 9001)), "SM001");
}

/// The rows that such a writer reads are from before the split, or before the redirect.
#[test]
fn a_writer_with_an_old_snapshot_does_not_slip_through() {
    let cluster = cluster(&[]);
    let mut old: Vec<Client> = (0..4).map(|_| client(&cluster)).collect();
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_snapshot()";
    for client in &mut old[..2] {
        client.batch_execute(begin).unwrap();
    }
    finished(&plan(&cluster));
    assert_eq!(outcome(&mut old[0], &insert("moves", 9001)), "40001");
    assert_eq!(outcome(&mut old[1], &format!("{}; COMMIT", insert("stays", 9001))), "ok");
    // The redirect exists by now, and gets one more key.
    for client in &mut old[2..] {
        client.batch_execute(begin).unwrap();
    }
    let mut master = cluster.superuser().unwrap();
    master.batch_execute("SELECT shard_assign('other', 'shard_a')").unwrap();
    finished(&Split::plan(&cluster, "shard_a", "shard_b", &["other"]).unwrap());
    assert_eq!(outcome(&mut old[2], &insert("other", 9002)), "40001");
    assert_eq!(outcome(&mut old[3], &format!("{}; COMMIT", insert("stays", 9002))), "ok");
    // Writers with newer snapshots are told where the key is.
    let mut new = client(&cluster);
    new.batch_execute(begin).unwrap();
    assert_eq!(outcome(&mut new, &insert("other", 9003)), "SM001");
}

#[test]
fn a_renamed_column_breaks_no_writer() {
    let cluster = cluster(&[]);
    finished(&plan(&cluster));
    source(&cluster).batch_execute("ALTER TABLE items RENAME tenant TO renter").unwrap();
    let mut client = client(&cluster);
    assert_eq!(outcome(&mut client, &insert("moves", 9001)), "SM001");
    assert_eq!(outcome(&mut client, &insert("stays", 9001)), "ok");
    assert_eq!(outcome(&mut client, "UPDATE items SET renter = 'moves' WHERE id = 9001"), "SM001");
}

/// Existing partitions, and those that are created later.
#[test]
#[ignore = "make test-all: partitions; make test has users_change_their_tables_beside_a_redirect_and_a_guard"]
fn partitions_are_redirected() {
    let cluster = cluster_of(
        &[],
        "CREATE TABLE items (tenant text, id int, val text, code int, PRIMARY KEY (tenant, id)) PARTITION BY RANGE (id);
         CREATE TABLE items_1 PARTITION OF items FOR VALUES FROM (0) TO (1000);
         CREATE TABLE items_2 PARTITION OF items FOR VALUES FROM (1000) TO (2000);
         GRANT ALL ON items_1, items_2 TO PUBLIC",
    );
    finished(&plan(&cluster));
    for shard in &cluster.shards {
        let partition = format!(
            "SET ROLE {OWNER}; CREATE TABLE items_3 PARTITION OF items FOR VALUES FROM (2000) TO (3000);
             GRANT ALL ON items_3 TO PUBLIC"
        );
        cluster.owner_of(shard).unwrap().batch_execute(&partition).unwrap();
    }
    let mut client = client(&cluster);
    for (table, id) in
        [("items", 900), ("items_1", 900), ("items_2", 1900), ("items_3", 2900), ("items", 2900)]
    {
        let insert = |tenant: &str| format!("INSERT INTO {table} VALUES ('{tenant}', {id}, 'x', {id})");
        assert_eq!(outcome(&mut client, &insert("moves")), "SM001", "{table}");
    }
    assert_eq!(outcome(&mut client, &insert("stays", 2901)), "ok");
    finished(&Split::plan(&cluster, "shard_a", "shard_b", &["stays"]).unwrap());
    assert_eq!(outcome(&mut client, &insert("stays", 2902)), "SM001");
    let own = "SELECT count(*) FROM pg_trigger WHERE tgname LIKE '%shardmaster%' AND tgparentid = 0";
    assert_eq!(source(&cluster).query_one(own, &[]).unwrap().get::<_, i64>(0), 4);
}

/// Users change their tables as if there were no redirect and no guard, and both continue to refuse.
#[test]
fn users_change_their_tables_beside_a_redirect_and_a_guard() {
    let cluster = cluster_of(
        &[],
        "CREATE TABLE items (tenant text, id int, val text, code int, PRIMARY KEY (tenant, id)) PARTITION BY RANGE (id);
         CREATE TABLE items_1 PARTITION OF items FOR VALUES FROM (0) TO (1000);
         CREATE TABLE more (tenant text, id int, val text, code int, PRIMARY KEY (tenant, id));
         CREATE TABLE others (tenant text, id int, val text, code int, PRIMARY KEY (tenant, id), CHECK (id > 0) NOT VALID);
         GRANT ALL ON items_1, more, others TO PUBLIC",
    );
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute("SELECT shard_table_add('more', 'tenant'), shard_table_add('others', 'tenant')")
        .unwrap();
    finished(&plan(&cluster));
    master.batch_execute("CALL shard_guard_install('shard_a')").unwrap();
    source(&cluster).batch_execute("CREATE SCHEMA elsewhere; CREATE ROLE somebody").unwrap();
    let mut client = client(&cluster);
    for change in [
        "ALTER TABLE items ATTACH PARTITION more FOR VALUES FROM (5000) TO (6000)",
        "ALTER TABLE items DETACH PARTITION more",
        "ALTER TABLE items ATTACH PARTITION others FOR VALUES FROM (6000) TO (7000)",
        "ALTER TABLE items DETACH PARTITION items_1",
        "ALTER TABLE items ATTACH PARTITION items_1 FOR VALUES FROM (0) TO (1000)",
        "ALTER TABLE others VALIDATE CONSTRAINT others_id_check",
        "ALTER TABLE more RENAME TO less",
        "ALTER TABLE less RENAME tenant TO renter",
        "ALTER TABLE less RENAME renter TO tenant",
        "ALTER TABLE less RENAME TO more",
        "ALTER TABLE more SET SCHEMA elsewhere",
        "ALTER TABLE elsewhere.more SET SCHEMA public",
        "ALTER TABLE more OWNER TO somebody",
        "CREATE TABLE child () INHERITS (more)",
        "ALTER TABLE child NO INHERIT more",
        "ALTER TABLE child INHERIT more",
        "DROP TABLE child",
        "CLUSTER more USING more_pkey",
        "REINDEX TABLE more",
        "VACUUM FULL more",
        "ALTER TABLE more ALTER val TYPE varchar(2000), ALTER code TYPE bigint",
        "ALTER TABLE more ADD extra int DEFAULT 7, DROP code",
        "CREATE TABLE copied (LIKE more INCLUDING ALL)",
        "ALTER TABLE more DISABLE TRIGGER USER",
        "ALTER TABLE more ENABLE TRIGGER USER",
    ] {
        // Owners may disable triggers. The refusal is checked once they are enabled again.
        let is_disabled = change.contains("DISABLE");
        source(&cluster).batch_execute(change).unwrap_or_else(|error| panic!("{change}: {error:?}"));
        let is_here = source(&cluster)
            .query_one("SELECT to_regclass('more') IS NOT NULL", &[])
            .unwrap()
            .get::<_, bool>(0);
        if is_here && !is_disabled {
            let insert = "INSERT INTO more (tenant, id) VALUES ('moves', 5500)";
            let refused = outcome(&mut client, insert);
            assert!(
                refused == "SM001" || change.contains("RENAME") && refused == "42703",
                "{change}: {refused}"
            );
            let unknown = outcome(&mut client, "INSERT INTO more (tenant, id) VALUES ('nobody', 5501)");
            assert!(unknown == "SM001" || unknown == "42703", "{change}: {unknown}");
        }
        for (table, id) in [("items", 900), ("items_1", 900), ("others", 6500)] {
            // A detached table does not belong to the keyspace, and loses its clones of the triggers.
            if table == "items_1" && change.ends_with("DETACH PARTITION items_1") {
                continue;
            }
            let refused =
                outcome(&mut client, &format!("INSERT INTO {table} (tenant, id) VALUES ('moves', {id})"));
            // The server refuses a row that no partition accepts.
            assert!(refused == "SM001" || refused == "23514", "{change}: {table}: {refused}");
        }
    }
}

/// Numbers and names, in buckets and in ranges. If a part comes back, the rest is still redirected.
#[test]
fn buckets_and_ranges_are_redirected() {
    let cluster = Cluster::servers(2, &["fsync = off"]).unwrap();
    for shard in &cluster.shards {
        let tables = format!(
            "SET ROLE {OWNER}; CREATE TABLE numbers (id smallint PRIMARY KEY); CREATE TABLE names (id varchar(40) PRIMARY KEY);
             CREATE TABLE bucketed (id int PRIMARY KEY); GRANT ALL ON numbers, names, bucketed TO {CLIENT}"
        );
        cluster.owner_of(shard).unwrap().batch_execute(&tables).unwrap();
    }
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "SELECT shard_keyspace_add('numbers', 'range', key_type => 'bigint');
             SELECT shard_assign_range(NULL, NULL, 'shard_a', 'numbers'), shard_table_add('numbers', 'id', 'numbers');
             SELECT shard_keyspace_add('names', 'range', key_type => 'text');
             SELECT shard_assign_range(NULL, NULL, 'shard_a', 'names'), shard_table_add('names', 'id', 'names');
             SELECT shard_keyspace_add('bucketed', 'hash', buckets => 4, key_type => 'int', shards => '{shard_a}');
             SELECT shard_table_add('bucketed', 'id', 'bucketed')",
        )
        .unwrap();
    let mut client = client(&cluster);
    let mut at = |table: &str, id: &str| {
        outcome(&mut client, &format!("BEGIN; INSERT INTO {table} VALUES ('{id}'); ROLLBACK"))
    };
    let range = |from: &str, to: &str, bounds: &str, keyspace: &str| {
        let query =
            format!("SELECT shard_split_plan_range('{from}', '{to}', {bounds}, keyspace => '{keyspace}')");
        finished(&Split::plan_by(&cluster, &query).unwrap());
    };
    range("shard_a", "shard_b", "'10', '20'", "numbers");
    range("shard_a", "shard_b", "'100', NULL", "numbers");
    range("shard_a", "shard_b", "NULL, 'M'", "names");
    for (id, wanted) in [
        ("9", "ok"),
        ("10", "SM001"),
        ("19", "SM001"),
        ("20", "ok"),
        ("99", "ok"),
        ("100", "SM001"),
        ("32767", "SM001"),
        ("-5", "ok"),
    ] {
        assert_eq!(at("numbers", id), wanted, "{id}");
    }
    for (id, wanted) in [("", "SM001"), ("L", "SM001"), ("M", "ok"), ("a", "ok")] {
        assert_eq!(at("names", id), wanted, "{id}");
    }
    range("shard_b", "shard_a", "'12', '14'", "numbers");
    for (id, wanted) in [("11", "SM001"), ("12", "ok"), ("13", "ok"), ("14", "SM001")] {
        assert_eq!(at("numbers", id), wanted, "{id}");
    }
    master
        .batch_execute("SELECT shard_assign_range('16', '18', 'shard_a', 'numbers', force => true)")
        .unwrap();
    wait::until("the range to be let in", LIMIT, || Ok((at("numbers", "16") == "ok").then_some(()))).unwrap();
    for (id, wanted) in [("15", "SM001"), ("17", "ok"), ("18", "SM001"), ("100", "SM001")] {
        assert_eq!(at("numbers", id), wanted, "{id}");
    }
    range("shard_a", "shard_b", "'12', '13'", "numbers");
    assert_eq!((at("numbers", "12"), at("numbers", "13")), ("SM001".into(), "ok".into()));

    finished(
        &Split::plan_by(
            &cluster,
            "SELECT shard_split_plan('shard_a', 'shard_b', '{1,3}', keyspace => 'bucketed')",
        )
        .unwrap(),
    );
    for id in 1..20 {
        let bucket: i32 = master.query_one("SELECT shard_for($1::int::bigint, 4)", &[&id]).unwrap().get(0);
        let wanted = if bucket % 2 == 1 { "SM001" } else { "ok" };
        assert_eq!(at("bucketed", &id.to_string()), wanted, "{id} in bucket {bucket}");
    }
    let left =
        "SELECT sum(keys)::bigint FROM shard_guards() WHERE state = 'redirect' AND shard_key = 'shard_a'";
    // What is left are [10,12) [14,16) [18,20) [100,) [,M) [12,13) and two buckets.
    assert_eq!(master.query_one(left, &[]).unwrap().get::<_, i64>(0), 8);
}

/// Three shards are in one database, and keys have the same name in two keyspaces.
#[test]
#[ignore = "make test-all: three schemas; make test has a_stale_client_is_told_where_the_key_is"]
fn each_schema_and_keyspace_has_a_redirect_of_its_own() {
    let cluster = Cluster::namespaces(3, &[]).unwrap();
    for shard in &cluster.shards {
        let tables = format!(
            "SET ROLE {OWNER}; CREATE TABLE items (tenant text, id int, PRIMARY KEY (tenant, id));
             CREATE TABLE others (tenant text, id int, PRIMARY KEY (tenant, id)); GRANT ALL ON items, others TO {CLIENT}"
        );
        cluster.owner_of(shard).unwrap().batch_execute(&tables).unwrap();
    }
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "SELECT shard_table_add('items', 'tenant', key_type => 'text'), shard_assign_many('{1,2}', 'shard_a');
             SELECT shard_keyspace_add('others', 'directory', key_type => 'text');
             SELECT shard_table_add('others', 'tenant', 'others'), shard_assign_many('{1,2}', 'shard_a', 'others');
             INSERT INTO shard_a.items VALUES ('1', 1), ('2', 1); INSERT INTO shard_a.others VALUES ('1', 1), ('2', 1)",
        )
        .unwrap();
    let mut client = cluster.client().unwrap();
    let mut at = |table: &str, tenant: &str| {
        outcome(&mut client, &format!("BEGIN; INSERT INTO {table} VALUES ('{tenant}', 7); ROLLBACK"))
    };
    let first = Split::plan(&cluster, "shard_a", "shard_b", &["1"]).unwrap();
    finished(&first);
    assert_eq!((at("shard_a.items", "1"), at("shard_b.items", "1")), ("SM001".into(), "ok".into()));
    assert_eq!((at("shard_a.items", "2"), at("shard_a.others", "1")), ("ok".into(), "ok".into()));
    let second = Split::plan(&cluster, "shard_b", "shard_c", &["1"]).unwrap();
    finished(&second);
    let plan = "SELECT shard_split_plan('shard_a', 'shard_b', '{1}', keyspace => 'others')";
    let third = Split::plan_by(&cluster, plan).unwrap();
    finished(&third);
    for (table, wanted) in [
        ("shard_a.items", "SM001"),
        ("shard_b.items", "SM001"),
        ("shard_c.items", "ok"),
        ("shard_a.others", "SM001"),
        ("shard_b.others", "ok"),
    ] {
        assert_eq!(at(table, "1"), wanted, "{table}");
    }
    // The key comes back to the first shard, and nothing else changes.
    let fourth = Split::plan(&cluster, "shard_c", "shard_a", &["1"]).unwrap();
    finished(&fourth);
    for (table, wanted) in [
        ("shard_a.items", "ok"),
        ("shard_b.items", "SM001"),
        ("shard_c.items", "SM001"),
        ("shard_a.others", "SM001"),
    ] {
        assert_eq!(at(table, "1"), wanted, "{table}");
    }
    for split in [first, second, third, fourth] {
        split.drop_guard().unwrap();
    }
    assert_eq!(at("shard_b.items", "1"), "ok");
    let agent = format!(
        "SELECT NOT ({AGENT_HAS_MORE}) AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgname LIKE '%shardmaster%')"
    );
    assert!(master.query_one(&agent, &[]).unwrap().get::<_, bool>(0));
}

/// The key is now in the same database. Only its schema shows that nobody is routed to where it was.
#[test]
#[ignore = "make test-all: schemas of one database; make test has check::refusals::a_new_master_cleans_up_after_a_lost_one"]
fn cleanup_of_one_schema_keeps_nothing_for_another() {
    let cluster = Cluster::namespaces(2, &[]).unwrap();
    for shard in &cluster.shards {
        let table = format!(
            "SET ROLE {OWNER}; CREATE TABLE items (tenant text, id int, PRIMARY KEY (tenant, id)); GRANT ALL ON items TO {CLIENT}"
        );
        cluster.owner_of(shard).unwrap().batch_execute(&table).unwrap();
    }
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "SELECT shard_table_add('items', 'tenant', key_type => 'text'), shard_assign('1', 'shard_a');
             INSERT INTO shard_a.items VALUES ('1', 1)",
        )
        .unwrap();
    finished(&Split::plan(&cluster, "shard_a", "shard_b", &["1"]).unwrap());
    forget_splits(&mut master);
    let write = "INSERT INTO shard_a.items VALUES ('1', 7)";
    let mut client = cluster.client().unwrap();
    assert_eq!(outcome(&mut client, write), "SM001");
    let mut clean_up = || -> String {
        let query = "SELECT string_agg(action, '; ') FROM shard_cleanup('shard_a')";
        master.query_one(query, &[]).unwrap().get::<_, Option<String>>(0).unwrap_or_default()
    };
    // If the key is routed to where it was, the redirect stays.
    let route = |shard: &str| {
        format!("UPDATE shardmaster.routing_entry SET write_shard = '{shard}' WHERE valid_to IS NULL")
    };
    cluster.superuser().unwrap().batch_execute(&route("shard_a")).unwrap();
    assert!(clean_up().starts_with("kept: key \"1\" is routed to this shard"));
    cluster.superuser().unwrap().batch_execute(&route("shard_b")).unwrap();
    assert_eq!(clean_up(), "removed");
    assert_eq!(outcome(&mut client, write), "ok");
}

#[test]
#[ignore = "make test-all: there and back again; make test has routing::address_aliases::keys_that_are_assigned_to_another_address_of_their_old_shard_are_let_in"]
fn keys_come_back_and_leave_again() {
    let cluster = cluster(&[]);
    let mut client = client(&cluster);
    let mut splits = Vec::new();
    for _ in 0..2 {
        splits.push(plan(&cluster));
        finished(splits.last().unwrap());
        assert_eq!(outcome(&mut client, &insert("moves", 9001)), "SM001");
        splits.push(Split::plan(&cluster, "shard_b", "shard_a", &["moves"]).unwrap());
        finished(splits.last().unwrap());
        assert_eq!(outcome(&mut client, "UPDATE items SET val = 'z' WHERE tenant = 'moves'"), "ok");
    }
    splits.push(plan(&cluster));
    finished(splits.last().unwrap());
    assert_eq!(outcome(&mut client, &insert("moves", 9001)), "SM001");
    // Only the last split has anything to end here.
    let last = splits.pop().unwrap();
    for split in splits {
        split.drop_guard().unwrap();
    }
    assert_eq!(outcome(&mut client, &insert("moves", 9001)), "SM001");
    last.drop_guard().unwrap();
    for server in &cluster.servers {
        assert_eq!(leftovers(&mut server.superuser(DATABASE).unwrap()).unwrap(), Vec::<String>::new());
    }
}
