//! The client's loop in the crate for applications, during a split.

use native_tls::{Certificate, TlsConnector};
use postgres::config::SslMode;
use postgres::{Client, NoTls};
use postgres_native_tls::MakeTlsConnector;
use shardmaster_client::async_router::AsyncRouter;
use shardmaster_client::router::{Route, Router};
use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE, OWNER};
use shardmaster_tests::env;
use shardmaster_tests::process::{Directory, Process};
use shardmaster_tests::server::{Server, Stop};
use shardmaster_tests::split::Split;
use shardmaster_tests::tls::{self, Authority};
use shardmaster_tests::wait;
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::IpAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(180);
/// This is well below the time after which a router asks in any case.
const TOLD: Duration = Duration::from_secs(10);

/// A client: a router, and a session for each shard.
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

    /// Adds one to the tenant's counter, on whichever shard it is.
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
                // No call is lost, and none is done twice.
                assert_eq!(app.count("moves").unwrap(), counted);
                wait::rest();
            }
            counted
        });
        let split = Split::plan(&cluster, "shard_a", "shard_b", &["moves"]).unwrap();
        split.run(|_| ()).unwrap();
        split.finish(LIMIT).unwrap();
        stop.store(true, Ordering::Relaxed);
        counting.join().unwrap()
    });
    assert!(counted > 20);
    // The master has sent it without being asked.
    wait::until("the notification", TOLD, || Ok((!app.router.is_local("moves").unwrap()).then_some(())))
        .unwrap();
    assert!(app.router.is_local("stays").unwrap());
    assert_eq!(app.count("stays").unwrap(), 1);
    assert_eq!(app.count("moves").unwrap(), counted + 1);
    let unknown = app.router.route("nobody's").unwrap_err();
    assert_eq!(unknown.code().map(|code| code.code()), Some("42704"));
}

/// Ends every client's session on the master.
fn end_sessions(cluster: &Cluster) -> u64 {
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1";
    cluster.superuser().unwrap().execute(end, &[&CLIENT]).unwrap()
}

#[test]
fn a_router_goes_on_without_the_master_and_listens_again() {
    let mut cluster = cluster();
    let mut router = App::new(&cluster).router;
    assert!(router.is_local("stays").unwrap());
    // One session asks, and one listens.
    let sessions = "SELECT count(*) = 2 FROM pg_stat_activity WHERE usename = 'app'";
    let mut master = cluster.superuser().unwrap();
    wait::until_true(&mut master, "both sessions", LIMIT, sessions).unwrap();
    assert_eq!(end_sessions(&cluster), 2);
    // One change happens before it listens again, and one after that.
    for shard in ["shard_b", "shard_a"] {
        master.execute("SELECT shard_assign('stays', $1, force => true)", &[&shard]).unwrap();
        let here = shard == "shard_a";
        wait::until("the notification", TOLD, || {
            Ok((router.is_local("stays").unwrap() == here).then_some(()))
        })
        .unwrap();
    }
    cluster.master.stop(Stop::Immediate).unwrap();
    assert!(router.is_local("stays").unwrap());
    let unknown = router.route("never asked for").unwrap_err();
    assert!(unknown.code().is_none(), "{unknown}");
    cluster.master.run().unwrap();
    let assign = "SELECT shard_assign('stays', 'shard_b', force => true)";
    cluster.superuser().unwrap().batch_execute(assign).unwrap();
    wait::until("the notification", TOLD, || Ok((!router.is_local("stays").unwrap()).then_some(()))).unwrap();
}

/// Makes a runtime with one thread for all tasks. They continue while something is awaited.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn async_router(cluster: &Cluster) -> impl Future<Output = AsyncRouter> {
    let conninfo = cluster.master.conninfo(DATABASE, CLIENT);
    async move { AsyncRouter::connect(&conninfo, "default").await.unwrap() }
}

type Sessions = tokio::sync::Mutex<HashMap<String, tokio_postgres::Client>>;

/// Adds one to the counter of the moving tenant, on the shard of the route.
async fn count_at(cluster: &Cluster, sessions: &Sessions, route: Route) -> Result<i64, postgres::Error> {
    let mut sessions = sessions.lock().await;
    if !sessions.contains_key(&route.shard_key) {
        let index = cluster.shards.iter().position(|shard| shard.key == route.shard_key).unwrap();
        let conninfo = cluster.servers[index].conninfo(DATABASE, CLIENT);
        let (session, connection) = tokio_postgres::connect(&conninfo, NoTls).await?;
        tokio::spawn(connection);
        session.batch_execute(&format!("SET search_path = \"{}\"", route.namespace)).await?;
        sessions.insert(route.shard_key.clone(), session);
    }
    let query = "UPDATE counter SET value = value + 1 WHERE tenant = 'moves' RETURNING value";
    Ok(sessions[&route.shard_key].query_one(query, &[]).await?.get(0))
}

#[test]
fn tasks_follow_their_tenant() {
    let cluster = cluster();
    let stop = AtomicBool::new(false);
    let counting = async {
        let (router, sessions) = (async_router(&cluster).await, Sessions::default());
        let mut counted = 0;
        while !stop.load(Ordering::Relaxed) {
            counted += 1;
            let found = router.call("moves", LIMIT, |route| count_at(&cluster, &sessions, route)).await;
            // No call is lost, and none is done twice.
            assert_eq!(found.unwrap(), counted);
        }
        counted
    };
    let counted = std::thread::scope(|scope| {
        let split = scope.spawn(|| {
            let split = Split::plan(&cluster, "shard_a", "shard_b", &["moves"]).unwrap();
            let outcome = split.run(|_| ()).and_then(|_| split.finish(LIMIT));
            stop.store(true, Ordering::Relaxed);
            outcome.unwrap();
        });
        let counted = runtime().block_on(counting);
        split.join().unwrap();
        counted
    });
    assert!(counted > 20);
    let mut target = cluster.owner_of(&cluster.shards[1]).unwrap();
    let value = target.query_one("SELECT value FROM counter WHERE tenant = 'moves'", &[]).unwrap();
    assert_eq!(value.get::<_, i64>(0), counted);
}

#[test]
fn a_router_of_tasks_goes_on_without_the_master_and_listens_again() {
    let mut cluster = cluster();
    let runtime = runtime();
    let router = runtime.block_on(async_router(&cluster));
    // Notifications arrive meanwhile.
    let route = |key: &str| {
        runtime.block_on(async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            router.route(key).await
        })
    };
    let told = |shard: &str| {
        wait::until("the notification", TOLD, || {
            Ok((route("stays").unwrap().shard_key == shard).then_some(()))
        })
        .unwrap();
    };
    assert_eq!(route("stays").unwrap().shard_key, "shard_a");
    let assign = "SELECT shard_assign('stays', $1, force => true)";
    cluster.superuser().unwrap().execute(assign, &[&"shard_b"]).unwrap();
    told("shard_b");
    // One session does both. A change while there is no session is noticed as well.
    assert_eq!(end_sessions(&cluster), 1);
    cluster.superuser().unwrap().execute(assign, &[&"shard_a"]).unwrap();
    told("shard_a");
    let unknown = route("nobody's").unwrap_err();
    assert_eq!(unknown.code().map(|code| code.code()), Some("42704"));
    cluster.master.stop(Stop::Immediate).unwrap();
    assert_eq!(route("stays").unwrap().shard_key, "shard_a");
    assert!(route("never asked for").unwrap_err().code().is_none());
    cluster.master.run().unwrap();
    cluster.superuser().unwrap().execute(assign, &[&"shard_b"]).unwrap();
    told("shard_b");
}

/// Makes the server accept TCP by TLS alone, with a certificate of a private authority.
fn with_tls(server: &mut Server, authority: &Authority) -> IpAddr {
    let (address, issued) = (tls::address(), authority.issue("localhost", 1).unwrap());
    tls::require(server, address, authority, &issued, "trust").unwrap();
    address
}

#[test]
fn a_router_speaks_tls_by_a_connector_of_ones_choice() {
    let mut cluster = cluster();
    let directory = Directory::new("tls").unwrap();
    let authority = Authority::new(&directory, "authority").unwrap();
    let address = with_tls(&mut cluster.master, &authority);
    let certificate = Certificate::from_pem(&fs::read(authority.root()).unwrap()).unwrap();
    let mut config = postgres::Config::new();
    config.host("localhost").hostaddr(address).port(5432).dbname(DATABASE).user(CLIENT);
    config.ssl_mode(SslMode::Disable);
    let refused = config.connect(NoTls).err().unwrap();
    assert_eq!(refused.code().map(|code| code.code()), Some("28000"), "{refused}");
    config.ssl_mode(SslMode::Require);
    let tls = TlsConnector::builder().add_root_certificate(certificate).build().unwrap();
    let tls = MakeTlsConnector::new(tls);
    let mut router = Router::with(move || config.connect(tls.clone()), "default", Some("shard_a")).unwrap();
    assert!(router.is_local("moves").unwrap());
    let mut master = cluster.superuser().unwrap();
    let sessions = "SELECT bool_and(ssl), array_agg(pid) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = $1";
    let before = master.query_one(sessions, &[&CLIENT]).unwrap();
    assert!(before.get::<_, bool>(0));
    master
        .execute("SELECT pg_terminate_backend(unnest($1::int[]))", &[&before.get::<_, Vec<i32>>(1)])
        .unwrap();
    let again = wait::until("a new session", LIMIT, || {
        router.route("moves").unwrap();
        Ok(master.query_one(sessions, &[&CLIENT])?.get::<_, Option<bool>>(0))
    });
    assert!(again.unwrap());
}

/// Runs a program that follows a tenant, with TLS to the master and to both shards.
fn follows(mut command: Command) {
    let mut cluster = cluster();
    let directory = Directory::new("client").unwrap();
    let authority = Authority::new(&directory, "authority").unwrap();
    let conninfo = |address, user| tls::conninfo("localhost", address, &authority, DATABASE, user);
    let master = conninfo(with_tls(&mut cluster.master, &authority), CLIENT);
    for (shard, server) in cluster.shards.iter().zip(&mut cluster.servers) {
        let address = with_tls(server, &authority);
        let for_clients = conninfo(address, CLIENT);
        let mut session = cluster.master.superuser(DATABASE).unwrap();
        let call = "SELECT shard_set_endpoint($1, client_conninfo => $2)";
        session.execute(call, &[&shard.key, &for_clients]).unwrap();
    }
    command.args([&master, "moves", "shard_b", "stays"]);
    let mut program = Process::start(&mut command, directory.join("log")).unwrap();
    let mut source = cluster.owner_of(&cluster.shards[0]).unwrap();
    let counts = "SELECT value > 50 FROM counter WHERE tenant = 'moves'";
    wait::until_true(&mut source, "the program to count", LIMIT, counts).unwrap();
    let split = Split::plan(&cluster, "shard_a", "shard_b", &["moves"]).unwrap();
    split.run(|_| ()).unwrap();
    split.finish(LIMIT).unwrap();
    let counted = wait::until("the program to have counted", LIMIT, || {
        Ok(program.said().lines().next().map(str::to_owned))
    });
    // Other messages on the channel are harmless.
    let assign = "NOTIFY shardmaster, 'no JSON'; NOTIFY shardmaster, '[]';
                  SELECT shard_assign('stays', 'shard_b', force => true)";
    cluster.superuser().unwrap().batch_execute(assign).unwrap();
    wait::until("the program to end", LIMIT, || Ok((!program.is_running()?).then_some(()))).unwrap();
    let mut target = cluster.owner_of(&cluster.shards[1]).unwrap();
    let value: i64 =
        target.query_one("SELECT value FROM counter WHERE tenant = 'moves'", &[]).unwrap().get(0);
    assert_eq!((counted.unwrap(), program.said().lines().last()), (value.to_string(), Some("told")));
}

/// Returns a program that is where the package is installed.
fn python(program: &str) -> Command {
    let mut command = Command::new("/usr/bin/python3");
    command.env("PYTHONDONTWRITEBYTECODE", "1").arg(env::program("python").unwrap().join(program));
    command
}

#[test]
fn a_client_in_python_follows_its_tenant() {
    follows(python("follow.py"));
}

#[test]
#[ignore = "make test-all: a framework; make test has a_client_in_python_follows_its_tenant"]
fn an_application_with_sqlalchemy_follows_its_tenant() {
    follows(python("with_sqlalchemy.py"));
}

#[test]
#[ignore = "make test-all: a framework; make test has a_client_in_python_follows_its_tenant"]
fn an_application_with_django_follows_its_tenant() {
    follows(python("with_django.py"));
}

/// Without TLS settings libpq's rules apply: a server with TLS is not contacted without it, and a server
/// without TLS, or one that accepts nobody by it, is reached without it.
#[test]
#[ignore = "make test-all: TLS; make test has a_client_in_javascript_follows_its_tenant"]
fn a_client_in_javascript_prefers_tls() {
    let mut cluster = cluster();
    let directory = Directory::new("prefers").unwrap();
    let authority = Authority::new(&directory, "authority").unwrap();
    let address = with_tls(&mut cluster.master, &authority);
    let conninfo = format!("host={address} port=5432 dbname={DATABASE} user={CLIENT}");
    let asks = |more: &str| {
        let script = "const { configOf, connect } = await import('shardmaster');
             const session = await connect(configOf(process.argv[1]));
             const { rows } = await session.query('SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()');
             console.log(rows[0].ssl);
             await session.end();";
        let mut node = Command::new("node");
        // This is where the package is installed.
        node.current_dir(env::program("javascript").unwrap()).args(["--input-type=module", "-e", script]);
        env::run(node.arg(format!("{conninfo}{more}"))).map(|said| said.trim().to_owned())
    };
    let rules = |rule: &str| {
        let text = format!("local all all trust\n{rule} all all 127.0.0.0/8 trust\n");
        shardmaster_tests::vault::set_rules(&cluster.master, &text, "").unwrap();
    };
    rules("host");
    for more in ["", " sslmode=prefer", " sslmode=allow", " sslmode=require"] {
        assert_eq!(asks(more).unwrap(), "true", "{more}");
    }
    assert_eq!(asks(" sslmode=disable").unwrap(), "false");
    assert_eq!(asks(" channel_binding=prefer ssl_min_protocol_version=TLSv1.3").unwrap(), "true");
    // If less than what was requested is supported, that is an error.
    for more in [" channel_binding=require", " require_auth=scram-sha-256", " ssl_min_protocol_version=SSLv3"]
    {
        assert!(asks(more).unwrap_err().to_string().contains("is not known"), "{more}");
    }
    assert!(asks(" host=localhost,localhost").unwrap_err().to_string().contains("only one host"));
    rules("hostnossl");
    assert_eq!(asks("").unwrap(), "false");
    assert!(asks(" sslmode=require").is_err());
    rules("host");
    cluster.master.configure(&["ssl = off"]).unwrap();
    cluster.master.restart(Stop::Fast).unwrap();
    assert_eq!(asks(" sslmode=prefer").unwrap(), "false");
    assert!(asks(" sslmode=require").unwrap_err().to_string().contains("does not support SSL"));
    assert!(asks(" sslmode=perhaps").is_err());
}

#[test]
fn a_client_in_javascript_follows_its_tenant() {
    let mut command = Command::new("node");
    command.arg(env::program("javascript/follow.mjs").unwrap());
    follows(command);
}

#[test]
#[ignore = "make test-all: a split beside it; make test has a_router_in_go_goes_on_without_the_master_and_listens_again"]
fn a_client_in_go_follows_its_tenant() {
    follows(Command::new(env::program("go/follow").unwrap()));
}

/// A router in Go that is queried line by line.
struct GoRouter {
    program: Child,
    answers: Lines<BufReader<ChildStdout>>,
}

impl GoRouter {
    fn new(cluster: &Cluster) -> GoRouter {
        let mut command = Command::new(env::program("go/routes").unwrap());
        command.arg(cluster.master.conninfo(DATABASE, CLIENT)).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = command.spawn().unwrap();
        let answers = BufReader::new(program.stdout.take().unwrap()).lines();
        GoRouter { program, answers }
    }

    fn route(&mut self, key: &str) -> String {
        writeln!(self.program.stdin.as_mut().unwrap(), "{key}").unwrap();
        self.answers.next().unwrap().unwrap()
    }

    fn told(&mut self, shard: &str) {
        wait::until("the notification", TOLD, || Ok((self.route("stays") == shard).then_some(()))).unwrap();
    }
}

impl Drop for GoRouter {
    fn drop(&mut self) {
        self.program.kill().ok();
        self.program.wait().ok();
    }
}

#[test]
fn a_router_in_go_goes_on_without_the_master_and_listens_again() {
    let mut cluster = cluster();
    let mut router = GoRouter::new(&cluster);
    let assign = "SELECT shard_assign('stays', $1, force => true)";
    assert_eq!(router.route("stays"), "shard_a");
    cluster.superuser().unwrap().execute(assign, &[&"shard_b"]).unwrap();
    router.told("shard_b");
    // One session asks, and one listens. A change while there is no session is noticed as well.
    assert_eq!(end_sessions(&cluster), 2);
    cluster.superuser().unwrap().execute(assign, &[&"shard_a"]).unwrap();
    router.told("shard_a");
    assert_eq!(router.route("nobody's"), "42704");
    cluster.master.stop(Stop::Immediate).unwrap();
    assert_eq!(router.route("stays"), "shard_a");
    assert_eq!(router.route("never asked for"), "lost");
    cluster.master.run().unwrap();
    cluster.superuser().unwrap().execute(assign, &[&"shard_b"]).unwrap();
    router.told("shard_b");
}
