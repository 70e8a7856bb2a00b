//! An owner locks his table while the mover checks what a query over it would run, and releases the lock once
//! the mover waits. His changes of the table by then run with nobody's rights.

use postgres::Client;
use shardmaster_tests::attacker::{by_attacker, is_mover, own_the_table, session};
use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE, MOVER};
use shardmaster_tests::fixture::{
    LIMIT, by_superuser, by_superusers, client, cluster, plan, source, to_pending,
};
use shardmaster_tests::lookups;
use shardmaster_tests::repair::wait_held;
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use std::thread;

/// His code runs as soon as a query over the table is planned.
fn trap(table: &str) -> String {
    format!("CREATE INDEX trap ON {table} ((1)) WHERE steady('x')")
}

const RUNS: &str = "the mover would run untrusted code";

/// Does something while a table is locked by its owner, who sets the trap once somebody waits for it.
fn behind_a_lock<T: Send>(
    cluster: &Cluster,
    (shard, table): (&str, &str),
    body: impl FnOnce() -> T + Send,
) -> T {
    let mut owner = session(cluster, shard);
    owner.batch_execute(&format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")).unwrap();
    let server = cluster.servers.iter().find(|server| server.name() == shard).unwrap();
    let mut watcher = server.superuser(DATABASE).unwrap();
    thread::scope(|scope| {
        let running = scope.spawn(body);
        let waits = format!(
            "SELECT count(*) > 0 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
              WHERE NOT l.granted AND l.relation = '{table}'::regclass AND a.application_name LIKE 'shardmaster%'"
        );
        wait::until_true(&mut watcher, "the mover to wait for the table", LIMIT, &waits).unwrap();
        owner.batch_execute(&format!("{}; COMMIT", trap(table))).unwrap();
        running.join().unwrap()
    })
}

fn disarm(cluster: &Cluster, shard: &str) {
    session(cluster, shard).batch_execute("DROP INDEX trap").unwrap();
}

#[test]
fn the_middle_of_a_range_is_looked_for_under_the_lock() {
    let cluster = cluster(&[]);
    own_the_table(&cluster);
    let mut master = cluster.superuser().unwrap();
    let add = "SELECT shard_keyspace_add('middle', 'range', key_type => 'bigint'), shard_assign_range(NULL, NULL, 'shard_a', 'middle');
        SELECT shard_table_add('numbers', 'n', 'middle')";
    master.batch_execute(add).unwrap();
    let made =
        "CREATE TABLE numbers (n bigint PRIMARY KEY); INSERT INTO numbers SELECT generate_series(1, 99)";
    session(&cluster, "shard_a").batch_execute(made).unwrap();
    let ask = "SELECT shard_range_midpoint('middle', NULL, NULL)";
    let error = behind_a_lock(&cluster, ("shard_a", "numbers"), || master.query_one(ask, &[]).err());
    assert!(!is_mover(&cluster));
    let error = error.unwrap();
    assert!(error.as_db_error().unwrap().message().contains(RUNS), "{error:?}");
    disarm(&cluster, "shard_a");
    let mut master = cluster.superuser().unwrap();
    assert_eq!(master.query_one(ask, &[]).unwrap().get::<_, String>(0), "50");
}

/// Tables of both sides, and one that is referenced there.
#[ignore = "make test-all: the check; make test has a_step_and_a_cutover_read_what_is_referenced_under_its_lock"]
#[test]
fn a_check_reads_under_the_locks_that_it_has_looked_behind() {
    let cluster = cluster(&[]);
    own_the_table(&cluster);
    by_attacker(
        &cluster,
        "CREATE TABLE dict (code int PRIMARY KEY); INSERT INTO dict SELECT generate_series(1, 600);
         ALTER TABLE items ADD FOREIGN KEY (code) REFERENCES dict",
    );
    let split = plan(&cluster);
    assert_eq!(split.findings().unwrap(), Vec::<String>::new());
    for at in [("shard_a", "items"), ("shard_b", "items"), ("shard_b", "dict")] {
        let found = behind_a_lock(&cluster, at, || split.findings());
        assert!(!is_mover(&cluster), "{at:?}: {found:?}");
        let found = found.unwrap();
        assert!(found.iter().any(|text| text.contains("function public.steady(text)")), "{at:?}: {found:?}");
        disarm(&cluster, at.0);
        assert_eq!(split.findings().unwrap(), Vec::<String>::new());
    }
}

/// Makes a split of two tables, one of which references a table that does not move.
fn with_references(cluster: &Cluster) -> Split<'_> {
    own_the_table(cluster);
    by_attacker(
        cluster,
        &format!(
            "CREATE TABLE dict (code int PRIMARY KEY); INSERT INTO dict SELECT generate_series(1, 600);
             CREATE TABLE more (tenant text, id int UNIQUE, PRIMARY KEY (tenant, id));
             CREATE TABLE refs (id int PRIMARY KEY);
             ALTER TABLE items ADD FOREIGN KEY (code) REFERENCES dict; GRANT ALL ON more, refs TO {CLIENT}"
        ),
    );
    let fill = "INSERT INTO more SELECT 'moves', generate_series(1, 50)";
    source(cluster).batch_execute(fill).unwrap();
    let add = "SELECT shard_table_add('more', 'tenant')";
    cluster.superuser().unwrap().batch_execute(add).unwrap();
    let split = plan(cluster);
    assert_eq!(split.findings().unwrap(), Vec::<String>::new());
    to_pending(&split);
    split
}

/// Lets a held worker continue while a table is locked, until the expected error is there.
fn goes_on(cluster: &Cluster, split: &Split<'_>, at: (&str, &str), until: &str) {
    let error = behind_a_lock(cluster, at, || {
        cluster.fault("").unwrap();
        split.wait(until, LIMIT).err().map(|error| error.to_string()).unwrap_or_default()
    });
    assert!(!is_mover(cluster), "{at:?}: {error}");
    assert!(error.contains(RUNS), "{at:?}: {error}");
    disarm(cluster, at.0);
}

#[test]
fn a_step_and_a_cutover_read_what_is_referenced_under_its_lock() {
    let cluster = cluster(&[]);
    let split = with_references(&cluster);
    split.wait_settled(LIMIT).unwrap();
    cluster.hold("step_begin").unwrap();
    split.wait_held("step_begin", LIMIT).unwrap();
    let write = "UPDATE items SET val = val || 'y' WHERE tenant = 'moves' AND id = 2";
    client(&cluster).batch_execute(write).unwrap();
    goes_on(&cluster, &split, ("shard_b", "dict"), "completed");
    split.call("replay_tail").unwrap();
    split.wait_settled(LIMIT).unwrap();
    cluster.hold("cutover_begin").unwrap();
    split.call("cutover").unwrap();
    split.wait_held("cutover_begin", LIMIT).unwrap();
    goes_on(&cluster, &split, ("shard_b", "dict"), "completed");
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    assert!(!is_mover(&cluster));
}

/// Waits until a session of the mover waits for a table, in a statement that begins with this text.
fn wait_waiting(watcher: &mut Client, table: &str, what: &str) {
    let waits = format!(
        "SELECT count(*) > 0 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
          WHERE NOT l.granted AND l.relation = '{table}'::regclass
            AND a.application_name LIKE 'shardmaster%' AND a.query LIKE '{what}%'"
    );
    wait::until_true(watcher, what, LIMIT, &waits).unwrap();
}

/// Locks a table once nobody else holds a lock. Later requests wait behind this one.
fn lock_next<'a>(
    scope: &'a thread::Scope<'a, '_>,
    cluster: &'a Cluster,
    watcher: &mut Client,
    (shard, table): (&'static str, &'static str),
) -> thread::ScopedJoinHandle<'a, Client> {
    let asked = scope.spawn(move || {
        let mut owner = session(cluster, shard);
        owner.batch_execute(&format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")).unwrap();
        owner
    });
    let waits = format!(
        "SELECT count(*) > 0 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
          WHERE NOT l.granted AND l.relation = '{table}'::regclass AND a.usename = 'mallory'"
    );
    wait::until_true(watcher, "the owner to wait", LIMIT, &waits).unwrap();
    asked
}

/// When the lock by a name is there, the name may refer to another object than when it was looked up.
#[ignore = "make test-all: what is referenced; make test has what_is_to_be_locked_is_asked_again_behind_the_locks"]
#[test]
fn a_cutover_asks_what_is_referenced_once_it_is_locked() {
    let cluster = cluster(&[]);
    let split = with_references(&cluster);
    split.wait_settled(LIMIT).unwrap();
    let mut watcher = cluster.servers[1].superuser(DATABASE).unwrap();
    cluster.hold("cutover_begin").unwrap();
    split.call("cutover").unwrap();
    split.wait_held("cutover_begin", LIMIT).unwrap();
    let mut owner = session(&cluster, "shard_b");
    owner.batch_execute("BEGIN; LOCK TABLE dict IN ACCESS EXCLUSIVE MODE").unwrap();
    cluster.fault("").unwrap();
    thread::scope(|scope| {
        wait_waiting(&mut watcher, "dict", "BEGIN; SELECT 1 /");
        let next = lock_next(scope, &cluster, &mut watcher, ("shard_b", "dict"));
        owner.batch_execute("COMMIT").unwrap();
        let mut owner = next.join().unwrap();
        wait_waiting(&mut watcher, "dict", "BEGIN; LOCK TABLE");
        let swap = "ALTER TABLE dict RENAME TO kept; CREATE VIEW dict AS SELECT code FROM kept WHERE steady(code::text); COMMIT";
        owner.batch_execute(swap).unwrap();
    });
    split.wait("completed", LIMIT).unwrap();
    assert!(!is_mover(&cluster));
}

/// The owner of a conflicting unique value is looked up once the step has released its locks.
#[ignore = "make test-all: a row in the way; make test has a_step_and_a_cutover_read_what_is_referenced_under_its_lock"]
#[test]
fn whose_row_is_in_the_way_is_asked_under_the_lock() {
    let cluster = shardmaster_tests::fixture::cluster_of(
        &[],
        "CREATE TABLE items (tenant text, id int, val text, code int UNIQUE, PRIMARY KEY (tenant, id))",
    );
    own_the_table(&cluster);
    let split = plan(&cluster);
    to_pending(&split);
    split.wait_settled(LIMIT).unwrap();
    let mut watcher = cluster.servers[1].superuser(DATABASE).unwrap();
    let stranger = "INSERT INTO items VALUES ('elsewhere', 1, 'x', 99999)";
    session(&cluster, "shard_b").batch_execute(stranger).unwrap();
    cluster.hold("step_begin").unwrap();
    split.wait_held("step_begin", LIMIT).unwrap();
    let write = "UPDATE items SET code = 99999 WHERE tenant = 'moves' AND id = 2";
    client(&cluster).batch_execute(write).unwrap();
    let mut holder = session(&cluster, "shard_b");
    holder.batch_execute("BEGIN; SELECT FROM items WHERE tenant = 'moves' AND id = 2 FOR UPDATE").unwrap();
    cluster.fault("").unwrap();
    let waits = "SELECT count(*) > 0 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
                  WHERE NOT l.granted AND a.application_name LIKE 'shardmaster%'";
    wait::until_true(&mut watcher, "the step to wait for the row", LIMIT, waits).unwrap();
    thread::scope(|scope| {
        let next = lock_next(scope, &cluster, &mut watcher, ("shard_b", "items"));
        holder.batch_execute("COMMIT").unwrap();
        let mut owner = next.join().unwrap();
        let waits = "SELECT count(*) > 0 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
                      WHERE NOT l.granted AND a.application_name LIKE 'shardmaster%collision'";
        wait::until_true(&mut watcher, "the question to wait", LIMIT, waits).unwrap();
        owner.batch_execute(&format!("{}; COMMIT", trap("items"))).unwrap();
    });
    split.failure(LIMIT).unwrap();
    assert!(!is_mover(&cluster));
}

/// These rows were written to the target before its guard existed.
#[ignore = "make test-all: the installation; make test has a_step_and_a_cutover_read_what_is_referenced_under_its_lock"]
#[test]
fn an_installation_reads_the_target_under_its_lock() {
    let cluster = cluster(&[]);
    own_the_table(&cluster);
    let split = plan(&cluster);
    cluster.hold("install_guarded").unwrap();
    split.call("start_dual_write").unwrap();
    split.wait_held("install_guarded", LIMIT).unwrap();
    goes_on(&cluster, &split, ("shard_b", "items"), "dual_write");
    to_pending(&split);
    assert!(!is_mover(&cluster));
}

/// This happens before anything is deleted, and at each batch.
#[test]
fn a_finish_reads_what_references_its_rows_under_its_lock() {
    let cluster = cluster(&[]);
    let split = with_references(&cluster);
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    let comes = "ALTER TABLE refs ADD FOREIGN KEY (id) REFERENCES more (id)";
    session(&cluster, "shard_a").batch_execute(comes).unwrap();
    for point in ["finish_begin", "finish_batch"] {
        cluster.hold(point).unwrap();
        split.call("finish").unwrap();
        split.wait_held(point, LIMIT).unwrap();
        goes_on(&cluster, &split, ("shard_a", "refs"), "finished");
    }
    split.finish(LIMIT).unwrap();
    assert!(!is_mover(&cluster));
}

/// A foreign key that is created while the split waits for a lock names a table that this does not lock.
#[test]
fn what_is_to_be_locked_is_asked_again_behind_the_locks() {
    let cluster = cluster(&[]);
    own_the_table(&cluster);
    let split = plan(&cluster);
    to_pending(&split);
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    let mut owner = session(&cluster, "shard_a");
    owner.batch_execute("CREATE TABLE refs (who text, id int)").unwrap();
    let mut watcher = source(&cluster);
    cluster.hold("finish_begin").unwrap();
    split.call("finish").unwrap();
    split.wait_held("finish_begin", LIMIT).unwrap();
    owner.batch_execute("BEGIN; LOCK TABLE items IN ACCESS EXCLUSIVE MODE").unwrap();
    cluster.fault("").unwrap();
    thread::scope(|scope| {
        // He lets each statement that waits for the table continue, up to the one that takes the locks.
        loop {
            wait_waiting(&mut watcher, "items", "");
            let takes = "SELECT count(*) > 0 FROM pg_stat_activity
                          WHERE application_name LIKE 'shardmaster%' AND query LIKE 'BEGIN; SET LOCAL lock_timeout%'
                            AND state <> 'idle'";
            if watcher.query_one(takes, &[]).unwrap().get(0) {
                break;
            }
            let next = lock_next(scope, &cluster, &mut watcher, ("shard_a", "items"));
            owner.batch_execute("COMMIT").unwrap();
            owner = next.join().unwrap();
        }
        owner
            .batch_execute("ALTER TABLE refs ADD FOREIGN KEY (who, id) REFERENCES items (tenant, id)")
            .unwrap();
        let next = lock_next(scope, &cluster, &mut watcher, ("shard_a", "refs"));
        owner.batch_execute("COMMIT").unwrap();
        let mut owner = next.join().unwrap();
        wait_waiting(&mut watcher, "refs", "");
        owner.batch_execute(&format!("{}; COMMIT", trap("refs"))).unwrap();
    });
    let error = split.wait("finished", LIMIT).unwrap_err().to_string();
    assert!(!is_mover(&cluster), "{error}");
    assert!(error.contains(RUNS), "{error}");
    disarm(&cluster, "shard_a");
    split.finish(LIMIT).unwrap();
}

/// A table that references the rows is renamed between two batches. The next attempt finds it.
#[test]
#[ignore = "make test-all: another name; make test has a_finish_reads_what_references_its_rows_under_its_lock"]
fn a_finish_goes_on_where_what_references_its_rows_has_another_name() {
    let cluster = cluster(&["shardmaster.copy_streams = 1"]);
    own_the_table(&cluster);
    let fill = "INSERT INTO items SELECT 'moves', i, repeat('x', 1050) FROM generate_series(1001, 31000) i; ANALYZE items";
    source(&cluster).batch_execute(fill).unwrap();
    let split = plan(&cluster);
    to_pending(&split);
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    let mut owner = session(&cluster, "shard_a");
    let comes = "CREATE TABLE refs (who text, id int, FOREIGN KEY (who, id) REFERENCES items)";
    owner.batch_execute(comes).unwrap();
    cluster.hold("finish_batch").unwrap();
    split.call("finish").unwrap();
    split.wait_held("finish_batch", LIMIT).unwrap();
    let count = "SELECT count(*) FROM items WHERE tenant = 'moves'";
    let left: i64 = owner.query_one(count, &[]).unwrap().get(0);
    assert!(left > 0 && left < 30_000, "{left}");
    owner.batch_execute("ALTER TABLE refs RENAME TO others").unwrap();
    cluster.fault("").unwrap();
    split.wait("finished", LIMIT).unwrap();
    assert_eq!(owner.query_one(count, &[]).unwrap().get::<_, i64>(0), 0);
}

/// Partitions were attached to the target with rows of their own. A rollback names them.
#[ignore = "make test-all: a rollback; make test has a_finish_reads_what_references_its_rows_under_its_lock"]
#[test]
fn a_rollback_reads_what_was_attached_under_its_lock() {
    let cluster = shardmaster_tests::fixture::cluster_of(
        &[],
        "CREATE TABLE items (tenant text, id int, val text, code int, PRIMARY KEY (tenant, id)) PARTITION BY LIST (tenant);
         CREATE TABLE items_m PARTITION OF items FOR VALUES IN ('moves'); CREATE TABLE items_other PARTITION OF items DEFAULT",
    );
    own_the_table(&cluster);
    by_superusers(&cluster, "ALTER TABLE items_m OWNER TO mallory; ALTER TABLE items_other OWNER TO mallory");
    let split = plan(&cluster);
    to_pending(&split);
    let attach = "CREATE TABLE items_new (LIKE items INCLUDING ALL); ALTER TABLE items ATTACH PARTITION items_new FOR VALUES IN ('new')";
    cluster.hold("rollback_capture").unwrap();
    split.call("rollback").unwrap();
    split.wait_held("rollback_capture", LIMIT).unwrap();
    session(&cluster, "shard_b").batch_execute(attach).unwrap();
    cluster.hold("rollback_batch").unwrap();
    split.wait_held("rollback_batch", LIMIT).unwrap();
    goes_on(&cluster, &split, ("shard_b", "items_new"), "rolled_back");
    split.call("rollback").unwrap();
    split.wait("rolled_back", LIMIT).unwrap();
    assert!(!is_mover(&cluster));
}

/// The lookup of a row. (A fill waits until those who already hold a lock have finished.)
#[test]
fn look_ups_read_under_the_lock() {
    let cluster = lookups::stage(&[]);
    by_superusers(
        &cluster,
        &format!(
            "CREATE TABLE items (); ALTER TABLE items OWNER TO {}; GRANT CREATE ON SCHEMA public TO PUBLIC",
            shardmaster_tests::cluster::OWNER
        ),
    );
    own_the_table(&cluster);
    by_superusers(&cluster, "ALTER TABLE users OWNER TO mallory");
    let mut owner = session(&cluster, "shard_a");
    owner.batch_execute(&lookups::insert(1, 10, "a")).unwrap();
    let mut master = cluster.superuser().unwrap();
    let says = format!(
        "SELECT count(*) > 0 FROM shard_lookups() l WHERE l.keyspace = 'emails' AND l::text LIKE '%{RUNS}%'"
    );
    master.batch_execute(lookups::ADD).unwrap();
    lookups::wait_filled(&mut master);
    cluster.hold("lookup_committed").unwrap();
    owner.batch_execute("INSERT INTO users VALUES ('a', 11, 'one@x.org')").unwrap();
    wait_held(&cluster, "lookup_committed");
    owner.batch_execute("INSERT INTO users VALUES ('a', 12, 'two@x.org')").unwrap();
    behind_a_lock(&cluster, ("shard_a", "users"), || {
        cluster.fault("").unwrap();
        let mut master = cluster.superuser().unwrap();
        wait::until_true(&mut master, "the question to be refused", LIMIT, &says).unwrap();
    });
    assert!(!is_mover(&cluster));
    disarm(&cluster, "shard_a");
    lookups::wait_route(&mut master, "two@x.org", "shard_a");
    assert!(!is_mover(&cluster));
}

/// Rows of a copy that refer to a row that the origin has deleted are looked for.
#[test]
fn a_reference_table_is_followed_under_the_locks_of_what_refers_to_it() {
    let cluster = cluster(&[]);
    own_the_table(&cluster);
    by_attacker(&cluster, "CREATE TABLE dict (code int PRIMARY KEY)");
    session(&cluster, "shard_a").batch_execute("INSERT INTO dict SELECT generate_series(1, 9)").unwrap();
    let mut master = cluster.superuser().unwrap();
    let add = "SELECT shard_table_add('dict', NULL, policy => 'reference', origin => 'shard_a')";
    master.batch_execute(add).unwrap();
    let there = "SELECT count(*) = 9 FROM dict";
    wait::until_true(&mut session(&cluster, "shard_b"), "the copy", LIMIT, there).unwrap();
    session(&cluster, "shard_b").batch_execute("CREATE TABLE refs (code int REFERENCES dict)").unwrap();
    session(&cluster, "shard_a").batch_execute("INSERT INTO dict VALUES (10)").unwrap();
    let there = "SELECT count(*) = 10 FROM dict";
    wait::until_true(&mut session(&cluster, "shard_b"), "its next row", LIMIT, there).unwrap();
    let says = format!("SELECT count(*) > 0 FROM shard_reference_tables() t WHERE t::text LIKE '%{RUNS}%'");
    behind_a_lock(&cluster, ("shard_b", "refs"), || {
        session(&cluster, "shard_a").batch_execute("DELETE FROM dict WHERE code = 10").unwrap();
        wait::until_true(&mut master, "the step to be refused", LIMIT, &says).unwrap();
    });
    assert!(!is_mover(&cluster));
    disarm(&cluster, "shard_b");
    let there = "SELECT count(*) = 9 FROM dict";
    wait::until_true(&mut session(&cluster, "shard_b"), "what is gone", LIMIT, there).unwrap();
    assert!(!is_mover(&cluster));
    // Somebody else's table that the mover may not read blocks rows that are deleted, and not those that are added.
    by_superuser(
        &cluster,
        1,
        "CREATE ROLE stranger LOGIN; GRANT REFERENCES ON dict TO stranger; GRANT CREATE ON SCHEMA public TO stranger;
         SET ROLE stranger; CREATE TABLE theirs (code int REFERENCES dict)",
    );
    let rows = |count: i32| format!("SELECT count(*) = {count} FROM dict");
    session(&cluster, "shard_a").batch_execute("INSERT INTO dict VALUES (10)").unwrap();
    wait::until_true(&mut session(&cluster, "shard_b"), "a row that comes", LIMIT, &rows(10)).unwrap();
    session(&cluster, "shard_a").batch_execute("DELETE FROM dict WHERE code = 10").unwrap();
    let says = "SELECT count(*) > 0 FROM shard_reference_tables() t WHERE t::text LIKE '%grant the mover SELECT on both%'";
    wait::until_true(&mut master, "what to do", LIMIT, says).unwrap();
    by_superuser(&cluster, 1, &format!("GRANT SELECT ON theirs TO {MOVER}"));
    wait::until_true(&mut session(&cluster, "shard_b"), "what is gone", LIMIT, &rows(9)).unwrap();
}
