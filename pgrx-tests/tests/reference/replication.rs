//! Tables of a keyspace that are not sharded. Global tables stay where they are, and reference tables are
//! copied from their origin to every shard.

use shardmaster_tests::cluster::{Cluster, DATABASE, MOVER as OWNER_LOGIN};
use shardmaster_tests::fixture::{
    LIMIT, by_owner as run, by_superuser, cluster, cluster_of, plan, rows, to_pending,
};
use shardmaster_tests::server::Server;
use shardmaster_tests::wait;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

pub const COUNTRIES: &str = "CREATE TABLE countries (code text PRIMARY KEY, name text);
    CREATE TABLE items (tenant text, id int, val text, code int, country text,
                        PRIMARY KEY (tenant, id))";
const REFERS: &str =
    "ALTER TABLE items ADD CONSTRAINT items_country FOREIGN KEY (country) REFERENCES countries";

pub fn master(cluster: &Cluster, statements: &str) {
    cluster.superuser().unwrap().batch_execute(statements).unwrap();
}

/// Returns the SQLSTATE of a refused statement.
pub fn refused(cluster: &Cluster, statement: &str) -> String {
    let error = cluster.superuser().unwrap().batch_execute(statement).unwrap_err();
    error.code().map(|state| state.code().to_owned()).unwrap_or_default()
}

/// Returns the first column of a query, as one text.
pub fn all(session: &mut postgres::Client, query: &str) -> String {
    let rows = session.query(query, &[]).unwrap();
    let texts = rows.iter().map(|row| row.get::<_, Option<String>>(0).unwrap_or_default());
    texts.collect::<Vec<_>>().join(",")
}

#[test]
fn a_policy_says_what_else_is_said() {
    let cluster = cluster(&[]);
    for statement in [
        "SELECT shard_table_add('plans', 'id', policy => 'global')",
        "SELECT shard_table_add('plans', NULL, policy => 'global', origin => 'shard_a')",
        "SELECT shard_table_add('plans', NULL, policy => 'global', key_type => 'int')",
        "SELECT shard_table_add('plans', NULL, policy => 'reference')",
        "SELECT shard_table_add('plans', NULL, policy => 'everywhere')",
        "SELECT shard_table_add('plans', 'id', origin => 'shard_a')",
    ] {
        assert_eq!(refused(&cluster, statement), "22023", "{statement}");
    }
    assert_eq!(refused(&cluster, "SELECT shard_table_add('plans', NULL)"), "22004");
    let unknown = "SELECT shard_table_add('plans', NULL, policy => 'reference', origin => 'shard_x')";
    assert_eq!(refused(&cluster, unknown), "42704");
    master(&cluster, "SELECT shard_table_add('plans', NULL, policy => 'global')");
    assert_eq!(refused(&cluster, "SELECT shard_table_add('plans', 'id')"), "42710");
    let mut session = cluster.superuser().unwrap();
    let tables = "SELECT concat_ws(' ', table_name, shard_by, policy) FROM shard_tables()";
    assert_eq!(all(&mut session, tables), "items tenant sharded,plans global");
    master(&cluster, "SELECT shard_table_drop('plans')");
}

#[test]
#[ignore = "make test-all: global tables; make test has a_policy_says_what_else_is_said"]
fn a_global_table_stays_where_it_is() {
    let cluster = cluster_of(&[], COUNTRIES);
    for server in [0, 1] {
        by_superuser(
            &cluster,
            server,
            "CREATE ROLE reader LOGIN; GRANT SELECT ON items, countries TO reader",
        );
    }
    master(
        &cluster,
        "SELECT shard_table_add('countries', NULL, policy => 'global'), shard_login_set('postgres', 'reader')",
    );
    run(&cluster, 0, "INSERT INTO countries VALUES ('de'); UPDATE items SET country = 'de'");
    run(&cluster, 0, REFERS);
    let split = plan(&cluster);
    let text = split.findings_with_hints().unwrap().join("\n");
    assert!(text.contains("source: foreign keys to global tables: public.items references"), "{text}");
    assert!(text.contains("HINT: A global table is on one server only"), "{text}");
    run(&cluster, 0, "ALTER TABLE items DROP CONSTRAINT items_country");
    assert_eq!(split.findings_with_hints().unwrap().join("\n"), "");
    to_pending(&split);
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    assert_eq!(rows(&cluster, 1).len(), 300);
    let mut target = cluster.servers[1].superuser(DATABASE).unwrap();
    assert_eq!(all(&mut target, "SELECT code FROM countries"), "");
    split.finish(LIMIT).unwrap();
    let mut source = cluster.servers[0].superuser(DATABASE).unwrap();
    assert_eq!(all(&mut source, "SELECT code FROM countries"), "de");
    // Its rows are not reported as misplaced, and no other shard gets the table.
    let mut session = cluster.superuser().unwrap();
    assert_eq!(
        all(&mut session, "SELECT table_name FROM shard_misplaced() WHERE table_name = 'countries'"),
        ""
    );
    let differences =
        "SELECT object FROM shard_schema_diff('shard_a', 'shard_b') WHERE object LIKE '%countries%'";
    assert_eq!(all(&mut session, differences), "");
}

pub const ADD: &str = "SELECT shard_table_add('countries', NULL, policy => 'reference', origin => 'shard_a')";
pub const WAIT: &str = "SELECT shard_reference_wait(timeout => '60 s')";

/// Returns all rows of a table with all their columns.
pub fn contents(cluster: &Cluster, server: usize, table: &str) -> Vec<String> {
    let query = format!("SELECT to_jsonb(t)::text FROM {table} t ORDER BY 1");
    let rows = cluster.servers[server].superuser(DATABASE).unwrap().query(&query, &[]).unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Checks that every shard has the same rows when nothing changes.
pub fn alike(cluster: &Cluster, tables: &[&str]) {
    master(cluster, WAIT);
    for table in tables {
        let first = contents(cluster, 0, table);
        for server in 1..cluster.servers.len() {
            let other = contents(cluster, server, table);
            let differs = first.iter().zip(&other).find(|(one, other)| one != other);
            assert!(
                first == other,
                "{table} on server {server}: {} rows, {} there, {differs:?}",
                first.len(),
                other.len()
            );
        }
    }
}

pub fn states(cluster: &Cluster) -> String {
    let query =
        "SELECT concat_ws(' ', table_name, origin, shard, state, error) FROM shard_reference_tables()";
    all(&mut cluster.superuser().unwrap(), query)
}

#[test]
fn every_shard_follows() {
    let cluster = cluster_of(&[], COUNTRIES);
    run(&cluster, 0, "INSERT INTO countries SELECT 'c' || i, i FROM generate_series(1, 3000) i");
    // Existing rows are replaced.
    run(&cluster, 1, "INSERT INTO countries VALUES ('c1', 'x'), ('c2', 2), ('other', 'x')");
    master(&cluster, ADD);
    alike(&cluster, &["countries"]);
    assert_eq!(states(&cluster), "countries shard_a shard_b following");
    run(
        &cluster,
        0,
        "UPDATE countries SET name = 'new' WHERE code = 'c3'; DELETE FROM countries WHERE code = 'c4';
         UPDATE countries SET code = 'c4' WHERE code = 'c5'; INSERT INTO countries VALUES ('c5', 'again')",
    );
    alike(&cluster, &["countries"]);
    assert_eq!(contents(&cluster, 1, "countries").len(), 3000);
    // Nothing else has mentioned this key yet.
    run(&cluster, 0, "UPDATE countries SET code = 'renamed' WHERE code = 'c6'");
    alike(&cluster, &["countries"]);
    // Clients can write on the origin alone.
    let mut session = cluster.servers[1].connect(DATABASE, OWNER_LOGIN).unwrap();
    for statement in ["DELETE FROM countries", "TRUNCATE countries", "INSERT INTO countries VALUES ('z')"] {
        let error = session.batch_execute(statement).unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "55000", "{statement}");
        assert!(error.message().contains("shard \"shard_a\""), "{}", error.message());
    }
    assert_eq!(
        refused(&cluster, "SELECT shard_unassign('moves'), shard_unassign('stays'), shard_drop('shard_a')"),
        "55006"
    );
    run(&cluster, 0, "TRUNCATE countries; INSERT INTO countries VALUES ('one')");
    alike(&cluster, &["countries"]);
    assert_eq!(contents(&cluster, 1, "countries").len(), 1);
    master(&cluster, "SELECT shard_table_drop('countries')");
    let mut shard = cluster.servers[1].superuser(DATABASE).unwrap();
    wait::until("nothing to be left", LIMIT, || {
        let left = "SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class
                     WHERE relnamespace = to_regnamespace('shardmaster_agent') AND relkind = 'r'";
        // These tables stay until the shard is dropped.
        Ok((all(&mut shard, left) == "master reference_ended").then_some(()))
    })
    .unwrap();
    run(&cluster, 1, "INSERT INTO countries VALUES ('free')");
    assert_eq!(contents(&cluster, 1, "countries").len(), 2);
}

/// Waits until the worker is held at a point.
pub fn held(cluster: &Cluster, point: &str) {
    let query = format!(
        "SELECT count(*) = 1 FROM pg_stat_activity
          WHERE backend_type = 'shardmaster reference tables' AND query = 'held at point \"{point}\"'"
    );
    wait::until_true(&mut cluster.superuser().unwrap(), point, LIMIT, &query).unwrap();
}

/// Adds a shard without the table.
fn third(cluster: &mut Cluster) {
    cluster.add_server(Server::start("shard_c", &["fsync = off"]).unwrap()).unwrap();
}

#[test]
fn a_new_shard_is_filled_before_it_gets_keys() {
    let mut cluster = cluster_of(&[], COUNTRIES);
    run(&cluster, 0, "INSERT INTO countries SELECT 'c' || i, i FROM generate_series(1, 500) i");
    master(&cluster, ADD);
    alike(&cluster, &["countries"]);
    third(&mut cluster);
    let assign = "SELECT shard_assign('new', 'shard_c')";
    assert_eq!(refused(&cluster, assign), "55000");
    // The missing table is named, and the other shards follow meanwhile.
    let state =
        "SELECT concat_ws(' ', state, error, hint) FROM shard_reference_tables() WHERE shard = 'shard_c'";
    let mut session = cluster.superuser().unwrap();
    wait::until("the missing table to be named", LIMIT, || {
        let text = all(&mut session, state);
        let is_named = text.contains("\"public\".\"countries\" on shard \"shard_c\" does not exist");
        Ok((text.starts_with("failed") && is_named && text.contains("shard_schema_copy()")).then_some(()))
    })
    .unwrap();
    run(&cluster, 0, "INSERT INTO countries VALUES ('meanwhile')");
    wait::until("shard_b to follow", LIMIT, || {
        Ok((contents(&cluster, 0, "countries") == contents(&cluster, 1, "countries")).then_some(()))
    })
    .unwrap();
    cluster.hold("reference_applied").unwrap();
    for server in [0, 2] {
        let deployer = "CREATE ROLE deployer LOGIN; GRANT app_owner TO deployer; GRANT CREATE ON SCHEMA public TO deployer, app_owner";
        by_superuser(&cluster, server, deployer);
    }
    master(
        &cluster,
        "CREATE ROLE dba LOGIN; SELECT shard_grant('dba', 'operator'), shard_login_set('dba', 'deployer')",
    );
    let mut dba = cluster.master.connect(DATABASE, "dba").unwrap();
    dba.batch_execute("SELECT shard_schema_copy('shard_a', 'shard_c')").unwrap();
    held(&cluster, "reference_applied");
    assert_eq!(refused(&cluster, assign), "55000");
    assert!(contents(&cluster, 2, "countries").is_empty());
    cluster.fault("").unwrap();
    alike(&cluster, &["countries"]);
    master(&cluster, assign);
    assert_eq!(states(&cluster), "countries shard_a shard_b following,countries shard_a shard_c following");
}

/// Tables with which the order of changes matters.
const ZOO: &str = "CREATE TABLE plans (id int PRIMARY KEY, code text UNIQUE, amount numeric(8,2), doc jsonb, tags text[],
                                       twice int GENERATED ALWAYS AS (id * 2) STORED);
    CREATE TABLE prices (plan int REFERENCES plans ON UPDATE CASCADE ON DELETE CASCADE DEFERRABLE, at date, price money,
                         PRIMARY KEY (plan, at))";

pub fn zoo(servers: usize) -> Cluster {
    let mut cluster = cluster_of(&[], &format!("{COUNTRIES}; {ZOO}"));
    for server in 2..servers {
        let name = ["", "", "shard_c", "shard_d"][server];
        cluster.add_server(Server::start(name, &["fsync = off"]).unwrap()).unwrap();
        run(&cluster, server, &format!("{COUNTRIES}; {ZOO}"));
    }
    run(
        &cluster,
        0,
        "INSERT INTO plans SELECT i, 'p' || i, i / 7.0, jsonb_build_object('i', i), ARRAY[i::text, NULL]
           FROM generate_series(1, 200) i;
         INSERT INTO prices SELECT i, '2020-01-01', i FROM generate_series(1, 200) i",
    );
    for table in ["countries", "plans", "prices"] {
        master(&cluster, &ADD.replace("countries", table));
    }
    cluster
}

pub const ALL: [&str; 3] = ["countries", "plans", "prices"];

/// Returns one round of a writer, by its number.
fn writes(round: usize) -> String {
    let (a, b) = (round % 200 + 1, (round * 7) % 200 + 1);
    let c = 1000 + round;
    match round % 6 {
        // Rows exchange unique values.
        0 => format!(
            "BEGIN; UPDATE plans SET code = 'x{c}' WHERE id = {a}; UPDATE plans SET code = 'p{a}', amount = {round} WHERE id = {b};
             UPDATE plans SET code = 'p{b}' WHERE id = {a}; COMMIT"
        ),
        1 => format!(
            "BEGIN; INSERT INTO plans (id, code) VALUES ({c}, 'n{c}'); SAVEPOINT s; UPDATE plans SET amount = 1 WHERE id = {a};
             ROLLBACK TO s; UPDATE plans SET amount = amount + 1, doc = '{{\"r\": {round}}}' WHERE id = {a}; COMMIT"
        ),
        2 => format!("UPDATE plans SET id = id + 5000 WHERE id = {b}; UPDATE plans SET id = id - 5000 WHERE id = {b} + 5000"),
        3 => format!("INSERT INTO countries VALUES ('k{round}', 'v') ON CONFLICT (code) DO UPDATE SET name = 'again'"),
        4 => format!("BEGIN; DELETE FROM plans WHERE id = {}; INSERT INTO plans (id, code) VALUES ({0}, 'back'); ROLLBACK", c - 3),
        _ => format!("DELETE FROM plans WHERE id >= 1000 AND id < {} AND id % 2 = 0", c - 20),
    }
}

/// A client that writes on the origin until it is stopped. Unique values may be taken at the moment.
pub struct Writer {
    stop: Arc<AtomicBool>,
    handle: JoinHandle<usize>,
}

impl Writer {
    pub fn start(cluster: &Cluster, begin: usize) -> Writer {
        let stop = Arc::new(AtomicBool::new(false));
        let (told, mut session) = (stop.clone(), cluster.servers[0].superuser(DATABASE).unwrap());
        session.batch_execute("SET lock_timeout = '2s'; SET deadlock_timeout = '50ms'").unwrap();
        let handle = std::thread::spawn(move || {
            let (mut round, mut done) = (begin, 0);
            while !told.load(Ordering::Relaxed) {
                wait::rest();
                round += 3;
                match session.batch_execute(&writes(round)) {
                    Ok(()) => done += 1,
                    Err(_) => session.batch_execute("ROLLBACK").unwrap(),
                }
            }
            done
        });
        Writer { stop, handle }
    }

    pub fn stop(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.handle.join().unwrap()
    }
}

#[test]
#[ignore = "make test-all: changes at random; make test has every_shard_follows"]
fn all_shards_are_alike_at_rest() {
    let cluster = zoo(3);
    master(&cluster, WAIT);
    // This transaction commits late, and its changes have an old number.
    let mut late = cluster.servers[0].superuser(DATABASE).unwrap();
    late.batch_execute(
        "BEGIN; UPDATE plans SET amount = 99 WHERE id = 77; SAVEPOINT s; DELETE FROM countries",
    )
    .unwrap();
    let writers = [Writer::start(&cluster, 0), Writer::start(&cluster, 1)];
    std::thread::sleep(Duration::from_secs(3));
    late.batch_execute("COMMIT").unwrap();
    let done: usize = writers.into_iter().map(Writer::stop).sum();
    assert!(done > 100, "{done}");
    alike(&cluster, &ALL);
    let mut session = cluster.servers[0].superuser(DATABASE).unwrap();
    wait::until_true(
        &mut session,
        "the queues to be empty",
        LIMIT,
        "SELECT NOT EXISTS (SELECT FROM shardmaster_agent.reference_queue_1_2)",
    )
    .unwrap();
}

#[test]
#[ignore = "make test-all: columns that differ; make test has reference::lag_reasons::rows_that_do_not_fit_are_told_with_what_helps"]
fn a_shard_whose_columns_differ_stops_and_says_so() {
    let cluster = zoo(2);
    alike(&cluster, &ALL);
    run(&cluster, 0, "ALTER TABLE plans ADD more int DEFAULT 4; UPDATE plans SET more = id");
    wait::until("it to stop", LIMIT, || {
        let text = states(&cluster);
        Ok((text.contains("failed") && text.contains("column \"more\" that is different")).then_some(()))
    })
    .unwrap();
    assert_eq!(refused(&cluster, WAIT), "55000");
    run(&cluster, 1, "ALTER TABLE plans ADD more int DEFAULT 5");
    wait::until("it to follow again", LIMIT, || Ok((!states(&cluster).contains("failed")).then_some(())))
        .unwrap();
    alike(&cluster, &ALL);
    run(&cluster, 0, "ALTER TABLE plans ALTER amount TYPE numeric(10,3)");
    wait::until("it to stop", LIMIT, || Ok(states(&cluster).contains("failed").then_some(()))).unwrap();
    run(&cluster, 1, "ALTER TABLE plans ALTER amount TYPE numeric(10,3)");
    wait::until("it to follow again", LIMIT, || Ok((!states(&cluster).contains("failed")).then_some(())))
        .unwrap();
    alike(&cluster, &ALL);
    // A table whose triggers were disabled for a while must be copied again.
    run(
        &cluster,
        0,
        "ALTER TABLE plans DISABLE TRIGGER USER; UPDATE plans SET amount = 1 WHERE id = 3; ALTER TABLE plans ENABLE TRIGGER USER",
    );
    wait::until("what was missed to be there", LIMIT, || {
        Ok((contents(&cluster, 0, "plans") == contents(&cluster, 1, "plans")).then_some(()))
    })
    .unwrap();
}

#[test]
fn rows_that_others_refer_to_do_not_go() {
    let cluster = zoo(2);
    alike(&cluster, &ALL);
    run(&cluster, 0, "INSERT INTO countries VALUES ('de'), ('fr')");
    alike(&cluster, &ALL);
    for server in [0, 1] {
        run(&cluster, server, REFERS);
    }
    run(&cluster, 1, "INSERT INTO items VALUES ('other', 1, 'x', 1, 'de')");
    // An update of other columns does not prevent references to a row.
    let mut client = cluster.servers[1].superuser(DATABASE).unwrap();
    client.batch_execute("BEGIN; INSERT INTO items VALUES ('other', 2, 'x', 2, 'fr')").unwrap();
    run(&cluster, 0, "UPDATE countries SET name = 'changed'");
    alike(&cluster, &ALL);
    client.batch_execute("COMMIT").unwrap();
    run(&cluster, 0, "DELETE FROM countries WHERE code = 'de'");
    wait::until("it to stop", LIMIT, || {
        let text = states(&cluster);
        let is_named =
            text.contains("failed") && text.contains("items_country") && text.contains("(country)=(de)");
        Ok(is_named.then_some(()))
    })
    .unwrap();
    assert_eq!(contents(&cluster, 1, "countries").len(), 2);
    run(&cluster, 1, "DELETE FROM items WHERE country = 'de'");
    wait::until("it to follow again", LIMIT, || Ok((!states(&cluster).contains("failed")).then_some(())))
        .unwrap();
    alike(&cluster, &ALL);
    assert_eq!(contents(&cluster, 1, "countries").len(), 1);
}

#[test]
fn a_split_takes_no_row_where_what_it_refers_to_is_missing() {
    let cluster = cluster_of(&[], COUNTRIES);
    run(&cluster, 0, "INSERT INTO countries SELECT 'c' || i, i FROM generate_series(0, 99) i");
    for server in [0, 1] {
        run(&cluster, server, REFERS);
    }
    run(&cluster, 0, "UPDATE items SET country = 'c' || id % 100");
    cluster.hold("reference_applied").unwrap();
    master(&cluster, ADD);
    held(&cluster, "reference_applied");
    let split = plan(&cluster);
    let text = split.findings_with_hints().unwrap().join("\n");
    assert!(
        text.contains(
            "target: reference tables: shard \"shard_b\" does not have reference table countries yet"
        ),
        "{text}"
    );
    cluster.fault("").unwrap();
    master(&cluster, WAIT);
    assert_eq!(split.findings_with_hints().unwrap().join("\n"), "");
    to_pending(&split);
    // Rows that refer to a row that the target lacks wait for it, before the cutover and in it.
    let stop = Arc::new(AtomicBool::new(false));
    let (told, mut session) = (stop.clone(), cluster.servers[0].superuser(DATABASE).unwrap());
    let writer = std::thread::spawn(move || {
        let mut round = 0;
        while !told.load(Ordering::Relaxed) {
            round += 1;
            let statement = format!(
                "BEGIN; INSERT INTO countries VALUES ('n{round}', 'x');
                 UPDATE items SET country = 'n{round}' WHERE tenant = 'moves' AND id = 2 * ({round} % 100 + 1);
                 UPDATE items SET country = 'n{round}' WHERE tenant = 'stays' AND id = 2 * ({round} % 100) + 1; COMMIT"
            );
            if session.batch_execute(&statement).is_err() {
                session.batch_execute("ROLLBACK").unwrap();
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        round
    });
    cluster.hold("reference_applied").unwrap();
    held(&cluster, "reference_applied");
    split.call("cutover").unwrap();
    wait::until("the cutover to wait for it", LIMIT, || {
        let waits = split.metric::<Option<String>>("waiting_for")?.unwrap_or_default();
        Ok(waits.contains("reference table").then_some(()))
    })
    .unwrap();
    cluster.fault("").unwrap();
    wait::until("the cutover", LIMIT, || {
        let _ = split.call("cutover");
        Ok(split.wait("completed", Duration::from_secs(5)).ok())
    })
    .unwrap();
    stop.store(true, Ordering::Relaxed);
    assert!(writer.join().unwrap() > 20);
    assert_eq!(dangling(&cluster), "0");
    alike(&cluster, &["countries"]);
    split.finish(LIMIT).unwrap();
    assert_eq!(dangling(&cluster), "0");
    assert_eq!(rows(&cluster, 1).len(), 300);
}

/// Counts rows on the target that refer to a missing row.
fn dangling(cluster: &Cluster) -> String {
    let query = "SELECT count(*)::text FROM items i WHERE country IS NOT NULL
                    AND NOT EXISTS (SELECT FROM countries c WHERE c.code = i.country)";
    all(&mut cluster.servers[1].superuser(DATABASE).unwrap(), query)
}

/// Shards are schemas of one database. A table with its own schema is the same one for all.
#[test]
fn shards_may_be_schemas_of_one_database() {
    let cluster = Cluster::namespaces(2, &["fsync = off", "shardmaster.tail_interval = 20"]).unwrap();
    for shard in &cluster.shards {
        let mut owner = cluster.owner_of(shard).unwrap();
        owner.batch_execute(&format!("SET ROLE app_owner; {COUNTRIES}; RESET ROLE")).unwrap();
    }
    let mut session = cluster.superuser().unwrap();
    session
        .batch_execute(
            "CREATE SCHEMA common AUTHORIZATION app_owner; SET ROLE app_owner; CREATE TABLE common.currencies (code text PRIMARY KEY);
             INSERT INTO common.currencies VALUES ('eur'); INSERT INTO shard_a.countries VALUES ('de'); RESET ROLE",
        )
        .unwrap();
    master(&cluster, ADD);
    master(&cluster, WAIT);
    master(&cluster, &ADD.replace("countries", "common.currencies"));
    master(&cluster, WAIT);
    assert_eq!(all(&mut session, "SELECT code FROM shard_b.countries"), "de");
    session.batch_execute("SET ROLE app_owner; INSERT INTO common.currencies VALUES ('usd')").unwrap();
    assert!(session.batch_execute("INSERT INTO shard_b.countries VALUES ('fr')").is_err());
    session.batch_execute("INSERT INTO shard_a.countries VALUES ('fr'); RESET ROLE").unwrap();
    master(&cluster, WAIT);
    assert_eq!(all(&mut session, "SELECT code FROM shard_b.countries ORDER BY 1"), "de,fr");
    assert_eq!(all(&mut session, "SELECT code FROM common.currencies ORDER BY 1"), "eur,usd");
}

/// A dropped shard is not asked. The operator is told what stays there, and how it is removed.
#[test]
fn a_shard_that_goes_keeps_its_copies_and_says_so() {
    let mut cluster = cluster_of(&[], COUNTRIES);
    third(&mut cluster);
    by_superuser(&cluster, 2, COUNTRIES);
    by_superuser(
        &cluster,
        2,
        "ALTER TABLE countries OWNER TO app_owner; ALTER TABLE items OWNER TO app_owner",
    );
    master(&cluster, ADD);
    alike(&cluster, &["countries"]);
    let (says, said) = std::sync::mpsc::channel();
    let mut config = cluster.master.config(DATABASE, "postgres");
    config.notice_callback(move |notice| drop(says.send(notice.message().to_owned())));
    config.connect(postgres::NoTls).unwrap().batch_execute("SELECT shard_drop('shard_c')").unwrap();
    let told: Vec<String> = said.try_iter().collect();
    assert_eq!(told, ["shard \"shard_c\" still refuses writes to its copies of countries"]);
    let triggers = "SELECT tgname FROM pg_trigger WHERE tgname LIKE '00_shardmaster_reference_%'";
    let mut shard = cluster.servers[2].superuser(DATABASE).unwrap();
    for trigger in all(&mut shard, triggers).split(',') {
        run(&cluster, 2, &format!("DROP TRIGGER \"{trigger}\" ON countries"));
    }
    run(&cluster, 2, "INSERT INTO countries VALUES ('free')");
}
