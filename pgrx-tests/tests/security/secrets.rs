//! Places in which a secret could appear: logs, sessions, statistics, dumps, errors, results, files.

use postgres::{Client, NoTls, SimpleQueryMessage};
use shardmaster_tests::cluster::{DATABASE, MOVER};
use shardmaster_tests::fixture::{self, LIMIT, plan};
use shardmaster_tests::server::{Server, Stop};
use shardmaster_tests::vault::Vault;
use shardmaster_tests::{env, wait};
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::thread;

const SECRET: &str = "sEcret-7f3a";
/// A part of the master key, which consists of this letter.
const KEY: &str = "aaaaaaaaaaaaaaaaaaaaaaaa";

const PREPARED: &str = "PREPARE set AS SELECT shard_credential_set('b', 'password', $1)";

/// The role that sets secrets, with all logging enabled.
const KEEPER: &str = "keeper";

/// The settings of a server that logs everything it can.
const TALKATIVE: [&str; 9] = [
    "log_statement = all",
    "log_min_duration_statement = 0",
    "log_parameter_max_length = -1",
    "log_parameter_max_length_on_error = -1",
    "log_min_error_statement = debug5",
    "log_duration = on",
    "log_connections = on",
    "log_error_verbosity = verbose",
    "track_activity_query_size = 16384",
];

fn no_secret(what: &str, text: &str) {
    // Printed statement trees have this form.
    let bytes: Vec<String> = SECRET.bytes().map(|byte| byte.to_string()).collect();
    for secret in [SECRET, KEY, &bytes.join(" ")] {
        let Some(at) = text.find(secret) else { continue };
        let begin = text[..at].char_indices().rev().nth(400).map_or(0, |(begin, _)| begin);
        let rest: String = text[at..].chars().take(400).collect();
        panic!("{what} has it: {}{rest}", &text[begin..at]);
    }
}

/// Returns the whole output of a query, or its error.
fn all_of(client: &mut Client, query: &str) -> String {
    let rows = match client.simple_query(query) {
        Ok(rows) => rows,
        Err(error) => return format!("{error:?}"),
    };
    let mut text = String::new();
    for message in rows {
        if let SimpleQueryMessage::Row(row) = message {
            (0..row.len()).for_each(|at| text += row.get(at).unwrap_or_default());
        }
    }
    text
}

/// The name is written in various cases, parameters are sent by the protocol, and some calls are wrong.
fn set_in_many_ways(vault: &Vault) {
    let mut master = vault.cluster.master.connect(DATABASE, KEEPER).unwrap();
    let object = format!(r#"{{"password": "{SECRET}"}}"#);
    for statement in [
        format!("SELECT shard_credential_set('b', 'password', '{object}')"),
        format!("SELECT Shard_Credential_SET('b', 'password', '{object}')"),
        format!("SELECT 1; SELECT shard_credential_set('b', 'password', '{object}'); SELECT 2"),
        format!("PREPARE set AS SELECT shard_credential_set('b', 'password', $1); EXECUTE set('{object}')"),
        format!("DO $$ BEGIN PERFORM shard_credential_set('b', 'password', '{object}'); END $$"),
        format!("EXPLAIN (ANALYZE, VERBOSE) SELECT shard_credential_set('b', 'password', '{object}')"),
    ] {
        master.batch_execute(&statement).unwrap();
    }
    for (statement, state) in [
        (format!("SELECT shard_credential_set('b', 'password', '{{\"{SECRET}\": 1}}')"), "22023"),
        (format!("SELECT shard_credential_set('b', 'password', '{{\"password\": \"{SECRET}'))"), "42601"),
        (format!("SELECT shard_credential_set('b', 'password', '{{\"password\": \"{SECRET}')"), "22P02"),
        (format!("SELECT shard_credential_set('b', 'libpq', '{object}')"), "22023"),
        (format!("SELECT shard_credential_set('b', '{object}')"), "42883"),
        (format!("DO $$ BEGIN PERFORM shard_credential_set('b', 'x', '{object}'); END $$"), "22023"),
    ] {
        let refused = master.batch_execute(&statement).unwrap_err();
        assert_eq!(fixture::state_of(&refused), state, "{refused}");
    }
    let call = "SELECT shard_credential_set($1, $2, $3::text::jsonb)";
    master.execute(call, &[&"b", &"password", &object]).unwrap();
    assert!(master.execute(call, &[&"b", &"x", &object]).is_err());
    // This is repeated in a session that stays open, because its last statement is shown while it is idle.
    master.batch_execute(&format!("SELECT shard_credential_set('b', 'password', '{object}')")).unwrap();
    let activity = "SELECT string_agg(query, ' ') FROM pg_stat_activity";
    no_secret("pg_stat_activity", &all_of(&mut vault.cluster.superuser().unwrap(), activity));
}

fn no_secret_in(server: &Server) {
    no_secret("the log", &fs::read_to_string(server.log_path()).unwrap());
    let data = server.data();
    let found = env::run(
        Command::new("sh")
            .args(["-c", "grep -rlaE -- \"$0\" \"$1\" || true", &format!("{SECRET}|{KEY}")])
            .arg(&data),
    );
    assert_eq!(found.unwrap(), "", "files of {}", server.name());
}

#[test]
fn no_secret_comes_to_light() {
    let mut lines = TALKATIVE.to_vec();
    lines.push("session_preload_libraries = 'auto_explain'");
    lines.extend(["auto_explain.log_min_duration = 0", "auto_explain.log_nested_statements = on"]);
    let mut vault = Vault::new("scram-sha-256", &lines).unwrap();
    // The library is part of PostgreSQL's own contrib modules.
    let libraries = "shared_preload_libraries = 'shardmaster, pg_stat_statements'";
    vault.cluster.master.configure(&[libraries, "pg_stat_statements.track = 'all'"]).unwrap();
    vault.cluster.master.configure(&["pg_stat_statements.track_utility = off"]).unwrap();
    vault.cluster.master.restart(Stop::Fast).unwrap();
    let mut master = vault.cluster.superuser().unwrap();
    master.batch_execute("CREATE EXTENSION pg_stat_statements").unwrap();
    let keeper = format!(
        "CREATE ROLE {KEEPER} SUPERUSER LOGIN; ALTER ROLE {KEEPER} SET debug_print_plan = on;
         ALTER ROLE {KEEPER} SET debug_print_parse = on; ALTER ROLE {KEEPER} SET debug_print_rewritten = on"
    );
    master.batch_execute(&keeper).unwrap();
    // \password does the same, and sends no plain password.
    let verifier = verifier(&mut master);
    vault.set_password(&verifier).unwrap();
    set_in_many_ways(&vault);
    vault.lead_to(&vault.conninfo(), "b").unwrap();
    vault.require_connects().unwrap();
    fixture::finished(&plan(&vault.cluster));
    // Many places show a refused password: the split's error, its event, and the log.
    let split =
        shardmaster_tests::split::Split::plan(&vault.cluster, "shard_b", "shard_a", &["moves"]).unwrap();
    let wrong = format!(r#"{{"password": "{SECRET}-not"}}"#);
    vault.set_credential("b", "password", &wrong).unwrap();
    split.call("start_dual_write").unwrap();
    let waits = format!(
        "SELECT EXISTS (SELECT FROM shardmaster.split_plan WHERE id = {} AND waiting_for LIKE '%credential%')",
        split.id
    );
    wait::until_true(&mut master, "the split to say that it is refused", LIMIT, &waits)
        .unwrap_or_else(|error| panic!("{error}: {}", split.describe()));
    results_and_tables(&mut master);
    let dump = env::run(
        Command::new(env::bindir().unwrap().join("pg_dump"))
            .args(["-U", "postgres", "-p", "5432", "-d", DATABASE, "-h"])
            .arg(vault.cluster.master.socket_dir()),
    )
    .unwrap();
    assert!(dump.contains("COPY shardmaster.keychain"), "the dump has it sealed");
    no_secret("a dump", &dump);
    master.batch_execute("CHECKPOINT").unwrap();
    no_secret_in(&vault.cluster.master);
    no_secret_in(&vault.cluster.servers[1]);
    let log = fs::read_to_string(vault.cluster.master.log_path()).unwrap();
    assert!(log.contains("shard_set_endpoint") && log.contains("auto_explain") || log.contains("Query Text"));
    assert!(!log.to_lowercase().contains("shard_credential_set("), "no line of the log has the call");
}

/// Returns the server's verifier of the password, made where nothing is logged.
fn verifier(master: &mut Client) -> String {
    master
        .batch_execute(
            "SET log_statement = none; SET log_min_duration_statement = -1; SET log_duration = off;
             SET auto_explain.log_min_duration = -1",
        )
        .unwrap();
    let text = all_of(
        master,
        &format!(
            "BEGIN; CREATE ROLE scratch PASSWORD '{SECRET}'; SELECT rolpassword FROM pg_authid WHERE rolname = 'scratch'; ROLLBACK"
        ),
    );
    master.batch_execute("RESET ALL").unwrap();
    assert!(text.starts_with("SCRAM-SHA-256$"), "{text}");
    text
}

/// Checks everything that the extension's functions show, and its tables, the server's views, and the
/// statistics of statements.
fn results_and_tables(master: &mut Client) {
    let functions = all_of(
        master,
        "SELECT string_agg(format('SELECT * FROM %s(%s)', p.oid::regproc,
                (SELECT coalesce(string_agg(CASE t::regtype::text WHEN 'text' THEN quote_literal(CASE n WHEN 1 THEN 'shard_b' ELSE 'default' END)
                                                 WHEN 'bigint' THEN '1' ELSE 'NULL' END || '::' || t::regtype, ', ' ORDER BY n), '')
                   FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY a (t, n) WHERE n <= p.pronargs - p.pronargdefaults)), ';')
           FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
           JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'shardmaster'
          WHERE p.prokind = 'f' AND p.prorettype <> 'trigger'::regtype
            AND p.proname ~ 'credentials|check|diagnose|metrics|events|progress|status|topology|verification|figures|line|guards|services|gateway_config|entries|routing_history|shard_of|shard_route|tables|lifecycle'",
    );
    assert!(functions.split(';').count() > 20, "{functions}");
    for call in functions.split(';') {
        no_secret(call, &all_of(master, call));
    }
    let relations = all_of(
        master,
        "SELECT string_agg(c.oid::regclass::text, ';') FROM pg_class c
          WHERE c.relnamespace IN ('shardmaster'::regnamespace, 'public'::regnamespace) AND c.relkind IN ('r', 'v')
             OR c.relname IN ('pg_stat_activity', 'pg_settings', 'pg_prepared_statements', 'pg_stat_ssl', 'pg_proc', 'pg_description')",
    );
    assert!(relations.contains("pg_stat_statements") && relations.contains("shardmaster.keychain"));
    for relation in relations.split(';') {
        no_secret(relation, &all_of(master, &format!("SELECT t::text FROM {relation} t")));
    }
    let sealed = all_of(master, "SELECT encode(sealed, 'escape') FROM shardmaster.keychain");
    no_secret("what is sealed", &sealed);
}

/// A monitor sees that a secret is set, and not its value.
#[test]
fn a_session_shows_no_secret_while_it_sets_one() {
    let vault = Vault::new("scram-sha-256", &[]).unwrap();
    // Another session changes it at this moment, so the call waits.
    vault.set_credential("b", "password", r#"{"password": "before"}"#).unwrap();
    let mut other = vault.cluster.superuser().unwrap();
    other.batch_execute("BEGIN; SELECT FROM shardmaster.keychain FOR UPDATE").unwrap();
    let mut setter = vault.cluster.superuser().unwrap();
    let pid: i32 = setter.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
    let waiting = thread::spawn(move || {
        let statement =
            format!(r#"SELECT shard_credential_set('b', 'password', '{{"password": "{SECRET}"}}')"#);
        setter.batch_execute(&statement).unwrap();
    });
    let mut master = vault.cluster.superuser().unwrap();
    let waits = format!("SELECT EXISTS (SELECT FROM pg_locks WHERE pid = {pid} AND NOT granted)");
    wait::until_true(&mut master, "the call to wait", LIMIT, &waits).unwrap();
    let shown = all_of(&mut master, &format!("SELECT query FROM pg_stat_activity WHERE pid = {pid}"));
    assert_eq!(shown, "a credential is set");
    other.batch_execute("ROLLBACK").unwrap();
    waiting.join().unwrap();
    assert!(
        master.query_one("SELECT set_by FROM shard_credentials()", &[]).unwrap().get::<_, String>(0) != MOVER
    );
}

/// The last statement of a session is shown while it is idle, even if it failed or only prepared something.
/// Statements without constants are kept as they are written.
#[test]
fn a_call_that_is_never_made_leaves_no_secret_behind() {
    let mut vault = Vault::new("scram-sha-256", &TALKATIVE).unwrap();
    vault
        .cluster
        .master
        .configure(&["shared_preload_libraries = 'shardmaster, pg_stat_statements'"])
        .unwrap();
    vault.cluster.master.restart(Stop::Fast).unwrap();
    let mut other = vault.cluster.superuser().unwrap();
    other
        .batch_execute(
            "CREATE EXTENSION pg_stat_statements; CREATE ROLE an_admin LOGIN; SELECT shard_grant('an_admin', 'admin');
             CREATE ROLE heir LOGIN NOINHERIT; GRANT an_admin TO heir",
        )
        .unwrap();
    let call = format!(r#"shard_credential_set('b', 'password', '{{"password": "{SECRET}"}}')"#);
    let whole = format!(r#"'{{"password": "{SECRET}"}}'"#);
    let torn = format!(r#"'{{"password": "{SECRET}'"#);
    for (before, statement) in [
        ("", format!("SELECT shard_credential_set('b', '{SECRET}')")),
        ("", format!("SELECT shard_credential_set('b', 'password', {torn})")),
        ("", format!("SELECT {call} FROM")),
        ("", format!("SELECT 1 / 0; SELECT {call}")),
        ("", format!("PREPARE later AS SELECT {call}")),
        ("", format!("EXPLAIN SELECT {call}")),
        ("", format!("SELECT {call} WHERE false")),
        ("", format!("DO $$ BEGIN PERFORM {call}; END $$")),
        ("", format!("CREATE TEMP TABLE t AS SELECT {call}::text")),
        ("", format!("DECLARE c CURSOR WITH HOLD FOR SELECT {call}")),
        (PREPARED, format!("EXECUTE set({torn})")),
        (PREPARED, format!("EXECUTE set({torn}")),
        (PREPARED, format!("EXPLAIN EXECUTE set({torn})")),
        (PREPARED, format!("EXPLAIN (VERBOSE, ANALYZE) EXECUTE set({whole})")),
        (PREPARED, format!("CREATE TEMP TABLE t AS EXECUTE set({whole})")),
        (PREPARED, format!("EXPLAIN ANALYZE CREATE TEMP TABLE t AS EXECUTE set({torn})")),
        (PREPARED, format!("SELECT 1; EXECUTE set({torn})")),
        (PREPARED, format!("DEALLOCATE set; EXECUTE set({whole})")),
        (PREPARED, format!("EXECUTE sett({whole})")),
    ] {
        for (role, becomes) in
            [("postgres", ""), ("an_admin", ""), ("heir", ""), ("heir", "SET ROLE an_admin;")]
        {
            // The session has done nothing before.
            let mut config = vault.cluster.master.config(DATABASE, role);
            let mut setter = config.application_name("setter").connect(NoTls).unwrap();
            let before = format!("{becomes}{before}");
            if !before.is_empty() {
                // A session that may not prepare it has nothing to execute.
                let _ = setter.batch_execute(&before);
            }
            // The result does not matter.
            let _ = setter.batch_execute(&statement);
            let query =
                "SELECT string_agg(query, ' ') FROM pg_stat_activity WHERE application_name = 'setter'";
            let shown = all_of(&mut other, query);
            no_secret(&format!("pg_stat_activity behind {statement} of {role}"), &shown);
        }
        let kept = all_of(&mut other, "SELECT string_agg(query, ' ') FROM pg_stat_statements");
        no_secret(&format!("pg_stat_statements behind {statement}"), &kept);
    }
    no_secret("the log", &fs::read_to_string(vault.cluster.master.log_path()).unwrap());
}

/// A role that only names the function, or may not call it, hides nothing by that.
#[test]
fn no_login_hides_its_statements() {
    let vault = Vault::new("scram-sha-256", &TALKATIVE).unwrap();
    let mut other = vault.cluster.superuser().unwrap();
    other
        .batch_execute("CREATE ROLE plain LOGIN; CREATE ROLE an_admin LOGIN; SELECT shard_grant('an_admin', 'admin'); CREATE SCHEMA own AUTHORIZATION plain")
        .unwrap();
    let by_anybody = [
        "SELECT $mark /* shard_credential_set('x') */",
        "SELECT $mark -- shard_credential_set('x')",
        "SELECT $mark, 'shard_credential_set(1)'",
        "SELECT $mark, $$ shard_credential_set(1) $$",
        "SELECT $mark AS \"Shard_Credential_Set\"",
        "SELECT $mark AS shard_credential_set",
        "DO $b$ BEGIN PERFORM $mark; /* shard_credential_set('x') */ END $b$",
        "PREPARE p AS SELECT 1 /* shard_credential_set() */; SELECT $mark /* EXECUTE p */",
        "SELECT $mark / 0 /* shard_credential_set('x') */",
        "SELECT $mark FROM /* shard_credential_set('x') */",
    ];
    // These statements would do something if the role had the right.
    let by_plain = [
        "SELECT $mark, CASE WHEN false THEN shard_credential_set('x', 'y', '{}') END",
        "SELECT $mark WHERE false AND shard_credential_set('x', 'y', '{}') IS NULL",
        "DO $b$ BEGIN IF false THEN PERFORM shard_credential_set('x', 'y', '{}'); END IF; PERFORM $mark; END $b$",
        "SELECT $mark, own.shard_credential_set('x')",
        "PREPARE q AS SELECT shard_credential_set('x', 'y', '{}'); SELECT $mark; EXECUTE q",
        "SELECT $mark, shard_credential_set('x', 'y', '{}')",
    ];
    let mut own = vault.cluster.master.connect(DATABASE, "plain").unwrap();
    own.batch_execute(
        "CREATE FUNCTION own.shard_credential_set(text) RETURNS text LANGUAGE sql AS 'SELECT $1'",
    )
    .unwrap();
    drop(own);
    let mut number = 700_000;
    for (role, statements) in [
        ("plain", &by_anybody[..]),
        ("plain", &by_plain[..]),
        ("an_admin", &by_anybody[..]),
        ("postgres", &by_anybody[..]),
    ] {
        for statement in statements {
            number += 1;
            // This is a new session, so it has cached nothing.
            let mut session = vault.cluster.master.connect(DATABASE, role).unwrap();
            let pid: i32 = session.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
            let text = statement.replace("$mark", &number.to_string());
            let _ = session.batch_execute(&text);
            let shown = all_of(&mut other, &format!("SELECT query FROM pg_stat_activity WHERE pid = {pid}"));
            assert!(shown.contains(&number.to_string()), "{role} hides {text}: {shown}");
            let log = fs::read_to_string(vault.cluster.master.log_path()).unwrap();
            // A statement that cannot be parsed is logged only with its error.
            let begins = &text[..text.len().min(40)];
            let is_there = ["statement: ", "STATEMENT:  "]
                .iter()
                .any(|before| log.contains(&format!("{before}{begins}")));
            assert!(is_there, "{role} hides {text} from the log");
        }
    }
}

/// With the server's own log settings, and in a new session, a role that may not call the function hides
/// nothing: neither what stands beside a call, nor the output of a function of that name, nor an application
/// name.
#[test]
fn a_session_that_begins_hides_nothing() {
    let vault = Vault::new("scram-sha-256", &["log_connections = on"]).unwrap();
    let mut other = vault.cluster.superuser().unwrap();
    other.batch_execute("CREATE ROLE plain LOGIN; CREATE SCHEMA own AUTHORIZATION plain").unwrap();
    other
        .batch_execute(
            "SET ROLE plain;
             CREATE FUNCTION own.shard_credential_set() RETURNS text LANGUAGE plpgsql
                 AS $$ BEGIN RAISE LOG 'mark 800001'; RETURN 'x'; END $$;
             CREATE VIEW own.v AS SELECT own.shard_credential_set();
             RESET ROLE",
        )
        .unwrap();
    for (mark, statement) in [
        ("800001", "SELECT * FROM own.v"),
        ("800002", "SELECT 800002 FROM shardmaster.keychain; SELECT shard_credential_set(1)"),
        ("800003", "SELECT 800003 FROM nothing; SELECT shard_credential_set('x', 'y', '{}')"),
        ("800004", "SELECT shard_credential_set('800004', 'y', '{}'"),
    ] {
        let mut session = vault.cluster.master.connect(DATABASE, "plain").unwrap();
        let _ = session.batch_execute(statement);
        let query = "SELECT string_agg(query, ' ') FROM pg_stat_activity WHERE usename = 'plain'";
        let shown = all_of(&mut other, query);
        assert!(!shown.contains("a credential is set"), "{statement}: {shown}");
        let log = fs::read_to_string(vault.cluster.master.log_path()).unwrap();
        assert!(log.contains(mark), "{statement} is not in the log");
    }
    let mut config = vault.cluster.master.config(DATABASE, "plain");
    drop(config.application_name("shard_credential_set").connect(NoTls).unwrap());
    let log = fs::read_to_string(vault.cluster.master.log_path()).unwrap();
    let is_there =
        log.lines().any(|line| line.contains("authorized: user=plain") && line.contains("credential_set"));
    assert!(is_there, "the session's authentication is in the log");
}

/// Returns the writable memory of a process, as a core dump would have it.
fn memory_of(pid: i32) -> Vec<u8> {
    let mut memory = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut all = Vec::new();
    for line in fs::read_to_string(format!("/proc/{pid}/maps")).unwrap().lines() {
        let mut words = line.split(' ');
        let (range, rights) = (words.next().unwrap(), words.next().unwrap());
        if !rights.starts_with("rw-p") {
            continue;
        }
        let ends: Vec<u64> = range.split('-').map(|end| u64::from_str_radix(end, 16).unwrap()).collect();
        let mut piece = vec![0; usize::try_from(ends[1] - ends[0]).unwrap()];
        memory.seek(SeekFrom::Start(ends[0])).unwrap();
        if memory.read_exact(&mut piece).is_ok() {
            all.extend(piece);
        }
    }
    all
}

/// Once its session has started, a process has wiped the secrets that it opened.
#[test]
fn no_opened_key_stays_in_memory() {
    let vault = Vault::new("cert", &[]).unwrap();
    let issued = vault.authority.issue(MOVER, 1).unwrap();
    let read = |path: &Path| fs::read_to_string(path).unwrap().replace('\n', "\\n");
    let secret =
        format!(r#"{{"certificate": "{}", "key": "{}"}}"#, read(&issued.certificate), read(&issued.key));
    vault.set_credential("b", "mtls_cert", &secret).unwrap();
    vault.lead_to(&vault.conninfo(), "b").unwrap();
    let key = fs::read_to_string(&issued.key).unwrap();
    let lines: Vec<&str> = key.lines().filter(|line| line.len() > 32 && !line.contains("PRIVATE")).collect();
    let mut session = vault.cluster.superuser().unwrap();
    let pid: i32 = session.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
    for _ in 0..3 {
        let query = "SELECT ok FROM shard_check('shard_b') WHERE item = 'connect'";
        assert!(session.query_one(query, &[]).unwrap().get::<_, bool>(0));
    }
    let memory = memory_of(pid);
    let is_there = |line: &&&str| memory.windows(24).any(|window| window == &line.as_bytes()[8..32]);
    assert_eq!(lines.iter().filter(is_there).count(), 0, "lines of the key in memory, of {}", lines.len());
    // The master key is not there either, as text or as bytes.
    for wiped in [[b'a'; 64].as_slice(), [0xaa; 32].as_slice()] {
        let found = memory.windows(wiped.len()).filter(|window| *window == wiped).count();
        assert_eq!(found, 0, "the master key is in memory: {} bytes", wiped.len());
    }
}

/// Starts a server that asks for the password and repeats it to everybody.
fn parrot(directory: &Path) {
    let listener = UnixListener::bind(directory.join(".s.PGSQL.5432")).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut asked, clear_text) = ([0; 4096], b"R\0\0\0\x08\0\0\0\x03");
            let _ = stream.read(&mut asked).and_then(|_| stream.write_all(clear_text));
            let length = stream.read(&mut asked).unwrap_or(0);
            let said = String::from_utf8_lossy(asked.get(5..length.max(6) - 1).unwrap_or_default());
            let fields = format!("SFATAL\0C28P01\0Mpassword {said} is wrong\0\0");
            let mut answer = vec![b'E'];
            answer.extend(u32::try_from(fields.len() + 4).unwrap().to_be_bytes());
            let _ = stream.write_all(&[answer, fields.into_bytes()].concat());
        }
    });
}

/// A pooler might be too helpful like this.
#[test]
fn a_server_that_repeats_a_secret_is_not_quoted() {
    let vault = Vault::new("reject", &TALKATIVE).unwrap();
    let directory = vault.directory.join("parrot");
    fs::create_dir(&directory).unwrap();
    parrot(&directory);
    let file = vault.directory.join("token");
    fs::write(&file, SECRET).unwrap();
    vault.set_credential("b", "token_file", &format!(r#"{{"file": "{}"}}"#, file.display())).unwrap();
    let conninfo = format!("host={} dbname=app user=mover", directory.display());
    vault.lead_to(&conninfo, "b").unwrap();
    let refused = vault.refusal().unwrap();
    assert!(refused.contains("is wrong"), "{refused}");
    no_secret("an error", &refused);
    let split = plan(&vault.cluster);
    split.call("start_dual_write").unwrap();
    let mut master = vault.cluster.superuser().unwrap();
    let says = "SELECT EXISTS (SELECT FROM shardmaster.split_plan WHERE waiting_for LIKE '%is wrong%')";
    wait::until_true(&mut master, "the split to say that it is refused", LIMIT, says).unwrap();
    no_secret("splits", &all_of(&mut master, "SELECT p::text FROM shardmaster.split_plan p"));
    no_secret("the log", &fs::read_to_string(vault.cluster.master.log_path()).unwrap());
}
