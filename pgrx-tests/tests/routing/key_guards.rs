//! Key guards: a shard refuses rows of keys that it never had, and no others, whatever is assigned, split or
//! interrupted meanwhile.

use postgres::Client;
use shardmaster_tests::cluster::{CLIENT, Cluster, OWNER};
use shardmaster_tests::fixture::{LIMIT, client, cluster, cluster_of, insert, outcome, source, state_of};
use shardmaster_tests::key_guards::{INSTALL, each, guards, in_background, install, tried, wait_held};
use shardmaster_tests::matrix::leftovers;
use shardmaster_tests::server::Stop;
use shardmaster_tests::wait;

#[test]
fn a_key_that_was_never_there_is_refused() {
    let cluster = cluster(&[]);
    let mut owner = source(&cluster);
    owner
        .batch_execute("INSERT INTO items VALUES ('stray', 9000, 'x', 9000), ('stray', 9001, 'x', 9001)")
        .unwrap();
    install(&cluster, "shard_a", "default");
    assert_eq!(guards(&cluster), ["shard_a guarded 2"]);
    let mut client = client(&cluster);
    let error = client.batch_execute(&insert("nobody", 1)).unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(
        (error.code().code(), error.message()),
        ("SM001", "key \"nobody\" does not belong to shard \"shard_a\"")
    );
    assert_eq!(
        error.detail(),
        Some("{\"key\" : \"nobody\", \"shard\" : \"shard_a\", \"keyspace\" : \"default\"}")
    );
    assert!(error.hint().is_some_and(|hint| hint.contains("shard_assign()")));
    for (statement, wanted) in [
        (insert("stays", 9002).as_str(), "ok"),
        ("UPDATE items SET tenant = 'nobody' WHERE tenant = 'stays' AND id = 1", "SM001"),
        ("UPDATE items SET tenant = 'moves' WHERE tenant = 'stays' AND id = 1", "ok"),
        // Existing rows can be changed, brought home and deleted.
        ("UPDATE items SET val = 'y' WHERE tenant = 'stray'", "ok"),
        ("UPDATE items SET tenant = 'stays' WHERE tenant = 'stray'", "ok"),
        ("UPDATE items SET tenant = 'other' WHERE tenant = 'stray'", "SM001"),
        ("DELETE FROM items WHERE tenant = 'stray'", "ok"),
        (insert("stray", 9003).as_str(), "SM001"),
    ] {
        assert_eq!(tried(&mut client, statement), wanted, "{statement}");
    }
    // The triggers also fire in a replica's session. Another trigger may set a row's key.
    assert_eq!(
        tried(&mut owner, &format!("SET session_replication_role = replica; {}", insert("nobody", 1))),
        "SM001"
    );
    owner
        .batch_execute(
            "CREATE FUNCTION renames() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN NEW.tenant := 'nobody'; RETURN NEW; END $$;
             CREATE TRIGGER renames BEFORE UPDATE ON items FOR EACH ROW EXECUTE FUNCTION renames()",
        )
        .unwrap();
    assert_eq!(tried(&mut client, "UPDATE items SET val = 'y' WHERE tenant = 'stays' AND id = 1"), "SM001");
    owner.batch_execute("DROP TRIGGER renames ON items").unwrap();
    // A new key is accepted as soon as it has a route.
    let mut master = cluster.superuser().unwrap();
    assert_eq!(outcome(&mut client, &insert("new", 1)), "SM001");
    master.batch_execute("SELECT shard_assign('new', 'shard_a')").unwrap();
    assert_eq!(outcome(&mut client, &insert("new", 1)), "ok");
    master.batch_execute("SELECT shard_place_tenant('placed')").unwrap();
    let at: String = master.query_one("SELECT shard_of('placed')", &[]).unwrap().get(0);
    assert_eq!(outcome(&mut client, &insert("placed", 1)), if at == "shard_a" { "ok" } else { "SM001" });
    // The assignment is rolled back here, and the shard keeps the key on its list, which does no harm.
    master.batch_execute("BEGIN; SELECT shard_assign('undone', 'shard_a'); ROLLBACK").unwrap();
    assert_eq!(outcome(&mut client, &insert("undone", 1)), "ok");
    assert_eq!(tried(&mut client, &insert("nobody", 1)), "SM001");
}

/// Numbers and names, in buckets and ranges, and types whose comparison differs from that of their texts.
#[test]
fn buckets_ranges_and_types_are_known() {
    let cluster = Cluster::servers(2, &["fsync = off"]).unwrap();
    for shard in &cluster.shards {
        let tables = format!(
            "SET ROLE {OWNER}; CREATE TABLE numbers (id smallint); CREATE TABLE names (id varchar(40) COLLATE \"C\");
             CREATE TABLE bucketed (id int); CREATE TABLE amounts (id numeric); CREATE TABLE codes (id char(5));
             CREATE TYPE color AS ENUM ('red', 'green'); CREATE TABLE colors (id color); CREATE TABLE ids (id uuid);
             GRANT ALL ON numbers, names, bucketed, amounts, codes, colors, ids TO {CLIENT}"
        );
        cluster.owner_of(shard).unwrap().batch_execute(&tables).unwrap();
    }
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "SELECT shard_keyspace_add('numbers', 'range', key_type => 'bigint'), shard_table_add('numbers', 'id', 'numbers');
             SELECT shard_assign_range(NULL, '10', 'shard_a', 'numbers'), shard_assign_range('10', '20', 'shard_b', 'numbers'),
                    shard_assign_range('20', '30', 'shard_a', 'numbers'), shard_assign_range('30', NULL, 'shard_b', 'numbers');
             SELECT shard_keyspace_add('names', 'range', key_type => 'text'), shard_table_add('names', 'id', 'names');
             SELECT shard_assign_range(NULL, 'M', 'shard_a', 'names'), shard_assign_range('M', NULL, 'shard_b', 'names');
             SELECT shard_keyspace_add('bucketed', 'hash', buckets => 4, key_type => 'int', shards => '{shard_a,shard_b}'),
                    shard_table_add('bucketed', 'id', 'bucketed');
             SELECT shard_keyspace_add('amounts', 'directory', key_type => 'numeric'), shard_table_add('amounts', 'id', 'amounts'),
                    shard_assign('1.5', 'shard_a', 'amounts'), shard_assign('2.5', 'shard_b', 'amounts');
             SELECT shard_keyspace_add('codes', 'directory', key_type => 'char'), shard_table_add('codes', 'id', 'codes'),
                    shard_assign('ab', 'shard_a', 'codes');
             SELECT shard_keyspace_add('colors', 'directory', key_type => 'text'), shard_table_add('colors', 'id', 'colors'),
                    shard_assign('red', 'shard_a', 'colors');
             SELECT shard_keyspace_add('ids', 'directory', key_type => 'uuid'), shard_table_add('ids', 'id', 'ids'),
                    shard_assign('00000000-0000-0000-0000-00000000000A', 'shard_a', 'ids')",
        )
        .unwrap();
    for keyspace in ["numbers", "names", "bucketed", "amounts", "codes", "colors", "ids"] {
        install(&cluster, "shard_a", keyspace);
    }
    let mut client = client(&cluster);
    let mut at = |table: &str, id: &str| tried(&mut client, &format!("INSERT INTO {table} VALUES ('{id}')"));
    let numbers = |numbers: &mut dyn FnMut(&str) -> String, expected: &[(&str, &str)]| {
        for (id, wanted) in expected {
            assert_eq!(numbers(id), *wanted, "{id}");
        }
    };
    numbers(
        &mut |id| at("numbers", id),
        &[
            ("-32768", "ok"),
            ("9", "ok"),
            ("10", "SM001"),
            ("19", "SM001"),
            ("20", "ok"),
            ("29", "ok"),
            ("30", "SM001"),
        ],
    );
    for (table, id, wanted) in [
        ("names", "", "ok"),
        ("names", "L", "ok"),
        ("names", "M", "SM001"),
        ("names", "a", "SM001"),
        ("amounts", "1.50", "ok"),
        ("amounts", "2.5", "SM001"),
        ("codes", "ab", "ok"),
        ("codes", "abc", "SM001"),
        ("colors", "red", "ok"),
        ("colors", "green", "SM001"),
        ("ids", "00000000-0000-0000-0000-00000000000a", "ok"),
        ("ids", "00000000-0000-0000-0000-00000000000b", "SM001"),
    ] {
        assert_eq!(at(table, id), wanted, "{table} {id}");
    }
    for id in 1..20 {
        let bucket: i32 = master.query_one("SELECT shard_for($1::int::bigint, 4)", &[&id]).unwrap().get(0);
        let wanted = if bucket % 2 == 0 { "ok" } else { "SM001" };
        assert_eq!(at("bucketed", &id.to_string()), wanted, "{id} in bucket {bucket}");
    }
    // Parts of ranges are added. Ranges that are cut or joined remain.
    master
        .batch_execute(
            "SELECT shard_assign_range('12', '14', 'shard_a', 'numbers', force => true);
             SELECT shard_assign_range('20', '25', 'shard_a', 'numbers', force => true);
             SELECT shard_assign_range('28', '40', 'shard_a', 'numbers', force => true);
             SELECT shard_join_ranges('numbers');
             SELECT shard_assign_bucket(b, 'shard_a', 'bucketed', force => true) FROM generate_series(0, 3) b;
             SELECT shard_assign('green', 'shard_a', 'colors'), shard_assign('2.5', 'shard_a', 'amounts', force => true)",
        )
        .unwrap();
    numbers(
        &mut |id| at("numbers", id),
        &[
            ("-1", "ok"),
            ("11", "SM001"),
            ("12", "ok"),
            ("13", "ok"),
            ("14", "SM001"),
            ("20", "ok"),
            ("26", "ok"),
            ("39", "ok"),
            ("40", "SM001"),
        ],
    );
    for (table, id) in
        [("bucketed", "1"), ("bucketed", "2"), ("bucketed", "3"), ("colors", "green"), ("amounts", "2.500")]
    {
        assert_eq!(at(table, id), "ok", "{table} {id}");
    }
    // Rows without a key belong to no shard.
    assert_eq!(
        tried(&mut client, "INSERT INTO numbers VALUES (NULL); INSERT INTO colors VALUES (NULL)"),
        "ok"
    );
}

/// If the shard cannot be told of a key, the key is not routed there, and nothing is left of the assignment.
#[test]
fn a_shard_that_is_away_gets_nothing() {
    let mut cluster = cluster(&["shardmaster.remote_timeout = 3s"]);
    install(&cluster, "shard_a", "default");
    cluster.servers[0].stop(Stop::Fast).unwrap();
    let mut master = cluster.superuser().unwrap();
    let version: i64 = master.query_one("SELECT shard_routing_version()", &[]).unwrap().get(0);
    for call in [
        "SELECT shard_assign('new', 'shard_a')",
        "SELECT shard_assign_many(ARRAY['new', 'newer'], 'shard_a')",
        "BEGIN; SELECT shard_assign('else', 'shard_b'); SELECT shard_assign('new', 'shard_a'); COMMIT",
    ] {
        let error = master.batch_execute(call).unwrap_err();
        assert!(state_of(&error).starts_with("08"), "{call}: {error}");
        let error = error.as_db_error().unwrap();
        assert!(
            error.message().starts_with("nothing can be routed to shard \"shard_a\""),
            "{}",
            error.message()
        );
        assert!(
            error
                .hint()
                .is_some_and(|hint| hint.contains("shard_guard_remove('shard_a', 'default', force => true)")),
            "{:?}",
            error.hint()
        );
        let _ = master.batch_execute("ROLLBACK");
    }
    let after: i64 = master.query_one("SELECT shard_routing_version()", &[]).unwrap().get(0);
    assert_eq!(after, version);
    // Assignments to other shards do not need this one.
    master.batch_execute("SELECT shard_assign('else', 'shard_b')").unwrap();
    assert_eq!(outcome(&mut master, "CALL shard_guard_remove('shard_a')"), "08006");
    assert_eq!(guards(&cluster), ["shard_a removing 2"]);
    assert_eq!(outcome(&mut master, "CALL shard_guard_remove('shard_a', force => true)"), "ok");
    master.batch_execute("SELECT shard_assign('new', 'shard_a')").unwrap();
    cluster.servers[0].run().unwrap();
    // It does what it was told.
    let mut client = client(&cluster);
    assert_eq!(tried(&mut client, &insert("new", 1)), "SM001");
    let removed = master.query("SELECT object, action FROM shard_cleanup('shard_a')", &[]).unwrap();
    let removed: Vec<(String, String)> = removed.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(removed, [("guard of keyspace default".to_owned(), "removed".to_owned())]);
    assert_eq!(tried(&mut client, &insert("new", 1)), "ok");
    assert_eq!(leftovers(&mut source(&cluster)).unwrap(), Vec::<String>::new());
}

/// Wherever the installation ends, a guard that is half installed refuses nobody wrongly. New keys can still
/// be assigned, and the same call continues.
#[test]
fn an_installation_goes_on_where_it_was_interrupted() {
    let cluster = cluster(&[]);
    by_all(&cluster, "CREATE TABLE more (tenant text, id int); GRANT ALL ON more TO PUBLIC");
    let mut master = cluster.superuser().unwrap();
    master.batch_execute("SELECT shard_table_add('more', 'tenant')").unwrap();
    let mut client = client(&cluster);
    for (number, point) in
        ["guard_begun", "guard_made", "guard_listed", "guard_fitted"].into_iter().enumerate()
    {
        for action in ["error", "kill"] {
            interrupted(&cluster, INSTALL, point, action);
            assert_eq!(guards(&cluster)[0].split(' ').nth(1), Some("installing"), "{point}");
            let key = format!("{point} {action}");
            let mut master = cluster.superuser().unwrap();
            master.execute("SELECT shard_assign($1, 'shard_a')", &[&key]).unwrap();
            for tenant in ["stays", "moves", &key] {
                assert_eq!(tried(&mut client, &insert(tenant, 9001)), "ok", "{point} {action} {tenant}");
            }
            let wanted = if number < 3 { "ok" } else { "SM001" };
            assert_eq!(tried(&mut client, &insert("nobody", 9001)), wanted, "{point} {action}");
        }
    }
    install(&cluster, "shard_a", "default");
    assert_eq!(guards(&cluster), ["shard_a guarded 10"]);
    assert_eq!(tried(&mut client, &insert("nobody", 1)), "SM001");
    assert_eq!(tried(&mut client, "INSERT INTO more VALUES ('nobody', 1)"), "SM001");
    assert_eq!(tried(&mut client, &insert("guard_begun kill", 1)), "ok");
    interrupted(&cluster, "CALL shard_guard_remove('shard_a')", "guard_removed", "kill");
    assert_eq!(guards(&cluster), ["shard_a removing 10"]);
    let mut master = cluster.superuser().unwrap();
    each(&mut master, &["SELECT shard_assign('late', 'shard_a')", "CALL shard_guard_remove('shard_a')"]);
    assert_eq!(guards(&cluster), Vec::<String>::new());
    assert_eq!(leftovers(&mut source(&cluster)).unwrap(), Vec::<String>::new());
}

/// Makes a call that a fault ends at a point, and waits until the master answers again.
fn interrupted(cluster: &Cluster, call: &str, point: &str, action: &str) {
    let mut witness = cluster.superuser().unwrap();
    cluster.fault(&format!("{point}={action}")).unwrap();
    let _ = cluster.superuser().unwrap().batch_execute(call).unwrap_err();
    if action == "kill" {
        // The fault ends all sessions a moment later, including one that starts before that.
        wait::until("the server to notice", LIMIT, || Ok(witness.batch_execute("SELECT 1").err())).unwrap();
    }
    wait::until("the master to be back", LIMIT, || Ok(cluster.fault("").ok())).unwrap();
}

fn by_all(cluster: &Cluster, statements: &str) {
    for shard in &cluster.shards {
        let owned = format!("SET ROLE {OWNER}; {statements}");
        cluster.owner_of(shard).unwrap().batch_execute(&owned).unwrap();
    }
}

/// A key that is assigned during the installation is on the list, whenever the assignment commits.
#[test]
fn assignments_meanwhile_are_on_the_list() {
    let cluster = cluster(&[]);
    let mut master = cluster.superuser().unwrap();
    let waits = "SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'client backend' AND wait_event_type = 'Lock'";
    // This transaction was open before the installation began, so the installation waits.
    master.batch_execute("BEGIN; SELECT shard_assign('before', 'shard_a')").unwrap();
    let call = in_background(&cluster, INSTALL);
    wait::until_true(&mut cluster.superuser().unwrap(), "the installation to wait", LIMIT, waits).unwrap();
    master.batch_execute("COMMIT").unwrap();
    assert_eq!(call.join().unwrap(), "ok");
    let mut client = client(&cluster);
    assert_eq!(tried(&mut client, &insert("before", 1)), "ok");
    master.batch_execute("CALL shard_guard_remove('shard_a')").unwrap();
    // The guard's row exists, and the shard has nothing yet. The assignment tells nobody, and commits last.
    cluster.hold("guard_begun").unwrap();
    let call = in_background(&cluster, INSTALL);
    wait_held(&cluster, "guard_begun");
    master.batch_execute("BEGIN; SELECT shard_assign('begun', 'shard_a')").unwrap();
    cluster.fault("").unwrap();
    wait::until_true(&mut cluster.superuser().unwrap(), "the installation to wait", LIMIT, waits).unwrap();
    assert_eq!(tried(&mut client, &insert("begun", 1)), "ok");
    master.batch_execute("COMMIT").unwrap();
    assert_eq!(call.join().unwrap(), "ok");
    assert_eq!(tried(&mut client, &insert("begun", 1)), "ok");
    master.batch_execute("CALL shard_guard_remove('shard_a')").unwrap();
    // The list was read, and the assignment commits after that.
    cluster.hold("guard_listed").unwrap();
    let call = in_background(&cluster, INSTALL);
    wait_held(&cluster, "guard_listed");
    master.batch_execute("BEGIN; SELECT shard_assign('listed', 'shard_a')").unwrap();
    cluster.fault("").unwrap();
    wait::until_true(&mut cluster.superuser().unwrap(), "the installation to wait", LIMIT, waits).unwrap();
    master.batch_execute("COMMIT").unwrap();
    assert_eq!(call.join().unwrap(), "ok");
    assert_eq!(tried(&mut client, &insert("listed", 1)), "ok");
    assert_eq!(tried(&mut client, &insert("nobody", 1)), "SM001");
    // No step is done while the previous one may be undone.
    let both = "SELECT shardmaster.guard_begin('shard_b', 'default', false, false), shardmaster.guard_step('shard_b', 'default', false)";
    assert_eq!(outcome(&mut master, both), "55000");
    assert_eq!(outcome(&mut master, "BEGIN; CALL shard_guard_install('shard_b')"), "25001");
}

/// A writer that keeps its snapshot does not see newer assignments, and has to retry.
#[test]
fn a_writer_with_an_old_snapshot_begins_again() {
    let cluster = cluster(&[]);
    let mut master = cluster.superuser().unwrap();
    let mut old: Vec<Client> = (0..4).map(|_| client(&cluster)).collect();
    let begin = |level: &str| format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM items");
    old[0].batch_execute(&begin("REPEATABLE READ")).unwrap();
    install(&cluster, "shard_a", "default");
    assert_eq!(outcome(&mut old[0], &insert("stays", 9001)), "40001");
    for (client, level) in old[1..].iter_mut().zip(["REPEATABLE READ", "SERIALIZABLE", "READ COMMITTED"]) {
        client.batch_execute(&begin(level)).unwrap();
    }
    master.batch_execute("SELECT shard_assign('new', 'shard_a')").unwrap();
    for (client, wanted) in old[1..].iter_mut().zip(["40001", "40001", "ok"]) {
        assert_eq!(outcome(client, &format!("{}; ROLLBACK", insert("new", 9001))), wanted);
    }
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        old[1].batch_execute(&begin(level)).unwrap();
        assert_eq!(outcome(&mut old[1], &format!("{}; ROLLBACK", insert("new", 9001))), "ok", "{level}");
        old[1].batch_execute(&begin(level)).unwrap();
        assert_eq!(outcome(&mut old[1], &insert("nobody", 9001)), "SM001", "{level}");
    }
}

/// The writer's settings do not affect the guard: neither its search_path nor its own types, operators and functions.
#[test]
fn a_writers_names_do_not_matter_to_a_guard() {
    let cluster = cluster(&[]);
    install(&cluster, "shard_a", "default");
    source(&cluster)
        .batch_execute(
            "CREATE SCHEMA hostile; GRANT USAGE ON SCHEMA hostile TO PUBLIC;
             CREATE DOMAIN hostile.text AS pg_catalog.text CHECK (false);
             CREATE FUNCTION hostile.always(pg_catalog.text, pg_catalog.text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
             CREATE OPERATOR hostile.= (FUNCTION = hostile.always, LEFTARG = pg_catalog.text, RIGHTARG = pg_catalog.text);
             CREATE OPERATOR hostile.<> (FUNCTION = hostile.always, LEFTARG = pg_catalog.text, RIGHTARG = pg_catalog.text);
             CREATE FUNCTION hostile.current_setting(pg_catalog.text, boolean) RETURNS pg_catalog.text LANGUAGE sql AS $$SELECT 'x'$$",
        )
        .unwrap();
    for path in ["hostile, pg_catalog, public", "''"] {
        for isolation in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
            let mut client = client(&cluster);
            client
                .batch_execute(&format!(
                    "SET search_path = {path}; SET standard_conforming_strings = off; SET escape_string_warning = off;
                     SET shardmaster_agent.mover = 'guessed'"
                ))
                .unwrap();
            for (tenant, wanted) in [("nobody", "SM001"), ("stays", "ok")] {
                let write = format!(
                    "BEGIN ISOLATION LEVEL {isolation};
                     INSERT INTO public.items VALUES ('{tenant}', 9001, 'x', 9001); ROLLBACK"
                );
                assert_eq!(outcome(&mut client, &write), wanted, "{path} {isolation} {tenant}");
            }
        }
    }
}

/// Each namespace has its own guard, and one without a guard is not touched.
#[test]
fn namespaces_of_one_database_have_their_own() {
    let cluster = Cluster::namespaces(3, &[]).unwrap();
    by_all(&cluster, &format!("CREATE TABLE items (tenant text, id int); GRANT ALL ON items TO {CLIENT}"));
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "SELECT shard_table_add('items', 'tenant', key_type => 'text');
             SELECT shard_assign('a', 'shard_a'), shard_assign('b', 'shard_b'), shard_assign('c', 'shard_c')",
        )
        .unwrap();
    install(&cluster, "shard_a", "default");
    install(&cluster, "shard_b", "default");
    let mut client = cluster.client().unwrap();
    let mut at = |shard: &str, tenant: &str| {
        tried(&mut client, &format!("INSERT INTO {shard}.items VALUES ('{tenant}', 1)"))
    };
    for (shard, tenant, wanted) in [
        ("shard_a", "a", "ok"),
        ("shard_a", "b", "SM001"),
        ("shard_b", "b", "ok"),
        ("shard_b", "a", "SM001"),
        ("shard_c", "a", "ok"),
    ] {
        assert_eq!(at(shard, tenant), wanted, "{shard} {tenant}");
    }
    master.batch_execute("SELECT shard_assign('new', 'shard_b')").unwrap();
    master.batch_execute("CALL shard_guard_remove('shard_a')").unwrap();
    assert_eq!((at("shard_a", "new").as_str(), at("shard_b", "new").as_str()), ("ok", "ok"));
    assert_eq!(at("shard_b", "a"), "SM001");
    assert!(master.query("SELECT * FROM shard_cleanup('shard_c')", &[]).unwrap().is_empty());
    assert_eq!(at("shard_b", "a"), "SM001");
    master.batch_execute("CALL shard_guard_remove('shard_b')").unwrap();
    let left = "SELECT count(*) FROM pg_namespace WHERE nspname = 'shardmaster_agent'";
    assert_eq!(master.query_one(left, &[]).unwrap().get::<_, i64>(0), 0);
}

/// A new table is reported until it is guarded. Objects that a guard needs cannot be dropped.
#[test]
fn tables_shards_and_keyspaces_know_of_their_guards() {
    let cluster = cluster(&[]);
    install(&cluster, "shard_a", "default");
    let mut master = cluster.superuser().unwrap();
    by_all(&cluster, &format!("CREATE TABLE more (tenant text, id int); GRANT ALL ON more TO {CLIENT}"));
    master.batch_execute("SELECT shard_table_add('more', 'tenant')").unwrap();
    assert_eq!(guards(&cluster), ["shard_a partial 2"]);
    master
        .batch_execute(
            "SELECT shard_keyspace_add('empty', 'directory', key_type => 'text'); SELECT shard_login_set('postgres', 'app')",
        )
        .unwrap();
    master.batch_execute("SELECT shard_table_drop('more'), shard_table_add('more', 'tenant')").unwrap();
    install(&cluster, "shard_a", "default");
    assert_eq!(guards(&cluster), ["shard_a guarded 2"]);
    assert_eq!(tried(&mut client(&cluster), "INSERT INTO more VALUES ('nobody', 1)"), "SM001");
    // A table without keys needs no guard.
    by_all(&cluster, "CREATE TABLE plans (id int PRIMARY KEY)");
    master.batch_execute("SELECT shard_table_add('plans', NULL, policy => 'global')").unwrap();
    assert_eq!(guards(&cluster), ["shard_a guarded 2"]);
    for (call, wanted) in [
        ("SELECT shard_table_drop('more')", "55006"),
        ("SELECT shard_unassign('moves'), shard_unassign('stays'), shard_drop('shard_a')", "55006"),
        ("CALL shard_guard_install('shard_z')", "42704"),
        ("CALL shard_guard_install('shard_a', 'other')", "42704"),
        ("CALL shard_guard_remove('shard_b')", "42704"),
        ("CALL shard_guard_install('shard_a', 'empty')", "55000"),
    ] {
        assert_eq!(outcome(&mut master, call), wanted, "{call}");
    }
    // Other shards are compared with it, and tables are made like its own, as if it had no guard.
    let differences = "SELECT count(*) FROM shard_schema_diff('shard_a', 'shard_b')";
    assert_eq!(master.query_one(differences, &[]).unwrap().get::<_, i64>(0), 0);
    by_all(&cluster, "CREATE TABLE odd (tenant int[], id int)");
    master.batch_execute("SELECT shard_table_add('odd', 'tenant')").unwrap();
    assert_eq!(outcome(&mut master, INSTALL), "0A000");
}

/// Tables were created again with keys of another type. No writer may fail because of the old list.
#[test]
#[ignore = "make test-all: tables made again; make test has routing::guard_changes::tables_and_columns_that_get_other_names_are_guarded_anew"]
fn a_list_of_another_type_is_made_anew() {
    let cluster = cluster(&[]);
    let made = |of: &str| {
        let tables = ["things", "more_things"].map(|table| {
            format!("DROP TABLE IF EXISTS {table}; CREATE TABLE {table} (id {of}); GRANT ALL ON {table} TO {CLIENT}")
        });
        by_all(&cluster, &tables.join("; "));
    };
    made("text");
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "SELECT shard_keyspace_add('things', 'directory', key_type => 'text');
             SELECT shard_table_add('things', 'id', 'things'), shard_table_add('more_things', 'id', 'things');
             SELECT shard_assign('1', 'shard_a', 'things'), shard_assign('2', 'shard_b', 'things')",
        )
        .unwrap();
    let mut client = client(&cluster);
    let mut expect = |wanted: [&str; 2]| {
        for table in ["things", "more_things"] {
            let at = ["1", "2"].map(|id| tried(&mut client, &format!("INSERT INTO {table} VALUES ('{id}')")));
            assert_eq!(at, wanted, "{table}");
        }
    };
    install(&cluster, "shard_a", "things");
    expect(["ok", "SM001"]);
    for of in ["bigint", "text"] {
        made(of);
        expect(["ok", "ok"]);
        install(&cluster, "shard_a", "things");
        expect(["ok", "SM001"]);
    }
    // Its master does not know the guard any more.
    master.batch_execute("CALL shard_guard_remove('shard_a', 'things', force => true)").unwrap();
    made("bigint");
    install(&cluster, "shard_a", "things");
    expect(["ok", "SM001"]);
    // The tables change during the installation. It reports this, and when it is called again it makes a new list.
    cluster.hold("guard_listed").unwrap();
    let call = in_background(&cluster, "CALL shard_guard_install('shard_a', 'things')");
    wait_held(&cluster, "guard_listed");
    made("text");
    cluster.fault("").unwrap();
    assert_eq!(call.join().unwrap(), "55000");
    expect(["ok", "ok"]);
    install(&cluster, "shard_a", "things");
    expect(["ok", "SM001"]);
}

/// These are more keys than any statement should hold. A list that is read in parts is complete.
#[test]
#[ignore = "make test-all: many keys; make test has a_key_that_was_never_there_is_refused"]
fn a_list_of_many_keys_is_whole() {
    let cluster = cluster_of(
        &[],
        "CREATE TABLE items (tenant text, id int, val text, code int, PRIMARY KEY (tenant, id)) PARTITION BY RANGE (id);
         CREATE TABLE items_1 PARTITION OF items FOR VALUES FROM (0) TO (10000);
         GRANT ALL ON items_1 TO PUBLIC",
    );
    let mut master = cluster.superuser().unwrap();
    let many =
        "SELECT shard_assign_many((SELECT array_agg('key ' || i) FROM generate_series(%) i), 'shard_a')";
    master.batch_execute(&many.replace('%', "1, 50000")).unwrap();
    install(&cluster, "shard_a", "default");
    master.batch_execute(&many.replace('%', "50001, 100000")).unwrap();
    let listed = "SELECT count(*) FROM shardmaster_agent.listed_1";
    assert_eq!(source(&cluster).query_one(listed, &[]).unwrap().get::<_, i64>(0), 100_002);
    by_all(
        &cluster,
        "CREATE TABLE items_2 PARTITION OF items FOR VALUES FROM (10000) TO (20000); GRANT ALL ON items_2 TO PUBLIC",
    );
    let mut client = client(&cluster);
    for key in ["key 1", "key 50000", "key 50001", "key 100000", "stays"] {
        assert_eq!(tried(&mut client, &insert(key, 9001)), "ok", "{key}");
        assert_eq!(tried(&mut client, &insert(key, 10001)), "ok", "{key}");
    }
    for statement in [
        insert("key 0", 9001),
        insert("key 0", 10001),
        "INSERT INTO items_1 VALUES ('key 0', 9001, 'x', 1)".to_owned(),
        "INSERT INTO items_2 VALUES ('key 0', 10001, 'x', 1)".to_owned(),
    ] {
        assert_eq!(tried(&mut client, &statement), "SM001", "{statement}");
    }
}

/// A master that does not know a guard cannot route keys there. Once it has the shard, it removes the guard.
#[test]
fn another_master_takes_the_guard_away() {
    let mut cluster = cluster(&[]);
    install(&cluster, "shard_a", "default");
    cluster.replace_master(&[]).unwrap();
    let mut master = cluster.superuser().unwrap();
    master.batch_execute("SELECT shard_table_add('items', 'tenant', key_type => 'text')").unwrap();
    for call in [INSTALL, "SELECT shard_cleanup('shard_a')"] {
        assert_eq!(outcome(&mut master, call), "55000", "{call}");
    }
    each(
        &mut master,
        &[
            "SELECT shard_adopt('shard_a')",
            "SELECT shard_cleanup('shard_a')",
            "SELECT shard_assign('new', 'shard_a')",
        ],
    );
    assert_eq!(tried(&mut client(&cluster), &insert("new", 1)), "ok");
    assert_eq!(leftovers(&mut source(&cluster)).unwrap(), Vec::<String>::new());
}
