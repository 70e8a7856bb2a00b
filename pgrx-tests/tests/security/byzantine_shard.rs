//! A shard whose server gives arbitrary answers. The master's arithmetic survives them, and no decision
//! depends on them.

use shardmaster_tests::chatty_server::message;
use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::env::is_long_run;
use shardmaster_tests::fixture::{
    LIMIT, by_superuser as run, cluster, cut_over_and_compare, plan, to_pending,
};
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use std::io::{Read, Write};
use std::net::TcpListener;

/// A false statement of a shard, and the statement that makes it true again.
struct FalseClaim {
    server: usize,
    says: &'static str,
    truth: &'static str,
    /// A part of the expected message.
    found: &'static str,
}

const TRUE_STEPS: &str =
    "UPDATE shardmaster_agent.consumed c SET steps = t.steps, announced = t.announced FROM honest t";
const TRUE_PROGRESS: &str = "UPDATE shardmaster_agent.progress p SET state = t.state FROM honest t";
const TRUE_BLOCKS: &str = "CREATE OR REPLACE FUNCTION pg_catalog.pg_relation_size(regclass) RETURNS bigint
    LANGUAGE sql STRICT AS $$ SELECT pg_catalog.pg_relation_size($1, 'main') $$";

const LIES: [FalseClaim; 11] = [
    FalseClaim {
        server: 0,
        says: "UPDATE shardmaster_agent.consumed SET announced = 9223372036854775807",
        truth: TRUE_STEPS,
        found: "the number of a step cannot be 9223372036854775807",
    },
    FalseClaim {
        server: 0,
        says: "UPDATE shardmaster_agent.consumed SET steps = -9223372036854775808",
        truth: TRUE_STEPS,
        found: "the number of a step cannot be -9223372036854775808",
    },
    FalseClaim {
        server: 0,
        says: "CREATE OR REPLACE FUNCTION pg_catalog.pg_relation_size(regclass) RETURNS bigint
                   LANGUAGE sql STRICT AS 'SELECT 9223372036854775807'",
        truth: TRUE_BLOCKS,
        found: "cannot be",
    },
    FalseClaim {
        server: 0,
        says: "CREATE OR REPLACE FUNCTION pg_catalog.pg_relation_size(regclass) RETURNS bigint
                   LANGUAGE sql STRICT AS 'SELECT -1::bigint'",
        truth: TRUE_BLOCKS,
        found: "cannot be -1",
    },
    FalseClaim {
        server: 0,
        says: "INSERT INTO shardmaster_agent.queue_1_1 (op, k1, k2, at) VALUES ('U', 'moves', 2, '4713-01-01 BC')",
        truth: "DELETE FROM shardmaster_agent.queue_1_1",
        found: "the time of a change in microseconds cannot be -",
    },
    FalseClaim {
        server: 1,
        says: "UPDATE shardmaster_agent.progress SET state = jsonb_set(state, '{last_event_id}', '9223372036854775807')",
        truth: TRUE_PROGRESS,
        found: "last_event_id cannot be 9223372036854775807",
    },
    FalseClaim {
        server: 1,
        says: "UPDATE shardmaster_agent.progress SET state = jsonb_set(state, '{steps}', '9223372036854775807')",
        truth: TRUE_PROGRESS,
        found: "steps cannot be 9223372036854775807",
    },
    FalseClaim {
        server: 1,
        says: "UPDATE shardmaster_agent.progress SET state = jsonb_set(state, '{tables,0,rows_copied}', '-1')",
        truth: TRUE_PROGRESS,
        found: "rows_copied cannot be -1",
    },
    FalseClaim {
        server: 1,
        says: "UPDATE shardmaster_agent.progress
                  SET state = jsonb_set(state, '{tables,0,leaves,0,cursor}', '{\"block\": 9223372036854775807}')",
        truth: TRUE_PROGRESS,
        found: "cursor cannot be 9223372036854775807",
    },
    FalseClaim {
        server: 1,
        says: "UPDATE shardmaster_agent.progress SET state = jsonb_set(state, '{tables}', '[]')",
        truth: TRUE_PROGRESS,
        found: "it has 0 tables, the split has 1",
    },
    FalseClaim {
        server: 1,
        says: "CREATE OR REPLACE FUNCTION pg_catalog.pg_relation_size(regclass) RETURNS bigint
                   LANGUAGE sql STRICT AS 'SELECT 9223372036854775807'",
        truth: TRUE_BLOCKS,
        found: "cannot be",
    },
];

/// Waits until a split has failed, and returns its error.
fn failure(split: &Split<'_>, lie: &str) -> (String, String) {
    wait::until("the split to fail", LIMIT, || {
        let query = "SELECT error_code, error_message FROM shardmaster.split_plan WHERE id = $1 AND activity = 'failed'";
        let row = split.superuser()?.query_opt(query, &[&split.id])?;
        Ok(row.map(|row| (row.get(0), row.get(1))))
    })
    .unwrap_or_else(|error| panic!("{lie}: {error}; {}", split.describe()))
}

fn rest(split: &Split<'_>) {
    split.call("pause").unwrap();
    wait::until("the split to rest", LIMIT, || {
        Ok((split.metric::<String>("activity")? == "paused").then_some(()))
    })
    .unwrap();
}

/// Numbers beyond every bound, and below zero. Each stops the split with an error that names it, no worker
/// crashes, and with true numbers the split continues as if nothing had happened.
#[test]
fn no_number_of_a_shard_is_counted_with_as_it_came() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    // Long runs try each of them, and others every second one.
    for lie in LIES.into_iter().step_by(if is_long_run() { 1 } else { 2 }) {
        // The split is idle, so the last step is true.
        rest(&split);
        let honest = match lie.server {
            0 => "SELECT steps, announced FROM shardmaster_agent.consumed",
            _ => "SELECT state FROM shardmaster_agent.progress",
        };
        run(&cluster, lie.server, &format!("DROP TABLE IF EXISTS honest; CREATE TABLE honest AS {honest}"));
        run(&cluster, lie.server, lie.says);
        // A cached plan of a session does not notice that a function of the server was replaced. The next
        // worker has new sessions.
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'shardmaster split%'";
        cluster.superuser().unwrap().batch_execute(end).unwrap();
        split.call("resume").unwrap();
        let (code, message) = failure(&split, lie.says);
        assert!(message.contains(lie.found) && code == "55000", "{}: {code} {message}", lie.says);
        run(&cluster, lie.server, lie.truth);
        split.call("resume").unwrap();
        split.wait_settled(LIMIT).unwrap();
    }
    let log = std::fs::read_to_string(cluster.master.log_path()).unwrap();
    assert!(!log.contains("panicked") && !log.contains("overflow"), "{log}");
    run(&cluster, 0, "UPDATE items SET val = 'x' WHERE tenant = 'moves' AND id < 100");
    cut_over_and_compare(&cluster, &split);
}

/// If shard_split_metrics gets an impossible answer from a shard, only that shard's split shows an error, and
/// the metrics of others remain.
#[test]
fn figures_of_one_shard_are_no_error_of_all() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    rest(&split);
    run(
        &cluster,
        0,
        "CREATE OR REPLACE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT '200000-01-01'::timestamptz $$",
    );
    run(
        &cluster,
        0,
        "INSERT INTO shardmaster_agent.queue_1_1 (op, k1, k2, at) VALUES ('U', 'moves', 2, '4000-01-01 BC')",
    );
    let query = "SELECT lag_seconds FROM shardmaster.split_figures($1)";
    let lag: Option<f64> = cluster.superuser().unwrap().query_one(query, &[&split.id]).unwrap().get(0);
    assert_eq!(lag, Some(36_500.0 * 86_400.0), "a century");
    let shown = "SELECT count(*) FROM shard_split_metrics() WHERE reverse_of IS NULL";
    assert_eq!(cluster.superuser().unwrap().query_one(shown, &[]).unwrap().get::<_, i64>(0), 1);
}

/// A source tells only how far its sequences are. The target's sequences are raised to half of their range at
/// most, and never lowered.
#[test]
fn a_source_uses_up_no_sequence_of_the_target() {
    let cluster = cluster(&[]);
    for server in [0, 1] {
        run(&cluster, server, "ALTER TABLE items ADD n bigserial");
    }
    let last = |server: usize| -> i64 {
        let mut session = cluster.servers[server].superuser(DATABASE).unwrap();
        session.query_one("SELECT last_value FROM items_n_seq", &[]).unwrap().get(0)
    };
    let split = plan(&cluster);
    let far = "SELECT setval('items_n_seq', 9000000000000000000)";
    run(&cluster, 0, far);
    let found = split.findings_with_hints().unwrap();
    assert!(found.iter().any(|text| text.contains("is raised to 4611686018427387904 at most")), "{found:?}");
    run(&cluster, 0, "SELECT setval('items_n_seq', 5000)");
    to_pending(&split);
    for (value, problem) in [
        ("9000000000000000000", "is raised to 4611686018427387904 at most"),
        ("9223372036854775807", "ends before 9223372036854775807"),
    ] {
        run(&cluster, 0, &format!("SELECT setval('items_n_seq', {value})"));
        let before = last(1);
        split.call("cutover").unwrap();
        let error = split.wait("completed", LIMIT).unwrap_err().to_string();
        assert!(error.contains(problem) && error.contains("public.items_n_seq"), "{error}");
        assert_eq!(last(1), before);
    }
    // A source that is behind lowers no sequence.
    run(&cluster, 1, "SELECT setval('items_n_seq', 70000)");
    run(&cluster, 0, "SELECT setval('items_n_seq', 5000)");
    cut_over_and_compare(&cluster, &split);
    assert_eq!(last(1), 70_000);
}

/// A compromised target has a sequence that no server creates. It is an error, and nothing is divided by its
/// increment.
#[ignore = "make test-all: a sequence; make test has no_number_of_a_shard_is_counted_with_as_it_came"]
#[test]
fn a_sequence_that_no_server_makes_is_an_error() {
    let cluster = cluster(&[]);
    for server in [0, 1] {
        run(&cluster, server, "ALTER TABLE items ADD n bigserial");
    }
    run(&cluster, 0, "SELECT setval('items_n_seq', 5000)");
    let split = plan(&cluster);
    to_pending(&split);
    let change = |set: &str| {
        run(
            &cluster,
            1,
            &format!(
                "SET allow_system_table_mods = on; UPDATE pg_sequence SET {set} WHERE seqrelid = 'items_n_seq'::regclass"
            ),
        );
    };
    for (lie, truth) in [
        ("seqincrement = 0", "seqincrement = 1"),
        ("seqmin = 100, seqmax = 1", "seqmin = 1, seqmax = 9223372036854775807"),
    ] {
        change(lie);
        split.call("cutover").unwrap();
        let error = split.wait("completed", LIMIT).unwrap_err().to_string();
        assert!(error.contains("sequence public.items_n_seq cannot be"), "{lie}: {error}");
        change(truth);
    }
    cut_over_and_compare(&cluster, &split);
}

/// Returns columns of the catalog and of its views in which a text is too long, or contains control
/// characters of terminals.
fn uncleaned(cluster: &Cluster) -> Vec<String> {
    let mut master = cluster.superuser().unwrap();
    let columns = "SELECT format('%s.%I', a.attrelid::regclass, a.attname),
                          format('SELECT %I::text FROM %s', a.attname, a.attrelid::regclass)
                     FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
                    WHERE c.relnamespace = 'shardmaster'::regnamespace AND c.relkind = 'r' AND a.attnum > 0
                      AND a.atttypid IN ('text'::regtype, 'text[]'::regtype)
                   UNION ALL VALUES
                     ('metrics', 'SELECT to_jsonb(m)::text FROM shard_split_metrics() m'),
                     ('events', 'SELECT detail FROM shard_split_events(1)'),
                     ('check', 'SELECT concat_ws(chr(32), check_name, detail, hint) FROM shard_split_check(1)'),
                     ('activity', 'SELECT query FROM pg_stat_activity WHERE backend_type LIKE ''shardmaster%''')";
    let mut found = Vec::new();
    for row in master.query(columns, &[]).unwrap() {
        let (name, query): (String, String) = (row.get(0), row.get(1));
        let wrong = format!(
            "SELECT count(*) FROM ({query}) t (x) WHERE octet_length(x) > 20000 OR x LIKE '%' || chr(27) || '%' OR x LIKE '%\\u001b%'"
        );
        if master.query_one(&wrong, &[]).unwrap().get::<_, i64>(0) > 0 {
            found.push(name);
        }
    }
    let log = std::fs::read_to_string(cluster.master.log_path()).unwrap();
    found
        .extend(log.lines().filter(|line| line.len() > 20_000 || line.contains('\u{1b}')).map(str::to_owned));
    found
}

/// Names and expressions of a shard appear in findings, errors, events, reasons to wait, and the log. None of
/// them is longer than a screen, and none contains control characters.
#[test]
fn no_text_of_a_shard_is_stored_as_it_came() {
    let cluster = cluster(&["shardmaster.cutover_timeout = 1500"]);
    let split = plan(&cluster);
    to_pending(&split);
    run(&cluster, 0, "CREATE ROLE \"\u{1b}[2Jrole\" LOGIN; GRANT ALL ON items TO \"\u{1b}[2Jrole\"");
    let mut writer = cluster.servers[0].connect(DATABASE, "\u{1b}[2Jrole").unwrap();
    writer.batch_execute("BEGIN; UPDATE items SET val = 'x' WHERE tenant = 'moves' AND id = 2").unwrap();
    split.call("cutover").unwrap();
    let error = split.wait("completed", LIMIT).unwrap_err().to_string();
    assert!(error.contains("[2Jrole") && !error.contains('\u{1b}'), "{error}");
    assert_eq!(uncleaned(&cluster), Vec::<String>::new());
    writer.batch_execute("ROLLBACK").unwrap();
    split.wait_settled(LIMIT).unwrap();
    run(
        &cluster,
        0,
        "DO $do$ BEGIN
             EXECUTE format('CREATE DOMAIN long AS text CHECK (VALUE <> %L)', chr(27) || '[2J' || repeat('x', 1000000));
         END $do$;
         ALTER TABLE items ADD more long",
    );
    split.wait_for_event("Make both sides alike", LIMIT).unwrap();
    let told = split.events().unwrap();
    assert!(told.contains("changed on the source") && told.contains("\"more\" is missing"), "{told}");
    assert_eq!(uncleaned(&cluster), Vec::<String>::new());
}

/// Starts a server that accepts all connections and sends these messages. Returns its port.
fn speaks(messages: impl Fn() -> Box<dyn Iterator<Item = Vec<u8>>> + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut startup = [0; 8192];
            let _ = client.read(&mut startup);
            let _ = client.write_all(b"R\0\0\0\x08\0\0\0\0");
            for message in messages() {
                if client.write_all(&message).is_err() {
                    break;
                }
            }
        }
    });
    port
}

/// Notices may also arrive before a session exists. None of them appears in the master's log, and everything
/// after them is limited like any answer.
#[test]
fn nothing_that_comes_while_connecting_is_logged_or_kept() {
    let cluster = Cluster::namespaces(0, &["fsync = off"]).unwrap();
    let fields: &[&[u8]] = &[b"SWARNING\0C01000\0Mforged \x1b[2J line\0\0"];
    let fatal: &[&[u8]] = &[b"SFATAL\0C28000\0Mnot for you\0\0"];
    let (notice, fatal) = (message(b'N', fields), message(b'E', fatal));
    let loud = speaks(move || Box::new([notice.clone(), fatal.clone()].into_iter()));
    let flood = speaks(|| {
        let status = |n: usize| message(b'S', &[format!("p{n}\0").as_bytes(), &[b'x'; 29_000], b"\0"]);
        Box::new((0..40_000).map(status))
    });
    let mut master = cluster.superuser().unwrap();
    for (name, port, problem) in
        [("loud", loud, "not for you"), ("flood", flood, "an answer of more than 256 MB")]
    {
        let conninfo =
            format!("host=127.0.0.1 port={port} user=mover dbname=x sslmode=disable gssencmode=disable");
        master.execute("SELECT shard_add($1, $2)", &[&name, &conninfo]).unwrap();
        let error = master.query("SELECT * FROM shard_cleanup($1)", &[&name]).unwrap_err();
        assert!(error.as_db_error().unwrap().message().contains(problem), "{error}");
    }
    let log = std::fs::read_to_string(cluster.master.log_path()).unwrap();
    assert!(!log.contains("forged"), "{log}");
}
