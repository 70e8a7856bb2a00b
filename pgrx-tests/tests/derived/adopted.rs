//! A database that was not made for it is brought under a keyspace beside clients that write.

use postgres::Client;
use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE, OWNER};
use shardmaster_tests::env::at_most;
use shardmaster_tests::fixture::{LIMIT, state_of};
use shardmaster_tests::wait;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const TABLES: &str = "
    CREATE TABLE tenants (id serial PRIMARY KEY, name text NOT NULL);
    CREATE TABLE countries (code text PRIMARY KEY, name text);
    CREATE TABLE orders (id serial PRIMARY KEY, tenant_id int NOT NULL REFERENCES tenants, country text REFERENCES countries);
    CREATE TABLE lines (id serial PRIMARY KEY, order_id int NOT NULL REFERENCES orders, sku text);
    CREATE TABLE returns (id serial PRIMARY KEY, line_id int NOT NULL REFERENCES lines);
    CREATE TABLE links (id serial PRIMARY KEY, order_id int NOT NULL REFERENCES orders, line_id int REFERENCES lines);
    CREATE TABLE visits (tenant_id int NOT NULL, day date NOT NULL, page text) PARTITION BY RANGE (day);
    CREATE TABLE visits_1 PARTITION OF visits FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
    CREATE TABLE visits_2 PARTITION OF visits FOR VALUES FROM ('2026-02-01') TO ('2026-03-01')";
const ROWS: &str = "
    INSERT INTO tenants (name) SELECT 'tenant ' || n FROM generate_series(1, 12) n;
    INSERT INTO countries VALUES ('de', 'Germany'), ('fr', 'France');
    INSERT INTO orders (tenant_id, country) SELECT 1 + n % 12, 'de' FROM generate_series(1, 1200) n;
    INSERT INTO lines (order_id, sku) SELECT id, repeat('s', 100) FROM orders, generate_series(1, 10);
    INSERT INTO returns (line_id) SELECT id FROM lines WHERE id % 5 = 0;
    INSERT INTO links (order_id, line_id) SELECT order_id, id FROM lines WHERE id % 7 = 0;
    INSERT INTO visits SELECT 1 + n % 12, date '2026-01-01' + n % 59, '/' FROM generate_series(1, 20000) n;
    ANALYZE";
/// The rows of a tenant, by tables; rows without one count as those of tenant 0.
const COUNTS: &str = "SELECT string_agg(n::text, ' ' ORDER BY t) FROM (
    SELECT 1 AS t, count(*) AS n FROM orders WHERE tenant_id = 7 UNION ALL SELECT 2, count(*) FROM lines WHERE tenant_id = 7
    UNION ALL SELECT 3, count(*) FROM returns WHERE tenant_id = 7 UNION ALL SELECT 4, count(*) FROM links WHERE tenant_id = 7
    UNION ALL SELECT 5, count(*) FROM visits WHERE tenant_id = 7) c";
/// Rows whose tenant is not that of their order.
const WRONG: &str = "SELECT (SELECT count(*) FROM lines l JOIN orders o ON o.id = l.order_id WHERE l.tenant_id IS DISTINCT FROM o.tenant_id)
    + (SELECT count(*) FROM returns r JOIN lines l ON l.id = r.line_id WHERE r.tenant_id IS DISTINCT FROM l.tenant_id)";

/// Makes two servers, of which the first one has tables and rows.
fn cluster(config: &[&str]) -> Cluster {
    let cluster = Cluster::servers(2, config).unwrap();
    for server in 0..2 {
        on(&cluster, server)
            .batch_execute(&format!(
                "CREATE ROLE deployer LOGIN; GRANT {OWNER} TO deployer; GRANT CREATE ON SCHEMA public TO deployer, {OWNER}"
            ))
            .unwrap();
    }
    let grants = format!(
        "GRANT ALL ON ALL TABLES IN SCHEMA public TO {CLIENT}; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {CLIENT}"
    );
    let mut source = on(&cluster, 0);
    source.batch_execute(&format!("SET ROLE {OWNER}; {TABLES}; {ROWS}; {grants}")).unwrap();
    cluster.superuser().unwrap().batch_execute("SELECT shard_login_set('postgres', 'deployer')").unwrap();
    cluster
}

fn on(cluster: &Cluster, server: usize) -> Client {
    cluster.servers[server].superuser(DATABASE).unwrap()
}

fn text(client: &mut Client, query: &str) -> String {
    client.query_one(query, &[]).unwrap().get::<_, Option<String>>(0).unwrap_or_default()
}

fn count(client: &mut Client, query: &str) -> i64 {
    client.query_one(query, &[]).unwrap().get(0)
}

/// A client that knows nothing of it, until it is stopped. Returns the number of its writes, and the longest of them.
fn writer(cluster: &Cluster, number: i64, stop: &Arc<AtomicBool>) -> thread::JoinHandle<(i64, Duration)> {
    let mut client = cluster.servers[0].connect(DATABASE, CLIENT).unwrap();
    let stop = Arc::clone(stop);
    thread::spawn(move || {
        let (mut writes, mut longest) = (0, Duration::ZERO);
        while !stop.load(Ordering::Relaxed) {
            let order = 1 + (writes * 7 + number * 13) % 1200;
            let statement = match writes % 4 {
                0 => format!("INSERT INTO lines (order_id, sku) VALUES ({order}, 'new')"),
                1 => format!("INSERT INTO visits VALUES ({}, '2026-01-07', '/new')", 1 + writes % 12),
                // Lines that nothing else refers to.
                2 => {
                    format!("UPDATE lines SET order_id = {order} WHERE id = {}", 1 + (writes * 31) % 1700 * 7)
                }
                _ => format!("INSERT INTO orders (tenant_id) VALUES ({})", 1 + writes % 12),
            };
            let began = Instant::now();
            let written = client.batch_execute(&statement).map_err(shardmaster_tests::Error::from);
            written.unwrap_or_else(|error| panic!("{statement}: {error}"));
            longest = longest.max(began.elapsed());
            writes += 1;
        }
        (writes, longest)
    })
}

const ADOPT: &str = "CALL shard_adopt_database('shard_a', 'tenant_id', 'shard_b', dry_run => false)";

#[test]
fn a_database_is_adopted_beside_clients_and_its_tenant_moves_there_and_back() {
    let cluster = cluster(&[]);
    let mut master = cluster.superuser().unwrap();
    // Nothing is changed until it is asked for.
    master.batch_execute("CALL shard_adopt_database('shard_a', 'tenant_id', 'shard_b')").unwrap();
    assert_eq!(count(&mut master, "SELECT count(*) FROM shard_tables()"), 0);
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..2).map(|number| writer(&cluster, number, &stop)).collect();
    let began = Instant::now();
    master.batch_execute(ADOPT).unwrap();
    println!("    adopted in {:?}", began.elapsed());
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        let (writes, longest) = writer.join().unwrap();
        assert!(writes > 100, "{writes}");
        println!("    {writes} writes, the longest took {longest:?}");
    }
    let (mut source, mut target) = (on(&cluster, 0), on(&cluster, 1));
    assert_eq!(count(&mut source, WRONG), 0);
    let tables =
        "SELECT string_agg(table_name || ' ' || policy, ', ' ORDER BY table_name) FROM shard_tables()";
    let expected = "countries reference, lines sharded, links sharded, orders sharded, returns sharded, tenants sharded, visits sharded";
    assert_eq!(text(&mut master, tables), expected);
    let keyed = "SELECT count(*) FROM visits WHERE row_id IS NULL";
    assert_eq!(count(&mut source, keyed), 0);
    let before = text(&mut source, COUNTS);
    assert!(!before.split(' ').any(|number| number == "0"), "{before}");
    master.batch_execute("CALL shard_move('{7}', 'shard_b', finish => true)").unwrap();
    assert_eq!([text(&mut source, COUNTS), text(&mut target, COUNTS)], ["0 0 0 0 0", &before]);
    // Both sides draw numbers of their own, which a column of type integer holds.
    for server in [0, 1] {
        let mut client = cluster.servers[server].connect(DATABASE, CLIENT).unwrap();
        let tenant = if server == 0 { 3 } else { 7 };
        client
            .batch_execute(&format!(
                "INSERT INTO orders (tenant_id) SELECT {tenant} FROM generate_series(1, 50)"
            ))
            .unwrap();
    }
    master.batch_execute("CALL shard_move('{7}', 'shard_a', finish => true)").unwrap();
    let orders: i64 = before.split(' ').next().unwrap().parse().unwrap();
    assert_eq!(count(&mut source, "SELECT count(*) FROM orders WHERE tenant_id = 7"), orders + 50);
    // Again, it finds nothing to do but what can be repeated.
    let left = "SELECT string_agg(kind, ' ') FROM shardmaster.adoption_steps('shard_a', 'tenant_id', 'shard_b', NULL, 'default', NULL, '30 s') WHERE kind <> 'decide'";
    assert_eq!(text(&mut master, left), "sequences schema references keys");
}

/// Each step can be repeated, and the same call goes on.
#[test]
fn an_adoption_whose_worker_is_killed_goes_on() {
    let points = ["derive_batch", "derive_column", "derive_rows", "derive_not_null", "derive_index"];
    for point in points.into_iter().take(at_most(2)) {
        let cluster = cluster(&[&format!("shardmaster.fault = '{point}=kill'")]);
        // The worker takes the server's other sessions along.
        let asked = cluster.superuser().unwrap().batch_execute(ADOPT);
        println!("    {point}: {:?}", asked.as_ref().map_err(state_of));
        let again = || {
            let asked = cluster.superuser().ok().map(|mut master| master.batch_execute(ADOPT));
            match asked {
                Some(Ok(())) => Ok(Some(())),
                Some(Err(error)) if error.is_closed() || state_of(&error) == "57P02" => Ok(None),
                Some(Err(error)) => Err(error.into()),
                None => Ok(None),
            }
        };
        wait::until("the database to be adopted", LIMIT, again).unwrap();
        assert_eq!(count(&mut on(&cluster, 0), WRONG), 0, "{point}");
        let log = std::fs::read_to_string(cluster.master.log_path()).unwrap();
        assert!(log.contains("was terminated by signal 9"), "{point}: the worker was not killed");
    }
}
