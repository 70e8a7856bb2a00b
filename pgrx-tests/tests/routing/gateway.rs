//! Gateways agree with the master: a real nginx and a real PgBouncer, with the configurations that the master
//! generates.

use postgres::Client;
use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE, OWNER};
use shardmaster_tests::env::at_most;
use shardmaster_tests::fixture::to_pending;
use shardmaster_tests::nginx::{Nginx, Requests, percent_encoded};
use shardmaster_tests::process::{Directory, Process};
use shardmaster_tests::server::{Server, Stop};
use shardmaster_tests::split::Split;
use shardmaster_tests::{env, wait};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(180);

/// A keyspace, its keys, and how requests contain them.
struct Case {
    keyspace: &'static str,
    key_type: &'static str,
    key_from: &'static str,
    /// Makes the keyspace and assigns its keys.
    set_up: &'static str,
    /// A query of keys.
    keys: &'static str,
    /// Moves some of the keys from shard_a to shard_b.
    plan: &'static str,
}

const CASES: [Case; 5] = [
    Case {
        keyspace: "default",
        key_type: "text",
        key_from: "header:X-Tenant",
        set_up: "SELECT shard_assign_many(array_agg(k), 'shard_a') FROM directory_keys WHERE n % 3 > 0;
                 SELECT shard_assign_many(array_agg(k), 'shard_b') FROM directory_keys WHERE n % 3 = 0",
        keys: "SELECT k FROM directory_keys",
        plan: "SELECT shard_split_plan('shard_a', 'shard_b', array_agg(k)) FROM directory_keys WHERE n % 3 = 1",
    },
    Case {
        keyspace: "accounts",
        key_type: "bigint",
        key_from: "path:2",
        set_up: "SELECT shard_keyspace_add('accounts', 'hash', 64, key_type => 'bigint', shards => '{shard_a,shard_b}')",
        keys: "SELECT (i * 7919 * (CASE i % 2 WHEN 0 THEN 1 ELSE -1 END))::text FROM generate_series(1, 9996) i
               UNION ALL SELECT unnest('{0,-1,9223372036854775807,-9223372036854775808}'::text[])",
        plan: "SELECT shard_split_plan('shard_a', 'shard_b', array_agg(b::text), keyspace => 'accounts')
                 FROM generate_series(0, 62, 4) b",
    },
    Case {
        keyspace: "documents",
        key_type: "uuid",
        key_from: "header:X-Document",
        set_up: "SELECT shard_keyspace_add('documents', 'hash', 16, key_type => 'uuid', shards => '{shard_a,shard_b}')",
        // The UUIDs have the forms that people use.
        keys: "SELECT CASE i % 4 WHEN 0 THEN md5(i::text)::uuid::text WHEN 1 THEN upper(md5(i::text)::uuid::text)
                                 WHEN 2 THEN md5(i::text) ELSE '{' || md5(i::text)::uuid || '}' END
                 FROM generate_series(1, 10000) i",
        plan: "SELECT shard_split_plan('shard_a', 'shard_b', '{0,2,4}', keyspace => 'documents')",
    },
    Case {
        keyspace: "Käse & Brot",
        key_type: "text",
        key_from: "query:name",
        set_up: "SELECT shard_keyspace_add('Käse & Brot', 'range');
                 SELECT shard_assign_range(NULL, '9', 'shard_a', 'Käse & Brot');
                 SELECT shard_assign_range('9', 'a b', 'shard_b', 'Käse & Brot');
                 SELECT shard_assign_range('a b', 'käse', 'shard_a', 'Käse & Brot');
                 SELECT shard_assign_range('käse', NULL, 'shard_b', 'Käse & Brot')",
        keys: "SELECT md5(i::text) FROM generate_series(1, 9988) i
               UNION ALL SELECT unnest(ARRAY['a b', 'a', 'a ', 'a b ', 'käsd', 'käse', 'kät', '日本', E'line\\nfeed', '*', '9', '8\\'])",
        plan: "SELECT shard_split_plan_range('shard_a', 'shard_b', '5', '7', keyspace => 'Käse & Brot')",
    },
    Case {
        keyspace: "numbers",
        key_type: "bigint",
        key_from: "path:1",
        set_up: "SELECT shard_keyspace_add('numbers', 'range', key_type => 'bigint');
                 SELECT shard_assign_range(NULL, '-100', 'shard_b', 'numbers');
                 SELECT shard_assign_range('-100', '4611686018427387905', 'shard_a', 'numbers');
                 SELECT shard_assign_range('4611686018427387905', NULL, 'shard_b', 'numbers')",
        // The numbers are around 2^62, where a double cannot distinguish them.
        keys: "SELECT (4611686018427387904 + i)::text FROM generate_series(-20, 20) i
               UNION ALL SELECT (i - 5000)::text FROM generate_series(1, 9959) i",
        plan: "SELECT shard_split_plan_range('shard_a', 'shard_b', '-7', '1000', keyspace => 'numbers')",
    },
];

/// 10,000 keys, some of them difficult.
const DIRECTORY_KEYS: &str = r#"
    CREATE TABLE directory_keys AS
    SELECT row_number() OVER () AS n, k FROM (
        SELECT unnest(ARRAY['Acme', 'acme', 'a b', '100%', '%41', '{x}', '}', 'quo"te', 'it''s', 'back\slash', ';',
                            '$uri', 'käse', '日本', ']]', ']==]', '*', '-', '#', '<a>', repeat('long', 500)]) AS k
        UNION ALL SELECT 'tenant-' || i FROM generate_series(1, 9979) i) keys"#;

impl Case {
    /// Returns a name for files and sockets.
    fn name(&self) -> String {
        self.keyspace.chars().filter(char::is_ascii_alphanumeric).collect()
    }

    fn table(&self) -> String {
        format!("\"rows of {}\"", self.keyspace)
    }

    /// Asks the gateway for the shard of a key.
    fn ask(&self, requests: &mut Requests, key: &str) -> (u16, String) {
        let (kind, name) = self.key_from.split_once(':').unwrap();
        let answer = match kind {
            "header" => requests.get(b"/", &[(name, key.as_bytes())]),
            "query" => {
                let target = [b"/?a=1&", name.as_bytes(), b"=", &percent_encoded(key), b"&z"].concat();
                requests.get(&target, &[])
            }
            _ => {
                let before = "/accounts".repeat(name.parse::<usize>().unwrap() - 1);
                let target = [before.as_bytes(), b"/", &percent_encoded(key), b"/x?y=/z//"].concat();
                requests.get(&target, &[])
            }
        };
        answer.unwrap_or_else(|e| panic!("{} {key:?}: {e}", self.keyspace))
    }

    /// Returns every key, and its shard according to the master.
    fn routes(&self, master: &mut Client) -> Vec<(String, String)> {
        let query = format!("SELECT k, shard_of(k, 'read', $1) FROM ({}) AS keys(k)", self.keys);
        master.query(&query, &[&self.keyspace]).unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    /// Compares the gateway's answers with the master's, for every key.
    fn check(&self, nginx: &Nginx, master: &mut Client) {
        let routes = self.routes(master);
        assert_eq!(routes.len(), 10_000, "{}", self.keyspace);
        assert!(["shard_a", "shard_b"].iter().all(|shard| routes.iter().any(|(_, s)| s == shard)));
        let mut requests = Requests::open(nginx, &self.name()).unwrap();
        for (key, shard) in &routes {
            let answer = self.ask(&mut requests, key);
            assert_eq!(answer, (200, shard.clone()), "{} {key:?}", self.keyspace);
        }
    }

    /// Returns arguments of `shard_gateway_config`.
    fn arguments(&self, nginx: &Nginx) -> [String; 4] {
        ["nginx".into(), self.keyspace.into(), self.key_from.into(), nginx.socket(&self.name())]
    }

    fn config(&self, nginx: &Nginx, master: &mut Client) -> String {
        let [gateway, keyspace, key_from, listen] = self.arguments(nginx);
        let query = "SELECT shard_gateway_config($1, $2, $3, $4)";
        master.query_one(query, &[&gateway, &keyspace, &key_from, &listen]).unwrap().get(0)
    }

    fn write_config(&self, nginx: &Nginx, master: &mut Client) {
        fs::write(nginx.file(&self.name()), self.config(nginx, master)).unwrap();
    }
}

/// Makes two servers with the cases' tables, and a gateway for both of them.
fn stage(cases: &[Case]) -> (Cluster, Nginx) {
    let cluster = Cluster::servers(2, &["fsync = off"]).unwrap();
    let mut master = cluster.superuser().unwrap();
    master.batch_execute(DIRECTORY_KEYS).unwrap();
    for case in cases {
        for shard in &cluster.shards {
            let table =
                format!("SET ROLE {OWNER}; CREATE TABLE {} (k {} PRIMARY KEY)", case.table(), case.key_type);
            cluster.owner_of(shard).unwrap().batch_execute(&table).unwrap();
        }
        if case.keyspace == "default" {
            master
                .batch_execute("SELECT shard_table_add('\"rows of default\"', 'k', key_type => 'text')")
                .unwrap();
        }
        master.batch_execute(case.set_up).unwrap();
        if case.keyspace != "default" {
            let query = "SELECT shard_table_add($1, 'k', $2)";
            master.execute(query, &[&case.table(), &case.keyspace]).unwrap();
        }
    }
    let nginx = Nginx::new(&["shard_a", "shard_b"]).unwrap();
    for shard in ["shard_a", "shard_b"] {
        master.execute("SELECT shard_set_service($1, $2)", &[&shard, &nginx.socket(shard)]).unwrap();
    }
    (cluster, nginx)
}

/// Starts the script that keeps the files, with these arguments. Within a test, it acts only on notifications.
fn keep(master: &Cluster, log: &Path, arguments: impl FnOnce(&mut Command)) -> Process {
    let mut command = Command::new("/usr/bin/python3");
    command.arg(env::program("shardmaster_gateway.py").unwrap());
    command.arg("--master").arg(master.master.conninfo(DATABASE, "gateway")).args(["--look-every", "3600"]);
    arguments(&mut command);
    Process::start(&mut command, log.to_owned()).unwrap()
}

fn create_gateway_role(master: &mut Client) {
    let grants = "CREATE ROLE gateway LOGIN;
                  GRANT EXECUTE ON FUNCTION shard_gateway_config(text, text, text, text) TO gateway";
    master.batch_execute(grants).unwrap();
}

#[test]
fn nginx_sends_each_key_where_the_master_says_also_after_splits() {
    // Long runs try all kinds of keyspaces, and others a directory and buckets.
    let cases = &CASES[..at_most(2).min(CASES.len())];
    let (cluster, mut nginx) = stage(cases);
    let mut master = cluster.superuser().unwrap();
    create_gateway_role(&mut master);
    for case in cases {
        case.write_config(&nginx, &mut master);
    }
    nginx.start("shard_a").unwrap();
    for case in cases {
        case.check(&nginx, &mut master);
    }
    let old = nginx.workers().unwrap();
    let script = keep(&cluster, &nginx.configuration().with_extension("script"), |command| {
        for case in cases {
            command.arg("--file").arg(nginx.file(&case.name())).args(case.arguments(&nginx));
        }
        command.args(["--check", &nginx.shell("-t"), "--reload", &nginx.shell("-s reload")]);
    });
    nginx.wait_replaced(&old).unwrap();
    let moved: Vec<_> = cases.iter().map(|case| move_some(&cluster, case)).collect();
    wait::until("the gateway to know of the moves", LIMIT, || {
        let followed = cases.iter().zip(&moved).all(|(case, key)| {
            let mut requests = Requests::open(&nginx, &case.name()).unwrap();
            case.ask(&mut requests, key).1 == "shard_b"
        });
        Ok((followed && nginx.workers()?.len() == 2).then_some(()))
    })
    .unwrap_or_else(|e| panic!("{e}\n{}", script.said()));
    for case in cases {
        case.check(&nginx, &mut master);
    }
}

/// Runs a split, and returns a key that it has moved.
fn move_some(cluster: &Cluster, case: &Case) -> String {
    let mut master = cluster.superuser().unwrap();
    let before = case.routes(&mut master);
    let split = Split::plan_by(cluster, case.plan).unwrap();
    split.run(|_| ()).unwrap();
    let after = case.routes(&mut master);
    let moved = before.iter().zip(&after).find(|(old, new)| old.1 != new.1);
    moved.map(|(old, _)| old.0.clone()).expect("a key that moved")
}

#[test]
fn nginx_refuses_what_has_no_shard() {
    let (cluster, mut nginx) = stage(&CASES);
    let mut master = cluster.superuser().unwrap();
    master.batch_execute("SELECT shard_unassign('tenant-5')").unwrap();
    for case in &CASES {
        case.write_config(&nginx, &mut master);
    }
    nginx.start("shard_a").unwrap();
    let status = |case: &Case, target: &str, headers: &[(&str, &[u8])]| {
        Requests::open(&nginx, &case.name()).unwrap().get(target.as_bytes(), headers).unwrap().0
    };
    let [tenants, accounts, documents, texts, _] = &CASES;
    assert_eq!(status(tenants, "/", &[("x-tenant", b"tenant-1")]), 200);
    assert_eq!(status(tenants, "/", &[("X-Tenant", b"tenant-5")]), 404);
    assert_eq!(status(tenants, "/", &[("X-Tenant", b"Tenant-1")]), 404);
    assert_eq!(status(tenants, "/", &[]), 400);
    assert_eq!(status(tenants, "/", &[("X-Tenant", b"")]), 400);
    assert_eq!(status(tenants, "/", &[("X-Tenant", b"tenant-1"), ("X-Tenant", b"tenant-2")]), 400);
    assert_eq!(status(documents, "/", &[("X-Document", b"0")]), 400);
    for (target, expected) in [
        ("/accounts/7", 200),
        ("/accounts/+07", 200),
        ("/accounts/%37", 200),
        ("/accounts/7%20", 200),
        ("/accounts", 400),
        ("/accounts/", 400),
        ("/accounts/seven", 400),
        ("/accounts/9223372036854775808", 400),
        ("/accounts/-9223372036854775809", 400),
        ("/accounts/7%00", 400),
        ("//accounts/7", 400),
        ("/x/../accounts/7", 400),
        ("/accounts/7/%2e%2E/8", 400),
        ("/./7", 400),
    ] {
        assert_eq!(status(accounts, target, &[]), expected, "{target}");
    }
    for (target, expected) in [
        ("/?name=a", 200),
        ("/?name=a+b", 200),
        ("/?name=a&name=b", 400),
        ("/?name", 400),
        ("/?name=", 400),
        ("/", 400),
    ] {
        assert_eq!(status(texts, target, &[]), expected, "{target}");
    }
    let many: String = (0..120).map(|n| format!("a{n}=1&")).collect();
    assert_eq!(status(texts, &format!("/?{many}name=a"), &[]), 400);
}

#[test]
fn nginx_answers_for_shards_that_are_closed() {
    let (cluster, mut nginx) = stage(&CASES[..1]);
    let mut master = cluster.superuser().unwrap();
    master.batch_execute("SELECT shard_set_service('shard_b', NULL)").unwrap();
    let case = &CASES[0];
    case.write_config(&nginx, &mut master);
    nginx.start("shard_a").unwrap();
    let routes = case.routes(&mut master);
    let status = |key: &str| case.ask(&mut Requests::open(&nginx, "default").unwrap(), key).0;
    for (key, shard) in routes.iter().take(30) {
        assert_eq!(status(key), if shard == "shard_a" { 200 } else { 503 }, "{key}");
    }
    master.batch_execute("SELECT shard_set_status('shard_a', 'disabled')").unwrap();
    let old = nginx.workers().unwrap();
    case.write_config(&nginx, &mut master);
    assert!(Command::new("sh").args(["-c", &nginx.shell("-s reload")]).status().unwrap().success());
    nginx.wait_replaced(&old).unwrap();
    for (key, _) in routes.iter().take(30) {
        assert_eq!(status(key), 503, "{key}");
    }
}

/// During a cutover, requests go to the service whose shard has the rows.
#[test]
fn a_configuration_follows_the_decision_and_not_the_beginning_of_a_cutover() {
    let (cluster, nginx) = stage(&CASES[..1]);
    let (mut master, case) = (cluster.superuser().unwrap(), &CASES[0]);
    let before = case.config(&nginx, &mut master);
    cluster.hold("cutover_fenced").unwrap();
    let split = Split::plan_by(&cluster, case.plan).unwrap();
    to_pending(&split);
    split.call("cutover").unwrap();
    split.wait_held("cutover_fenced", LIMIT).unwrap();
    assert_eq!(case.config(&nginx, &mut master), before);
    cluster.fault("").unwrap();
    split.wait("completed", LIMIT).unwrap();
    assert_ne!(case.config(&nginx, &mut master), before);
}

/// A configuration that fails the check leaves the gateway unchanged.
#[test]
fn the_script_puts_back_what_does_not_pass_the_check() {
    let (mut cluster, _nginx) = stage(&CASES[..1]);
    let mut master = cluster.superuser().unwrap();
    create_gateway_role(&mut master);
    let directory = Directory::new("keep").unwrap();
    let (file, passes, log) = (directory.join("file"), directory.join("passes"), directory.join("log"));
    fs::write(&file, "old").unwrap();
    let mut script = keep(&cluster, &log, |command| {
        command.arg("--file").arg(&file).args(["lua", "default"]);
        command.args(["--check", &format!("test -e {}", passes.display()), "--reload", "true"]);
    });
    wait::until("the check to fail", LIMIT, || Ok(script.said().contains("does not pass").then_some(())))
        .unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "old");
    fs::write(&passes, "").unwrap();
    // The script acts on the change, and not on its timer.
    let news =
        "NOTIFY shardmaster, 'no JSON'; NOTIFY shardmaster, '[]'; SELECT shard_assign('newcomer', 'shard_a')";
    master.batch_execute(news).unwrap();
    wait::until("the reload", LIMIT, || Ok(script.said().contains("reloaded").then_some(()))).unwrap();
    assert!(fs::read_to_string(&file).unwrap().contains("newcomer"));
    // Other messages on the channel do not make it start over.
    assert!(!script.said().contains("again in"), "{}", script.said());
    // It follows a master again that goes away and comes back.
    cluster.master.restart(Stop::Immediate).unwrap();
    wait::until("the script to notice", LIMIT, || Ok(script.said().contains("again in").then_some(())))
        .unwrap();
    cluster.superuser().unwrap().batch_execute("SELECT shard_assign('latecomer', 'shard_a')").unwrap();
    wait::until("the next reload", LIMIT, || {
        Ok(fs::read_to_string(&file)?.contains("latecomer").then_some(()))
    })
    .unwrap();
    assert!(script.is_running().unwrap());
}

/// Anybody may notify. All notifications during a pause of the script cause one look.
#[test]
fn a_flood_of_notifications_is_a_few_looks() {
    let (cluster, _nginx) = stage(&CASES[..1]);
    let mut master = cluster.superuser().unwrap();
    create_gateway_role(&mut master);
    cluster.set("track_functions", "all").unwrap();
    let directory = Directory::new("flood").unwrap();
    let (file, log) = (directory.join("file"), directory.join("log"));
    let script = keep(&cluster, &log, |command| {
        command.arg("--file").arg(&file).args(["lua", "default"]).args(["--reload", "true"]);
    });
    wait::until("the first look", LIMIT, || Ok(script.said().contains("reloaded").then_some(()))).unwrap();
    let began = std::time::Instant::now();
    for _ in 0..600 {
        master.batch_execute("NOTIFY shardmaster, '{\"event\":\"routing\"}'").unwrap();
    }
    let seconds = i64::try_from(began.elapsed().as_secs()).unwrap();
    master.batch_execute("SELECT shard_assign('latecomer', 'shard_a')").unwrap();
    wait::until("the look behind it", LIMIT, || {
        Ok(fs::read_to_string(&file)?.contains("latecomer").then_some(()))
    })
    .unwrap();
    let calls = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_user_functions WHERE funcname = 'shard_gateway_config'";
    // Statistics of calls are reported a moment later.
    let calls: i64 = wait::until("the number of calls", LIMIT, || {
        Ok(Some(master.query_one(calls, &[])?.get(0)).filter(|calls| *calls > 1))
    })
    .unwrap();
    assert!(calls < seconds + 6, "{calls} looks in {seconds} s");
}

/// Starts PgBouncer with the section that the master generates.
fn pgbouncer(cluster: &Cluster) -> (Directory, Process) {
    let directory = Directory::new("pgbouncer").unwrap();
    let path = |name: &str| directory.join(name).display().to_string();
    fs::write(directory.join("users"), format!("\"{CLIENT}\" \"\"\n")).unwrap();
    let main = format!(
        "%include {}\n[pgbouncer]\nlisten_port = 6432\nunix_socket_dir = {}\nauth_type = trust\nauth_file = {}\n\
         admin_users = {CLIENT}\npool_mode = transaction\nlogfile = {}\npidfile = {}\n",
        path("databases"),
        directory.display(),
        path("users"),
        path("log"),
        path("pid")
    );
    fs::write(directory.join("main"), main).unwrap();
    write_databases(cluster, &directory);
    let process = Process::start(
        Command::new("/usr/sbin/pgbouncer").arg(directory.join("main")),
        directory.join("out"),
    )
    .unwrap();
    (directory, process)
}

fn write_databases(cluster: &Cluster, directory: &Path) {
    let query = "SELECT shard_gateway_config('pgbouncer')";
    let text: String = cluster.superuser().unwrap().query_one(query, &[]).unwrap().get(0);
    fs::write(directory.join("databases"), text).unwrap();
}

fn through(directory: &Path, database: &str) -> Result<Client, postgres::Error> {
    let mut config = postgres::Config::new();
    config.host_path(directory).port(6432).dbname(database).user(CLIENT);
    config.connect(postgres::NoTls)
}

#[test]
fn pgbouncer_leads_to_each_shard_by_its_name() {
    let cluster = Cluster::servers(2, &["fsync = off"]).unwrap();
    let mut master = cluster.superuser().unwrap();
    master.batch_execute("CREATE SCHEMA \"it's\"; CREATE SCHEMA later").unwrap();
    master.batch_execute("SELECT shard_add('own', namespace => 'it''s'), shard_add('no name = there', namespace => 'later')").unwrap();
    let (directory, _process) = pgbouncer(&cluster);
    wait::until("pgbouncer to listen", LIMIT, || Ok(through(&directory, "shard_a").ok().map(drop))).unwrap();
    let place = |database: &str| -> (String, String) {
        let mut client = through(&directory, database).unwrap();
        // This uses the simple protocol, because a transaction pooler has no prepared statements.
        let query = "SELECT system_identifier, current_setting('search_path') FROM pg_control_system()";
        let rows = client.simple_query(query).unwrap();
        let row = rows.iter().find_map(|message| match message {
            postgres::SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let text = |column: usize| row.and_then(|row| row.get(column)).unwrap().to_owned();
        (text(0), text(1))
    };
    let identity = |server: &Server| {
        let query = "SELECT system_identifier::text FROM pg_control_system()";
        server.superuser(DATABASE).unwrap().query_one(query, &[]).unwrap().get::<_, String>(0)
    };
    let plain = "\"$user\", public".to_owned();
    assert_eq!(place("shard_a"), (identity(&cluster.servers[0]), plain.clone()));
    assert_eq!(place("shard_b"), (identity(&cluster.servers[1]), plain));
    assert_eq!(place("own"), (identity(&cluster.master), "\"it's\"".to_owned()));
    assert!(through(&directory, "later").is_err());
    master.batch_execute("SELECT shard_add('later', namespace => 'later')").unwrap();
    write_databases(&cluster, &directory);
    through(&directory, "pgbouncer").unwrap().simple_query("RELOAD").unwrap();
    assert_eq!(place("later"), (identity(&cluster.master), "later".to_owned()));
}
