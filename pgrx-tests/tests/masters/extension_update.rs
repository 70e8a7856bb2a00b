//! The library with the catalog of the previous version, and ALTER EXTENSION UPDATE in the middle of splits.
//! `scripts/test.sh updates` compares the result of an update with a new extension.

use postgres::Client;
use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE, OWNER, wait_healthy};
use shardmaster_tests::fixture::{self, by_superuser, finished, insert, source};
use shardmaster_tests::key_guards::{each, install, tried};
use shardmaster_tests::server::Server;
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use std::collections::BTreeMap;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const CONFIG: [&str; 2] = ["fsync = off", "shardmaster.tail_interval = 20"];
/// The last release. `sql/released/` has its SQL.
const FROM: &str = "0.1.0";

/// Makes two servers with the catalog of `FROM`. The first one has three tenants of 300 rows each.
fn cluster() -> Cluster {
    let mut cluster = Cluster::servers(0, &CONFIG).unwrap();
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(&format!("DROP EXTENSION shardmaster; CREATE EXTENSION shardmaster VERSION '{FROM}'"))
        .unwrap();
    for name in ["shard_a", "shard_b"] {
        let server = Server::start(name, &CONFIG).unwrap();
        cluster.add_server(server).unwrap();
    }
    for shard in &cluster.shards {
        let table = format!(
            "SET ROLE {OWNER}; CREATE TABLE items (tenant text, id int, val text, PRIMARY KEY (tenant, id));
             GRANT SELECT, INSERT, UPDATE, DELETE ON items TO {CLIENT}"
        );
        cluster.owner_of(shard).unwrap().batch_execute(&table).unwrap();
    }
    let rows = "INSERT INTO items SELECT t, i, i::text
                  FROM unnest('{before,moves,waits}'::text[]) t, generate_series(1, 300) i";
    cluster.servers[0].superuser(DATABASE).unwrap().batch_execute(rows).unwrap();
    let routes =
        "SELECT shard_table_add('items', 'tenant'), shard_assign_many('{before,moves,waits}', 'shard_a')";
    master.batch_execute(routes).unwrap();
    cluster
}

fn rows(server: &Server, tenant: &str) -> BTreeMap<i32, String> {
    let mut client = server.superuser(DATABASE).unwrap();
    let rows = client.query("SELECT id, val FROM items WHERE tenant = $1", &[&tenant]).unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Makes every kind of change to a moving tenant. `round` gives each call its own rows.
fn change(server: &Server, tenant: &str, round: i32) {
    let (first, last) = (1 + 20 * round, 10 + 20 * round);
    let statements = format!(
        "INSERT INTO items SELECT '{tenant}', 1000 * ({round} + 1) + i, 'new' FROM generate_series(1, 50) i;
         UPDATE items SET val = 'changed {round}' WHERE tenant = '{tenant}' AND id > 100;
         DELETE FROM items WHERE tenant = '{tenant}' AND id BETWEEN {first} AND {last}"
    );
    server.connect(DATABASE, CLIENT).unwrap().batch_execute(&statements).unwrap();
}

fn plan<'a>(cluster: &'a Cluster, tenant: &str) -> Split<'a> {
    Split::plan(cluster, "shard_a", "shard_b", &[tenant]).unwrap()
}

/// Completes a split, and checks that the target then has the source's rows.
fn complete(cluster: &Cluster, split: &Split, tenant: &str) {
    let wanted = rows(&cluster.servers[0], tenant);
    split.run(|_| ()).unwrap();
    assert_eq!(rows(&cluster.servers[1], tenant), wanted);
    split.finish(LIMIT).unwrap();
    assert!(rows(&cluster.servers[0], tenant).is_empty());
    assert_eq!(rows(&cluster.servers[1], tenant), wanted);
}

fn version(master: &mut Client) -> (bool, String) {
    let row = master.query_one("SELECT ok, value FROM shard_status() WHERE item = 'version'", &[]).unwrap();
    (row.get(0), row.get(1))
}

/// Returns what an operator sees by functions whose result became a composite type.
fn seen(master: &mut Client) -> Vec<String> {
    ["shard_topology()", "shard_entries()", "shard_routing_history()", "shard_capacity()", "shard_logins()"]
        .iter()
        .flat_map(|called| master.query(&format!("SELECT to_jsonb(r)::text FROM {called} r"), &[]).unwrap())
        .map(|row| row.get(0))
        .collect()
}

/// A user's role and view, which an update must leave alone.
const USERS: &str = "
    CREATE ROLE watcher; SELECT shard_grant('watcher', 'monitor');
    CREATE VIEW public.places AS SELECT shard_key, host FROM shard_topology()";

/// Neither of them belongs to the extension, so pg_dump includes them.
const KEPT: &str = "
    SELECT (SELECT count(*) FROM public.places) = 2
       AND has_function_privilege('watcher', 'shard_topology()', 'EXECUTE')
       AND NOT has_function_privilege('watcher', 'shard_misplaced_runs(bigint)', 'EXECUTE')
       AND NOT EXISTS (SELECT FROM pg_init_privs p, aclexplode(p.initprivs) a
                        WHERE p.objoid = 'shard_topology()'::regprocedure AND a.grantee = 'watcher'::regrole)";

/// Stored oids of roles: of one that is gone, and of one that exists.
const GONE: &str = "
    CREATE ROLE gone; CREATE ROLE here; SELECT shard_login_set('gone', 'reader'), shard_login_set('here', 'reader');
    INSERT INTO shardmaster.execution (keyspace, statement, wave, in_transaction, two_phase, login_role, master, started_by)
    SELECT 'default', 'SELECT 1', 1, true, true, role::regrole, '', role FROM unnest('{gone,here}'::text[]) role;
    DROP ROLE gone";

/// The roles are stored by name.
const NAMED: &str = "
    SELECT (SELECT count(*) = 1 FROM shard_logins() WHERE role = 'here') AND (SELECT count(*) = 1 FROM shard_logins())
       AND (SELECT count(*) = 1 FROM shardmaster.execution WHERE login_role = 'here')
       AND (SELECT count(*) = 1 FROM shardmaster.execution WHERE login_role ~ '^[0-9]+$')";

#[test]
fn an_update_in_the_middle_of_splits_loses_nothing() {
    let cluster = cluster();
    let source = &cluster.servers[0];
    let mut master = cluster.superuser().unwrap();
    let (is_well, said) = version(&mut master);
    assert!(!is_well && said.starts_with(&format!("extension {FROM}, library ")), "{said}");
    assert!(said.contains("run ALTER EXTENSION shardmaster UPDATE"), "{said}");
    // The old catalog continues to work, and a split completes all phases.
    let before = plan(&cluster, "before");
    before.call("start_dual_write").unwrap();
    before.call("run_backfill").unwrap();
    before.wait("cutover_pending", LIMIT).unwrap();
    // Its cutover waits, and an operator looks for the reason.
    let mut writer = source.superuser(DATABASE).unwrap();
    writer.batch_execute("BEGIN; UPDATE items SET val = val WHERE tenant = 'before'").unwrap();
    before.call("cutover").unwrap();
    before.wait_held("on shard \"shard_a\": pid", LIMIT).unwrap();
    let diagnosed = master.query("SELECT * FROM shard_split_diagnose($1)", &[&before.id]);
    assert!(diagnosed.is_ok(), "{diagnosed:?}");
    assert!(!version(&mut master).0);
    writer.batch_execute("COMMIT").unwrap();
    before.wait("completed", LIMIT).unwrap();
    // That is written after the phase.
    let is_told = || Ok(before.events()?.contains("the cutover waited for").then_some(()));
    wait::until("the cutover to tell for whom it waited", LIMIT, is_told).unwrap();
    complete(&cluster, &before, "before");
    let (moves, waits) = (plan(&cluster, "moves"), plan(&cluster, "waits"));
    moves.call("start_dual_write").unwrap();
    moves.call("run_backfill").unwrap();
    moves.wait("cutover_pending", LIMIT).unwrap();
    change(source, "moves", 0);
    master.batch_execute(USERS).unwrap();
    let before = seen(&mut master);
    master.batch_execute(GONE).unwrap();

    master.batch_execute("ALTER EXTENSION shardmaster UPDATE").unwrap();
    assert!(master.query_one(NAMED, &[]).unwrap().get::<_, bool>(0));
    master.batch_execute("SELECT shard_login_drop('here'); DELETE FROM shardmaster.execution").unwrap();
    // A session that has called them before sees the same, and so does a new one.
    assert_eq!(seen(&mut master), before);
    let mut master = cluster.superuser().unwrap();
    assert_eq!(seen(&mut master), before);
    assert!(master.query_one(KEPT, &[]).unwrap().get::<_, bool>(0));
    change(source, "moves", 1);
    complete(&cluster, &moves, "moves");
    complete(&cluster, &waits, "waits");
    wait_healthy(&mut master).unwrap();
    assert!(version(&mut master).0);
}

/// Makes a shard's lists of keys those of version 0.1, which had a table for redirects and one for key guards.
const OLD_LISTS: &str = r#"
    DROP TABLE IF EXISTS shardmaster_agent.redirect, shardmaster_agent.standing;
    CREATE TABLE shardmaster_agent.redirect (
        id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY, namespace text NOT NULL, keyspace text NOT NULL,
        entries text NOT NULL, version bigint NOT NULL DEFAULT 0, UNIQUE (namespace, keyspace, entries));
    CREATE TABLE shardmaster_agent.standing (
        id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY, namespace text NOT NULL, keyspace text NOT NULL,
        entries text NOT NULL, shard text NOT NULL, version bigint NOT NULL DEFAULT 0, UNIQUE (namespace, keyspace));
    DO $own$
    DECLARE
        owner regrole := (SELECT nspowner FROM pg_namespace WHERE nspname = 'shardmaster_agent');
    BEGIN
        EXECUTE format('ALTER TABLE shardmaster_agent.redirect OWNER TO %s', owner);
        EXECUTE format('ALTER TABLE shardmaster_agent.standing OWNER TO %s', owner);
    END $own$;
    INSERT INTO shardmaster_agent.redirect OVERRIDING SYSTEM VALUE
    SELECT id, namespace, keyspace, entries, version FROM shardmaster_agent.key_list WHERE mode = 'deny';
    INSERT INTO shardmaster_agent.standing OVERRIDING SYSTEM VALUE
    SELECT id, namespace, keyspace, entries, shard, version FROM shardmaster_agent.key_list WHERE mode = 'allow';
    DO $old$
    DECLARE
        one record;
    BEGIN
        FOR one IN SELECT pg_get_functiondef(p.oid) AS text FROM pg_proc p
                    WHERE p.pronamespace = 'shardmaster_agent'::regnamespace AND p.prosrc ~ 'shardmaster_agent.key_list' LOOP
            EXECUTE regexp_replace(regexp_replace(one.text,
                'key_list (r\s+WHERE) r.mode OPERATOR\(pg_catalog.=\) ''deny'' AND', 'redirect \1'),
                'key_list (g\s+WHERE) g.mode OPERATOR\(pg_catalog.=\) ''allow'' AND', 'standing \1');
        END LOOP;
        FOR one IN SELECT f.name FROM (VALUES ('redirect'), ('standing')) f (name) LOOP
            EXECUTE format('CREATE OR REPLACE FUNCTION shardmaster_agent.%I() RETURNS trigger LANGUAGE plpgsql AS
                                $$ BEGIN RETURN NULL; END $$', one.name);
        END LOOP;
        FOR one IN SELECT t.tgname, t.tgrelid::regclass AS relation, pg_get_triggerdef(t.oid) AS text FROM pg_trigger t
                    WHERE t.tgfoid = 'shardmaster_agent.key_guard()'::regprocedure AND t.tgparentid = 0 LOOP
            EXECUTE format('DROP TRIGGER %I ON %s', one.tgname, one.relation);
            EXECUTE replace(one.text, 'shardmaster_agent.key_guard()',
                            CASE WHEN one.tgname ~ 'redirect' THEN 'shardmaster_agent.redirect()'
                                 ELSE 'shardmaster_agent.standing()' END);
            EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', one.relation, one.tgname);
        END LOOP;
    END $old$;
    DROP TABLE shardmaster_agent.key_list;
    DROP FUNCTION shardmaster_agent.key_guard();
    DELETE FROM shardmaster_agent.made"#;

/// A shard with a redirect and a key guard of version 0.1 refuses, admits and forgets as before: when a key comes to
/// the guard, when one comes back by a cutover that began before the update, and when more keys leave.
#[test]
fn lists_of_keys_of_the_previous_version_are_taken_over() {
    let cluster = fixture::cluster(&[]);
    let mut master = cluster.superuser().unwrap();
    install(&cluster, "shard_a", "default");
    finished(&fixture::plan(&cluster));
    by_superuser(&cluster, 0, OLD_LISTS);
    let repeatable =
        |statement: String| format!("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; {statement}");
    let refuses = |new: &str| {
        let mut client = fixture::client(&cluster);
        for (tenant, wanted) in [("moves", "SM001"), ("nobody", "SM001"), ("stays", "ok"), ("new", new)] {
            assert_eq!(tried(&mut client, &insert(tenant, 9001)), wanted, "{tenant}");
            assert_eq!(
                tried(&mut client, &repeatable(insert(tenant, 9001))),
                wanted,
                "{tenant}, repeatable read"
            );
        }
    };
    refuses("SM001");
    // A transaction that has begun before is not refused for what it cannot see.
    let mut early = [fixture::client(&cluster), fixture::client(&cluster)];
    for early in &mut early {
        early.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").unwrap();
    }
    master.batch_execute("SELECT shard_assign('new', 'shard_a')").unwrap();
    for (early, tenant) in early.iter_mut().zip(["new", "moves"]) {
        assert_eq!(fixture::outcome(early, &insert(tenant, 9001)), "40001", "{tenant}");
    }
    refuses("ok");
    // More keys leave, and the first ones come back. The cutover began before the update.
    by_superuser(&cluster, 0, OLD_LISTS);
    let more = Split::plan(&cluster, "shard_a", "shard_b", &["new"]).unwrap();
    finished(&more);
    refuses("SM001");
    let back = Split::plan(&cluster, "shard_b", "shard_a", &["moves"]).unwrap();
    back.call("start_dual_write").unwrap();
    back.call("run_backfill").unwrap();
    back.wait("cutover_pending", LIMIT).unwrap();
    by_superuser(&cluster, 0, OLD_LISTS);
    back.run(|_| ()).unwrap();
    let mut client = fixture::client(&cluster);
    assert_eq!(tried(&mut client, &insert("moves", 9001)), "ok");
    assert_eq!(tried(&mut client, &insert("new", 9001)), "SM001");
    assert_eq!(tried(&mut client, &insert("nobody", 9001)), "SM001");
    back.finish(LIMIT).unwrap();
    // The guard goes, and the redirect with its last key.
    by_superuser(&cluster, 0, OLD_LISTS);
    each(&mut master, &["CALL shard_guard_remove('shard_a')"]);
    assert_eq!(tried(&mut client, &insert("nobody", 9001)), "ok");
    assert_eq!(tried(&mut client, &insert("new", 9001)), "SM001");
    more.drop_guard().unwrap();
    assert_eq!(tried(&mut client, &insert("new", 9001)), "ok");
    let left = "SELECT count(*) FROM pg_class
                 WHERE relnamespace = 'shardmaster_agent'::regnamespace AND relkind = 'r'
                   AND relname NOT IN ('master', 'decision', 'reference_ended')";
    assert_eq!(source(&cluster).query_one(left, &[]).unwrap().get::<_, i64>(0), 0);
}

/// A list of version 0.1 whose installation had not come to its functions keeps its number, so that the next list gets
/// another one.
#[test]
fn numbers_of_lists_of_the_previous_version_are_not_given_out_again() {
    let cluster = fixture::cluster(&[]);
    let mut master = cluster.superuser().unwrap();
    for server in [0, 1] {
        fixture::by_owner(
            &cluster,
            server,
            "CREATE TABLE mails (owner text, id int, PRIMARY KEY (owner, id))",
        );
    }
    install(&cluster, "shard_a", "default");
    by_superuser(&cluster, 0, OLD_LISTS);
    by_superuser(&cluster, 0, "DROP FUNCTION shardmaster_agent.not_listed_1(text) CASCADE");
    each(
        &mut master,
        &[
            "SELECT shard_keyspace_add('mail', 'directory', key_type => 'text')",
            "SELECT shard_table_add('mails', 'owner', 'mail')",
            "SELECT shard_assign('ann', 'shard_a', 'mail')",
        ],
    );
    install(&cluster, "shard_a", "mail");
    install(&cluster, "shard_a", "default");
    let numbers = "SELECT array_agg(DISTINCT id ORDER BY id) FROM shardmaster_agent.key_list";
    assert_eq!(source(&cluster).query_one(numbers, &[]).unwrap().get::<_, Vec<i32>>(0), [1, 2]);
}
