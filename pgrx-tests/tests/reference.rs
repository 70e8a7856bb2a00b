//! Tables of a keyspace that are not sharded: global ones stay where they are, reference tables
//! are on every shard as their origin has them.

use shardmaster_tests::cluster::{Cluster, DATABASE, MOVER as OWNER_LOGIN};
use shardmaster_tests::fixture::{LIMIT, by_owner as run, cluster, cluster_of, plan, rows, to_pending};
use shardmaster_tests::wait;

const COUNTRIES: &str = "CREATE TABLE countries (code text PRIMARY KEY, name text);
    CREATE TABLE items (tenant text, id int, val text, code int, country text,
                        PRIMARY KEY (tenant, id))";
const REFERS: &str =
    "ALTER TABLE items ADD CONSTRAINT items_country FOREIGN KEY (country) REFERENCES countries";

fn master(cluster: &Cluster, statements: &str) {
    cluster.superuser().unwrap().batch_execute(statements).unwrap();
}

/// The SQLSTATE that a statement is refused with.
fn refused(cluster: &Cluster, statement: &str) -> String {
    let error = cluster.superuser().unwrap().batch_execute(statement).unwrap_err();
    error.code().map(|state| state.code().to_owned()).unwrap_or_default()
}

/// The first column of a query, as one text.
fn all(session: &mut postgres::Client, query: &str) -> String {
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
fn a_global_table_stays_where_it_is() {
    let cluster = cluster_of(&[], COUNTRIES);
    master(
        &cluster,
        "SELECT shard_table_add('countries', NULL, policy => 'global'); SELECT shard_login_set('postgres', 'postgres')",
    );
    run(&cluster, 0, "INSERT INTO countries VALUES ('de'); UPDATE items SET country = 'de'");
    run(&cluster, 0, REFERS);
    let split = plan(&cluster);
    let text = split.findings_with_hints().unwrap().join("\n");
    assert!(text.contains("source: foreign keys to global tables: public.items references"), "{text}");
    assert!(text.contains("HINT: A global table is on one server alone"), "{text}");
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
    // Nobody misses its rows on a shard, and no other shard is given the table.
    let mut session = cluster.superuser().unwrap();
    assert_eq!(
        all(&mut session, "SELECT table_name FROM shard_misplaced() WHERE table_name = 'countries'"),
        ""
    );
    let differences =
        "SELECT object FROM shard_schema_diff('shard_a', 'shard_b') WHERE object LIKE '%countries%'";
    assert_eq!(all(&mut session, differences), "");
}

const ADD: &str = "SELECT shard_table_add('countries', NULL, policy => 'reference', origin => 'shard_a')";
const WAIT: &str = "SELECT shard_reference_wait(timeout => '60 s')";

/// All rows of a table with all that they hold.
fn contents(cluster: &Cluster, server: usize, table: &str) -> Vec<String> {
    let query = format!("SELECT to_jsonb(t)::text FROM {table} t ORDER BY 1");
    let rows = cluster.servers[server].superuser(DATABASE).unwrap().query(&query, &[]).unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// At rest every shard has the same rows.
fn alike(cluster: &Cluster, tables: &[&str]) {
    master(cluster, WAIT);
    for table in tables {
        let first = contents(cluster, 0, table);
        for server in 1..cluster.servers.len() {
            assert_eq!(first, contents(cluster, server, table), "{table} on server {server}");
        }
    }
}

fn states(cluster: &Cluster) -> String {
    let query =
        "SELECT concat_ws(' ', table_name, origin, shard, state, error) FROM shard_reference_tables()";
    all(&mut cluster.superuser().unwrap(), query)
}

#[test]
fn every_shard_follows() {
    let cluster = cluster_of(&[], COUNTRIES);
    run(&cluster, 0, "INSERT INTO countries SELECT 'c' || i, i FROM generate_series(1, 3000) i");
    // What is there is replaced.
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
    // Clients write on the origin alone.
    let mut session = cluster.servers[1].connect(DATABASE, OWNER_LOGIN).unwrap();
    for statement in ["DELETE FROM countries", "TRUNCATE countries", "INSERT INTO countries VALUES ('z')"] {
        let error = session.batch_execute(statement).unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "55000", "{statement}");
        assert!(error.message().contains("shard \"shard_a\""), "{}", error.message());
    }
    run(&cluster, 0, "TRUNCATE countries; INSERT INTO countries VALUES ('one')");
    alike(&cluster, &["countries"]);
    assert_eq!(contents(&cluster, 1, "countries").len(), 1);
    master(&cluster, "SELECT shard_table_drop('countries')");
    let mut shard = cluster.servers[1].superuser(DATABASE).unwrap();
    wait::until("nothing to be left", LIMIT, || {
        let left: bool =
            shard.query_one("SELECT to_regnamespace('shardmaster_agent') IS NOT NULL", &[])?.get(0);
        Ok((!left).then_some(()))
    })
    .unwrap();
    run(&cluster, 1, "INSERT INTO countries VALUES ('free')");
    assert_eq!(contents(&cluster, 1, "countries").len(), 2);
}
