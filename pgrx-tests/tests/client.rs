//! The client's loop as the crate for applications has it, beside a split.

use postgres::{Client, NoTls};
use shardmaster_client::router::{Route, Router};
use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE, OWNER};
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// One client: a router, and a session for each shard.
struct App<'a> {
    cluster: &'a Cluster,
    router: Router,
    sessions: HashMap<String, Client>,
}

impl App<'_> {
    fn new(cluster: &Cluster) -> App<'_> {
        let router = Router::connect(&cluster.master.conninfo(DATABASE, CLIENT), "default", Some("shard_a"));
        App { cluster, router: router.unwrap(), sessions: HashMap::new() }
    }

    /// Adds one to the tenant's counter, wherever that is.
    fn count(&mut self, tenant: &str) -> Result<i64, postgres::Error> {
        let App { cluster, router, sessions } = self;
        router.call(tenant, LIMIT, |route| {
            let session = sessions.entry(route.shard_key.clone()).or_insert_with(|| open(cluster, route));
            let query = "UPDATE counter SET value = value + 1 WHERE tenant = $1 RETURNING value";
            Ok(session.query_one(query, &[&tenant])?.get(0))
        })
    }
}

fn open(cluster: &Cluster, route: &Route) -> Client {
    let index = cluster.shards.iter().position(|shard| shard.key == route.shard_key).unwrap();
    let mut client = cluster.servers[index].config(DATABASE, CLIENT).connect(NoTls).unwrap();
    client.batch_execute(&format!("SET search_path = \"{}\"", route.namespace)).unwrap();
    client
}

fn cluster() -> Cluster {
    let cluster = Cluster::servers(2, &[]).unwrap();
    for shard in &cluster.shards {
        let tables = format!(
            "SET ROLE {OWNER};
             CREATE TABLE counter (tenant text PRIMARY KEY, value bigint NOT NULL);
             GRANT SELECT, INSERT, UPDATE, DELETE ON counter TO {CLIENT}"
        );
        cluster.owner_of(shard).unwrap().batch_execute(&tables).unwrap();
    }
    let mut owner = cluster.owner_of(&cluster.shards[0]).unwrap();
    owner.batch_execute("INSERT INTO counter VALUES ('moves', 0), ('stays', 0)").unwrap();
    let set_up = "SELECT shard_table_add('counter', 'tenant', key_type => 'text');
                  SELECT shard_assign_many('{moves,stays}', 'shard_a')";
    cluster.superuser().unwrap().batch_execute(set_up).unwrap();
    cluster
}

#[test]
fn a_client_follows_its_tenant() {
    let cluster = cluster();
    let mut app = App::new(&cluster);
    assert!(app.router.is_local("moves").unwrap());
    let stop = AtomicBool::new(false);
    let counted = std::thread::scope(|scope| {
        let counting = scope.spawn(|| {
            let mut app = App::new(&cluster);
            let mut counted = 0;
            while !stop.load(Ordering::Relaxed) {
                counted += 1;
                // Not one is lost, and none is done twice.
                assert_eq!(app.count("moves").unwrap(), counted);
            }
            counted
        });
        let split = Split::plan(&cluster, "shard_a", "shard_b", &["moves"]).unwrap();
        split.run(|_| ()).unwrap();
        split.finish(LIMIT).unwrap();
        stop.store(true, Ordering::Relaxed);
        counting.join().unwrap()
    });
    assert!(counted > 100);
    // Told by the master, without having asked for it.
    wait::until("the notification", LIMIT, || Ok((!app.router.is_local("moves").unwrap()).then_some(())))
        .unwrap();
    assert!(app.router.is_local("stays").unwrap());
    assert_eq!(app.count("stays").unwrap(), 1);
    assert_eq!(app.count("moves").unwrap(), counted + 1);
    // A session that was lost is opened again.
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1 AND query LIKE '%shard_route%'";
    assert!(cluster.superuser().unwrap().execute(end, &[&CLIENT]).unwrap() >= 1);
    wait::until("a new session", LIMIT, || Ok(app.router.route("moves").ok())).unwrap();
    let unknown = app.router.route("nobody's").unwrap_err();
    assert_eq!(unknown.code().map(|code| code.code()), Some("42704"));
}
